"""Refusals: errors of calls that may not be sent, or not again, and of bodies cut by the deadline.

Each carries the call's story. Loaded with the first of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.outcome import Failure, FailureKind, GiveUp, Phase, Reason
from ..errors import RetryRefused
from ..records import in_seconds
from .calls import ended, note_at_sender, with_story
from .settings import OFF

if TYPE_CHECKING:
    from ..core.call import Call
    from .port import CommonPort


def too_late(port: CommonPort, call: Call) -> Exception:
    """Make the error of a call whose deadline was over before anything was sent."""
    error = deadline_error(port, call, "the deadline was over before anything was sent")
    ended(port.settings, call)
    return error


def expired(port: CommonPort, call: Call) -> Exception:
    """Make the error of an attempt that was not sent, since the deadline came first."""
    error = refusal(port, call, RetryRefused(Reason.DEADLINE, send=False))
    error.__cause__ = call.last_error
    return error


def refusal(port: CommonPort, call: Call, refused: RetryRefused) -> Exception:
    """Make the exception for an attempt that may not be sent."""
    settings, seconds = port.settings, refused.retry_after
    call.stop = GiveUp(refused.reason, seconds)
    note_at_sender(call, refused.reason)
    if call.policy is not OFF:
        settings.events.emit("gave_up", call, settings.clock.monotonic())
    if refused.reason is Reason.DEADLINE:
        message = "the next attempt would begin after the deadline"
        return deadline_error(port, call, message, seconds)
    if settings.clock.monotonic() >= call.deadline_at:
        message = f"the deadline was over, and nothing may be sent: {refused.reason.value}"
        return deadline_error(port, call, message, None, refused.reason)
    again = "" if seconds is None else f", try again in {in_seconds(seconds)}"
    error = port.circuit_open_error(
        f"nothing is sent to {call.request.origin} now: {refused.reason.value}{again}",
        reason=refused.reason,
        retry_after=seconds,
    )
    return with_story(port, call, error)


def deadline_error(
    port: CommonPort,
    call: Call,
    message: str,
    retry_after: float | None = None,
    reason: Reason = Reason.DEADLINE,
) -> Exception:
    """Make the library's DeadlineExceeded, with the story attached."""
    if call.stop is None or call.stop.reason is not reason:
        call.stop = GiveUp(reason)
    error = port.deadline_exceeded(
        f"{call.request.method} {call.request.origin}: {message}",
        reason=reason,
        retry_after=retry_after,
    )
    return with_story(port, call, error)


def body_is_late(port: CommonPort, call: Call, error: str = "DeadlineExceeded") -> Exception:
    """Make the error of a body that was handed over and then cut by the deadline."""
    if call.stop is None:  # else the history already ends with why it is incomplete
        if call.history:
            call.history.pop()
        call.attempts = call.attempts or 1  # the fast path counts none
        failure = Failure(FailureKind.TIMEOUT, Phase.ANSWERED, error=error)
        call.end(failure, GiveUp(Reason.DEADLINE), port.settings.clock.monotonic())
    return deadline_error(port, call, "the deadline ended the body")
