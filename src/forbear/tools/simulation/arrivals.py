"""Arrivals: when calls begin. Floor: acts.

One instant at a time, so that a million callers need no more memory than one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .scenario import Scenario

__all__ = ["arrival_times"]


def arrival_times(scenario: Scenario, random: Callable[[], float]) -> Iterator[float]:
    """Yield the instants at which calls begin, in order."""
    fleet, at = scenario.fleet, scenario.fleet_at
    times = evenly(scenario) if scenario.arrivals == "even" else at_random(scenario, random)
    for time in times:
        if fleet and time >= at:
            for _ in range(fleet):
                yield at
            fleet = 0
        yield time
    for _ in range(fleet):
        yield at


def evenly(scenario: Scenario) -> Iterator[float]:
    rate = scenario.rate
    for number in range(scenario.open_callers):
        yield number / rate  # not summed up: each instant is as exact as a float can be


def at_random(scenario: Scenario, random: Callable[[], float]) -> Iterator[float]:
    """A Poisson process with a given number of arrivals: uniform draws in their order.

    All of n draws from [t, end) are above x with probability ((end - x) / (end - t))**n.
    """
    time, end = 0.0, scenario.duration
    for left in range(scenario.open_callers, 0, -1):
        time += (end - time) * (1.0 - (1.0 - random()) ** (1.0 / left))
        yield time
