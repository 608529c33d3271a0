"""Metrics: their table, and a listener that counts.

All code that counts follows ``METRICS``. It has the rows of add-ons too: a registry is given all
metrics before any client is made, and would load every add-on to collect them. What a row counts is
in its add-on: events, and ``readings`` for gauges.
"""

from __future__ import annotations

from itertools import chain, starmap
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

from ..core.checks import check_bool
from ..core.outcome import TIMEOUT_KINDS, Phase, Reason
from ..core.outcome import FailureKind as K
from ..limits import Locked
from ..limits.health import Cause
from .ends import CallOutcome, success
from .facts import host_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from typing import Literal

    from ..events import AttemptFailed, CallEnded, Event, GaveUp, Hedged, RetryScheduled
    from ..limits.gate import RetryGate
    from .event_log import EventLog

    Series = Callable[[float], object]
    Count = tuple[Series, str]  # what counts, and the field of the event that it adds; "": 1

__all__ = ["METHODS", "METRICS", "MOST_HOSTS", "OTHER", "RETRY_REASONS", "STATES", "Metric"]

Reading = tuple[str, tuple[str, ...], float]  # name of the metric, values of its labels, value
OTHER = "_OTHER"  # the value of a label for all values that have none of their own
MOST_HOSTS = 100  # values of a label that names servers; all further ones are OTHER
MOST_SUCCESSES = 4096  # kinds of calls whose series are cached; then the cache is cleared
# The fields of events with the origin for a label that names a server.
HOSTS = {"host": "origin", "from_endpoint": "origin", "to_endpoint": "to_origin"}

# RFC 9110 section 9.3, and PATCH (RFC 5789).
METHODS = ("CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE", OTHER)
RETRIED_STATUSES = ("408", "425", "429", "500", "502", "503", "504")
# Why a retry was scheduled, by its failure; after any other the response was not HTTP.
REASONS = {
    **dict.fromkeys((K.DNS, K.REFUSED, K.TLS, K.PROXY), "connect"),
    K.RESET: "reset",
    K.CONNECT_TIMEOUT: "connect_timeout",
    K.READ_TIMEOUT: "read_timeout",
    K.WRITE_TIMEOUT: "write_timeout",
    K.POOL: "pool_timeout",
}
OTHER_REASONS = ("status_other", "protocol", "body", "user")
RETRY_REASONS = (*RETRIED_STATUSES, *dict.fromkeys(REASONS.values()), *OTHER_REASONS)
STATES = "closed", "open", "half_open"


def retry_reason(event: RetryScheduled) -> str:
    """Return why a retry was scheduled, as one of ``RETRY_REASONS``."""
    if event.failure is K.STATUS:
        if event.status is not None and event.status < 400:
            return "user"  # only ``retry_if`` makes such a response a failure
        return str(event.status) if str(event.status) in RETRIED_STATUSES else "status_other"
    if event.phase is Phase.ANSWERED:
        return "body"  # the head had arrived
    if event.failure is K.TIMEOUT:
        return "connect_timeout" if event.phase is Phase.UNSENT else "read_timeout"
    return REASONS.get(event.failure, "protocol")


def source_of(event: RetryScheduled) -> str:
    """Return the source of a delay: computed, a header that names a wait, or one of a quota."""
    source = event.delay_source
    if "ratelimit" in source.replace("-", ""):
        return "rate_limit_reset"
    # A cooldown is the Retry-After of another call's response.
    return "retry_after" if source == "cooldown" or "retry" in source else "computed"


def result_of(event: AttemptFailed | Hedged | CallEnded) -> str:
    """Return how an attempt ended: the class of its status, or of its failure."""
    if event.status is not None:
        return "429" if event.status == 429 else f"{min(max(event.status // 100, 2), 5)}xx"
    if event.failure is None:
        return "cancelled"
    if event.failure in TIMEOUT_KINDS:
        return "timeout"
    is_unsent = event.phase is Phase.UNSENT and event.failure is not K.UNPROCESSED
    return "connect" if is_unsent else "protocol"


def refused_reason(event: GaveUp) -> str | None:
    return str(event.reason) if event.status or event.error else None  # unless nothing was sent


