"""Policies by name."""

import pytest

from benchmarks.simulation import contender
from benchmarks.simulation.contenders import custom
from forbear import RetryBudget, RetryPolicy
from forbear.limits.gate import RetryGate
from forbear.strategies import AwsStandard


def budget_of(one):
    shared = [limit.shared for limit in one.limits(float).listed]
    return next((part for part in shared if isinstance(part, RetryBudget)), None)


def test_ours_are_the_defaults():
    """5, 10 and 20 s are the same but for patience; without a gate there is a budget instead."""
    assert contender("forbear").policy == RetryPolicy()
    for patience in (0.0, 5.0, 20.0):
        one = contender(f"forbear-{patience:g}")
        assert one.policy == RetryPolicy(patience=patience)
        assert type(one.limits(float).gate) is RetryGate
    for ungated in ("plain", "budget"):
        assert contender(ungated).policy == RetryPolicy()
        assert contender(ungated).limits(float).gate is None
    assert budget_of(contender("plain")) is None
    assert budget_of(contender("budget")).burst == RetryBudget().burst
    aws = contender("aws-standard").limits(float).listed[0].strategy
    assert type(aws) is AwsStandard


def test_a_policy_of_ones_own():
    """A setting that is left out is as by default."""
    one = custom("mine: max_attempts=3 base=1, cap=9 jitter=none ratio=0.2 burst=10 patience=3")
    backoff, budget = one.policy.backoff, budget_of(one)
    assert (one.name, one.policy.max_attempts, one.policy.patience) == ("mine", 3, 3.0)
    assert (backoff.base, backoff.cap, backoff.jitter) == (1, 9, "none")
    assert (budget.ratio, budget.burst) == (0.2, 10)
    assert budget.floor_per_second == RetryBudget().floor_per_second
    plain = custom("jitter=0.2")
    assert (plain.name, plain.policy.patience, budget_of(plain)) == ("custom", 10.0, None)
    assert type(plain.limits(float).gate) is RetryGate
    assert custom("gate=none").limits(float).gate is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("retries=3", "'retries=3' is not one of max_attempts=…, "),
        ("max_attempts=0", "max_attempts must be at least 1"),
    ],
)
def test_a_mistake_in_it_is_told(text, says):
    with pytest.raises((ValueError, TypeError)) as told:
        custom(text)
    assert says in str(told.value)
