"""Tally: what is counted while a simulation runs. Floor: acts.

Counts per bin of time and per bin of latency: memory grows with simulated time, not with callers.
"""

from __future__ import annotations

from collections import defaultdict
from math import log
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .scenario import Scenario

__all__ = ["BIN", "GOOD_WITHIN", "WINDOW", "Tally", "bin_of"]

BIN = 0.05  # seconds; in which attempts and good answers are counted
WINDOW = 0.25  # seconds of arrivals that are judged together
GOOD_WITHIN = 1.0  # seconds; a later answer is no good any more
STEPS = 500  # of latency per factor e: bins 0.2 % wide
SMALLEST = 1e-9  # seconds; stands for a latency of 0
ROUNDING = 1e-9  # seconds; a multiple of a bin in decimal is one in binary, too


def bin_of(instant: float, width: float) -> int:
    return int(instant / width + ROUNDING)


class Tally:
    """The counts of one run."""

    __slots__ = (
        "arrived", "attempts", "good", "held", "held_seconds", "last_retry_at", "latencies",
        "latency_sums", "peak_held", "refusals", "requests", "sent", "served", "successes",
    )  # fmt: skip

    def __init__(self) -> None:
        self.requests = 0
        self.attempts = 0
        self.successes = 0
        self.sent: defaultdict[int, int] = defaultdict(int)  # attempts by bin
        self.served: defaultdict[int, int] = defaultdict(int)  # good answers by bin
        self.arrived: defaultdict[int, int] = defaultdict(int)  # calls by window
        self.good: defaultdict[int, int] = defaultdict(int)  # of those, answered well and in time
        self.latencies: defaultdict[int, int] = defaultdict(int)  # successes by bin of latency
        self.latency_sums: defaultdict[int, float] = defaultdict(float)
        self.refusals: defaultdict[str, int] = defaultdict(int)  # calls that failed, by reason
        self.held: dict[int, int] = {}  # calls held by all processes, by bin
        self.held_seconds = 0.0  # of all calls together
        self.peak_held = 0  # most calls held by one process at a time
        self.last_retry_at = 0.0  # answered

    def succeed(self, began_at: float, now: float) -> None:
        latency = now - began_at
        self.successes += 1
        self.served[int(now / BIN + ROUNDING)] += 1
        step = int(log(latency if latency > SMALLEST else SMALLEST) * STEPS)
        self.latencies[step] += 1
        self.latency_sums[step] += latency
        if latency <= GOOD_WITHIN:
            self.good[int(began_at / WINDOW + ROUNDING)] += 1

    def percentile(self, share: float) -> float | None:
        """Seconds within which this share of the successes was answered; None without any.

        Exact where all in a bin are equal, else to 0.2 %.
        """
        wanted = share * self.successes
        so_far = 0
        for step in sorted(self.latencies):
            so_far += self.latencies[step]
            if so_far >= wanted:
                return self.latency_sums[step] / self.latencies[step]
        return None

    def within(self, seconds: float) -> int:
        """Calls that were answered well within so many seconds, to 0.2 %."""
        return sum(
            number
            for step, number in self.latencies.items()
            if self.latency_sums[step] <= seconds * number
        )

    def distribution(self) -> list[tuple[float, float]]:
        """Latency in seconds, and the share of all calls that succeeded within it."""
        points = []
        so_far = 0
        for step in sorted(self.latencies):
            so_far += self.latencies[step]
            points.append((self.latency_sums[step] / self.latencies[step], so_far / self.requests))
        return points

    def recovered_after(self, scenario: Scenario, share: float) -> float | None:
        """Seconds from the end of the trouble until arrivals are served normally for good.

        Whole windows are judged, up to the last whose callers meet full traffic as long as they
        wait. None: never.
        """
        ends_at = scenario.trouble_ends_at
        first = bin_of(ends_at + WINDOW - ROUNDING, WINDOW)
        last = bin_of(scenario.duration - GOOD_WITHIN, WINDOW) - 1
        bad = [
            window
            for window in range(first, last + 1)
            if self.good.get(window, 0) < share * self.arrived.get(window, 0)
        ]
        if not bad:
            return 0.0
        return None if bad[-1] == last else (bad[-1] + 1) * WINDOW - ends_at
