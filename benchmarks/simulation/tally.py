"""Tally: what is counted while a simulation runs.

Counts per bin of time and per bin of latency: memory grows with simulated time, not with callers.
"""

from __future__ import annotations

from collections import defaultdict
from math import log
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .scenario import Scenario

BIN = 0.05  # seconds; in which attempts and good responses are counted
WINDOW = 0.25  # seconds of arrivals that are judged together
GOOD_WITHIN = 1.0  # seconds; a later response is of no use to its caller
STEPS = 500  # of latency per factor e: bins 0.2 % wide
SMALLEST = 1e-9  # seconds; stands for a latency of 0
ROUNDING = 1e-9  # seconds; a multiple of a bin in decimal is one in binary, too


def bin_of(instant: float, width: float) -> int:
    return int(instant / width + ROUNDING)


class Tally:
    """The counts of one run."""

    __slots__ = (
        "arrived", "attempts", "ended_at", "failure_sums", "failures", "good", "held",
        "held_seconds", "last_retry_at", "latencies", "latency_sums", "lost", "peak_busy",
        "peak_held", "refusals", "requests", "sent", "served", "successes", "timeouts",
    )  # fmt: skip

    def __init__(self) -> None:
        self.requests = 0
        self.attempts = 0
        self.successes = 0
        self.sent: defaultdict[int, int] = defaultdict(int)  # attempts by bin
        self.served: defaultdict[int, int] = defaultdict(int)  # good responses by bin
        self.arrived: defaultdict[int, int] = defaultdict(int)  # calls by window
        self.good: defaultdict[int, int] = defaultdict(int)  # of those, successful in time
        self.latencies: defaultdict[int, int] = defaultdict(int)  # successes by bin of latency
        self.latency_sums: defaultdict[int, float] = defaultdict(float)
        self.refusals: defaultdict[str, int] = defaultdict(int)  # calls that failed, by reason
        self.held: dict[int, int] = {}  # calls held by all processes, by bin
        self.held_seconds = 0.0  # of all calls together
        self.peak_held = 0  # most calls held by one process at a time
        self.last_retry_at = 0.0  # when its response came
        self.failures: defaultdict[int, int] = defaultdict(int)  # calls, by bin of their time
        self.failure_sums: defaultdict[int, float] = defaultdict(float)
        self.lost: defaultdict[int, int] = defaultdict(int)  # of those in ``arrived``, failed
        self.peak_busy = 0  # most calls under way in one process at a time
        self.timeouts = 0  # attempts
        self.ended_at = 0.0  # the last call

    def succeed(self, began_at: float, now: float) -> None:
        latency = now - began_at
        self.successes += 1
        if now > self.ended_at:
            self.ended_at = now
        self.served[int(now / BIN + ROUNDING)] += 1
        step = int(log(latency if latency > SMALLEST else SMALLEST) * STEPS)
        self.latencies[step] += 1
        self.latency_sums[step] += latency
        if latency <= GOOD_WITHIN:
            self.good[int(began_at / WINDOW + ROUNDING)] += 1

    def fail(self, began_at: float, now: float) -> None:
        took = now - began_at
        step = int(log(took if took > SMALLEST else SMALLEST) * STEPS)
        self.failures[step] += 1
        self.failure_sums[step] += took
        self.lost[int(began_at / WINDOW + ROUNDING)] += 1
        if now > self.ended_at:
            self.ended_at = now

    @property
    def seconds(self) -> float:
        """That all calls took together."""
        return sum(self.latency_sums.values()) + sum(self.failure_sums.values())

    def percentile_of_all(self, share: float) -> float:
        """Seconds within which this share of all calls ended, successful or not; to 0.2 %."""
        wanted = share * self.requests
        so_far = 0
        for step in sorted({*self.latencies, *self.failures}):
            number = self.latencies.get(step, 0) + self.failures.get(step, 0)
            so_far += number
            if so_far >= wanted:
                sums = self.latency_sums.get(step, 0.0) + self.failure_sums.get(step, 0.0)
                return sums / number
        return 0.0

    def percentile(self, share: float) -> float | None:
        """Seconds within which this share of the successes ended; None without any.

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
        """Calls that succeeded within so many seconds, to 0.2 %."""
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
