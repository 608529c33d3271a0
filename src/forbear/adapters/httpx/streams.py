"""Streams of events of the httpx family, read up to their first event before the hand-over.

Loaded with the option ``event_streams=``.
"""

from __future__ import annotations

from contextlib import nullcontext, suppress
from math import inf
from typing import TYPE_CHECKING, Any

from ...addons.event_streams import stream_start
from ...engine.clock import SYSTEM_CLOCK
from ...engine.reading import LATE, Ending, aread_pieces, read_pieces
from .pools import reset_lost
from .reading import AsyncReading, Reading, bounded_reads, break_off, finish, is_bodiless

if TYPE_CHECKING:
    from collections.abc import Callable

    from httpx import Request, Response

    from ...addons.event_streams import StreamStart
    from ...engine.reading import PrefetchResult
    from .types import AsyncHttpxPort, HttpxPort, Sent


def begin_stream(
    port: HttpxPort, request: Request, response: Response, outgoing: Sent
) -> StreamStart | None:
    """Begin to wait for the first event of a stream; None: it is none, or is not waited for."""
    if is_bodiless(request, response):
        return None
    policy, left = port.settings.policy, inf
    if outgoing is not None:
        policy, left = outgoing.policy, outgoing.deadline_at - port.clock.monotonic()
    lines = response.headers.raw
    return stream_start(port.settings, policy, response.status_code, lines, left)


def seconds_left(start: StreamStart) -> Callable[[], float]:
    until = SYSTEM_CLOCK.true_monotonic() + start.seconds
    return lambda: until - SYSTEM_CLOCK.true_monotonic()


def put_back(
    port: HttpxPort, response: Any, reading: Reading | AsyncReading, outgoing: Sent
) -> None:
    """Put what was read in front of the rest, which is read with the caller's own timeouts."""
    body = port.streams.put_back(reading.pieces, response.stream, reading.rest)
    response.stream = body
    wire = response.extensions.get("network_stream")
    timeouts = None if outgoing is None else outgoing.timeouts
    is_shared = response.extensions.get("http_version") == b"HTTP/2"
    if timeouts is not None and hasattr(wire, "__dict__") and not is_shared:
        # httpcore has asked for the read timeout when the body began, and keeps that of the attempt
        # for all of it. The caller's own is in force after the hand-over.
        read = wire.read
        wire.read = lambda most, timeout=None: read(most, timeouts.get("read"))
        body.wire = wire


def await_first_event(
    port: HttpxPort, response: Any, outgoing: Sent, start: StreamStart
) -> PrefetchResult:
    """Read a stream of events up to its first event, as the library waits.

    Over HTTP/2 each read lasts as long as the client allows: other streams share the connection.

    Returns:
        LATE: it goes on behind what was read. Else why the attempt failed.
    """
    stream = response.stream
    reading = Reading(stream)
    try:
        with bounded_reads(response, seconds_left(start)):
            ending = read_pieces(reading, lambda _: start.wants_more(reading.pieces[-1]))
        failure = start.failure(ending, port)
    except Exception as error:
        with suppress(Exception):
            stream.close()
        reset_lost(port.inner)
        return break_off(port, response, reading.pieces, error)
    put_back(port, response, reading, outgoing)
    return LATE if failure is None else failure


async def aawait_first_event(
    port: AsyncHttpxPort, response: Any, outgoing: Sent, start: StreamStart
) -> PrefetchResult:
    """Do as ``await_first_event``; a change there belongs here too."""
    stream = response.stream
    ending: Ending = LATE  # unless the backstop lets the reading end
    reading = AsyncReading(stream)
    try:
        with (
            bounded_reads(response, seconds_left(start)) as is_bounded,
            nullcontext() if is_bounded else port.backstop.after(start.seconds),
        ):
            ending = await aread_pieces(reading, lambda _: start.wants_more(reading.pieces[-1]))
        failure = start.failure(ending, port)
    except Exception as error:
        with suppress(Exception):
            await stream.aclose()
            await finish(stream, reading.rest)
        reset_lost(port.inner)
        return break_off(port, response, reading.pieces, error)
    put_back(port, response, reading, outgoing)
    return LATE if failure is None else failure
