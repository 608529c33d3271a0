"""A world that cannot be is refused with what to write instead."""

from dataclasses import replace

import pytest

from forbear.tools.simulation import SCENARIOS, Scenario


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"duration": 0}, ValueError, "duration must be more than 0 seconds, got 0"),
        ({"duration": "long"}, TypeError, "duration must be a number of seconds, got 'long'"),
        ({"rate": -1.0}, ValueError, "rate must be at least 0, got -1.0"),
        ({"rate": float("nan")}, ValueError, "rate must be finite"),
        ({"rate": 0.0}, ValueError, "calls, got 0"),
        ({"rate": 1e9}, ValueError, "from 1 to 100,000,000 calls, got 10,000,000,000"),
        (
            {"arrivals": "random"},
            ValueError,
            "arrivals must be one of 'even', 'poisson', got 'random'",
        ),
        ({"fleet": -1}, ValueError, "fleet must be a whole number of at least 0, got -1"),
        ({"fleet": 1.5}, ValueError, "fleet must be a whole number"),
        (
            {"callers_per_client": 0},
            ValueError,
            "callers_per_client must be a whole number of at least 1, got 0",
        ),
        ({"timeout": 0.0}, ValueError, "timeout must be more than 0 seconds"),
        (
            {"capacity": 0.0},
            ValueError,
            "capacity must be more than 0, got 0.0; use None for no limit",
        ),
        ({"queue": -1.0}, ValueError, "queue must be at least 0"),
        ({"rejection_cost": -0.1}, ValueError, "rejection_cost must be at least 0"),
        (
            {"trouble": "fire"},
            ValueError,
            "trouble must be one of 'down', 'refuse', 'hang', 'slow', got 'fire'",
        ),
        ({"trouble_for": 8.0}, ValueError, "the trouble must end before the calls do"),
        ({"status": 200}, ValueError, "status must be from 400 to 599, got 200"),
        ({"retry_after": "soon"}, TypeError, "retry_after must be a number of seconds, got 'soon'"),
        (
            {"speed": 1.5},
            ValueError,
            "speed must be at most 1, got 1.5; it is the share of capacity left",
        ),
        ({"slowdown": 0.5}, ValueError, "slowdown must be at least 1"),
    ],
)
def test_a_mistake_is_told(changes, error, says):
    with pytest.raises(error) as told:
        Scenario(**changes)
    assert says in str(told.value)


def test_clients_are_as_many_as_are_needed():
    assert Scenario().clients == 1
    assert Scenario(callers_per_client=5_000).clients == 1
    assert Scenario(callers_per_client=4_999).clients == 2


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
        ({"retry_after": 3.0}, "answers 503 and Retry-After: 3 from"),
        (
            {"retry_after": "end", "status": 429},
            "answers 429 and Retry-After: the date of its end from",
        ),
        ({"trouble": "refuse"}, "refuses connections from"),
        ({"trouble": "hang"}, "answers nothing, and resets what it holds at the end, from"),
        (
            {"trouble": "slow", "slowdown": 9.0},
            "serves at 50% of its speed, answers after 9 times as long from",
        ),
        ({"fleet": 7}, "and 7 at once at 1 s"),
        ({"timeout": 0.5}, "from 1 client process, which gives up an attempt after 0.5 s"),
        ({"timeout": 0.5, "callers_per_client": 100}, "from 50 client processes, which give up"),
        ({"capacity": 600.0, "queue": 0.5}, "serves 600/s (1.2 × arrivals), queues 0.5 s of work"),
        ({"capacity": 600.0, "rejection_cost": 0.3}, "; rejecting costs 0.3 of serving"),
        ({"capacity": 600.0, "rate": 0.0, "fleet": 5}, "serves 600/s."),
    ],
)
def test_a_scenario_tells_what_it_is(changes, says):
    assert says in Scenario(**changes).told()
