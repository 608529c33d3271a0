"""Events: the records that are emitted to listeners.

Events cannot be changed and hold no secrets: method, origin, status, class names, durations.
``name`` is the stable name for logs. ``client`` is the transport's ``name=``. ``request_id`` is the
number of the call in this process, the same in all events of the call. Durations are seconds.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from .outcome import FailureKind, Phase, Reason


class AttemptFailed(NamedTuple):
    """An attempt failed; whether it is retried follows in the next event."""

    client: str
    method: str
    origin: str
    attempt: int
    failure: FailureKind
    phase: Phase
    status: int | None
    error: str | None
    elapsed: float  # seconds of this attempt
    # "first", "hedge" (of the first one), "retry", "failover" (to another origin than the attempt
    # before) or "resume" (requested the rest of a body). None: the response was accepted before its
    # body broke.
    kind: str | None
    request_id: int = 0
    name: str = "attempt_failed"


class RetryScheduled(NamedTuple):
    """The call will be retried after ``delay`` seconds."""

    client: str
    method: str
    origin: str
    attempt: int  # that failed
    max_attempts: int
    failure: FailureKind
    status: int | None
    error: str | None
    delay: float
    delay_source: str
    phase: Phase  # of the failure
    waited: float  # seconds between attempts until now, without this delay
    elapsed: float  # seconds of the call until now
    deadline_left: float | None  # seconds, None without a deadline
    held: bool = False  # its server is unhealthy: the call is held from the end of the delay on
    request_id: int = 0
    name: str = "retry_scheduled"


class Released(NamedTuple):
    """A held call was released."""

    client: str
    method: str
    origin: str
    attempt: int  # that failed before it was held
    # "healthy" (released by good first responses), "good-retry", "probe", or "patience-over": the
    # call ends with what it has, as the next event says.
    cause: str
    held: float  # seconds, from the end of the delay that was decided
    elapsed: float  # seconds of the call until now
    request_id: int = 0
    name: str = "released"


class Hedged(NamedTuple):
    """A hedge was due, because the first attempt was slow (``Hedge``)."""

    client: str
    method: str
    origin: str  # of the hedge
    # "won" (its response is the call's), "failed", "cancelled" (the first attempt won, or the call
    # was cancelled) or "refused" (it was not sent).
    outcome: str
    # Of a refusal: "hedge-budget" (ratio and burst are used up), "origin-unhealthy",
    # "origin-strained" (its response times spread too widely), "circuit-open", "cooldown",
    # "local-saturation" (no connection is free), "budget-exhausted", "concurrency-limit" (no slot
    # is free), "attempts-exhausted", "deadline" or "cancelled". Of several refusals the last.
    reason: str | None
    after: float  # seconds from the first attempt to the hedge, or to the end of the call
    # The attempt that did not decide: "first" or "hedge"; None if there was only one.
    kind: str | None
    status: int | None  # of that attempt; like the next three None if it was cancelled
    error: str | None
    failure: FailureKind | None
    phase: Phase | None
    request_id: int = 0
    name: str = "hedged"


class FailedOver(NamedTuple):
    """The next attempt goes to another origin of ``Origins``."""

    client: str
    method: str
    origin: str  # that failed, or whose circuit opened during the wait for it
    to_origin: str
    attempt: int  # that failed
    status: int | None  # None, like the error, if nothing was sent to ``origin``
    error: str | None
    request_id: int = 0
    name: str = "failover"


class GaveUp(NamedTuple):
    """There will be no further attempt: the caller gets the last outcome, or a refusal."""

    client: str
    method: str
    origin: str
    attempts: int  # 0: the first one was refused
    reason: Reason
    status: int | None
    error: str | None
    elapsed: float  # seconds of the call
    refused_delay: float | None
    waited: float  # seconds between attempts
    request_id: int = 0
    name: str = "gave_up"


class SucceededAfterRetry(NamedTuple):
    """A response was accepted that was not the first one."""

    client: str
    method: str
    origin: str
    attempts: int
    status: int
    waited: float  # seconds between attempts
    elapsed: float  # seconds of the call
    request_id: int = 0
    name: str = "succeeded_after_retry"


class CircuitTransition(NamedTuple):
    """A circuit changed its state; emitted by the client whose call caused that."""

    client: str
    origin: str
    from_state: str  # "closed", "open" or "half_open"
    to_state: str
    failures: int  # in a row, when they opened it; else 0
    failure_rate: float | None  # in the window, when that opened it
    open_for: float | None  # seconds until the first probe, when it opened
    name: str = "circuit_transition"


class BudgetExhausted(NamedTuple):
    """The budget refused a retry after it had allowed one; emitted once a minute."""

    client: str
    origin: str
    budget: str  # its name; "default" if it has none
    scope: str  # "local": of this process; "shared": of a fleet
    tokens: float | None  # that are left; None if the budget does not say
    name: str = "budget_exhausted"


class RetryAfterIgnored(NamedTuple):
    """A failed response's Retry-After set no delay. Emitted once a minute for each origin."""

    client: str
    origin: str
    why: str  # "unparsable", "past" or "over_cap": longer than ``max_retry_after``
    name: str = "retry_after_ignored"


class Resumption(NamedTuple):
    """A body broke after it was handed over, and the rest of it was requested."""

    client: str
    method: str
    origin: str
    offset: int  # position of the first byte that was missing
    total: int | None  # bytes of the whole body, None if the server has not said
    result: str  # "resumed", or "failed": nothing came, or something other than the rest
    request_id: int = 0
    name: str = "resume"


Event = (
    AttemptFailed | RetryScheduled | Released | Hedged | FailedOver | GaveUp | SucceededAfterRetry
    | CircuitTransition | BudgetExhausted | RetryAfterIgnored | Resumption
)  # fmt: skip


class CallOutcome(StrEnum):
    """How a call ended, for its caller. The value is the stable string of metrics."""

    SUCCESS = "success"  # a response that is no failure, and below 500
    SUCCESS_AFTER_RETRY = "success_after_retry"
    FAILED = "failed"
    FAILED_AFTER_RETRY = "failed_after_retry"
    CIRCUIT_OPEN = "circuit_open"  # the first attempt was refused: nothing was sent
    CANCELLED = "cancelled"  # by its task or thread, or because its client was closed


class CallEnded(NamedTuple):
    """A call is over. Emitted to listeners that have ``wants_calls = True``.

    Listeners that have ``needs_ends = True`` get it for calls that did not succeed at once. It is
    emitted a second time, with the same ``request_id`` and without an outcome, when the resuming of
    the call's body is over.
    """

    client: str
    method: str
    origin: str  # of the last attempt
    outcome: CallOutcome | None
    attempts: int
    status: int | None  # of the last response
    error: str | None
    elapsed: float  # seconds of the call
    kind: str | None  # of the last attempt; None if an ``AttemptFailed`` has reported it
    failure: FailureKind | None  # of the last attempt
    phase: Phase | None
    request_id: int = 0
    name: str = "call_ended"
