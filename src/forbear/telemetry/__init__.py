"""Telemetry: what is told of calls, and to whom. Everything that counts or logs is made from the
two tables here.

| event | level | told when |
| --- | --- | --- |
| attempt_failed | DEBUG | an attempt failed, whatever follows |
| retry_scheduled | INFO | it will be sent again |
| succeeded_after_retry | INFO | an answer was accepted that was not the first one |
| gave_up | WARNING | there is no further attempt although something failed, and why |
| gave_up | DEBUG | the first attempt was refused: nothing was sent |
| failover | WARNING | the next attempt goes to another origin |
| resume | INFO | the rest of a body that broke was asked for: `resumed` or `failed` |
| retry_after_ignored | WARNING, once a minute and origin | a failed answer's Retry-After set no delay |
| circuit_transition | WARNING to open, else INFO | a circuit breaker changed its state, told once by the client \
whose call caused it |
| budget_exhausted | WARNING, on the edge, at most once a minute | the budget refused a retry where it had allowed \
the one before |
| shared_budget_lost, shared_budget_back | ERROR, INFO, on the edge | a fleet budget's Redis went or came back |
| nested_retry | WARNING, once per client | a request that was given up is itself a retry of an SDK |
| hook_failed | ERROR, once per hook | a listener, ``retry_if``, ``before_attempt`` or a strategy raised |

Attempts are what went over the wire: the calls that were sent, and the retries. Asking for the rest
of a body counts as a retry for ``body`` and as an attempt of the kind ``resume``; how it ended is
in ``forbear.resumes``.

The logger is ``forbear``, that of fleet budgets ``forbear.redis``. A record has its fields as
``forbear.<field>``: ``event``, ``client``, ``host``, ``method``, ``url`` (the origin, no more),
``request_id`` (the same in all lines of a call), and those of the event in core/events.py.

``on_event`` takes callables that get the events of core/events.py; forbear.telemetry.prometheus and
.otel have such. One may also have

- ``hears_calls = True``: it gets a ``CallEnded`` for every call, those that succeed at once too;
- ``needs_ends = True``: it gets one for every call of which it may have heard, which costs the
  others nothing; and it is left out where the end of a call is not known, in forbear.urllib3's
  ``Retry``;
- ``watch(vitals)``: called with the vitals.Vitals of each transport that it is given to, to be held
  weakly.
"""

from __future__ import annotations

from ..core.verdict import Reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Literal

__all__ = [
    "ATTEMPT_KINDS",
    "METHODS",
    "METRICS",
    "MOST_HOSTS",
    "OTHER",
    "OUTCOMES",
    "RESULTS",
    "RETRY_REASONS",
    "STATES",
    "Metric",
]

OTHER = "_OTHER"  # the value of a label that stands for all values that have no place of their own
MOST_HOSTS = 100  # values of a label that names servers; all further ones are OTHER

# RFC 9110 section 9.3, and PATCH (RFC 5789).
METHODS = ("CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE", OTHER)
OUTCOMES = (
    "success",
    "success_after_retry",
    "failed",
    "failed_after_retry",
    "circuit_open",
    "cancelled",
)
ATTEMPT_KINDS = ("first", "retry", "failover", "resume")
RESULTS = ("2xx", "3xx", "4xx", "429", "5xx", "connect", "timeout", "protocol", "cancelled")
RETRIED_STATUSES = ("408", "425", "429", "500", "502", "503", "504")
RETRY_REASONS = (
    *RETRIED_STATUSES, "status_other", "connect", "connect_timeout", "read_timeout", "write_timeout", "pool_timeout",
    "protocol", "body", "user",
)  # fmt: skip
STATES = ("closed", "open", "half_open")


