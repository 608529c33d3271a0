"""Schedule: the series of waits that a policy can make, and how long a call can take with it.
Floor: decides.

Worked out, not drawn: ``Exponential`` and ``Fixed`` wait longest where the random number is
largest, so that number is put in. Says nothing of how likely a wait is (see simulation/waits.py).
All durations are seconds.
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

# What a schedule of the user's own is asked with; random.random() is always below 1.
PROBES = (0.0, 0.25, 0.5, 0.75, 1.0 - 2.0**-53)
PHASES = 4  # of an attempt, each of which may take attempt_timeout: pool, connect, write, read


def extremes(
    backoff: Backoff, attempt: int, shortest: float, longest: float
) -> tuple[float, float]:
    """The shortest and the longest wait after attempt number ``attempt``, given those before it.

    Exact for ``Exponential`` and ``Fixed``. Any other schedule is asked with the smallest and the
    largest random number and three between, after the shortest, the longest and a middle wait: what
        lies outside of these answers
    is not found.

    Raises:
        ValueError: A schedule of the user's own answers something that is no time to wait.
    """
    if isinstance(backoff, (Exponential, Fixed)):
        return backoff.delay(attempt, shortest, lambda: 0.0), backoff.delay(
            attempt, longest, lambda: 1.0
        )
    answers = [
        backoff.delay(attempt, previous, lambda drawn=drawn: drawn)  # type: ignore[misc]
        for previous in (shortest, (shortest + longest) / 2, longest)
        for drawn in PROBES
    ]
    for answer in answers:
        if not 0 <= answer < inf:  # NaN too
            raise ValueError(
                f"the backoff {shown(backoff)} answers {shown(answer)} for attempt {attempt}"
            )
    return min(answers), max(answers)


def longest_waits(policy: RetryPolicy, most: int | None = None) -> list[float]:
    """The longest wait before each retry that the policy's own schedules can make, without a
    server's hint.

    Args:
        policy: Whose waits.
        most: How many retries to look at; None: all of them.
    """
    count = policy.max_attempts - 1 if most is None else min(most, policy.max_attempts - 1)
    waits: list[float] = []
    for attempt in range(1, count + 1):
        waits.append(longest_wait(policy, attempt, waits[-1] if waits else 0.0))
    return waits


def longest_wait(policy: RetryPolicy, attempt: int, previous: float) -> float:
    schedules = (
        [policy.backoff]
        if policy.throttle_backoff is None
        else [policy.backoff, policy.throttle_backoff]
    )
    return max(extremes(schedule, attempt, previous, previous)[1] for schedule in schedules)


def longest_hint(policy: RetryPolicy) -> float:
    """The longest wait that a server can ask for and get, with the spread on top; 0 where hints are
    ignored.
    """
    if policy.hints == "ignore":
        return 0.0
    asked = policy.max_retry_after
    return asked + policy.hint_spread * max(asked, 1.0)


def worst_case(policy: RetryPolicy, attempt_timeout: float | None) -> float:
    """``RetryPolicy.worst_case`` says what is in it."""
    attempts = policy.max_attempts * longest_attempt(policy, attempt_timeout)
    limit = inf if policy.total_timeout is None else policy.total_timeout
    return min(limit, attempts + sum_of_waits(policy))


def longest_attempt(policy: RetryPolicy, attempt_timeout: float | None) -> float:
    """Seconds that one attempt takes at most: as given, else as the policy says; infinite if
    neither does.
    """
    a_duration("attempt_timeout", attempt_timeout, none="what the policy says")
    if attempt_timeout is not None:
        return attempt_timeout
    return inf if policy.attempt_timeout is None else PHASES * policy.attempt_timeout


def sum_of_waits(policy: RetryPolicy) -> float:
    """All waits at their longest, hints among them."""
    hint, total, drawn = longest_hint(policy), 0.0, 0.0
    saturates = all(
        isinstance(one, (Exponential, Fixed))
        for one in (policy.backoff, policy.throttle_backoff)
        if one
    )
    for attempt in range(1, policy.max_attempts):
        # A schedule goes on from what it drew itself, not from what a server made of it.
        previous, drawn = drawn, longest_wait(policy, attempt, drawn)
        wait = max(hint, drawn)
        if saturates and drawn == previous == longest_wait(policy, policy.max_attempts, drawn):
            return total + (policy.max_attempts - attempt) * wait  # from here on they are all alike
        total += wait
    return total
