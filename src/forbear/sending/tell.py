"""Tell: tell listeners and the log what happens to calls. Floor: acts.

On the failure path only, unless a listener asks to hear of every call. Nothing secret is told:
method, origin, status, class names, durations. A listener that raises is logged once and never
costs a response. Events and levels follow the table in telemetry/__init__.py. core/events.py is
imported with the first event that somebody hears: that takes 5 ms.
"""

from __future__ import annotations

import logging
from itertools import count
from logging import DEBUG, ERROR, INFO, WARNING
from math import inf
from typing import TYPE_CHECKING, Any

from ..core.headers.hints import why_unused
from ..core.verdict import Reason
from .context import scope_of_call
from .errors import let_signals_through
from .gauges import Gauges, budget_in_force

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..core.call import Attempt, Call
    from ..core.events import CallEnded, Event
    from ..core.outcome import Failure
    from ..core.verdict import GiveUp, Retry
    from ..shared.circuit import Transition
    from .clock import Clock, Sleeper
    from .gauges import Shared

    Listener = Callable[[Event], object]
    Listeners = tuple[Listener, ...]

__all__ = ["Tell"]

logger = logging.getLogger("forbear")
logger.addHandler(logging.NullHandler())  # else warnings go to stderr where no logging is set up
NUMBERS = count(1)  # of calls that are told of
# Seconds until a refusal, an exhausted budget or an unusable header of an origin is news again.
AGAIN_AFTER = 60.0
# An origin in trouble has these for every call.
REFUSALS = frozenset({Reason.CIRCUIT_OPEN, Reason.ORIGIN_UNWELL, Reason.BUDGET_EXHAUSTED})
# A call that could be repeated is not, since a limit is reached; else it must not be repeated.
LIMITS = frozenset(
    {Reason.KEY_EXPIRED, Reason.ATTEMPTS_EXHAUSTED, Reason.RETRY_AFTER_TOO_LONG, Reason.DEADLINE}
    | {Reason.STRATEGY_FAILED, Reason.HOOK_FAILED}
)
# They say how many refusals of their origin were not logged before them.
EDGES = frozenset({"gave_up", "succeeded_after_retry", "circuit_transition"})
MOST_ORIGINS = 1024  # for which that is remembered; then all are forgotten


