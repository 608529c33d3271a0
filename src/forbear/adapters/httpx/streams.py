"""Streams of events of the httpx family, read up to their first event before the hand-over.

Loaded with the option ``event_streams=``.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from ...addons import event_streams
from ...engine.reading import LATE, WHOLE
from .errors import own_error
from .pools import reset_lost
from .reading import is_bodiless

if TYPE_CHECKING:
    from httpx import Request, Response

    from ...addons.event_streams import StreamStart
    from ...engine.outgoing import Outgoing
    from ...engine.reading import PrefetchResult
    from .types import HttpxPort


def begin_stream(
    port: HttpxPort, request: Request, response: Response, outgoing: Outgoing | None
) -> StreamStart | None:
    """Begin to wait for the first event of a stream; None: it is none, or is not waited for."""
    if is_bodiless(request, response):
        return None
    policy, left = port.settings.policy, inf
    if outgoing is not None:
        policy, left = outgoing.policy, outgoing.deadline_at - port.clock.monotonic()
    lines = response.headers.raw
    return event_streams.stream_start(port.settings, policy, response.status_code, lines, left)


async def await_first_event(
    port: HttpxPort, request: Request, response: Response, start: StreamStart
) -> PrefetchResult:
    """Read a stream of events up to its first event.

    Returns:
        LATE: it goes on behind what was read. Else why the attempt failed.
    """
    live = port.live(request, response, start.ends_at)
    pieces, ending, failure = await event_streams.await_first_event(start, live, port)
    if ending is WHOLE:
        await live.close()
    elif isinstance(ending, Exception):
        reset_lost(port.inner)
        ending = failure = own_error(ending, port.library.module)
    port.put_back(response, live, pieces, ending)
    return LATE if failure is None else failure
