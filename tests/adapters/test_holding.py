"""gate=: a retry goes while its origin is well, else the call is held; on every adapter.

Worked out by hand, with the middle of every random range: the default waits are 0.75, 1.5 and 3 s;
two answers of 503 leave no token; a held call asks every 0.3 s; the first probe is due 2 s after
the second attempt, the next ones 4 and 8 s later.
"""

import threading
import time

import anyio
import pytest

from forbear import (
    CircuitBreaker,
    Exponential,
    Fixed,
    Origins,
    Reason,
    RetryBudget,
    RetryGate,
    RetryPolicy,
    record_of,
)
from forbear.core.events import GaveUp, Released, RetryScheduled
from forbear.testing import FakeClock, record

pytestmark = pytest.mark.anyio
one_lane = pytest.mark.adapters("httpx", "sync")

URL = "http://api.example.com/thing"
ORIGIN = "http://api.example.com:80"
PATIENT = RetryPolicy(max_attempts=9, backoff=Exponential(base=0.75, factor=1, jitter=1 / 3))


def make_unwell(gate, now, origin=ORIGIN):
    gate.bad(origin, now, sent_at=now, weight=2.0)


@pytest.fixture
def gate():
    return RetryGate()


@pytest.mark.smoke
async def test_a_call_is_held_until_its_probe_is_due(adapter, quick, gate):
    async with adapter.client([503, 503, 200], gate=gate, **quick) as client:
        response = await adapter.call(client, "GET", URL)
    assert response.status_code == 200
    assert quick["clock"].sleeps == pytest.approx([0.75, 1.5, 0.3, 0.2])
    found = record_of(response)
    assert found.held == pytest.approx(0.5)
    assert found.waits == pytest.approx((0.75, 2.0))
    assert "held for 0.5 s" in str(found)
    assert gate.held() == 0


@pytest.mark.smoke
async def test_patience_ends_with_the_calls_own_last_answer(adapter, quick, gate):
    """Held from 0.75 s on for 10 s in all; attempts at 0, 0.75, 2.75 and 6.75 s, the next at 14.75.

    The answer comes with its body, which was read when the call was held.
    """
    clock, began = quick["clock"], quick["clock"].monotonic()
    inner = adapter.watched([(503, {}, b"sorry")])
    async with adapter.client(inner, policy=PATIENT, gate=gate, **quick) as client:
        response = await adapter.open(client, "GET", URL)
        assert await adapter.read(response) == b"sorry"
        await adapter.close(response)
    assert clock.monotonic() - began == pytest.approx(10.75)
    assert len(inner.requests) == 4
    found = record_of(response)
    assert (response.status_code, found.reason) == (503, Reason.ORIGIN_UNWELL)
    assert gate.held() == 0


@pytest.mark.smoke
async def test_patience_ends_with_the_librarys_own_error(adapter, quick):
    """With what came last: not with the answer kept before a probe that failed otherwise."""
    raising = PATIENT.replace(on_exhausted="raise")
    status = [([503], raising, adapter.status_error)] * ("status-errors" in adapter.words)
    for steps, policy, expected in (
        (["read_error"], PATIENT, adapter.transport_error),
        ([503, 503, "read_error"], PATIENT, adapter.transport_error),
        *status,
    ):
        gate = RetryGate()
        async with adapter.client(steps, policy=policy, gate=gate, **quick) as client:
            with pytest.raises(expected) as caught:
                await adapter.call(client, "GET", URL)
        assert record_of(caught.value).reason is Reason.ORIGIN_UNWELL
        assert gate.held() == 0


@one_lane
async def test_a_call_that_cannot_be_held_ends_at_once(adapter, quick):
    """No patience, not ready in time, no room."""
    for patience, max_held in ((0, None), (1, None), (10, 0)):
        options = {"policy": RetryPolicy(patience=patience), "gate": RetryGate(max_held=max_held)}
        quick["clock"].sleeps.clear()
        async with adapter.client([503], **options, **quick) as client:
            response = await adapter.call(client, "GET", URL)
        assert record_of(response).reason is Reason.ORIGIN_UNWELL
        assert quick["clock"].sleeps == [0.75]


async def test_an_answer_too_long_to_keep_is_handed_over_whole(adapter, server, gate):
    """It keeps no connection: with a pool of one the next call must not wait for it for ever."""
    policy, random = RetryPolicy(backoff=Fixed(0)), {"random": lambda: 0.5}
    for chunked in (0, 1):
        server.script(f"/{chunked}", f"503;body=200000;chunked={chunked}", 200)
        url = f"{server.url}/{chunked}"
        options = {"policy": policy, "gate": gate, **random, **adapter.pool_of(1)}
        async with adapter.client(**options) as client:
            make_unwell(gate, time.monotonic(), server.url)
            response = await adapter.open(client, "GET", url)
            assert len(await adapter.read(response)) == 200_000
            await adapter.close(response)
            assert (await adapter.call(client, "GET", url)).status_code == 200
            assert adapter.is_idle(client)
        found = record_of(response)
        assert (found.reason, len(found.attempts)) == (Reason.ORIGIN_UNWELL, 1)
        assert found.waits == ()
        assert gate.held() == 0


