"""Events: what listeners are told. Floor: decides.

Immutable, and free of secrets like records: method, origin, status, class names, durations.
``name`` is the stable word for logs; ``client`` is the transport's ``name=``.
"""

from __future__ import annotations

from typing import NamedTuple

from .outcome import FailureKind, Phase
from .verdict import Reason

__all__ = [
    "AttemptFailed",
    "CircuitTransition",
    "Event",
    "FailedOver",
    "GaveUp",
    "Resumption",
    "RetryScheduled",
    "SucceededAfterRetry",
]


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
    name: str = "attempt_failed"


class RetryScheduled(NamedTuple):
    """The call will be sent again after ``delay`` seconds."""

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
    name: str = "retry_scheduled"


class FailedOver(NamedTuple):
    """The next attempt goes to another origin of ``Origins``."""

    client: str
    method: str
    origin: str  # that failed
    to_origin: str
    attempt: int  # that failed
    status: int | None
    error: str | None
    name: str = "failover"


class GaveUp(NamedTuple):
    """There will be no further attempt; the caller gets what came last, or a refusal if nothing was sent."""

    client: str
    method: str
    origin: str
    attempts: int  # 0: the first one was refused
    reason: Reason
    status: int | None
    error: str | None
    elapsed: float  # seconds of the call
    refused_delay: float | None
    name: str = "gave_up"


class SucceededAfterRetry(NamedTuple):
    """An answer was accepted that was not the first one."""

    client: str
    method: str
    origin: str
    attempts: int
    status: int
    waited: float  # seconds between attempts
    elapsed: float  # seconds of the call
    name: str = "succeeded_after_retry"


class Resumption(NamedTuple):
    """A body broke off after it was handed over, and the rest of it was asked for."""

    client: str
    method: str
    origin: str
    offset: int  # position of the first octet that was missing
    total: int | None  # length of the whole, as far as the server has told
    result: str  # "resumed"; or "failed": the rest did not come, or what came was something else
    name: str = "resume"


class CircuitTransition(NamedTuple):
    """A circuit breaker passed from one state to another, seen by the client whose call caused it."""

    client: str
    origin: str
    from_state: str  # "closed", "open" or "half_open"
    to_state: str
    failures: int  # in a row, when they opened it; else 0
    failure_rate: float | None  # in the window, when that opened it
    open_for: float | None  # seconds until the first probe, when it opened
    name: str = "circuit_transition"


Event = AttemptFailed | RetryScheduled | FailedOver | GaveUp | SucceededAfterRetry | Resumption | CircuitTransition
