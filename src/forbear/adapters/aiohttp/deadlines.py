"""Deadlines in aiohttp: the timeouts of an attempt; loaded with the first call that has a limit."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from ...core.outcome import TIMEOUT_KINDS
from ...engine.errors import EARLY

if TYPE_CHECKING:
    import aiohttp
    from aiohttp.client_proto import ResponseHandler

    from ...core.outcome import FailureKind
    from ...engine.clock import Clock


class Timeouts:
    """The limits of one attempt, which aiohttp's own read timeout is shortened to.

    Args:
        clock: The call's.
        deadline_at: When the call is over.
        each: The policy's ``attempt_timeout``.
    """

    def __init__(self, clock: Clock, deadline_at: float, each: float | None) -> None:
        self.clock = clock
        self.deadline_at = deadline_at
        self.each = each
        self.own: float | None = None  # the session's timeout for reading
        self.protocol: ResponseHandler | None = None  # whose timeout was changed
        self._is_shortened = False

    def connect(self) -> float | None:
        """Return the seconds for getting a connection."""
        left = max(self.deadline_at - self.clock.monotonic(), 0.001)
        self._is_shortened = self.each is None or left < self.each
        return self.each if left == inf or not self._is_shortened else left

    def begin(self, protocol: ResponseHandler) -> None:
        """Let each read of the connection end in time."""
        own = protocol.read_timeout or None
        seconds = min((one for one in (own, self.each) if one is not None), default=inf)
        left = max(self.deadline_at - self.clock.monotonic(), 0.001)
        self._is_shortened = left < seconds
        if min(left, seconds) != own and min(left, seconds) < inf:
            self.own, self.protocol = own, protocol
            protocol.read_timeout = min(left, seconds)

    def reopen(self, response: aiohttp.ClientResponse) -> None:
        """Give a body that the caller reads the session's own timeout."""
        protocol, self.protocol = self.protocol, None
        if protocol is not None:
            protocol.read_timeout = self.own
            if response.connection is not None and not response.content.is_eof():
                protocol.start_timeout()

    def cut_short(self, kind: FailureKind, now: float) -> bool:
        """Did the deadline end the attempt, through the timeout for connecting or reading?"""
        return kind in TIMEOUT_KINDS and self._is_shortened and now >= self.deadline_at - EARLY
