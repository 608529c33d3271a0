"""The part of a fleet budget that one process keeps: what it has borrowed, and what it says of
itself.
"""

from __future__ import annotations

import os
from math import inf
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forbear import Origins, RetryBudget, RetryPolicy, deadline, override
from forbear.httpx import RetryTransport
from forbear.shared.lease import MOST_SCOPES, LeasedBudget, Report

from ..threads import in_threads

A, B = "http://a.example:80", "http://b.example:80"


def a_budget(scope: str = "origin", **fallback: float) -> LeasedBudget:
    fallback = {"ratio": 0.5, "floor_per_second": 0, "burst": 2, **fallback}
    return LeasedBudget(
        hinted_cost=0.25, scope=scope, fallback=RetryBudget(**fallback, scope=scope)
    )  # type: ignore[arg-type]


def borrow(budget: LeasedBudget, scope: str, now: float, wanted: int = 1) -> Report:
    """As the loop and whoever fetches do it."""
    assert budget.needs_renewal(scope, now)
    borrowed = budget.borrow(scope, wanted, pause=1.0)
    assert borrowed is not None
    report, since = borrowed
    assert since == now
    return report


def lent(
    budget: LeasedBudget,
    scope: str,
    now: float,
    size: int,
    number: int = 7_000,
    lasts: float = 10.0,
) -> Report:
    report = borrow(budget, scope, now)
    budget.lend(scope, size, number, now, now + lasts)
    return report


# --- spending ---------------------------------------------------------------------------------


def test_nothing_is_spent_that_was_not_lent() -> None:
    budget = a_budget()
    assert budget.needs_renewal(A, 0.0)
    assert not budget.spend(A, 1.0, 0.0)
    lent(budget, A, 0.0, size=2)
    assert not budget.needs_renewal(A, 0.0)
    assert [budget.spend(A, 1.0, 0.0) for _ in range(3)] == [True, True, False]
    assert budget.needs_renewal(A, 0.0)


def test_a_scheduled_retry_costs_less() -> None:
    """Four quarters; with less than a whole token left it is time to borrow."""
    budget = a_budget()
    lent(budget, A, 0.0, size=1)
    assert budget.spend(A, 0.25, 0.0)
    assert budget.needs_renewal(A, 0.0)
    assert [budget.spend(A, 0.25, 0.0) for _ in range(4)] == [True, True, True, False]


def test_a_lease_ends() -> None:
    budget = a_budget()
    lent(budget, A, 100.0, size=5, lasts=10.0)
    assert budget.tokens(A, 109.9) == 5
    assert budget.spend(A, 1.0, 109.9)
    assert not budget.spend(A, 1.0, 110.0)
    assert budget.tokens(A, 110.0) == 0
    assert budget.needs_renewal(A, 110.0)


def test_a_refund_never_makes_a_lease_larger() -> None:
    budget = a_budget()
    budget.refund(A, 1.0)  # nothing was lent
    lent(budget, A, 0.0, size=2)
    assert budget.spend(A, 1.0, 0.0)
    budget.refund(A, 1.0)
    budget.refund(A, 1.0)
    assert budget.tokens(A, 0.0) == 2


def test_each_origin_has_its_own_unless_one_is_for_all() -> None:
    apart, together = a_budget(), a_budget("transport")
    for budget in (apart, together):
        lent(budget, A, 0.0, size=2)
    assert apart.tokens(B, 0.0) == 0
    assert together.tokens(B, 0.0) == 2
    assert together.spend(B, 2.0, 0.0)
    assert not together.spend(A, 1.0, 0.0)


def test_scopes_are_bounded() -> None:
    """The one least recently borrowed for is forgotten."""
    budget = a_budget()
    for n in range(MOST_SCOPES):
        lent(budget, f"http://{n}:80", 0.0, size=2)
    lent(budget, A, 0.0, size=2)
    assert budget.tokens("http://0:80", 0.0) == 0
    assert budget.tokens("http://1:80", 0.0) == 2
    assert budget.tokens(A, 0.0) == 2


# --- refusals ---------------------------------------------------------------------------------


def test_a_refusal_is_remembered_for_its_origin() -> None:
    budget = a_budget()
    borrow(budget, A, 0.0)
    budget.refuse(A, 0.0, 0.75)
    assert not budget.needs_renewal(A, 0.7)
    assert not budget.spend(A, 1.0, 0.7)
    assert budget.needs_renewal(B, 0.7)
    assert budget.needs_renewal(A, 0.75)


def test_who_comes_too_late_does_not_borrow_again() -> None:
    """Two threads found the lease used up; the second one finds it renewed, or refused."""
    budget = a_budget()
    assert budget.needs_renewal(A, 0.0)
    assert budget.needs_renewal(A, 0.0)
    assert budget.borrow(A, 1, 1.0) is not None
    budget.lend(A, 1, 7_000, 0.0, 10.0)
    assert budget.borrow(A, 1, 1.0) is None
    assert budget.borrow(A, 2, 1.0) is not None  # too small for the two of them
    budget.refuse(A, 0.0, 0.5)
    assert budget.borrow(A, 2, 1.0) is None
    assert budget.borrow(B, 1, 1.0) is None  # nobody has asked


