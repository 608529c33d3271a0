"""What one process keeps of a fleet budget: what it has borrowed, and what it says of itself."""

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forbear import Origins, RetryBudget, RetryPolicy, deadline, override
from forbear.engine.clock import SYSTEM_CLOCK
from forbear.httpx import RetryTransport

redis = pytest.importorskip("forbear.redis")

A, B = "http://a.example:80", "http://b.example:80"
MOST_SCOPES = 1_024


class Asking(redis.RedisBudget):
    """A budget that notes for which scope the background was to fetch a lease, and fetches none."""

    def __init__(self, **fallback):
        local = RetryBudget(**{"ratio": 0.5, "floor_per_second": 0, "burst": 2, **fallback})
        # With these draws a lease lasts 9 s, and a refusal is remembered for 0.75 s.
        options = {"ratio": 1, "fallback": local, "random": lambda: 0.5}
        super().__init__(self, name="orders", **options)
        self.asked, self.at, self.reply = [], 0.0, [0, 0]

    def renew_soon(self, scope, now):
        self.asked.append(scope)
        self.at = now

    def eval(self, script, keys, key, floor, burst, calls, elapsed, *rest):
        """Redis."""
        left, number, size, owed, _ = rest
        self.report = calls, elapsed / 1000, left, number, size, owed
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply

    def borrow(self, size, number=7_000):
        """Let Redis lend so much to the one scope that was asked for; return what it was told."""
        (scope,) = self.asked
        self.asked.clear()
        self.reply = [size, number]
        self.renew(scope, self.at)
        return self.report

    def lose(self, now):
        self.reply = OSError("no Redis")
        self.renew(B, now)


@pytest.fixture
def budget():
    return Asking()


def lent(budget, scope, now, size, number=7_000):
    """Let a retry be spent in advance, and a lease repay it."""
    assert budget.spend(scope, 1.0, now)
    return budget.borrow(size, number)


def test_the_first_retry_waits_for_nobody_and_the_next_lease_repays_it(budget):
    assert budget.spend(A, 1.0, 0.0)
    assert budget.fallback.tokens(A, 0.0) == 2 - 1
    assert budget.borrow(11)[-1] == 1
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
    budget.borrow(0)
    assert budget.fallback.tokens(A, 60.0) == 2
    for now in range(1, 60):
        assert not budget.spend(A, 1.0, float(now))
        if budget.asked:
            budget.borrow(0)
    assert budget.spend(B, 1.0, 60.0)


def test_a_call_that_needs_no_retry_asks_only_for_what_is_owed(budget):
    """Else what an outage has left owing would refuse the first retry after it."""
    for _ in range(2):
        budget.spend(A, 1.0, 0.0)
    budget.borrow(0)
    budget.deposit(A, 0.7)
    assert budget.asked == []  # refused a moment ago
    budget.deposit(A, 0.8)
    budget.borrow(2)
    budget.deposit(A, 0.9)
    assert budget.asked == []


def test_a_lease_ends(budget):
    lent(budget, A, 100.0, size=6)
    assert budget.tokens(A, 108.9) == 5
    assert budget.spend(A, 1.0, 108.9)
    assert budget.tokens(A, 109.0) == 0
    assert budget.asked == []
    assert budget.spend(A, 1.0, 109.0)  # in advance
    assert budget.asked == [A]


def test_a_refund_goes_where_the_token_came_from(budget):
    budget.spend(A, 1.0, 0.0)
    budget.refund(A, 1.0)
    assert budget.fallback.tokens(A, 0.0) == 2
    budget.borrow(3)
    assert budget.spend(A, 1.0, 0.0)
    budget.refund(A, 1.0)
    assert budget.tokens(A, 0.0) == 3


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
    budget.borrow(0)
    assert not budget.spend(A, 1.0, 0.7)
    assert budget.asked == []
    assert budget.spend(B, 1.0, 0.7)
    budget.borrow(1)
    assert budget.spend(A, 1.0, 0.75)
    assert budget.asked == [A]


def test_there_is_one_round_trip_at_a_time(budget):
    """And who finds it under way asks with the next call."""
    assert budget.spend(A, 1.0, 0.0)
    assert budget.spend(A, 0.5, 0.5)
    assert budget.spend(B, 0.5, 0.5)
    budget.borrow(7)
    budget.deposit(B, 0.6)
    assert budget.asked == [B]


def test_a_round_trip_that_does_not_end_is_a_loss(budget):
    """After the two timeouts and a second; one that comes later is welcome."""
    assert budget.spend(A, 1.0, 0.0)
    budget.spend(A, 0.25, 1.05)
    assert not budget.is_lost
    budget.spend(A, 0.25, 1.1)
    assert budget.is_lost
    budget.borrow(7)
    assert not budget.is_lost


