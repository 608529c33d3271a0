"""Connections of the httpx family: waiting for more of a body, which stays readable.

httpcore closes a connection when a read of its own times out, and the rest of the body is lost to
the caller. So the network stream, which is in each response's extensions, is read here first:
httpcore gets what arrived when it asks for it, and a body that pauses stays intact. Over HTTP/2
other streams read from the connection too, so there httpcore reads, as long as the client allows.
Loaded with the inspection of responses.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from ...engine.clock import SYSTEM_CLOCK
from ...engine.reading import LATE, Ending, is_readable
from .reading import AsyncReading, Reading, is_bodiless, own_timeout, unread
from .request import LEAST

if TYPE_CHECKING:
    from collections.abc import Callable

    from httpx import Request, Response

PIECE = 65_536  # bytes asked for at once, as by httpcore


class Waiting:
    """How one body is waited for.

    Args:
        request: As it was sent.
        response: Nothing else reads its body.
        length: Raw bytes of the body; more than any if that is unknown.
        seconds: For how long.
    """

    received: int
    read: Callable[..., object]  # stands in for the ``read`` of the network stream

    def __init__(self, request: Request, response: Response, length: int, seconds: float) -> None:
        super().__init__(response.stream)  # type: ignore[call-arg]
        self._stream, self._length = response.stream, length
        self._until = SYSTEM_CLOCK.true_monotonic() + seconds
        self._wire: Any = None
        self._found: bytes | Exception | None = None  # received, and not given to httpcore yet
        own = own_timeout(request)  # a body that exceeds it is a broken one
        wire: Any = response.extensions.get("network_stream")
        if is_bodiless(request, response) or (own is not None and own < seconds):
            return
        if self._unread() is not None and hasattr(wire, "__dict__"):
            self._wire = wire
            self._own_read: Callable[..., Any] = wire.read
            self._before = vars(wire).get("read")
            self._is_chunked = "transfer-encoding" in response.headers

    def _unread(self) -> bytes | None:
        try:
            return unread(self._stream)
        except AttributeError:  # of HTTP/2, or of another transport
            return None

    def left(self) -> float:
        """Seconds until the wait is over."""
        return self._until - SYSTEM_CLOCK.true_monotonic()

    def _is_there(self) -> bool:
        """Can the body be read on without waiting?"""
        if self._wire is None or self._found is not None:
            return True
        return is_readable(bytes(self._unread() or b""), is_chunked=self._is_chunked)

    def _give(self) -> bytes:
        """Give httpcore what was received, once."""
        found, self._found = self._found, None
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[return-value]

    def _note(self, found: bytes | Exception) -> bool:
        """Note what was received, or broke the connection; False: nothing did in time.

        PyPy's sockets time out up to half a millisecond early.
        """
        if type(found).__name__ == "ReadTimeout" and self.left() <= LEAST:
            return False
        self._found = found
        self._wire.read = self.read
        return True

    def _bounded(self, timeout: float | None) -> float | None:
        """Bound httpcore's own read, for the rest of a chunk's framing of which a part arrived."""
        return timeout if self._until == inf else max(self.left(), LEAST)

    def leave(self) -> None:
        """Let the connection be read as before."""
        if self._wire is None:
            return
        if self._found is not None:  # still to be given to httpcore, when it reads next
            self._until = inf
        elif self._before is None:
            vars(self._wire).pop("read", None)
        else:
            self._wire.read = self._before


class Arriving(Waiting, Reading):
    """The body of a synchronous response."""

    def read_piece(self) -> bytes | Ending:
        left = inf if self.received >= self._length else self.left()  # its end comes without a wait
        if left <= 0:
            return LATE
        if left < inf and not self._is_there():
            try:
                found = self._note(self._own_read(PIECE, max(left, LEAST)))
            except Exception as error:
                found = self._note(error)
            if not found:
                return LATE
        return super().read_piece()

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Stand in for the ``read`` of the network stream."""
        if self._found is not None:
            return self._give()
        return self._own_read(max_bytes, self._bounded(timeout))  # type: ignore[no-any-return]


class AsyncArriving(Waiting, AsyncReading):
    """The body of an asynchronous response."""

    async def read_piece(self) -> bytes | Ending:
        left = inf if self.received >= self._length else self.left()
        if left <= 0:
            return LATE
        if left < inf and not self._is_there():
            try:
                found = self._note(await self._own_read(PIECE, max(left, LEAST)))
            except Exception as error:
                found = self._note(error)
            if not found:
                return LATE
        return await super().read_piece()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Stand in for the ``read`` of the network stream."""
        if self._found is not None:
            return self._give()
        return await self._own_read(max_bytes, self._bounded(timeout))  # type: ignore[no-any-return]