def hedge_result(event: Hedged) -> str | None:
    return str(event.outcome) if event.reason is None else None


# Upper bounds of buckets, in seconds.
WAITS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 300.0)
DURATIONS = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
)  # fmt: skip


class Metric(NamedTuple):
    """One line of the table."""

    name: str  # of the OpenTelemetry instrument
    kind: Literal["counter", "gauge", "histogram"]
    # In order, with the closed set of values; None where the user or the servers choose them.
    labels: Mapping[str, Collection[str] | None]
    unit: str  # "s" for seconds, else what is counted, in braces
    text: str
    # Events that add to it. One that has no value for one of the labels is not counted.
    counts: tuple[str, ...] = ()
    reads: Mapping[str, Callable[[Any], str | None]] = {}  # labels that are no field of an event
    buckets: tuple[float, ...] = ()  # upper bounds of a histogram, in its unit
    field: str = ""  # of an event, with what a histogram notes; a counter adds 1
    # Not counted from events, but read from transports; how the readings of several are combined.
    # If they share a budget, it has the same value for all; a shared gate is read once a client.
    combine: Callable[[list[float]], float] | None = None

    @property
    def prometheus_name(self) -> str:
        """The name in Prometheus: with unit and ``_total`` by OpenTelemetry's rules."""
        seconds = "_seconds" if self.unit == "s" else ""
        return self.name.replace(".", "_") + seconds + ("_total" if self.kind == "counter" else "")


CLIENT: dict[str, Collection[str] | None] = {"client": None}
WHOSE = {**CLIENT, "host": None}
OUTCOME = {"outcome": tuple(outcome.value for outcome in CallOutcome)}
# No call gives up because of a status that is not retried: only records and the log have that.
REASON = {"reason": tuple(one.value for one in Reason if one is not Reason.STATUS_NOT_RETRIED)}
CAUSE = {"cause": tuple(cause.value for cause in Cause)}
KINDS = ("first", "hedge", "retry", "failover", "resume")
HEDGED = ("won", "failed", "cancelled")
NOT_HEDGED = ("hedge-budget", "origin-strained", "delayed", *REASON["reason"])
RESULTS = ("2xx", "3xx", "4xx", "429", "5xx", "connect", "timeout", "protocol", "cancelled")

