"""Strategies and scopes through every client: published scenarios, tokens on every way out, what
fails in them.
"""

import logging
import threading
from collections import Counter
from decimal import Decimal

import anyio
import pytest
import urllib3

import forbear
from forbear import (
    AwsStandard,
    Fixed,
    Reason,
    RetryBudget,
    RetryPolicy,
    RetryRefused,
    RetryToken,
    StandardStrategy,
    TokenBucket,
    record_of,
)
from forbear.testing import FakeClock

pytestmark = pytest.mark.anyio

ORIGIN = "http://api.example.com:80"
URL = "http://api.example.com/thing"
NOW = Fixed(0)


def logged(caplog):
    return [
        entry.getMessage()
        for entry in caplog.records
        if entry.name == "forbear" and entry.levelname == "ERROR"
    ]


async def outcome_of(adapter, client, method, url, **request):
    """The response, or the error in its place."""
    try:
        return await adapter.call(client, method, url, **request)
    except (
        adapter.transport_error,
        urllib3.exceptions.EmptyPoolError,
    ) as error:  # as a bare pool raises it
        return error


# The published scenarios, once more: through a real client, its door and its pool.


@pytest.mark.parametrize(
    ("capacity", "calls", "left"),
    [
        (500, [[500, 500, 200]], 486),  # 500 - 14 - 14 + 14
        (500, [[502, 502, 502]], 472),  # 500 - 14 - 14
        (14, [[500, 502]], 0),  # 14 - 14, and none for the next
        (0, [[500]], 0),
        (20, [[500, 502]], 6),  # 20 - 14, too little for the next
        (30, [[500, 502, 200], [500, 200]], 16),  # 30 - 14 - 14 + 14 - 14 + 14
        (500, [["read_timeout", "read_timeout", 200]], 486),  # a timeout costs 14 too
        (500, [[429, 429, 200]], 495),  # 500 - 5 - 5 + 5
        (
            500,
            [[502, 502, 502], [200], [200]],
            474,
        ),  # 472 + 1 + 1: not quiet, so successes are recorded
        (500, [[502, 502, 502], [404]], 473),  # an answer that is accepted
        (500, [[200], [200]], 500),
    ],
    ids=str,
)
async def test_what_is_left_of_the_quota(adapter, quick, capacity, calls, left):
    strategy = AwsStandard(bucket=TokenBucket(capacity), random=lambda: 0.5)
    inner = adapter.watched([step for steps in calls for step in steps])
    async with adapter.client(inner, strategy=strategy, **quick) as client:
        for _ in calls:
            await outcome_of(adapter, client, "GET", URL)
    assert strategy.bucket.tokens == left
    assert len(inner.requests) == sum(map(len, calls))


async def test_over_the_wire(adapter, server, quick):
    """Three attempts, 25 and 50 ms of fake time between them (half of 50 and 100): 486 are left."""
    strategy = AwsStandard(random=lambda: 0.5)
    server.script("/thing", "500", "503", 200)
    async with adapter.client(strategy=strategy, **quick) as client:
        response = await adapter.call(client, "GET", server.url + "/thing")
    assert response.status_code == 200
    assert quick["clock"].sleeps == pytest.approx([0.025, 0.05])
    assert strategy.bucket.tokens == 486
    assert len(server.requests()) == 3


async def test_a_retry_after_is_waited_in_full(adapter, quick):
    """AWS would come back after 1 + 5 s at most; what is too long for the policy ends the call, and
    takes nothing.
    """
    strategy = AwsStandard(random=lambda: 0.5)
    steps = [(429, {"Retry-After": "30"}), 200, (503, {"Retry-After": "61"})]
    async with adapter.client(steps, strategy=strategy, **quick) as client:
        assert (await adapter.call(client, "GET", URL)).status_code == 200
        response = await adapter.call(client, "GET", URL)
    assert quick["clock"].sleeps == [30.0]
    assert record_of(response).reason is Reason.RETRY_AFTER_TOO_LONG
    assert strategy.bucket.tokens == 500


# Every token ends once, and what was not sent comes back.


