"""Counting: what events and vitals add up to, by the table of metrics. Floor: acts.

Knows neither Prometheus nor OpenTelemetry; the listeners in prometheus.py and otel.py add how each
of them keeps numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from ..core.checks import a_switch
from ..shared.locks import lock_of
from . import METRICS, MOST_HOSTS, OTHER, STATES
from .labels import host_of, method_of, result_of, retry_reason, source_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..core.events import CallEnded, Event
    from .gauges import Vitals

__all__ = ["Counting", "Reading"]

Reading = tuple[str, tuple[str, ...], float]  # name of the metric, values of its labels, value


class Counting:
    """A listener that counts. Thread-safe, for any number of transports, as far as ``_add`` and
    ``_observe`` are.
    """

    hears_calls = True  # requests are counted also where all is well

    def __init__(self, *, metrics_host: bool = True) -> None:
        a_switch("metrics_host", metrics_host)
        self._has_host = metrics_host
        self._lock = lock_of(self)  # another one in a forked child
        self._hosts: dict[str, str] = {}  # origin: its label
        self._names: set[str] = set()  # the labels that servers have
        self._watched: WeakSet[Vitals] = WeakSet()
        self._tripped: set[tuple[str, str]] = (
            set()
        )  # client and origin of circuits that have opened once

    def watch(self, vitals: Vitals) -> None:
        """Read the gauges of one more transport, for as long as it exists."""
        with self._lock:
            self._watched.add(vitals)

    def __call__(self, event: Event | CallEnded) -> None:
        """Count an event."""
        count = getattr(self, f"_{event.name}", None)
        if count is not None:
            count(event)

    # One method for each event, by its name.

    def _call_ended(self, event: CallEnded) -> None:
        whose = self._whose(event.client, event.origin)
        if (
            event.outcome is not None
        ):  # else the call had ended before, and the resuming of its body has now
            outcome = event.outcome.value
            self._add("forbear.requests", (*whose, method_of(event.method), outcome))
            self._observe("forbear.request.duration", (*whose, outcome), event.elapsed)
        if event.kind is not None:
            result = result_of(event.status, event.failure, event.phase)
            self._add("forbear.attempts", (*whose, event.kind, result))

    def _attempt_failed(self, event: Any) -> None:
        if event.kind is not None:  # else it was counted when it was accepted
            result = result_of(event.status, event.failure, event.phase)
            self._add(
                "forbear.attempts", (*self._whose(event.client, event.origin), event.kind, result)
            )

    def _retry_scheduled(self, event: Any) -> None:
        self._add(
            "forbear.retries", (*self._whose(event.client, event.origin), retry_reason(event))
        )
        self._observe(
            "forbear.backoff.duration", (event.client, source_of(event.delay_source)), event.delay
        )

    def _gave_up(self, event: Any) -> None:
        if (
            event.status is not None or event.error is not None
        ):  # else a first attempt was refused, and no retry
            self._add(
                "forbear.retries.refused",
                (*self._whose(event.client, event.origin), event.reason.value),
            )

    def _failover(self, event: Any) -> None:
        self._add(
            "forbear.failovers",
            (event.client, self._host(event.origin), self._host(event.to_origin)),
        )

    def _circuit_transition(self, event: Any) -> None:
        whose = self._whose(event.client, event.origin)
        self._add("forbear.circuit.transitions", (*whose, event.from_state, event.to_state))
        self._trip(event.client, event.origin)

    def _resume(self, event: Any) -> None:
        self._add("forbear.resumes", (*self._whose(event.client, event.origin), event.result))

    # What is read when someone looks.

    def _readings(self) -> Iterator[Reading]:
        """All gauges now, and the counter that no event carries."""
        with self._lock:
            watched = list(self._watched)
        waiting: dict[str, int] = {}
        tokens: dict[tuple[str, str, str], float] = {}
        errors: dict[tuple[str, str], int] = {}
        circuits: dict[tuple[str, str], str] = {}
        for vitals in watched:
            client = vitals.client
            waiting[client] = waiting.get(client, 0) + vitals.waiting()
            for budget, scope, found in vitals.budgets():
                tokens[client, budget, scope] = min(
                    found, tokens.get((client, budget, scope), found)
                )
            failed = vitals.backend_errors()
            if failed is not None:  # of several transports with one budget each tells the same
                errors[client, failed[0]] = max(failed[1], errors.get((client, failed[0]), 0))
            for origin, state in vitals.circuits().items():
                circuits[client, origin] = max(
                    state, circuits.get((client, origin), state)
                )  # open above half_open
                self._trip(client, origin)
        yield from (
            ("forbear.waiting_requests", (client,), number) for client, number in waiting.items()
        )
        yield from (
            ("forbear.budget.available_tokens", labels, found) for labels, found in tokens.items()
        )
        yield from (
            ("forbear.budget.backend.errors", labels, number) for labels, number in errors.items()
        )
        yield from self._states(circuits)

    def _states(self, circuits: dict[tuple[str, str], str]) -> Iterator[Reading]:
        with self._lock:
            tripped = list(self._tripped)
        worst: dict[tuple[str, ...], str] = {}
        for client, origin in tripped:
            whose, state = self._whose(client, origin), circuits.get((client, origin), "closed")
            worst[whose] = max(state, worst.get(whose, state))  # several may share the label OTHER
        for whose, found in worst.items():
            for state in STATES:
                yield "forbear.circuit.state", (*whose, state), float(state == found)

    def _trip(self, client: str, origin: str) -> None:
        with self._lock:
            if len(self._tripped) < MOST_TRIPPED:
                self._tripped.add((client, origin))

    # Labels.

    def _labels_of(self, name: str) -> tuple[str, ...]:
        """The names of a metric's labels, in the order in which the values are given."""
        return tuple(label for label in METRICS[name].labels if self._has_host or label != "host")

    def _whose(self, client: str, origin: str) -> tuple[str, ...]:
        return (client, self._host(origin)) if self._has_host else (client,)

    def _host(self, origin: str) -> str:
        """The label of a server, OTHER once there are too many."""
        host = self._hosts.get(origin)
        if host is None:
            with self._lock:
                host = host_of(origin)
                if host not in self._names and len(self._names) >= MOST_HOSTS:
                    return OTHER
                self._names.add(host)
                self._hosts[origin] = host
        return host

    # What a listener of its own adds.

    def _add(self, name: str, values: tuple[str, ...]) -> None:
        raise AssertionError("each exporter has its own")

    def _observe(self, name: str, values: tuple[str, ...], value: float) -> None:
        raise AssertionError("each exporter has its own")


MOST_TRIPPED = 1024  # circuits that are shown, as many as a breaker keeps
