"""What one process keeps of a fleet budget: what it has borrowed, and what it says of itself."""

from math import inf

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forbear import Origins, RetryBudget, RetryPolicy, deadline, override
from forbear.addons.lease import MOST_SCOPES, LeasedBudget
from forbear.httpx import RetryTransport

from ..threads import in_threads

A, B = "http://a.example:80", "http://b.example:80"


class Asking(LeasedBudget):
    """A budget that notes for which scope the background was to fetch a lease, and fetches none."""

    def __init__(self, **fallback):
        local = RetryBudget(**{"ratio": 0.5, "floor_per_second": 0, "burst": 2, **fallback})
        # With these draws a lease lasts 9 s, and a refusal is remembered for 0.75 s.
        super().__init__(hinted_cost=0.25, scope="origin", fallback=local, random=lambda: 0.5)
        self.asked = []

    def renew_soon(self, scope, now):
        self.asked.append(scope)


@pytest.fixture
def budget():
    return Asking()


def borrow(budget):
    """What the background takes along for the one scope that it was asked for."""
    (scope,) = budget.asked
    budget.asked.clear()
    report = budget.borrow(scope)
    assert report is not None
    return report


def lent(budget, scope, now, size, number=7_000):
    """Let a retry be spent in advance, and a lease repay it."""
    assert budget.spend(scope, 1.0, now)
    report = borrow(budget)
    budget.lend(report, size, number)
    return report


def test_the_first_retry_waits_for_nobody_and_the_next_lease_repays_it(budget):
    assert budget.spend(A, 1.0, 0.0)
    assert budget.fallback.tokens(A, 0.0) == 2 - 1
    report = borrow(budget)
    assert report.owed == 1
    budget.lend(report, 11, 7_000)
    assert budget.tokens(A, 0.0) == 10
    assert budget.fallback.tokens(A, 0.0) == 2
    assert [budget.spend(A, 1.0, 1.0) for _ in range(12)] == [True] * 12  # the last two in advance
    assert not budget.spend(A, 1.0, 1.0)


def test_a_retry_that_is_free_asks_for_nothing(budget):
    """Such as one to another origin, for a request that no server has seen."""
    assert budget.spend(A, 0.0, 0.0)
    assert budget.asked == []


def test_no_more_is_spent_in_advance_than_the_fallback_holds():
    """However long the fallback fills: else an outage would earn each process an allowance."""
    budget = Asking(floor_per_second=1)
    assert [budget.spend(A, 1.0, 0.0) for _ in range(3)] == [True, True, False]
    budget.refuse(borrow(budget))
    assert budget.fallback.tokens(A, 60.0) == 2
    assert not any(budget.spend(A, 1.0, float(now)) for now in range(60))
    assert budget.spend(B, 1.0, 60.0)


def test_a_call_that_needs_no_retry_asks_only_for_what_is_owed(budget):
    """Else what an outage has left owing would refuse the first retry after it."""
    for _ in range(2):
        budget.spend(A, 1.0, 0.0)
    budget.refuse(borrow(budget))
    budget.deposit(A, 0.7)
    assert budget.asked == []  # refused a moment ago
    budget.deposit(A, 0.8)
    budget.lend(borrow(budget), 2, 7_000)
    budget.deposit(A, 0.9)
    assert budget.asked == []


def test_a_process_that_owes_is_not_quiet(budget):
    budget.spend(A, 1.0, 0.0)
    budget.refuse(borrow(budget))
    for now in range(1, 30):
        budget.deposit(A, float(now))
        budget.refuse(borrow(budget))
    budget.deposit(A, 30.0)
    budget.lend(borrow(budget), 1, 7_000)
    for now in range(31, 41):
        assert not budget.quiet
        budget.deposit(A, float(now))
    assert budget.quiet


def test_a_lease_ends(budget):
    lent(budget, A, 100.0, size=6)
    assert budget.tokens(A, 108.9) == 5
    assert budget.spend(A, 1.0, 108.9)
    assert budget.tokens(A, 109.0) == 0
    assert budget.asked == []
    assert budget.spend(A, 1.0, 109.0)  # in advance
    assert budget.asked == [A]


def test_a_refund_never_makes_a_lease_larger(budget):
    budget.refund(A, 1.0)  # nothing was lent
    lent(budget, A, 0.0, size=3)
    assert budget.spend(A, 1.0, 0.0)
    for _ in range(3):
        budget.refund(A, 1.0)
    assert budget.tokens(A, 0.0) == 3  # the one that was repaid is given back too


def test_scopes_are_bounded(budget):
    for n in range(MOST_SCOPES):
        lent(budget, f"http://{n}:80", 0.0, size=3)
    lent(budget, A, 0.0, size=3)
    assert budget.tokens("http://0:80", 0.0) == 0
    assert budget.tokens("http://1:80", 0.0) == 2
    assert budget.tokens(A, 0.0) == 2