class Counting:
    """Any strategy, and how often each token it gave out was ended."""

    def __init__(self, strategy):
        self.strategy = strategy
        self.begun = 0
        self.ends = Counter()
        self._kept = []  # an id is a token's only as long as the token lives
        self._lock = threading.Lock()

    @property
    def quiet(self):
        return self.strategy.quiet

    def acquire_initial_token(self, scope, now):
        token = self.strategy.acquire_initial_token(scope, now)
        with self._lock:
            self.begun += 1
            self._kept.append(token)
        return token

    def refresh_token(self, token, failure, now, *, latest):
        return self.strategy.refresh_token(token, failure, now, latest=latest)

    def record_success(self, token, now):
        self._end(token)
        self.strategy.record_success(token, now)

    def release(self, token, now):
        self._end(token)
        self.strategy.release(token, now)

    def _end(self, token):
        with self._lock:
            self.ends[id(token)] += 1

    def left(self):
        """Tokens there, of a thousand."""
        if isinstance(self.strategy, AwsStandard):
            return self.strategy.bucket.tokens
        return self.strategy.budget.tokens(ORIGIN, 0.0)

    def check(self):
        assert len(self.ends) == self.begun
        assert set(self.ends.values()) <= {1}


def counting(kind, wait=0.0):
    """A strategy whose retries cost 1 of 1,000 tokens, which nothing but a refund brings back."""
    if kind == "aws":
        bucket = TokenBucket(
            1_000, cost=1, throttling_cost=1, timeout_cost=1, success_gain=0, returns_cost=False
        )
        return Counting(AwsStandard(max_attempts=4, bucket=bucket, backoff=Fixed(wait)))
    budget = RetryBudget(ratio=0, floor_per_second=0, burst=1_000)
    return Counting(StandardStrategy(RetryPolicy(backoff=Fixed(wait)), budget=budget))


@pytest.fixture(params=["standard", "aws"])
def kind(request):
    return request.param


@pytest.mark.parametrize(
    ("steps", "spent"),
    [
        ([200], 0),
        ([404], 0),
        ([503, 200], 1),
        ([503, 503, 503, 503], 3),
        (["connect_error", "read_timeout", 200], 2),
        ([503, (503, {"x-should-retry": "false"})], 1),
        ([503, "pool_timeout"], 1),
        ([503, (503, {"Retry-After": "3600"})], 1),
        ([(503, {"x-should-retry": "false"})], 0),
    ],
    ids=str,
)
async def test_every_way_out_ends_the_token_once(adapter, quick, kind, steps, spent):
    """What was sent is paid for, and nothing else; also where some origin was unwell before."""
    strategy = counting(kind)
    async with adapter.client([*steps, 503, 200, *steps], strategy=strategy, **quick) as client:
        await outcome_of(adapter, client, "GET", URL)
        assert strategy.left() == 1_000 - spent
        strategy.check()
        await outcome_of(adapter, client, "GET", URL)
        await outcome_of(adapter, client, "GET", URL)
    assert strategy.left() == 1_000 - 2 * spent - 1
    strategy.check()


@pytest.mark.adapters("async")
@pytest.mark.parametrize("unwell", [False, True], ids=["well", "unwell"])
@pytest.mark.parametrize(
    "steps", [[], [503], [503, "read_error"]], ids=["attempt-1", "attempt-2", "attempt-3"]
)
async def test_cancelled_while_sending(adapter, kind, steps, unwell):
    """The retry that is under way stays paid for; the token ends once."""
    strategy = counting(kind)
    reached = anyio.Event()

    class Stuck:
        answering = adapter.watched([*([503, 200] if unwell else []), *steps, 200])
        until = len(steps) + 2 * unwell

        async def handle_async_request(self, request):
            if len(self.answering.requests) < self.until:
                return await self.answering.handle_async_request(request)
            reached.set()
            return await anyio.sleep_forever()

        async def aclose(self):
            pass

    async with adapter.client(Stuck(), strategy=strategy) as client:
        if unwell:
            await adapter.call(client, "GET", URL)
        before = strategy.left()
        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                group.start_soon(adapter.call, client, "GET", URL)
                await reached.wait()
                group.cancel_scope.cancel()
    assert strategy.left() == before - len(steps)
    strategy.check()


