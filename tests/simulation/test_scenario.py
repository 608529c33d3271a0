"""A world that cannot be is refused with what to write instead."""

from dataclasses import replace

import pytest

from benchmarks.simulation import LONE, SCENARIOS, TROUBLES, Scenario


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"duration": 0}, "duration must be more than 0 seconds, got 0"),
        ({"rate": 1e9}, "from 1 to 100,000,000 calls, got 10,000,000,000"),
        ({"arrivals": "random"}, "arrivals must be one of 'even', 'poisson', got 'random'"),
        ({"fleet": 1.5}, "fleet must be a whole number of at least 0, got 1.5"),
        ({"capacity": 0.0}, "capacity must be more than 0, got 0.0; None: no limit"),
        ({"trouble_for": 9.0}, "the trouble must end before the calls do"),
        ({"workers": -1}, "workers must be a whole number of at least 0, got -1"),
        ({"rejection": "no"}, "rejection must be from 400 to 599, got 'no'"),
        ({"client_rate": 0.0}, "client_rate must be more than 0, got 0.0; None: one"),
        ({"trouble": "silent"}, "a silent backend needs clients with a timeout"),
        ({"status": 200}, "status must be from 400 to 599, got 200"),
        ({"retry_after": "soon"}, "retry_after must be a number of seconds, got 'soon'"),
        ({"flaky": 1.5}, "flaky must be from 0 to 1, got 1.5"),
        ({"bad_replicas": 1}, "bad_replicas must be at most replicas (0), got 1"),
        ({"balancing": "least"}, "balancing must be one of 'random', 'round-robin', 'sticky'"),
        ({"partial_failure": "hang"}, "responses that never come need clients with a timeout"),
        ({"speed": 1.5}, "speed must be from 0 to 1, got 1.5"),
        ({"trouble_every": 0.1}, "trouble_every must be more than trouble_for (0.2)"),
        ({"threads": 1.5}, "threads must be a whole number of at least 0, got 1.5"),
    ],
)
def test_a_mistake_is_told(changes, says):
    with pytest.raises((ValueError, TypeError)) as told:
        Scenario(**changes)
    assert says in str(told.value)


def test_the_troubles_are_those_of_the_study():
    """44, each with 500 calls a second; those that load can worsen with a fifth to spare."""
    assert len(TROUBLES) == 44
    assert next(iter(SCENARIOS)) == "blip"
    for scenario, about in TROUBLES.values():
        assert about
        assert (scenario.rate, scenario.arrivals, scenario.clients) == (500.0, "poisson", 10)
        assert scenario.capacity in (None, 600.0)
        assert scenario.rejection_cost == (0.1 if scenario.rejection == "refused" else 0.3)
        assert replace(scenario, client_rate=0.5).clients == 1_000
    for scenario, _ in LONE.values():
        assert (scenario.clients, scenario.capacity) == (1, None)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "returns 503 from 2 s to 2.2 s"),
        ({"trouble": "hang"}, "does not respond, and resets what it holds at the end, from"),
        ({"trouble": "slow", "slowdown": 9.0}, "50% of its speed, responds after 9 times as long"),
        ({"timeout": 0.5}, "from 1 client process, with a timeout of 0.5 s"),
        ({"capacity": 600.0, "queue": 0.5}, "600/s (1.2 × arrivals), queues 0.5 s of work"),
        ({"capacity": 600.0, "rejection_cost": 0.3}, ", rejecting costs 0.3 of serving"),
        ({"workers": 5, "pause": 1.0}, "and 5 in a loop with pauses of 1 s"),
        ({"client_rate": 5.0}, "from 100 client processes"),
        ({"share": 0.1, "sticky": True}, "Fault: 0.1 of the servers (sticky): returns 503"),
        ({"flaky": 0.3, "trouble_for": 0.0}, "Fault: 0.3 of the attempts: returns 503."),
        ({"replicas": 3, "bad_replicas": 1}, "1 of 3 replicas (random): returns 503, returns 503"),
        ({"broken_share": 0.2}, "a route with 0.2 of the calls: returns 500, returns 503 from 2 s"),
        ({"first": 8, "trouble": "reset"}, "for the first 8 attempts of a process: resets"),
        ({"threads": 8}, "from 1 client process, with 8 threads"),
        ({"frozen_at": 4.0, "frozen_for": 15.0}, "frozen for 15 s from 4 s on"),
        ({"trouble_every": 2.0}, "returns 503 from 2 s to 2.2 s, and each 2 s again"),
        ({"quota": 10, "thrash": 1.0, "cold_for": 3.0}, "2 times as much when full, a quota of 10"),
    ],
)
def test_a_scenario_tells_what_it_is(changes, says):
    assert says in Scenario(**changes).described()
