"""Notices: tell listeners and the log what happens to calls. Floor: acts.

On the failure path only, unless a listener asks to hear of every call. Nothing secret is told:
method, origin, status, class names, durations. A listener that raises is logged once and never
costs a response.
"""

from __future__ import annotations

import logging
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any

from ..core.events import (
    AttemptFailed,
    BudgetExhausted,
    CallEnded,
    CallOutcome,
    CircuitTransition,
    Event,
    FailedOver,
    GaveUp,
    Resumption,
    RetryAfterIgnored,
    RetryScheduled,
    SucceededAfterRetry,
)
from ..core.verdict import GiveUp, Reason, RetryAfter
from ..telemetry.gauges import Vitals, budget_in_force
from ..telemetry.lines import fields, sentence
from .context import listeners_here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..core.call import Call
    from ..core.outcome import Failure
    from ..core.policy import RetryPolicy
    from ..core.verdict import Verdict
    from ..shared.circuit import Transition

    Listener = Callable[[Event], object]

__all__ = ["Notices"]

logger = logging.getLogger("forbear")
LEVELS = {
    "attempt_failed": logging.DEBUG,
    "retry_scheduled": logging.INFO,
    "succeeded_after_retry": logging.INFO,
    "resume": logging.INFO,
    "failover": logging.WARNING,
    "gave_up": logging.WARNING,
    "budget_exhausted": logging.WARNING,
    "retry_after_ignored": logging.WARNING,
}
NUMBERS = count(1)  # of calls that are told of
AGAIN_AFTER = (
    60.0  # seconds until the same edge, or a header that is no use, is told of again for an origin
)
MOST_ORIGINS = 1024  # that edges are kept of; then all are forgotten