def test_a_refusal_is_remembered_for_its_origin(budget):
    """Nothing is asked for and nothing is paid in advance, as long as it is remembered."""
    assert budget.spend(A, 1.0, 0.0)
    budget.refuse(borrow(budget))
    assert not budget.spend(A, 1.0, 0.7)
    assert budget.asked == []
    assert budget.spend(B, 1.0, 0.7)
    assert budget.spend(A, 1.0, 0.75)
    assert budget.asked == [B, A]


def test_what_was_asked_twice_is_fetched_once(budget):
    """The second request finds the lease renewed, or refused."""
    assert budget.spend(A, 1.0, 0.0)
    report = borrow(budget)
    budget.spend(A, 1.0, 1.5)  # the first round trip takes so long
    assert budget.asked == [A]
    budget.lend(report, 7, 7_000)
    assert budget.borrow(A) is None
    assert budget.borrow(B) is None  # nobody has asked


def test_a_request_that_was_lost_is_repeated(budget):
    """An interruption may come between the decision to ask and the asking."""
    for now in (0.0, 0.5, 1.0):
        budget.spend(A, 0.25, now)
    assert budget.asked == [A, A]


def test_a_report_says_what_was_called_and_what_was_left():
    """Each call once: in the report after it, and never in another."""
    budget = Asking(burst=1)
    assert lent(budget, A, 100.0, size=4, number=111_000)[2:] == (0, 0.0, 0.0, 0, 0, 1)
    assert not budget.quiet
    for now in (100.5, 101.0):
        budget.deposit(A, now)
    budget.deposit(B, 101.0)
    assert budget.spend(A, 2.5, 102.0)
    report = borrow(budget)
    assert report[2:] == (2, 2.0, 0.0, 111_000, 3, 0)  # the lease runs, and is added to
    budget.lend(report, 4, 112_000)
    assert budget.tokens(A, 102.0) == 4.5
    assert budget.spend(A, 4.25, 103.0)
    assert borrow(budget)[2:] == (0, 1.0, 0.0, 112_000, 4, 0)
    # The one before got no answer; its lease is over.
    assert budget.spend(A, 1.0, 112.0)
    assert borrow(budget)[2:] == (0, 9.0, 0.25, 0, 0, 1)
    assert budget.spend(B, 1.0, 112.0)
    assert borrow(budget)[2:] == (1, 11.0, 0.0, 0, 0, 1)


def test_calls_are_counted_while_nothing_is_wrong(budget):
    """``count_call`` for those that succeed at once, ``deposit`` for any other."""
    lent(budget, A, 0.0, size=1)
    budget.deposit(A, 9.9)
    assert not budget.quiet
    budget.deposit(A, 10.0)  # ten seconds without a retry: quiet again
    assert budget.quiet
    budget.deposit(A, 10.0)
    for _ in range(4):
        budget.count_call()
    budget.spend(A, 1.0, 20.0)
    report = borrow(budget)
    assert report.calls == 1 + 1 + 1 + 4
    assert report.elapsed == 20.0  # since the last report, though some of them are younger
    assert not budget.quiet


def test_the_first_report_does_not_know_since_when_it_counted(budget):
    """Infinitely long: whoever keeps the bucket lets none of them count."""
    budget.count_call()
    budget.spend(A, 1.0, 5.0)
    assert borrow(budget)[2:] == (1, inf, 0.0, 0, 0, 1)


def test_threads_count_together(budget):
    def count(n):
        for _ in range(10_000):
            budget.count_call()

    in_threads(4, count)
    budget.spend(A, 1.0, 0.0)
    assert borrow(budget).calls == 40_000


def test_a_budget_of_this_process_stands_in(budget):
    """ratio 0.5, burst 2: two retries at once, then one for every two calls."""
    lent(budget, A, 0.0, size=9)
    assert budget.lose(1.0)
    assert budget.is_lost
    assert budget.tokens(A, 1.0) == 2
    assert [budget.spend(A, 1.0, 1.0) for _ in range(3)] == [True, True, False]
    budget.deposit(A, 1.0)
    assert not budget.spend(A, 1.0, 1.0)
    budget.deposit(A, 1.0)
    assert budget.spend(A, 1.0, 1.0)
    budget.refund(A, 1.0)
    assert budget.tokens(A, 1.0) == 1


def test_each_edge_is_reported_once(budget):
    budget.spend(A, 1.0, 0.0)
    report = borrow(budget)
    assert [budget.lose(0.0), budget.lose(0.0)] == [True, False]
    assert [budget.lend(report, 1, 7), budget.lend(report, 1, 7)] == [True, False]
    assert budget.lose(0.0)
    assert [budget.refuse(report), budget.refuse(report)] == [True, False]


