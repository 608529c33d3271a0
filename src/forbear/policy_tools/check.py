"""Advice: what in a policy is likely to hurt, and which field to change. Floor: decides.

The rule of thumb for a service-level objective (SLO), the time in which a call has to be answered:
all retries together take at most a third of it, so that a call which needed them is still in time.
"""

from __future__ import annotations

from itertools import accumulate, takewhile
from math import inf

from ..core.backoff import Exponential, Fixed
from ..core.checks import a_duration
from ..core.outcome import IDEMPOTENT_METHODS
from .worst_case import longest_attempt, longest_hint, longest_waits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..core.policy import RetryPolicy

__all__ = ["advice"]

SHARE = 3  # a third of the SLO is for retries: the first attempt and a slow answer need the rest
MOST_RETRIES = 1_000  # looked at; no objective is met by more


def advice(policy: RetryPolicy, slo: float | None, attempt_timeout: float | None) -> list[str]:
    """``RetryPolicy.check`` describes the texts."""
    a_duration("slo", slo, none="no objective", zero=False)
    attempt = longest_attempt(policy, attempt_timeout)
    if policy.max_attempts == 1:
        return []
    found = about_repeating(policy) + about_waiting(policy)
    if slo is not None:
        found += about_time(policy, slo, 0.0 if attempt == inf else attempt)
    return found


def about_repeating(policy: RetryPolicy) -> list[str]:
    unsafe = sorted(policy.methods - IDEMPOTENT_METHODS)
    if not unsafe:
        return []
    return [
        f"methods: {' and '.join(unsafe)} may take effect twice: a request that the server executed"
        " is sent again when its answer is lost; leave it out and send an Idempotency-Key"
    ]


def about_waiting(policy: RetryPolicy) -> list[str]:
    found, retries = [], policy.max_attempts - 1
    for name in ("backoff", "throttle_backoff"):
        schedule = getattr(policy, name)
        if not isinstance(schedule, (Exponential, Fixed)):
            continue
        # From the third wait on nothing can begin to be more than 0.
        if not any(longest_waits(policy.replace(backoff=schedule, throttle_backoff=None), 2)):
            times = "1 retry" if retries == 1 else f"{retries} retries"
            found.append(
                f"{name}: {times} with no wait at all;"
                " wait at least Exponential(base=0.1), longer each time"
            )
        elif isinstance(schedule, Fixed) or schedule.jitter in ("none", 0):
            found.append(
                f"{name}: no jitter: who fails together comes back together;"
                " Exponential(…, jitter='full')"
            )
    if policy.hints == "ignore":
        found.append(
            "hints: a server that says when to come back is asked sooner, and says no again;"
            " leave hints='obey'"
        )
    elif policy.hint_spread == 0 and policy.max_retry_after > 0:
        found.append(
            "hint_spread: who is told the same second comes back in the same second;"
            " 0.1 adds up to 10 %"
        )
    return found


def about_time(policy: RetryPolicy, slo: float, attempt: float) -> list[str]:
    """Texts about retries over a third of the SLO, a call over all of it, a hint over a third."""
    found = []
    limit = inf if policy.total_timeout is None else policy.total_timeout
    third = slo / SHARE
    waits = longest_waits(policy, MOST_RETRIES)
    spent = min(limit, sum(waits) + len(waits) * attempt)
    if spent > third:
        elapsed = accumulate(wait + attempt for wait in waits)
        fitting = 1 + sum(1 for _ in takewhile(lambda so_far: so_far <= third, elapsed))
        retries = policy.max_attempts - 1
        fault = (
            f"{'its retry' if retries == 1 else f'its {retries} retries'} can take {spent:.4g} s,"
            f" more than a third of the SLO ({third:.3g} s)"
        )
        if fitting > 1:
            found.append(
                f"max_attempts: {fault}; max_attempts={fitting} would fit, or a smaller base or cap"
            )
        elif waits[0] > third:
            found.append(
                f"backoff: {fault}; even the first wait can be {waits[0]:.4g} s:"
                " take a smaller base or cap"
            )
        else:
            found.append(
                f"attempt_timeout: {fault}; even one retry is too long:"
                " give up attempts sooner, or do not retry"
            )
    whole = min(limit, spent + attempt)
    if attempt and whole > slo:
        found.append(
            f"total_timeout: the call can take {whole:.4g} s, more than the SLO;"
            f" total_timeout={slo:g} ends it in time"
        )
    if longest_hint(policy) > third and limit > slo:
        found.append(
            f"max_retry_after: a server may ask to be left alone for {policy.max_retry_after:g} s"
            " before a retry, and the call waits for it;"
            f" max_retry_after={third:.2g} or total_timeout={slo:g} returns the answer instead"
        )
    return found
