"""Waits: how long the retries of one call wait, on average and nearly always. Floor: acts.

Shortest and longest waits are exact (policy_tools/worst_case.py). Means and percentiles are those
of many calls that ask the schedule itself. Each of these calls draws from its own slice of every
random number's range, in another order for each retry ("Latin hypercube": McKay, Beckman, Conover,
Technometrics 21, 1979). So means are exact where a wait is uniform, and the 95th percentile is
within 1 %. All durations are seconds.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, NamedTuple

from ...policy_tools.worst_case import extremes

if TYPE_CHECKING:
    from ...core.backoff import Backoff

__all__ = ["CALLS", "Retry", "outlook"]

CALLS = 50_000
SEED = 0


class Retry(NamedTuple):
    """The waits of a call before one of its retries.

    Attributes:
        number: From 1.
        shortest: The wait before this retry, at least.
        longest: The same, at most.
        mean: The same, on average.
        mean_so_far: The mean of all waits up to this one.
        p95_so_far: The 95th percentile of all waits up to this one.
        worst_so_far: All waits up to this one, at most.
    """

    number: int
    shortest: float
    longest: float
    mean: float
    mean_so_far: float
    p95_so_far: float
    worst_so_far: float


def outlook(backoff: Backoff, retries: int) -> list[Retry]:
    """Return what each of so many retries waits, if no server names a time.

    Raises:
        ValueError: A schedule of the user's own answers something that is no time to wait.
    """
    order = Random(SEED)
    middles = [(slice_ + 0.5) / CALLS for slice_ in range(CALLS)]
    waits, sums = [0.0] * CALLS, [0.0] * CALLS
    shortest = longest = worst = 0.0
    found: list[Retry] = []
    for number in range(1, retries + 1):
        shortest, longest = extremes(backoff, number, shortest, longest)
        worst += longest
        order.shuffle(middles)
        waits = [
            backoff.delay(number, previous, lambda drawn=drawn: drawn)  # type: ignore[misc]
            for previous, drawn in zip(waits, middles, strict=True)
        ]
        sums = [so_far + wait for so_far, wait in zip(sums, waits, strict=True)]
        p95 = sorted(sums)[int(0.95 * CALLS)]
        mean, mean_so_far = sum(waits) / CALLS, sum(sums) / CALLS
        # Rounding must not make a drawn figure exceed an exact one.
        found.append(
            Retry(
                number, shortest, longest, min(mean, longest), min(mean_so_far, worst),
                min(p95, worst), worst,
            )
        )  # fmt: skip
    return found
