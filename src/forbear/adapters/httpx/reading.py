"""Live bodies of the httpx family: what is still to come of a response, read in time.

``LiveBody`` alone reads a response's body, through the library's own stream. httpcore asks for the
read timeout once, when a body begins, and closes the connection when a read of its own times out.
So the network stream, which is in each response's extensions, is read in its place where a read has
to end by some instant: httpcore gets what arrived when it asks for it, and a body that pauses stays
intact. Not over HTTP/2, where other streams read from the connection too: there httpcore reads, for
as long as the client allows.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from ...engine.clock import SYSTEM_CLOCK
from ...engine.errors import DeadlineCut
from ...engine.reading import BODILESS, is_readable
from .errors import own_error
from .request import LEAST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from httpx import Request, Response

    from .types import HttpxPort

HTTP_1 = (b"HTTP/1.0", b"HTTP/1.1")
PIECE = 65_536  # bytes asked for at once, as by httpcore
LENGTH = b"content-length"
FRAMING = (LENGTH, b"transfer-encoding")
UNKNOWN = 2**62  # bytes of a body whose length is unknown: more than any


def length_to_prefetch(port: HttpxPort, response: Response) -> int:
    """Return the length that the head declares; if it declares none, more than is ever prefetched.

    Where the body really ends, the library decides.
    """
    try:
        _, name, value = response.headers._list[port.length_line]
    except (AttributeError, IndexError):
        name = value = b""
    if name not in FRAMING:
        lines = response.headers.raw
        places = [i for i, line in enumerate(lines) if line[0].lower() in FRAMING]
        if not places:
            return UNKNOWN
        port.length_line = places[0]
        name, value = lines[places[0]]
    try:
        return int(value) if name.lower() == LENGTH and value.isdigit() else UNKNOWN
    except ValueError:  # thousands of digits
        return UNKNOWN


def unread(stream: Any) -> bytes:
    """Bytes of a body that have arrived and were not read yet, with framing.

    AttributeError: unknown.
    """
    state = stream._httpcore_stream._stream._connection._h11_state
    return state._receive_buffer._data  # type: ignore[no-any-return]  # its public view is a copy


def arrived(stream: Any) -> int:
    """Bytes of a body that have arrived and were not read yet, with framing; -1: unknown."""
    try:
        return len(unread(stream))
    except AttributeError:
        return -1


def is_bodiless(request: Request, response: Response) -> bool:
    """Has the response no body, whatever its head says?"""
    return request.method == "HEAD" or response.status_code in BODILESS


def own_timeout(request: Request) -> float | None:
    """Return the caller's timeout of each read; None: there is none."""
    timeouts = request.extensions.get("timeout")
    return timeouts.get("read") if timeouts else None


