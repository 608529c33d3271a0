"""Prefetching: a small body is read inside the loop, so that a broken one is a failure like any
other. Floor: acts.

Only where the length is known and nothing is gained by having the beginning early, and for a
quarter of a second at most: then what was read is handed over, and the live stream behind it.

On HTTP/1.1 nothing is taken out of the library's stream. A read that is begun there cannot be given
up, since httpcore closes the connection when one times out; so the bytes are read from the
connection's own network stream under a time limit of ours, and put where httpcore would have put
them: into h11's buffer. When all are there the body cannot break any more, and when time or a
cancellation ends the wait nothing is lost.

HTTP/2 streams share their connection, where the next bytes may be for any of them. Those, and
streams of transports that cannot be seen into, are read through and handed over anew; there the
library's own read timeout bounds each read, and the clock is looked at in between.

Private attributes relied on, each checked by tests/adapters/test_private_attributes.py: ``_list``
of Headers; ``_httpcore_stream`` of ResponseStream, ``_stream`` of that, ``_connection`` of that, of
which ``_h11_state`` and ``_network_stream``. Without them a stream is one that cannot be seen into.
"""

from __future__ import annotations

from contextlib import suppress
from math import inf

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from typing import Any, Literal, TypeAlias

    Outcome: TypeAlias = Literal["whole", "late", "broken"] | Exception

__all__ = [
    "LATE",
    "WHOLE",
    "AsyncPrefetched",
    "Places",
    "Prefetched",
    "aprefetch",
    "prefetch",
    "unread",
]

# What comes of reading ahead, if it is not the exception that broke the body.
WHOLE: Literal["whole"] = "whole"
LATE: Literal["late"] = "late"  # more is to come, some time
BROKEN: Literal["broken"] = "broken"

SECONDS = 0.25  # longest that a body delays the hand-over of its head; a busy server's pause between the two
READ_BYTES = 65_536  # as httpcore reads
LENGTH, TYPE, CODING = b"content-length", b"content-type", b"transfer-encoding"
LONGEST = 9  # digits of a length, more than any that is read ahead
ENDLESS = (
    b"text/event-stream",
    b"multipart/x-mixed-replace",
)  # of which each part is wanted when it comes
INITIALS = frozenset({b"t", b"T", b"m", b"M"})  # of those
BODILESS_METHODS = frozenset({"HEAD", "CONNECT"})
BODILESS_STATUSES = frozenset({101, 204, 304})


class Places:
    """Where two lines stood among the headers of the answer before: mostly they stand there
    again.
    """

    __slots__ = ("length", "type")

    def __init__(self) -> None:
        self.length = self.type = 0


def unread(transport: Any, request: Any, response: Any) -> int:
    """How many octets of the body to wait for: 0 if it came whole with its head, -1 if it is not to
    be read ahead.

    Every call that succeeds at once is asked, so this is written for speed: ``raw`` would make a
        new list of the
    lines, at the price of all the rest, and each look at a line that is not wanted counts.
    """
    try:
        lines = response.headers._list
    except AttributeError:
        lines = [(name, name.lower(), value) for name, value in response.headers.raw]
    places = transport._places
    try:
        _, name, digits = lines[places.length]
        _, other, kind = lines[places.type]
    except IndexError:
        name = other = digits = kind = b""
    if name != LENGTH:
        for place, line in enumerate(lines):
            if line[1] == LENGTH:
                places.length = place
                digits = line[2]
                break
        else:
            return -1
    if other != TYPE:
        kind = b""
        for place, line in enumerate(lines):
            if line[1] == TYPE:
                places.type = place
                kind = line[2]
                break
    if len(digits) > LONGEST or not digits.isdigit():
        return -1
    if kind[:1] in INITIALS and kind.lower().startswith(ENDLESS):
        return -1
    length = int(digits)
    if (
        length > transport._prefetch
        or request.method in BODILESS_METHODS
        or response.status_code in BODILESS_STATUSES
    ):
        return -1
    if response.is_closed or response.is_stream_consumed:  # a transport below has read it
        return -1
    below = getattr(response.stream, "_httpcore_stream", None)
    if below is not None:
        try:
            length -= len(below._stream._connection._h11_state.trailing_data[0])
        except AttributeError:
            return unless_chunked(length, lines)
    return unless_chunked(length, lines) if length > 0 else 0


def unless_chunked(length: int, lines: Any) -> int:
    """Beside Transfer-Encoding a length is none (RFC 9112 section 6.3): it would be waited for in
    vain.
    """
    return -1 if any(line[1] == CODING for line in lines) else length


class Ahead:
    """A body that was read through before it was handed over, as far as time allowed.

    Attributes:
        stream: The library's own.
        chunks: What was read of it.
        rest: Where the reading goes on; None if the body is whole, or broken.
        error: What broke it.
    """

    stream: Any
    chunks: list[bytes]
    rest: Any = None
    error: Exception | None = None


class Prefetched(Ahead):
    """Of a synchronous response."""

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.chunks) if self.rest is None and self.error is None else self._go_on()

    def _go_on(self) -> Iterator[bytes]:
        yield from self.chunks
        if self.error is not None:
            raise self.error
        yield from self.rest

    def close(self) -> None:
        self.stream.close()


