"""Ends: the event of the end of a call, for listeners that want it. It is not logged.

Loaded with the first listener that has ``wants_calls`` or ``needs_ends``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from ..core.call import NUMBER
from ..core.outcome import FailureKind, Phase, Reason
from .facts import event_of, kind_of

if TYPE_CHECKING:
    from ..core.call import Call


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


def success(
    client: str, method: str, origin: str, status: int, elapsed: float, number: int = 0
) -> CallEnded:
    """Make the event of a call that succeeded at once."""
    outcome = CallOutcome.SUCCESS
    return CallEnded(
        client, method, origin, outcome, 1, status, None, elapsed, "first", None, None, number
    )


def ending(client: str, call: Call, now: float) -> CallEnded:
    """Make the event of any other call, or of the end of resuming its body."""
    sent, last = len(call.history), call.history[-1] if call.history else None
    # An AttemptFailed was emitted unless the attempt was accepted, or retries are off.
    is_judged = last is not None and (call.stop is not None or last.delay is not None)
    kind = None
    if call.is_under_way:  # cancelled before the attempt had an outcome
        kind, last = kind_of(call, sent), None
        sent += 1
    elif last is not None and not (last.failure is not None and is_judged and NUMBER in call.notes):
        kind = kind_of(call, sent - 1)
    outcome = outcome_of(call, sent) if call.rest is None else None
    given = {"origin": call.sent_to, "attempts": sent, "kind": kind, "outcome": outcome}
    made: CallEnded = event_of(CallEnded, client, call, now, {"last": last, **given})
    return made


def outcome_of(call: Call, sent: int) -> CallOutcome:
    """Say how a call ended for its caller, after so many attempts."""
    stop, last = call.stop, call.history[-1] if call.history else None
    if call.is_under_way or (stop is None and (last is None or last.delay is not None)):
        return CallOutcome.CANCELLED  # while it was sent, before, or while it waited
    if last is None:
        assert stop is not None
        is_late = stop.reason in (Reason.DEADLINE, Reason.CONCURRENCY_LIMIT)
        return CallOutcome.FAILED if is_late else CallOutcome.CIRCUIT_OPEN
    if stop is not None or last.failure is not None or (last.status or 0) >= 500:
        return CallOutcome.FAILED if sent == 1 else CallOutcome.FAILED_AFTER_RETRY
    return CallOutcome.SUCCESS if sent == 1 else CallOutcome.SUCCESS_AFTER_RETRY