class Metric:
    """One line of the table.

    Attributes:
        name: Of the OpenTelemetry instrument; ``prometheus_name`` is what Prometheus sees of both
            exporters.
        kind: Whether it only grows, goes up and down, or is spread over buckets.
        labels: In order, with the closed set of values; None where the user or the servers name
            them.
        unit: "s" for seconds, else what is counted, in braces.
        text: What it means.
        buckets: Upper bounds of a histogram, in its unit.
    """

    __slots__ = ("buckets", "kind", "labels", "name", "text", "unit")

    def __init__(
        self,
        name: str,
        kind: Literal["counter", "gauge", "histogram"],
        labels: Mapping[str, Collection[str] | None],
        unit: str,
        text: str,
        buckets: tuple[float, ...] = (),
    ) -> None:
        self.name = name
        self.kind = kind
        self.labels = labels
        self.unit = unit
        self.text = text
        self.buckets = buckets

    @property
    def prometheus_name(self) -> str:
        """With unit and ``_total`` as OpenTelemetry's compatibility rules append them."""
        seconds = "_seconds" if self.unit == "s" else ""
        return self.name.replace(".", "_") + seconds + ("_total" if self.kind == "counter" else "")

    def __repr__(self) -> str:
        return f"<Metric {self.prometheus_name} {self.kind} of {', '.join(self.labels)}>"


WHOSE: dict[str, Collection[str] | None] = {"client": None, "host": None}
REASONS = tuple(reason.value for reason in Reason)

# ``client`` is the transport's name, ``host`` the server's address. Never a label: URL, path,
# message, attempt, key.
METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            "forbear.requests", "counter", {**WHOSE, "method": METHODS, "outcome": OUTCOMES}, "{request}",
            "Calls that ended, one per hop of a redirect.",
        ),
        Metric(
            "forbear.attempts", "counter", {**WHOSE, "kind": ATTEMPT_KINDS, "result": RESULTS}, "{attempt}",
            "Requests sent over the wire, the first ones included.",
        ),
        Metric(
            "forbear.retries", "counter", {**WHOSE, "reason": RETRY_REASONS}, "{retry}",
            "Retries scheduled, by what they were for.",
        ),
        Metric(
            "forbear.retries.refused", "counter", {**WHOSE, "reason": REASONS}, "{retry}",
            "Failed attempts that were not followed by another one, and why.",
        ),
        Metric(
            "forbear.backoff.duration", "histogram",
            {"client": None, "source": ("computed", "retry_after", "rate_limit_reset")}, "s",
            "Wait before a retry, by who chose it.",
            (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 300.0),
        ),
        Metric(
            "forbear.request.duration", "histogram", {**WHOSE, "outcome": OUTCOMES}, "s",
            "From the call to its answer, waits included.",
            (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0),
        ),
        Metric("forbear.waiting_requests", "gauge", {"client": None}, "{request}", "Calls asleep before an attempt."),
        Metric(
            "forbear.budget.available_tokens", "gauge",
            {"client": None, "budget": None, "scope": ("local", "shared")}, "{token}",
            "Tokens that the scope with the fewest has; of a shared budget those borrowed by this process.",
        ),
        Metric(
            "forbear.budget.backend.errors", "counter", {"client": None, "backend": ("redis",)}, "{error}",
            "Round trips to a shared budget's store that failed.",
        ),
        Metric(
            "forbear.circuit.state", "gauge", {**WHOSE, "state": STATES}, "{circuit}",
            "1 for the state that the circuit is in, 0 for the others; only of circuits that have opened once.",
        ),
        Metric(
            "forbear.circuit.transitions", "counter", {**WHOSE, "from_state": STATES, "to_state": STATES},
            "{transition}", "Changes of state of circuits.",
        ),
        Metric(
            "forbear.failovers", "counter", {"client": None, "from_endpoint": None, "to_endpoint": None}, "{failover}",
            "Retries sent to another origin of Origins.",
        ),
        Metric(
            "forbear.resumes", "counter", {**WHOSE, "result": ("resumed", "restarted", "failed")}, "{resume}",
            "Broken downloads asked for again from their first missing byte.",
        ),
    )
}  # fmt: skip
