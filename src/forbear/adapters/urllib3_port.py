"""Port for requests and urllib3: how a call is sent, judged and handed over. Floor: acts.

Both are synchronous, and requests sends through urllib3. ``RequestsPort`` (requests.py) and
``PoolPort`` (urllib3_pool.py) add how a request is sent and its body read.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from urllib3.exceptions import ProtocolError

from ..core.headers.ranges import Part
from ..core.outcome import TIMEOUT_KINDS, Failure, FailureKind, Phase
from ..core.record import RECORD
from ..sending import resumption
from ..sending.bodies import ConsumedBody
from ..sending.context import CURRENT
from ..sending.errors import Interrupted
from ..sending.headers import new_headers, next_lines, stop_outer
from ..sending.loop import run
from ..sending.port import Port, is_final
from ..sending.settings import OFF
from .urllib3_bodies import PLAIN, guard_of, keep_for_redirect
from .urllib3_errors import classify, tree
from .urllib3_kept import read_kept
from .urllib3_request import clamped, field_lines, has_header
from .urllib3_resume import Begun, ResumedResponse, is_cut_off, is_large, is_resumable
from .urllib3_sockets import DRAIN_SECONDS, discard, read_freely, read_within

if TYPE_CHECKING:
    from urllib3.util import Timeout

    from ..core.call import Call
    from ..core.policy import RetryPolicy
    from ..core.record import Story
    from ..sending.context import Scope
    from ..sending.settings import Settings
    from .urllib3_request import Urllib3Request

__all__ = ["Urllib3Port"]

LEAST = 0.001  # seconds; urllib3 refuses 0
EARLY = 0.05  # seconds; a timeout that fires so long before the deadline was the caller's own


class Urllib3Port(Port):
    """The port that requests and urllib3 share. Each adds the methods that stand first here."""

    status_of: Any  # of its response
    raw_of: Any  # the urllib3 response in it
    request_of: Any  # the view of a request, from what the fast path has of it
    start_of: Any  # where a file body stood when the request was made
    aim: Any  # lets the request go where the call goes now
    transmit: Any  # sends a request; returns the response, its body to come
    load: Any  # reads it as the library would
    load_last: Any  # reads the body of the answer that the call ends with
    with_raw: Any  # returns the response with another urllib3 response in it
    timeout_of: Any  # the caller's own timeouts
    is_redirect: Any  # will the caller follow the response?
    status_error: Any  # the library's own error for a status
    failed_to_send: Any  # its error for a body that cannot be sent again

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.special = settings.special
        self.shared: Any = settings.limits.shared
        self.hears_calls = settings.tell.hears_calls
        # A success at once needs nothing more than to be returned.
        self.is_plain = not (settings.limits.counts_calls or self.hears_calls)
        self.resumes = settings.resume
        self.sleep = self.sleeper.sleep

    # A call begins.

    def take_over(
        self, source: Any, started_at: float, scope: Scope | None, held: list[Any]
    ) -> Any:
        """Go on where the fast path ends.

        Args:
            source: The request.
            started_at: When the call began.
            scope: The context that it began in.
            held: The outcome of the first attempt. It is taken out: nothing keeps it while the call
                waits.
        """
        view: Urllib3Request = self.request_of(source)
        if not isinstance(held[0], Exception):
            response = self._accepted(view, (source, scope, started_at), held)
            if response is not None:
                return response
        call = self.first_failed(self.new_call(view, started_at, scope))
        return run(call, self, 0.0, held)

    def _accepted(self, view: Urllib3Request, source: tuple[Any, ...], held: list[Any]) -> Any:
        """See to the body of a first answer; None: it has failed."""
        response = held[0]
        try:
            if self.loads(view, self.policy, response):
                response = held[0] = self.read(view, response)
        except Exception as error:
            held[0] = error
            return None
        status = self.status_of(response)
        if status >= 300:
            return None
        raw = self.raw_of(response)
        if view.streams and self.resumes and is_resumable(raw):
            response = self.stand_in(response, ResumedResponse(self, raw, source))
        if self.limits.counts_calls:
            self.limits.count_call()
        gate = self.limits.gate
        if gate is not None and not gate.quiet:
            gate.good(view.origin, self.clock.monotonic(), retry=False)
        if self.hears_calls:
            elapsed = self.clock.monotonic() - source[2]
            self.settings.tell.succeeded_at_once(view.method, view.origin, status, elapsed)
        return response

    def send_all(self, source: Any, started_at: float, setting: Any = None) -> Any:
        """Send a request that does not take the fast path; its own setting may be False."""
        call = self.new_call(self.request_of(source), started_at, CURRENT.get())
        policy, call.deadline_at = self.resolve(call.context, setting, started_at)
        if policy is not self.policy:
            self.follow(call, policy)
        if call.deadline_at <= started_at:
            raise self.too_late(call)
        self.prepare(call)
        return run(call, self, self.enter(call))

    def prepare(self, call: Call) -> None:
        """Make what will be sent: guard the body, add headers."""
        if call.policy is OFF:
            return
        view: Any = call.request
        body = view.original.body
        if type(body) not in PLAIN:
            start = self.start_of(view.original)
            call.guard = guard_of(body, start, self.settings.body_buffer)
        added, key = new_headers(self.settings, view)
        if added or key or call.guard is not None:
            copy = view.pristine = view.original.copy()
            for name, value in added + key:
                copy.headers[name] = value
            if call.guard is not None:
                copy.body = call.guard.outgoing

    # Each attempt.

    def next_request(self, call: Call) -> Any:
        """Return the request to send now, for the call's origin and with this attempt's headers."""
        view: Any = call.request
        if call.origin != (call.sent_to if call.attempts else view.origin):
            self.aim(call, view)
        lines = next_lines(
            self.settings, call, lambda name: has_header(view.original.headers, name)
        )
        if view.begun is not None:
            lines.extend(view.begun.fields())
        hook = self.settings.before_attempt if call.history else None
        request, view.announced = view.pristine, ()
        if lines or hook is not None:  # on a copy, and on a fresh one each time
            request = request.copy()
            for name, value in lines:
                request.headers[name] = value
            view.announced = [name for name, _ in lines]
            if hook is not None:
                try:
                    hook(request, call.attempts + 1)
                except Exception as error:
                    self.settings.tell.hook_failed("before_attempt", error)
        view.request, view.headers = request, request.headers
        return request

    def send(self, call: Call) -> Any:
        request = self.next_request(call)
        call.sending(self.clock.monotonic())
        try:
            if call.guard is not None:
                call.guard.begin_attempt()
            response = self.transmit(call, request)
        except ConsumedBody as error:
            raise self.failed_to_send(call, error) from None
        view: Any = call.request
        raw = self.raw_of(response)
        if call.resumption is not None:
            if is_cut_off(raw):
                self.discard(call, response)
                raise ProtocolError("Connection broken: the head of the answer was cut off")
            return response
        if view.begun is not None and raw.status in (206, 416):
            return self._join(call, view, response)
        if self.loads(view, call.policy, response):
            self._hurry(call, raw)
            response = self.read(view, response)
        return response

    def left(self, call: Call) -> float | None:
        """Seconds until the deadline, None if there is none."""
        if call.deadline_at == inf:
            return None
        return max(call.deadline_at - self.clock.monotonic(), LEAST)

    def is_bounded(self, call: Call) -> bool:
        """Do other timeouts than the caller's own hold for an attempt?"""
        return call.deadline_at != inf or call.policy.attempt_timeout is not None

    def bounded(self, call: Call) -> Timeout:
        """Return the timeouts of the next attempt."""
        return clamped(self.timeout_of(call), call.policy.attempt_timeout, self.left(call))

    def _hurry(self, call: Call, raw: Any) -> None:
        """Let the reading of a body end at the deadline."""
        if call.deadline_at != inf:
            read_within(raw, max(call.deadline_at - self.clock.monotonic(), LEAST))

    def loads(self, view: Any, policy: RetryPolicy, response: Any) -> bool:
        """Is the body to be read inside the attempt?"""
        status: int = self.status_of(response)
        return not view.streams and (status < 400 or status not in policy.statuses)

    def read(self, view: Urllib3Request, response: Any) -> Any:
        """Read the body inside the loop; what came of a large one that breaks is kept."""
        raw = self.raw_of(response)
        if self.resumes and is_large(raw):
            return self._read_large(view, Begun(response, raw), raw)
        self.load(view.request, response)
        return response

    def _read_large(self, view: Urllib3Request, begun: Begun, raw: Any) -> Any:
        error = begun.read_on(raw)
        view.begun = None if error is None else begun
        return self._replay(view, begun, error)

    def _replay(self, view: Urllib3Request, begun: Begun, error: Exception | None) -> Any:
        """Let the library read what came, and raise its own error for what broke the body."""
        if error is not None:
            begun.raw.close()
            begun.raw.release_conn()
        response = self.stand_in(begun.response, begun.replayed(error))
        self.load(view.request, response)
        return response

    def _join(self, call: Call, view: Urllib3Request, response: Any) -> Any:
        """Put the rest that comes to the beginning; what does not fit fails like a broken body.

        Then the next attempt begins again.
        """
        begun, raw = view.begun, self.raw_of(response)
        assert begun is not None
        at = begun.continues_in(raw)
        if at is None:
            self.discard(call, response)
            view.begun = None
            error = ProtocolError("Connection broken: the rest of the body is another one's")
            return self._replay(view, begun, error)
        call.resumed += (at,)
        tell = self.settings.tell
        tell.resumed(call, at, begun.download.complete, "resumed", call.listeners)  # type: ignore[union-attr]
        self._hurry(call, raw)
        return self._read_large(view, begun, raw)

    def stand_in(self, response: Any, raw: Any) -> Any:
        """Put another urllib3 response in place of the one that came."""
        setattr(raw, RECORD, vars(response).pop(RECORD, None))
        return self.with_raw(response, raw)

    def renew(self, call: Call, outcome: Any) -> None:
        try:
            call.limits.renew(call)
        except Exception as error:
            self.settings.tell.hook_failed(self.settings.plugin_name, error)
        except BaseException:
            if not isinstance(outcome, Exception):
                outcome.close()
            raise

    # After each attempt.

    def judge(self, call: Call, response: Any) -> Failure | None:
        status: int = self.status_of(response)
        if status < 400 and self.retry_if is None:
            call.status = status
            return None
        headers = getattr(self.raw_of(response), "headers", response.headers)
        return self.failure_of(call, response, status, field_lines(headers), story_of(response))

    def judge_error(self, call: Call, error: Exception) -> Failure:
        failure = super().judge_error(call, error)
        view: Any = call.request
        begun: Begun | None = view.begun
        if begun is None or not begun.is_broken:
            return failure
        progressed = begun.has_progressed(view)
        if begun.download is None:
            view.begun = None
        if not progressed:
            return failure
        call.patient_until = inf
        call.attempts = 1  # only the rest will be asked for: this counts as a first attempt
        return Failure(failure.kind, Phase.ANSWERED, error=failure.error, progress=True)

    def meaning(self, call: Call, error: Exception) -> Failure:
        guard = call.guard
        cause = None if guard is None else guard.error
        if cause is not None and any(found is cause for found in tree(error)):
            return Failure(FailureKind.PERMANENT, Phase.SENT, error=type(error).__name__)
        return classify(error)

    def cut_short(self, call: Call, failure: Failure) -> bool:
        ends_at = call.deadline_at - EARLY
        return failure.kind in TIMEOUT_KINDS and self.clock.monotonic() >= ends_at

    def discard(self, call: Call, response: Any) -> None:
        """Read what is left of a failed response if that is little and quick, else close it."""
        discard(self.raw_of(response), call.deadline_at - self.clock.monotonic())

    def keep(self, call: Call, response: Any) -> bool:
        """Read the answer of a held call; False: it is too long to keep, and is handed over."""
        raw, left = self.raw_of(response), call.deadline_at - self.clock.monotonic()
        kept, is_whole = read_kept(raw, min(DRAIN_SECONDS, max(left, LEAST)))
        call.kept = response if kept is raw else kept and self.stand_in(response, kept)
        return is_whole

    # The end.

    def hand_over(self, call: Call, response: Any) -> Any:
        if call.resumption is not None:
            return self._rest_of(call, response)
        view: Any = call.request
        raw = self.raw_of(response)
        for name in view.announced:  # digest authentication sends a copy of it again
            view.request.headers.pop(name, None)
        self._finish(call, response)
        if call.guard is not None and self.is_redirect(response):
            keep_for_redirect(response, call.guard)
        if self.wants_status_error(call):
            self._hurry(call, raw)
            raise self.with_story(call, self.status_error(call, response))
        if not view.streams:
            self._hurry(call, raw)
            try:
                self.load_last(call, response)
            except Exception as error:
                if not self.cut_short(call, self.meaning(call, error)):
                    raise
                exceeded = self.deadline_error(call, "the deadline ended the attempt")
                raise exceeded from error
            return response
        if self.is_bounded(call):
            self._free(call, raw)
        if self.resumes and call.policy is not OFF and is_resumable(raw):
            return self.stand_in(response, ResumedResponse(self, raw, call))
        return response

    def _free(self, call: Call, raw: Any) -> None:
        """Let the caller read with his own timeouts, and ``forbear.deadline`` alone."""
        read_freely(raw, self.timeout_of(call))
        if call.context is not None and call.context.has_deadline():
            now = self.clock.monotonic()
            read_within(raw, max(call.context.deadline_on(self.clock, now) - now, LEAST))

    def _finish(self, call: Call, response: Any) -> None:
        """Attach the story to the response, and stop whoever would repeat it."""
        if self.has_story(call):
            now = self.clock.monotonic()
            # A forbear below has told its story already; ours adds nothing if it only passed on.
            if not (len(call.history) == 1 and is_final(story_of(response))):
                setattr(response, RECORD, call.story(now))
            if call.stop is None:
                self.settings.tell.succeeded(call, now, call.listeners)
        if call.stop is not None:
            stop_outer(self.settings, call, response.headers)

    # A body that broke after it was handed over.

    def _rest_of(self, call: Call, response: Any) -> Any:
        """Return the urllib3 response that brings the rest; None if nothing was missing.

        Raises:
            Interrupted: It is not the rest.
        """
        raw = self.raw_of(response)
        part = resumption.take_up(self, call, raw.status, list(raw.headers.items()))
        if part is Part.CONTINUES:
            self._free(call, raw)
            return raw
        self.discard(call, response)
        if part is Part.COMPLETE:
            return None
        raise Interrupted


def story_of(response: Any) -> Story | None:
    """The story that a forbear below has attached, to the response or to the urllib3 one in it."""
    story: Story | None = getattr(response, RECORD, None)
    return story or getattr(getattr(response, "raw", None), RECORD, None)