async def test_an_answer_that_stalls_is_held_without_its_body(adapter, server, gate, quickest):
    """Its reading is given up after a quarter of a second: the call can wait its turn."""
    server.script("/stalls", "503;body=160;drip=400")
    policy = RetryPolicy(backoff=Fixed(0), patience=0.4)
    async with adapter.client(policy=policy, gate=gate) as client:

        async def run():
            make_unwell(gate, time.monotonic(), server.url)
            response = await adapter.call(client, "GET", server.url + "/stalls")
            assert response.status_code == 503
            assert record_of(response).reason is Reason.ORIGIN_UNWELL

        assert await quickest(run, bound=1.5) < 1.5
    assert gate.held() == 0


@one_lane
async def test_a_breaker_that_only_observes_lets_nobody_go(adapter, quick, gate):
    breaker = CircuitBreaker(1, open_for=0.5, mode="observe")
    policy = PATIENT.replace(backoff=Fixed(0))
    async with adapter.client([503], policy=policy, gate=gate, breaker=breaker, **quick) as client:
        response = await adapter.call(client, "GET", URL)
    assert len(record_of(response).attempts) == 5  # at 0, 0, and probes 1, 2, 4 s later


@pytest.mark.smoke
async def test_close_ends_a_held_call_with_its_own_answer(adapter, gate):
    inner = adapter.watched([(503, {}, b"sorry")])
    policy = RetryPolicy(backoff=Fixed(0))
    async with adapter.client(inner, policy=policy, gate=gate) as client:
        found = []

        async def hold(n):
            found.append(await adapter.call(client, "GET", URL))

        async def end(n):
            while gate.held() == 0:
                await anyio.sleep(0.01)
            await adapter.shut(client)

        async def either(n):
            await (hold, end)[n](n)

        if adapter.is_async:
            await adapter.together(2, either)
        else:
            await hold_and_shut(adapter, client, gate, hold)
    assert (found[0].status_code, found[0].content) == (503, b"sorry")
    assert gate.held() == 0


async def hold_and_shut(adapter, client, gate, hold):
    def shut():
        while gate.held() == 0:
            time.sleep(0.01)
        coroutine = adapter.shut(client)
        with pytest.raises(StopIteration):
            coroutine.send(None)

    thread = threading.Thread(target=shut)
    thread.start()
    await hold(0)
    thread.join()


@pytest.mark.smoke
@pytest.mark.adapters("async")
async def test_a_cancelled_call_leaves_no_place(adapter, gate):
    async with adapter.client([503], policy=RetryPolicy(backoff=Fixed(0)), gate=gate) as client:
        with anyio.move_on_after(0.05) as scope:
            await adapter.call(client, "GET", URL)
    assert scope.cancelled_caught
    assert gate.held() == 0


async def test_a_held_call_never_outlasts_its_deadline(adapter, quick, gate):
    """Held until 5 s: the probes at 2.75 s, and at 6.75 s, which is too late."""
    policy = PATIENT.replace(total_timeout=5.0)
    began = quick["clock"].monotonic()
    async with adapter.client([503], policy=policy, gate=gate, **quick) as client:
        response = await adapter.call(client, "GET", URL)
    assert quick["clock"].monotonic() - began <= 5.0
    assert record_of(response).reason in {Reason.ORIGIN_UNWELL, Reason.DEADLINE}
    assert len(record_of(response).attempts) == 3


# What lets a call go.


@one_lane
async def test_first_attempts_are_never_held(adapter, quick, gate):
    make_unwell(gate, quick["clock"].monotonic())
    async with adapter.client([200], gate=gate, **quick) as client:
        assert (await adapter.call(client, "GET", URL)).status_code == 200
    assert quick["clock"].sleeps == []


async def test_good_first_answers_make_an_origin_well(adapter, quick, gate):
    """Also those that take the fast path: a timeout costs two tokens, eight answers earn them."""
    make_unwell(gate, quick["clock"].monotonic())
    async with adapter.client([200], gate=gate, **quick) as client:
        for count in range(8):
            assert not gate.quiet, count
            await adapter.call(client, "GET", URL)
    assert gate.quiet


@pytest.mark.adapters("httpx")
async def test_a_gather_over_a_short_outage_loses_nothing(adapter, server, gate):
    """20 calls at once, and 20 answers of 503: the first retry that succeeds lets the others go."""
    policy = RetryPolicy(backoff=Exponential(base=0.05, jitter=0.5), patience=10)
    statuses = []
    server.script("/short", *["503"] * 20, 200)
    async with adapter.client(policy=policy, gate=gate) as client:

        async def one(n):
            response = await adapter.call(client, "GET", server.url + "/short")
            statuses.append(response.status_code)

        await adapter.together(20, one)
    assert statuses == [200] * 20
    assert gate.held() == 0


