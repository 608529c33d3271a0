"""Counting: what events and gauges add up to, by the table of metrics. Floor: acts.

Knows neither Prometheus nor OpenTelemetry: prometheus.py and otel.py add how each keeps numbers.
"""

from __future__ import annotations

from itertools import chain, starmap
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from ..core.checks import a_switch
from ..core.events import CallOutcome
from ..core.outcome import TIMEOUT_KINDS
from ..sending.gauges import budget_of
from ..sending.lines import host_of, is_connecting, retry_reason
from ..shared.locks import Locked
from . import METHODS, METRICS, MOST_HOSTS, OTHER, STATES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..core.events import CallEnded, Event
    from ..core.outcome import FailureKind, Phase
    from ..sending.gauges import Gauges
    from ..shared.gate import RetryGate

    Series = Callable[[float], object]

__all__ = ["READ_LATE", "Counting"]

Reading = tuple[str, tuple[str, ...], float]  # name of the metric, values of its labels, value
# How the readings of several transports are put together. They may share a budget, which then says
# the same to all; a gate that they share is read once for each client.
TOGETHER: dict[str, Callable[[list[float]], float]] = {
    "forbear.waiting_requests": sum,
    "forbear.held_calls": sum,
    "forbear.origin_well": min,
    "forbear.budget.available_tokens": min,
    "forbear.budget.backend.errors": max,
}
# Not counted by events but read off transports.
READ_LATE = (*TOGETHER, "forbear.circuit.state")
MOST_TRIPPED = 1024  # circuits that are shown, as many as a breaker keeps
MOST_SUCCESSES = 4096  # kinds of calls that are remembered; then all are looked up again


class Counting(Locked):
    """A listener that counts. Thread-safe, for any number of transports."""

    hears_calls = True  # calls are counted also where all is well

    def __init__(self, *, metrics_host: bool = True) -> None:
        a_switch("metrics_host", metrics_host)
        self._has_host = metrics_host
        super().__init__()
        self._hosts: dict[str, str] = {}  # origin: its label
        self._names: set[str] = set()  # the labels that servers have
        self._watched: WeakSet[Gauges] = WeakSet()
        self._tripped: set[tuple[str, str]] = set()  # client and origin of circuits once open
        self._series: dict[tuple[str, tuple[str, ...]], Series] = {}
        # By client, method, origin and status of a call that succeeds at once.
        self._successes: dict[tuple[str, str, str, int], tuple[Series, Series, Series]] = {}

    def series_of(self, name: str, values: tuple[str, ...]) -> Series:
        """Return what adds to a counter, or notes a value in a histogram, with these labels."""
        raise NotImplementedError

    def labels_of(self, name: str) -> tuple[str, ...]:
        """Return the names of a metric's labels, in the order in which the values are given."""
        return tuple(label for label in METRICS[name].labels if self._has_host or label != "host")

    def watch(self, gauges: Gauges) -> None:
        """Read the gauges of one more transport, for as long as it exists."""
        with self._lock:
            self._watched.add(gauges)

    # What is told.

    def call_succeeded(
        self, client: str, method: str, origin: str, status: int, elapsed: float
    ) -> None:
        """Count a call that succeeded at once."""
        try:
            requests, attempts, durations = self._successes[client, method, origin, status]
        except KeyError:
            requests, attempts, durations = self._success(client, method, origin, status)
        requests(1)
        attempts(1)
        durations(elapsed)

    def _success(
        self, client: str, method: str, origin: str, status: int
    ) -> tuple[Series, Series, Series]:
        whose, outcome = self._whose(client, origin), CallOutcome.SUCCESS.value
        found = (
            self._of("forbear.requests", *whose, method_of(method), outcome),
            self._of("forbear.attempts", *whose, "first", result_of(status, None, None)),
            self._of("forbear.request.duration", *whose, outcome),
        )
        if len(self._successes) >= MOST_SUCCESSES:
            self._successes = {}
        self._successes[client, method, origin, status] = found
        return found

    def __call__(self, event: Event | CallEnded) -> None:
        """Count an event."""
        count = getattr(self, f"_{event.name}", None)
        if count is not None:
            count(event, self._whose(event.client, event.origin))

    # One method for each event, by its name.

    def _call_ended(self, event: CallEnded, whose: tuple[str, ...]) -> None:
        if event.outcome is not None:  # else the resuming of its body is over: it ended before
            outcome = event.outcome.value
            self._of("forbear.requests", *whose, method_of(event.method), outcome)(1)
            self._of("forbear.request.duration", *whose, outcome)(event.elapsed)
        self._attempt_failed(event, whose)

    def _attempt_failed(self, event: Any, whose: tuple[str, ...]) -> None:
        if event.kind is not None:  # else the attempt was counted before
            result = result_of(event.status, event.failure, event.phase)
            self._of("forbear.attempts", *whose, event.kind, result)(1)

    def _retry_scheduled(self, event: Any, whose: tuple[str, ...]) -> None:
        self._of("forbear.retries", *whose, retry_reason(event))(1)
        source = source_of(event.delay_source)
        self._of("forbear.backoff.duration", event.client, source)(event.delay)

    def _released(self, event: Any, whose: tuple[str, ...]) -> None:
        self._of("forbear.releases", event.client, event.cause)(1)

    def _hedged(self, event: Any, whose: tuple[str, ...]) -> None:
        if event.reason is not None:
            self._of("forbear.hedges.refused", *whose, event.reason)(1)
            return
        self._of("forbear.hedges", *whose, event.outcome)(1)
        self._attempt_failed(event, whose)

    def _gave_up(self, event: Any, whose: tuple[str, ...]) -> None:
        if event.status is not None or event.error is not None:  # else nothing was sent
            self._of("forbear.retries.refused", *whose, event.reason.value)(1)

    def _failover(self, event: Any, whose: tuple[str, ...]) -> None:
        hosts = self._host(event.origin), self._host(event.to_origin)
        self._of("forbear.failovers", event.client, *hosts)(1)

    def _circuit_transition(self, event: Any, whose: tuple[str, ...]) -> None:
        self._of("forbear.circuit.transitions", *whose, event.from_state, event.to_state)(1)
        self._trip(event.client, event.origin)

    def _resume(self, event: Any, whose: tuple[str, ...]) -> None:
        self._of("forbear.resumes", *whose, event.result)(1)

    def _of(self, name: str, *values: str) -> Series:
        """Return one series; the exporters would look at each label, under a lock."""
        series = self._series.get((name, values))
        if series is None:
            series = self._series[name, values] = self.series_of(name, values)
        return series

    # What is read when someone looks.

    def readings(self) -> Iterator[Reading]:
        """Read all gauges now, and the counter that no event carries."""
        with self._lock:
            watched = list(self._watched)
        found: dict[tuple[str, tuple[str, ...]], list[float]] = {}
        circuits: dict[tuple[str, str], str] = {}
        gates = {(gauges.client, gauges.gate) for gauges in watched if gauges.gate is not None}
        readings = [*map(readings_of, watched), *starmap(readings_of_gate, gates)]
        for name, values, value in chain.from_iterable(readings):
            found.setdefault((name, values), []).append(value)
        for gauges in watched:
            guards = getattr(gauges.limits, "guards", None)
            breaker = None if guards is None else guards.breaker
            now = gauges.clock.monotonic()
            for origin, state in () if breaker is None else breaker.states(now).items():
                whose = gauges.client, origin
                circuits[whose] = max(state, circuits.get(whose, state))  # open above half_open
                self._trip(*whose)
        for (name, values), numbers in found.items():
            yield name, values, TOGETHER[name](numbers)
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


