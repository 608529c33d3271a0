"""A budget of one's own: it is asked last, once for each retry, and whatever fails in it loses
nothing.
"""

import pytest

import forbear
from forbear import CircuitBreaker, Fixed, RetryPolicy

pytestmark = pytest.mark.anyio
one_lane = pytest.mark.adapters("httpx", "sync")

URL = "http://api.example.com/thing"
ORIGIN = "http://api.example.com:80"
BOTH = pytest.mark.parametrize("step", [503, "disconnect"], ids=["answer", "error"])
AT_ONCE = RetryPolicy(backoff=Fixed(0), max_attempts=3)


class Counted:
    """A budget as a user may write one.

    Attributes:
        left: Tokens.
        spent: What each retry was asked for.
    """

    quiet = True
    hinted_cost = 0.25

    def __init__(self, left=0.0):
        self.left = left
        self.spent = []

    def deposit(self, scope, now):
        pass

    def spend(self, scope, cost, now):
        self.spent.append(cost)
        enough = self.left >= cost
        if enough:
            self.left -= cost
        return enough

    def refund(self, scope, cost):
        self.left += cost


@pytest.fixture
def options(clock):
    return {"policy": AT_ONCE, "clock": clock}


@pytest.mark.smoke
@BOTH
async def test_a_retry_is_spent_once_and_the_last_failure_not(adapter, options, step):
    budget = Counted(9)
    async with adapter.client([step], budget=budget, **options) as client:
        outcome = await outcome_of(adapter, client)
    assert forbear.record_of(outcome).reason == "attempts-exhausted"
    assert budget.spent == [1.0, 1.0]


@pytest.mark.smoke
@BOTH
async def test_a_budget_that_raises_loses_nothing(adapter, options, step, caplog):
    def fail(*arguments):
        raise OSError("secret://host")

    budget = Counted()
    budget.spend = fail
    async with adapter.client([step], budget=budget, **options) as client:
        for _ in range(2):
            outcome = await outcome_of(adapter, client)
            assert forbear.record_of(outcome).reason == "strategy-failed"
    (line,) = [record.getMessage() for record in caplog.records if "OSError" in record.getMessage()]
    assert line.startswith("schedule, scope or budget raised OSError")
    assert "secret" not in caplog.text


@one_lane
async def test_a_budget_that_cannot_deposit_loses_nothing(adapter, options, caplog):
    def fail(*arguments):
        raise ZeroDivisionError

    budget, breaker = Counted(9), CircuitBreaker(1)
    budget.quiet = False
    budget.deposit = fail
    async with adapter.client([503], budget=budget, breaker=breaker, **options) as client:
        assert (await adapter.call(client, "GET", URL)).status_code == 503
        options["clock"].advance(31)
        assert (await adapter.call(client, "GET", URL)).status_code == 503
    assert breaker.refused_for(ORIGIN, options["clock"].monotonic() + 61) == 0
    assert caplog.text.count("ZeroDivisionError") == 1


async def outcome_of(adapter, client, method="GET"):
    try:
        return await adapter.call(client, method, URL)
    except adapter.transport_error as error:
        return error
