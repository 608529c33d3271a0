"""Policies by name."""

import pytest

from forbear import CircuitBreaker, RetryBudget, RetryPolicy
from forbear.tools.simulation import CONTENDERS, SCENARIOS, Scenario, contender, simulate
from forbear.tools.simulation.contenders import custom


def budget_of(one):
    return one.strategy(one.policy, float).budget


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
        ("immediate", [0, 0, 0, 0, 0]),
        ("fixed", [0.1, 0.1, 0.1, 0.1, 0.1]),
        ("exponential", [0.1, 0.2, 0.4, 0.8, 1.6]),
        ("equal", [0.075, 0.15, 0.3, 0.6, 1.2]),
        ("full", [0.05, 0.1, 0.2, 0.4, 0.8]),
        ("decorrelated", [0.2, 0.35, 0.575, 0.9125, 1.41875]),  # half of 0.1 + 3 × the one before
        ("urllib3", [0] * 10),
        ("httpx-retries", [0] * 10),
        ("smg", [0.05, 0.075, 0.1125, 0.16875]),
        ("aws", [0.5, 1.0]),
    ],
)
def test_the_schedules_are_those_that_they_are_named_after(name, waits):
    assert middle_waits(contender(name)) == waits


def test_ours_are_the_defaults():
    assert (
        contender("forbear").policy == contender("forbear-without-budget").policy == RetryPolicy()
    )
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


def test_each_client_has_a_strategy_of_its_own():
    one = contender("forbear")
    assert budget_of(one) is not budget_of(one)


@pytest.mark.parametrize("name", ["ful", "", "full+bugdet", "+budget", "full+budget+budget"])
def test_an_unknown_name_is_told_with_the_known_ones(name):
    with pytest.raises(
        ValueError, match=r"there is no policy .*; (choose among none, |full can be full\+budget)"
    ):
        contender(name)


def test_a_policy_of_ones_own():
    one = custom(
        "mine: max_attempts=3 base=1, cap=9 jitter=decorrelated ratio=0.1 floor_per_second=0 burst=10"
    )
    assert one.name == "mine"
    assert one.policy.max_attempts == 3
    assert (one.policy.backoff.base, one.policy.backoff.cap, one.policy.backoff.jitter) == (
        1,
        9,
        "decorrelated",
    )
    budget = budget_of(one)
    assert (budget.ratio, budget.floor_per_second, budget.burst) == (0.1, 0, 10)
    assert simulate(Scenario(), one).policy == "mine"


def test_what_is_left_out_is_as_by_default():
    one = custom("jitter=0.2")
    assert one.name == "custom"
    assert one.policy.backoff.jitter == 0.2
    assert one.policy.replace(backoff=RetryPolicy().backoff) == RetryPolicy()
    assert budget_of(one).burst == RetryBudget().burst
    assert budget_of(custom("budget=none")) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("retries=3", "'retries=3' is not one of budget=none or max_attempts=…, "),
        ("base", "'base' is not one of"),
        ("max_attempts=0", "max_attempts must be at least 1"),
        ("max_attempts=many", "max_attempts must be a whole number"),
        ("base=fast", "base must be a number of seconds"),
        ("jitter=wild", "jitter must be one of"),
        ("burst=0", "burst must be at least 1"),
        ("budget=none burst=3", "budget=none contradicts burst"),
    ],
)
def test_a_mistake_in_it_is_told(text, says):
    with pytest.raises((ValueError, TypeError)) as told:
        custom(text)
    assert says in str(told.value)


def test_a_breaker_or_cooldown_may_be_added_to_any():
    """The strategy of a transport with that option, for the policy's own schedule."""
    for name in CONTENDERS:
        guarded, cooled = contender(f"{name}+breaker"), contender(f"{name}+cooldown")
        assert isinstance(guarded.strategy(guarded.policy, float).breaker, CircuitBreaker)
        assert cooled.strategy(cooled.policy, float).cooldown == "all"
        assert guarded.policy == cooled.policy == contender(name).policy


def test_an_open_circuit_refuses_the_rest_of_an_outage():
    """5 failures in a row open it for a second: of 100 calls in 200 ms few are sent, and of the
    second after it none.

    500 calls a second, 503 from 2.0 to 2.2 s. Each sent call fails after 5 ms; two more are sent in
    those 5 ms, so about 7 of the outage are sent, and open for 1 s means that about 500 calls are
    refused.
    """
    figures = simulate(SCENARIOS["blip"][0], contender("none+breaker"))
    assert 5 <= figures.refusals["attempts-exhausted"] <= 9
    assert 490 <= figures.refusals["circuit-open"] <= 515
