"""StandardStrategy: the default limits (test_limits.py) behind the interface of any strategy."""

import pytest

import forbear
from forbear import CircuitBreaker, Fixed, Reason, RetryBudget, RetryPolicy
from forbear.core.call import LATER, QUOTAS, REFUND, Call
from forbear.core.headers.quota import Quota
from forbear.core.request import Request
from forbear.engine.settings import limits_of
from forbear.strategies import RetryRefused, StandardStrategy

from ..failures import RESET, answer

A = "http://a:80"
NOW = 1_000.0


def a_strategy(budget=None, *, breaker=None, **fields):
    policy = RetryPolicy(**{"backoff": Fixed(1.0), "hint_spread": 0.0, **fields})
    return StandardStrategy(policy, budget=budget, breaker=breaker, random=lambda: 0.5)


def refresh(strategy, token, failure=RESET, latest=1e9):
    token.attempts += 1
    assert strategy.refresh_token(token, failure, 0.0, latest=latest) is token
    return token.delay


@pytest.mark.parametrize("first", ["record_success", "release"])
@pytest.mark.parametrize("second", ["record_success", "release"])
def test_both_ends_are_idempotent(first, second):
    """Cancelled before the second retry was sent: paid back once. Succeeded: it was sent."""
    budget = RetryBudget(ratio=0, floor_per_second=0, burst=20)
    strategy = a_strategy(budget)
    token = strategy.acquire_initial_token(A, 0.0)
    refresh(strategy, token)
    refresh(strategy, token)
    assert budget.tokens(A, 0.0) == 18
    token.attempts += first == "record_success"
    for end in (first, second, second):
        getattr(strategy, end)(token, 0.0)
    assert budget.tokens(A, 0.0) == (19 if first == "release" else 18)


def test_quiet_is_the_budgets_and_each_call_deposits_once():
    budget = RetryBudget(ratio=0.5, floor_per_second=0, burst=2)
    strategy = a_strategy(budget)
    assert strategy.quiet
    token = strategy.acquire_initial_token(A, 0.0)
    refresh(strategy, token)
    assert not strategy.quiet
    token.attempts += 1
    strategy.record_success(token, 0.0)
    assert budget.tokens(A, 0.0) == 1.0
    strategy.acquire_initial_token(A, 0.0)
    strategy.acquire_initial_token(A, 0.0)
    assert strategy.quiet


class Edges(list[str]):
    def emit(self, name, call, to_state, **edge):
        self.append(to_state)


def test_the_four_methods_alone_drive_the_breaker():
    """Failures and successes reach it, and a first attempt takes the probe's permit."""
    strategy = a_strategy(breaker=CircuitBreaker(2, open_for=10.0), backoff=Fixed(0.0))
    edges = Edges()
    for limit in strategy.limits.listed:
        limit.events = edges
    token = strategy.acquire_initial_token(A, 0.0)
    refresh(strategy, token)
    with pytest.raises(RetryRefused) as caught:
        refresh(strategy, token)
    assert caught.value.reason is Reason.CIRCUIT_OPEN
    strategy.release(token, 0.0)
    probe = strategy.acquire_initial_token(A, 10.0)
    with pytest.raises(RetryRefused) as caught:
        strategy.acquire_initial_token(A, 10.0)
    assert caught.value.send is False
    probe.attempts = 1
    strategy.record_success(probe, 10.0)
    assert edges == ["open", "half_open", "closed"]
    assert strategy.quiet


def test_a_retry_counts_for_a_circuit_that_has_closed_since_its_call_began():
    breaker = CircuitBreaker(2, failure_rate=None, open_for=0.1)
    strategy = a_strategy(breaker=breaker)
    token = strategy.acquire_initial_token(A, NOW)
    token.attempts = 1
    strategy.refresh_token(token, RESET, NOW, latest=1e9)  # it is sent a second later
    for failed, at in ((True, NOW), (False, NOW + 0.5)):  # meanwhile others open and close it
        permit = breaker.admit(A, at).permit
        breaker.record(A, failed=failed, sent_at=at, now=at, permit=permit)
    assert breaker.quiet
    token.attempts = 2
    strategy.refresh_token(token, RESET, NOW + 2, latest=1e9)
    breaker.record(A, failed=True, sent_at=NOW + 2, now=NOW + 2)
    assert breaker.state(A, NOW + 2) == "open"


def test_repr_is_one_line_of_state():
    assert repr(a_strategy(RetryBudget())) == "<StandardStrategy max_attempts=5 <RetryBudget 7/7>>"
    assert repr(a_strategy(max_attempts=2)) == "<StandardStrategy max_attempts=2 no limits>"


def test_what_a_transport_adds_learns_beside_the_breaker():
    """Of a strategy that has nothing but a breaker, which is asked without a walk through all."""
    slots, pacing = forbear.ConcurrencyLimit(start=10), forbear.Pacing()
    strategy = a_strategy(breaker=CircuitBreaker())
    limits = limits_of(strategy=strategy, concurrency=slots, pacing=pacing)
    call = Call(RetryPolicy(), Request("GET", A), limits, NOW, 5)
    assert limits.admit(call, NOW) == 0.0
    call.sending(NOW)
    call.notes[QUOTAS] = (Quota("requests", 0, 10, 100, 10),)
    limits.observe(call, answer(429), NOW + 0.1)
    limits.leave(call, NOW + 0.1)
    assert slots.lowest() == 7
    assert limits.admit(call, NOW + 0.2) > 0


def test_each_client_of_a_strategy_is_told_that_its_budget_is_exhausted():
    """Once; what the budget has is shared all the same."""
    strategy = a_strategy(RetryBudget(ratio=0, floor_per_second=0, burst=1), backoff=Fixed(0.0))
    clients, told = [limits_of(strategy=strategy) for _ in "ab"], []
    for limits in (*clients, *clients):
        call = Call(RetryPolicy(), Request("GET", A), limits, NOW, 5)
        limits.begin(call, 0.0, NOW)
        call.sending(NOW)
        for _ in "ab":
            limits.observe(call, RESET, NOW)
            limits.take(call, RESET, 0.0, NOW, NOW)
            call.notes.pop(REFUND, None)
        told.append(LATER in call.notes)
    assert told == [True, True, False, False]
