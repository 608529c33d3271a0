"""Add-ons of the user's own, which are written outside of forbear."""

import pytest

import forbear
from forbear import ConcurrencyLimit, Fixed, Pacing, Reason, RetryBudget, RetryPolicy, record_of
from forbear.addons import Limit
from forbear.strategies import RetryRefused
from forbear.testing import record

from ..lanes import ORIGIN, URL

one_lane = pytest.mark.adapters("httpx", "sync")
AT_ONCE = RetryPolicy(backoff=Fixed(0))


class Toy(Limit):
    """At most so many attempts, at least two seconds apart."""

    def __init__(self, most=9):
        self.most, self.next_at = most, 0.0
        self.sent = self.failed = 0

    def admit(self, call, now):
        if self.sent >= self.most:
            raise RetryRefused(Reason.CALLER_SAID_NO, send=False)
        if now < self.next_at:
            return self.next_at - now
        call.notes[self] = True
        self.sent += 1
        self.next_at = now + 2.0
        return 0.0

    def observe(self, call, failure, now):
        call.notes.pop(self, None)
        self.failed += failure is not None

    def leave(self, call, now):
        if call.notes.pop(self, False):
            self.sent -= 1


@pytest.mark.lanes("httpx-sync", "httpx-asyncio", "aiohttp-asyncio", "urllib3", "requests")
async def test_it_counts_delays_and_refuses_attempts_of_every_client(adapter, quick):
    toy, inner = Toy(most=4), adapter.watched([200, 503, 200, "read_error", 200])
    async with adapter.client(inner, addons=[toy], policy=AT_ONCE, **quick) as client:
        assert [(await adapter.call(client, "GET", URL)).status_code for _ in "ab"] == [200, 200]
        assert quick["clock"].sleeps == [2.0, 2.0]
        with pytest.raises(adapter.CircuitOpenError) as caught:
            await adapter.call(client, "GET", URL)
    assert caught.value.reason is Reason.CALLER_SAID_NO
    assert (toy.sent, toy.failed, len(inner.requests)) == (4, 2, 4)


@one_lane
async def test_what_it_admitted_and_another_limit_refuses_comes_back(adapter, quick):
    """So an attempt that waits behind it is counted once, and one that is not sent never."""
    toy, slots = Toy(), ConcurrencyLimit(1, adaptive=False, max_waiting=1)
    breaker = forbear.CircuitBreaker(1, open_for=60.0)
    more = {"concurrency": slots, "pacing": Pacing(), "breaker": breaker}
    inner = adapter.watched([503, 200])
    async with adapter.client(inner, addons=[toy], policy=AT_ONCE, **more, **quick) as client:
        assert (await adapter.call(client, "GET", URL)).status_code == 503
        with pytest.raises(adapter.CircuitOpenError):
            await adapter.call(client, "GET", URL)
    assert (toy.sent, len(inner.requests), slots.in_flight()) == (1, 1, 0)


class Longer(Limit):
    def __init__(self, delay):
        self.delay = delay

    def plan(self, call, failure, plan, now, latest):
        return plan._replace(delay=self.delay)


@one_lane
@pytest.mark.parametrize(("delay", "waits"), [(7.0, [7.0]), (0.0, [3.0])])
async def test_it_waits_longer_but_never_less_than_the_server_asked(adapter, quick, delay, waits):
    steps = [(503, {"Retry-After": "3"}), 200]
    policy = AT_ONCE.replace(hint_spread=0.0)
    await adapter.once(steps, addons=[Longer(delay)], policy=policy, **quick)
    assert quick["clock"].sleeps == waits


@one_lane
@pytest.mark.parametrize("delay", [float("inf"), float("nan"), -1.0, "SECRET"])
async def test_a_delay_that_is_none_ends_the_retries(adapter, quick, caplog, delay):
    assert (await adapter.once([503, 200], addons=[Longer(delay)], **quick)).status_code == 503
    assert "add-on Longer raised" in caplog.text


def raising(*given):
    raise ZeroDivisionError("SECRET")


@one_lane
@pytest.mark.parametrize("method", ["begin", "admit", "observe", "plan", "take", "leave", "closed"])
@pytest.mark.parametrize("wrong", [raising, lambda *given: "SECRET"], ids=["raises", "returns"])
async def test_one_that_is_wrong_loses_nothing(adapter, quick, caplog, budget, method, wrong):
    """What only a retry needs ends the retries; everything else is left out, and logged once."""
    toy = type("Toy", (Limit,), {method: lambda self, *given: wrong(*given)})()
    slots = ConcurrencyLimit(1, adaptive=False)
    more = {"budget": budget, "concurrency": slots}
    response = await adapter.once([503, 200], addons=[toy], policy=AT_ONCE, **more, **quick)
    assert response.status_code == (503 if method in ("plan", "take") else 200)
    left = 20 if response.status_code == 503 else 19
    assert (slots.in_flight(), budget.tokens(ORIGIN, 0.0)) == (0, left)
    lines = [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]
    ignored = method == "closed" or (wrong is not raising and method in ("observe", "leave"))
    assert [line.startswith("add-on Toy raised") for line in lines] == [True] * (not ignored)
    assert "SECRET" not in caplog.text