# --- reports ----------------------------------------------------------------------------------


def test_a_report_says_what_was_called_and_what_was_left() -> None:
    """Each call once: in the report after it, and never in another."""
    budget = a_budget()
    assert lent(budget, A, 100.0, size=3, number=111_000) == (0, 0.0, 0.0, 0, 0)
    assert not budget.quiet
    for now in (100.5, 101.0):
        budget.deposit(A, now)
    budget.deposit(B, 101.0)
    assert budget.spend(A, 2.5, 101.0)
    assert lent(budget, A, 102.0, size=4, number=112_000) == (2, 2.0, 0.0, 111_000, 3)
    assert budget.tokens(A, 102.0) == 4.5
    assert budget.spend(A, 4.25, 102.0)
    assert borrow(budget, A, 103.0) == (0, 1.0, 0.0, 112_000, 4)
    # The one before got no answer; its lease is over.
    assert borrow(budget, A, 112.0) == (0, 9.0, 0.25, 0, 0)
    assert borrow(budget, B, 112.0) == (1, 11.0, 0.0, 0, 0)


def test_a_lease_that_runs_is_added_to() -> None:
    """Others may be about to spend what is there while more is fetched."""
    budget = a_budget()
    lent(budget, A, 0.0, size=2)
    report, _ = budget.borrow(A, 5, 1.0)  # type: ignore[misc]  # for five who wait
    assert report == (0, 0.0, 0.0, 7_000, 2)
    assert budget.spend(A, 1.0, 0.0)
    budget.lend(A, 4, 8_000, 0.0, 10.0)
    assert budget.tokens(A, 0.0) == 1 + 4
    budget.refund(A, 1.0)
    assert budget.tokens(A, 0.0) == 5


def test_calls_are_counted_while_nothing_is_wrong() -> None:
    """``count_call`` for those that succeed at once, ``deposit`` for any other."""
    budget = a_budget()
    lent(budget, A, 0.0, size=1)
    assert budget.spend(A, 1.0, 0.0)
    budget.deposit(A, 9.9)
    assert not budget.quiet
    budget.deposit(A, 10.0)  # ten seconds without a retry: quiet again
    assert budget.quiet
    budget.deposit(A, 10.0)
    for _ in range(4):
        budget.count_call()
    report = borrow(budget, A, 20.0)
    assert report.calls == 1 + 1 + 1 + 4
    assert report.elapsed == 20.0  # since the last report, though some of them are younger
    assert not budget.quiet
    assert borrow(budget, A, 21.0).calls == 0


def test_the_first_report_does_not_know_since_when_it_counted() -> None:
    """Infinitely long: whoever keeps the bucket lets none of them count."""
    budget = a_budget()
    budget.count_call()
    assert borrow(budget, A, 5.0) == (1, inf, 0.0, 0, 0)


def test_calls_counted_without_their_origin_are_as_old_as_the_quiet() -> None:
    budget = a_budget()
    lent(budget, A, 0.0, size=1)
    budget.deposit(A, 10.0)
    budget.count_call()
    assert borrow(budget, B, 30.0) == (2, 20.0, 0.0, 0, 0)


def test_threads_count_together() -> None:
    budget = a_budget()

    def count(n: int) -> None:
        for _ in range(10_000):
            budget.count_call()

    in_threads(4, count)
    assert borrow(budget, A, 0.0).calls == 40_000


def test_a_call_that_ends_after_the_quiet_is_counted_with_the_next_ones() -> None:
    """It began while nothing was wrong; meanwhile another call has borrowed."""
    budget = a_budget()
    assert borrow(budget, A, 0.0).calls == 0
    budget.count_call()
    budget.deposit(A, 10.0)
    assert borrow(budget, A, 20.0).calls == 2


# --- lost and found ---------------------------------------------------------------------------


def test_a_budget_of_this_process_stands_in() -> None:
    """ratio 0.5, burst 2: two retries at once, then one for every two calls."""
    budget = a_budget()
    lent(budget, A, 0.0, size=9)
    assert budget.lose(1.0, pause=1.0)
    assert budget.is_lost
    assert budget.tokens(A, 1.0) == 2
    assert [budget.spend(A, 1.0, 1.0) for _ in range(3)] == [True, True, False]
    budget.deposit(A, 1.0)
    assert not budget.spend(A, 1.0, 1.0)
    budget.deposit(A, 1.0)
    assert budget.spend(A, 1.0, 1.0)
    budget.refund(A, 1.0)
    assert budget.tokens(A, 1.0) == 1


def test_the_edge_is_told_once() -> None:
    budget = a_budget()
    assert [budget.lose(0.0, 1.0), budget.lose(0.0, 1.0)] == [True, False]
    assert [budget.lend(A, 1, 7, 0.0, 9.0), budget.lend(A, 1, 7, 0.0, 9.0)] == [True, False]
    assert budget.lose(0.0, 1.0)
    assert [budget.refuse(A, 0.0, 1.0), budget.refuse(A, 0.0, 1.0)] == [True, False]


