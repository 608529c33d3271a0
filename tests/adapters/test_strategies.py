"""Strategies and scopes through a client: tokens on every way out, and what fails in a plug-in."""

from collections import Counter

import pytest

import forbear
from forbear import Fixed, Reason, RetryBudget, RetryPolicy, record_of
from forbear.strategies import AwsStandard, RetryRefused, RetryToken, TokenBucket

from ..lanes import ORIGIN, URL

one_lane = pytest.mark.adapters("httpx", "sync")

AT_ONCE = RetryPolicy(backoff=Fixed(0))


class OneWay(TokenBucket):
    """A bucket to which no success brings anything back."""

    def deposit(self, last_cost): ...


class Counting(AwsStandard):
    """Its retries cost 1 of 1,000 tokens; counts how often each token was ended."""

    def __init__(self):
        costs = {"cost": 1, "throttling_cost": 1, "timeout_cost": 1, "success_gain": 0}
        bucket = OneWay(1_000, **costs)
        super().__init__(max_attempts=4, bucket=bucket, backoff=Fixed(0))
        self.ends, self.begun = Counter(), []  # an id is a token's while it lives

    def acquire_initial_token(self, scope, now):
        self.begun.append(super().acquire_initial_token(scope, now))
        return self.begun[-1]

    def record_success(self, token, now):
        self.ends[id(token)] += 1
        super().record_success(token, now)

    def release(self, token, now):
        self.ends[id(token)] += 1
        super().release(token, now)

    def spent(self):
        assert sorted(self.ends) == sorted(map(id, self.begun))
        assert set(self.ends.values()) <= {1}
        return 1_000 - self.bucket.tokens


NO, TOO_LONG = (503, {"x-should-retry": "false"}), (503, {"Retry-After": "3600"})
WAYS_OUT = [  # and how many retries
    *(([200], 0), ([404], 0), ([503, 200], 1), ([503, 503, 503, 503], 3)),
    (["connect_error", "read_timeout", 200], 2),
    *(([503, last], 1) for last in (NO, "pool_timeout", TOO_LONG)),
]


@pytest.mark.lanes("httpx-sync", "aiohttp-asyncio")
async def test_every_way_out_ends_the_token_once(adapter, quick):
    for steps, spent in WAYS_OUT:
        strategy = Counting()
        async with adapter.client([*steps, 503, 200, *steps], strategy=strategy, **quick) as client:
            await adapter.outcome(client)
            assert strategy.spent() == spent
            await adapter.outcome(client)
            await adapter.outcome(client)
        assert strategy.spent() == 2 * spent + 1


class Well:
    """Two attempts, at once. What the broken ones below derive from."""

    quiet = False

    def acquire_initial_token(self, scope, now):
        return RetryToken()

    def refresh_token(self, token, failure, now, *, latest):
        if token.attempts >= 2:
            raise RetryRefused(Reason.ATTEMPTS_EXHAUSTED)
        return token

    def record_success(self, token, now): ...

    def release(self, token, now): ...


def with_methods(quiet=False, **methods):
    fields = {name: staticmethod(method) for name, method in methods.items()}
    return type("Mine", (Well,), {**fields, "quiet": quiet})()


def raising(error):
    def fail(*args, **named):
        raise error

    return fail


def token_with(name, value):
    def make(*args, **named):
        token = RetryToken()
        setattr(token, name, value)
        return token

    return make


RAISES = raising(ValueError("SECRET"))
WRONG = [
    *(RAISES, lambda *args, **named: "SECRET"),
    *(token_with("delay", delay) for delay in (-1.0, float("nan"))),
]


@one_lane
@pytest.mark.parametrize("method", ["acquire_initial_token", "refresh_token"])
async def test_what_is_wrong_in_it_never_loses_a_response(adapter, quick, caplog, logged, method):
    for wrong in WRONG:
        for quiet in (False, True):
            caplog.clear()
            strategy = with_methods(quiet, **{method: wrong})
            inner = adapter.watched([503, 200, 200, 503])
            async with adapter.client(inner, strategy=strategy, **quick) as client:
                responses = [await adapter.call(client, "GET", URL) for _ in range(4)]
            assert [response.status_code for response in responses] == [503, 200, 200, 503]
            assert record_of(responses[0]).reason is Reason.STRATEGY_FAILED
            (line,) = logged()
            assert line.startswith("strategy Mine raised ")
            assert "SECRET" not in caplog.text


@pytest.mark.smoke
async def test_a_strategy_that_raises_never_loses_a_response(adapter, quick):
    for method in ("acquire_initial_token", "refresh_token", "record_success", "release"):
        strategy = with_methods(**{method: RAISES})
        response = await adapter.once([503, 200], strategy=strategy, **quick)
        assert response.status_code in (200, 503)