def test_it_is_looked_for_less_and_less_often():
    """After 1 s, then 2, 4, 8 and 8; and one at a time."""
    budget = Asking(burst=1_000)
    budget.lose(0.0)
    now, looked = 0.0, []
    for _ in range(5):
        while not budget.asked:
            now += 0.5
            budget.spend(A, 1.0, now)
        looked.append(now)
        budget.spend(B, 1.0, now)
        assert budget.asked == [A, B]
        assert budget.borrow(A) is not None
        assert budget.borrow(B) is None
        budget.asked.clear()
        budget.lose(now)
    assert looked == [1.0, 2.0, 4.0, 8.0, 16.0]


def test_what_was_lent_before_is_gone_when_it_is_found(budget):
    """It returned by itself, and calls made meanwhile counted for the fallback."""
    lent(budget, A, 0.0, size=9)
    budget.lose(1.0)
    for _ in range(10):
        budget.deposit(A, 1.0)
    assert lent(budget, A, 2.0, size=1)[2:] == (0, 0.0, 0.0, 0, 0, 0)
    assert not budget.is_lost
    assert budget.tokens(A, 2.0) == 1


def test_a_lease_asked_for_before_the_loss_is_not_borrowed_after_it(budget):
    budget.spend(A, 1.0, 0.0)
    budget.lose(0.0)
    assert budget.borrow(A) is None
    budget.spend(A, 1.0, 1.0)
    assert budget.borrow(A) is not None


def test_a_process_is_quiet_without_its_keeper_too(budget):
    """Only once the fallback is full, since until then it needs each deposit."""
    budget.lose(0.0)
    assert budget.spend(A, 1.0, 0.0)
    budget.deposit(A, 60.0)
    assert not budget.quiet
    budget.deposit(A, 60.0)
    assert budget.quiet
    assert budget.spend(A, 1.0, 61.0)  # and the next retry ends that
    assert not budget.quiet
    budget.deposit(A, 61.0)
    assert budget.tokens(A, 61.0) == 1.5


STEPS = st.one_of(
    st.tuples(st.just("spend"), st.sampled_from([0.25, 1.0])),
    st.tuples(st.just("refund"), st.just(1.0)),
    st.tuples(st.just("fetch"), st.integers(0, 5)),
    st.tuples(st.just("call"), st.booleans()),
    st.tuples(st.just("wait"), st.floats(0, 12)),
)


@given(st.lists(STEPS, max_size=60))
def test_what_is_spent_was_lent_or_is_owed_and_every_call_is_reported_once(steps):
    """The keeper's books: lent + owed = spent + left over all reports; calls = calls reported."""
    budget = Asking(burst=2)
    now, borrowed, spent, left, calls, reported = 0.0, 0.0, 0.0, 0.0, 0, 0
    for what, value in [*steps, ("wait", 60.0), ("spend", 1.0), ("fetch", 0)]:
        if what == "spend":
            spent += value if budget.spend(A, value, now) else 0
        elif what == "refund" and spent >= value:
            before = balance(budget)
            budget.refund(A, value)
            spent -= balance(budget) - before
        elif what == "wait":
            now += value
        elif what == "call":
            calls += 1
            if budget.quiet and not value:  # it succeeded at once
                budget.count_call()
            else:
                budget.deposit(A, now)
        elif what == "fetch" and budget.asked:
            budget.asked.clear()
            report = budget.borrow(A)
            if report is None:
                continue
            left += report.left
            reported += report.calls
            if value:
                budget.lend(report, int(value), 7_000)
                borrowed += value
            else:
                budget.refuse(report)
        assert 0 <= of_lease(budget)[1] <= 2
        assert budget.tokens(A, now) >= 0
    assert borrowed == spent + left + balance(budget)
    assert reported + budget._leases[A].calls == calls


def of_lease(budget):
    """Tokens borrowed, those of a lease that is over too; and those owed."""
    lease = budget._leases.get(A)
    return (lease.tokens, lease.owed) if lease else (0.0, 0.0)


def balance(budget):
    return of_lease(budget)[0] - of_lease(budget)[1]


WAYS = {
    "fast path": {},
    "retry_if": {"retry_if": lambda response: False},
    "total_timeout": {"policy": RetryPolicy(total_timeout=9)},
    "origins": {"origins": Origins([A, B])},
    "origins in turn": {"origins": Origins([A, B], choose="round-robin")},
}


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
def test_every_call_is_counted_once(budget, options):
    """Whether it may go straight through or not, in a block or outside."""
    inner = httpx.MockTransport(lambda request: httpx.Response(200))
    with httpx.Client(transport=RetryTransport(inner, budget=budget, **options)) as client:
        for n in range(10):
            with override(max_attempts=2) if n % 3 else deadline(60.0):
                client.get(A)
            client.get(A)
    budget.spend(A, 1.0, 1e12)
    assert borrow(budget).calls == 20
