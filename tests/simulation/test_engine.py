"""Whole runs: small ones worked out by hand, laws that hold for any, and what a strategy may do."""

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.simulation import CONTENDERS, Contender, Scenario, contender, simulate
from benchmarks.simulation.contenders import made
from benchmarks.simulation.scenario import TROUBLES
from forbear import RetryBudget, RetryPolicy


def standard(policy, *numbers):
    """The shipped limits, without a gate; with numbers, a budget of its own for each client."""
    budget = partial(RetryBudget, *numbers, hinted_cost=1.0) if numbers else None
    return Contender("test", "", policy, made(budget=budget))


SCENARIO = st.builds(
    Scenario, rate=st.sampled_from([20.0, 100.0]), duration=st.just(4.0),
    arrivals=st.sampled_from(["even", "poisson"]), fleet=st.sampled_from([0, 7]),
    client_rate=st.sampled_from([None, 2.0, 10.0]), timeout=st.sampled_from([0.05, 2.0]),
    capacity=st.sampled_from([None, 60.0]), queue=st.sampled_from([0.0, 0.2]),
    rejection=st.sampled_from([503, "refused"]), rejection_cost=st.sampled_from([0.0, 0.5]),
    thrash=st.sampled_from([0.0, 1.0]), quota=st.sampled_from([None, 30]),
    quota_window=st.just(1.0), trouble=st.sampled_from(TROUBLES), share=st.sampled_from([1.0, 0.2]),
    sticky=st.booleans(), first=st.sampled_from([None, 2]), cold_for=st.sampled_from([0.0, 1.0]),
    flaky=st.sampled_from([0.0, 0.2]), replicas=st.just(3), bad_replicas=st.sampled_from([0, 1]),
    balancing=st.sampled_from(["random", "round-robin", "sticky"]),
    partial_failure=st.sampled_from([503, "refused", "hang"]),
    broken_share=st.sampled_from([0.0, 0.2]), trouble_at=st.just(1.0),
    trouble_for=st.floats(0.0, 2.0), status=st.sampled_from([503, 429]),
    retry_after=st.sampled_from([None, 0.5, "end"]), slowdown=st.sampled_from([1.0, 30.0]),
)  # fmt: skip
NAMES = st.sampled_from([*CONTENDERS, "full+budget", "forbear+breaker", "urllib3+budget"])


@settings(max_examples=10)
@given(scenario=SCENARIO, name=NAMES, seed=st.integers(0, 1000))
def test_every_call_ends_once_and_every_attempt_is_counted_once(scenario, name, seed):
    one = contender(name)
    figures = simulate(scenario, one, seed=seed)
    assert figures.requests == scenario.callers
    succeeded = round(figures.success * figures.requests)
    assert succeeded + sum(figures.refusals.values()) == figures.requests
    assert sum(figures.served_per_bin) == succeeded
    assert sum(figures.lost_per_window) == figures.requests - succeeded
    assert figures.busy <= figures.peak_busy
    attempts = round(figures.amplification * figures.requests)
    assert sum(figures.attempts_per_bin) == attempts
    assert attempts <= figures.requests * one.policy.max_attempts
    assert attempts >= figures.requests - figures.refusals.get("circuit-open", 0)
    assert figures.within_1s <= figures.within_5s <= figures.success
    assert figures.held <= one.policy.patience + 60.0  # a hint's time comes on top
    assert max(figures.attempts_per_bin) / 0.05 == pytest.approx(figures.peak)
    assert figures == simulate(scenario, one, seed=seed)


@settings(max_examples=8)
@given(scenario=SCENARIO, seed=st.integers(0, 1000), ratio=st.sampled_from([0.0, 0.1, 0.5]))
def test_retries_stay_within_what_the_budgets_allow(scenario, seed, ratio):
    """Per client a burst of 3, and ratio for each call."""
    figures = simulate(scenario, standard(RetryPolicy(), ratio, 0.0, 3), seed=seed)
    retries = (figures.amplification - 1) * figures.requests
    assert retries <= ratio * figures.requests + 3 * scenario.clients + 1e-6


GATHER = Scenario(rate=0.0, fleet=20, fleet_at=0.0, duration=60.0, trouble_at=0.0, trouble_for=0.3)


def test_a_gather_is_held_and_let_go():
    """Of 20 calls that fail at 5 ms two leave the origin healthy: they come again at once, fail, and
    are held with the others until a probe has succeeded; then they go two by two.
    """
    figures = simulate(GATHER, contender("forbear"))
    assert (figures.success, figures.amplification, figures.peak_held) == (1.0, 2.1, 20)
    assert sum(figures.attempts_per_bin[2:10]) == 0
    assert 0.5 <= figures.held <= figures.distribution[-1][0] <= 3.1


def test_paced_processes_that_share_a_quota_are_hardly_throttled():
    """800 in each 2 s, 1,000 wanted, ten processes: a tenth of the 429s at most, and none fails."""
    world = Scenario(duration=4.0, client_rate=50.0, trouble_for=0.0, quota=800.0, quota_window=2.0)
    plain, paced = (simulate(world, contender(name)) for name in ("forbear", "forbear+pacing"))
    assert (plain.success, paced.success) == (1.0, 1.0)
    assert plain.amplification - 1 > 10 * (paced.amplification - 1)