# What a wait is.


async def test_a_broken_connection_and_a_502_are_tried_again_soon(adapter, quick):
    """0 to 0.2 s, once per call; a 503 and a timeout wait their schedule."""
    for step, wait in (
        *(("connect_error", 0.1), ("read_error", 0.1), (502, 0.1)),
        *((503, 0.75), ("read_timeout", 0.75)),
    ):
        quick["clock"].sleeps.clear()
        async with adapter.client([step, 200], gate=None, **quick) as client:
            response = await adapter.call(client, "GET", URL)
        assert response.status_code == 200
        assert quick["clock"].sleeps == pytest.approx([wait]), step


@one_lane
async def test_the_fast_retry_comes_once_and_only_while_the_origin_is_well(adapter, quick, gate):
    async with adapter.client([502, 502, 200], gate=None, **quick) as client:
        await adapter.call(client, "GET", URL)
    assert quick["clock"].sleeps == pytest.approx([0.1, 1.5])
    quick["clock"].sleeps.clear()
    make_unwell(gate, quick["clock"].monotonic())
    async with adapter.client([502, 200], gate=gate, **quick) as client:
        await adapter.call(client, "GET", URL)
    assert quick["clock"].sleeps[0] == pytest.approx(0.75)


@one_lane
async def test_a_first_429_with_a_time_says_nothing_and_a_second_one_does(adapter, quick, gate):
    step = (429, {"Retry-After": "1"})
    async with adapter.client([step, step, 200], gate=gate, **quick) as client:
        await adapter.call(client, "GET", URL)
    assert not gate.quiet


@one_lane
async def test_a_wait_that_does_not_fit_the_deadline_is_drawn_again(adapter):
    """0.5 to 1 s, of which 0.8 are left: the longest draw becomes 0.5 + 0.3 × 0.5; 0.7 fit too."""
    backoff = Exponential(base=0.75, jitter=1 / 3)
    for left, draws, expected in ((0.801, [0.99, 0.5], [0.65]), (0.701, [0.99], [])):
        policy, draws = RetryPolicy(total_timeout=left, backoff=backoff), iter(draws)
        options = {"clock": FakeClock(), "random": lambda draws=draws: next(draws)}
        async with adapter.client([503, 200], policy=policy, **options) as client:
            response = await adapter.call(client, "GET", URL)
        assert options["clock"].sleeps == pytest.approx(expected, abs=0.01)
        assert record_of(response).reason is (None if expected else Reason.DEADLINE)


# With the others.


@one_lane
async def test_a_held_call_is_the_probe_of_a_half_open_circuit(adapter, quick, gate):
    """The circuit opens at the second failure, for 5 s: the held call stays, then goes at once."""
    breaker = CircuitBreaker(2, failure_rate=None, open_for=5.0)
    policy = RetryPolicy(backoff=Fixed(6.0))
    clock, began = quick["clock"], quick["clock"].monotonic()
    make_unwell(gate, began)
    async with adapter.client(
        [503, 503, 200], policy=policy.replace(patience=30), gate=gate, breaker=breaker, **quick
    ) as client:
        response = await adapter.call(client, "GET", URL)
    assert response.status_code == 200
    assert clock.monotonic() - began == pytest.approx(12.0, abs=0.5)
    assert breaker.quiet


@one_lane
async def test_another_origin_that_is_well_takes_the_retry(adapter, quick, gate):
    make_unwell(gate, quick["clock"].monotonic())
    origins = Origins([ORIGIN, "http://b.example.com"])
    inner = adapter.watched([503, 200])
    async with adapter.client(inner, gate=gate, origins=origins, **quick) as client:
        response = await adapter.call(client, "GET", URL)
    assert response.status_code == 200
    assert record_of(response).held == 0


@one_lane
async def test_a_budget_bounds_what_the_gate_lets_go(adapter, quick, gate):
    budget = RetryBudget(ratio=0, floor_per_second=0, burst=1)
    async with adapter.client([503], gate=gate, budget=budget, **quick) as client:
        response = await adapter.call(client, "GET", URL)
    assert record_of(response).reason is Reason.BUDGET_EXHAUSTED
    assert gate.held() == 0


# What is told.


async def test_listeners_hear_that_a_call_is_held_and_why_no_more(adapter, quick, gate):
    events = record()
    options = {"policy": PATIENT, "gate": gate, "on_event": [events], **quick}
    async with adapter.client([503], **options) as client:
        await adapter.call(client, "GET", URL)
    scheduled = [event.held for event in events if isinstance(event, RetryScheduled)]
    released = [event for event in events if isinstance(event, Released)]
    assert scheduled == [False, True, True, True]
    assert [event.cause for event in released] == ["probe", "probe", "patience-over"]
    assert [event.held for event in released] == pytest.approx([1.25, 3.25, 3.25])
    assert isinstance(events[-1], GaveUp)
    assert events[-1].reason is Reason.ORIGIN_UNWELL
