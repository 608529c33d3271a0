"""Holding: what a call asks before each further attempt, and how a held call ends. Floor: acts.

The gate holds a call while its origin is unwell; a cooldown or a breaker may too.
Meanwhile the call sleeps and asks again, and what it has, an answer or an error, is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.outcome import Phase
from ..core.verdict import Reason
from ..errors import RetryRefused

if TYPE_CHECKING:
    from ..core.call import Call
    from .port import Port

__all__ = ["admit", "give_back"]


def admit(call: Call, port: Port) -> float | None:
    """Seconds until the call asks again, 0 if the attempt may be sent, None if it never may.

    Raises:
        The library's CircuitOpenError or DeadlineExceeded: the attempt must not be sent.
    """
    if call.attempts and not call.history:
        return 0.0
    planned, place, now = call.origin, call.place, port.clock.monotonic()
    try:
        delay: float | None = call.limits.admit(call, now)
        if place is not None:
            if delay:  # it is still held
                return delay
            released(call, port, place, now, may_go=delay is not None)
        elif delay:
            check_wait(call, delay, now)
    except RetryRefused as refused:
        if call.place is not None:
            released(call, port, call.place, now, may_go=False)
        raise port.refusal(call, refused) from call.last_error
    # Not told of first attempts: while a circuit is open each of them would be.
    if call.origin != planned and call.history:
        port.tell.failed_over(call, planned, call.listeners)
    return delay


def released(call: Call, port: Port, place: Any, now: float, *, may_go: bool) -> None:
    """Note for how long the call was held, and tell why it is no more."""
    call.place = None
    if may_go:
        call.kept = None
    seconds = max(0.0, now - place.ready_at)
    call.held += seconds
    call.waits(seconds)
    port.tell.released(call, place.cause, seconds, now, call.listeners)


def check_wait(call: Call, delay: float, now: float) -> None:
    """Does a further wait, after the one that was decided, fit too? Note it in the history."""
    if delay > call.deadline_at - now:
        raise RetryRefused(Reason.DEADLINE, send=False, retry_after=delay)
    if call.history:
        request, failure = call.request, call.last_failure
        unsent = failure is not None and failure.phase is Phase.UNSENT
        relies_on_key = not unsent and request.method not in call.policy.methods
        if relies_on_key and now + delay > call.key_until:
            raise RetryRefused(Reason.KEY_EXPIRED, send=False, retry_after=delay)
        call.waits(delay)


def give_back(call: Call, port: Port) -> Any:
    """End a call that may be held no longer with its last answer, which was kept, or its error.

    Returns:
        The response; on asynchronous ports what to await for it.

    Raises:
        The library's own error, or Interrupted: the rest of a body was asked for.
    """
    assert call.unwell is not None
    call.stop = call.unwell
    if call.place is not None:  # its answer is too long to keep, or the transport was closed
        call.history[-1] = call.history[-1]._replace(delay=None, source=None)
    port.tell_above(call, call.stop.reason)
    port.tell.refused(call, port.clock.monotonic(), call.listeners)
    kept, call.kept = call.kept, None
    failure = call.last_failure
    is_answer = failure is not None and failure.status is not None
    if kept is None and is_answer and call.resumption is None:  # its body stalled or broke
        kept = port.bare_response(call, call.status, call.story(port.clock.monotonic()))
    return port.closed(call) if kept is None else port.hand_over(call, kept)
