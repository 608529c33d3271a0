"""Redirects in aiohttp: what the hops of one call share. Loaded with the first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...engine import outgoing

if TYPE_CHECKING:
    from ...core.call import Call


class Hop(outgoing.Hop):
    """The last hop of a redirected call, or a call whose error makes the session retry.

    Looked up in the task that made the call, by the timer that all hops of one call share.

    Attributes:
        error: What ended the call; None: a redirect did.
    """

    __slots__ = ("error", "guard", "port", "timer")

    def __init__(self, port: object, call: Call, error: Exception | None = None) -> None:
        super().__init__(call)
        self.port = port
        self.timer = call.request.original._timer
        self.error = error
        self.guard = call.guard
