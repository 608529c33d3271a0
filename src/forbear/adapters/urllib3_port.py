"""Port for requests and urllib3: how a call is sent, judged and handed over. Floor: acts.

Both are synchronous, and requests sends through urllib3. urllib3_reading.py reads bodies;
``RequestsPort`` (requests_port.py) and ``PoolPort`` (urllib3_pool.py) add what one of them does.
"""

from __future__ import annotations

from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any

from urllib3 import HTTPResponse
from urllib3.exceptions import ProtocolError

from ..core.headers.vendors import vendor_hint
from ..core.outcome import TIMEOUT_KINDS, Failure, FailureKind, Phase
from ..core.record import RECORD
from ..sending.bodies import ConsumedBody
from ..sending.context import CURRENT
from ..sending.copying import EARLY
from ..sending.headers import new_headers, next_lines, stop_outer
from ..sending.looking import DRAIN_SECONDS
from ..sending.loop import run
from ..sending.port import is_final
from ..sending.settings import OFF
from .urllib3_bodies import guard_of, keep_for_redirect
from .urllib3_errors import classify, tree
from .urllib3_looking import Peek, read_kept
from .urllib3_reading import LEAST, BodyPort
from .urllib3_request import clamped, field_lines, has_header
from .urllib3_resume import ResumedResponse, is_cut_off, is_resumable
from .urllib3_sockets import discard, is_over

if TYPE_CHECKING:
    from urllib3.util import Timeout

    from ..core.call import Call
    from ..core.record import Story
    from ..sending.context import Scope
    from ..sending.settings import Settings
    from .urllib3_request import Urllib3Request

__all__ = ["Urllib3Port"]

CHALLENGES = (401, 407)  # answered by the same request with credentials