def test_it_is_looked_for_less_and_less_often() -> None:
    """After 1 s, then 2, 4, 8 and 8; and one at a time."""
    budget = a_budget()
    budget.lose(0.0, pause=1.0)
    now, looked = 0.0, []
    for _ in range(5):
        while not budget.needs_renewal(A, now):
            now += 0.5
        looked.append(now)
        assert budget.needs_renewal(B, now)
        assert budget.borrow(A, 1, 1.0) is not None
        assert budget.borrow(B, 1, 1.0) is None
        budget.lose(now, pause=1.0)
    assert looked == [1.0, 2.0, 4.0, 8.0, 16.0]


def test_what_was_lent_before_is_gone_when_it_is_found() -> None:
    """It returned by itself, and calls made meanwhile counted for the fallback."""
    budget = a_budget()
    lent(budget, A, 0.0, size=9)
    budget.lose(1.0, pause=1.0)
    for _ in range(10):
        budget.deposit(A, 1.0)
    assert lent(budget, A, 2.0, size=1) == (0, 0.0, 0.0, 0, 0)
    assert not budget.is_lost
    assert budget.tokens(A, 2.0) == 1


def test_a_lease_asked_for_before_the_loss_is_not_borrowed_after_it() -> None:
    budget = a_budget()
    assert budget.needs_renewal(A, 0.0)
    budget.lose(0.0, pause=1.0)
    assert budget.borrow(A, 1, 1.0) is None
    assert budget.needs_renewal(A, 1.0)


def test_a_process_is_quiet_without_its_keeper_too() -> None:
    """Only once the fallback is full, since until then it needs each deposit."""
    budget = a_budget()
    borrow(budget, A, 0.0)
    budget.lose(0.0, pause=1.0)
    assert budget.spend(A, 1.0, 0.0)
    budget.deposit(A, 60.0)
    assert not budget.quiet
    budget.deposit(A, 60.0)
    assert budget.quiet
    assert budget.spend(A, 1.0, 61.0)  # and the next retry ends that
    assert not budget.quiet
    budget.deposit(A, 61.0)
    assert budget.tokens(A, 61.0) == 1.5


# --- processes --------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_has_borrowed_nothing() -> None:
    """Else a lease would be spent, and calls reported, by both."""
    budget = a_budget()
    lent(budget, A, 0.0, size=9)
    budget.deposit(A, 0.0)
    budget._lock.acquire()  # as by another thread, at the worst moment
    child = os.fork()
    if child == 0:
        try:
            assert budget.tokens(A, 0.0) == 0
            budget.count_call()
            assert borrow(budget, A, 1.0).calls == 1
            os._exit(0)
        finally:
            os._exit(1)
    budget._lock.release()
    assert os.waitpid(child, 0)[1] == 0
    assert budget.tokens(A, 0.0) == 9


# --- laws -------------------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("spend"), st.sampled_from([0.25, 1.0])),
        st.tuples(st.just("borrow"), st.integers(0, 5)),
        st.tuples(st.just("call"), st.booleans()),
        st.tuples(st.just("wait"), st.floats(0, 12)),
    ),
    max_size=60,
)


@settings(deadline=None)
@given(STEPS)
def test_what_is_spent_was_lent_and_every_call_is_reported_once(
    steps: list[tuple[str, float]],
) -> None:
    """The keeper's books: lent = spent + left over all reports; calls = calls reported."""
    budget = a_budget()
    now, borrowed, spent, left, calls, reported = 0.0, 0.0, 0.0, 0.0, 0, 0
    for what, value in [*steps, ("wait", 60.0), ("borrow", 0)]:
        if what == "spend":
            spent += value if budget.spend(A, value, now) else 0
        elif what == "wait":
            now += value
        elif what == "call":
            calls += 1
            if budget.quiet and not value:  # it succeeded at once
                budget.count_call()
            else:
                budget.deposit(A, now)
        elif budget.needs_renewal(A, now):
            report = borrow(budget, A, now)
            left += report.left
            reported += report.calls
            if value:
                budget.lend(A, int(value), 7_000, now, now + 10)
                borrowed += value
        assert 0 <= budget.tokens(A, now) < 1 + 5
    assert borrowed == spent + left
    assert reported == calls


# --- in a transport ---------------------------------------------------------------------------


WAYS: dict[str, dict[str, Any]] = {
    "fast path": {},
    "retry_if": {"retry_if": lambda response: False},
    "total_timeout": {"policy": RetryPolicy(total_timeout=9)},
    "origins": {"origins": Origins([A, B])},
    "origins in turn": {"origins": Origins([A, B], choose="round-robin")},
}


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
def test_every_call_is_counted_once(options: dict[str, Any]) -> None:
    """Whether it may go straight through or not, in a block or outside."""
    budget = a_budget()
    inner = httpx.MockTransport(lambda request: httpx.Response(200))
    with httpx.Client(transport=RetryTransport(inner, budget=budget, **options)) as client:
        for n in range(10):
            with override(max_attempts=2) if n % 3 else deadline(60.0):
                client.get(A)
            client.get(A)
    assert borrow(budget, A, 1e12).calls == 20