class AsyncPrefetched(Ahead):
    """Of an asynchronous response. No generator: trio complains of those that are left in the
    middle.
    """

    _place = 0

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        place = self._place
        if place < len(self.chunks):
            self._place = place + 1
            return self.chunks[place]
        if self.rest is not None:
            return await self.rest.__anext__()  # type: ignore[no-any-return]
        if self.error is not None:
            raise self.error
        raise StopAsyncIteration

    async def aclose(self) -> None:
        await self.stream.aclose()


def prefetch(
    transport: Any, request: Any, response: Any, missing: int, deadline_at: float = inf
) -> Outcome:
    """Wait for so many octets of the body as far as time allows; return what came of it."""
    stream = response.stream
    ahead = transport._library.prefetched()
    ahead.stream = stream
    ahead.chunks = chunks = []
    try:
        connection = connection_below(stream)
        if connection is not None:
            outcome = fill(connection, request, missing, transport._now, deadline_at)
            if outcome is not BROKEN:
                return outcome
        response.stream = ahead
        until = 0.0
        rest = iter(stream)
        for chunk in rest:
            chunks.append(chunk)
            missing -= len(chunk)
            if missing != 0:
                now = transport._now()
                until = until or min(now + SECONDS, deadline_at)
                if now >= until:
                    ahead.rest = rest
                    return LATE
    except Exception as error:
        with suppress(Exception):
            stream.close()
        ahead.error = error
        response.stream = ahead
        return error
    except BaseException:
        stream.close()
        raise
    return WHOLE


async def aprefetch(
    transport: Any, request: Any, response: Any, missing: int, deadline_at: float = inf
) -> Outcome:
    """Wait for so many octets of the body as far as time allows; return what came of it."""
    stream = response.stream
    ahead = transport._library.async_prefetched()
    ahead.stream = stream
    ahead.chunks = chunks = []
    try:
        connection = connection_below(stream)
        if connection is not None:
            outcome = await afill(connection, request, missing, transport._now, deadline_at)
            if outcome is not BROKEN:
                return outcome
        response.stream = ahead
        until = 0.0
        rest = stream.__aiter__()
        async for chunk in rest:
            chunks.append(chunk)
            missing -= len(chunk)
            if missing != 0:
                now = transport._now()
                until = until or min(now + SECONDS, deadline_at)
                if now >= until:
                    ahead.rest = rest
                    return LATE
    except Exception as error:
        with suppress(Exception):
            await stream.aclose()
        ahead.error = error
        response.stream = ahead
        return error
    except BaseException:
        import anyio

        with anyio.CancelScope(shield=True):
            await stream.aclose()
        raise
    return WHOLE


# HTTP/1.1.


def connection_below(stream: Any) -> Any:
    """The HTTP/1.1 connection that a body comes from; None if it is another one, or cannot be
    seen.
    """
    below = getattr(stream, "_httpcore_stream", None)
    connection = getattr(getattr(below, "_stream", None), "_connection", None)
    if hasattr(getattr(connection, "_h11_state", None), "trailing_data") and hasattr(
        connection, "_network_stream"
    ):
        return connection
    return None


def fill(
    connection: Any, request: Any, missing: int, now: Callable[[], float], deadline_at: float
) -> Outcome:
    """Let h11 have the whole body; BROKEN says that the stream shall be read through, to meet what
    broke it.
    """
    until = min(now() + SECONDS, deadline_at)
    while missing > 0:
        left = until - now()
        if left <= 0:
            return LATE
        seconds, is_ours = limit(request, left)
        try:
            octets = connection._network_stream.read(READ_BYTES, timeout=seconds)
        except Exception as error:
            return LATE if is_ours and is_timeout(error) else broken(connection, error)
        connection._h11_state.receive_data(octets)
        if not octets:
            return BROKEN
        missing -= len(octets)
    return WHOLE


async def afill(
    connection: Any, request: Any, missing: int, now: Callable[[], float], deadline_at: float
) -> Outcome:
    """Let h11 have the whole body; BROKEN says that the stream shall be read through, to meet what
    broke it.
    """
    until = min(now() + SECONDS, deadline_at)
    while missing > 0:
        left = until - now()
        if left <= 0:
            return LATE
        seconds, is_ours = limit(request, left)
        try:
            octets = await connection._network_stream.read(READ_BYTES, timeout=seconds)
        except Exception as error:
            return LATE if is_ours and is_timeout(error) else broken(connection, error)
        connection._h11_state.receive_data(octets)
        if not octets:
            return BROKEN
        missing -= len(octets)
    return WHOLE


def limit(request: Any, left: float) -> tuple[float, bool]:
    """Seconds to wait for bytes; True if that is our limit, not the one that the client has set for
    its reads.
    """
    # Not what a ``Timeouts`` makes of it: the deadline is in ``left`` already, and ends nothing
    # here.
    timeouts = request.extensions.get("timeout") or {}
    configured = dict.get(timeouts, "read") if isinstance(timeouts, dict) else timeouts.get("read")
    return (left, True) if configured is None or left <= configured else (configured, False)


def is_timeout(error: Exception) -> bool:
    return type(error).__name__ == "ReadTimeout"


def broken(connection: Any, error: Exception) -> Outcome:
    """Let httpcore meet the error where it would have read itself, and make of it what it always
    does.
    """
    connection._network_stream = Failing(connection._network_stream, error)
    return BROKEN


class Failing:
    """A network stream that was found broken."""

    def __init__(self, stream: Any, error: Exception) -> None:
        self._stream = stream
        self._error = error

    def read(self, *_: Any, **__: Any) -> Any:
        raise self._error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
