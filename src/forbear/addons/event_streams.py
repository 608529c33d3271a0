"""Event streams: the option, the wait for the first event before the hand-over, and whole events.

The formats are core/event_streams.py's.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from ..core.checks import check_bool, check_duration, check_positive_int, frozen
from ..core.event_streams import FirstEvent, WholeEvents, event_stream
from ..core.feature_checks import check_is
from ..core.headers.fields import SSE
from ..engine.bodies import read_briefly
from ..engine.calls import sent_request
from ..engine.clock import SYSTEM_CLOCK
from ..engine.errors import DeadlineCut
from ..engine.reading import LATE, WHOLE, note_prefetch
from ..engine.settings import OFF

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..core.call import Call
    from ..core.event_streams import EventStream
    from ..core.headers.fields import Line
    from ..core.policy import RetryPolicy
    from ..engine.port import CommonPort, Port, Response
    from ..engine.reading import Ending
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
            with more is handed over as it comes. With ``resume`` a longer event ends the stream
            with an error.

    Raises:
        ValueError: A number is out of its range.
        TypeError: A value is of the wrong type.
    """

    first_event_timeout: float | None = None
    resume: bool = False
    max_event_bytes: int = 65_536

    def __post_init__(self) -> None:
        check_duration(
            "first_event_timeout",
            self.first_event_timeout,
            none="the client's read timeout",
            zero=False,
        )
        check_bool("resume", self.resume)
        check_positive_int("max_event_bytes", self.max_event_bytes, "; 65536 is usual")


def check(value: object) -> EventStreams:
    """Check the option ``event_streams``."""
    return check_is(
        "event_streams",
        value,
        EventStreams,
        "EventStreams(), or None for the default",
        "EventStreams()",
    )


class StreamStart:
    """The beginning of a stream of events, up to its first event, before the hand-over.

    Args:
        options: How long is waited for the first event, and for how many bytes.
        stream: What the response says of its stream.
        policy: Its vendors' error events are failures.
        deadline_in: Seconds until the call's deadline.

    Attributes:
        ends_at: The instant of the system's clock by which the first event is to be here.
    """

    def __init__(
        self, options: EventStreams, stream: EventStream, policy: RetryPolicy, deadline_in: float
    ) -> None:
        most, own = options.max_event_bytes, options.first_event_timeout
        self.event = FirstEvent(stream.media, most, policy.vendors)
        self.seconds = min(inf if own is None else own, deadline_in)
        self.is_last = self.seconds == deadline_in  # no attempt can follow
        self.ends_at = SYSTEM_CLOCK.true_monotonic() + self.seconds
        self.is_late = False

    def wants_more(self, piece: bytes) -> bool:
        """Take the next piece; is the first event still to come, and in time?"""
        if self.event.feed(piece):
            return False
        self.is_late = SYSTEM_CLOCK.true_monotonic() >= self.ends_at
        return not self.is_late

    def failure(self, ending: Ending, port: CommonPort) -> Exception | None:
        """Return why the attempt has failed; None: the first event is there.

        Raises:
            The library's read timeout, or DeadlineCut: nothing came in time, so the body is to be
                closed.
        """
        if ending is WHOLE:
            self.event.end()
        if self.event.is_there:
            return self.event.error
        if ending is WHOLE:
            return port.stream_error("the stream of events has ended before its first event")
        if self.is_last:
            raise DeadlineCut
        raise port.stream_timeout("the first event of the stream did not come in time")


async def judge(port: Port[Response], call: Call, response: Response) -> Response:
    """Read a stream of events up to its first event, put that back, and note how it ended."""
    settings, (status, lines) = port.settings, port.head_of(response)
    stream = event_stream(status, lines) if call.policy is not OFF else None
    if stream is None or stream.is_coded or call.request.method == "HEAD":
        return response
    left = call.deadline_at - port.clock.monotonic()
    start = StreamStart(settings.options["event_streams"], stream, call.policy, left)
    live = port.live(sent_request(call), response, start.ends_at)
    pieces, ending = await read_briefly(live, lambda piece, _: start.wants_more(piece))
    failure: Exception | None
    try:
        failure = ending if isinstance(ending, Exception) else start.failure(ending, port)
    except Exception as error:
        await live.close()
        ending = failure = error
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