@pytest.mark.adapters("async")
@pytest.mark.parametrize("step", [503, "connect_error"], ids=["answer", "error"])
async def test_cancelled_while_sleeping(adapter, kind, step):
    """A hundred waits cut at once: every token is back."""
    strategy = counting(kind, wait=30.0)
    sleeping = []
    async with adapter.client([step], strategy=strategy, on_event=[sleeping.append]) as client:
        with anyio.fail_after(10):
            async with anyio.create_task_group() as group:
                for _ in range(100):
                    group.start_soon(adapter.call, client, "GET", URL)
                while sum(event.name == "retry_scheduled" for event in sleeping) < 100:
                    await anyio.sleep(0.005)
                assert strategy.left() == 900
                group.cancel_scope.cancel()
    assert strategy.left() == 1_000
    strategy.check()


@pytest.mark.adapters("httpx-family", "async")
async def test_cancelled_while_the_hook_refreshes_a_token(adapter, kind):
    """The retry that the hook was called for was not sent, so what bought it is back."""
    strategy = counting(kind)
    reached = anyio.Event()

    async def refresh(request, attempt):
        reached.set()
        await anyio.sleep_forever()

    inner = adapter.watched([503, 200])
    async with adapter.client(inner, strategy=strategy, before_attempt=refresh) as client:
        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                group.start_soon(adapter.call, client, "GET", URL)
                await reached.wait()
                assert strategy.left() == 999
                group.cancel_scope.cancel()
    assert len(inner.requests) == 1
    assert strategy.left() == 1_000
    strategy.check()


class Interrupted(FakeClock):
    def sleep(self, seconds):
        raise KeyboardInterrupt


@pytest.mark.adapters("sync")
async def test_interrupted_while_sleeping(adapter, kind):
    strategy = counting(kind, wait=1.0)
    inner = adapter.watched([503, 200])
    async with adapter.client(inner, strategy=strategy, clock=Interrupted()) as client:
        with pytest.raises(KeyboardInterrupt):
            await adapter.call(client, "GET", URL)
    assert len(inner.requests) == 1
    assert strategy.left() == 1_000
    strategy.check()


@pytest.mark.adapters("sync")
@pytest.mark.parametrize("before", [0, 1])
async def test_interrupted_while_sending(adapter, quick, kind, before):
    strategy = counting(kind)
    inner = adapter.watched([503, 200] + [503] * before + [KeyboardInterrupt()])
    async with adapter.client(inner, strategy=strategy, **quick) as client:
        await adapter.call(client, "GET", URL)
        with pytest.raises(KeyboardInterrupt):
            await adapter.call(client, "GET", URL)
    assert strategy.left() == 999 - before
    strategy.check()


@pytest.mark.adapters("sync")
async def test_closed_while_sleeping(adapter, kind):
    """A thread that waits is woken by close(); what its retry had cost is back."""
    strategy = counting(kind, wait=30.0)
    sleeping, answers = threading.Event(), []

    def tell(event):
        if event.name == "retry_scheduled":
            sleeping.set()

    async with adapter.client([503], strategy=strategy, on_event=[tell]) as client:

        async def call(n):
            answers.append((await adapter.call(client, "GET", URL)).status_code)

        async with anyio.create_task_group() as group:
            group.start_soon(adapter.together, 1, call)
            await anyio.to_thread.run_sync(sleeping.wait)
            await adapter.close(client)
    assert answers == [503]
    assert strategy.left() == 1_000
    strategy.check()


async def test_many_calls_at_once(adapter, quick, kind):
    """In threads, or in tasks: each call's own token, and the sum is what was sent."""
    strategy = counting(kind)
    inner = adapter.watched([503, 200, "connect_error", 503, 404, 502])
    done = Counter()

    async def call(n):
        for _ in range(5):
            outcome = await outcome_of(adapter, client, "GET", URL)
            done["calls"] += 1
            done["retries"] += record_of(outcome).retries

    async with adapter.client(inner, strategy=strategy, **quick) as client:
        await adapter.together(8, call)
    assert done["calls"] == 40
    assert len(inner.requests) >= 40
    assert strategy.left() == 1_000 - (len(inner.requests) - 40)
    strategy.check()


