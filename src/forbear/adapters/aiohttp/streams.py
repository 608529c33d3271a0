"""Streams of events of aiohttp, read up to their first event before the hand-over.

Loaded with the option ``event_streams=``.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from ...engine.bodies import read_briefly
from ...engine.clock import SYSTEM_CLOCK
from ...engine.frames import let_signals_through
from ...engine.reading import LATE
from ...engine.streams import stream_start
from .bodies import Live, put_back

if TYPE_CHECKING:
    from aiohttp import ClientResponse

    from ...core.policy import RetryPolicy
    from ...engine.reading import PrefetchResult
    from .bodies import AiohttpPort


async def await_first_event(
    port: AiohttpPort, response: ClientResponse, policy: RetryPolicy
) -> PrefetchResult:
    """Read a stream of events up to its first event, and put it back; None: it is none."""
    lines = response.raw_headers  # of the deadline the port's backstop takes care
    start = stream_start(port.settings, policy, response.status, lines, inf)
    if start is None or response.method == "HEAD":
        return None
    live = Live(port.backstop, response, SYSTEM_CLOCK.true_monotonic() + start.seconds)
    pieces, ending = await read_briefly(live, lambda piece, _: start.wants_more(piece))
    failure: Exception | None
    try:
        failure = ending if isinstance(ending, Exception) else start.failure(ending, port)
    except Exception as error:
        await live.close()
        ending = failure = error
    if isinstance(ending, Exception):
        let_signals_through(ending)
    put_back(port.backstop, response, pieces, ending)
    return LATE if failure is None else failure
