"""Figures that an independent simulator, an event heap in C++, found in the same worlds."""

from dataclasses import replace
from functools import cache
from math import inf

import pytest

from benchmarks.simulation import SCENARIOS, contender, median_of, simulate

pytestmark = pytest.mark.release
BLIP = SCENARIOS["blip"][0]


@cache
def success(scenario, name):
    """How many of the calls succeed, in per cent."""
    return 100 * simulate(scenario, contender(name)).success


@pytest.mark.parametrize(
    ("name", "peak"), [("none", 500), ("exponential", 1000), ("full", 1380), ("urllib3", 5500)]
)
def test_the_textbook_experiment(name, peak):
    """Jitter does not flatten independent arrivals. Without randomness there is one answer."""
    found = median_of([simulate(BLIP, contender(name), seed=seed) for seed in range(5)]).peak
    assert found == (pytest.approx(peak, rel=0.1) if name == "full" else peak)


@pytest.mark.parametrize(("world", "name", "density", "gained"), [
    ("reload", "forbear", 50.0, 0.91), ("down-2s", "forbear", 50.0, 4.55),
    ("down-2s", "forbear-5", 50.0, 2.76), ("down-2s", "httpx-retries", 50.0, -79.19),
    ("half-5s", "forbear", 50.0, 1.22), ("half-5s", "forbear-0", 50.0, -0.27),
    ("half-5s-queue", "httpx-retries", 50.0, -81.42), ("rolling-502", "forbear", 50.0, 2.09),
    ("random-502-5%", "forbear-0", 50.0, 4.98), ("quota-unhinted", "forbear-0", 50.0, 0.10),
    ("half-5s", "forbear", 5.0, 1.76), ("stale-pool", "forbear", 5.0, 4.58),
    ("half-2s", "forbear", 0.5, 0.94),
])  # fmt: skip
def test_what_a_policy_gains_or_loses(world, name, density, gained):
    """Points of success over no retry, medians there; of one seed here, so within a point or so."""
    scenario = replace(SCENARIOS[world][0], client_rate=density)
    found = success(scenario, name) - success(scenario, "none")
    assert found == pytest.approx(gained, rel=0.1, abs=1.2)


def test_without_a_limit_a_blip_is_for_ever():
    """Full jitter from 100 ms, as everybody's examples; under a budget it is over when it is over."""
    world = replace(SCENARIOS["blip-503"][0], timeout=None)
    found = simulate(world, contender("full"))
    assert (found.recovered, found.never, found.runs) == (inf, 1, 1)
    assert found.success == pytest.approx(0.181, abs=0.03)
    assert found.amplification == pytest.approx(5.37, rel=0.03)
    found = simulate(world, contender("full+budget"))
    assert found.recovered <= 0.3 + 1e-9
    assert found.amplification == pytest.approx(1.01, abs=0.005)
