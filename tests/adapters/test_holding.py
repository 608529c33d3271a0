"""gate=: a retry goes while its origin is well, else the call is held; on every adapter.

Worked out by hand, with the middle of every random range: the default waits are 0.025, 0.75, 1.5
and 3 s; three responses of 503 leave no token; a held call asks every 0.3 s; the first probe is due
2 s after the third attempt, the next ones 4 and 8 s later.
"""

import threading
import time

import anyio
import anyio.to_thread
import pytest

from forbear import Exponential, Fixed, Reason, RetryGate, RetryPolicy, record_of

from ..lanes import ORIGIN, URL

one_lane = pytest.mark.adapters("httpx", "sync")


PATIENT = RetryPolicy(max_attempts=9, backoff=Exponential(base=0.75, factor=1, jitter=1 / 3))


def make_unwell(gate, now, origin=ORIGIN):
    gate.bad(origin, now, now, 3.0)


@pytest.fixture
def gate():
    return RetryGate()


@pytest.mark.smoke
async def test_a_call_is_held_until_its_probe_is_due(adapter, quick, gate):
    response = await adapter.once([503, 503, 503, 200], gate=gate, **quick)
    assert response.status_code == 200
    # One for each wait, not for each time it asked.
    assert quick["clock"].sleeps == pytest.approx([0.025, 0.75, 2.0])
    found = record_of(response)
    assert found.held == pytest.approx(0.5)
    assert found.waits == pytest.approx((0.025, 0.75, 2.0))
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
        response = await adapter.open(client, "GET", URL)
        assert await adapter.read(response) == b"sorry"
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
        assert record_of(caught.value).reason is Reason.ORIGIN_UNHEALTHY
        assert gate.held() == 0


async def test_an_answer_too_long_to_keep_is_handed_over_whole(adapter, server, gate):
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
        assert (found.reason, len(found.attempts)) == (Reason.ORIGIN_UNHEALTHY, 1)
        assert found.waits == ()
        assert gate.held() == 0


@pytest.mark.smoke
@pytest.mark.parametrize("closing", ["shut", "close"])
async def test_close_ends_a_held_call_with_its_own_answer(adapter, gate, closing):
    inner = adapter.watched([(503, {}, b"sorry")])
    policy = RetryPolicy(backoff=Fixed(0))
    async with adapter.client(inner, policy=policy, gate=gate) as client:
        found = []

        async def hold(n):
            found.append(await adapter.call(client, "GET", URL))

        async def end(n):
            while gate.held() == 0:
                await anyio.sleep(0.01)
            await getattr(adapter, closing)(client)

        async def either(n):
            await (hold, end)[n](n)

        if adapter.is_async:
            await adapter.together(2, either)
        else:
            await hold_and_shut(getattr(adapter, closing)(client), gate, hold)
    assert (found[0].status_code, found[0].content) == (503, b"sorry")
    assert gate.held() == 0


async def hold_and_shut(coroutine, gate, hold):
    def shut():
        while gate.held() == 0:
            time.sleep(0.01)
        with pytest.raises(StopIteration):
            coroutine.send(None)

    thread = threading.Thread(target=shut)
    thread.start()
    await hold(0)
    thread.join()


@pytest.mark.smoke("async")
async def test_a_cancelled_call_leaves_no_place(adapter, gate):
    async with adapter.client([503], policy=RetryPolicy(backoff=Fixed(0)), gate=gate) as client:
        with anyio.move_on_after(0.05) as scope:
            await adapter.call(client, "GET", URL)
    assert scope.cancelled_caught
    assert gate.held() == 0


@one_lane
async def test_first_attempts_are_never_held(adapter, quick, gate):
    make_unwell(gate, quick["clock"].monotonic())
    assert (await adapter.once([200], gate=gate, **quick)).status_code == 200
    assert quick["clock"].sleeps == []


LONG = RetryPolicy(backoff=Fixed(60))  # of real time


async def close_while_waiting(adapter, client, waiting, calls=1, closing="shut"):
    """Begin calls, close the transport once all of them wait; return how each ended."""
    ended, close_it = [], getattr(adapter, closing)

    async def call(n):
        try:
            ended.append(await adapter.call(client, "GET", URL))
        except adapter.transport_error as error:
            ended.append(error)

    async def close():
        while len(waiting) < calls:
            await anyio.sleep(0.001)
        if adapter.is_async:
            await close_it(client)
            return
        await anyio.to_thread.run_sync(in_thread, close_it(client))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(close)
            group.start_soon(adapter.together, calls, call)
    return ended


def in_thread(coroutine):
    with pytest.raises(StopIteration):  # nothing in it suspends
        coroutine.send(None)


def note_waits(waiting):
    return [lambda event: waiting.append(event) if event.name == "retry_scheduled" else None]


@pytest.mark.smoke
@pytest.mark.parametrize("closing", ["shut", "close"])
async def test_a_call_waiting_after_an_answer_raises(adapter, budget, elapsed, closing):
    if (adapter.name, closing) == ("aiohttp", "close"):
        return  # its session wakes nobody: test_aiohttp.py
    inner, waiting = adapter.watched([(503, {}, b"sorry"), 200]), []
    async with adapter.client(
        inner, policy=LONG, budget=budget, on_event=note_waits(waiting)
    ) as client:
        elapsed()
        (error,) = await close_while_waiting(adapter, client, waiting, closing=closing)
        assert elapsed() < 30
    assert isinstance(error, adapter.transport_error)
    assert record_of(error).reasons == ("503",)
    assert len(inner.requests) == 1
    assert inner.closings == [1]
    assert budget.tokens(ORIGIN, 0.0) == 20


async def test_a_transport_that_was_closed_before_the_wait_does_not_wait(adapter, elapsed):
    def closes(event):
        if event.name == "retry_scheduled":
            if adapter.is_async:
                in_thread(adapter.shut(client))
                return
            thread = threading.Thread(target=in_thread, args=(adapter.shut(client),))
            thread.start()
            thread.join()

    async with adapter.client([503, 200], policy=LONG, on_event=[closes]) as client:
        elapsed()
        with pytest.raises(adapter.transport_error):
            await adapter.call(client, "GET", URL)
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
