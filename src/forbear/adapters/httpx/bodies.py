"""Bodies of responses, in the httpx family: what forbear reads of them before the hand-over.

A small body of known length is read whole inside the loop, so that a broken one is a failure like
any other. What came with its head cannot break, so it is left where it is. A failed response is
drained, if that takes little time. All is read through the library's own stream, whose place in the
response the bytes then take.
"""

from __future__ import annotations

from contextlib import nullcontext, suppress
from math import inf
from typing import TYPE_CHECKING, Any

from ...core.call import SENT, SETTING
from ...core.headers.fields import begins_events
from ...engine.errors import DeadlineCut
from ...engine.reading import (
    DRAIN_BYTES,
    WHOLE,
    Ending,
    PrefetchResult,
    aread_pieces,
    is_endless,
    read_pieces,
)
from .reading import AsyncReading, Reading, arrived, bounded_reads, break_off, finish, unread

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from httpx import Request, Response

    from .types import AsyncHttpxPort, HttpxPort, Sent

UNKNOWN = 2**62  # bytes of a body whose length is unknown: more than any
LENGTH = b"content-length"
FRAMING = (LENGTH, b"transfer-encoding")
EMPTY = -1  # no number of bytes


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


def has_arrived(port: HttpxPort, response: Response) -> bool:
    """Has all of a body come with its head? Then it cannot break, and it stays where it is.

    Every call that succeeds at once asks this. A server declares the length in the same line of
    each head, so only that line is read; where it is another one, ``prefetch_body`` looks closer.
    """
    try:
        _, name, value = response.headers._list[port.length_line]
        if name != LENGTH:
            return False
        # An empty body may be a stream of events that ended too early.
        return len(unread(response.stream)) == (int(value) or EMPTY)
    except (AttributeError, IndexError, ValueError):
        return False


def is_prefetched(response: Response) -> bool:
    """Does a body end where its length says (RFC 9112 section 6.3), and is it wanted whole?"""
    headers = response.headers
    is_chunked = "transfer-encoding" in headers
    return not (is_chunked or is_endless(headers.get("content-type"), response.status_code))


def left_unread(response: Response, length: int) -> PrefetchResult:
    """Return WHOLE for a body that has come with its head.

    None: a stream of events has ended with its head. Its reader will request it again.
    """
    if length == 0 and begins_events(response.status_code, response.headers.raw):
        return None
    if response.status_code < 300:
        response.extensions[SETTING] = SENT
    return WHOLE


def bounded_by_deadline(response: Response, outgoing: Sent) -> AbstractContextManager[object]:
    """Let each read of a body end by the deadline of the call, if it has one."""
    if outgoing is None or outgoing.deadline_at == inf:
        return nullcontext()
    return bounded_reads(response, outgoing.timeouts.left_to_read)


# The two flavours differ in ``await`` only; a change in one belongs in the other.


def prefetch_body(
    port: HttpxPort, request: Request, response: Any, outgoing: Sent
) -> PrefetchResult:
    """Read a small body; return how that ended, None for a larger one.

    Args:
        port: Of the transport.
        request: As the caller made it, or as it was sent.
        response: The response; what was read takes the place of its body.
        outgoing: What was sent in the request's place, if anything was.
    """
    length = length_to_prefetch(port, response)
    if port.awaits_events:
        from .streams import await_first_event, begin_stream  # loaded with the option

        start = begin_stream(port, request, response, outgoing)
        if start is not None:
            return await_first_event(port, response, outgoing, start)
    if length > port.prefetch or response.is_closed:  # closed: a transport below has read it
        return None
    if arrived(response.stream) == length:
        return left_unread(response, length)
    if not is_prefetched(response):
        return None
    return read_whole(port, response, outgoing)


def read_whole(port: HttpxPort, response: Any, outgoing: Sent = None) -> PrefetchResult:
    """Read a body to its end; return WHOLE, or what broke it.

    The deadline is checked after each piece too, since a peer may keep dripping them.
    """
    stream, now = response.stream, port.clock.monotonic
    ends_at = inf if outgoing is None else outgoing.deadline_at
    reading = Reading(stream)
    try:
        with bounded_by_deadline(response, outgoing):
            ending = read_pieces(reading, lambda _: now() < ends_at)
        if ending is not WHOLE:
            raise DeadlineCut
        stream.close()
    except Exception as error:
        with suppress(Exception):
            stream.close()
        return break_off(port, response, reading.pieces, error)
    response.stream = port.byte_stream(b"".join(reading.pieces))
    return WHOLE


def drain(port: HttpxPort, response: Response, seconds: float) -> list[bytes] | None:
    """Read what is left of a body, and close it.

    None: that is too much, or takes too long, so what was read is put back in front of the rest.
    """
    now, stream = port.clock.monotonic, response.stream
    ends_at, reading = now() + seconds, Reading(stream)
    with bounded_reads(response, lambda: ends_at - now()):
        ending = read_pieces(reading, lambda read: read <= DRAIN_BYTES and now() < ends_at)
    if ending is not WHOLE:
        response.stream = port.streams.put_back(reading.pieces, stream, reading.rest)
        return None
    stream.close()  # type: ignore[union-attr]
    return reading.pieces


async def aprefetch_body(
    port: AsyncHttpxPort, request: Request, response: Any, outgoing: Sent
) -> PrefetchResult:
    """Do as ``prefetch_body``."""
    length = length_to_prefetch(port, response)
    if port.awaits_events:
        from .streams import aawait_first_event, begin_stream

        start = begin_stream(port, request, response, outgoing)
        if start is not None:
            return await aawait_first_event(port, response, outgoing, start)
    if length > port.prefetch or response.is_closed:  # closed: a transport below has read it
        return None
    if arrived(response.stream) == length:
        return left_unread(response, length)
    if not is_prefetched(response):
        return None
    return await aread_whole(port, response, outgoing)


async def aread_whole(port: HttpxPort, response: Any, outgoing: Sent = None) -> PrefetchResult:
    """Do as ``read_whole``."""
    stream, now = response.stream, port.clock.monotonic
    ends_at = inf if outgoing is None else outgoing.deadline_at
    reading = AsyncReading(stream)
    try:
        with bounded_by_deadline(response, outgoing):
            ending = await aread_pieces(reading, lambda _: now() < ends_at)
        if ending is not WHOLE:
            raise DeadlineCut
        await stream.aclose()
    except Exception as error:
        with suppress(Exception):
            await stream.aclose()
            await finish(stream, reading.rest)
        return break_off(port, response, reading.pieces, error)
    response.stream = port.byte_stream(b"".join(reading.pieces))
    return WHOLE


async def adrain(port: AsyncHttpxPort, response: Response, seconds: float) -> list[bytes] | None:
    """Do as ``drain``; a transport that is not the library's own is cut from outside."""
    now, stream = port.clock.monotonic, response.stream
    ends_at, reading = now() + seconds, AsyncReading(stream)
    ending: Ending | None = None
    with (
        bounded_reads(response, lambda: ends_at - now()) as is_bounded,
        nullcontext() if is_bounded else port.backstop.after(seconds),
    ):
        ending = await aread_pieces(reading, lambda read: read <= DRAIN_BYTES and now() < ends_at)
    if ending is not WHOLE:
        response.stream = port.streams.put_back(reading.pieces, stream, reading.rest)
        return None
    await stream.aclose()  # type: ignore[union-attr]
    return reading.pieces