def readings_of(gauges: Gauges) -> Iterator[Reading]:
    """Read one transport: its waiting calls, and its budget if that is our own."""
    client, budget = gauges.client, budget_of(gauges.limits)
    yield "forbear.waiting_requests", (client,), gauges.waiting()
    if budget is None:
        return
    now, tokens = gauges.clock.monotonic(), "forbear.budget.available_tokens"
    if not hasattr(budget, "backend"):
        yield tokens, (client, "default", "local"), budget.lowest(now)
        return
    yield tokens, (client, budget.name, "shared"), budget.lowest(now)
    yield tokens, (client, budget.name, "local"), budget.fallback.lowest(now)
    yield "forbear.budget.backend.errors", (client, budget.backend), budget.errors


def readings_of_gate(client: str, gate: RetryGate) -> Iterator[Reading]:
    """Read a gate of a client: whether its origins are well, and the calls that it holds."""
    yield "forbear.held_calls", (client,), gate.held()
    yield "forbear.origin_well", (client,), float(gate.unwell() == 0)


# Values of the closed labels. The reason of a retry and the name of a host stand in
# sending/lines.py: the log has them too.


def method_of(method: str) -> str:
    """Return the method, OTHER unless it is a registered one."""
    return method if method in METHODS else OTHER


def result_of(status: int | None, failure: FailureKind | None, phase: Phase | None) -> str:
    """Return how an attempt ended: the class of its status, or of its failure."""
    if status is not None:
        return "429" if status == 429 else f"{min(max(status // 100, 2), 5)}xx"
    if failure is None:
        return "cancelled"
    if failure in TIMEOUT_KINDS:
        return "timeout"
    return "connect" if is_connecting(failure, phase) else "protocol"


def source_of(delay_source: str) -> str:
    """Return who chose a delay: this side, a header that names a wait, or one about a quota."""
    if "ratelimit" in delay_source.replace("-", ""):
        return "rate_limit_reset"
    # A cooldown is what an origin asked another call for.
    asked = delay_source == "cooldown" or "retry" in delay_source
    return "retry_after" if asked else "computed"
