"""Exchange: one call's I/O, the part that does not depend on the library. Floor: acts.

drive.py drives it; an adapter adds how its library sends, discards and hands over. Made only for
calls that do not simply succeed at once, and for those that something special concerns.
"""

from __future__ import annotations

import sys
from math import inf

from ._rehearsal import ON, in_force
from ._retrying import OFF
from .core.call import Call
from .core.headers.nesting import ends_outer_loops, outer_loop
from .core.headers.ranges import Part
from .core.outcome import Failure, FailureKind, Phase
from .core.record import RECORD, record_from
from .core.trail import Trail
from .core.verdict import GiveUp, Reason, Renew, RetryAfter
from .errors import RetryRefused
from .sending.added import ATTEMPT, STOPPING, TOLD, has_header, left_line, new_key, wants_key
from .sending.context import CURRENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

    from ._retrying import Retrying
    from .core.events import Event
    from .core.headers.ranges import Download
    from .core.policy import RetryPolicy
    from .core.request import Request
    from .core.verdict import Verdict
    from .sending.context import Scope

__all__ = ["CallExchange", "CutOff", "Interrupted", "bare", "is_nested"]

CHAIN = 32  # errors behind one that are looked at; clients make four or five


class CutOff(Exception):
    """The backstop behind the deadline ended an asynchronous attempt; never leaves a transport."""


class Interrupted(Exception):
    """The rest of a body did not come; never leaves a transport."""


