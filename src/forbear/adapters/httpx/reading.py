"""Reading of bodies in the httpx family: through the library's own stream, for a limited time."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from math import inf
from typing import TYPE_CHECKING, Any

from ...engine.frames import let_signals_through
from ...engine.reading import BODILESS, DRAIN_BYTES, WHOLE, Ending
from .errors import own_error
from .request import LEAST

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from httpx import Request, Response

    from .types import HttpxPort

HTTP_1 = (b"HTTP/1.0", b"HTTP/1.1")


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


def break_off(port: HttpxPort, response: Any, pieces: list[bytes], error: Exception) -> Exception:
    """Give the response what was read, in front of the error that broke the body."""
    let_signals_through(error)
    error = own_error(error, port.library.module)
    response.stream = port.streams.put_back(pieces, port.byte_stream(b""), error=error)
    return error


@contextmanager
def bounded_reads(response: Response, left: Callable[[], float]) -> Iterator[bool]:
    """Let each read of a body over HTTP/1.1 end in the time that is left, in seconds.

    False: it is not bounded. Over HTTP/2 other streams read from the connection too. Left before
    the body is closed: then another request may have the connection.
    """
    wire: Any = response.extensions.get("network_stream")
    is_bounded = response.extensions.get("http_version") in HTTP_1 and hasattr(wire, "__dict__")
    if not is_bounded:
        yield False
        return
    before = vars(wire).get("read")
    wire.read = bounded(wire.read, left)
    try:
        yield True
    finally:
        if before is None:
            vars(wire).pop("read", None)
        else:
            wire.read = before


def bounded(read: Callable[..., Any], left: Callable[[], float]) -> Callable[..., Any]:
    """The ``read`` of a network stream of either flavour, bounded by the time that is left."""

    def read_in_time(max_bytes: int, timeout: float | None = None) -> Any:
        seconds = left()
        if timeout is None or seconds < timeout:
            timeout = max(seconds, LEAST) if seconds < inf else None
        return read(max_bytes, timeout)

    return read_in_time


class Reading:
    """The reading of a synchronous response's body, as the library reads it.

    Attributes:
        pieces, received: What was read of it, and how many bytes.
        rest: What is still to be read.
    """

    def __init__(self, stream: Any) -> None:
        self.pieces: list[bytes] = []
        self.received = 0
        self.rest: Iterator[bytes] = iter(stream)

    def read_piece(self) -> bytes | Ending:
        piece = next(self.rest, None)
        return WHOLE if piece is None else piece


class AsyncReading:
    """The same of an asynchronous response."""

    def __init__(self, stream: Any) -> None:
        self.pieces: list[bytes] = []
        self.received = 0
        self.rest: AsyncIterator[bytes] = aiter(stream)

    async def read_piece(self) -> bytes | Ending:
        piece = await anext(self.rest, None)
        return WHOLE if piece is None else piece


async def finish(stream: Any, rest: AsyncIterator[bytes]) -> None:
    """Let the generators of a closed body end by reading on: trio warns of unfinished ones.

    Only over HTTP/1: a body whose generators have not ended closed its connection there, so reading
    on is an error at once. Over HTTP/2 it would wait for the other streams' parts.
    """
    room = DRAIN_BYTES  # what had arrived is still there to be read
    if arrived(stream) >= 0:
        with suppress(Exception):
            async for piece in rest:
                room -= len(piece)
                if room < 0:
                    break