class Tell:
    """The events of one transport. Thread-safe as far as its listeners are.

    Attributes:
        hears_calls: A listener wants to hear of every call, also of those that succeed at once.
        tells_ends: A listener wants to know when a call is over that it may have heard of.
    """

    def __init__(
        self, client: str, listeners: Iterable[Listener], *, knows_ends: bool = True
    ) -> None:
        """``knows_ends``: ends of calls are told; else who has ``needs_ends`` is left out."""
        taken: tuple[Any, ...] = tuple(listeners)
        if not knows_ends:
            taken = tuple(one for one in taken if not getattr(one, "needs_ends", False))
        hearing = [one for one in taken if knows_ends and getattr(one, "hears_calls", False)]
        needing = [one for one in taken if knows_ends and getattr(one, "needs_ends", False)]
        self.client = client
        self._listeners = taken
        self._ending = tuple(one for one in taken if one in hearing or one in needing)
        self._counting = tuple(one for one in hearing if hasattr(one, "call_succeeded"))
        self._hearing = tuple(one for one in hearing if not hasattr(one, "call_succeeded"))
        self.hears_calls = bool(hearing)
        self.tells_ends = bool(self._ending)
        self._gauges: Gauges | None = None
        self._logged: set[str] = set()  # hooks that raised and headers of loops above
        self._again_at: dict[tuple[str, str], float] = {}  # what is not told of before then
        self._left_out: dict[str, count[int]] = {}  # refusals of an origin since its last line
        self._refused: set[str] = set()  # scopes whose exhausted budget allowed nothing since

    def show(self, limits: Shared, sleeper: Sleeper | None, clock: Clock) -> None:
        """Let listeners that ``watch`` look at what the transport shares; they hold it weakly."""
        self._gauges = Gauges(self.client, limits, sleeper, clock)
        for listener in self._listeners:
            if callable(getattr(listener, "watch", None)):
                listener.watch(self._gauges)

    # A failed attempt, and what comes of it.

    def retried(self, call: Call, failure: Failure, verdict: Retry, now: float) -> None:
        """An attempt failed, and another one follows."""
        listeners = self._listeners + call.listeners
        if self._refused:
            self._refused.discard(call.scope)
        if listeners or logger.isEnabledFor(INFO if call.origin == call.sent_to else WARNING):
            self._tell_failure(call, failure, listeners)
            self._tell_retry(call, failure, verdict, now, listeners)
        if call.lines:
            self._tell_ignored(call, failure, now, listeners)

    def gave_up(self, call: Call, failure: Failure, stop: GiveUp, now: float) -> None:
        """An attempt failed, and was the last one."""
        listeners = self._listeners + call.listeners
        level = self._level_of(call, now)
        exhausted = stop.reason is Reason.BUDGET_EXHAUSTED and self._is_edge(call.scope, now)
        if listeners or exhausted or logger.isEnabledFor(level):
            self._tell_failure(call, failure, listeners)
            if exhausted:
                from ..core.events import BudgetExhausted

                budget = budget_in_force(call, now)
                event = BudgetExhausted(self.client, call.request.origin, *budget)
                self._tell(event, listeners, WARNING)
            self._tell_end(call, now, listeners, level)
        if call.lines:
            self._tell_ignored(call, failure, now, listeners)

    def _level_of(self, call: Call, now: float) -> int:
        """The level at which it is told that there is no further attempt."""
        stop, origin = call.stop, call.request.origin
        assert stop is not None
        if call.last_failure is None:  # refused at once: the open circuit was told of before
            return DEBUG
        if stop.reason not in REFUSALS:  # with one attempt there are no retries to give up
            return WARNING if stop.reason in LIMITS and call.most_attempts > 1 else INFO
        if self._is_news(stop.reason, origin, now):
            return WARNING
        next(self._left_out.setdefault(origin, count()))
        return DEBUG

    def _tell_failure(self, call: Call, failure: Failure, listeners: Listeners) -> None:
        from ..core.events import AttemptFailed

        last = len(call.history) - 1
        failed = AttemptFailed(
            client=self.client, method=call.request.method, origin=call.sent_to,
            attempt=call.attempts, failure=failure.kind, phase=failure.phase, status=failure.status,
            error=failure.error, elapsed=call.history[last].elapsed,
            kind=call.kind_of(last, call.sent_to), request_id=number_of(call),
        )  # fmt: skip
        self._tell(failed, listeners, DEBUG)

    def _tell_retry(
        self, call: Call, failure: Failure, verdict: Retry, now: float, listeners: Listeners
    ) -> None:
        from ..core.events import RetryScheduled

        scheduled = RetryScheduled(
            client=self.client, method=call.request.method, origin=call.request.origin,
            attempt=call.attempts,
            max_attempts=int(min(call.most_attempts, call.policy.max_attempts)),
            failure=failure.kind, status=failure.status, error=failure.error, delay=verdict.delay,
            delay_source=verdict.source, phase=failure.phase, waited=call.waited() - verdict.delay,
            elapsed=now - call.started_at,
            deadline_left=None if call.deadline_at == inf else call.deadline_at - now,
            held=call.place is not None, request_id=number_of(call),
        )  # fmt: skip
        self._tell(scheduled, listeners, INFO)
        if call.origin != call.sent_to:
            self._tell_failover(call, call.sent_to, failure, listeners)

    def _tell_end(self, call: Call, now: float, listeners: Listeners, level: int) -> None:
        """Tell that there is no further attempt."""
        from ..core.events import GaveUp

        failure, stop = call.last_failure, call.stop
        assert stop is not None
        event = GaveUp(
            client=self.client, method=call.request.method, origin=call.request.origin,
            attempts=call.attempts, reason=stop.reason,
            status=None if failure is None else failure.status,
            error=None if failure is None else failure.error, elapsed=now - call.started_at,
            refused_delay=stop.delay, waited=call.waited(), request_id=number_of(call),
        )  # fmt: skip
        self._tell(event, listeners, level)

    def _tell_failover(
        self, call: Call, planned: str, failure: Failure | None, listeners: Listeners
    ) -> None:
        from ..core.events import FailedOver

        event = FailedOver(
            client=self.client, method=call.request.method, origin=planned, to_origin=call.origin,
            attempt=call.attempts, status=None if failure is None else failure.status,
            error=None if failure is None else failure.error, request_id=number_of(call),
        )  # fmt: skip
        self._tell(event, listeners, WARNING)

    def _tell_ignored(self, call: Call, failure: Failure, now: float, listeners: Listeners) -> None:
        """Tell if the failed answer had a Retry-After that set no delay."""
        lines, call.lines = call.lines, ()
        too_long = call.stop is not None and call.stop.reason is Reason.RETRY_AFTER_TOO_LONG
        why = "over_cap" if too_long else why_unused(lines, failure.hint)
        if why is None or call.policy.hints == "ignore":
            return
        if self._is_news("retry_after_ignored", call.sent_to, now):
            from ..core.events import RetryAfterIgnored

            self._tell(RetryAfterIgnored(self.client, call.sent_to, why), listeners, WARNING)

    def _is_edge(self, scope: str, now: float) -> bool:
        """Did the budget of a scope allow a retry since its end was told of, a minute ago?"""
        if scope in self._refused or not self._is_news("budget_exhausted", scope, now):
            return False
        self._refused.add(scope)
        return True

    def _is_news(self, name: str, origin: str, now: float) -> bool:
        """Was this not told of in the last minute? It is told now."""
        if now < self._again_at.get((name, origin), -inf):
            return False
        if len(self._again_at) >= MOST_ORIGINS:
            self._again_at, self._refused, self._left_out = {}, set(), {}
        self._again_at[name, origin] = now + AGAIN_AFTER
        return True

    def failed_over(self, call: Call, planned: str, more: Listeners) -> None:
        """A retry goes to another origin than planned, which may not be sent to any more."""
        listeners = self._listeners + more
        if listeners or logger.isEnabledFor(WARNING):
            self._tell_failover(call, planned, None, listeners)

    def released(self, call: Call, cause: str, seconds: float, now: float, more: Listeners) -> None:
        """A call was held for ``seconds``, and is held no more."""
        listeners = self._listeners + more
        if listeners or logger.isEnabledFor(INFO):
            from ..core.events import Released

            event = Released(
                client=self.client, method=call.request.method, origin=call.request.origin,
                attempt=call.attempts, cause=str(cause), held=seconds,
                elapsed=now - call.started_at, request_id=number_of(call),
            )  # fmt: skip
            self._tell(event, listeners, INFO)

    def hedged(
        self, call: Call, outcome: str, after: float, loser: Attempt | None, kind: str | None,
        reason: str | None,
    ) -> None:  # fmt: skip
        """A second attempt was wanted; ``loser`` is the one of two that did not decide."""
        listeners = self._listeners + call.listeners
        if listeners or logger.isEnabledFor(DEBUG):
            from ..core.events import Hedged

            failure = None if loser is None else loser.failure
            event = Hedged(
                client=self.client, method=call.request.method, origin=call.origin, outcome=outcome,
                reason=reason, after=after, kind=kind,
                status=None if loser is None else loser.status,
                error=None if failure is None else failure.error,
                failure=None if failure is None else failure.kind,
                phase=None if failure is None else failure.phase, request_id=number_of(call),
            )  # fmt: skip
            self._tell(event, listeners, DEBUG)

    def refused(self, call: Call, now: float, more: Listeners) -> None:
        """An attempt was not sent: the breaker or a cooldown is in the way."""
        listeners = self._listeners + more
        level = self._level_of(call, now)
        if listeners or logger.isEnabledFor(level):
            self._tell_end(call, now, listeners, level)

    # The end of a call.

    def succeeded(self, call: Call, now: float, more: Listeners) -> None:
        """An answer was accepted that was not the first one."""
        listeners = self._listeners + more
        if listeners or logger.isEnabledFor(INFO):
            from ..core.events import SucceededAfterRetry

            event = SucceededAfterRetry(
                client=self.client, method=call.request.method, origin=call.request.origin,
                attempts=call.attempts, status=call.status or 0, waited=call.waited(),
                elapsed=now - call.started_at, request_id=number_of(call),
            )  # fmt: skip
            self._tell(event, listeners, INFO)

    def succeeded_at_once(self, method: str, origin: str, status: int, elapsed: float) -> None:
        """A call was sent once and accepted. Asked only if ``hears_calls``."""
        for listener in self._counting:
            try:
                listener.call_succeeded(self.client, method, origin, status, elapsed)
            except Exception as error:
                self._listener_failed(listener, error)
        if self._hearing:
            from ..core.events import CallEnded, CallOutcome

            ended = CallEnded(
                client=self.client, method=method, origin=origin, outcome=CallOutcome.SUCCESS,
                attempts=1, status=status, error=None, elapsed=elapsed, kind="first", failure=None,
                phase=None, request_id=next(NUMBERS),
            )  # fmt: skip
            self._send(ended, self._hearing)

    def ended(self, call: Call, now: float) -> None:
        """A call is over, or the resuming of its body is. Asked only if ``tells_ends``."""
        from ..core.events import CallEnded
        from .outcomes import outcome_of, was_told

        sent, last = len(call.history), call.history[-1] if call.history else None
        kind = None
        if call.is_under_way:  # nobody has judged the attempt
            kind, last = call.kind_of(sent, call.sent_to), None
            sent += 1
        elif last is not None and not was_told(call, last):
            kind = call.kind_of(sent - 1, call.sent_to)
        outcome = outcome_of(call, sent) if call.resumption is None else None
        failure = None if last is None else last.failure
        ended = CallEnded(
            client=self.client, method=call.request.method, origin=call.sent_to, outcome=outcome,
            attempts=sent, status=None if last is None else last.status,
            error=None if failure is None else failure.error, elapsed=now - call.started_at,
            kind=kind, failure=None if failure is None else failure.kind,
            phase=None if failure is None else failure.phase, request_id=number_of(call),
        )  # fmt: skip
        self._send(ended, self._ending)

    def resumed(
        self, call: Call, offset: int, total: int | None, result: str, more: Listeners
    ) -> None:
        """The rest of a body was asked for: "resumed" or "failed"."""
        listeners = self._listeners + more
        if listeners or logger.isEnabledFor(INFO):
            from ..core.events import Resumption

            event = Resumption(
                client=self.client, method=call.request.method, origin=call.request.origin,
                offset=offset, total=total, result=result, request_id=number_of(call),
            )  # fmt: skip
            self._tell(event, listeners, INFO)

    # What is not of one call.

    def moved(self, edge: Transition) -> None:
        """The breaker passed from one state to another because of a call of this client."""
        from ..core.events import CircuitTransition

        context = scope_of_call()
        more = () if context is None else context.listeners
        event = CircuitTransition(
            client=self.client, origin=edge.origin, from_state=edge.from_state.value,
            to_state=edge.to_state.value, failures=edge.failures, failure_rate=edge.failure_rate,
            open_for=edge.open_for,
        )  # fmt: skip
        level = WARNING if event.to_state == "open" else INFO
        self._tell(event, self._listeners + more, level)

    def nested(self, header: str, switch: str) -> None:
        """A loop above this one retries too. Logged once per client."""
        text = "an SDK above retries too (%s): attempts multiply; turn its retries off with %s"
        fields = {"event": "nested_retry", "header": header, "hint": switch}
        self._log_once(WARNING, text, header, switch, fields)

    def hook_failed(self, hook: str, error: object, did: str = "raised") -> None:
        """Log once per hook that a function of the user's raised; its text may hold secrets."""
        text = f"%s {did} %s; the call goes on without it (logged once)"
        fields = {"event": "hook_failed", "hook": hook}
        self._log_once(ERROR, text, hook, type(error).__name__, fields)

    def _log_once(self, level: int, text: str, what: str, why: str, fields: dict[str, str]) -> None:
        if what not in self._logged:
            self._logged.add(what)
            extra = {f"forbear.{name}": value for name, value in fields.items()}
            logger.log(level, text, what, why, extra={"forbear.client": self.client, **extra})

    def _tell(self, event: Event, listeners: Listeners, level: int) -> None:
        if logger.isEnabledFor(level):
            from .lines import fields, sentence

            text, extra = sentence(event), fields(event)
            if level > DEBUG and event.name in EDGES:
                counter = self._left_out.pop(event.origin, None)
                if counter is not None:
                    left = extra["forbear.left_out"] = next(counter)
                    text += f"; refused meanwhile, told at DEBUG: {left:,}"
            logger.log(level, text, extra=extra)
        self._send(event, listeners)

    def _send(self, event: Event | CallEnded, listeners: tuple[Any, ...]) -> None:
        for listener in listeners:
            try:
                listener(event)
            except Exception as error:
                self._listener_failed(listener, error)

    def _listener_failed(self, listener: Any, error: Exception) -> None:
        let_signals_through(error)
        name = getattr(listener, "__qualname__", type(listener).__name__)
        self.hook_failed(f"on_event {name}", error)


def number_of(call: Call) -> int:
    """The call's number, from when it is first told of."""
    call.number = call.number or next(NUMBERS)
    return call.number