# A strategy that fails.


class Well:
    """Two attempts, at once. What the broken ones below derive from."""

    quiet = False

    def acquire_initial_token(self, scope, now):
        return RetryToken()

    def refresh_token(self, token, failure, now, *, latest):
        if token.attempts >= 2:
            raise RetryRefused(Reason.ATTEMPTS_EXHAUSTED)
        return token

    def record_success(self, token, now):
        pass

    def release(self, token, now):
        pass


class Quiet(Well):
    quiet = True


class Unset(RetryToken):
    def __init__(self):
        pass


class Frozen:
    __slots__ = ()
    delay = 0.0
    source = "mine"


def raising(error):
    def fail(*args, **named):
        raise error

    return fail


def token_with(**fields):
    def make(*args, **named):
        token = RetryToken()
        for name, value in fields.items():
            setattr(token, name, value)
        return token

    return make


WRONG = {
    "raises": raising(ValueError("SECRET")),
    "refuses without a Reason": raising(RetryRefused(forbear.FailureKind.DNS)),
    "refuses for a word": raising(RetryRefused(Reason.DEADLINE, retry_after="SECRET")),
    "refuses for NaN": raising(RetryRefused(Reason.DEADLINE, retry_after=float("nan"))),
    "refuses for a time beyond float": raising(RetryRefused(Reason.DEADLINE, retry_after=10**400)),
    "no token": lambda *args, **named: None,
    "text": lambda *args, **named: "SECRET",
    "a class": lambda *args, **named: RetryToken,
    "frozen": lambda *args, **named: Frozen(),
    "unset": lambda *args, **named: Unset(),
    "negative": token_with(delay=-1.0),
    "NaN": token_with(delay=float("nan")),
    "infinite": token_with(delay=float("inf")),
    "word": token_with(delay="SECRET"),
    "None": token_with(delay=None),
    "complex": token_with(delay=1j),
    "decimal NaN": token_with(delay=Decimal("nan")),
    "beyond float": token_with(delay=10**400),
}


@pytest.mark.parametrize("base", [Well, Quiet], ids=["asked first", "asked late"])
@pytest.mark.parametrize("method", ["acquire_initial_token", "refresh_token"])
@pytest.mark.parametrize("wrong", sorted(WRONG))
async def test_what_is_wrong_in_it_never_loses_a_response(
    adapter, quick, caplog, base, method, wrong
):
    """The call ends with what it has, strategy-failed; told once in the log, by class name; the
    next call too.
    """
    strategy = type("Mine", (base,), {method: staticmethod(WRONG[wrong])})()
    inner = adapter.watched([503, 200, 200, 503])
    async with adapter.client(inner, strategy=strategy, **quick) as client:
        response = await adapter.call(client, "GET", URL)
        assert response.status_code == 503
        assert record_of(response).reason is Reason.STRATEGY_FAILED
        assert (await adapter.call(client, "GET", URL)).status_code == 200
        assert (await adapter.call(client, "GET", URL)).status_code == 200
        assert (await adapter.call(client, "GET", URL)).status_code == 503
    assert len(inner.requests) == 4
    (line,) = logged(caplog)
    assert line.startswith("strategy Mine raised ")
    assert "SECRET" not in caplog.text


@pytest.mark.parametrize("wrong", ["source", "attempts"])
async def test_a_source_that_is_no_text_is_wrong_too(adapter, quick, caplog, wrong):
    strategy = Well()
    strategy.refresh_token = (
        token_with(source=None) if wrong == "source" else (lambda *args, **named: object())
    )
    async with adapter.client([503, 200], strategy=strategy, **quick) as client:
        response = await adapter.call(client, "GET", URL)
    assert (response.status_code, record_of(response).reason) == (503, Reason.STRATEGY_FAILED)
    assert len(logged(caplog)) == 1


