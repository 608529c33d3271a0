"""Figures: what comes out of a simulation, and conditions such as "amplification>1.2" on it."""

from __future__ import annotations

import operator
import re
from dataclasses import asdict, dataclass, fields, replace
from math import inf, isfinite
from statistics import median
from typing import TYPE_CHECKING

from .tally import BIN, WINDOW, bin_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from .scenario import Scenario
    from .tally import Tally

SERVED_NORMALLY = 0.98  # of a window's arrivals


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """Calls to the healthy routes of an origin, and to its broken one."""

    healthy_success: float
    """Share of the healthy calls that succeeded in the end."""

    healthy_mean: float
    """Seconds that one took, successful or not; mean of all."""

    healthy_p99: float
    """Seconds within which 99 % of them ended, successful or not."""

    broken_mean: float
    """Seconds that a call to the broken route took until it failed."""

    broken_p95: float

    @classmethod
    def of(cls, healthy: Tally, broken: Tally) -> Routes:
        return cls(
            healthy_success=healthy.successes / max(1, healthy.requests),
            healthy_mean=healthy.seconds / max(1, healthy.requests),
            healthy_p99=healthy.percentile_of_all(0.99),
            broken_mean=broken.seconds / max(1, broken.requests),
            broken_p95=broken.percentile_of_all(0.95),
        )


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
    """Share of the requests that succeeded in the end."""

    within_5s: float
    """Share that succeeded within 5 s of the call's start."""

    within_1s: float
    """The same within a second."""

    p50: float | None
    """Seconds from the request to the good response, median of the successes."""

    p99: float | None
    recovered: float
    """Seconds from the end of the trouble until at least 98 % of each quarter second's arrivals
    succeed within a second for good; infinite: not before the calls end."""

    never: int
    """Runs that did not recover before the calls ended."""

    runs: int
    held: float
    """Seconds that a call was held, mean of all calls."""

    peak_held: float
    """Most calls held by one process at a time."""

    last_retry: float | None
    """Seconds from the end of the trouble to the response to the last retry; None: no retry."""

    mean: float
    """Seconds that a call took, successful or not; mean of all calls."""

    p95: float
    """The same, 95th percentile."""

    failed_mean: float | None
    """Seconds that a call took that failed in the end; None: there is none."""

    busy: float
    """Calls under way in one process, as many threads would be taken; mean until the last ends."""

    peak_busy: float
    """The most at a time."""

    timeouts: float
    """Attempts that the client gave up, per request."""

    routes: Routes | None
    """Healthy and broken calls apart, where a route is broken."""

    refusals: dict[str, int]
    """Requests that failed in the end, by the reason for which there was no further attempt."""

    attempts_per_bin: tuple[int, ...]
    """In each 50 ms from the start."""

    served_per_bin: tuple[int, ...]
    """Good responses."""

    held_per_bin: tuple[int, ...]
    """Calls held by all processes at the beginning of each 50 ms."""

    arrived_per_window: tuple[int, ...]
    """Calls that began in each quarter of a second."""

    lost_per_window: tuple[int, ...]
    """Of those, the ones that failed in the end."""

    distribution: tuple[tuple[float, float], ...]
    """Latency, and the share of all requests that succeeded within it."""

    def number(self, name: str) -> float:
        """One of ``NAMES``, for comparisons: infinite latency where nothing succeeded."""
        value: float | None = getattr(self, name)
        if value is None:
            return inf if name in ("p50", "p99") else 0.0
        return value

    def success_between(self, start: float, end: float) -> float:
        """Share that succeeded of the calls that began in these whole quarters of a second; 1 if
        none did.
        """
        windows = slice(bin_of(start, WINDOW), None if end == inf else bin_of(end, WINDOW))
        arrived = sum(self.arrived_per_window[windows])
        return 1 - sum(self.lost_per_window[windows]) / arrived if arrived else 1.0

    def attempts_between(self, start: float, end: float) -> float:
        """Attempts sent in these whole quarters of a second, per call that began in them; 0 if
        none did.
        """
        arrived = sum(self.arrived_per_window[bin_of(start, WINDOW) : bin_of(end, WINDOW)])
        sent = sum(self.attempts_per_bin[bin_of(start, BIN) : bin_of(end, BIN)])
        return sent / arrived if arrived else 0.0

    def as_json(self) -> dict[str, Any]:
        """Its numbers; ``recovered`` is None for never."""
        numbers = {name: getattr(self, name) for name in NAMES}
        numbers["recovered"] = None if self.recovered == inf else self.recovered
        routes = None if self.routes is None else asdict(self.routes)
        return {"policy": self.policy, **numbers, "routes": routes, "refusals": self.refusals}

    @classmethod
    def of(
        cls,
        tally: Tally,
        scenario: Scenario,
        policy: str,
        routes: tuple[Tally, Tally] | None = None,
    ) -> Figures:
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
            mean=tally.seconds / tally.requests,
            p95=tally.percentile_of_all(0.95),
            failed_mean=mean_of_failures(tally),
            busy=tally.seconds / (tally.ended_at or 1.0) / scenario.clients,
            peak_busy=tally.peak_busy,
            timeouts=tally.timeouts / tally.requests,
            routes=None if routes is None else Routes.of(*routes),
            refusals=dict(sorted(tally.refusals.items())),
            attempts_per_bin=in_a_row(tally.sent),
            served_per_bin=in_a_row(tally.served),
            held_per_bin=in_a_row(tally.held),
            arrived_per_window=in_a_row(tally.arrived),
            lost_per_window=in_a_row(tally.lost),
            distribution=tuple(tally.distribution()),
        )


