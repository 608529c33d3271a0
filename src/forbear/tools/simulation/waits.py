"""Waits: how long the retries of one call wait, on average and nearly always. Floor: acts.

Where waits are independent of each other and uniform, as with every jitter of ``Exponential`` but
"decorrelated", the quantiles of their sums are worked out: the distribution function of a sum of
uniform variables is a sum over the corners of their box (Feller, "An Introduction to Probability
Theory and Its Applications" II, section I.9). Its terms nearly cancel each other, so they are whole
numbers. Anything else is drawn from the schedule itself, with a fixed seed. All durations are
seconds.
"""

from __future__ import annotations

from itertools import accumulate, product
from math import factorial, prod
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from ...core.backoff import Exponential
from ...policy_tools.worst_case import extremes

if TYPE_CHECKING:
    from ...core.backoff import Backoff

__all__ = ["QUANTILES", "SEED", "TIMES", "Retry", "outlook"]

QUANTILES = (0.05, 0.5, 0.95)
SEED, TIMES = (
    0,
    50_000,
)  # of the drawing; 50,000 leave a standard error of about 1 % of the 95th percentile
MOST_TERMS = 2**12  # for one distribution function; above that it is drawn instead
STEPS = 2**40  # of a sum: a millionth of a microsecond of a day


class Retry(NamedTuple):
    """What a schedule makes a call wait before one of its retries, and up to it.

    Attributes:
        number: From 1.
        shortest: The wait before this retry, at least.
        longest: At most.
        mean: On average.
        so_far: The mean of all waits up to this one.
        quantiles: Of all waits up to this one, in the order of ``QUANTILES``.
        worst: All waits up to this one, at most.
        mean_is_drawn: ``mean`` and ``so_far`` are the means of drawn waits, not worked out.
        quantiles_are_drawn: So are ``quantiles``.
    """

    number: int
    shortest: float
    longest: float
    mean: float
    so_far: float
    quantiles: tuple[float, ...]
    worst: float
    mean_is_drawn: bool
    quantiles_are_drawn: bool


Part = tuple[
    float, float, float
]  # weight, lowest value, width: uniform, or one value where the width is 0


def outlook(backoff: Backoff, retries: int) -> list[Retry]:
    """Say for each of so many retries what a schedule makes a call wait, if no server names a time.

    Raises:
        ValueError: A schedule of the user's own answers something that is no time to wait.
    """
    ranges: list[tuple[float, float]] = []
    for attempt in range(1, retries + 1):
        ranges.append(extremes(backoff, attempt, *(ranges[-1] if ranges else (0.0, 0.0))))
    worked_out = [parts_of(backoff, number, at) for number, at in enumerate(ranges, start=1)]
    means = [mean_of(parts) for parts in worked_out]
    if isinstance(backoff, Exponential) and backoff.jitter == "decorrelated":
        means = decorrelated_means(backoff, ranges)
    quantiles = [
        quantiles_of([parts for parts in worked_out[:number] if parts is not None])
        if None not in worked_out[:number]
        else None
        for number in range(1, retries + 1)
    ]
    drawn = draw(backoff, retries) if None in means or None in quantiles else None
    found: list[Retry] = []
    so_far = 0.0
    worst = list(accumulate(longest for _, longest in ranges))
    for at, (shortest, longest) in enumerate(ranges):
        mean, sums = means[at], quantiles[at]
        if mean is None:
            assert drawn is not None
            mean = drawn.means[at]
        if sums is None:
            assert drawn is not None
            sums = drawn.quantiles[at]
        so_far += mean
        # What is rounded, and what is drawn, shall not seem to exceed what is exact.
        sums = tuple(min(one, worst[at]) for one in sums)
        drawn_so_far = None in means[: at + 1]
        found.append(
            Retry(
                at + 1,
                shortest,
                longest,
                mean,
                so_far,
                sums,
                worst[at],
                drawn_so_far,
                quantiles[at] is None,
            )
        )
    return found