class LiveBody:
    """The source of a response: the bytes that are still to come.

    Each read ends by ``ends_at``, and by the deadline of the timeouts with which the request was
    sent.

    Attributes:
        stream: The library's own.
        ends_at: An instant of the system's clock.
    """

    _found: bytes | Exception | None = None  # received, and not given to httpcore yet
    _received = 0
    _is_closed = False

    def __init__(
        self, port: HttpxPort, request: Request, response: Response, ends_at: float = inf
    ) -> None:
        self.stream: Any = response.stream
        self.ends_at = ends_at
        self._port, self._headers = port, response.headers
        timeouts = request.extensions.get("timeout") or {}
        self._configured: Any = timeouts
        self._timeouts: Any = timeouts if hasattr(timeouts, "deadline_at") else None  # ours
        self._length = 0 if is_bodiless(request, response) else length_to_prefetch(port, response)
        wire = response.extensions.get("network_stream")
        is_alone = response.extensions.get("http_version") in HTTP_1 and hasattr(wire, "__dict__")
        self._wire: Any = wire if is_alone else None
        self._chunks: Any = None

    if TYPE_CHECKING:

        async def _next(self) -> bytes: ...  # the next bytes as the library reads them
        async def _next_in_time(self, seconds: float) -> bytes: ...  # with no wire to bound
        async def _receive(self, seconds: float) -> bytes: ...  # from the wire
        async def close(self) -> None: ...
        def _give(self, most: int, timeout: float | None = None) -> Any: ...

    def left(self) -> float:
        """Seconds in which a read has to end."""
        left = inf if self.ends_at == inf else self.ends_at - SYSTEM_CLOCK.true_monotonic()
        return left if self._timeouts is None else min(left, self._timeouts.left())

    @property
    def can_wait(self) -> bool:
        return self._wire is not None and self._unread() is not None

    def _unread(self) -> bytes | None:
        try:
            return unread(self.stream)
        except AttributeError:  # of HTTP/2, or of another transport
            return None

    async def has_more(self) -> bool:
        """Wait until the body can be read on; False: the time is over, and the body is intact.

        PyPy's sockets time out up to half a millisecond early.
        """
        if self._found is not None or self._received >= self._length:
            return True  # the end of a body comes without a wait
        left = self.left()
        if left == inf:
            return True
        if left <= 0:
            return False
        there = None if self._wire is None else self._unread()
        if there is None or is_readable(
            bytes(there), is_chunked="transfer-encoding" in self._headers
        ):
            return True
        own: float | None = self._configured.get("read")
        is_own = own is not None and own < left  # a body that exceeds it is a broken one
        try:
            self._found = await self._receive(max(left if own is None else min(own, left), LEAST))
        except Exception as error:
            if not is_own and type(error).__name__ == "ReadTimeout" and self.left() <= LEAST:
                return False
            self._found = error
        return True

    async def read(self) -> bytes:
        try:
            if self.ends_at == inf and self._timeouts is None and self._found is None:
                return await self._next()
            left, wire = self.left(), self._wire
            if left != inf and not await self.has_more():
                await self.close()
                raise self._late()
            if wire is None:
                piece = await (self._next() if left == inf else self._next_in_time(left))
            else:
                before = vars(wire).get("read")
                self._read, wire.read = wire.read, self._give
                try:
                    piece = await self._next()
                finally:  # before another request may have the connection
                    if before is None:
                        vars(wire).pop("read", None)
                    else:
                        wire.read = before
            self._received += len(piece)
            return piece
        except Exception as error:
            raise own_error(error, self._port.library.module)  # noqa: B904  # mostly the same one

    def _late(self) -> Exception:
        if self._timeouts is not None and self._timeouts.is_over():
            return DeadlineCut()
        return self._port.stream_timeout("the body did not come in time")

    def _taken(self) -> bytes:
        """Return the bytes that were received, once."""
        found, self._found = self._found, None
        if isinstance(found, bytes):
            return found
        try:
            raise found  # type: ignore[misc]
        finally:
            del found  # its traceback holds this frame

    def _bounded(self, timeout: float | None) -> float | None:
        """The timeout of httpcore's own read, for the rest of a chunk's framing for example.

        It has asked for it when the body began, and a body that was handed over is read with the
        caller's own.
        """
        if self._timeouts is not None:
            timeout = self._timeouts.get("read")
        left = self.left()
        if left == inf or (timeout is not None and timeout <= left):
            return timeout
        return max(left, LEAST)


class SyncLive(LiveBody):
    """The source of a synchronous response."""

    _chunks: Iterator[bytes] | None

    async def _next(self) -> bytes:
        if self._chunks is None:
            self._chunks = iter(self.stream)
        for chunk in self._chunks:
            if chunk:
                return chunk
        return b""

    async def _next_in_time(self, seconds: float) -> bytes:
        return await self._next()

    async def _receive(self, seconds: float) -> bytes:
        return self._wire.read(PIECE, seconds)  # type: ignore[no-any-return]

    def _give(self, most: int, timeout: float | None = None) -> Any:
        """Stand in for the ``read`` of the network stream."""
        if self._found is not None:
            return self._taken()
        return self._read(most, self._bounded(timeout))

    async def close(self) -> None:
        if not self._is_closed:  # httpx2 closes its iterator, and then the stream
            self.stream.close()
            self._is_closed = True