class Urllib3Port(BodyPort):
    """The port that requests and urllib3 share. Each adds the methods that stand first here."""

    origin_of = str  # the view of a request has it ready
    request_of: Any  # the view of a request, from what the fast path has of it
    start_of: Any  # where a file body stood when the request was made
    aim: Any  # lets the request go where the call goes now
    transmit: Any  # sends a request; returns the response, its body to come
    load_last: Any  # reads the body of the answer that the call ends with
    copy_of: Any  # a response over another urllib3 response, for ``retry_if``
    is_redirect: Any  # will the caller follow the response?
    status_error: Any  # the library's own error for a status
    failed_to_send: Any  # its error for a body that cannot be sent again

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.special = settings.special
        self.shared: Any = settings.limits.shared
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
        try:
            call.live, held[0] = held[0], None
            return run(call, self)
        except BaseException:
            self.let_go(call.live)
            raise

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
        self.note_success(view.method, view.origin, status, source[2])
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
        return run(call, self)

    def prepare(self, call: Call) -> None:
        """Make what will be sent: guard the body, add headers."""
        if call.policy is OFF:
            return
        view: Any = call.request
        body = view.original.body
        if body is not None and not isinstance(body, (bytes, str)):
            start = self.start_of(view.original)
            call.guard = guard_of(body, start, self.settings.body_buffer)
            call.guard.clock, call.guard.deadline_at = self.clock, call.deadline_at
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
        # On a copy, and on a fresh one each time.
        if lines or hook is not None or call.guard is not None:
            request = request.copy()
            for name, value in lines:
                request.headers[name] = value
            view.announced = [name for name, _ in lines]
            if hook is not None:
                try:
                    hook(request, call.attempts + 1)
                except Exception as error:
                    self.hook_raised(call, error)
                    raise
        view.request, view.headers = request, request.headers
        return request

    def send(self, call: Call) -> Any:
        request = self.next_request(call)
        now = self.clock.monotonic()  # after the hook, right before the sending
        if now >= call.deadline_at:
            raise self.expired(call)
        call.sending(now)
        try:
            if call.guard is not None:
                call.guard.begin_attempt()
            response = call.live = self.transmit(call, request)
        except ConsumedBody as error:
            raise self.failed_to_send(call, error) from None
        finally:
            if call.guard is not None:  # the answer's request is shown, and sent again, without it
                request.body = call.guard.source
        view: Any = call.request
        raw = self.raw_of(response)
        if call.resumption is not None:
            if is_cut_off(raw):
                self.discard(call, response)
                raise ProtocolError("Connection broken: the head of the answer was cut off")
            return response
        if view.begun is not None and raw.status in (206, 416):
            return self.join(call, view, response)
        if self.loads(view, call.policy, response):
            self.hurry(call, raw)
            response = self.read(view, response)
        return response

    def is_bounded(self, call: Call) -> bool:
        """Do other timeouts than the caller's own hold for an attempt?"""
        return call.deadline_at != inf or call.policy.attempt_timeout is not None

    def bounded(self, call: Call) -> Timeout:
        """Return the timeouts of the next attempt."""
        return clamped(self.timeout_of(call), call.policy.attempt_timeout, self.left(call))

    def let_go(self, response: Any) -> None:
        if response is not None and not isinstance(response, Exception):
            response.close()
            release = getattr(self.raw_of(response), "release_conn", None)
            if release is not None:
                release()

    def look(self, call: Call, response: Any) -> Any:
        """Let ``retry_if`` look at an answer, and see what a vendor says in its body.

        Returns:
            The answer with the body that was read put back.
        """
        if self.is_asked(call):
            response = self._ask_about(call, response)
        status: int = self.status_of(response)
        if self.is_spoken(call, status):
            response = self._listen(call, response, status)
        return response

    def _listen(self, call: Call, response: Any, status: int) -> Any:
        """See what a vendor says in the body of a failed answer."""
        raw = self.raw_of(response)
        if isinstance(raw, HTTPResponse) and not is_over(raw):
            peek, body = Peek(self, call.request.method, raw, call.deadline_at), b""
            peek.patience = DRAIN_SECONDS
            with suppress(Exception):  # too long, too slow, broken, or not decoded
                body = peek.shown().read(decode_content=True)
            if peek.kept is not None:
                response = self.stand_in(response, peek.kept)
            kind = response.headers.get("content-type")
            call.word = vendor_hint(call.policy.vendors, status, kind, body)
        return response

    def _ask_about(self, call: Call, response: Any) -> Any:
        view: Any = call.request
        raw = self.raw_of(response)
        peek = error = None
        shown = response
        if not (
            self.loads(view, call.policy, response)
            or not isinstance(raw, HTTPResponse)
            or raw.length_remaining == 0  # of HEAD too
            or is_over(raw)
        ):
            peek = Peek(self, view.method, raw, call.deadline_at)
            shown = self.copy_of(response, peek.shown())
        try:
            answer = self.retry_if(shown)
        except Exception as raised:
            answer, error = None, raised
        if peek is not None and peek.kept is not None:
            response = self.stand_in(response, peek.kept)
            call.body_error = peek.error
        if call.body_error is None:  # else what broke the body decides
            if error is not None:
                self.tell.hook_failed("retry_if", error)
            call.opinion = self.word(answer)
        return response

    # After each attempt.

    def judge(self, call: Call, response: Any) -> Failure | None:
        status: int = self.status_of(response)
        if status < 400 and not call.opinion and call.body_error is None:
            call.status = status
            return None
        headers = getattr(self.raw_of(response), "headers", response.headers)
        return self.failure_of(call, status, field_lines(headers), story_of(response))

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
            return self.rest_of(call, response)
        view: Any = call.request
        raw = self.raw_of(response)
        for name in view.announced:  # digest authentication sends a copy of it again
            view.request.headers.pop(name, None)
        self._finish(call, response)
        if call.guard is not None and (
            self.is_redirect(response) or self.status_of(response) in CHALLENGES
        ):
            keep_for_redirect(response, call.guard)
        if self.wants_status_error(call):
            self.hurry(call, raw)
            raise self.with_story(call, self.status_error(call, response))
        if not view.streams:
            self.hurry(call, raw)
            try:
                self.load_last(call, response)
            except Exception as error:
                if not self.cut_short(call, self.meaning(call, error)):
                    raise
                exceeded = self.deadline_error(call, "the deadline ended the attempt")
                raise exceeded from error
            return response
        if self.is_bounded(call):
            self.free(call, raw)
        if self.resumes and call.policy is not OFF and is_resumable(raw):
            return self.stand_in(response, ResumedResponse(self, raw, call))
        return response

    def _finish(self, call: Call, response: Any) -> None:
        """Attach the story to the response, and stop whoever would repeat it."""
        if self.has_story(call):
            now = self.clock.monotonic()
            # A forbear below has told its story already; ours adds nothing if it only passed on.
            if not (len(call.history) == 1 and is_final(story_of(response))):
                setattr(response, RECORD, call.story(now))
            if call.stop is None:
                self.tell.succeeded(call, now, call.listeners)
            else:
                stop_outer(self.settings, call, response.headers)


def story_of(response: Any) -> Story | None:
    """The story that a forbear below has attached, to the response or to the urllib3 one in it."""
    story: Story | None = getattr(response, RECORD, None)
    return story or getattr(getattr(response, "raw", None), RECORD, None)
