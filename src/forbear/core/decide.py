"""Decide: may the call be sent again, when, and if not, why not. Floor: decides.

The ten rules of DESIGN section 4 in their order. Rules 1 to 5 cannot be overridden; the numbers of
6 to 10 come from ``call.limits`` (shared/limits.py), which may be a user's strategy. Each
``Reason`` is given here and nowhere else, but for what a strategy raises itself. Sources: rules
S0-S11 of tests/corpus/retry_safety.json.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import RetryRefused
from .headers.hints import read_answer
from .headers.vendors import joined
from .outcome import Failure, FailureKind, Hint, Phase
from .verdict import RENEW, GiveUp, Reason, Renewal, Retry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .call import Call
    from .policy import RetryPolicy
    from .request import Request
    from .verdict import Verdict

__all__ = ["PLAIN", "answered", "decide", "is_failure", "plan_retry"]

# An attempt must have some time left after the wait, else it could only time out: a LAN round trip.
LEAST_ATTEMPT = 0.001  # seconds
NEVER = {
    FailureKind.CERTIFICATE: Reason.PERMANENT_ERROR,
    FailureKind.DECODING: Reason.PERMANENT_ERROR,
    FailureKind.PERMANENT: Reason.PERMANENT_ERROR,
    FailureKind.POOL: Reason.LOCAL_SATURATION,
    FailureKind.UNKNOWN: Reason.UNKNOWN_ERROR,
}


class Plain(dict[int, Failure]):
    """Failures of answers that say nothing but their status, made once."""

    def __missing__(self, status: int) -> Failure:
        failure = self[status] = Failure(FailureKind.STATUS, Phase.ANSWERED, status)
        return failure


PLAIN = Plain()


def decide(call: Call, failure: Failure, now: float) -> Verdict:
    """Judge the failure of the attempt that was sent last. None: accept what came."""
    policy, request = call.policy, call.request
    if call.was_cut:  # 8, as a fact: the deadline has ended the attempt
        return GiveUp(Reason.DEADLINE)
    # 1. Is it a failure?
    if failure.status not in policy.statuses and not is_failure(policy, request, failure):
        return None
    if failure.status is not None:
        # 2. Did the server or the caller say no?
        if failure.hint.should_retry is False:
            return GiveUp(Reason.SERVER_SAID_NO)
        if call.opinion is False:
            return GiveUp(Reason.CALLER_SAID_NO)
        if failure.replayed and failure.hint.should_retry is None and request.keyed:
            return GiveUp(Reason.REPLAYED_RESPONSE)
    elif failure.kind in NEVER:
        # 3. Can another attempt ever succeed?
        return GiveUp(NEVER[failure.kind])
    # 4. May it be repeated: nothing was sent, or the method is idempotent, or a key is valid?
    relies_on_key = failure.phase is not Phase.UNSENT and request.method not in policy.methods
    if relies_on_key:
        if not request.keyed:
            return GiveUp(Reason.METHOD_NOT_REPLAYABLE)
        if now > call.key_until:
            return GiveUp(Reason.KEY_EXPIRED)
    # 5. Can the body be produced again from its first byte? Is ours the only loop?
    if call.guard is not None and not call.guard.ready:
        return GiveUp(Reason.BODY_CONSUMED)
    if call.nested and not failure.progress:  # nobody above repeats what came of a body
        return GiveUp(Reason.NESTED_CALL)
    return plan_retry(call, failure, now, relies_on_key)


def plan_retry(
    call: Call, failure: Failure, now: float, relies_on_key: bool = False, may_renew: bool = True
) -> Retry | GiveUp | Renewal:
    """Rules 6 to 10, for a failure that may be repeated."""
    limits = call.limits
    # 6. Attempts left? Every sending counts, to whichever origin.
    if call.attempts >= call.most_attempts:
        return GiveUp(Reason.ATTEMPTS_EXHAUSTED)
    if call.stop is not None:  # refused before the first attempt: sent once, without retries
        return call.stop
    latest = call.deadline_at - now - LEAST_ATTEMPT
    try:
        # 7. The delay. A server that asks for more than the policy allows is not waited for.
        plan = call.planned or limits.plan(call, failure, now, latest)
        if plan is None:  # a strategy that has borrowed renews before it plans
            return RENEW
        delay, source, asked = plan
        if asked > call.policy.max_retry_after:
            return GiveUp(Reason.RETRY_AFTER_TOO_LONG, asked)
        # 8. Does it leave time for another attempt before the deadline, and for the key?
        if delay > latest:
            return GiveUp(Reason.DEADLINE, delay)
        if relies_on_key and now + delay > call.key_until:
            return GiveUp(Reason.KEY_EXPIRED, delay)
        # 9. Does the breaker allow the origin?
        if limits.follows and (refused_for := limits.refused_for(call, now)) > delay:
            return GiveUp(Reason.CIRCUIT_OPEN, refused_for)
        # 10. Last, because only these take something: the gate and the budget.
        if limits.borrows and may_renew:
            planned, call.planned = call.planned, None
            if planned is None and limits.is_dry(call, now):
                call.planned = delay, source, asked
                return RENEW
        if limits.gate is not None and not limits.gate.is_well(call.origin):
            call.unwell = GiveUp(Reason.ORIGIN_UNWELL, delay)
            if relies_on_key:
                latest = min(latest, call.key_until - now)
            if not limits.holds(call, failure, delay, now, now + latest):
                return call.unwell
        if limits.budget is not None and not limits.spend(call, failure, now):
            return GiveUp(Reason.BUDGET_EXHAUSTED, delay)
    except RetryRefused as refused:
        return GiveUp(refused.reason, refused.retry_after)
    except Exception as error:  # a schedule, a budget or a strategy of the user's
        call.plugin_error = error
        return GiveUp(Reason.STRATEGY_FAILED)
    return Retry(delay, source)


def is_failure(policy: RetryPolicy, request: Request, failure: Failure) -> bool:
    """Rule 1: does the policy, the server or ``retry_if`` call this a failure? (S4, S5)"""
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
    lines: Sequence[tuple[str, str]] | Sequence[tuple[bytes, bytes]],
    utc_now: Callable[[], float],
    flagged: bool = False,
    word: Hint | None = None,
) -> Failure:
    """Make the failure of an answer of 400 or above, or of one that ``retry_if`` flags.

    One that has no lines and is not flagged has ``PLAIN[status]``.

    Args:
        policy: Its ``hints`` and ``hinted_statuses`` are looked at.
        status: The answer's.
        lines: Its header lines in wire order.
        utc_now: Answers Unix seconds, with which dates are compared.
        flagged: ``retry_if`` calls the answer a failure.
        word: Of a vendor, in its body.
    """
    # Below 400 most headers are for the application, but a failure's are for us: a 202's say when
    # to ask again.
    read_as = 503 if flagged and status < 400 else status
    hint, replayed = read_answer(read_as, lines, now=utc_now())
    if word is not None:
        hint = joined(hint, word)
    if status >= 400:
        flagged = flagged or bool(hint.should_retry)
        flagged = flagged or (hint.delay is not None and status in policy.hinted_statuses)
    if policy.hints == "ignore" and hint.delay is not None:
        hint = Hint(None, hint.should_retry, None)
    return Failure(
        FailureKind.STATUS, Phase.ANSWERED, status, hint, replayed=replayed, flagged=flagged
    )