@one_lane
@pytest.mark.parametrize("method", ["begin", "plan", "take"])
@pytest.mark.parametrize("reason", [Reason.CALLER_SAID_NO, "SECRET"])
async def test_it_may_refuse_a_retry_and_no_first_attempt(adapter, quick, caplog, method, reason):
    def refuse(self, *given):
        refused = RetryRefused(Reason.CALLER_SAID_NO, retry_after=1.0)
        refused.reason = reason
        raise refused

    toy = type("Toy", (Limit,), {method: refuse})()
    response = await adapter.once([503, 200], addons=[toy], policy=AT_ONCE, **quick)
    is_ignored = method == "begin" and reason == "SECRET"
    assert response.status_code == (200 if is_ignored else 503)
    if not is_ignored:
        failed = Reason.STRATEGY_FAILED
        assert record_of(response).reason is (failed if reason == "SECRET" else reason)
    assert ("add-on Toy raised" in caplog.text) == (reason == "SECRET")


@one_lane
async def test_a_limit_hears_until_when_a_retry_may_be_sent(adapter, quick):
    """Until its key expires: after that the server may execute the request once more."""
    heard = []
    take = lambda self, call, failure, delay, now, until: heard.append(until - call.started_at)  # noqa: E731
    more = {"addons": [type("Toy", (Limit,), {"take": take})()], "policy": AT_ONCE}
    more["idempotency"] = forbear.IdempotencyKeys(lifetime=50.0)
    async with adapter.client([503, 200], **more, **quick) as client:
        assert (await adapter.call(client, "POST", URL)).status_code == 200
    assert heard == [50.0]


@one_lane
async def test_a_wait_beyond_the_deadline_is_not_begun(adapter, quick):
    toy = type("Toy", (Limit,), {"begin": lambda self, call, wait, now: 60.0})()
    inner = adapter.watched([200])
    async with adapter.client(
        inner, addons=[toy], policy=RetryPolicy(total_timeout=5.0), **quick
    ) as client:
        with pytest.raises(adapter.DeadlineExceeded):
            await adapter.call(client, "GET", URL)
    assert (quick["clock"].sleeps, inner.requests) == ([], [])


@one_lane
async def test_a_held_call_that_is_refused_is_released(adapter, quick):
    """Three responses of 503 leave no token, so the fourth attempt is held, until 2 s later."""

    def admit(self, call, now):
        if call.attempts == 3:
            raise RetryRefused(Reason.CALLER_SAID_NO)
        return 0.0

    events = record()
    more = {"addons": [type("Toy", (Limit,), {"admit": admit})()], "gate": forbear.RetryGate()}
    async with adapter.client([503], on_event=[events], **more, **quick) as client:
        with pytest.raises(adapter.CircuitOpenError) as caught:
            await adapter.call(client, "GET", URL)
    assert len(events.named("released")) == 1
    found = record_of(caught.value)
    assert [found.held, *found.waits] == pytest.approx([0.5, 0.025, 0.75, 2.0])
    assert more["gate"].held() == 0


class Broken:
    quiet = property(raising)


@one_lane
@pytest.mark.parametrize(("is_quiet", "asked"), [(RetryBudget(), 0), (None, 1), (Broken(), 1)])
async def test_a_quiet_one_is_not_asked_about_successes(adapter, quick, is_quiet, asked):
    class Quiet(Toy):
        shared = is_quiet  # anything with ``quiet``; without it is as False

    toy = Quiet()
    async with adapter.client([200, 503, 200], addons=[toy], policy=AT_ONCE, **quick) as client:
        await adapter.call(client, "GET", URL)
        assert toy.sent == asked
        await adapter.call(client, "GET", URL)
    assert toy.failed == 1


class Awaited(Limit):
    async def admit(self, call, now):
        return 0.0


def test_what_is_none_is_refused_with_what_to_write():
    from forbear.httpx import RetryTransport

    few = type("Few", (Limit,), {"admit": lambda self: 0.0})()
    for given, message in (
        (Toy(), "addons must be a list of objects, got <.*>: write addons="),
        ([Toy], "addons was given the class Toy"),
        ([object()], "addons must be objects of classes of forbear.addons.Limit, got <object"),
        ("toy", "addons must be a list"),
        ([Awaited()], "addons must have plain methods, got the coroutine function admit"),
        ([few], "addons.admit"),
    ):
        with pytest.raises(TypeError, match=message):
            RetryTransport(addons=given)
