"""Check: the longest waits that a policy can make, and what in it is likely to hurt.

A call waits as its schedule or the server says, and is held for at most ``patience`` beyond these
waits. Computed, not simulated: the shipped schedules wait longest where the random number is
largest, so that number is used. Says nothing of how likely a wait is (see cli/explain.py).

The rule of thumb for a service-level objective (SLO), the time in which a call has to end: all
retries together take at most a third of it, so that a call which needed them is still in time. All
durations are seconds.
"""

from __future__ import annotations

from itertools import accumulate, takewhile
from math import inf

from .backoff import Exponential, Fixed
from .checks import check_duration, shown
from .outcome import IDEMPOTENT_METHODS, TIMEOUT_STATUSES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .backoff import Backoff
    from .policy import RetryPolicy


SHARE = 3  # a third of the SLO is for retries: the first attempt and a slow response need the rest
MOST_SENT = 3  # attempts of a lone call before its server is unhealthy (limits/gate.py)
MOST_RETRIES = 1_000  # that are computed; no objective is met by more


def advice(policy: RetryPolicy, slo: float | None, attempt_timeout: float | None) -> list[str]:
    """``RetryPolicy.check`` describes the texts."""
    check_duration("slo", slo, none="no objective", zero=False)
    attempt = longest_attempt(policy, attempt_timeout)
    if policy.max_attempts == 1:
        return []
    found = about_repeating(policy) + about_waiting(policy) + about_patience(policy)
    if slo is not None:
        found += about_time(policy, slo, 0.0 if attempt == inf else attempt)
    return found


# Servers and gateways respond so after they have executed a request, or have passed it on.
DOUBTFUL = TIMEOUT_STATUSES | {500, 502}


def about_repeating(policy: RetryPolicy) -> list[str]:
    found = []
    if unsafe := sorted(policy.methods - IDEMPOTENT_METHODS):
        found.append(
            f"methods: {' and '.join(unsafe)} may take effect twice: a request that the server"
            " executed is resent when its response is lost; leave it out and send an"
            " Idempotency-Key, or name the unexecuted_statuses"
        )
    if doubtful := sorted(policy.unexecuted_statuses & DOUBTFUL):
        found.append(
            f"unexecuted_statuses: {' and '.join(map(str, doubtful))} may follow a request that the"
            " server executed, which then takes effect twice; 429 is what a rate limiter sends"
        )
    return found


def about_waiting(policy: RetryPolicy) -> list[str]:
    found, retries = [], policy.max_attempts - 1
    for name in ("backoff", "throttle_backoff"):
        schedule = getattr(policy, name)
        if not isinstance(schedule, EXACT):
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
                f"{name}: no jitter: clients that fail together retry together;"
                " Exponential(…, jitter='full')"
            )
    if policy.hints == "ignore":
        found.append(
            "hints: a server that says when to retry is retried sooner, and fails again;"
            " leave hints='obey'"
        )
    elif policy.hint_spread == 0 and policy.max_retry_after > 0:
        found.append(
            "hint_spread: clients that get the same Retry-After retry in the same second;"
            " 0.1 adds up to 10 %"
        )
    return found


def about_patience(policy: RetryPolicy) -> list[str]:
    """Attempts that the gate refuses while the server is unhealthy."""
    if policy.patience != 0 or policy.max_attempts <= MOST_SENT:
        return []
    return [
        "patience: 0 ends a failed call as soon as its server is unhealthy: in an outage only"
        f" about the first {MOST_SENT} of its {policy.max_attempts} attempts are sent; more"
        " patience holds the call and sends probes"
    ]


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
            f" more than a third of the SLO ({third:.3g} of {slo:.3g} s)"
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
            f"max_retry_after: a server may ask for a pause of {policy.max_retry_after:g} s"
            " before a retry, and the call waits for it;"
            f" max_retry_after={third:.2g} or total_timeout={slo:g} returns the response instead"
        )
    return found


EXACT = (Exponential, Fixed)  # longest where the random number is largest
# Random numbers that a schedule of the user's own is tried with; random.random() is below 1.
PROBES = (0.0, 0.25, 0.5, 0.75, 1.0 - 2.0**-53)
PHASES = 4  # of an attempt, each of which may take attempt_timeout: pool, connect, write, read


