"""Prefetching: a small body is read inside the loop, so that a broken one is a failure like any other. Floor: acts.

Only where the length is known and nothing is gained by having the beginning early, and for a quarter of a
second at most: then what was read is handed over, and the live stream behind it.

A read that is begun cannot be given up: httpcore closes the connection when one times out. So on HTTP/1.1 the
bytes are waited for here, before httpcore is asked for them: read from the connection's own network stream under
a time limit of ours, and put where httpcore would have put them, into h11's buffer. Nothing is lost when that
limit or a cancellation ends it. HTTP/2 streams share their connection, where the next bytes may be for any of
them: there, and in streams of transports that cannot be seen into, the library's own read timeout bounds each
read, and the clock is looked at in between.

Private attributes relied on, each checked by tests/adapters/test_private_attributes.py: ``_list`` of Headers;
``_httpcore_stream`` of ResponseStream, ``_stream`` of that, ``_connection`` of that, of which ``_h11_state`` and
``_network_stream``. Without them a stream is one that cannot be seen into.
"""

from __future__ import annotations

from contextlib import suppress
from math import inf

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from typing import Any

__all__ = ["AsyncPrefetched", "Prefetched", "aprefetch", "length_ahead", "prefetch"]

SECONDS = 0.25  # longest that a body delays the hand-over of its head; a busy server's pause between the two
READ_BYTES = 65_536  # as httpcore reads
CONCERNING = frozenset({b"content-length", b"content-type", b"transfer-encoding"})
ENDLESS = (b"text/event-stream", b"multipart/x-mixed-replace")  # of which each part is wanted when it comes
BODILESS_METHODS = frozenset({"HEAD", "CONNECT"})
BODILESS_STATUSES = frozenset({101, 204, 304})


def length_ahead(request: Any, response: Any, most: int) -> int:
    """How many octets of the body are to be read ahead, 0 if none are."""
    length = 0
    try:
        lines = response.headers._list  # ``raw`` makes a new list of it, at three times the price of this loop
    except AttributeError:
        lines = [(name, name.lower(), value) for name, value in response.headers.raw]
    for _, name, value in lines:
        if name in CONCERNING:
            if name == b"content-type":
                if value[:1] in b"tTmM" and value.lower().startswith(ENDLESS):
                    return 0
            elif length or name == b"transfer-encoding" or len(value) > 9 or not value.isdigit():
                return 0
            else:
                length = int(value)
    if length > most or request.method in BODILESS_METHODS or response.status_code in BODILESS_STATUSES:
        return 0
    if response.is_closed or response.is_stream_consumed:  # a transport below has read it
        return 0
    return length


class Ahead:
    """A body of which something was read before it was handed over."""

    # What few have stands here once.
    is_whole = False
    rest: Any = None  # where the reading goes on
    error: Exception | None = None  # what ended it

    def __init__(self, chunks: list[bytes], stream: Any) -> None:
        self._chunks = iter(chunks)
        self._stream = stream


class Prefetched(Ahead):
    """Of a synchronous response."""

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        for chunk in self._chunks:
            return chunk
        if self.rest is not None:
            return next(self.rest)  # type: ignore[no-any-return]
        if self.error is not None:
            raise self.error
        raise StopIteration

    def close(self) -> None:
        self._stream.close()


