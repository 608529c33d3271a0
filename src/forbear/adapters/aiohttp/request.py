"""Request: what a decision sees of a request of aiohttp."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import payload as payloads

from ...core.request import Request

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...engine.outgoing import Hop

    # The port and the timer of a call, and what its last hop has left: of a redirect, or the error
    # that ended it.
    Last = tuple[object, object, Hop | BaseException]

# Types of bodies that can be replayed as they are; without a body that is b"".
TEXTS = payloads.StringPayload, payloads.StringIOPayload, payloads.JsonPayload
PLAIN: frozenset[type] = frozenset((bytes, payloads.BytesPayload, *TEXTS))


class AiohttpRequest(Request):
    """The facts that a decision reads of a ClientRequest.

    Attributes:
        handler: What sends it: the session, or the next middleware.
    """

    __slots__ = ("handler",)

    handler: aiohttp.ClientHandlerType

    def header_lines(self) -> Iterable[tuple[str, str]]:
        return self.headers.items()  # type: ignore[no-any-return]

    def path_and_query(self) -> str:
        return self.target.raw_path_qs  # type: ignore[no-any-return]


# Of the task that makes the calls. All hops of one call share their timer.
LAST_HOP: ContextVar[Last | None] = ContextVar("forbear_last_hop", default=None)
