"""When calls begin: as many as promised, in order, the same for the same seed."""

from itertools import pairwise
from random import Random
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.simulation import Scenario
from benchmarks.simulation.engine import arrival_times
from benchmarks.simulation.scenario import ARRIVALS


def times(scenario, seed=0):
    return list(arrival_times(scenario, Random(seed).random))


def test_even_arrivals_are_exact_multiples():
    """4 a second for 10 s are 40, a quarter of a second apart; the last begins before the end."""
    assert times(Scenario(rate=4.0)) == [number / 4 for number in range(40)]


@given(st.floats(0.1, 50.0), st.integers(0), st.integers(0, 20), st.sampled_from(ARRIVALS))
def test_all_come_in_order_and_in_time(rate, seed, fleet, how):
    scenario = Scenario(rate=rate, arrivals=how, fleet=fleet, fleet_at=1.0)
    found = times(scenario, seed)
    assert len(found) == scenario.callers
    assert found == sorted(found)
    assert all(0 <= time <= 10.0 for time in found)
    assert found.count(1.0) >= fleet


def test_a_fleet_comes_at_its_instant_between_the_others():
    scenario = Scenario(rate=1.0, duration=4.0, trouble_at=0.0, fleet=2, fleet_at=1.5)
    assert times(scenario) == [0, 1, 1.5, 1.5, 2, 3]


def test_random_arrivals_are_spread_evenly_over_the_time():
    """A Poisson process given its number: uniform on [0, 10), so the mean of 20,000 is 5 ± 3 ×
    10/√12/√20,000 = 0.06, and gaps are exponential: a share 1/e = 0.368 of them is longer than
    their mean."""
    found = times(Scenario(rate=2_000.0, arrivals="poisson"))
    assert mean(found) == pytest.approx(5.0, abs=0.062)
    gaps = [after - before for before, after in pairwise(found)]
    longer = sum(gap > 1 / 2_000 for gap in gaps) / len(gaps)
    # Three standard errors: 3 × √(0.368 × 0.632 / 20,000).
    assert longer == pytest.approx(0.368, abs=0.011)
