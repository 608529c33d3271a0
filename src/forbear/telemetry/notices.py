"""Notices: tell listeners and the log what happens to calls, on the failure path only. Floor: acts.

Nothing secret is told: method, origin, status, class names, durations. A listener that raises is
logged once and never costs a response.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ..context import CURRENT
from ..core.verdict import GiveUp, RetryAfter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..core.call import Call
    from ..core.events import Event
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
}


class Notices:
    """What one transport tells. Thread-safe as far as its listeners are."""

    __slots__ = ("_failed", "_listeners", "client")

    def __init__(self, client: str, listeners: Iterable[Listener]) -> None:
        self.client = client
        self._listeners = tuple(listeners)
        self._failed: set[str] = set()

    def failed(self, call: Call, verdict: Verdict, now: float, more: tuple[Listener, ...] = ()) -> None:
        """An attempt failed; tell that, and what comes of it."""
        if not (self._listeners or more) and not logger.isEnabledFor(
            logging.INFO if type(verdict) is RetryAfter and call.origin == call.sent_to else logging.WARNING
        ):
            return
        listeners = self._listeners + more
        from ..core.events import AttemptFailed, FailedOver, GaveUp, RetryScheduled

        failure, facts = call.last_failure, call.facts
        assert failure is not None
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
                call.trail.entries[-1][2],
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
                    )
                )
        elif isinstance(verdict, GiveUp):
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
                )
            )
        for event in told:
            self._tell(event, listeners)

    def succeeded(self, call: Call, status: int, now: float, more: tuple[Listener, ...] = ()) -> None:
        """An answer was accepted that was not the first one."""
        listeners = self._listeners + more
        if not listeners and not logger.isEnabledFor(logging.INFO):
            return
        from ..core.events import SucceededAfterRetry

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
            ),
            listeners,
        )

    def resumed(self, call: Call, offset: int, total: int | None, result: str, more: tuple[Listener, ...] = ()) -> None:
        """The rest of a body was asked for."""
        listeners = self._listeners + more
        if not listeners and not logger.isEnabledFor(logging.INFO):
            return
        from ..core.events import Resumption

        facts = call.facts
        self._tell(Resumption(self.client, facts.method, facts.origin, offset, total, result), listeners)

    def refused(self, call: Call, now: float, more: tuple[Listener, ...] = ()) -> None:
        """An attempt was not sent: the breaker or a cooldown is in the way."""
        listeners, failure, refusal = self._listeners + more, call.last_failure, call.refusal
        assert refusal is not None
        # An open circuit was told of when it opened; that each call is refused then is no news for the log.
        level = logging.WARNING if failure is not None else logging.DEBUG
        if not listeners and not logger.isEnabledFor(level):
            return
        from ..core.events import GaveUp

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
        )
        self._tell(event, listeners, level)

    def moved(self, edge: Transition) -> None:
        """The breaker passed from one state to another because of a call of this client."""
        scope = CURRENT.get()
        from ..core.events import CircuitTransition

        event = CircuitTransition(
            self.client,
            edge.origin,
            edge.from_state.value,
            edge.to_state.value,
            edge.failures,
            edge.failure_rate,
            edge.open_for,
        )
        listeners = self._listeners if scope is None else self._listeners + scope.listeners
        self._tell(event, listeners, logging.WARNING if event.to_state == "open" else logging.INFO)

    def nested(self, header: str, switch: str) -> None:
        """A loop above this one retries too. Logged once per client."""
        if header not in self._failed:
            self._failed.add(header)
            logger.warning(
                "an SDK above retries too (%s): attempts multiply; turn its retries off with %s",
                header,
                switch,
                extra={"forbear.event": "nested_retry", "forbear.client": self.client, "forbear.header": header},
            )

    def hook_failed(self, hook: str, error: Exception) -> None:
        """Something of the user's raised. Logged once per hook, by class name: its text may hold secrets."""
        if hook not in self._failed:
            self._failed.add(hook)
            logger.error(
                "%s raised %s; the call goes on without it (logged once)",
                hook,
                type(error).__name__,
                extra={"forbear.event": "hook_failed", "forbear.client": self.client, "forbear.hook": hook},
            )

    def strategy_failed(self, call: Call) -> None:
        """Take what the call's strategy raised, if it did."""
        error, call.strategy_error = call.strategy_error, None
        if error is not None:
            self.hook_failed(f"strategy {type(call.strategy).__name__}", error)
        error, call.scope_error = call.scope_error, None
        if error is not None:
            self.hook_failed(f"scope of {type(call.strategy).__name__}", error)

    def _tell(self, event: Event, listeners: tuple[Listener, ...], level: int | None = None) -> None:
        if level is None:
            level = LEVELS[event.name]
        if logger.isEnabledFor(level):
            logger.log(level, sentence(event), extra=fields(event))
        for listener in listeners:
            try:
                listener(event)
            except Exception as error:
                self.hook_failed(f"on_event {getattr(listener, '__qualname__', type(listener).__name__)}", error)


def fields(event: Event) -> dict[str, Any]:
    found = {f"forbear.{name}": getattr(value, "value", value) for name, value in event._asdict().items()}
    found["forbear.event"] = found.pop("forbear.name")
    return found


def sentence(event: Any) -> str:
    if event.name == "circuit_transition":
        return circuit_sentence(event)
    subject = f"{event.method} {event.origin}"
    if event.name == "succeeded_after_retry":
        return f"{subject}: {event.status} on attempt {event.attempts}, {event.waited:.3g} s waited"
    if event.name == "resume":
        whole = "unknown" if event.total is None else event.total
        return f"{subject}: {event.result} at byte {event.offset} of {whole}"
    what = event.status or event.error or "not sent"
    if event.name == "failover":
        return f"{subject}: {what} on attempt {event.attempt}, the next one goes to {event.to_origin}"
    if event.name == "attempt_failed":
        return f"{subject}: attempt {event.attempt} failed, {what}"
    if event.name == "retry_scheduled":
        return (
            f"{subject}: {what} on attempt {event.attempt} of {event.max_attempts},"
            f" again in {event.delay:.3g} s ({event.delay_source})"
        )
    plural = "" if event.attempts == 1 else "s"
    wanted = f" ({event.refused_delay:.3g} s wanted)" if event.refused_delay is not None else ""
    return f"{subject}: {what} after {event.attempts} attempt{plural}, gave up: {event.reason.value}{wanted}"


def circuit_sentence(event: Any) -> str:
    told = f"circuit of {event.origin}: {event.from_state} to {event.to_state}"
    if event.open_for is not None:
        told += f" for {event.open_for:.3g} s"
    if event.failure_rate is not None:
        return f"{told}, {event.failure_rate:.0%} of the calls in the window failed"
    return f"{told}, {event.failures} failures in a row" if event.failures else told