def test_a_report_says_what_was_called_and_what_was_left():
    """Each call once: in the report after it, and never in another."""
    budget = Asking(burst=1)
    assert lent(budget, A, 100.0, size=4, number=111_000) == (0, 0.0, 0.0, 0, 0, 1)
    for now in (100.5, 101.0):
        budget.deposit(A, now)
    budget.deposit(B, 101.0)
    assert budget.spend(A, 2.5, 102.0)
    # The lease runs, and is added to.
    assert budget.borrow(4, 112_000) == (2, 2.0, 0.0, 111_000, 3, 0)
    assert budget.tokens(A, 102.0) == 4.5
    assert budget.spend(A, 4.25, 103.0)
    assert budget.borrow(0) == (0, 1.0, 0.0, 112_000, 4, 0)
    # The one before was refused; its lease is over.
    assert budget.spend(A, 1.0, 112.0)
    assert budget.borrow(1) == (0, 9.0, 0.25, 0, 0, 1)
    assert budget.spend(B, 1.0, 112.0)
    assert budget.borrow(1) == (1, 11.0, 0.0, 0, 0, 1)


def test_a_budget_of_this_process_stands_in(budget):
    """ratio 0.5, burst 2: two retries at once, then one for every two calls."""
    lent(budget, A, 0.0, size=9)
    budget.lose(1.0)
    assert budget.is_lost
    assert budget.tokens(A, 1.0) == 2
    assert [budget.spend(A, 1.0, 1.0) for _ in range(3)] == [True, True, False]
    budget.deposit(A, 1.0)
    assert not budget.spend(A, 1.0, 1.0)
    budget.deposit(A, 1.0)
    assert budget.spend(A, 1.0, 1.0)
    budget.refund(A, 1.0)
    assert budget.tokens(A, 1.0) == 1


def test_each_edge_is_logged_once(budget, caplog):
    caplog.set_level("INFO", "forbear.redis")
    for lends in (False, False, True, True, False):
        if lends:
            budget.reply = [1, 7]
            budget.renew(A, 0.0)
        else:
            budget.lose(0.0)
    assert [line.levelname for line in caplog.records] == ["ERROR", "INFO", "ERROR"]


def test_it_is_looked_for_less_and_less_often():
    """After 1 s, then 1, 2, 4, 8 and 8 s later; and one at a time."""
    budget = Asking(burst=1_000)
    budget.lose(0.0)
    now, looked = 0.0, []
    for _ in range(6):
        while not budget.asked:
            now += 0.5
            budget.spend(A, 1.0, now)
        looked.append(now)
        budget.spend(B, 1.0, now)
        assert budget.asked == [A]
        budget.asked.clear()
        budget.lose(now)
    assert looked == [1.0, 3.0, 7.0, 15.0, 23.0, 31.0]


def test_what_was_lent_before_is_gone_when_it_is_found(budget):
    """It returned by itself, and calls made meanwhile counted for the fallback."""
    lent(budget, A, 0.0, size=9)
    budget.lose(1.0)
    for _ in range(10):
        budget.deposit(A, 1.0)
    assert lent(budget, A, 2.0, size=1) == (0, 0.0, 0.0, 0, 0, 0)
    assert not budget.is_lost
    assert budget.tokens(A, 2.0) == 1


STEPS = st.one_of(
    st.tuples(st.just("spend"), st.sampled_from([0.25, 1.0])),
    st.tuples(st.just("refund"), st.just(1.0)),
    st.tuples(st.just("fetch"), st.integers(0, 5)),
    st.tuples(st.just("call"), st.just(0)),
    st.tuples(st.just("wait"), st.floats(0, 1)),
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
            budget.refund(A, value)
            spent -= value
        elif what == "wait":
            now += value
            if budget.asked:  # the round trip is over before it is a loss
                what, value = "fetch", 1
        elif what == "call":
            calls += not budget.quiet
            budget.deposit(A, now)
        if what == "fetch" and budget.asked:
            report = budget.borrow(int(value))
            left += report[2]
            reported += report[0]
            borrowed += int(value)
        assert 0 <= of_lease(budget)[1] <= 2
        assert budget.tokens(A, now) >= 0
    tokens, owed = of_lease(budget)
    assert borrowed + owed == pytest.approx(spent + left + tokens)
    assert reported + budget._leases[A].calls == calls


def of_lease(budget):
    """Tokens borrowed, those of a lease that is over too; and those owed."""
    lease = budget._leases.get(A)
    return (lease.tokens, lease.owed) if lease else (0.0, 0.0)


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
    lent(budget, A, SYSTEM_CLOCK.monotonic(), size=1)
    with httpx.Client(transport=RetryTransport(inner, budget=budget, **options)) as client:
        for n in range(10):
            with override(max_attempts=2) if n % 3 else deadline(60.0):
                client.get(A)
            client.get(A)
    budget.spend(A, 1.0, 1e12)
    assert budget.borrow(1)[0] == 20
    assert not budget.quiet
    budget.deposit(A, 1e12 + 60.0)  # a minute later it is not counted any more
    assert budget.quiet