class Notices:
    """What one transport tells. Thread-safe as far as its listeners are.

    Attributes:
        client: The transport's name.
        hears_calls: A listener wants to hear of every call: those that succeed at once must be told
            of too.
        tells_ends: A listener wants to know when a call is over that it may have heard of.
    """

    __slots__ = (
        "_exhausted",
        "_failed",
        "_ignored",
        "_listeners",
        "_of_calls",
        "_of_ends",
        "client",
        "hears_calls",
        "tells_ends",
    )

    def __init__(
        self, client: str, listeners: Iterable[Listener], *, knows_ends: bool = True
    ) -> None:
        """Take the listeners, but those that ``need_ends`` only if the end of every call will be
        told.
        """
        self.client = client
        self._listeners = tuple(
            found for found in listeners if knows_ends or not getattr(found, "needs_ends", False)
        )
        self._of_calls: tuple[Any, ...] = ()
        self._of_ends: tuple[Any, ...] = ()
        if knows_ends:
            self._of_calls = tuple(
                found for found in self._listeners if getattr(found, "hears_calls", False)
            )
            self._of_ends = tuple(
                found
                for found in self._listeners
                if found in self._of_calls or getattr(found, "needs_ends", False)
            )
        self.hears_calls = bool(self._of_calls)
        self.tells_ends = bool(self._of_ends)
        self._failed: set[str] = set()
        # By scope of a budget: when its end was last told of, and that nothing was allowed since.
        self._exhausted: dict[str, tuple[float, bool]] = {}
        self._ignored: dict[str, float] = {}  # origin: until when its header is not told of again

    def show(self, vitals: Vitals) -> None:
        """Let listeners that ``watch`` look at what can be read off the transport, which holds it;
        they do weakly.
        """
        for listener in self._listeners:
            watch = getattr(listener, "watch", None)
            if callable(watch):
                watch(vitals)

    # A failed attempt, and what comes of it.

    def failed(
        self, call: Call, verdict: Verdict, now: float, more: tuple[Listener, ...] = ()
    ) -> None:
        """An attempt failed; tell that, and what comes of it."""
        is_edge = self._is_newly_exhausted(call, verdict, now)
        if not (self._listeners or more) and not logger.isEnabledFor(
            logging.INFO
            if type(verdict) is RetryAfter and call.origin == call.sent_to
            else logging.WARNING
        ):
            return
        listeners = self._listeners + more

        failure, facts, trail = call.last_failure, call.facts, call.trail
        assert failure is not None
        number = number_of(call)
        told: list[Event] = [
            AttemptFailed(
                self.client,
                facts.method,
                call.sent_to,
                call.attempts,
                failure.kind,
                failure.phase,
                failure.status,
                failure.error,
                trail.entries[-1][2],
                trail.kind_of_last(),
                number,
            )
        ]
        if isinstance(verdict, RetryAfter):
            told.append(
                RetryScheduled(
                    self.client,
                    facts.method,
                    facts.origin,
                    call.attempts,
                    call.policy.max_attempts,
                    failure.kind,
                    failure.status,
                    failure.error,
                    verdict.delay,
                    verdict.source,
                    failure.phase,
                    trail.waited() - verdict.delay,
                    now - call.started_at,
                    None if call.deadline_at == inf else call.deadline_at - now,
                    number,
                )
            )
            if call.origin != call.sent_to:
                told.append(
                    FailedOver(
                        self.client,
                        facts.method,
                        call.sent_to,
                        call.origin,
                        call.attempts,
                        failure.status,
                        failure.error,
                        number,
                    )
                )
        elif isinstance(verdict, GiveUp):
            if is_edge:
                told.append(self._exhaustion(call, now))
            told.append(
                GaveUp(
                    self.client,
                    facts.method,
                    facts.origin,
                    call.attempts,
                    verdict.reason,
                    failure.status,
                    failure.error,
                    now - call.started_at,
                    verdict.delay,
                    trail.waited(),
                    number,
                )
            )
        for event in told:
            self._tell(event, listeners)

    def turned(self, call: Call, planned: str, more: tuple[Listener, ...] = ()) -> None:
        """A retry goes to another origin than planned, which may not be sent to any more."""
        listeners = self._listeners + more
        if listeners or logger.isEnabledFor(logging.WARNING):
            event = FailedOver(
                self.client,
                call.facts.method,
                planned,
                call.origin,
                call.attempts,
                None,
                None,
                number_of(call),
            )
            self._tell(event, listeners)

    def refused(self, call: Call, now: float, more: tuple[Listener, ...] = ()) -> None:
        """An attempt was not sent: the breaker or a cooldown is in the way."""
        listeners, failure, refusal = self._listeners + more, call.last_failure, call.refusal
        assert refusal is not None
        # An open circuit was told of when it opened; that each call is refused then is no news for
        # the log.
        level = logging.WARNING if failure is not None else logging.DEBUG
        if not listeners and not logger.isEnabledFor(level):
            return

        event = GaveUp(
            self.client,
            call.facts.method,
            call.facts.origin,
            call.attempts,
            refusal.reason,
            None if failure is None else failure.status,
            None if failure is None else failure.error,
            now - call.started_at,
            refusal.delay,
            call.trail.waited(),
            number_of(call),
        )
        self._tell(event, listeners, level)

    def ignored(
        self, call: Call, lines: Any, verdict: Verdict, now: float, more: tuple[Listener, ...] = ()
    ) -> None:
        """A failed answer was judged; tell if it had a Retry-After that set no delay."""
        failure = call.last_failure
        why = None if failure is None else why_ignored(failure, lines, verdict, call.policy.hints)
        if why is None or now < self._ignored.get(call.sent_to, -inf):
            return
        if len(self._ignored) >= MOST_ORIGINS:
            self._ignored = {}
        self._ignored[call.sent_to] = now + AGAIN_AFTER

        self._tell(RetryAfterIgnored(self.client, call.sent_to, why), self._listeners + more)

    def _is_newly_exhausted(self, call: Call, verdict: Verdict, now: float) -> bool:
        exhausted = self._exhausted
        if type(verdict) is GiveUp and verdict.reason is Reason.BUDGET_EXHAUSTED:
            scope = call.scope()
            told_at, refused_last = exhausted.get(scope, (-inf, False))
            if not refused_last and now - told_at >= AGAIN_AFTER:
                if len(exhausted) >= MOST_ORIGINS:
                    exhausted.clear()
                exhausted[scope] = now, True
                return True
        elif exhausted and type(verdict) is RetryAfter and (scope := call.scope()) in exhausted:
            exhausted[scope] = exhausted[scope][0], False
        return False

    def _exhaustion(self, call: Call, now: float) -> Event:
        name, scope, tokens = budget_in_force(call.strategy, call.scope(), now)
        return BudgetExhausted(self.client, call.facts.origin, name, scope, tokens)

    # The end of a call.

    def succeeded(
        self, call: Call, status: int, now: float, more: tuple[Listener, ...] = ()
    ) -> None:
        """An answer was accepted that was not the first one."""
        listeners = self._listeners + more
        if not listeners and not logger.isEnabledFor(logging.INFO):
            return

        facts = call.facts
        self._tell(
            SucceededAfterRetry(
                self.client,
                facts.method,
                facts.origin,
                call.attempts,
                status,
                call.trail.waited(),
                now - call.started_at,
                number_of(call),
            ),
            listeners,
        )

    def plain(self, method: str, origin: str, status: int | None, elapsed: float) -> None:
        """A call was sent once and accepted; without a status it was cancelled. Only if
        ``hears_calls``.
        """
        outcome = CallOutcome.CANCELLED if status is None else CallOutcome.SUCCESS
        number = next(NUMBERS)
        self._tell_end(
            CallEnded(
                self.client,
                method,
                origin,
                outcome,
                1,
                status,
                None,
                elapsed,
                "first",
                None,
                None,
                number,
            ),
            self._of_calls,
        )

    def ended(self, call: Call, now: float) -> None:
        """A call is over, however it ended, or the resuming of its body is. Only if
        ``tells_ends``.
        """
        trail = call.trail
        entries = trail.entries
        status, failure, _, delay, *_ = entries[-1] if entries else (None, None, 0.0, None)
        sent, kind, outcome = len(entries), None, None
        if call.is_under_way:  # nobody has judged it
            sent, kind, failure, status = sent + 1, trail.kind_of_next(call.sent_to), None, None
        elif entries and (failure is None or is_off(call.policy)):
            kind = trail.kind_of_last()
        if trail.broke_at is None:
            outcome = outcome_of(call, sent, status, failure, delay)
        self._tell_end(
            CallEnded(
                self.client,
                call.facts.method,
                call.sent_to,
                outcome,
                sent,
                status,
                None if failure is None else failure.error,
                now - call.started_at,
                kind,
                None if failure is None else failure.kind,
                None if failure is None else failure.phase,
                number_of(call),
            ),
            self._of_ends,
        )

    def resumed(
        self,
        call: Call,
        offset: int,
        total: int | None,
        result: str,
        more: tuple[Listener, ...] = (),
    ) -> None:
        """The rest of a body was asked for: "resumed" or "failed"."""
        listeners = self._listeners + more
        if listeners or logger.isEnabledFor(logging.INFO):
            facts = call.facts
            event = Resumption(
                self.client, facts.method, facts.origin, offset, total, result, number_of(call)
            )
            self._tell(event, listeners)

    # What is not of one call.

    def moved(self, edge: Transition) -> None:
        """The breaker passed from one state to another because of a call of this client."""
        event = CircuitTransition(
            self.client,
            edge.origin,
            edge.from_state.value,
            edge.to_state.value,
            edge.failures,
            edge.failure_rate,
            edge.open_for,
        )
        self._tell(
            event,
            self._listeners + listeners_here(),
            logging.WARNING if event.to_state == "open" else logging.INFO,
        )

    def nested(self, header: str, switch: str) -> None:
        """A loop above this one retries too. Logged once per client."""
        if header not in self._failed:
            self._failed.add(header)
            logger.warning(
                "an SDK above retries too (%s): attempts multiply; turn its retries off with %s",
                header,
                switch,
                extra={
                    "forbear.event": "nested_retry",
                    "forbear.client": self.client,
                    "forbear.header": header,
                    "forbear.hint": switch,
                },
            )

    def hook_failed(self, hook: str, error: Exception) -> None:
        """Something of the user's raised. Logged once per hook, by class name: its text may hold
        secrets.
        """
        if hook not in self._failed:
            self._failed.add(hook)
            logger.error(
                "%s raised %s; the call goes on without it (logged once)",
                hook,
                type(error).__name__,
                extra={
                    "forbear.event": "hook_failed",
                    "forbear.client": self.client,
                    "forbear.hook": hook,
                },
            )

    def strategy_failed(self, call: Call) -> None:
        """Take what the call's strategy raised, if it did."""
        error, call.strategy_error = call.strategy_error, None
        if error is not None:
            self.hook_failed(f"strategy {type(call.strategy).__name__}", error)
        error, call.scope_error = call.scope_error, None
        if error is not None:
            self.hook_failed(f"scope of {type(call.strategy).__name__}", error)

    def _tell(
        self, event: Event, listeners: tuple[Listener, ...], level: int | None = None
    ) -> None:
        if level is None:
            level = LEVELS[event.name]
        if logger.isEnabledFor(level):
            logger.log(level, sentence(event), extra=fields(event))
        for listener in listeners:
            try:
                listener(event)
            except Exception as error:
                self._listener_failed(listener, error)

    def _tell_end(self, event: CallEnded, listeners: tuple[Any, ...]) -> None:
        for listener in listeners:
            try:
                listener(event)
            except Exception as error:
                self._listener_failed(listener, error)

    def _listener_failed(self, listener: Any, error: Exception) -> None:
        self.hook_failed(
            f"on_event {getattr(listener, '__qualname__', type(listener).__name__)}", error
        )


