"""Budgets that borrow: the loop fetches more on the failure path only, and loses nothing."""

import threading

import anyio
import pytest

import forbear
from forbear import CircuitBreaker, Fixed, Origins, RetryPolicy, StandardStrategy
from forbear.testing import FakeClock

pytestmark = pytest.mark.anyio
one_lane = pytest.mark.adapters("httpx", "sync")

URL = "http://api.example.com/thing"
ORIGIN = "http://api.example.com:80"
BOTH = pytest.mark.parametrize("step", [503, "disconnect"], ids=["answer", "error"])
AT_ONCE = RetryPolicy(backoff=Fixed(0), max_attempts=3)


class Borrowing:
    """A budget as a user may write one: it has what it has borrowed.

    Attributes:
        told: What it was asked, in order.
        threads: In which it was renewed.
    """

    quiet = True
    hinted_cost = 0.25

    def __init__(self, *lends, meanwhile=lambda: None):
        self.left = 0.0
        self.lends = list(lends)
        self.meanwhile = meanwhile
        self.told = []
        self.threads = []

    def deposit(self, scope, now):
        pass

    def spend(self, scope, cost, now):
        self.told.append("spend")
        enough = self.left >= cost
        if enough:
            self.left -= cost
        return enough

    def refund(self, scope, cost):
        self.left += cost

    def needs_renewal(self, scope, now):
        assert scope == ORIGIN
        return self.left < 1

    def renew(self, scope):
        assert scope == ORIGIN
        self.told.append("renew")
        self.threads.append(threading.current_thread())
        self.meanwhile()
        self.left += self.lends.pop(0)


@pytest.fixture
def options(clock):
    return {"policy": AT_ONCE, "clock": clock}


@pytest.mark.smoke
@BOTH
async def test_a_lease_is_fetched_before_it_is_spent_and_not_before_it_is_used_up(
    adapter, options, step
):
    """Two tokens are lent: one round trip for the first retry, none for the second."""
    budget = Borrowing(2)
    async with adapter.client([step, step, 200], budget=budget, **options) as client:
        response = await adapter.call(client, "GET", URL)
    assert forbear.record_of(response).retries == 2
    assert budget.told == ["renew", "spend", "spend"]
    here = threading.current_thread()
    assert all((thread is here) is not adapter.is_async for thread in budget.threads)


@one_lane
@BOTH
async def test_at_most_one_round_trip_for_each_retry_and_none_for_the_last_failure(
    adapter, options, step
):
    """Three attempts: two may be followed by another, the third may not."""
    budget = Borrowing(1, 1)
    async with adapter.client([step], budget=budget, **options) as client:
        outcome = await outcome_of(adapter, client)
    assert forbear.record_of(outcome).reason == "attempts-exhausted"
    assert budget.told == ["renew", "spend", "renew", "spend"]


@one_lane
@BOTH
async def test_what_is_refused_is_handed_over_with_its_reason(adapter, options, step):
    inner = adapter.watched([step])
    budget = Borrowing(0)
    events = []
    async with adapter.client(inner, budget=budget, on_event=[events.append], **options) as client:
        outcome = await outcome_of(adapter, client)
    assert forbear.record_of(outcome).reason == "budget-exhausted"
    assert budget.told == ["renew", "spend"]
    assert len(inner.requests) == 1
    assert [event.name for event in events] == ["attempt_failed", "budget_exhausted", "gave_up"]


NOT_AGAIN = {
    "success": (200, "GET", {}),
    "no-failure": (404, "GET", {}),
    "not-replayable": (503, "POST", {}),
    "server-no": ((503, {"x-should-retry": "false"}), "GET", {}),
    "too-long": ((503, {"Retry-After": "61"}), "GET", {}),
    "deadline": ((503, {"Retry-After": "5"}), "GET", {"policy": AT_ONCE.replace(total_timeout=2)}),
    "breaker": ("disconnect", "GET", {"breaker": CircuitBreaker(1)}),
}