# ``client`` is the transport's name, ``host`` the server's address. Never a label: URL, path,
# message, attempt, key.
ROWS = (
    Metric("forbear.requests", "counter", {**WHOSE, "method": METHODS, **OUTCOME}, "{request}",
        "Calls that ended, one per hop of a redirect.", ("call_ended",)),
    Metric("forbear.attempts", "counter", {**WHOSE, "kind": KINDS, "result": RESULTS}, "{attempt}",
        "Requests sent over the wire, the first ones included.",
        ("attempt_failed", "hedged", "call_ended"), {"result": result_of}),
    Metric("forbear.retries", "counter", {**WHOSE, "reason": RETRY_REASONS}, "{retry}",
        "Retries scheduled, by what they were for.", ("retry_scheduled",),
        {"reason": retry_reason}),
    Metric("forbear.retries.refused", "counter", {**WHOSE, **REASON}, "{retry}",
        "Failed attempts that were not followed by another one, and why.", ("gave_up",),
        {"reason": refused_reason}),
    Metric("forbear.hedges", "counter", {**WHOSE, "result": HEDGED}, "{attempt}",
        "Hedged requests sent, by how they ended.", ("hedged",), {"result": hedge_result}),
    Metric("forbear.hedges.refused", "counter", {**WHOSE, "reason": NOT_HEDGED}, "{attempt}",
        "Hedged requests that were wanted and not sent, and why.", ("hedged",)),
    Metric("forbear.backoff.duration", "histogram",
        {**CLIENT, "source": ("computed", "retry_after", "rate_limit_reset")}, "s",
        "Wait before a retry, by the source of the delay.", ("retry_scheduled",),
        {"source": source_of}, WAITS, "delay"),
    Metric("forbear.request.duration", "histogram", {**WHOSE, **OUTCOME}, "s",
        "From the call to its response, delays included.", ("call_ended",), {}, DURATIONS,
        "elapsed"),
    Metric("forbear.waiting_requests", "gauge", CLIENT, "{request}",
        "Calls waiting before an attempt.", combine=sum),
    Metric("forbear.held_calls", "gauge", CLIENT, "{call}",
        "Calls held until their server is healthy; clients that share a gate all show its"
        " calls.", combine=sum),
    Metric("forbear.origin_healthy", "gauge", CLIENT, "{client}",
        "1 if every server is healthy by its last responses, 0 if retries to one are held.",
        combine=min),
    Metric("forbear.concurrency.limit", "gauge", CLIENT, "{attempt}",
        "Attempts that may be in flight in the scope that has the fewest slots.", combine=min),
    Metric("forbear.concurrency.in_flight", "gauge", CLIENT, "{attempt}",
        "Attempts that have a slot of a ConcurrencyLimit.", combine=max),
    Metric("forbear.concurrency.waiting", "gauge", CLIENT, "{attempt}",
        "Attempts that wait for a slot.", combine=max),
    Metric("forbear.paced_calls", "gauge", CLIENT, "{call}",
        "Calls that Pacing spreads over what is left of a quota.", combine=max),
    Metric("forbear.releases", "counter", {**CLIENT, **CAUSE}, "{call}",
        "Held calls that were released, or whose patience ended, and why.", ("released",)),
    Metric("forbear.budget.available_tokens", "gauge",
        {**CLIENT, "budget": None, "scope": ("local", "shared")}, "{token}",
        "Tokens of the scope with the fewest; of a shared budget those that this process has"
        " borrowed.", combine=min),
    Metric("forbear.budget.backend.errors", "counter", {**CLIENT, "backend": ("redis",)}, "{error}",
        "Round trips to a shared budget's store that failed.", combine=max),
    Metric("forbear.circuit.state", "gauge", {**WHOSE, "state": STATES}, "{circuit}",
        "1 for the state that the circuit is in, 0 for the others; only of circuits that have"
        " opened once.", combine=max),
    Metric("forbear.circuit.transitions", "counter",
        {**WHOSE, "from_state": STATES, "to_state": STATES}, "{transition}",
        "Changes of state of circuits.", ("circuit_transition",)),
    Metric("forbear.failovers", "counter",
        {**CLIENT, "from_endpoint": None, "to_endpoint": None}, "{failover}",
        "Retries sent to another origin of Origins.", ("failover",)),
    Metric("forbear.resumes", "counter",
        {**WHOSE, "result": ("resumed", "restarted", "failed")}, "{resume}",
        "Broken downloads requested again from their first missing byte.", ("resume",)),
)  # fmt: skip
METRICS = {metric.name: metric for metric in ROWS}
READ_LATE = {metric.name: metric.combine for metric in ROWS if metric.combine is not None}


class Hosts(Locked):
    """The labels of servers by their origins, OTHER once there are too many."""

    def __init__(self) -> None:
        super().__init__()
        self._labels: dict[str, str] = {}

    def label(self, origin: str) -> str:
        host = self._labels.get(origin)
        if host is None:
            with self._lock:
                host, named = host_of(origin), set(self._labels.values())
                if host not in named and len(named) >= MOST_HOSTS:
                    return OTHER
                self._labels[origin] = host
        return host


