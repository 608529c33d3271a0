"""Decide: is the call retried, after which delay, and if not, why not.

Ten rules, applied in this order; the first one that refuses gives its ``Reason``:

     1. Is it a failure, by the policy, the server or ``retry_if``? If not, it is accepted.
     2. A response: does it forbid a retry?    SERVER_SAID_NO, CALLER_SAID_NO, REPLAYED_RESPONSE
     3. An error: can no retry succeed?        PERMANENT_ERROR, LOCAL_SATURATION, UNKNOWN_ERROR
     4. Unexecuted, idempotent or with a key?  METHOD_NOT_REPLAYABLE, KEY_EXPIRED
     5. Replayable body, no other retry loop?  BODY_CONSUMED, NESTED_CALL
     6. Are attempts left?                     ATTEMPTS_EXHAUSTED
     7. Is the server's delay acceptable?      RETRY_AFTER_TOO_LONG
     8. Does the delay leave time to retry?    DEADLINE, KEY_EXPIRED
     9. Does the circuit breaker allow it?     CIRCUIT_OPEN
    10. Do the gate and the budget allow it?   ORIGIN_UNHEALTHY, BUDGET_EXHAUSTED

Rules 1 to 5 cannot be overridden. 7 to 10 ask ``call.limits``, in the order of limits/limits.py, or
a user's strategy: it may refuse for a reason of its own, and if it fails that is STRATEGY_FAILED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import RetryRefused
from .call import NO_PLAN, PLUGIN_ERROR
from .headers.hints import joined, read_response
from .outcome import Failure, FailureKind, GiveUp, Hint, Phase, Reason, SendAgain

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .call import Call
    from .headers.fields import Line
    from .outcome import Verdict
    from .policy import RetryPolicy
    from .request import Request

# An attempt must have some time left after the wait, else it could only time out: a LAN round trip.
LEAST_ATTEMPT = 0.001  # seconds
NEVER = {
    FailureKind.CERTIFICATE: Reason.PERMANENT_ERROR,
    FailureKind.DECODING: Reason.PERMANENT_ERROR,
    FailureKind.PERMANENT: Reason.PERMANENT_ERROR,
    FailureKind.POOL: Reason.LOCAL_SATURATION,
    FailureKind.UNKNOWN: Reason.UNKNOWN_ERROR,
}


def decide(call: Call, failure: Failure, now: float) -> Verdict:
    """Judge the failure of the attempt that was sent last. None: accept what came."""
    policy, request = call.policy, call.request
    if call.barred is Reason.DEADLINE:  # rule 8, before all others: it has already passed
        return GiveUp(Reason.DEADLINE)
    # 1. Is it a failure?
    if failure.status not in policy.statuses and not is_failure(policy, request, failure):
        return None
    if failure.status is not None:
        # 2. Did the server or the caller say no?
        if failure.hint.should_retry is False:
            return GiveUp(Reason.SERVER_SAID_NO)
        if call.barred is Reason.CALLER_SAID_NO:
            return GiveUp(Reason.CALLER_SAID_NO)
        if failure.replayed and failure.hint.should_retry is None and request.keyed:
            return GiveUp(Reason.REPLAYED_RESPONSE)
    elif failure.kind in NEVER:
        # 3. Can another attempt ever succeed?
        return GiveUp(NEVER[failure.kind])
    # 4. Is a retry safe: nothing was executed, or the method is idempotent, or a key is valid?
    needs_key = relies_on_key(call, failure)
    if needs_key:
        if not request.keyed:
            return GiveUp(Reason.METHOD_NOT_REPLAYABLE)
        if now > call.key_until:
            return GiveUp(Reason.KEY_EXPIRED)
    # 5. Can the body be replayed from its first byte? Is ours the only loop?
    if call.guard is not None and not call.guard.ready:
        return GiveUp(Reason.BODY_CONSUMED)
    # No other loop resumes a body that has begun.
    if call.barred is Reason.NESTED_CALL and not failure.progress:
        return GiveUp(Reason.NESTED_CALL)
    return plan_retry(call, failure, now, needs_key)


def plan_retry(
    call: Call, failure: Failure, now: float, needs_key: bool = False
) -> SendAgain | GiveUp:
    """Apply rules 6 to 10 to a failure after which a retry is safe."""
    limits = call.limits
    # 6. Attempts left? Each counts, to whichever origin, except one over a stale connection.
    if call.attempts >= call.most_attempts and not has_spare(call, failure):
        return GiveUp(Reason.ATTEMPTS_EXHAUSTED)
    if call.stop is not None:  # refused before the first attempt: sent once, without retries
        return call.stop
    latest = call.deadline_at - now - LEAST_ATTEMPT
    try:
        # 7. The delay. A server that asks for more than the policy allows is not waited for.
        delay, source, asked, _ = limits.plan(call, failure, NO_PLAN, now, latest)
        if asked > call.policy.max_retry_after:
            return GiveUp(Reason.RETRY_AFTER_TOO_LONG, asked)
        # 8. Does it leave time for another attempt before the deadline, and for the key?
        if delay > latest:
            return GiveUp(Reason.DEADLINE, delay)
        if needs_key:
            if now + delay > call.key_until:
                return GiveUp(Reason.KEY_EXPIRED, delay)
            latest = min(latest, call.key_until - now)
        # 9 and 10. Last, because these take something: a retry that another rule refuses afterwards
        # would keep its tokens or its place in the queue.
        refusal = limits.take(call, failure, delay, now, now + latest)
        if refusal is not None:
            return refusal
    except RetryRefused as refused:
        return GiveUp(refused.reason, refused.retry_after)
    except Exception as error:  # a schedule, a budget or a strategy of the user's
        call.notes[PLUGIN_ERROR] = error
        return GiveUp(Reason.STRATEGY_FAILED)
    return SendAgain(delay, source)


def relies_on_key(call: Call, *failures: Failure) -> bool:
    """Is a key all that makes a further attempt safe, after those noted and these failures?

    All attempts count: that the last one was refused says nothing of one before it whose response
    was lost, and whose key may have expired since.
    """
    policy = call.policy
    if call.request.method in policy.methods:
        return False
    ended = (*(attempt.failure for attempt in call.history), *failures)
    return not all(is_unexecuted(policy, failure) for failure in ended)


def is_unexecuted(policy: RetryPolicy, failure: Failure | None) -> bool:
    """Is it certain that the server has not executed the attempt? None: it was accepted."""
    if failure is None:
        return False
    # With an error, the status is that of an event in a stream, which had begun with 200.
    is_response = failure.error is None
    return failure.phase is Phase.UNSENT or (
        is_response and failure.status in policy.unexecuted_statuses
    )


def has_spare(call: Call, failure: Failure) -> bool:
    """Has a stale connection used up one of the attempts? A single attempt is never repeated."""
    return call.attempts == call.most_attempts > 1 and (
        failure.stale_connection
        or any(one.failure is not None and one.failure.stale_connection for one in call.history)
    )


def is_failure(policy: RetryPolicy, request: Request, failure: Failure) -> bool:
    """Rule 1: does the policy, the server or ``retry_if`` call this a failure?"""
    status = failure.status
    if status is None:
        return failure.kind in policy.failures or failure.kind in NEVER
    return (
        status in policy.statuses
        or failure.flagged
        or (status == 409 and policy.conflict_with_key and request.keyed)
    )


def answered(
    policy: RetryPolicy,
    status: int,
    lines: Sequence[Line],
    utc_now: Callable[[], float],
    flagged: bool = False,
    body_hint: Hint | None = None,
) -> Failure:
    """Make the failure of a response of 400 or above, or of one that ``retry_if`` flags.

    Args:
        policy: Its ``hints`` and ``hinted_statuses`` are read.
        status: The response's.
        lines: Its header lines in wire order.
        utc_now: Returns Unix seconds, with which dates are compared.
        flagged: ``retry_if`` calls the response a failure.
        body_hint: A vendor's, in its body.
    """
    # Below 400 most headers are for the application, but those of a flagged response are for us:
    # a 202's Retry-After says when to poll again.
    read_as = 503 if flagged and status < 400 else status
    hint, replayed = read_response(read_as, lines, now=utc_now())
    if body_hint is not None:
        hint = joined(hint, body_hint)
    if status >= 400:
        flagged = flagged or bool(hint.should_retry)
        flagged = flagged or (hint.delay is not None and status in policy.hinted_statuses)
    if policy.hints == "ignore" and hint.delay is not None:
        hint = Hint(None, hint.should_retry, None)
    return Failure(
        FailureKind.STATUS, Phase.ANSWERED, status, hint, replayed=replayed, flagged=flagged
    )