class CallExchange:
    """One call. Not shared between threads."""

    # What few calls have stands here once, not in every instance: a microsecond per ten of them.
    body: Any = None  # a guard: ``ready``, ``error``
    timeouts: Any = None  # ``cut_short(kind, now)``
    initial_delay = 0.0
    listeners: tuple[Callable[[Event], object], ...] = ()  # of tests
    generated_key: tuple[tuple[str, str], ...] = ()
    last_error: Exception | None = None
    has_told_end = False
    callers_own: list[str] | None = (
        None  # of the headers that tell of an attempt, those the caller wrote
    )
    # The outcome of an attempt that went through the door, until the drive asks for it.
    first_response: Any = None
    first_error: Exception | None = None
    # What broke the body of the answer of the last attempt: while it was read here, or after it was
    # handed over.
    body_error: Exception | None = None
    # A download that the caller has ``received`` so much of and that is being resumed.
    download: Download | None = None
    received = 0
    progressed = False
    broke_at = 0  # where in the trail this is noted

    def __init__(self, transport: Retrying, facts: Request, started_at: float) -> None:
        self.scope: Scope | None = CURRENT.get()
        terms = in_force() if ON else None
        played: Any = transport
        if terms is not None:
            from ._understudy import Understudy

            played = Understudy(transport, terms, started_at)
            started_at = played.started_at
            self.listeners = terms.listeners
        self.transport: Any = played
        self.sleeper = played._sleeper
        self.aimed_at = facts.origin
        self.call = Call(
            played._policy,
            facts,
            played._strategy,
            now=started_at,
            key_lifetime=86_400.0
            if transport._idempotency is None
            else transport._idempotency.lifetime,
        )
        if terms is not None:
            self.call.most_attempts = terms.most_attempts

    # Before the first attempt, for calls that something special concerns.

    def prepare(self, setting: Any = None) -> None:
        """Resolve what holds for this call and make what will be sent.

        Raises:
            The library's DeadlineExceeded or CircuitOpenError: nothing is sent.
        """
        try:
            self._prepare(setting)
        except BaseException:
            self.release()
            raise

    def _prepare(self, setting: Any) -> None:
        transport, call = self.transport, self.call
        now = call.started_at
        scope = self.scope
        policy = call.policy = transport._resolve(scope, setting)
        strategy = transport._strategy
        if policy is not transport._policy:
            if transport._made_strategy:
                call.strategy = (
                    strategy.unguarded(policy) if policy is OFF else strategy.with_policy(policy)
                )
            elif policy is OFF or policy.max_attempts != transport._policy.max_attempts:
                call.most_attempts = (
                    policy.max_attempts
                )  # said for this call: no strategy of the user's exceeds it
        self._set_deadline(policy, now)
        if scope is not None:
            call.deadline_at = min(call.deadline_at, scope.deadline_on(transport._clock, now))
        if call.deadline_at <= now:
            raise self._deadline_exceeded("the deadline was over before anything was sent")
        try:
            self.initial_delay = call.open(now)
        except RetryRefused as refused:
            raise self._refused(refused) from None
        self._prepare_attempts(policy)

    def _set_deadline(self, policy: RetryPolicy, now: float) -> None:
        if policy.total_timeout is not None:
            self.call.deadline_at = now + policy.total_timeout

    def _added_headers(
        self, carried_key: tuple[tuple[str, str], ...] = ()
    ) -> list[tuple[str, str]]:
        """What forbear itself puts on the request: ``From``, and a key unless an earlier hop has
        made it.
        """
        transport, call = self.transport, self.call
        added: list[tuple[str, str]] = []
        if call.policy is OFF:
            return added
        if transport._contact is not None and not has_header(call.facts, "from"):
            added.append(("From", transport._contact))
        keys = transport._idempotency
        if keys is not None and wants_key(keys, call.facts):
            self.generated_key = carried_key or new_key(keys, transport._clock.time())
            added.extend(self.generated_key)
        return added

    def _prepare_attempts(self, policy: RetryPolicy) -> None:
        raise AssertionError("each library has its own")

    # Before each attempt.

    def admit(self) -> float:
        """Seconds to wait before the attempt may be sent after all, nearly always 0.

        Raises:
            The library's CircuitOpenError or DeadlineExceeded: it must not be sent any more.
        """
        if not getattr(self.call.strategy, "watches", False):
            return 0.0
        if self.first_response is not None or self.first_error is not None:
            return 0.0  # it went through the door
        call, now = self.call, self.transport._now()
        planned = call.origin
        try:
            delay = call.admit(now)
        except RetryRefused as refused:
            raise self._refused(refused) from self.last_error
        # Not of first attempts: while a circuit is open each of them would be told of.
        if call.origin != planned and call.attempts:
            self.transport._notices.turned(call, planned, self._listeners())
        return delay

    def _refused(self, refused: RetryRefused) -> Exception:
        """What to raise for an attempt that may not be sent."""
        call, seconds = self.call, refused.retry_after
        self._tell_strategy_error()
        self._tell_incoming(GiveUp(refused.reason))
        again = "" if seconds is None else f", try again in {seconds:.3g} s"
        if call.policy is not OFF:
            self.transport._notices.refused(call, self.transport._now(), self._listeners())
        if refused.reason is Reason.DEADLINE:
            return self._deadline_exceeded(
                "the strategy's wait would end after the deadline", seconds
            )
        error: Exception = self._told(
            self.transport._library.circuit_open_error(
                f"{call.facts.origin} is not sent to now: {refused.reason.value}{again}",
                reason=refused.reason,
                retry_after=seconds,
            )
        )
        return error

    # After each attempt.

    def _judge(self, response: Any, status: int, lines: Any, trail: Any) -> Verdict:
        transport, call = self.transport, self.call
        retry_if = transport._retry_if
        flagged = retry_if is not None and self._is_flagged(retry_if, response)
        now = transport._now()
        verdict = call.after_response(
            status,
            lines,
            now,
            utc_now=transport._clock.time(),
            body_ready=self.body is None or self.body.ready,
            flagged=flagged,
            nested=is_nested(trail) or self._sends_once(),
        )
        if type(verdict) is not Renew and call.last_failure is not None:
            self._tell_failure(verdict, now)
            if call.policy is not OFF:
                transport._notices.ignored(call, lines, verdict, now, self._listeners())
        return verdict

    def judge_error(self, error: Exception) -> Verdict:
        transport, call = self.transport, self.call
        now = transport._now()
        verdict: Verdict
        if isinstance(error, CutOff):
            failure = Failure(FailureKind.TIMEOUT, Phase.SENT, error="DeadlineExceeded")
        else:
            failure = self._failure_of(error)
            if error is self.body_error:
                failure = Failure(
                    failure.kind, Phase.ANSWERED, error=failure.error, progress=self.progressed
                )
        self._look_after(failure, error)
        if isinstance(error, CutOff) or (
            self.timeouts is not None and self.timeouts.cut_short(failure.kind, now)
        ):
            verdict = call.cut_off(failure, now)
        else:
            verdict = call.after_error(
                failure,
                now,
                body_ready=self.body is None or self.body.ready,
                # Nobody above repeats what came of a body: asking for the rest multiplies nothing.
                nested=is_nested(getattr(error, RECORD, None))
                or (self._sends_once() and not failure.progress),
            )
        if type(verdict) is not Renew:
            self._tell_failure(verdict, now)
        if type(verdict) is RetryAfter:
            self.last_error = bare(error)
        return verdict

    def _judge_body(self, verdict: Verdict) -> Verdict:
        """Of an answer that is accepted the body has to be whole too, if it was read."""
        error = self.body_error
        if verdict is not None or error is None:
            return verdict
        self.call.broke(progressed=False)
        return self.judge_error(error)

    def needs_renewal(self) -> bool:
        strategy: Any = self.call.strategy
        try:
            return bool(strategy.needs_renewal(self.call.scope(), self.transport._now()))
        except Exception:  # it would raise again in ``renew``, and there it is told
            return True

    def time_left(self) -> float:
        now: float = self.transport._now()
        return self.call.deadline_at - now

    def renew(self) -> None:
        """Let the strategy borrow; in whatever thread. If it cannot, it decides from what it
        has.
        """
        strategy: Any = self.call.strategy
        try:
            strategy.renew(self.call.scope())
        except Exception as error:
            self.transport._notices.hook_failed(f"strategy {type(strategy).__name__}", error)

    def judge_renewed(self, error: Exception | None) -> Verdict:
        """Go on judging after a renewal: an answer, or ``error``."""
        now = self.transport._now()
        verdict = self.call.after_renewal(now)
        self._tell_failure(verdict, now)
        if error is None:
            error = self.body_error
        if error is not None and type(verdict) is RetryAfter:
            self.last_error = bare(error)
        return verdict

    def _look_after(self, failure: Failure, error: Exception) -> None:
        """Put right what a failure has left behind in the library."""

    def _failure_of(self, error: Exception) -> Failure:
        found: Failure = self.transport._library.classify(error)
        return found

    def _is_flagged(self, retry_if: Callable[[Any], bool | None], response: Any) -> bool:
        try:
            return bool(retry_if(response))
        except Exception as error:
            self.transport._notices.hook_failed("retry_if", error)
            return False

    def _tell_failure(self, verdict: Verdict, now: float) -> None:
        notices = self.transport._notices
        call = self.call
        if isinstance(verdict, GiveUp):
            nested = outer_loop(call.facts.header_lines()) if call.policy.max_attempts > 1 else None
            if nested is not None:
                notices.nested(*nested)
            self._tell_incoming(verdict)
        if call.policy is not OFF:
            notices.failed(call, verdict, now, self._listeners())
        self._tell_strategy_error()

    def _sends_once(self) -> bool:
        return self.scope is not None and self.scope.sends_once()

    def _tell_incoming(self, verdict: GiveUp) -> None:
        """Whoever repeats the request that is being answered would repeat all that was tried
        here.
        """
        incoming = None if self.scope is None else self.scope.incoming
        if incoming is not None and ends_outer_loops(len(self.call.trail.entries), verdict.reason):
            incoming.gave_up = True

    # Each attempt.

    def _aim(self) -> None:
        """Let the request go where the call goes now, if that is not where it says."""
        call = self.call
        if call.origin != self.aimed_at:
            self._go_to(call.origin)
            self.aimed_at = call.origin

    def _go_to(self, origin: str) -> None:
        raise AssertionError("each library has its own")

    def _said(self, attempt: int) -> list[tuple[str, str]]:
        """What is told of the attempt that is being sent: its number, and the time that is left for
        it.
        """
        transport, call = self.transport, self.call
        incoming = None if self.scope is None else self.scope.incoming
        said: list[tuple[str, str]] = []
        if call.policy is OFF:
            return said
        if transport._announce_attempts:
            if call.trail.entries:
                said.append((ATTEMPT, str(attempt)))
            elif incoming is not None and incoming.retries:  # the same work is asked for again
                said.append((ATTEMPT, str(incoming.retries + 1)))
        if incoming is not None and incoming.announces_deadline and call.deadline_at != inf:
            said.append(left_line(call.deadline_at - transport._now()))
        if said:
            if self.callers_own is None:
                self.callers_own = [name for name in TOLD if has_header(call.facts, name.lower())]
            said = [line for line in said if line[0] not in self.callers_own]
        if self.download is not None:
            said.extend(self.download.fields(self.received))
        return said

    # A body that broke off after it was handed over.

    def resume(
        self, download: Download, error: Exception, received: int, *, progressed: bool
    ) -> None:
        """Get ready to ask for the rest of a body; then drive this exchange again.

        What limited the call until its answer was handed over limits it no longer,
        ``forbear.deadline`` does.

        Args:
            download: What the answer was the beginning of.
            error: What broke its body.
            received: Raw octets of the body that the caller has.
            progressed: Some of them came since it was resumed last.
        """
        transport, call = self.transport, self.call
        call.broke(progressed=progressed)
        self.broke_at = call.trail.broke_at = len(call.trail.entries)
        self.has_told_end = False  # that of the call was; now that of the resuming
        now = transport._now()
        call.deadline_at = (
            inf if self.scope is None else self.scope.deadline_on(transport._clock, now)
        )
        self.initial_delay = 0.0
        self.download, self.received, self.progressed = download, received, progressed
        self.first_error = self.body_error = error

    def take_up(self, status: int, lines: Any) -> Part:
        """Say what the answer that was accepted is to the download, and note it."""
        download, trail = self.download, self.call.trail
        assert download is not None
        offset = download.first + self.received
        part = download.judge(self.received, status, lines)
        if part is Part.OTHER:
            self.distrust()
        else:
            trail.resumed += (offset,)
            self._tell_resumption("resumed")
        return part

    def distrust(self) -> None:
        """What was to be the rest is something else, and the caller has the beginning."""
        if self.call.refusal is None:
            self.call.refusal = GiveUp(Reason.RESPONSE_DELIVERED)

    def fail_to_resume(self, error: Exception) -> Exception:
        """The rest of the body will not come: attach the story to the error that broke it."""
        if self.call.trail.entries[self.broke_at][3] is not None:  # it was to be asked for
            self._tell_resumption("failed")
        told: Exception = self._told(error)
        return told

    def _tell_resumption(self, result: str) -> None:
        assert self.download is not None
        self.transport._notices.resumed(
            self.call,
            self.download.first + self.received,
            self.download.complete,
            result,
            self._listeners(),
        )

    # The end.

    def _stop_outer(self, headers: Any) -> None:
        """Tell an SDK above, in its own words, not to begin anew with what was given up on."""
        if (
            self.transport._stop_outer_retries
            and self.call.refusal is not None
            and self.call.policy is not OFF
        ):
            for name in STOPPING:
                headers[name] = "false"

    def surrender(self, error: Exception) -> None:
        call = self.call
        if call.was_cut:
            raise self._deadline_exceeded("the deadline ended the attempt") from (
                None if isinstance(error, CutOff) else error
            )
        if call.policy is not OFF:
            self._told(error)

    def _told(self, error: Any) -> Any:
        """Attach the story, unless a forbear below has attached its own."""
        if getattr(error, RECORD, None) is None:
            trail = self.call.close_trail(self.transport._now())
            setattr(error, RECORD, trail)
            if trail.entries:
                error.add_note(f"forbear: {record_from(trail)}")
        return error

    def _deadline_exceeded(self, message: str, retry_after: float | None = None) -> Exception:
        if self.call.refusal is None or self.call.refusal.reason is not Reason.DEADLINE:
            self.call.refusal = GiveUp(Reason.DEADLINE)
        error: Exception = self._told(
            self.transport._library.deadline_exceeded(
                f"{self.call.facts.method} {self.call.facts.origin}: {message}",
                reason=Reason.DEADLINE,
                retry_after=retry_after,
            )
        )
        return error

    def _is_worth_noting(self) -> bool:
        """Something was retried or refused: the call has a story."""
        call = self.call
        return call.policy is not OFF and (call.refusal is not None or len(call.trail.entries) > 1)

    def _tell_success(self, status: int, now: float) -> None:
        self.transport._notices.succeeded(self.call, status, now, self._listeners())

    def _listeners(self) -> tuple[Callable[[Event], object], ...]:
        return self.listeners if self.scope is None else self.scope.listeners + self.listeners

    def _is_bounded(self) -> bool:
        """``forbear.deadline`` goes on bounding the body that the caller streams."""
        return self.timeouts is not None and self.scope is not None and self.scope.has_deadline()

    def _wants_status_error(self) -> bool:
        return self.call.refusal is not None and self.call.policy.on_exhausted == "raise"

    def release(self) -> None:
        call = self.call
        if call.token is not None:
            call.release(self.transport._now())
        self._tell_strategy_error()
        notices = self.transport._notices
        if notices.tells_ends and not self.has_told_end:
            self.has_told_end = True
            notices.ended(call, self.transport._now())

    def _tell_strategy_error(self) -> None:
        call = self.call
        if call.strategy_error is not None or call.scope_error is not None:
            self.transport._notices.strategy_failed(call)

    def woken(self) -> Any:
        """The transport was closed during a wait: the last error, or what is left of the last
        answer.

        Its body and headers were let go of before the wait; its status is known.

        Raises:
            The library's own error, or Interrupted: it was to bring the rest of a body.
        """
        if self.download is not None:
            raise Interrupted
        failure = self.call.last_failure
        if failure is None:
            raise self._told(self._closed_error())
        error, self.last_error = self.last_error, None
        if failure.status is None:
            assert error is not None
            try:
                raise self._told(error)
            finally:
                del error
        return self._bare_response(failure.status, self.call.close_trail(self.transport._now()))

    def _closed_error(self) -> Exception:
        raise AssertionError("each library has its own")

    def _bare_response(self, status: int, trail: Trail) -> Any:
        raise AssertionError("each library has its own")


def is_nested(trail: Any) -> bool:
    """Has a forbear below this one already retried, or decided that nobody should?"""
    return isinstance(trail, Trail) and (
        len(trail.entries) > 1 or trail.reason not in (None, Reason.ATTEMPTS_EXHAUSTED)
    )


def bare(error: Exception) -> Exception:
    """The error without the frames that it and its causes came through.

    They hold the exchange, which holds the error, and in urllib3 and httpcore the pool with its
    sockets: none of that shall wait for the garbage collector because a call went well in the end.
        An error that is
    still being handled further out, by whoever made the call meanwhile, is a context too: it is
        left alone.
    """
    error.__traceback__ = None
    handling: set[FrameType] = set()
    frame: FrameType | None = sys._getframe(1)  # this one would hold itself
    while frame is not None:
        handling.add(frame)
        frame = frame.f_back
    chain = [error.__cause__, error.__context__]
    for _ in range(CHAIN):
        if not chain:
            break
        one = chain.pop()
        if (
            one is not None
            and one.__traceback__ is not None
            and one.__traceback__.tb_frame not in handling
        ):
            one.__traceback__ = None
            chain += one.__cause__, one.__context__
    return error
