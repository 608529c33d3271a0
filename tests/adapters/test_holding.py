"""gate=: a retry goes while its origin is well, else the call is held; on every adapter.

Worked out by hand, with the middle of every random range: the default waits are 0.025, 0.75, 1.5
and 3 s; three responses of 503 leave no token; a held call asks every 0.3 s; the first probe is due
2 s after the third attempt, the next ones 4 and 8 s later.
"""

import time
from functools import partial

import aiohttp
import anyio
import anyio.to_thread
import pytest

from forbear import Exponential, Fixed, Reason, RetryGate, RetryPolicy, record_of
from forbear.testing import record

from ..lanes import ORIGIN, URL
from ..lanes.lane import run_at_once
from ..threads import in_threads

one_lane = pytest.mark.adapters("httpx", "sync")
PATIENT = RetryPolicy(max_attempts=9, backoff=Exponential(base=0.75, factor=1, jitter=1 / 3))
LONG = RetryPolicy(backoff=Fixed(60))  # of real time


@pytest.fixture
def gate():
    return RetryGate()


@pytest.mark.smoke
async def test_a_call_is_held_until_its_probe_is_due(adapter, quick, gate):
    response = await adapter.once([503, 503, 503, 200], gate=gate, **quick)
    found, waits = record_of(response), [0.025, 0.75, 2.0]
    assert response.status_code == 200
    # One for each wait, not for each time it asked.
    assert quick["clock"].sleeps == pytest.approx(waits)
    assert [found.held, *found.waits] == pytest.approx([0.5, *waits])
    assert "held for 0.5 s" in str(found)
    assert gate.held() == 0


@pytest.mark.smoke
async def test_patience_ends_with_the_calls_own_last_answer(adapter, quick, gate):
    """Attempts at 0, 0.75, 1.5 and 5.5 s, the next at 13.5; four waits of 0.75 s are no patience.

    The answer comes with its body, which was read when the call was held.
    """
    clock, began = quick["clock"], quick["clock"].monotonic()
    inner = adapter.watched([(503, {}, b"sorry")])
    async with adapter.client(inner, policy=PATIENT, gate=gate, **quick) as client:
        response = await adapter.download(client, URL)
        assert response.content == b"sorry"
        await adapter.close(response)
    assert clock.monotonic() - began == pytest.approx(13.0)
    assert len(inner.requests) == 4
    found = record_of(response)
    assert (response.status_code, found.reason) == (503, Reason.ORIGIN_UNHEALTHY)
    assert gate.held() == 0


@pytest.mark.smoke
async def test_patience_ends_with_the_librarys_own_error(adapter, quick):
    raising = PATIENT.replace(on_exhausted="raise")
    status = [([503], raising, adapter.status_error)] * ("status-errors" in adapter.words)
    for steps, policy, expected in (
        (["read_error"], PATIENT, adapter.transport_error),
        ([503, 503, "read_error"], PATIENT, adapter.transport_error),
        *status,
    ):
        gate = RetryGate()
        with pytest.raises(expected) as caught:
            await adapter.once(steps, policy=policy, gate=gate, **quick)
        assert (record_of(caught.value).reason, gate.held()) == (Reason.ORIGIN_UNHEALTHY, 0)


async def test_an_answer_too_long_to_keep_is_handed_over_whole(adapter, server, gate):
    options = {"policy": RetryPolicy(backoff=Fixed(0)), "gate": gate, "random": lambda: 0.5}
    for chunked in (0, 1):
        server.script(f"/{chunked}", f"503;body=200000;chunked={chunked}", 200)
        url, options = f"{server.url}/{chunked}", {**options, **adapter.pool_of(1)}
        async with adapter.client(**options) as client:
            gate.bad(server.url, time.monotonic(), time.monotonic(), 3.0)
            response = await adapter.download(client, url)
            assert len(response.content) == 200_000
            await adapter.close(response)
            assert (await adapter.call(client, "GET", url)).status_code == 200
            assert adapter.is_idle(client)
        found = record_of(response)
        expected = (Reason.ORIGIN_UNHEALTHY, 1, ())
        assert (found.reason, len(found.attempts), found.waits) == expected
        assert gate.held() == 0


