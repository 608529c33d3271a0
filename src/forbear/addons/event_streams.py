"""Event streams: the option, the wait for the first event before the hand-over, and whole events.

The formats are core/event_streams.py's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.checks import check_bool, check_duration, check_positive_int, frozen
from ..core.event_streams import FirstEvent, WholeEvents, event_stream
from ..core.feature_checks import check_is
from ..core.headers.fields import SSE
from ..engine.calls import sent_request
from ..engine.clock import SYSTEM_CLOCK
from ..engine.driver import LATE, WHOLE, note_prefetch, read_briefly
from ..engine.errors import DeadlineCut
from ..engine.settings import OFF

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..core.call import Call
    from ..core.headers.fields import Line
    from ..engine.port import Port, Req, Resp
    from ..engine.settings import Settings


@frozen(kw_only=True)
class EventStreams:
    """How a stream of events is handed over: from its first event on, and resumed after it.

    An option of every client, off unless given. Media types: ``text/event-stream``,
    ``application/x-ndjson``, ``application/jsonl`` and ``application/vnd.amazon.eventstream``. The
    response is handed over when its first complete event is there; comments, pings and blank lines
    do not count. A stream that breaks or ends before, begins with an error event of a vendor in
    ``RetryPolicy.vendors``, or stays silent for too long is a failed attempt. A compressed stream
    is handed over at once. Immutable, so it may serve several clients and threads.

    Args:
        first_event_timeout: Seconds to wait for the first event after the response has begun, more
            than 0. None: as long as the client's read timeout allows for a read.
        resume: Whether server-sent events are continued after a break, or the server's end, by a
            request with ``Last-Event-ID``. Only whole events are handed over then.
        max_event_bytes: Most bytes that are kept of one event, and up to the first one: a stream
            with more is handed over as it comes. With ``resume`` a longer event that comes in parts
            ends the stream with an error.

    Raises:
        ValueError: A number is out of its range.
        TypeError: A value is of the wrong type.
    """

    first_event_timeout: float | None = None
    resume: bool = False
    max_event_bytes: int = 65_536

    def __post_init__(self) -> None:
        timeout = self.first_event_timeout
        check_duration("first_event_timeout", timeout, none="the client's read timeout", zero=False)
        check_bool("resume", self.resume)
        check_positive_int("max_event_bytes", self.max_event_bytes, "; 65536 is usual")


def check(value: object) -> EventStreams:
    """Check the option ``event_streams``."""
    usual = "EventStreams()"
    return check_is(
        "event_streams", value, EventStreams, f"{usual}, or None for the default", usual
    )


async def judge(port: Port[Req, Resp], call: Call, response: Resp) -> Resp:
    """Read a stream of events up to its first event, put that back, and note how it ended."""
    options: EventStreams = port.settings.options["event_streams"]
    stream = event_stream(*port.head_of(response)) if call.policy is not OFF else None
    if stream is None or stream.is_coded or call.request.method == "HEAD":
        return response
    left, own = call.deadline_at - port.clock.monotonic(), options.first_event_timeout
    seconds = left if own is None else min(own, left)
    ends_at = SYSTEM_CLOCK.true_monotonic() + seconds
    first = FirstEvent(stream.media, options.max_event_bytes, call.policy.vendors)

    def wants_more(piece: bytes, _: int) -> bool:
        return not first.feed(piece) and SYSTEM_CLOCK.true_monotonic() < ends_at

    live = port.live(sent_request(call), response, ends_at)
    pieces, ending = await read_briefly(live, wants_more)
    if ending is WHOLE:
        first.end()
    failure = ending if isinstance(ending, Exception) else first.error
    if ending is WHOLE and not first.is_there:
        failure = port.stream_error("the stream of events has ended before its first event")
    elif ending is LATE and not first.is_there:
        message = "the first event of the stream did not come in time"
        # After the deadline no attempt can follow.
        failure = ending = DeadlineCut() if seconds == left else port.stream_timeout(message)
        await live.close()
    note_prefetch(call, LATE if failure is None else failure)
    return port.put_back(response, live, pieces, ending)


def whole_events(settings: Settings, status: int, lines: Iterable[Line]) -> WholeEvents | None:
    """Return what lets whole events through, if the stream of a response may be resumed."""
    options: EventStreams | None = settings.options["event_streams"]
    if options is None or not options.resume:
        return None
    stream = event_stream(status, lines)
    if stream is None or stream.media != SSE or stream.is_coded:
        return None
    return WholeEvents(stream, options.max_event_bytes)