@pytest.mark.parametrize("base", [Well, Quiet], ids=["asked first", "asked late"])
@pytest.mark.parametrize("end", ["record_success", "release"])
async def test_an_end_that_fails_costs_nothing(adapter, quick, caplog, base, end):
    """The verdict stands, whatever happens when the token is ended."""
    strategy = type("Mine", (base,), {end: staticmethod(raising(RetryRefused(Reason.DEADLINE)))})()
    async with adapter.client([200, 503, 200, 503], strategy=strategy, **quick) as client:
        statuses = [(await adapter.call(client, "GET", URL)).status_code for _ in range(3)]
    assert statuses == [200, 200, 503]
    assert logged(caplog) == [
        "strategy Mine raised RetryRefused; the call goes on without it (logged once)"
    ]


@pytest.mark.parametrize("reason", [Reason.DEADLINE, Reason.CIRCUIT_OPEN])
async def test_a_release_that_fails_before_anything_was_sent_is_told_too(
    adapter, quick, caplog, reason
):
    """A first wait that the deadline does not allow, and a refusal by a strategy whose scope_of
    fails.
    """

    class Mine(Well):
        release = staticmethod(raising(ValueError("SECRET")))

        def acquire_initial_token(self, scope, now):
            if reason is Reason.CIRCUIT_OPEN:
                raise RetryRefused(reason, send=False)
            return RetryToken(9.0)

        if reason is Reason.CIRCUIT_OPEN:
            scope_of = staticmethod(raising(KeyError("SECRET")))

    async with adapter.client(
        [200], strategy=Mine(), policy=RetryPolicy(total_timeout=5.0), **quick
    ) as client:
        with pytest.raises((adapter.DeadlineExceeded, adapter.CircuitOpenError)) as caught:
            await adapter.call(client, "GET", URL)
    assert caught.value.reason is reason
    (line,) = logged(caplog)
    assert line.startswith(("strategy Mine raised ValueError", "scope of Mine raised KeyError"))
    assert "SECRET" not in caplog.text


async def test_a_first_wait_beyond_every_clock_is_refused_as_any(adapter, quick):
    """With a deadline; nothing is sent."""
    strategy = type(
        "Mine", (Well,), {"acquire_initial_token": staticmethod(token_with(delay=1e300))}
    )()
    inner = adapter.watched([200])
    async with adapter.client(
        inner, strategy=strategy, policy=RetryPolicy(total_timeout=5.0), **quick
    ) as client:
        with pytest.raises(adapter.DeadlineExceeded):
            await adapter.call(client, "GET", URL)
    assert inner.requests == []


async def test_a_delay_of_another_number_is_waited(adapter, quick):
    """What can be compared with a number and becomes a float is a time."""
    strategy = type(
        "Mine", (Well,), {"acquire_initial_token": staticmethod(token_with(delay=Decimal("1.5")))}
    )()
    async with adapter.client([200], strategy=strategy, **quick) as client:
        assert (await adapter.call(client, "GET", URL)).status_code == 200
    assert quick["clock"].sleeps == [1.5]


async def test_quiet_may_fail_too(adapter, quick, caplog):
    """Then every call asks the methods, as with False."""

    class Moody(Well):
        asked = 0

        @property
        def quiet(self):
            raise ValueError("SECRET")

        def acquire_initial_token(self, scope, now):
            self.asked += 1
            return RetryToken()

    strategy = Moody()
    async with adapter.client([200, 503, 200], strategy=strategy, **quick) as client:
        assert (await adapter.call(client, "GET", URL)).status_code == 200
        assert (await adapter.call(client, "GET", URL)).status_code == 200
    assert strategy.asked == 2
    assert logged(caplog) == [
        "strategy Moody raised ValueError; the call goes on without it (logged once)"
    ]


async def test_without_quiet_it_is_no_strategy(adapter):
    class Forgetful:
        acquire_initial_token = refresh_token = record_success = release = print

    with pytest.raises(TypeError, match="strategy has no attribute quiet"):
        async with adapter.client([200], strategy=Forgetful()):
            pass


async def test_fewer_attempts_by_context(adapter, quick):
    """The number of attempts is a strategy's, and what a block allows bounds it."""
    inner = adapter.watched([500])
    strategy = AwsStandard(max_attempts=5, random=lambda: 0.0)
    async with adapter.client(inner, strategy=strategy, **quick) as client:
        for fields, sent in [
            ({}, 5),
            ({"max_attempts": 2}, 2),
            ({"max_attempts": 9}, 5),
            ({"total_timeout": 60}, 5),
        ]:
            before = len(inner.requests)
            with forbear.override(**fields):
                response = await adapter.call(client, "GET", URL)
            assert len(inner.requests) - before == sent
            assert record_of(response).reason is Reason.ATTEMPTS_EXHAUSTED
    assert strategy.bucket.tokens == 500 - 14 * (4 + 1 + 4 + 4)


