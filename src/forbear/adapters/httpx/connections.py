"""Connections of the httpx family: waiting for more of a body, which stays readable.

httpcore closes a connection when a read of its own times out, and the rest of the body is lost to
the caller. So the network stream, which is in each response's extensions, is read here first:
httpcore gets what arrived when it asks for it, and a body that pauses stays intact. Over HTTP/2
(http2.py) httpcore itself reads.
"""

from __future__ import annotations

from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any

from ...core.headers.fields import begins_events
from ...engine.clock import SYSTEM_CLOCK
from ...engine.reading import BODILESS, LATE, WHOLE, Ending, is_readable
from .errors import root
from .request import LEAST

if TYPE_CHECKING:
    from collections.abc import Callable

    from httpx import Request, Response

    from .http2 import Shared


PIECE = 65_536  # bytes asked for at once, as by httpcore
UNKNOWN = 2**62  # bytes of a body whose length is unknown: more than any


def arrived(stream: Any) -> int:
    """Bytes of a body that have arrived and were not read yet, with framing; -1: unknown."""
    try:
        return len(stream._httpcore_stream._stream._connection._h11_state.trailing_data[0])
    except AttributeError:
        return -1


def is_bodiless(request: Request, response: Response) -> bool:
    """Has the response no body, whatever its head says?"""
    return request.method == "HEAD" or response.status_code in BODILESS


def own_timeout(request: Request) -> float | None:
    """Return the caller's timeout of each read; None: there is none."""
    timeouts = request.extensions.get("timeout")
    return timeouts.get("read") if timeouts else None


class Waiting:
    """The reading of one body, for a limited time.

    Attributes:
        pieces, received: What was read of the body, and how many bytes.
        rest: What is still to be read.

    Args:
        request: As it was sent.
        response: Nothing else reads its body.
        length: Raw bytes of the body; more than any if that is unknown.
        seconds: For how long; infinite: as long as the library waits.
        own: The caller's timeout for a read: a body that exceeds it is a broken one.
    """

    def __init__(
        self, request: Request, response: Response, length: int, seconds: float, own: float | None
    ) -> None:
        self.pieces: list[bytes] = []
        stream: Any = response.stream
        self.rest = self.iterate(stream)
        self._length = length
        self._until = SYSTEM_CLOCK.true_monotonic() + seconds
        self._wire: Any = None
        self._found: bytes | Exception | None = None  # received, and not given to httpcore yet
        self.shares: Shared | None = None  # over HTTP/2, where the end of a body is an event
        if is_bodiless(request, response) or seconds == inf:
            return
        wire: Any = response.extensions.get("network_stream")
        if own is not None and own < seconds:
            return
        if arrived(stream) < 0:
            if not hasattr(stream, "_httpcore_stream"):
                return  # another transport's
            from .http2 import Shared

            with suppress(AttributeError):
                self.shares = Shared(stream._httpcore_stream._stream, wire)
        elif hasattr(wire, "__dict__"):
            self._wire = wire
            self._h11 = stream._httpcore_stream._stream._connection._h11_state
            self._own_read: Callable[..., Any] = wire.read
            self._before = vars(wire).get("read")
            self._is_chunked = "transfer-encoding" in response.headers

    received = 0
    iterate: Any  # (stream): begins to read it
    read: Callable[..., object]  # stands in for the ``read`` of the network stream

    def left(self) -> float:
        """Seconds until the wait is over."""
        return self._until - SYSTEM_CLOCK.true_monotonic()

    def _is_there(self) -> bool:
        """Can the body be read on without waiting?"""
        if self._wire is None or self._found is not None:
            return True
        return is_readable(self._h11.trailing_data[0], is_chunked=self._is_chunked)

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


class Arriving(Waiting):
    """The reading of a synchronous response's body."""

    iterate = staticmethod(iter)

    def more(self) -> bool:
        """Wait until the body can be read on; False: the time is over, and the body is intact."""
        left, shares = self.left(), self.shares
        if self.received >= self._length and shares is None:
            return True  # the end comes without a wait; over HTTP/2 it is an event of its own
        while shares is not None and left > 0 and not shares.has_events():
            try:
                if shares.wait(left):
                    shares.receive()
            except Exception as error:
                if is_raised_again(error):
                    break
                raise
            left = self.left()
        if left <= 0 or self._is_there():
            return left > 0
        try:
            return self._note(self._own_read(PIECE, max(left, LEAST)))
        except Exception as error:
            return self._note(error)

    def read_piece(self) -> bytes | Ending:
        if not self.more():
            return LATE
        piece: bytes | None = next(self.rest, None)
        return WHOLE if piece is None else piece

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Stand in for the ``read`` of the network stream."""
        if self._found is not None:
            return self._give()
        return self._own_read(max_bytes, self._bounded(timeout))  # type: ignore[no-any-return]


class AsyncArriving(Waiting):
    """The reading of an asynchronous response's body."""

    iterate = staticmethod(aiter)

    async def more(self) -> bool:
        """Wait until the body can be read on; False: the time is over, and the body is intact."""
        left, shares = self.left(), self.shares
        if self.received >= self._length and shares is None:
            return True  # the end comes without a wait; over HTTP/2 it is an event of its own
        while shares is not None and left > 0 and not shares.has_events():
            import anyio

            with anyio.move_on_after(left):  # a cancelled receive leaves the bytes in the socket
                try:
                    await shares.areceive()
                except Exception as error:
                    if is_raised_again(error):
                        break
                    raise
            left = self.left()
        if left <= 0 or self._is_there():
            return left > 0
        try:
            return self._note(await self._own_read(PIECE, max(left, LEAST)))
        except Exception as error:
            return self._note(error)

    async def read_piece(self) -> bytes | Ending:
        if not await self.more():
            return LATE
        piece: bytes | None = await anext(self.rest, None)
        return WHOLE if piece is None else piece

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Stand in for the ``read`` of the network stream."""
        if self._found is not None:
            return self._give()
        return await self._own_read(max_bytes, self._bounded(timeout))  # type: ignore[no-any-return]


def is_raised_again(error: Exception) -> bool:
    """Is it raised when the body is read? After an error of h2 httpcore would wait for more."""
    return root(type(error)) != "h2"


def is_empty_stream(response: Response, length: int) -> bool:
    """Has a stream of events ended with its head? Its reader will request it again."""
    return length == 0 and begins_events(response.status_code, response.headers.raw)
