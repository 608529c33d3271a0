"""The default policy and budget against overload: what their numbers were chosen for."""

from dataclasses import replace

import pytest

from forbear.tools.simulation import SCENARIOS, Scenario, contender, median_of, simulate

# A fifth of capacity to spare, as in "metastable", with fewer calls so that it takes a moment only.
NEAR_ITS_LIMIT = replace(SCENARIOS["metastable"][0], rate=1_000.0, capacity=1_200.0, duration=14.0)
TROUBLES = {
    "down for 200 ms": {},
    "half speed for 2 s": {"trouble": "slow", "trouble_for": 2.0},
    "slow for 2 s": {
        "trouble": "slow",
        "trouble_for": 2.0,
        "speed": 1.0,
        "slowdown": 200.0,
        "timeout": 0.5,
    },
}


@pytest.mark.parametrize(("rejection_cost", "calls_of_a_process"), [(0.1, 100), (0.5, 1_000)])
@pytest.mark.parametrize("trouble", TROUBLES)
def test_no_trouble_is_made_worse_than_without_retries(trouble, rejection_cost, calls_of_a_process):
    """As many calls succeed as without any retry; with 1,000 a process it is over in time."""
    world: Scenario = replace(
        NEAR_ITS_LIMIT,
        rejection_cost=rejection_cost,
        callers_per_client=calls_of_a_process,
        **TROUBLES[trouble],
    )
    none, ours = (
        median_of([simulate(world, contender(name), seed=seed) for seed in range(3)])
        for name in ("none", "forbear")
    )
    assert ours.success >= none.success
    if calls_of_a_process == 1_000:
        assert ours.recovered <= none.recovered + 0.3


def test_a_lone_script_is_helped_through_a_deployment():
    """One call a second, 3 s of refused connections: nothing is lost, where three calls were."""
    world = Scenario(rate=1.0, duration=120.0, trouble="refuse", trouble_at=20.3, trouble_for=3.0)
    assert simulate(world, contender("none")).success == pytest.approx(117 / 120)
    assert (
        median_of([simulate(world, contender("forbear"), seed=seed) for seed in range(15)]).success
        == 1.0
    )