@pytest.mark.adapters("httpx-family")
@pytest.mark.parametrize(
    ("setting", "sent"), [(False, 1), ({"max_attempts": 1}, 1), ({"max_attempts": 2}, 2), (None, 3)]
)
async def test_fewer_attempts_by_request(adapter, quick, setting, sent):
    """Off is off, also where the server would have it otherwise."""
    inner = adapter.watched([(503, {"x-should-retry": "true"})])
    async with adapter.client(inner, strategy=AwsStandard(), **quick) as client:
        await adapter.call(client, "GET", URL, extensions={"forbear": setting})
    assert len(inner.requests) == sent


# Scopes of a budget.


PER_URL = {"ratio": 0, "floor_per_second": 1 / 30, "burst": 1}


async def test_one_retry_per_30_seconds_for_the_same_url(adapter, clock):
    """Each URL has a bucket of its own, refilled after 30 seconds; the query counts, the fragment
    does not.
    """
    asked = []

    def same_url(facts):
        asked.append(facts.url)
        return facts.url

    budget = RetryBudget(**PER_URL, scope=same_url)
    inner = adapter.watched([503])
    base = f"{URL}?page="
    async with adapter.client(
        inner, budget=budget, policy=RetryPolicy(backoff=NOW), clock=clock
    ) as client:

        async def sent(url):
            before = len(inner.requests)
            response = await adapter.call(client, "GET", url)
            assert record_of(response).reason is Reason.BUDGET_EXHAUSTED
            return len(inner.requests) - before

        assert [await sent(f"{base}1"), await sent(f"{base}1#part"), await sent(f"{base}2")] == [
            2,
            1,
            2,
        ]
        clock.advance(29.0)
        assert await sent(f"{base}1") == 1
        clock.advance(1.5)
        assert [await sent(f"{base}1"), await sent(f"{base}1")] == [2, 1]
    assert set(asked) == {f"{ORIGIN}/thing?page=1", f"{ORIGIN}/thing?page=2"}
    assert len(asked) == 6  # once per call
    assert repr(budget) == "<RetryBudget 0/1, 1 scope below full>"  # time has filled the other one


async def test_the_function_is_not_called_while_all_is_well(adapter, quick):
    """The door does not know of it: no cost on a success."""
    called = []
    budget = RetryBudget(scope=lambda facts: called.append(facts) or "one")
    async with adapter.client([200, 200, 404, 503, 200, 200], budget=budget, **quick) as client:
        for _ in range(3):
            await adapter.call(client, "GET", URL)
        assert called == []
        await adapter.call(client, "GET", URL)
        assert len(called) == 1
        await adapter.call(client, "GET", URL)  # a deposit: the bucket is not full
    assert [facts.method for facts in called] == ["GET"] * 2


async def test_what_the_function_is_told(adapter, quick):
    """The same of every client: method, origin, URL as sent, headers."""
    told = []

    def scope(facts):
        told.append(
            (
                facts.method,
                facts.origin,
                facts.url,
                facts.header("X-Tenant"),
                facts.header("X-None"),
            )
        )
        return facts.header("X-Tenant")

    budget = RetryBudget(ratio=0, floor_per_second=0, burst=1, scope=scope)
    async with adapter.client(
        [503], budget=budget, policy=RetryPolicy(backoff=NOW), **quick
    ) as client:
        for tenant in ("blue", "red", "blue"):
            await adapter.call(
                client,
                "PUT",
                f"{URL}/a%20b?q=1&r=%C3%A4",
                content=b"x",
                headers={"x-tenant": tenant},
            )
    url = f"{ORIGIN}/thing/a%20b?q=1&r=%C3%A4"
    assert told == [("PUT", ORIGIN, url, tenant, None) for tenant in ("blue", "red", "blue")]
    assert [budget.tokens(name, 0.0) for name in ("blue", "red", "green")] == [0, 0, 1]


