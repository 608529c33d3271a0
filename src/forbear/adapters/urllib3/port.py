"""Port for requests and urllib3: how a call is sent, classified and handed over.

Both are synchronous, and requests sends through urllib3. ``RequestsPort`` (requests.py) and
``PoolPort`` (pool.py) add what one of them does.
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from urllib3 import HTTPResponse
from urllib3.exceptions import ProtocolError, ReadTimeoutError
from urllib3.util import Timeout

from ...core.call import IN_FLIGHT, KEPT, RECORD, RETRY_IF, SENDS
from ...core.headers.fields import begins_events
from ...core.outcome import TIMEOUT_KINDS, Failure, FailureKind, Phase, Reason
from ...engine.calls import (
    call_after_first,
    call_of,
    deadline_error,
    end_attempt,
    expired,
    has_story,
    last_error,
    next_request,
    too_late,
    wants_status_error,
    with_story,
)
from ...engine.clock import SYSTEM_CLOCK
from ...engine.errors import (
    EARLY,
    ConsumedBody,
    classify_status,
    has_error_event,
    note_quotas,
    story_below,
)
from ...engine.loop import drive_call
from ...engine.reading import DRAIN_SECONDS, is_endless
from ...engine.settings import OFF
from .deadlines import HERE, close_idle, discard, has_arrived, is_large, is_resumable, read_freely
from .errors import classify, tree
from .request import PLAIN, Urllib3Request, field_lines, least, viewed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...core.call import Call, Story
    from ...core.policy import RetryPolicy
    from ...engine.context import CallContext
    from ...engine.outgoing import Outgoing
    from ...engine.settings import Settings
    from ...errors import CircuitOpenError, DeadlineExceeded
    from .guard import Body
    from .types import EitherRequest, EitherResponse, Limited, PartialBody

    Lines = Sequence[tuple[str, str]]
    Phases = tuple[float | None, float | None, float | None]  # total, connect, read


AnyRequest = TypeVar("AnyRequest", bound="EitherRequest")
AnyResponse = TypeVar("AnyResponse", bound="EitherResponse")
LEAST = 0.001  # seconds; urllib3 refuses 0
CUT_OFF = "Connection broken: nothing followed the head of the response"
CHALLENGES = (401, 407)  # the client resends the request with credentials


class Urllib3Port(Generic[AnyRequest, AnyResponse]):
    """The port that requests and urllib3 share. Each adds the methods that stand first here."""

    body_name = "body"
    backstop = None

    if TYPE_CHECKING:

        @staticmethod
        def status_of(response: AnyResponse, /) -> int: ...
        @staticmethod
        def body_of(response: AnyResponse, /) -> bytes: ...  # that was read
        @staticmethod
        def raw_of(response: AnyResponse, /) -> HTTPResponse: ...
        @staticmethod
        def is_redirect(response: AnyResponse, /) -> object: ...  # will the caller follow it?
        def load(self, request: AnyRequest, response: AnyResponse) -> None: ...
        def with_raw(self, response: AnyResponse, raw: HTTPResponse) -> AnyResponse: ...
        def phases_of(self, view: Urllib3Request) -> Phases: ...
        def view_of(self, source: Any) -> Urllib3Request: ...
        def guard_of(self, request: AnyRequest, body: object, hop: object) -> Body: ...
        def copied(
            self, request: AnyRequest, lines: Lines | None = None, url: str | None = None
        ) -> AnyRequest: ...
        def url_at(self, url: str, scheme: str, host: str, port: int) -> str: ...
        def host_of(self, url: str) -> str: ...
        def transmit(
            self, view: Urllib3Request, limits: Limited, request: AnyRequest
        ) -> AnyResponse: ...
        def load_last(self, call: Call, response: AnyResponse) -> None: ...
        def copy_of(self, response: AnyResponse, raw: HTTPResponse) -> AnyResponse: ...
        def status_error(self, call: Call, response: AnyResponse) -> Exception: ...
        def failed_to_send(self, view: Urllib3Request, error: ConsumedBody) -> Exception: ...
        def closed_error(self) -> Exception: ...

    def __init__(
        self,
        settings: Settings,
        circuit_open_error: type[CircuitOpenError],
        deadline_exceeded: type[DeadlineExceeded],
    ) -> None:
        self.settings = settings
        settings.load(__name__.rpartition(".")[0], streams="bodies")
        self.reads_quotas = settings.limits.reads_quotas
        self.clock = settings.clock
        self.circuit_open_error = circuit_open_error
        self.deadline_exceeded = deadline_exceeded
        self.special = settings.special
        # What looks like a success may be flagged, or be a stream whose first event is an error.
        self.asks = settings.retry_if is not None or settings.event_streams is not None
        self.is_plain = settings.is_plain
        self.shared = settings.limits.shared

    # A call begins.

    def take_over(
        self,
        source: object,
        outgoing: Outgoing | None,
        started_at: float,
        context: CallContext | None,
        held: list[Any],
    ) -> AnyResponse:
        """Continue where the fast path ends.

        ``held`` has the outcome of the first attempt. It is taken out, so that the caller's frame
        does not keep it alive while the call waits.
        """
        call = call_after_first(self, source, outgoing, started_at, context)
        view = viewed(call)
        try:
            call.live, held[0] = held[0], None
            if not isinstance(call.live, Exception):
                try:
                    if self.loads(view, call.policy, call.live):
                        call.live = self.read(view, self.in_time(call, call.live))
                        self.note_empty_stream(call, call.live)
                except Exception as error:
                    call.live = error
            return drive_call(call, self)
        except BaseException:
            self.close(call.live)
            raise

    def prepare(
        self, source: Any, started_at: float, context: CallContext | None, setting: object = None
    ) -> tuple[Urllib3Request, Outgoing]:
        """Return the view of a request, and what is sent in its place.

        Raises:
            The library's DeadlineExceeded: nothing is sent.
        """
        from ...engine.prepare import outgoing_for

        view = self.view_of(source)
        request: AnyRequest = view.original
        body = None if type(request.body) in PLAIN else request.body
        outgoing = outgoing_for(self, source, request, body, started_at, context, setting, None)
        if outgoing.deadline_at <= started_at:
            raise too_late(self, call_of(self, source, outgoing, started_at, context))
        view.guard = outgoing.guard
        return view, outgoing

    def bound_first(
        self, response: AnyResponse, source: object, view: Urllib3Request, outgoing: Outgoing,
        started_at: float, context: CallContext | None,
    ) -> AnyResponse:  # fmt: skip
        """Bound the reading of a first response that was accepted."""
        if outgoing.announced:
            forget_announced(outgoing)
        if not self.is_bounded(outgoing):
            return response
        if not view.streams:
            return self.in_time(outgoing, response)
        begin = partial(call_after_first, self, source, outgoing, started_at, context)
        return self.free(view, context, begin, response)

    def bound(self, outgoing: Outgoing) -> None:
        """Nothing: ``transmit`` reads the limits of what it sends."""

    # Each attempt.

    async def sleep(self, seconds: float, call: Call) -> bool:
        return self.settings.sleeper.sleep(
            seconds, since=call.started_at, after=call.decided_at, queued=call.notes.get(IN_FLIGHT)
        )

    async def run_hook(self, call: Call) -> None:
        from ...addons.hooks import call_before_attempt  # the option has loaded it

        await call_before_attempt(self, call, next_request(self, call))

    async def send(self, call: Call) -> AnyResponse:
        request: AnyRequest = next_request(self, call)
        view = viewed(call)
        if view.partial is not None:
            request = self.copied(request, view.partial.fields())
        now = self.clock.monotonic()  # after the hook, which may have taken long
        if now >= call.deadline_at:
            raise expired(self, call)
        call.sending(now)
        response = call.live = self.sent(view, call, request)
        raw = self.raw_of(response)
        if call.rest is not None:
            if not call.rest.fits(raw.status, list(raw.headers.items())) and self.is_cut_off(raw):
                self.drain(call, response)
                raise ProtocolError(CUT_OFF)
            return response
        # A 200 is a whole body, and an error the end of it; a 304 may be about our own If-Range.
        if view.partial is not None and (
            raw.status == 416 or (raw.status < 400 and raw.status != 200)
        ):
            from .resume import join  # loaded with the body that broke

            return join(self, call, view, response)
        if self.settings.event_streams is not None:
            from .bodies import await_first_event  # loaded with the option

            response = await_first_event(self, call, response)
        if self.loads(view, call.policy, response):
            response = self.read(view, self.in_time(call, response))
            self.note_empty_stream(call, response)
        return response

    def sent(self, view: Urllib3Request, limits: Limited, request: AnyRequest) -> AnyResponse:
        """Send a request once, its body from the beginning."""
        guard = view.guard
        if guard is None:
            return self.transmit(view, limits, request)
        try:
            guard.begin_attempt()
            request.body = guard.outgoing
            return self.transmit(view, limits, request)
        except ConsumedBody as error:
            raise self.failed_to_send(view, error) from None
        finally:  # callers read, and resend, the request of the response
            request.body = guard.source

    def note_empty_stream(self, call: Call, response: AnyResponse) -> None:
        """Take a stream of events for broken that has no byte; the caller gets it as it is."""
        if call.body_error is None and self.is_empty_stream(response, call.request.method):
            call.body_error = self.stream_error("the stream of events has ended")

    def is_empty_stream(self, response: AnyResponse, method: str | None) -> bool:
        """Is a body that was read a stream of events without a byte?"""
        if self.body_of(response) or method == "HEAD":
            return False
        return begins_events(self.status_of(response), list(response.headers.items()))

    def is_bounded(self, limits: Limited) -> bool:
        """Is an attempt bounded by other timeouts than the caller's own?"""
        return limits.deadline_at != inf or limits.policy.attempt_timeout is not None

    def bounded(self, view: Urllib3Request, limits: Limited) -> Timeout:
        """Return the timeouts of the next attempt."""
        total, connect, read = self.phases_of(view)
        each = limits.policy.attempt_timeout
        return Timeout(least(total, self.left(limits)), least(connect, each), least(read, each))

    async def close_unused(self, response: AnyResponse | Exception | None) -> None:
        self.close(response)

    def close(self, response: AnyResponse | Exception | None) -> None:
        if response is not None and not isinstance(response, Exception):
            response.close()
            release = getattr(self.raw_of(response), "release_conn", None)
            if release is not None:
                release()

    async def inspect(self, call: Call, response: AnyResponse) -> AnyResponse:
        """Let ``retry_if`` inspect a response, and read a vendor's hint in its body.

        Returns:
            The response, with the body that was read put back.
        """
        from .inspection import inspect  # the option has loaded it

        return inspect(self, call, response)

    # Bodies.

    def left(self, limits: Limited) -> float | None:
        """Seconds until the deadline, None if there is none."""
        if limits.deadline_at == inf:
            return None
        return max(limits.deadline_at - self.clock.monotonic(), LEAST)

    def under_deadline(
        self, limits: Limited, send: Callable[..., AnyResponse], *arguments: Any, **named: Any
    ) -> AnyResponse:
        """Send with the deadline set for the pools below."""
        left, before = self.left(limits), HERE.ends_at
        HERE.ends_at = inf if left is None else SYSTEM_CLOCK.true_monotonic() + left
        try:
            return send(*arguments, **named)
        finally:
            HERE.ends_at = before

    def in_time(self, limits: Limited, response: AnyResponse) -> AnyResponse:
        """End the reading of a body at the deadline."""
        raw, left = self.raw_of(response), self.left(limits)
        if left is None or not isinstance(raw, HTTPResponse) or raw.closed or has_arrived(raw):
            return response
        from .bodies import within

        return self.stand_in(response, within(raw, left))

    def loads(self, view: Urllib3Request, policy: RetryPolicy, response: AnyResponse) -> bool:
        """Is the body to be read inside the attempt?"""
        status = self.status_of(response)
        return not view.streams and (status < 400 or status not in policy.statuses)

    def read(self, view: Urllib3Request, response: AnyResponse) -> AnyResponse:
        """Read the body inside the loop; what came of a large one that breaks is kept."""
        raw = self.raw_of(response)
        if view.bodies and self.is_cut_off(raw):
            from .resume import PartialBody, read_large

            error = ProtocolError(CUT_OFF)
            return read_large(self, view, PartialBody(self, response, raw), error)
        view.bodies += 1
        if self.settings.resume and is_large(raw):
            from .resume import PartialBody, read_large  # loaded with the first large body

            return read_large(self, view, PartialBody(self, response, raw))
        self.load(view.original, response)
        return response

    def is_cut_off(self, raw: HTTPResponse) -> bool:
        from .bodies import is_cut_off  # loaded with the first body that broke

        return is_cut_off(raw)

    def stand_in(self, response: AnyResponse, raw: HTTPResponse) -> AnyResponse:
        """Put another urllib3 response in place of the one that came."""
        if raw is not self.raw_of(response):
            setattr(raw, RECORD, vars(response).pop(RECORD, None))
        return self.with_raw(response, raw)

    def free_to_caller(self, call: Call, response: AnyResponse) -> AnyResponse:
        """Let the caller read with its own timeouts, bounded by ``forbear.deadline`` only."""
        view = viewed(call)
        return self.free(view, call.context, lambda: call, response)

    def free(
        self, view: Urllib3Request, context: CallContext | None, begin: Callable[[], Call],
        response: AnyResponse,
    ) -> AnyResponse:  # fmt: skip
        """Do as ``free_to_caller``; ``begin`` returns the call."""
        raw = self.raw_of(response)
        read_freely(raw, self.phases_of(view)[2])
        if context is None or not context.has_deadline():
            return response
        if not isinstance(raw, HTTPResponse) or raw.closed:
            return response
        from .bodies import within

        now = self.clock.monotonic()
        left = max(context.deadline_on(self.clock, now) - now, LEAST)
        return self.stand_in(response, within(raw, left, lambda: self.body_deadline_error(begin())))

    def body_deadline_error(self, call: Call) -> Exception:
        """Make the error of a body that the deadline ends while the caller reads it."""
        return deadline_error(self, call, "the deadline ended the body")

    # After each attempt.

    def classify_response(self, call: Call, response: AnyResponse) -> Failure | None:
        status = self.status_of(response)
        headers = getattr(self.raw_of(response), "headers", response.headers)
        if self.reads_quotas:
            note_quotas(self, call, field_lines(headers))
        if status < 400 and not call.notes.get(RETRY_IF) and call.body_error is None:
            call.status = status
            return None
        return classify_status(self, call, status, field_lines(headers), story_of(response))

    def classify_exception(self, call: Call, error: Exception) -> Failure:
        guard = call.guard
        cause = None if guard is None else guard.error
        if cause is not None and any(found is cause for found in tree(error)):
            return Failure(FailureKind.PERMANENT, Phase.SENT, error=type(error).__name__)
        return self.with_progress(call, classify(error))

    def with_progress(self, call: Call, failure: Failure) -> Failure:
        """Count what came of a large body that broke inside the loop as progress."""
        view = viewed(call)
        partial: PartialBody | None = view.partial
        if partial is None or not partial.is_broken:
            return failure
        has_progress = partial.note_break(call)
        if partial.rest is None:
            view.partial = None
        if not has_progress:
            return failure
        return Failure(failure.kind, Phase.ANSWERED, error=failure.error, progress=True)

    def is_reused(self, call: Call, error: Exception) -> bool:
        return HERE.is_reused

    async def close_idle(self, call: Call, error: Exception) -> None:
        close_idle()

    def is_cut_by_deadline(self, call: Call, failure: Failure) -> bool:
        ends_at = call.deadline_at - EARLY
        return failure.kind in TIMEOUT_KINDS and self.clock.monotonic() >= ends_at

    async def discard(self, call: Call, response: AnyResponse) -> None:
        self.drain(call, response)

    def drain(self, call: Call, response: AnyResponse) -> None:
        """Read what is left of a failed response if that is little and quick, else close it."""
        discard(self.raw_of(response), call.deadline_at - self.clock.monotonic())

    async def keep(self, call: Call, response: AnyResponse) -> bool:
        """Read the response of a held call; False: it is too long to keep, so it is handed over."""
        raw, left = self.raw_of(response), call.deadline_at - self.clock.monotonic()
        if has_error_event(call, raw.status):
            from .bodies import drop_rest

            call.notes[KEPT] = self.stand_in(response, drop_rest(raw))  # nothing else of it is kept
            return True
        from .bodies import read_kept  # loaded with the first call that is held

        kept, is_whole = read_kept(raw, min(DRAIN_SECONDS, max(left, LEAST)))
        call.notes[KEPT] = response if kept is raw else self.stand_in(response, kept)
        return is_whole

    # The end.

    def final_error(self, call: Call, error: Exception) -> Exception:
        if type(error).__module__ == "h2.exceptions":  # urllib3.http2 does not wrap it
            return ProtocolError("Connection broken.", error)
        return error

    def note_error(self, call: Call, error: Exception) -> None:
        """Nothing: the library does not act on errors."""

    async def hand_over(self, call: Call, response: AnyResponse) -> AnyResponse:
        if call.rest is not None:
            if IN_FLIGHT in call.notes:
                response = self.stand_in(response, self.keep_in_flight(call, self.raw_of(response)))
            return response
        view = viewed(call)
        if call.outgoing is not None:
            forget_announced(call.outgoing)
        self._finish(call, response)
        if call.barred is Reason.DEADLINE and call.body_error is not None:
            self.close(response)
            raise last_error(self, call, call.body_error)
        if call.guard is not None and (
            self.is_redirect(response) or self.status_of(response) in CHALLENGES
        ):
            from .guard import keep_for_redirect

            keep_for_redirect(response, call.guard)
        if wants_status_error(call):
            response = self.in_time(call, response)
            raise with_story(self, call, self.status_error(call, response))
        if not view.streams:
            response = self.in_time(call, response)
            try:
                self.load_last(call, response)
            except Exception as error:
                if not self.is_cut_by_deadline(call, self.classify_exception(call, error)):
                    raise
                exceeded = deadline_error(self, call, "the deadline ended the attempt")
                raise exceeded from error
        elif self.is_bounded(call):
            response = self.free_to_caller(call, response)
        if view.streams and call.policy is not OFF:
            response = self.watched(response, lambda: call)
        if IN_FLIGHT in call.notes:
            response = self.stand_in(response, self.keep_in_flight(call, self.raw_of(response)))
        return response

    def keep_in_flight(self, call: Call, raw: HTTPResponse) -> HTTPResponse:
        """Let the body of a response that is handed over keep the slot, while it is to come."""
        from ...engine.bodies import Releasing
        from .bodies import around

        endless = None
        if isinstance(raw, HTTPResponse) and not raw.closed:
            endless = is_endless(raw.headers.get("content-type"), raw.status)
        notes = end_attempt(call, endless=endless)
        if notes is None:
            return raw
        return around(raw, lambda source: Releasing(source, notes))

    def watched(self, response: AnyResponse, begin: Callable[[], Call]) -> AnyResponse:
        """Resume a body that the caller streams where it breaks.

        Args:
            response: It is handed over.
            begin: As of ``Resumable``.
        """
        raw: Any = self.raw_of(response)
        if not isinstance(raw, HTTPResponse) or raw.closed:
            return response
        lines = list(raw.headers.items())
        if begins_events(raw.status, lines):
            from ...addons.event_streams import whole_events
            from .resume import resumed

            events = whole_events(self.settings, raw.status, lines)
        elif self.settings.resume and is_resumable(raw):
            from .resume import resumed  # loaded with the first that is handed over open

            events = None
        else:
            return response
        return self.stand_in(response, resumed(self, raw, begin, events))

    def _finish(self, call: Call, response: AnyResponse) -> None:
        """Attach the story to the response, and stop an outer retry loop."""
        attached, now = story_of(response), self.clock.monotonic()
        below = story_below(self, call, attached)
        if has_story(call):
            # A forbear below has attached its story; ours adds nothing if this one only passed on.
            if len(call.history) != 1 or below is None or not below.is_final:
                setattr(response, RECORD, call.story(now))
            if call.stop is None:
                self.settings.events.emit("succeeded_after_retry", call, now)
            elif self.settings.stop_outer_retries:
                from ...engine.prepare import stop_outer

                stop_outer(call, response.headers)
        elif (call.status or 0) < 300 and attached is None:
            setattr(response, SENDS, True)  # a mock's response has no connection of ours
        elif call.policy is not OFF and below is None:
            setattr(response, RECORD, call.story(now))

    def kind_of(self, error: Exception) -> FailureKind:
        return classify(error).kind

    def stream_error(self, message: str) -> Exception:
        return ProtocolError(message)

    def stream_timeout(self, message: str) -> Exception:
        nothing: Any = None
        return ReadTimeoutError(nothing, nothing, message)

    def request_rest(self, call: Call, lines: Lines) -> None:
        from ...engine.prepare import pristine_of, request_rest

        view = viewed(call)
        view.asks_rest = True
        request_rest(self, call, self.copied(pristine_of(call), lines))


def forget_announced(outgoing: Outgoing) -> None:
    """Take out what one attempt alone carried: digest authentication resends its request."""
    for name in outgoing.announced:
        outgoing.request.headers.pop(name, None)


def story_of(response: object) -> Story | None:
    """The story that a forbear below has attached, to the response or to the urllib3 one in it."""
    story: Story | None = getattr(response, RECORD, None)
    return story or getattr(getattr(response, "raw", None), RECORD, None)
