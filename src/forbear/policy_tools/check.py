"""Advice: what in a policy is likely to hurt, and which field to change. Floor: decides.

The rule of thumb for a service-level objective (SLO), the time in which a call has to be answered:
all retries together take at most a third of it, so that a call which needed them is still in time.
"""

from __future__ import annotations

from math import inf

from ..core.backoff import Exponential, Fixed
from ..core.checks import a_duration
from ..core.outcome import IDEMPOTENT_METHODS
from .worst_case import longest_attempt, longest_hint, longest_waits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..core.policy import RetryPolicy

__all__ = ["advice"]

SHARE = 3  # of the SLO is for retries: the first attempt and a slow answer need the rest


def advice(policy: RetryPolicy, slo: float | None, attempt_timeout: float | None) -> list[str]:
    """``RetryPolicy.check`` says what it looks for. Each text begins with the name of a field."""
    a_duration("slo", slo, none="no objective", zero=False)
    attempt = longest_attempt(policy, attempt_timeout)
    found = [*about_repeating(policy)]
    if policy.max_attempts > 1:
        found += about_waiting(policy)
        if slo is not None:
            found += about_time(policy, slo, 0.0 if attempt == inf else attempt)
    return found


def about_repeating(policy: RetryPolicy) -> list[str]:
    unsafe = sorted(policy.methods - IDEMPOTENT_METHODS)
    if not unsafe or policy.max_attempts == 1:
        return []
    return [
        f"methods: {' and '.join(unsafe)} may take effect twice: a request that the server executed is sent again when"
        " its answer is lost; leave it out and send an Idempotency-Key"
    ]


def about_waiting(policy: RetryPolicy) -> list[str]:
    found, retries = [], policy.max_attempts - 1
    for name in ("backoff", "throttle_backoff"):
        schedule = getattr(policy, name)
        if schedule is None:
            continue
        times = "1 retry" if retries == 1 else f"{retries} retries"
        if isinstance(schedule, (Exponential, Fixed)) and not max(
            longest_of(policy, name), default=0.0
        ):
            found.append(
                f"{name}: {times} with no wait at all; wait at least Exponential(base=0.1), longer each time"
            )
        elif isinstance(schedule, Fixed) or (
            isinstance(schedule, Exponential) and schedule.jitter in ("none", 0)
        ):
            found.append(
                f"{name}: no jitter: who fails together comes back together; Exponential(…, jitter='full')"
            )
    if policy.hints == "ignore":
        found.append(
            "hints: a server that says when to come back is asked sooner, and says no again; leave hints='obey'"
        )
    elif policy.hint_spread == 0 and policy.max_retry_after > 0:
        found.append(
            "hint_spread: who is told the same second comes back in the same second; 0.1 adds up to 10 %"
        )
    return found


def longest_of(policy: RetryPolicy, name: str) -> list[float]:
    # From the third wait on nothing can begin to be more than 0.
    return longest_waits(policy.replace(backoff=getattr(policy, name), throttle_backoff=None), 2)


def about_time(policy: RetryPolicy, slo: float, attempt: float) -> list[str]:
    """What does not fit: the retries their third, the call the SLO, a hint the third."""
    found = []
    limit = inf if policy.total_timeout is None else policy.total_timeout
    third = slo / SHARE
    waits = longest_waits(policy, MOST_RETRIES)
    spent = min(limit, sum(waits) + len(waits) * attempt)
    if spent > third:
        fitting, so_far = 1, 0.0
        for wait in waits:
            so_far += wait + attempt
            if so_far > third:
                break
            fitting += 1
        retries = (
            "its retry" if policy.max_attempts == 2 else f"its {policy.max_attempts - 1} retries"
        )
        told = f"{retries} can take {spent:.4g} s, more than a third of the SLO ({third:.3g} s)"
        if fitting > 1:
            found.append(
                f"max_attempts: {told}; max_attempts={fitting} would fit, or a smaller base or cap"
            )
        elif sum(waits[:1]) > third:
            found.append(
                f"backoff: {told}; even the first wait can be {waits[0]:.4g} s: take a smaller base or cap"
            )
        else:
            found.append(
                f"attempt_timeout: {told}; even one retry is too long: give up attempts sooner, or do not retry"
            )
    if attempt and min(limit, spent + attempt) > slo:
        found.append(
            f"total_timeout: the call can take {min(limit, spent + attempt):.4g} s, more than the SLO;"
            f" total_timeout={slo:g} ends it in time"
        )
    hint = longest_hint(policy)
    if hint > third and limit > slo:
        found.append(
            f"max_retry_after: a server may ask to be left alone for {policy.max_retry_after:g} s before a retry, and"
            f" the call waits for it; max_retry_after={third:.2g} or total_timeout={slo:g} returns the answer instead"
        )
    return found


MOST_RETRIES = 1_000  # looked at; no objective is met by more