@one_lane
@pytest.mark.parametrize(("step", "method", "more"), NOT_AGAIN.values(), ids=NOT_AGAIN)
async def test_nothing_is_fetched_for_a_call_that_is_not_sent_again(
    adapter, options, step, method, more
):
    """No I/O but for a retry, which is what "on the failure path only" means."""
    budget = Borrowing()
    async with adapter.client([step], budget=budget, **{**options, **more}) as client:
        await outcome_of(adapter, client, method)
    assert budget.told == []


@one_lane
async def test_a_lease_is_fetched_for_another_origin_whatever_this_one_asks(
    adapter, options, server, clock
):
    """Two minutes are too long for the first server; the second is asked at once, and paid for."""
    server.script("/thing", "503;retry-after=120", 200)
    budget = Borrowing(1)
    budget.needs_renewal = lambda scope, now: budget.left < 1
    budget.renew = lambda scope: setattr(budget, "left", budget.left + budget.lends.pop())
    there = server.url.replace("127.0.0.1", "localhost")
    async with adapter.client(
        budget=budget, origins=Origins([server.url, there]), **options
    ) as client:
        response = await adapter.call(client, "GET", server.url + "/thing")
    assert response.status_code == 200
    assert budget.told == ["spend"]
    assert clock.sleeps == []


@pytest.mark.smoke
@BOTH
async def test_a_budget_that_raises_loses_nothing(adapter, options, step, caplog):
    """Logged once by its class; the call goes on with what had been borrowed before."""

    def fail():
        raise OSError("secret://host")

    budget = Borrowing(0, meanwhile=fail)
    async with adapter.client([step], budget=budget, **options) as client:
        for _ in range(2):
            outcome = await outcome_of(adapter, client)
            assert forbear.record_of(outcome).reason == "budget-exhausted"
    (line,) = [record.getMessage() for record in caplog.records if "OSError" in record.getMessage()]
    assert line.startswith("schedule or budget raised OSError")
    assert "secret" not in caplog.text


@one_lane
async def test_a_question_that_raises_loses_nothing(adapter, options, caplog):
    budget = Borrowing()
    budget.needs_renewal = None  # not even callable
    async with adapter.client([503, 200], budget=budget, **options) as client:
        response = await adapter.call(client, "GET", URL)
    assert forbear.record_of(response).reason == "strategy-failed"
    assert budget.told == []
    assert "TypeError" in caplog.text


@one_lane
async def test_a_budget_that_cannot_deposit_loses_nothing(adapter, options, caplog):
    """Neither the answer of the first attempt nor the permit of a probe."""

    def fail(*arguments):
        raise ZeroDivisionError

    budget, breaker = Borrowing(9), CircuitBreaker(1)
    budget.quiet = False
    budget.deposit = fail
    async with adapter.client([503], budget=budget, breaker=breaker, **options) as client:
        assert (await adapter.call(client, "GET", URL)).status_code == 503
        options["clock"].advance(31)
        assert (await adapter.call(client, "GET", URL)).status_code == 503
    assert breaker.refused_for(ORIGIN, options["clock"].monotonic() + 61) == 0
    assert caplog.text.count("ZeroDivisionError") == 1


@one_lane
async def test_a_strategy_may_bring_a_budget_that_borrows(adapter, clock):
    budget = Borrowing(1)
    strategy = StandardStrategy(AT_ONCE, budget=budget)
    async with adapter.client([503, 200], strategy=strategy, clock=clock) as client:
        assert forbear.record_of(await adapter.call(client, "GET", URL)).retries == 1
    assert budget.told == ["renew", "spend"]


