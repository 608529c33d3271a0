"""Policies by name."""

import pytest

from forbear import RetryBudget, RetryPolicy
from forbear.tools.simulation import CONTENDERS, SCENARIOS, contender, simulate
from forbear.tools.simulation.contenders import custom


def budget_of(one):
    return one.strategy(one.policy, float).limits.budget


def middle_waits(one):
    """The waits with every random part at its middle."""
    waits, previous = [], 0.0
    for attempt in range(1, one.policy.max_attempts):
        previous = one.policy.backoff.delay(attempt, previous, lambda: 0.5)
        waits.append(round(previous, 6))
    return waits


@pytest.mark.parametrize(
    ("name", "waits"),
    [
        ("none", []),
        ("exponential", [0.1, 0.2, 0.4, 0.8, 1.6]),
        ("equal", [0.075, 0.15, 0.3, 0.6, 1.2]),
        ("full", [0.05, 0.1, 0.2, 0.4, 0.8]),
        ("decorrelated", [0.2, 0.35, 0.575, 0.9125, 1.41875]),  # half of 0.1 + 3 × the one before
        ("urllib3", [0] * 10),
        ("smg", [0.05, 0.075, 0.1125, 0.16875]),
        ("aws", [0.5, 1.0]),
    ],
)
def test_the_schedules_are_those_that_they_are_named_after(name, waits):
    assert middle_waits(contender(name)) == waits


def test_ours_are_the_defaults():
    assert contender("forbear").policy == RetryPolicy()
    ours, default = budget_of(contender("forbear")), RetryBudget()
    for name in ("ratio", "floor_per_second", "burst", "hinted_cost"):
        assert getattr(ours, name) == getattr(default, name)
    assert budget_of(contender("forbear-without-budget")) is None


def test_a_budget_of_ten_percent_may_be_added_to_any():
    for name in CONTENDERS:
        one = contender(f"{name}+budget")
        budget = budget_of(one)
        assert one.name == f"{name}+budget"
        assert (budget.ratio, budget.floor_per_second, budget.burst) == (0.1, 0.0, 10)
        assert one.policy == CONTENDERS[name].policy


def test_a_policy_of_ones_own():
    """A setting that is left out is as by default."""
    one = custom("mine: max_attempts=3 base=1, cap=9 jitter=none ratio=0.2 burst=10")
    backoff, budget = one.policy.backoff, budget_of(one)
    assert (one.name, one.policy.max_attempts) == ("mine", 3)
    assert (backoff.base, backoff.cap, backoff.jitter) == (1, 9, "none")
    assert (budget.ratio, budget.burst) == (0.2, 10)
    assert budget.floor_per_second == RetryBudget().floor_per_second
    assert custom("jitter=0.2").name == "custom"
    assert budget_of(custom("budget=none")) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("retries=3", "'retries=3' is not one of max_attempts=…, "),
        ("base", "'base' is not one of"),
        ("max_attempts=0", "max_attempts must be at least 1"),
        ("burst=0", "burst must be at least 1"),
        ("budget=none burst=3", "budget=none is the only value of budget"),
    ],
)
def test_a_mistake_in_it_is_told(text, says):
    with pytest.raises((ValueError, TypeError)) as told:
        custom(text)
    assert says in str(told.value)


def test_an_open_circuit_refuses_the_rest_of_an_outage():
    """5 failures in a row open it for a second.

    500 calls a second, 503 from 2.0 to 2.2 s. Each sent call fails after 5 ms; two more are sent in
    those 5 ms, so about 7 of the outage are sent, and open for 1 s means that about 500 calls are
    refused.
    """
    figures = simulate(SCENARIOS["blip"][0], contender("none+breaker"))
    assert 5 <= figures.refusals["attempts-exhausted"] <= 9
    assert 490 <= figures.refusals["circuit-open"] <= 515
