"""Telemetry: the metrics, events and levels, in two tables. Floor: acts.

All that counts or logs follows the table here and ``METRICS`` below.

| event | level | told when |
| --- | --- | --- |
| attempt_failed | DEBUG | an attempt failed, whatever follows |
| retry_scheduled | INFO | it will be sent again; or is held first, its origin being unwell |
| released | INFO | a call that was held goes now, or ends since its patience is over; and why |
| hedged | DEBUG | a second attempt was wanted beside the first one, and how that ended |
| succeeded_after_retry | INFO | an answer was accepted that was not the first one |
| gave_up | WARNING, INFO | there is no further attempt although something failed, and why (4) |
| gave_up | DEBUG | the first attempt was refused: nothing was sent |
| failover | WARNING | the next attempt goes to another origin |
| resume | INFO | the rest of a body that broke was asked for: `resumed` or `failed` |
| retry_after_ignored | WARNING | a failed answer's Retry-After set no delay; per origin (1) |
| circuit_transition | WARNING, INFO | a circuit opened; half-opened, closed (2) |
| budget_exhausted | WARNING | the budget refused a retry where it had allowed the one before (1) |
| shared_budget_lost | ERROR | the Redis of a fleet budget went |
| shared_budget_back | INFO | it came back |
| nested_retry | WARNING | a request that was given up is itself a retry of an SDK (3) |
| hook_failed | ERROR | a listener, ``retry_if`` or a strategy raised (3) |

(1) At most once a minute. (2) Once, by the client whose call caused it. (3) Once per client and
header, or hook. (4) By its reason:

| reason | level | because |
| --- | --- | --- |
| server-said-no, replayed-response | INFO | the server wants no other attempt |
| caller-said-no | INFO | ``retry_if`` wants none |
| permanent-error, local-saturation, unknown-error | INFO | another attempt would not help |
| method-not-replayable, body-consumed, response-delivered | INFO | it must not be repeated |
| nested-call | INFO | another loop repeats it |
| attempts-exhausted, retry-after-too-long, deadline, key-expired | WARNING | a limit was reached |
| strategy-failed, hook-failed | WARNING | a function of the user's raised |
| circuit-open, origin-unwell, budget-exhausted | WARNING, DEBUG | the origin is in trouble |

With ``max_attempts=1`` there are no retries to give up: WARNING is then INFO, but for the last row.
That is logged once a minute for each origin and reason, the others of that minute at DEBUG.
The next ``gave_up``, ``succeeded_after_retry`` or ``circuit_transition`` of the origin says how
many those were (``forbear.left_out``). Listeners are told of each.

Attempts are what went over the wire: the calls that were sent, and the retries. Asking for the rest
of a body counts as a retry for ``body`` and as an attempt of the kind ``resume``; how that ended is
in ``forbear.resumes``.

The logger is ``forbear``, that of fleet budgets ``forbear.redis``. A log record has its fields as
``forbear.<field>``: ``event``, ``client``, ``host``, ``method``, ``origin``,
``request_id`` (the same in all lines of a call), and the fields of the event in core/events.py;
the seconds of ``released`` are ``held_for``.

``on_event`` takes callables that get the events of core/events.py, such as the listeners of
forbear.telemetry.prometheus and .otel. A listener may also have

- ``hears_calls = True``: it gets a ``CallEnded`` for every call, also for one that succeeds at
  once; such a call then costs about 2 µs more;
- ``call_succeeded(client, method, origin, status, elapsed)``, beside ``hears_calls``: called for a
  call that succeeds at once in place of the event, which is then not built;
- ``needs_ends = True``: it gets a ``CallEnded`` for every call of which it may have heard, which
  costs the others nothing. Such a listener is left out where the end of a call is not known, in
  forbear.urllib3's ``Retry``;
- ``watch(gauges)``: called with the ``Gauges`` (sending/gauges.py) of each transport that the
  listener is given to, to be held weakly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..core.events import CallOutcome
from ..core.verdict import Reason
from ..sending.lines import RETRIED_STATUSES
from ..shared.circuit import CircuitState
from ..shared.health import Cause

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Literal

__all__ = ["METHODS", "METRICS", "MOST_HOSTS", "OTHER", "RETRY_REASONS", "STATES", "Metric"]

OTHER = "_OTHER"  # the value of a label that stands for all values that have no place of their own
MOST_HOSTS = 100  # values of a label that names servers; all further ones are OTHER

# RFC 9110 section 9.3, and PATCH (RFC 5789).
METHODS = ("CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE", OTHER)
RETRY_REASONS = (
    *RETRIED_STATUSES, "status_other", "connect", "connect_timeout", "reset", "read_timeout",
    "write_timeout", "pool_timeout", "protocol", "body", "user",
)  # fmt: skip
STATES = tuple(state.value for state in CircuitState)
# Upper bounds of buckets, in seconds.
WAITS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 300.0)
DURATIONS = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
)  # fmt: skip


class Metric(NamedTuple):
    """One line of the table."""

    name: str  # of the OpenTelemetry instrument
    kind: Literal["counter", "gauge", "histogram"]
    # In order, with the closed set of values; None where the user or the servers name them.
    labels: Mapping[str, Collection[str] | None]
    unit: str  # "s" for seconds, else what is counted, in braces
    text: str
    buckets: tuple[float, ...] = ()  # upper bounds of a histogram, in its unit

    @property
    def prometheus_name(self) -> str:
        """The name in Prometheus: with unit and ``_total`` by OpenTelemetry's rules."""
        seconds = "_seconds" if self.unit == "s" else ""
        return self.name.replace(".", "_") + seconds + ("_total" if self.kind == "counter" else "")