class AsyncPrefetched(Ahead):
    """Of an asynchronous response. No generator: trio complains of those that are left in the middle."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        for chunk in self._chunks:
            return chunk
        if self.rest is not None:
            return await self.rest.__anext__()  # type: ignore[no-any-return]
        if self.error is not None:
            raise self.error
        raise StopAsyncIteration

    async def aclose(self) -> None:
        await self._stream.aclose()


def prefetch(transport: Any, request: Any, response: Any, length: int, deadline_at: float = inf) -> Exception | None:
    """Read the body as far as time allows and put what was read in its place; return what broke it."""
    stream = response.stream
    chunks: list[bytes] = []
    connection = connection_below(stream)
    clock = Stopwatch(transport._now, deadline_at)
    response.stream = ahead = transport._library.prefetched(chunks, stream)
    try:
        rest = iter(stream)
        while length > 0:
            if connection is None:
                in_time = not chunks or clock.left() > 0
            else:
                in_time = is_buffered(connection) or fill(connection, request, clock.left())
            if not in_time:
                ahead.rest = rest
                return None
            for chunk in rest:
                chunks.append(chunk)
                length -= len(chunk)
                break
            else:
                break
        chunks.extend(rest)
    except Exception as error:
        with suppress(Exception):
            stream.close()
        ahead.error = error
        return error
    except BaseException:
        stream.close()
        raise
    ahead.is_whole = True
    return None


async def aprefetch(
    transport: Any, request: Any, response: Any, length: int, deadline_at: float = inf
) -> Exception | None:
    """Read the body as far as time allows and put what was read in its place; return what broke it."""
    stream = response.stream
    chunks: list[bytes] = []
    connection = connection_below(stream)
    clock = Stopwatch(transport._now, deadline_at)
    response.stream = ahead = transport._library.async_prefetched(chunks, stream)
    try:
        rest = stream.__aiter__()
        while length > 0:
            if connection is None:
                in_time = not chunks or clock.left() > 0
            else:
                in_time = is_buffered(connection) or await afill(connection, request, clock.left())
            if not in_time:
                ahead.rest = rest
                return None
            async for chunk in rest:
                chunks.append(chunk)
                length -= len(chunk)
                break
            else:
                break
        async for chunk in rest:
            chunks.append(chunk)
    except Exception as error:
        with suppress(Exception):
            await stream.aclose()
        ahead.error = error
        return error
    except BaseException:
        import anyio

        with anyio.CancelScope(shield=True):
            await stream.aclose()
        raise
    ahead.is_whole = True
    return None


class Stopwatch:
    """Counts from when it is asked first: most bodies are there with their head, and it never is."""

    __slots__ = ("_deadline_at", "_now", "_until")

    def __init__(self, now: Callable[[], float], deadline_at: float) -> None:
        self._now = now
        self._deadline_at = deadline_at
        self._until: float | None = None

    def left(self) -> float:
        now = self._now()
        if self._until is None:
            self._until = min(now + SECONDS, self._deadline_at)
        return self._until - now


def connection_below(stream: Any) -> Any:
    """The HTTP/1.1 connection that a body comes from; None if it is another one, or cannot be seen."""
    core = getattr(stream, "_httpcore_stream", None)
    if core is None:
        return None
    connection = getattr(getattr(core, "_stream", None), "_connection", None)
    if hasattr(getattr(connection, "_h11_state", None), "trailing_data") and hasattr(connection, "_network_stream"):
        return connection
    return None


def is_buffered(connection: Any) -> bool:
    """Will httpcore find something without reading from the network?"""
    return bool(connection._h11_state.trailing_data[0])


def fill(connection: Any, request: Any, left: float) -> bool:
    """Wait for bytes, so that httpcore finds them, or the error that came instead; False if none came in time."""
    if left <= 0:
        return False
    seconds, is_ours = limit(request, left)
    try:
        octets = connection._network_stream.read(READ_BYTES, timeout=seconds)
    except Exception as error:
        if is_ours and type(error).__name__ == "ReadTimeout":
            return False
        connection._network_stream = Failing(connection._network_stream, error)
    else:
        connection._h11_state.receive_data(octets)
    return True


async def afill(connection: Any, request: Any, left: float) -> bool:
    """Wait for bytes, so that httpcore finds them, or the error that came instead; False if none came in time."""
    if left <= 0:
        return False
    seconds, is_ours = limit(request, left)
    try:
        octets = await connection._network_stream.read(READ_BYTES, timeout=seconds)
    except Exception as error:
        if is_ours and type(error).__name__ == "ReadTimeout":
            return False
        connection._network_stream = Failing(connection._network_stream, error)
    else:
        connection._h11_state.receive_data(octets)
    return True


def limit(request: Any, left: float) -> tuple[float, bool]:
    """Seconds to wait for bytes; True if that is our limit, not the one that the client has set for its reads."""
    configured = (request.extensions.get("timeout") or {}).get("read")
    return (left, True) if configured is None or left <= configured else (configured, False)


class Failing:
    """A network stream that was found broken: httpcore meets the error where it would have read itself."""

    def __init__(self, stream: Any, error: Exception) -> None:
        self._stream = stream
        self._error = error

    def read(self, *_: Any, **__: Any) -> Any:
        raise self._error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
