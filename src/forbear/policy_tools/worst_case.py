"""Worst case: the longest waits that a policy can make, and the longest call. Floor: decides.

Worked out, not drawn: ``Exponential`` and ``Fixed`` wait longest where the random number is
largest, so that number is put in. Says nothing of how likely a wait is (see
tools/simulation/waits.py). All durations are seconds.
"""

from __future__ import annotations

from math import inf

from ..core.backoff import Exponential, Fixed
from ..core.checks import a_duration, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..core.backoff import Backoff
    from ..core.policy import RetryPolicy

__all__ = ["PHASES", "extremes", "longest_attempt", "longest_hint", "longest_waits", "worst_case"]

# The numbers that a schedule of the user's own is asked with; random.random() is always below 1.
PROBES = (0.0, 0.25, 0.5, 0.75, 1.0 - 2.0**-53)
PHASES = 4  # of an attempt, each of which may take attempt_timeout: pool, connect, write, read


def extremes(
    backoff: Backoff, attempt: int, shortest: float, longest: float
) -> tuple[float, float]:
    """Return the shortest and the longest wait after attempt number ``attempt``, given the waits
    before it.

    Exact for ``Exponential`` and ``Fixed``. Any other schedule is asked with the smallest and the
    largest random number and three between, after the shortest, the longest and a middle wait.

    Raises:
        ValueError: A schedule of the user's own answers something that is no time to wait.
    """
    if isinstance(backoff, (Exponential, Fixed)):
        most = backoff.delay(attempt, longest, lambda: 1.0)
        return backoff.delay(attempt, shortest, lambda: 0.0), most
    answers = [
        backoff.delay(attempt, previous, lambda drawn=drawn: drawn)  # type: ignore[misc]
        for previous in (shortest, (shortest + longest) / 2, longest)
        for drawn in PROBES
    ]
    for answer in answers:
        if not 0 <= answer < inf:  # NaN too
            given = f"answers {shown(answer)} for attempt {attempt}"
            raise ValueError(f"the backoff {shown(backoff)} {given}")
    return min(answers), max(answers)


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
    """Return the seconds that one attempt takes at most, infinite if nobody says."""
    a_duration("attempt_timeout", attempt_timeout, none="what the policy says")
    if attempt_timeout is not None:
        return attempt_timeout
    return inf if policy.attempt_timeout is None else PHASES * policy.attempt_timeout


def worst_case(policy: RetryPolicy, attempt_timeout: float | None) -> float:
    """``RetryPolicy.worst_case`` describes the result."""
    attempts = policy.max_attempts * longest_attempt(policy, attempt_timeout)
    limit = inf if policy.total_timeout is None else policy.total_timeout
    held = policy.patience if policy.max_attempts > 1 else 0.0
    return min(limit, attempts + sum_of_waits(policy) + held)


def sum_of_waits(policy: RetryPolicy) -> float:
    """All waits at their longest, hints among them."""
    hint, total, drawn = longest_hint(policy), 0.0, 0.0
    # One fast first retry takes the place of a wait; none is shorter than the first.
    if policy.max_attempts > 1:
        total = max(0.0, fast_first(policy) - max(hint, longest_wait(policy, 1, 0.0)))
    saturates = all(isinstance(one, (Exponential, Fixed)) for one in schedules(policy))
    for attempt in range(1, policy.max_attempts):
        # A schedule goes on from its own last answer, not from the wait that a server asked for.
        previous, drawn = drawn, longest_wait(policy, attempt, drawn)
        wait = max(hint, drawn)
        if saturates and drawn == previous == longest_wait(policy, policy.max_attempts, drawn):
            return total + (policy.max_attempts - attempt) * wait  # from here on they are all alike
        total += wait
    return total