CLIENT: dict[str, Collection[str] | None] = {"client": None}
WHOSE = {**CLIENT, "host": None}
OUTCOME = {"outcome": tuple(outcome.value for outcome in CallOutcome)}
REASON = {"reason": tuple(reason.value for reason in Reason)}
CAUSE = {"cause": tuple(cause.value for cause in Cause)}
KINDS = ("first", "hedge", "retry", "failover", "resume")
HEDGED = ("won", "failed", "cancelled")
NOT_HEDGED = (
    "hedge-budget", "origin-unwell", "origin-strained", "circuit-open", "cooldown",
    "local-saturation", "budget-exhausted", "attempts-exhausted", "deadline", "cancelled",
)  # fmt: skip
RESULTS = ("2xx", "3xx", "4xx", "429", "5xx", "connect", "timeout", "protocol", "cancelled")

# ``client`` is the transport's name, ``host`` the server's address. Never a label: URL, path,
# message, attempt, key.
TABLE = (
    Metric("forbear.requests", "counter", {**WHOSE, "method": METHODS, **OUTCOME}, "{request}",
        "Calls that ended, one per hop of a redirect."),
    Metric("forbear.attempts", "counter", {**WHOSE, "kind": KINDS, "result": RESULTS}, "{attempt}",
        "Requests sent over the wire, the first ones included."),
    Metric("forbear.retries", "counter", {**WHOSE, "reason": RETRY_REASONS}, "{retry}",
        "Retries scheduled, by what they were for."),
    Metric("forbear.retries.refused", "counter", {**WHOSE, **REASON}, "{retry}",
        "Failed attempts that were not followed by another one, and why."),
    Metric("forbear.hedges", "counter", {**WHOSE, "result": HEDGED}, "{attempt}",
        "Second attempts started beside a first one, by how they ended."),
    Metric("forbear.hedges.refused", "counter", {**WHOSE, "reason": NOT_HEDGED}, "{attempt}",
        "Second attempts that were wanted and not sent, and why."),
    Metric("forbear.backoff.duration", "histogram",
        {**CLIENT, "source": ("computed", "retry_after", "rate_limit_reset")}, "s",
        "Wait before a retry, by who chose it.", WAITS),
    Metric("forbear.request.duration", "histogram", {**WHOSE, **OUTCOME}, "s",
        "From the call to its answer, waits included.", DURATIONS),
    Metric("forbear.waiting_requests", "gauge", CLIENT, "{request}",
        "Calls asleep before an attempt."),
    Metric("forbear.held_calls", "gauge", CLIENT, "{call}",
        "Calls that wait for their origin to be well; clients that share a gate all show its"
        " calls."),
    Metric("forbear.origin_well", "gauge", CLIENT, "{client}",
        "1 if every origin is well by its last answers, 0 if retries to one are held."),
    Metric("forbear.releases", "counter", {**CLIENT, **CAUSE}, "{call}",
        "Held calls that were let go, or whose patience ended, and why."),
    Metric("forbear.budget.available_tokens", "gauge",
        {**CLIENT, "budget": None, "scope": ("local", "shared")}, "{token}",
        "Tokens of the scope with the fewest; of a shared budget those that this process has"
        " borrowed."),
    Metric("forbear.budget.backend.errors", "counter", {**CLIENT, "backend": ("redis",)}, "{error}",
        "Round trips to a shared budget's store that failed."),
    Metric("forbear.circuit.state", "gauge", {**WHOSE, "state": STATES}, "{circuit}",
        "1 for the state that the circuit is in, 0 for the others; only of circuits that have"
        " opened once."),
    Metric("forbear.circuit.transitions", "counter",
        {**WHOSE, "from_state": STATES, "to_state": STATES}, "{transition}",
        "Changes of state of circuits."),
    Metric("forbear.failovers", "counter",
        {**CLIENT, "from_endpoint": None, "to_endpoint": None}, "{failover}",
        "Retries sent to another origin of Origins."),
    Metric("forbear.resumes", "counter",
        {**WHOSE, "result": ("resumed", "restarted", "failed")}, "{resume}",
        "Broken downloads asked for again from their first missing byte."),
)  # fmt: skip
METRICS = {metric.name: metric for metric in TABLE}
