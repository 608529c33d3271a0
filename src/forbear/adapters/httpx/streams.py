"""Streams of events of the httpx family, read up to their first event before the hand-over.

Loaded with the option ``event_streams=``.
"""

from __future__ import annotations

from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any

from ...engine.reading import LATE, aread_pieces, read_pieces
from ...engine.streams import stream_start
from .connections import Arriving, AsyncArriving, is_bodiless, own_timeout
from .pools import reset_lost

if TYPE_CHECKING:
    from httpx import Request, Response

    from ...engine.reading import PrefetchResult
    from ...engine.streams import StreamStart
    from .types import HttpxPort, Sent


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


def await_first_event(
    port: HttpxPort,
    request: Request,
    response: Any,
    outgoing: Sent,
    start: StreamStart,
    length: int,
) -> PrefetchResult:
    """Read a stream of events up to its first event, as the library waits; else as prefetch_body.

    A body of known ``length`` ends without a wait.

    Returns:
        LATE: it goes on behind what was read. Else why the attempt failed.
    """
    body = port.prefetched()
    body.stream = response.stream
    try:
        own = own_timeout(request if outgoing is None else outgoing.request)
        reader = Arriving(request, response, length, start.seconds, own)
        body.chunks, body.rest = reader.pieces, reader.rest
        try:
            ending = read_pieces(reader, lambda _: start.wants_more(reader))
        finally:
            reader.leave()
        failure = start.failure(ending, port)
    except Exception as error:
        with suppress(Exception):
            body.close()
        reset_lost(port.inner)
        broken: Exception = body.break_off(port, response, error)
        return broken
    body.put_back(response, reader.rest, outgoing)
    return LATE if failure is None else failure


async def aawait_first_event(
    port: HttpxPort,
    request: Request,
    response: Any,
    outgoing: Sent,
    start: StreamStart,
    length: int,
) -> PrefetchResult:
    """Do as ``await_first_event``; a change there belongs here too."""
    body = port.prefetched()
    body.stream = response.stream
    try:
        own = own_timeout(request if outgoing is None else outgoing.request)
        reader = AsyncArriving(request, response, length, start.seconds, own)
        body.chunks, body.rest = reader.pieces, reader.rest
        try:
            ending = await aread_pieces(reader, lambda _: start.wants_more(reader))
        finally:
            reader.leave()
        failure = start.failure(ending, port)
    except Exception as error:
        with suppress(Exception):
            await body.aclose()
        reset_lost(port.inner)
        broken: Exception = body.break_off(port, response, error)
        return broken
    body.put_back(response, reader.rest, outgoing)
    return LATE if failure is None else failure
