"""StandardStrategy: policy and budget behind the interface that any strategy has."""

from __future__ import annotations

from typing import Any

import pytest

from forbear import (
    Failure,
    FailureKind,
    Fixed,
    Hint,
    Origins,
    Phase,
    Reason,
    RetryBudget,
    RetryPolicy,
    RetryRefused,
    RetryToken,
    StandardStrategy,
)

A = "http://a:80"
RESET = Failure(FailureKind.RESET, Phase.SENT, error="ReadError")


def answer(status: int, delay: float | None = None) -> Failure:
    return Failure(
        FailureKind.STATUS, Phase.ANSWERED, status=status, hint=Hint(delay, None, "retry-after")
    )


def a_strategy(budget: RetryBudget | None = None, **fields: Any) -> StandardStrategy:
    policy = RetryPolicy(**{"backoff": Fixed(1.0), "hint_spread": 0.0, **fields})
    return StandardStrategy(policy, budget=budget, random=lambda: 0.5)


def refresh(
    strategy: StandardStrategy, token: RetryToken, failure: Failure = RESET, latest: float = 1e9
) -> float:
    token.attempts += 1
    assert strategy.refresh_token(token, failure, 0.0, latest=latest) is token
    return token.delay


# --- what it answers --------------------------------------------------------------------------


def test_a_token_says_what_a_strategy_may_know_of_a_call() -> None:
    strategy = a_strategy()
    token = strategy.acquire_initial_token(A, 0.0)
    assert (token.delay, token.attempts, token.source) == (0.0, 0, "backoff")
    assert refresh(strategy, token) == 1.0
    assert refresh(strategy, token, answer(503, 3.0)) == 3.0
    assert token.source == "retry-after"
    assert repr(token) == "<StandardToken after 2 attempts, delay 3 s>"


@pytest.mark.parametrize(
    ("failure", "latest", "attempts", "reason", "delay"),
    [
        pytest.param(RESET, 1e9, 4, Reason.ATTEMPTS_EXHAUSTED, None, id="attempts"),
        pytest.param(answer(503, 61.0), 1e9, 1, Reason.RETRY_AFTER_TOO_LONG, 61.0, id="too long"),
        pytest.param(answer(503, 5.0), 4.0, 1, Reason.DEADLINE, 5.0, id="hint past the deadline"),
        pytest.param(RESET, 0.5, 1, Reason.DEADLINE, 1.0, id="backoff past the deadline"),
        pytest.param(RESET, -3.0, 1, Reason.DEADLINE, 1.0, id="deadline over"),
    ],
)
def test_it_refuses_before_it_takes(
    failure: Failure, latest: float, attempts: int, reason: Reason, delay: float | None
) -> None:
    """``RetryRefused`` says why, and nothing was spent."""
    budget = RetryBudget(burst=20)
    strategy = a_strategy(budget)
    token = strategy.acquire_initial_token(A, 0.0)
    token.attempts = attempts
    with pytest.raises(RetryRefused) as caught:
        strategy.refresh_token(token, failure, 0.0, latest=latest)
    assert (caught.value.reason, caught.value.retry_after) == (reason, delay)
    assert budget.tokens(A, 0.0) == 20
    assert budget.quiet


def test_the_budget_refuses_last() -> None:
    budget = RetryBudget(ratio=0, floor_per_second=0, burst=2)
    strategy = a_strategy(budget, max_attempts=9)
    token = strategy.acquire_initial_token(A, 0.0)
    assert [refresh(strategy, token), refresh(strategy, token)] == [1.0, 1.0]
    token.attempts += 1
    with pytest.raises(RetryRefused) as caught:
        strategy.refresh_token(token, RESET, 0.0, latest=1e9)
    assert (caught.value.reason, caught.value.retry_after) == (Reason.BUDGET_EXHAUSTED, 1.0)


def test_the_rest_of_a_body_that_broke_off_costs_a_fifth_of_a_hinted_retry() -> None:
    """0.25 × 0.2: twenty of them for one token, and refused all the same where there is none."""
    budget = RetryBudget(ratio=0, floor_per_second=0, burst=1)
    strategy = a_strategy(budget, max_attempts=99)
    token = strategy.acquire_initial_token(A, 0.0)
    broken = Failure(FailureKind.RESET, Phase.ANSWERED, error="ReadError", progress=True)
    for _ in range(19):
        refresh(strategy, token, broken)
    assert budget.tokens(A, 0.0) == pytest.approx(0.05)
    with pytest.raises(RetryRefused):
        refresh(strategy, token)
    drained = a_strategy(RetryBudget(ratio=0, floor_per_second=0, burst=1))
    assert drained.budget is not None
    assert drained.budget.spend(A, 1.0, 0.0)
    with pytest.raises(RetryRefused) as caught:
        refresh(drained, drained.acquire_initial_token(A, 0.0), broken)
    assert caught.value.reason is Reason.BUDGET_EXHAUSTED