class Counting:
    """A listener that counts. Thread-safe, for any number of transports."""

    wants_calls = True  # calls that succeed at once are counted too

    def __init__(self, *, metrics_host: bool = True) -> None:
        check_bool("metrics_host", metrics_host)
        self._has_host = metrics_host
        self._hosts = Hosts()
        self._watched: dict[ref[EventLog], None] = {}  # a WeakSet needs a lock
        self._circuits: list[tuple[str, ...]] = []  # labels of those that were open once
        # By client, method, origin and status of a call that succeeds at once.
        self._successes: dict[tuple[str, str, str, int], list[Count]] = {}
        # The labels of each metric, in the order in which the values are given.
        self.labels = {
            name: tuple(label for label in metric.labels if metrics_host or label != "host")
            for name, metric in METRICS.items()
        }

    def series_of(self, name: str, values: tuple[str, ...]) -> Series:
        """Return what adds to a counter, or notes a value in a histogram, with these labels."""
        raise NotImplementedError

    def watch(self, gauges: EventLog) -> None:
        """Read the gauges of one more transport, for as long as it exists."""
        self._watched[ref(gauges, lambda gone: self._watched.pop(gone, None))] = None

    # Events.

    def call_succeeded(
        self, client: str, method: str, origin: str, status: int, elapsed: float
    ) -> None:
        """Count a call that succeeded at once."""
        try:
            counts = self._successes[client, method, origin, status]
        except KeyError:
            event = success(client, method, origin, status, elapsed)
            if len(self._successes) >= MOST_SUCCESSES:
                self._successes = {}
            counts = self._successes[client, method, origin, status] = self._counts(event)
        for add, field in counts:
            add(elapsed if field else 1)

    def __call__(self, event: Event | CallEnded) -> None:
        for add, field in self._counts(event):
            add(getattr(event, field) if field else 1)

    def _counts(self, event: Event | CallEnded) -> list[Count]:
        """Return the counters of an event."""
        found = []
        for metric in METRICS.values():
            if event.name in metric.counts:
                values = [self._label(event, label, metric) for label in self.labels[metric.name]]
                known = tuple(value for value in values if value is not None)
                if len(known) == len(values):
                    found.append((self.series_of(metric.name, known), metric.field))
        return found

    def _label(self, event: object, label: str, metric: Metric) -> str | None:
        if label in HOSTS:
            return self._hosts.label(getattr(event, HOSTS[label]))
        read = metric.reads.get(label)
        value = getattr(event, label) if read is None else read(event)
        if label == "method" and value not in METHODS:
            return OTHER
        return None if value is None else str(value)

    # Gauges, read when metrics are collected.

    def readings(self) -> Iterator[Reading]:
        """Read all gauges now, and the counter that no event carries."""
        watched = [gauges for one in list(self._watched) if (gauges := one()) is not None]
        found: dict[tuple[str, tuple[str, ...]], list[float]] = {}
        gates = {(gauges.client, gauges.limits.gate) for gauges in watched}
        readings = [*map(readings_of, watched), *starmap(readings_of_gate, gates)]
        for name, values, value in chain.from_iterable(readings):
            found.setdefault((name, values), []).append(value)
        for (name, values), numbers in found.items():
            yield name, values, READ_LATE[name](numbers)
        states = dict.fromkeys(self._circuits, "closed")
        for client, origin, state in chain.from_iterable(map(circuits_of, watched)):
            whose = client, *([self._hosts.label(origin)] if self._has_host else [])
            # Several may share a label: open comes before half_open, and that before closed.
            states[whose] = max(state, states.get(whose, state))
        self._circuits = [*states]
        for whose, found_state in states.items():
            for state in STATES:
                yield "forbear.circuit.state", (*whose, state), float(state == found_state)


def readings_of(gauges: EventLog) -> Iterator[Reading]:
    """Read one transport: its waiting calls, and its limits."""
    client, now = gauges.client, gauges.clock.monotonic()
    yield "forbear.waiting_requests", (client,), gauges.waiting()
    for limit in gauges.limits.listed:
        read = getattr(limit, "readings", None)  # an add-on's gauges, if it has any
        for name, labels, value in () if read is None else read(now):
            yield name, (client, *labels), value


def readings_of_gate(client: str, gate: RetryGate | None) -> Iterator[Reading]:
    """Read a gate of a client: whether its origins are healthy, and how many calls it holds."""
    if gate is not None:
        yield "forbear.held_calls", (client,), gate.held()
        yield "forbear.origin_healthy", (client,), float(gate.unhealthy() == 0)


def circuits_of(gauges: EventLog) -> Iterator[tuple[str, str, str]]:
    """Read the circuits of one transport that are not closed: client, origin, state."""
    for limit in gauges.limits.listed:
        states = getattr(limit, "circuit_states", None)
        if states is not None:
            for origin, state in states(gauges.clock.monotonic()).items():
                yield gauges.client, origin, state