def number_of(call: Call) -> int:
    """The call's number, from when it is first told of."""
    if not call.number:
        call.number = next(NUMBERS)
    return call.number


def outcome_of(
    call: Call, sent: int, status: int | None, failure: Failure | None, delay: float | None
) -> CallOutcome:
    """How a call ended whose last attempt had this status or failure, and was to be followed after
    ``delay``.
    """
    refusal = call.refusal
    if call.is_under_way:
        return CallOutcome.CANCELLED
    if not sent:
        if refusal is None:
            return CallOutcome.CANCELLED
        return CallOutcome.FAILED if refusal.reason is Reason.DEADLINE else CallOutcome.CIRCUIT_OPEN
    if refusal is None and delay is not None:
        return CallOutcome.CANCELLED  # while it waited
    if refusal is not None or failure is not None or (status is not None and status >= 500):
        return CallOutcome.FAILED if sent == 1 else CallOutcome.FAILED_AFTER_RETRY
    return CallOutcome.SUCCESS if sent == 1 else CallOutcome.SUCCESS_AFTER_RETRY


def is_off(policy: RetryPolicy) -> bool:
    """Is the call forwarded untouched? Its failures are told of to nobody."""
    return policy.max_attempts == 1 and not (policy.statuses or policy.failures)


def why_ignored(failure: Failure, lines: Any, verdict: Verdict, hints: str) -> str | None:
    """Why the Retry-After of a failed answer set no delay; None if it did, or there is none."""
    if isinstance(verdict, GiveUp) and verdict.reason is Reason.RETRY_AFTER_TOO_LONG:
        return "over_cap"
    if failure.hint.delay or hints == "ignore":
        return None
    for name, value in lines:
        if len(name) == len("retry-after") and name.lower() in (b"retry-after", "retry-after"):
            if failure.hint.delay is None:
                return "unparsable"
            # A time that is over, and not the server's "at once".
            return None if value.strip() in (b"0", "0") else "past"
    return None