@pytest.mark.smoke
async def test_what_a_scope_function_is_told(adapter, quick):
    told = []

    def scope(request):
        tenant = request.header("X-Tenant")
        told.append((request.method, request.url, tenant, request.header("X-None")))
        return tenant

    budget = RetryBudget(ratio=0, floor_per_second=0, burst=1, scope=scope)
    async with adapter.client([503], budget=budget, policy=AT_ONCE, **quick) as client:
        for tenant in ("blue", "red", "blue"):
            target, headers = f"{URL}/a%20b?q=1&r=%C3%A4", {"x-tenant": tenant}
            await adapter.call(client, "PUT", target, content=b"x", headers=headers)
    url = f"{ORIGIN}/thing/a%20b?q=1&r=%C3%A4"
    assert told == [("PUT", url, tenant, None) for tenant in ("blue", "red", "blue")]
    assert [budget.tokens(name, 0.0) for name in ("blue", "red", "green")] == [0, 0, 1]


@pytest.mark.smoke
@pytest.mark.parametrize("step", [503, "disconnect"], ids=["answer", "error"])
async def test_a_budget_that_raises_loses_nothing(adapter, quick, step, caplog, logged):
    budget = type("Broken", (RetryBudget,), {"spend": raising(OSError("SECRET"))})()
    async with adapter.client([step], budget=budget, policy=AT_ONCE, **quick) as client:
        for _ in range(2):
            outcome = await adapter.outcome(client)
            assert record_of(outcome).reason is Reason.STRATEGY_FAILED
    (line,) = [line for line in logged() if "OSError" in line]
    assert line.startswith("schedule, scope or limit raised OSError")
    assert "SECRET" not in caplog.text


@one_lane
async def test_a_budget_that_raises_at_a_deposit_costs_no_retry(adapter, quick, logged):
    budget = type("Broken", (RetryBudget,), {"deposit": raising(OSError("SECRET"))})()
    response = await adapter.once([503, 200], budget=budget, policy=AT_ONCE, **quick)
    assert response.status_code == 200
    assert any(line.startswith("schedule, scope or limit raised OSError") for line in logged())


@one_lane
async def test_a_budget_that_raises_when_it_is_refunded_costs_no_outcome(adapter, quick, logged):
    """The retry that it paid for is not sent, because its hook raises."""
    budget = type("Broken", (RetryBudget,), {"refund": raising(OSError("SECRET"))})()
    more = {"before_attempt": lambda request, attempt: 1 / 0, "policy": AT_ONCE}
    with pytest.raises(ZeroDivisionError):
        await adapter.once([503], budget=budget, **more, **quick)
    assert any(line.startswith("schedule, scope or limit raised OSError") for line in logged())


@one_lane
async def test_a_strategy_of_ones_own_may_look_closer(adapter, quick):
    seen = []
    strategy = with_methods(
        acquire_initial_token=lambda scope, now: seen.append(scope) or RetryToken(),
        scope_of=lambda request: f"{request.method} {request.origin}",
    )
    async with adapter.client([200], strategy=strategy, **quick) as client:
        await adapter.call(client, "GET", URL)
        await adapter.call(client, "HEAD", URL)
    assert seen == [f"GET {ORIGIN}", f"HEAD {ORIGIN}"]


@one_lane
@pytest.mark.parametrize("delay", [9.0, 1e300])
async def test_a_first_wait_beyond_the_deadline_is_refused(adapter, quick, caplog, logged, delay):
    methods = {"acquire_initial_token": token_with("delay", delay), "release": RAISES}
    policy, inner = RetryPolicy(total_timeout=5.0), adapter.watched([200])
    strategy = with_methods(**methods)
    with pytest.raises(adapter.DeadlineExceeded):
        await adapter.once(inner, strategy=strategy, policy=policy, **quick)
    assert (inner.requests, len(logged())) == ([], 1)
    assert "SECRET" not in caplog.text


@one_lane
async def test_fewer_attempts_by_context_and_by_request(adapter, quick):
    inner, strategy = adapter.watched([500]), AwsStandard(max_attempts=5, random=lambda: 0.0)

    async def sent(setting=None, **fields):
        before = len(inner.requests)
        with forbear.override(**fields):
            await adapter.call(client, "GET", URL, extensions={"forbear": setting})
        return len(inner.requests) - before

    async with adapter.client(inner, strategy=strategy, **quick) as client:
        assert [await sent(), await sent(max_attempts=2), await sent(max_attempts=9)] == [5, 2, 5]
        assert await sent(total_timeout=60) == 5
        settings = [False, {"max_attempts": 1}, {"max_attempts": 2}]
        assert [await sent(setting) for setting in settings] == [1, 1, 2]
    assert strategy.bucket.tokens == 500 - 14 * (4 + 1 + 4 + 4 + 1)