def parts_of(backoff: Backoff, number: int, ends: tuple[float, float]) -> list[Part] | None:
    """The distribution of one wait, if it does not depend on the wait before it and is known."""
    shortest, longest = ends
    if shortest == longest:
        return [(1.0, shortest, 0.0)]
    if not isinstance(backoff, Exponential) or (backoff.jitter == "decorrelated" and number > 1):
        return None
    jitter = backoff.jitter
    if jitter == "decorrelated":
        uncut = 3 * backoff.base
    elif isinstance(jitter, str):
        uncut = longest  # drawn from below the cap, never cut
    else:
        uncut = Exponential(backoff.base, backoff.cap, backoff.factor, "none").delay(
            number, 0.0, float
        ) * (1 + jitter)
    if uncut <= longest * (1 + 1e-12):
        return [(1.0, shortest, longest - shortest)]
    # What is drawn above the cap is cut to it: one value with a weight of its own.
    share = (longest - shortest) / (uncut - shortest)
    return [(share, shortest, longest - shortest), (1 - share, longest, 0.0)]


def mean_of(parts: list[Part] | None) -> float | None:
    return (
        None
        if parts is None
        else sum(weight * (lowest + width / 2) for weight, lowest, width in parts)
    )


def decorrelated_means(
    backoff: Exponential, ranges: list[tuple[float, float]]
) -> list[float | None]:
    """E[w'] = (base + 3 E[w]) / 2, for as long as no wait can have met the cap."""
    means: list[float | None] = []
    mean, longest = backoff.base, backoff.base
    for _ in ranges:
        longest *= 3
        mean = (backoff.base + 3 * mean) / 2
        means.append(mean if longest <= backoff.cap else None)
    return means


def quantiles_of(waits: list[list[Part]]) -> tuple[float, ...] | None:
    """Of the sum of independent waits; None if it has too many corners to be worked out."""
    terms = prod(sum(2 if width else 1 for _, _, width in parts) for parts in waits)
    if terms > MOST_TERMS:
        return None
    total = sum(max(lowest + width for _, lowest, width in parts) for parts in waits)
    if total == 0:
        return tuple(0.0 for _ in QUANTILES)
    boxes = [box(chosen, total) for chosen in product(*waits)]
    found = []
    for wanted in QUANTILES:
        low, high = -1, STEPS  # the share at low is below what is wanted, that at high is not
        while high - low > 1:
            at = (low + high) // 2
            if (
                sum(weight * share_below(at, shift, widths) for weight, shift, widths in boxes)
                >= wanted
            ):
                high = at
            else:
                low = at
        found.append(high / STEPS * total)
    return tuple(found)


def box(chosen: tuple[Part, ...], total: float) -> tuple[float, int, list[int]]:
    """Weight, lowest corner and edges, in steps."""
    shift = round(sum(lowest for _, lowest, _ in chosen) / total * STEPS)
    widths = [steps for _, _, width in chosen if (steps := round(width / total * STEPS))]
    return prod(weight for weight, _, _ in chosen), min(shift, STEPS - sum(widths)), widths


def share_below(at: int, shift: int, widths: list[int]) -> float:
    """How much of a box lies where the sum of the coordinates is at most ``at``."""
    at -= shift
    if at < 0:
        return 0.0
    if not widths or at >= sum(widths):
        return 1.0
    dimensions = len(widths)
    corners = [(at, 1)]
    for width in widths:
        corners += [(left - width, -sign) for left, sign in corners if left > width]
    inside: int = sum(sign * left**dimensions for left, sign in corners)
    return inside / (factorial(dimensions) * prod(widths))


class Drawn(NamedTuple):
    means: list[float]
    quantiles: list[tuple[float, ...]]


def draw(backoff: Backoff, retries: int) -> Drawn:
    """Let many calls wait; the schedule is the one that the transports use."""
    random = Random(SEED).random
    waits, sums = [0.0] * TIMES, [0.0] * TIMES
    found = Drawn([], [])
    for attempt in range(1, retries + 1):
        waits = [backoff.delay(attempt, previous, random) for previous in waits]
        sums = [so_far + wait for so_far, wait in zip(sums, waits, strict=True)]
        ordered = sorted(sums)
        found.means.append(sum(waits) / TIMES)
        found.quantiles.append(tuple(ordered[int(wanted * TIMES)] for wanted in QUANTILES))
    return found
