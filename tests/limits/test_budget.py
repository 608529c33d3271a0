"""RetryBudget: the arithmetic, the edges of quiet, and what threads, forks and copies do to it."""

import pytest

from forbear import RetryBudget
from forbear.addons.budget import MOST_SCOPES
from forbear.core.request import Request, scope_of

from ..threads import hasty, in_threads

A, B = "http://a:80", "http://b:80"


def a_budget(**fields):
    return RetryBudget(**{"ratio": 0.25, "floor_per_second": 2.0, "burst": 10, **fields})


def drained(budget, scope=A, now=0.0):
    while budget.spend(scope, 1.0, now):
        pass
    return budget


def test_time_that_goes_back_takes_nothing_and_gives_nothing():
    """Threads read the clock before they get the lock: instants may arrive out of order."""
    budget = drained(a_budget(), now=10.0)
    assert not budget.spend(A, 1.0, 5.0)
    budget.deposit(A, 5.0)
    assert budget.tokens(A, 5.0) == 0.25
    assert budget.tokens(A, 10.5) == 1.25


def test_state_is_bounded_and_the_oldest_goes_first():
    """A crawler that meets a million hosts does not grow without end."""
    assert MOST_SCOPES == 1_024
    budget = a_budget(ratio=0, floor_per_second=0)
    for n in range(MOST_SCOPES):
        assert budget.spend(f"http://{n}:80", 1.0, 0.0)
    for n in range(MOST_SCOPES, 3 * MOST_SCOPES):
        assert budget.spend(f"http://{n}:80", 1.0, 0.0)
        assert len(budget._buckets) <= MOST_SCOPES
        if n == MOST_SCOPES:
            assert budget.tokens("http://0:80", 0.0) == 10  # forgotten, so full again
            assert budget.tokens("http://1:80", 0.0) == 9
    assert len(budget._buckets) == MOST_SCOPES


def scope_for(budget, path, origin=A):
    return scope_of(budget.scope, Request("GET", origin, target=path))


def test_scope_transport_is_one_bucket_for_all():
    budget = a_budget(scope="transport")
    assert scope_for(budget, "/1") == scope_for(budget, "/2", B) == ""


def test_a_function_says_who_shares_a_bucket():
    """One retry per 30 seconds for the same URL, whatever other URLs do."""
    budget = a_budget(ratio=0, floor_per_second=1 / 30, burst=1, scope=lambda one: one.url)
    one, two = scope_for(budget, "/1"), scope_for(budget, "/2")
    assert [budget.spend(one, 1.0, now) for now in (0.0, 0.0, 29.0)] == [True, False, False]
    assert [budget.spend(two, 1.0, now) for now in (10.0, 10.0, 31.0)] == [True, False, False]
    assert budget.spend(one, 1.0, 31.0)
    assert budget.tokens(f"{A}/2", 31.0) == pytest.approx(0.7)
    budget.refund(two, 1.0)
    budget.deposit(two, 40.0)
    assert budget.tokens(two, 40.0) == 1


def test_what_answers_no_text_is_a_type_error():
    with pytest.raises(TypeError, match="scope must return text, got NoneType"):
        scope_for(RetryBudget(scope=lambda request: None), "/")


def test_text_that_compares_as_it_likes_is_compared_as_text():
    """Nothing of a user's runs while the lock is held."""

    class Odd(str):
        __slots__ = ()

        def __eq__(self, other):
            raise AssertionError

        __hash__ = str.__hash__

    budget = RetryBudget(ratio=0, floor_per_second=0, burst=2, scope=lambda request: Odd("one"))
    assert budget.spend(scope_for(budget, "/1"), 1.0, 0.0)
    assert budget.spend(scope_for(budget, "/2"), 1.0, 0.0)
    assert budget.tokens("one", 0.0) == 0


def test_quiet_again_when_time_alone_has_filled_it():
    """3 tokens missing at 2 a second: a second and a half."""
    budget = a_budget()
    for _ in range(3):
        assert budget.spend(A, 1.0, 100.0)
    budget.deposit(B, 101.4)
    assert not budget.quiet
    budget.deposit(B, 101.5)
    assert budget.quiet


def test_a_bucket_that_fills_soon_does_not_fill_the_others():
    """A is full after 5 s, B after half a second: at 1 s A has the 2 tokens that time has added."""
    budget = drained(a_budget(), A)
    assert budget.spend(B, 1.0, 0.0)
    budget.deposit("http://c:80", 1.0)
    assert not budget.quiet
    assert budget.tokens(A, 1.0) == 2.0


def test_64_threads_never_overspend():
    """failsafe-go checks and then adds, so N racers all pass; here exactly the burst passes."""
    budget = RetryBudget(ratio=0, floor_per_second=0, burst=500)
    with hasty():
        bought = in_threads(64, lambda n: sum(budget.spend(A, 1.0, 0.0) for _ in range(100)))
    assert sum(bought) == 500
    assert budget.tokens(A, 0.0) == 0


def test_64_threads_lose_no_token():
    """Spent, refunded and deposited at once: what is left is what the sums say."""
    budget = RetryBudget(ratio=1, floor_per_second=0, burst=100_000)
    assert budget.spend(A, 50_000.0, 0.0)

    def work(n):
        for _ in range(50):
            assert budget.spend(A, 1.0, 0.0)
            assert budget.spend(A, 1.0, 0.0)
            budget.refund(A, 1.0)
            budget.deposit(A, 0.0)
            assert budget.spend(A, 1.0, 0.0)

    with hasty():
        in_threads(64, work)
    # each round: -2 + 1 + 1 - 1
    assert budget.tokens(A, 0.0) == 50_000 - 64 * 50