def extremes(
    backoff: Backoff, attempt: int, shortest: float, longest: float
) -> tuple[float, float]:
    """Return the shortest and the longest wait after attempt number ``attempt``, given the waits
    before it.

    Exact for the schedules that forbear ships. Any other is called with the smallest and the
    largest random number and three between, after the shortest, the longest and a middle wait.

    Raises:
        ValueError: A schedule of the user's own returns something that is no duration.
    """
    if isinstance(backoff, EXACT):
        most = backoff.delay(attempt, longest, lambda: 1.0)
        return backoff.delay(attempt, shortest, lambda: 0.0), most
    delays = [
        backoff.delay(attempt, previous, lambda number=number: number)  # type: ignore[misc]
        for previous in (shortest, (shortest + longest) / 2, longest)
        for number in PROBES
    ]
    for delay in delays:
        if not 0 <= delay < inf:  # NaN too
            fault = f"returns {shown(delay)} for attempt {attempt}"
            raise ValueError(f"the backoff {shown(backoff)} {fault}")
    return min(delays), max(delays)


def longest_waits(policy: RetryPolicy, most: int) -> list[float]:
    """Return the longest waits before ``most`` retries that the policy's own schedules make."""
    waits: list[float] = []
    for attempt in range(1, min(most, policy.max_attempts - 1) + 1):
        waits.append(longest_wait(policy, attempt, waits[-1] if waits else 0.0))
    return waits


def longest_wait(policy: RetryPolicy, attempt: int, previous: float) -> float:
    return max(extremes(one, attempt, previous, previous)[1] for one in schedules(policy))


def schedules(policy: RetryPolicy) -> list[Backoff]:
    throttle = policy.throttle_backoff
    return [policy.backoff] if throttle is None else [policy.backoff, throttle]


def fast_first(policy: RetryPolicy) -> float:
    """Return the longest wait of a fast first retry, 0 where there is none."""
    return max(getattr(one, "fast_first", None) or 0.0 for one in schedules(policy))


def longest_hint(policy: RetryPolicy) -> float:
    """Return the longest wait that a server can ask for, spread included; 0 without hints."""
    if policy.hints == "ignore":
        return 0.0
    asked = policy.max_retry_after
    return asked + policy.hint_spread * max(asked, 1.0)


def longest_attempt(policy: RetryPolicy, attempt_timeout: float | None) -> float:
    """Return the seconds that one attempt takes at most, infinite if no timeout is known."""
    check_duration("attempt_timeout", attempt_timeout, none="what the policy says")
    if attempt_timeout is not None:
        return attempt_timeout
    return inf if policy.attempt_timeout is None else PHASES * policy.attempt_timeout


def worst_case(policy: RetryPolicy, attempt_timeout: float | None) -> float:
    """``RetryPolicy.worst_case`` describes the result."""
    attempts = policy.max_attempts * longest_attempt(policy, attempt_timeout)
    limit = inf if policy.total_timeout is None else policy.total_timeout
    held = policy.patience or 0.0 if policy.max_attempts > 1 else 0.0
    return min(limit, attempts + sum_of_waits(policy) + held)


def sum_of_waits(policy: RetryPolicy) -> float:
    """All waits at their longest, hints among them."""
    hint, total, backoff = longest_hint(policy), 0.0, 0.0
    # One fast first retry takes the place of a wait; none is shorter than the first.
    if policy.max_attempts > 1:
        total = max(0.0, fast_first(policy) - max(hint, longest_wait(policy, 1, 0.0)))
    saturates = all(isinstance(one, EXACT) for one in schedules(policy))
    for attempt in range(1, policy.max_attempts):
        # A schedule continues from its own last wait, not from the one that a server asked for.
        previous, backoff = backoff, longest_wait(policy, attempt, backoff)
        wait = max(hint, backoff)
        if saturates and backoff == previous == longest_wait(policy, policy.max_attempts, backoff):
            return total + (policy.max_attempts - attempt) * wait  # from here on they are all alike
        total += wait
    return total