@pytest.mark.smoke
@pytest.mark.parametrize("closing", ["shut", "close"])
async def test_close_ends_a_held_call_with_its_own_answer(adapter, gate, closing):
    inner = adapter.watched([(503, {}, b"sorry")])
    policy = RetryPolicy(backoff=Fixed(0))
    async with adapter.client(inner, policy=policy, gate=gate) as client:
        found = await close_while(client, adapter, gate.held, closing=closing)
    if (adapter.name, closing) == ("aiohttp", "close"):  # of the session, not of its middleware
        assert isinstance(found[0], aiohttp.ClientConnectionError)
    else:
        assert (found[0].status_code, found[0].content) == (503, b"sorry")
    assert gate.held() == 0


@pytest.mark.smoke("async")
async def test_a_cancelled_call_leaves_no_place(adapter, gate):
    async with adapter.client([503], policy=RetryPolicy(backoff=Fixed(0)), gate=gate) as client:
        with anyio.move_on_after(0.05) as scope:
            await adapter.call(client, "GET", URL)
    assert scope.cancelled_caught
    assert gate.held() == 0


@one_lane
async def test_first_attempts_are_never_held(adapter, quick, gate):
    now = quick["clock"].monotonic()
    gate.bad(ORIGIN, now, now, 3.0)
    assert (await adapter.once([200], gate=gate, **quick)).status_code == 200
    assert quick["clock"].sleeps == []


async def close_while(client, adapter, is_waiting, closing="shut"):
    """Begin a call, close the transport once it waits; return how it ended."""
    ended, close_it = [], getattr(adapter, closing)

    async def call(n):
        ended.append(await adapter.outcome(client))

    async def close():
        while not is_waiting():
            await anyio.sleep(0.001)
        if adapter.is_async:
            await close_it(client)
        else:
            await anyio.to_thread.run_sync(run_at_once, close_it(client))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(close)
            group.start_soon(adapter.together, 1, call)
    return ended


@pytest.mark.smoke
@pytest.mark.parametrize("closing", ["shut", "close"])
async def test_a_call_waiting_after_an_answer_raises(adapter, budget, elapsed, closing):
    if (adapter.name, closing) == ("aiohttp", "close"):
        return  # its session wakes nobody: test_aiohttp.py
    inner, events = adapter.watched([(503, {}, b"sorry"), 200]), record()
    async with adapter.client(inner, policy=LONG, budget=budget, on_event=[events]) as client:
        elapsed()
        (error,) = await close_while(
            client, adapter, lambda: events.named("retry_scheduled"), closing
        )
        assert elapsed() < 30
    assert isinstance(error, adapter.transport_error)
    assert record_of(error).reasons == ("503",)
    assert (len(inner.requests), inner.closings) == (1, [1])
    assert budget.tokens(ORIGIN, 0.0) == 20


async def test_a_transport_that_was_closed_before_the_wait_does_not_wait(adapter, elapsed):
    def closes(event):
        if event.name == "retry_scheduled":
            shut = partial(run_at_once, adapter.shut(client))
            shut() if adapter.is_async else in_threads(1, lambda n: shut())

    async with adapter.client([503, 200], policy=LONG, on_event=[closes]) as client:
        assert isinstance(await adapter.outcome(client), adapter.transport_error)
        assert elapsed() < 30


@one_lane
async def test_a_scope_keeps_one_broken_service_of_a_host_from_the_others(adapter, quick):
    gate = RetryGate(scope=lambda request: request.url.split("/")[3])
    policy = RetryPolicy(patience=0)
    async with adapter.client([503], policy=policy, gate=gate, **quick) as client:
        await adapter.call(client, "GET", "http://api.example.com/broken/1")
        quick["clock"].sleeps.clear()
        await adapter.call(client, "GET", "http://api.example.com/broken/2")
        assert quick["clock"].sleeps == []
        await adapter.call(client, "GET", "http://api.example.com/fine/1")
        assert len(quick["clock"].sleeps) == 2
    one = RetryGate(scope="transport")
    async with adapter.client([503], policy=policy, gate=one, **quick) as client:
        await adapter.call(client, "GET", URL)
        quick["clock"].sleeps.clear()
        await adapter.call(client, "GET", "http://b.example.com/thing")
    assert quick["clock"].sleeps == []
