"""A world that cannot be is refused with what to write instead."""

from dataclasses import replace

import pytest

from forbear.tools.simulation import SCENARIOS, Scenario


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"duration": 0}, "duration must be more than 0 seconds, got 0"),
        ({"rate": 1e9}, "from 1 to 100,000,000 calls, got 10,000,000,000"),
        ({"arrivals": "random"}, "arrivals must be one of 'even', 'poisson', got 'random'"),
        ({"fleet": 1.5}, "fleet must be a whole number of at least 0, got 1.5"),
        ({"capacity": 0.0}, "capacity must be more than 0, got 0.0; None: no limit"),
        ({"trouble_for": 8.0}, "the trouble must end before the calls do"),
        ({"status": 200}, "status must be from 400 to 599, got 200"),
        ({"retry_after": "soon"}, "retry_after must be a number of seconds, got 'soon'"),
        ({"speed": 1.5}, "speed must be at most 1, got 1.5"),
    ],
)
def test_a_mistake_is_told(changes, says):
    with pytest.raises((ValueError, TypeError)) as told:
        Scenario(**changes)
    assert says in str(told.value)


def test_the_named_scenarios_are_those_that_are_promised():
    assert list(SCENARIOS) == ["blip", "reload", "brownout", "quota-reset", "metastable"]
    blip, reload = SCENARIOS["blip"][0], SCENARIOS["reload"][0]
    assert (blip.rate, blip.callers, blip.trouble_at, blip.trouble_for) == (500.0, 5_000, 2.0, 0.2)
    assert (blip.trouble, blip.capacity) == ("down", None)
    assert replace(reload, trouble="down") == blip
    metastable, brownout = SCENARIOS["metastable"][0], SCENARIOS["brownout"][0]
    assert (metastable.callers, metastable.rejection_cost, metastable.trouble_for) == (
        100_000,
        0.3,
        0.2,
    )
    assert metastable.capacity == pytest.approx(1.2 * metastable.rate)
    assert (brownout.trouble, brownout.speed) == ("slow", 0.5)
    quota = SCENARIOS["quota-reset"][0]
    assert (quota.retry_after, quota.status, quota.trouble_ends_at % 1) == ("end", 429, 0.0)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "answers 503 from 2 s to 2.2 s"),
        ({"trouble": "hang"}, "answers nothing, and resets what it holds at the end, from"),
        ({"trouble": "slow", "slowdown": 9.0}, "50% of its speed, answers after 9 times as long"),
        ({"timeout": 0.5}, "from 1 client process, with a timeout of 0.5 s"),
        ({"capacity": 600.0, "queue": 0.5}, "600/s (1.2 × arrivals), queues 0.5 s of work"),
        ({"capacity": 600.0, "rejection_cost": 0.3}, ", rejecting costs 0.3 of serving"),
    ],
)
def test_a_scenario_tells_what_it_is(changes, says):
    assert says in Scenario(**changes).told()