def test_a_schedule_goes_on_from_its_own_last_wait() -> None:
    """Decorrelated from 1 s, drawn in the middle: 2, then between 1 and 3 × 2, although a server
    made 50 of it.
    """
    strategy = StandardStrategy(RetryPolicy(hint_spread=0.0), random=lambda: 0.5)
    token = strategy.acquire_initial_token(A, 0.0)
    token.attempts = 1
    assert strategy.refresh_token(token, answer(503, 50.0), 0.0, latest=1e9).delay == 50.0
    token.attempts = 2
    assert strategy.refresh_token(token, RESET, 50.0, latest=1e9).delay == 3.5


@pytest.mark.parametrize("wait", [-1.0, float("nan")])
def test_a_schedule_that_answers_nonsense_is_an_error_before_anything_is_taken(wait: float) -> None:
    class Nonsense:
        def delay(self, attempt: int, previous: float, random: Any) -> float:
            return wait

    budget = RetryBudget(burst=20)
    strategy = a_strategy(budget, backoff=Nonsense())
    token = strategy.acquire_initial_token(A, 0.0)
    with pytest.raises(ValueError, match="the backoff answered"):
        refresh(strategy, token)
    assert budget.tokens(A, 0.0) == 20


def test_without_a_budget_only_attempts_count() -> None:
    strategy = a_strategy(None, max_attempts=101)
    assert strategy.budget is None
    assert strategy.quiet
    token = strategy.acquire_initial_token(A, 0.0)
    assert sum(refresh(strategy, token) for _ in range(100)) == 100.0
    assert strategy.quiet


# --- ends -------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["record_success", "release"])
@pytest.mark.parametrize("second", ["record_success", "release"])
def test_both_ends_are_idempotent(first: str, second: str) -> None:
    """Whatever ends a token twice is paid back once."""
    budget = RetryBudget(ratio=0, floor_per_second=0, burst=20)
    strategy = a_strategy(budget)
    token = strategy.acquire_initial_token(A, 0.0)
    refresh(strategy, token)
    refresh(strategy, token)  # the second retry is bought, the first one was sent
    assert budget.tokens(A, 0.0) == 18
    getattr(strategy, first)(token, 0.0)
    getattr(strategy, second)(token, 0.0)
    getattr(strategy, second)(token, 0.0)
    assert budget.tokens(A, 0.0) == 19


def test_a_token_that_bought_nothing_gets_nothing() -> None:
    budget = RetryBudget(ratio=0, floor_per_second=0, burst=20)
    assert budget.spend(A, 5.0, 0.0)
    strategy = a_strategy(budget)
    strategy.release(strategy.acquire_initial_token(A, 0.0), 0.0)
    assert budget.tokens(A, 0.0) == 15


# --- shared state -----------------------------------------------------------------------------


def test_quiet_is_the_budgets() -> None:
    budget = RetryBudget(ratio=0, floor_per_second=1.0)
    strategy = a_strategy(budget)
    assert strategy.quiet
    token = strategy.acquire_initial_token(A, 0.0)
    refresh(strategy, token)
    assert not strategy.quiet
    strategy.acquire_initial_token(A, 1.0)
    assert strategy.quiet


def test_each_call_deposits_once() -> None:
    """Ratio counts calls, not attempts."""
    budget = RetryBudget(ratio=0.5, floor_per_second=0, burst=20)
    assert budget.spend(A, 10.0, 0.0)
    strategy = a_strategy(budget)
    token = strategy.acquire_initial_token(A, 0.0)
    refresh(strategy, token)
    assert budget.tokens(A, 0.0) == 9.5
    token.attempts += 1
    strategy.record_success(token, 0.0)
    assert budget.tokens(A, 0.0) == 9.5


def test_other_rules_on_the_same_budget() -> None:
    """``override`` and per-request settings change the rules, not the allowance."""
    budget = RetryBudget(ratio=0, floor_per_second=0, burst=20)
    strategy = a_strategy(budget)
    other = strategy.with_policy(RetryPolicy(max_attempts=2, backoff=Fixed(7.0)))
    token = other.acquire_initial_token(A, 0.0)
    assert refresh(other, token) == 7.0
    with pytest.raises(RetryRefused):
        refresh(other, token)
    assert other.budget is budget
    assert other.random is strategy.random
    assert strategy.policy.max_attempts == 4
    assert budget.tokens(A, 0.0) == 19


def test_one_budget_for_several_strategies() -> None:
    budget = RetryBudget(ratio=0, floor_per_second=0, burst=3)
    spent = 0
    for strategy in [a_strategy(budget) for _ in range(3)]:
        token = strategy.acquire_initial_token(A, 0.0)
        try:
            while True:
                refresh(strategy, token)
                spent += 1
        except RetryRefused:
            continue
    assert spent == 3


def test_repr_is_one_line_of_state() -> None:
    assert repr(a_strategy(RetryBudget())) == "<StandardStrategy max_attempts=4 <RetryBudget 7/7>>"
    assert repr(a_strategy(None, max_attempts=2)) == "<StandardStrategy max_attempts=2 <no budget>>"
    origins = Origins(["http://a", "http://b"])
    assert repr(StandardStrategy(RetryPolicy(), budget=None, origins=origins)).endswith(
        f"<no budget> {origins!r}>"
    )
