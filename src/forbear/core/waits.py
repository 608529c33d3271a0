"""Waits: the shortest and the longest that a schedule makes before each retry.

Computed by calling it, with random numbers from the smallest to the largest, after the shortest,
the longest and a middle wait before. Exact for the schedules that forbear ships.
"""

from __future__ import annotations

from math import inf

from .checks import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .backoff import Backoff

NUMBERS = (0.0, 0.25, 0.5, 0.75, 1.0 - 2.0**-53)  # random.random() is below 1


def ranges(backoff: Backoff, retries: int) -> list[tuple[float, float]]:
    """Return the shortest and the longest wait before each retry.

    Raises:
        ValueError: A schedule of the user's own returns something that is no duration.
    """
    found = [(0.0, 0.0)]
    for attempt in range(1, retries + 1):
        shortest, longest = found[-1]
        delays = [
            backoff.delay(attempt, previous, lambda number=number: number)  # type: ignore[misc]
            for previous in {shortest, (shortest + longest) / 2, longest}
            for number in NUMBERS
        ]
        for delay in delays:
            if not 0 <= delay < inf:  # NaN too
                fault = f"returns {shown(delay)} for attempt {attempt}"
                raise ValueError(f"the backoff {shown(backoff)} {fault}")
        found.append((min(delays), max(delays)))
    return found[1:]