@one_lane
async def test_a_deadline_that_passes_meanwhile_ends_the_call(adapter):
    """The renewal took a second of the two; then a wait of two does not fit any more."""
    clock = FakeClock()
    budget = Borrowing(1, meanwhile=lambda: clock.sleep(1.0))
    policy = RetryPolicy(backoff=Fixed(1.5), total_timeout=2.0)
    async with adapter.client([503], budget=budget, policy=policy, clock=clock) as client:
        response = await adapter.call(client, "GET", URL)
    assert forbear.record_of(response).reason == "deadline"
    assert budget.told == ["renew"]


@pytest.mark.smoke
@pytest.mark.adapters("async")
async def test_calls_that_fail_together_fetch_one_after_the_other(adapter, options):
    """Twenty calls, ten tokens lent at a time: two round trips, and nobody is refused."""
    budget = Borrowing(10, 10)
    policy = AT_ONCE.replace(max_attempts=2)
    async with adapter.client(
        [503], budget=budget, policy=policy, clock=options["clock"]
    ) as client:
        await adapter.together(20, lambda n: adapter.call(client, "GET", URL))
    assert budget.told.count("renew") == 2
    assert budget.left == 0


@pytest.mark.smoke
@pytest.mark.adapters("async")
async def test_a_call_cancelled_while_a_lease_is_fetched_leaves_nothing_open(adapter, options):
    """It ends at once, though the thread does not; its failed response is closed."""
    fetching, go_on = threading.Event(), threading.Event()

    def meanwhile():
        fetching.set()
        go_on.wait(5)

    inner = adapter.watched([503])
    budget = Borrowing(1, meanwhile=meanwhile)
    async with adapter.client(inner, budget=budget, **options) as client:
        try:
            with anyio.fail_after(5):
                async with anyio.create_task_group() as group:
                    group.start_soon(adapter.call, client, "GET", URL)
                    while not fetching.is_set():
                        await anyio.sleep(0.001)
                    group.cancel_scope.cancel()
            assert inner.closings == [1]
        finally:
            go_on.set()


@pytest.mark.smoke
@pytest.mark.adapters("async")
async def test_a_deadline_does_not_wait_for_a_lease(adapter):
    """P4: the call ends at its deadline; the answer it has is handed over."""
    go_on = threading.Event()
    budget = Borrowing(1, meanwhile=lambda: go_on.wait(5))
    policy = AT_ONCE.replace(total_timeout=0.05)
    async with adapter.client([503], budget=budget, policy=policy) as client:
        try:
            with anyio.fail_after(2):
                response = await adapter.call(client, "GET", URL)
        finally:
            go_on.set()
    assert forbear.record_of(response).reason == "deadline"


@pytest.mark.smoke
@pytest.mark.adapters("sync")
async def test_a_kill_while_a_lease_is_fetched_leaves_nothing_open(adapter, options):
    """What is no Exception, as of gevent, goes through; the failed response is closed before."""

    class Kill(BaseException):
        pass

    def kill():
        raise Kill

    inner = adapter.watched([503])
    async with adapter.client(inner, budget=Borrowing(1, meanwhile=kill), **options) as client:
        with pytest.raises(Kill):
            await adapter.call(client, "GET", URL)
        if "httpx-family" in adapter.words:
            assert inner.closings == [1]


@pytest.mark.smoke
@pytest.mark.adapters("sync")
async def test_a_client_closed_in_the_wait_after_a_renewal_raises_what_the_call_has(adapter, clock):
    """The error of the attempt before, as without a renewal."""
    budget, closing = Borrowing(1, meanwhile=lambda: clock.sleep(1.0)), []
    options = {"policy": AT_ONCE.replace(backoff=Fixed(30)), "clock": clock, "budget": budget}
    options["on_event"] = [lambda event: closing[0]()]
    async with adapter.client(["disconnect"], **options) as client:
        closing.append(client.close)
        with pytest.raises(adapter.disconnect_error) as caught:
            await adapter.call(client, "GET", URL)
    assert len(forbear.record_of(caught.value).attempts) == 1


async def outcome_of(adapter, client, method="GET"):
    try:
        return await adapter.call(client, method, URL)
    except adapter.transport_error as error:
        return error
