"""Figures: what comes out of a simulation. Floor: acts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from statistics import median
from typing import TYPE_CHECKING

from .tally import BIN

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .scenario import Scenario
    from .tally import Tally

__all__ = ["NAMES", "Figures", "median_of"]

SERVED_NORMALLY = 0.98  # of a window's arrivals


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One run of one policy, or the medians of several. Times are virtual seconds."""

    policy: str
    requests: int
    amplification: float
    """Attempts per request."""

    peak: float
    """Attempts per second in the busiest 50 ms."""

    peak_ratio: float | None
    """The same as a multiple of the arrival rate; None without open arrivals."""

    success: float
    """Share of the requests that were answered well in the end."""

    within_5s: float
    """Share that was answered well within 5 s of the call's start."""

    within_1s: float
    """The same within a second."""

    p50: float | None
    """Seconds from the request to the good answer, median of the successes."""

    p99: float | None
    recovered: float
    """Seconds from the end of the trouble until at least 98 % of each quarter second's arrivals are
    answered well within a second for good; infinite: not before the calls end."""

    never: int
    """Runs that did not recover before the calls ended."""

    runs: int
    held: float
    """Seconds that a call was held, mean of all calls."""

    peak_held: float
    """Most calls held by one process at a time."""

    last_retry: float | None
    """Seconds from the end of the trouble to the answer of the last retry; None: there is none."""

    refusals: dict[str, int]
    """Requests that failed in the end, by the reason for which there was no further attempt."""

    attempts_per_bin: tuple[int, ...]
    """In each 50 ms from the start."""

    served_per_bin: tuple[int, ...]
    """Good answers."""

    held_per_bin: tuple[int, ...]
    """Calls held by all processes at the beginning of each 50 ms."""

    distribution: tuple[tuple[float, float], ...]
    """Latency, and the share of all requests that were answered well within it."""

    def number(self, name: str) -> float:
        """One of ``NAMES``, for comparisons: infinite latency where nothing succeeded."""
        value: float | None = getattr(self, name)
        if value is None:
            return inf if name in ("p50", "p99") else 0.0
        return value

    def as_json(self) -> dict[str, Any]:
        """Its numbers; ``recovered`` is None for never."""
        numbers = {name: getattr(self, name) for name in NAMES}
        numbers["recovered"] = None if self.recovered == inf else self.recovered
        return {"policy": self.policy, **numbers, "refusals": self.refusals}

    @classmethod
    def of(cls, tally: Tally, scenario: Scenario, policy: str) -> Figures:
        recovered = tally.recovered_after(scenario, SERVED_NORMALLY)
        peak = max(tally.sent.values(), default=0) / BIN
        last_retry = tally.last_retry_at - scenario.trouble_ends_at
        return cls(
            policy=policy,
            requests=tally.requests,
            amplification=tally.attempts / tally.requests,
            peak=peak,
            peak_ratio=peak / scenario.rate if scenario.rate else None,
            success=tally.successes / tally.requests,
            within_5s=tally.within(5.0) / tally.requests,
            within_1s=tally.within(1.0) / tally.requests,
            p50=tally.percentile(0.5),
            p99=tally.percentile(0.99),
            recovered=inf if recovered is None else recovered,
            never=int(recovered is None),
            runs=1,
            held=tally.held_seconds / tally.requests,
            peak_held=tally.peak_held,
            last_retry=last_retry if last_retry >= 0 and tally.last_retry_at else None,
            refusals=dict(sorted(tally.refusals.items())),
            attempts_per_bin=in_a_row(tally.sent),
            served_per_bin=in_a_row(tally.served),
            held_per_bin=in_a_row(tally.held),
            distribution=tuple(tally.distribution()),
        )


NUMBERS = (
    "amplification", "peak", "peak_ratio", "success", "within_5s", "within_1s", "p50", "p99",
    "recovered", "held", "peak_held", "last_retry",
)  # fmt: skip
NAMES = ("requests", *NUMBERS, "never")


def median_of(runs: Sequence[Figures]) -> Figures:
    """The median of each number over several runs of one policy; series are the first run's."""
    if len(runs) == 1:
        return runs[0]
    numbers: dict[str, Any] = {
        name: middle([getattr(run, name) for run in runs]) for name in NUMBERS
    }
    reasons = sorted({reason for run in runs for reason in run.refusals})
    counts = {one: round(median(run.refusals.get(one, 0) for run in runs)) for one in reasons}
    refusals = {reason: count for reason, count in counts.items() if count}
    never = sum(run.never for run in runs)
    return replace(runs[0], refusals=refusals, never=never, runs=len(runs), **numbers)


def middle(values: list[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return median(there) if there else None


def in_a_row(counts: dict[int, int]) -> tuple[int, ...]:
    return tuple(counts.get(number, 0) for number in range(max(counts, default=-1) + 1))
