"""The presets keep their promises under the gate: one call on its own, and one bad replica of three."""

from dataclasses import replace
from itertools import pairwise

import pytest

from benchmarks.simulation import CONTENDERS, SCENARIOS, simulate
from benchmarks.simulation.contenders import GATED, Contender
from benchmarks.simulation.scenario import Scenario
from forbear import Exponential, RetryPolicy
from forbear.cli.explain import FIRST, hanging, play, unavailable

TROUBLE = {"trouble_at": 0.0, "trouble_for": 60.0, "duration": 60.0}
TWO_503 = Scenario(rate=0.0, fleet=1, fleet_at=0.0, service_time=0.0, first=2, **TROUBLE)
PRESETS = {
    "default": RetryPolicy(),
    "latency_sensitive": RetryPolicy.latency_sensitive(),
    "high_availability": RetryPolicy.high_availability(),
    "gateway": RetryPolicy.gateway(),
    "batch": RetryPolicy.batch(),
    # Those of docs/guides/settings.md.
    "payments": RetryPolicy(max_attempts=3, patience=5.0),
    "models": RetryPolicy(backoff=Exponential(base=1.0, cap=20.0), patience=300.0),
}
each = pytest.mark.parametrize("name", PRESETS)


@pytest.fixture(autouse=True)
def a_few_calls(monkeypatch):
    monkeypatch.setattr("forbear.cli.explain.CALLS", 50)


@each
def test_503_503_200_is_a_200(name):
    for seed in range(50):
        figures = simulate(TWO_503, Contender(name, name, PRESETS[name], GATED), seed=seed)
        assert (figures.success, figures.amplification) == (1.0, 3.0)


@each
def test_a_server_that_hangs_is_tried_three_times_at_least(name):
    """Also by who is in a hurry: one timeout makes no origin unhealthy, nor do two."""
    for call in play(PRESETS[name], hanging(1.0)):
        assert len(call.sent) >= 3
        waits = [later[0] - sooner[0] - 1.0 for sooner, later in pairwise(call.sent)]
        if name == "latency_sensitive":
            assert waits == pytest.approx([0.005, 0.01], abs=0.0101)


OUTLASTED = [("default", 5.0), ("high_availability", 5.0), ("batch", 60.0), ("models", 280.0)]
AN_HOUR = pytest.param("batch", 3500.0, marks=pytest.mark.release)


@pytest.mark.parametrize(("name", "seconds"), [*OUTLASTED, AN_HOUR])
def test_an_outage_is_outlasted(name, seconds):
    calls = play(PRESETS[name], unavailable(seconds))
    assert sum(call.reason is None for call in calls) >= 0.99 * len(calls)


@each
def test_no_more_attempts_than_max_attempts_but_for_who_is_patient(name):
    """Who is more patient than by default sends probes besides, never two within a second."""
    policy = PRESETS[name]
    for call in play(policy, unavailable())[:20]:
        if policy.patience <= RetryPolicy().patience:
            assert len(call.sent) <= policy.max_attempts
        probes = [at for at, why in call.sent if why == "probe"]
        assert all(later - sooner >= 0.75 for sooner, later in pairwise(probes))
        assert call.sent[0][1] == FIRST


@pytest.mark.parametrize(
    "world", ["script-429", "script-503", "script-one-of-two-by-turns", "frozen"]
)
def test_small_services_lose_no_call(world):
    """A rate limit that names no time, one of two replicas in turn, and a paused container."""
    for seed in range(3):
        found = simulate(SCENARIOS[world][0], CONTENDERS["forbear"], seed=seed)
        assert found.success == 1.0


@pytest.mark.parametrize("world", ["one-of-two", "one-of-two-by-turns"])
def test_one_bad_replica_of_two_costs_some_seconds(world):
    """Of half a minute later hardly a call is lost, where half would be without retries."""
    scenario = replace(SCENARIOS[world][0], client_rate=10.0, duration=90.0)
    found = simulate(scenario, CONTENDERS["forbear"], seed=0)
    assert found.success_between(0, 15) > 0.5
    assert found.success_between(30, 90) > 0.9


@each
def test_one_bad_replica_of_three_costs_a_fraction_of_a_second(name):
    """A third of the attempts get 503: 67 % without retries, 89 % with one, 96 % with two.

    From a cold start, when some retries are refused until a trial has shown that they do no harm.
    """
    scenario = replace(SCENARIOS["one-of-three-503"][0], client_rate=5.0, duration=100.0)
    figures = simulate(scenario, Contender(name, name, PRESETS[name], GATED), seed=0)
    assert figures.success >= 0.8
    assert figures.mean <= 0.6