NUMBERS = (
    "amplification", "peak", "peak_ratio", "success", "within_5s", "within_1s", "p50", "p99",
    "recovered", "held", "peak_held", "last_retry", "mean", "p95", "failed_mean", "busy",
    "peak_busy", "timeouts",
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
    routes = None
    if apart := [run.routes for run in runs if run.routes is not None]:
        names = [field.name for field in fields(Routes)]
        routes = Routes(**{name: median(getattr(one, name) for one in apart) for name in names})
    return replace(
        runs[0], refusals=refusals, never=never, runs=len(runs), routes=routes, **numbers
    )


def mean_of_failures(tally: Tally) -> float | None:
    failed = sum(tally.failures.values())
    return sum(tally.failure_sums.values()) / failed if failed else None


def middle(values: list[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return median(there) if there else None


def in_a_row(counts: dict[int, int]) -> tuple[int, ...]:
    return tuple(counts.get(number, 0) for number in range(max(counts, default=-1) + 1))


# One comparison of a figure with a number, read by hand: nothing of the text is executed.

COMPARISON = re.compile(r"(?:(.+):)?\s*([\w ]*?)\s*(>=|<=|==|!=|>|<)\s*(.*?)\s*(%|ms|s|x|)\s*")
OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
UNITS = {"%": 0.01, "ms": 0.001}


class Condition:
    """A comparison that must not hold, for one policy or for every policy that takes part.

    Raises:
        ValueError: The text cannot be read; the message says which part and how to write it.
    """

    def __init__(self, text: str) -> None:
        found = COMPARISON.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is no comparison; write one like 'amplification>1.2'")
        name, self.figure, sign, number, unit = found.groups()
        self.text = text.strip()
        self.policy = None if name is None else name.strip()
        if self.figure not in NAMES:
            raise ValueError(f"there is no figure {self.figure!r}; there are {', '.join(NAMES)}")
        self.compare = OPERATORS[sign]
        self.number = inf if number == "never" else a_number(number) * UNITS.get(unit, 1.0)

    def holds(self, figures: Figures) -> bool:
        """Does it hold for this policy? Never for a policy that it does not name."""
        return self.policy in (None, figures.policy) and self.compare(
            figures.number(self.figure), self.number
        )


def a_number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = inf
    if not isfinite(value):
        raise ValueError(f"{text!r} is no number; write one like 1.2, 99%, 250ms, 3s or never")
    return value