@pytest.mark.parametrize(
    "wrong",
    [raising(ValueError("SECRET")), lambda facts: None, lambda facts: b"SECRET", lambda: "SECRET"],
)
async def test_a_function_that_fails_means_the_origin(adapter, quick, caplog, wrong):
    """The call goes on, on its origin's bucket; told once, by class name."""
    budget = RetryBudget(ratio=0, floor_per_second=0, burst=3, scope=wrong)
    async with adapter.client(
        [503], budget=budget, policy=RetryPolicy(backoff=NOW), **quick
    ) as client:
        first = await adapter.call(client, "GET", URL)
        second = await adapter.call(client, "GET", URL)
    assert record_of(first).reason is Reason.ATTEMPTS_EXHAUSTED
    assert record_of(second).reason is Reason.BUDGET_EXHAUSTED
    assert budget.tokens(ORIGIN, 0.0) == 0
    (line,) = logged(caplog)
    assert line.startswith("scope of StandardStrategy raised ")
    assert "SECRET" not in caplog.text


async def test_a_url_as_scope_is_told_to_nobody(adapter, quick, caplog):
    """Not in the log, records, events or reprs (P10)."""
    caplog.set_level(logging.DEBUG, logger="forbear")
    budget = RetryBudget(**PER_URL, scope=lambda facts: facts.url)
    events = []
    url = "http://user:SECRET@api.example.com/SECRET?key=SECRET"
    async with adapter.client([503], budget=budget, on_event=[events.append], **quick) as client:
        response = await adapter.call(client, "GET", url)
    shown = [
        repr(budget),
        str(budget),
        repr(events),
        str(record_of(response)),
        repr(record_of(response)),
    ]
    shown += [repr(entry.__dict__) for entry in caplog.records if entry.name == "forbear"]
    assert len(events) == 5
    assert budget.tokens(f"{ORIGIN}/SECRET?key=SECRET", 0.0) < 1
    assert "SECRET" not in "".join(shown)


async def test_a_strategy_of_ones_own_may_look_closer(adapter, quick):
    """``scope_of`` gives it what it wants to know in place of the origin."""

    class PerMethod(Well):
        seen = ()

        def scope_of(self, facts):
            return f"{facts.method} {facts.origin}"

        def acquire_initial_token(self, scope, now):
            self.seen += (scope,)
            return RetryToken()

    strategy = PerMethod()
    async with adapter.client([200], strategy=strategy, **quick) as client:
        await adapter.call(client, "GET", URL)
        await adapter.call(client, "HEAD", URL)
    assert strategy.seen == (f"GET {ORIGIN}", f"HEAD {ORIGIN}")


@pytest.mark.parametrize("name", ["origins", "gauge", "policy", "budget"])
async def test_what_else_a_strategy_has_is_its_own(adapter, quick, name):
    """Attributes that the interface does not name may hold anything: here the states of origins, or
    a metric.
    """
    strategy = Well()
    setattr(strategy, name, {})
    async with adapter.client([503, 200], strategy=strategy, **quick) as client:
        assert (await adapter.call(client, "GET", URL)).status_code == 200


async def test_one_that_watches_attempts_sees_the_request_before_each(adapter, quick):
    """``begin`` takes the place of ``acquire_initial_token``, through every client and at every
    call.
    """

    class Watcher(Well):
        watches = True

        def __init__(self):
            self.told = []

        def acquire_initial_token(self, scope, now):
            self.told.append("acquire")
            return RetryToken()

        def begin(self, facts, scope, now):
            self.told.append(f"begin {facts.method}")
            return RetryToken()

        def admit(self, token, now):
            self.told.append("admit")
            return 0.0

        def observe(self, token, failure, now, *, facts, scope, attempts, sent_at):
            self.told.append(f"observe {attempts} {failure and failure.status}")
            return token

    strategy = Watcher()
    async with adapter.client([503, 200], strategy=strategy, **quick) as client:
        await adapter.call(client, "GET", URL)
    assert strategy.told == ["begin GET", "admit", "observe 1 503", "admit", "observe 2 None"]
