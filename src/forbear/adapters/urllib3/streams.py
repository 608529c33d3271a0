"""Streams of events of requests and urllib3, read up to their first event before the hand-over.

Loaded with the option ``event_streams=``.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from urllib3 import HTTPResponse

from ...addons.event_streams import stream_start
from ...engine.frames import let_signals_through
from ...engine.reading import note_prefetch
from .bodies import put_back, read_briefly

if TYPE_CHECKING:
    from ...core.call import Call
    from .types import AnyResponse, Urllib3Port


def begin_stream(port: Urllib3Port[AnyResponse], call: Call, response: AnyResponse) -> AnyResponse:
    """Read a stream of events up to its first event, and put back what was read."""
    raw, left = port.raw_of(response), port.left(call)
    if call.request.method == "HEAD" or not isinstance(raw, HTTPResponse):
        return response
    lines, left = list(raw.headers.items()), inf if left is None else left
    start = stream_start(port.settings, call.policy, raw.status, lines, left)
    if start is None:
        return response
    pieces, ending = read_briefly(raw, start.seconds, lambda piece, _: start.wants_more(piece))
    failure: Exception | None
    try:
        failure = ending if isinstance(ending, Exception) else start.failure(ending, port)
    except Exception as error:
        raw.close()
        raw.release_conn()
        ending = failure = error
    if isinstance(ending, Exception):
        let_signals_through(ending)
    note_prefetch(call, failure)
    return port.stand_in(response, put_back(raw, pieces, ending))
