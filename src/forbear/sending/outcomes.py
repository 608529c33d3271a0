"""Outcomes: how a call ended for its caller, as events and metrics have it. Floor: acts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.events import CallOutcome
from ..core.verdict import Reason

if TYPE_CHECKING:
    from ..core.call import Attempt, Call

__all__ = ["outcome_of", "was_told"]


def was_told(call: Call, attempt: Attempt) -> bool:
    """Did an AttemptFailed tell of the attempt? Not if it was accepted, or the call is off."""
    judged = call.stop is not None or attempt.delay is not None
    return attempt.failure is not None and judged and call.number > 0


def outcome_of(call: Call, sent: int) -> CallOutcome:
    """Say how a call ended for its caller, after so many sendings."""
    stop, last = call.stop, call.history[-1] if call.history else None
    if call.is_under_way or (stop is None and (last is None or last.delay is not None)):
        return CallOutcome.CANCELLED  # while it was sent, before, or while it waited
    if last is None:
        assert stop is not None
        return CallOutcome.FAILED if stop.reason is Reason.DEADLINE else CallOutcome.CIRCUIT_OPEN
    if stop is not None or last.failure is not None or (last.status or 0) >= 500:
        return CallOutcome.FAILED if sent == 1 else CallOutcome.FAILED_AFTER_RETRY
    return CallOutcome.SUCCESS if sent == 1 else CallOutcome.SUCCESS_AFTER_RETRY
