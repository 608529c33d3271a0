"""P6: each exit of the loop closes failed responses and gives back what was not used, and no more.
Cancellation and close() are in test_cancellation.py and test_holding.py.
"""

import contextlib
import gc
import os
import traceback
from itertools import product, repeat

import pytest

import forbear
from forbear import Fixed, Reason, RetryPolicy, record_of

from ..clocks import Interrupted
from ..lanes import ORIGIN, URL
from .foreign import Foreign, reading, stream_of
from .test_hedging import eventually

STEADY = RetryPolicy(max_attempts=4, backoff=Fixed(1))
OWN = RuntimeError("a bug")
STEPS = ["503", "503;body=200000", "503;body=64;drip=300", "reset"]


def left(budget, quick):
    return budget.tokens(ORIGIN, quick["clock"].monotonic())


SORRY = [(503, {}, b"sorry %d" % n) for n in range(4)]
HANDED_OVER = {  # steps, responses that are closed by then, the body, tokens
    "success at once": ([200], 0, b"", 20),
    "success after retries": ([503, "read_timeout", 502, (200, {}, b"ok")], 2, b"ok", 17),
    "giving up": (SORRY, 3, b"sorry 3", 17),  # the last response, unread
}


@pytest.mark.smoke
@pytest.mark.parametrize("name", HANDED_OVER)
async def test_a_response_that_is_handed_over(adapter, quick, budget, name):
    steps, closed, body, tokens = HANDED_OVER[name]
    inner = adapter.watched(steps)
    async with adapter.client(inner, budget=budget, policy=STEADY, **quick) as client:
        response = await adapter.open(client, "GET", URL)
        assert inner.closings[:closed] == [1] * closed
        if name != "success after retries":  # which is small, and read
            assert inner.closings[closed:] == [0]
        assert await adapter.read(response) == body
        await adapter.close(response)
    assert set(inner.closings) == {1}
    assert left(budget, quick) == tokens


@pytest.mark.parametrize("step", ["reset", "hang"])
async def test_a_saved_call_leaves_nothing_to_the_garbage_collector(adapter, server, quick, step):
    """urllib3 and httpcore raise through frames that hold the error again, and with it the pool."""
    server.script("/thing", step, 200)
    gc.disable()
    try:
        options = {"policy": STEADY, "settings": adapter.reading_for(0.3), **quick}
        async with adapter.client(**options) as client:
            response = await adapter.call(client, "GET", server.url + "/thing")
            record = record_of(response)
        del client, response
        assert record.retries >= 1  # more, if the machine is so busy that an answer takes 0.3 s
        assert await eventually(lambda: server.open_connections == 0)
    finally:
        gc.enable()


async def test_an_error_that_the_caller_is_handling_keeps_its_traceback(adapter, server, quick):
    server.script("/thing", "reset", 200)

    def begin():
        raise ValueError("the caller's own")

    def where(error):
        return [frame.name for frame in traceback.extract_tb(error.__traceback__)]

    async with adapter.client(policy=STEADY, **quick) as client:
        try:
            begin()
        except ValueError as own:
            before = where(own)
            response = await adapter.call(client, "GET", server.url + "/thing")
            after = where(own)
    assert before == after
    assert (before[-1], record_of(response).retries) == ("begin", 1)


@pytest.mark.smoke
@pytest.mark.parametrize("last", ["connect_error", OWN], ids=["giving up", "nobody knows it"])
async def test_an_error_that_ends_a_call_closes_what_was_retried(adapter, quick, budget, last):
    inner = adapter.watched([503, "read_timeout", 503, last])
    with pytest.raises(RuntimeError if last is OWN else adapter.connect_error) as caught:
        await adapter.once(inner, budget=budget, policy=STEADY, **quick)
    assert (inner.closings, left(budget, quick)) == ([1, 1], 17)
    if last is OWN:
        assert caught.value is OWN
        assert record_of(OWN).reason is Reason.UNKNOWN_ERROR


async def test_a_refusal_takes_nothing(adapter, quick, budget):
    for answer, policy, reason in (
        ((503, {"Retry-After": "3600"}), STEADY, Reason.RETRY_AFTER_TOO_LONG),
        ((503, {"x-should-retry": "false"}), STEADY, Reason.SERVER_SAID_NO),
        (503, STEADY.replace(total_timeout=0.5), Reason.DEADLINE),
        (503, STEADY.replace(max_attempts=1), Reason.ATTEMPTS_EXHAUSTED),
    ):
        inner = adapter.watched([answer])
        response = await adapter.once(inner, budget=budget, policy=policy, **quick)
        assert record_of(response).reason is reason
        assert inner.closings == [1]
    assert left(budget, quick) == 20


@pytest.mark.adapters("httpx-family")
@pytest.mark.parametrize("attempt", [1, 2])
@pytest.mark.smoke
async def test_the_callers_own_exception(adapter, server, quick, budget, attempt):
    own = OSError("the disk is gone")
    readings = 0

    def chunks():
        nonlocal readings
        readings += 1
        yield b"begin"
        if readings == attempt:
            raise own

    class Body:
        def __iter__(self):
            return chunks()

    class AsyncBody:
        async def __aiter__(self):
            for chunk in chunks():
                yield chunk

    server.script("/thing", 503)
    body = AsyncBody() if adapter.is_async else Body()
    async with adapter.client(budget=budget, policy=STEADY, **quick) as client:
        with pytest.raises(OSError) as caught:
            await adapter.call(client, "PUT", server.url + "/thing", content=body)
        assert adapter.is_idle(client)
    assert caught.value is own
    assert readings == attempt
    assert budget.tokens(server.url, quick["clock"].monotonic()) == 20 - (attempt - 1)
    assert record_of(own).reason is Reason.PERMANENT_ERROR


@pytest.mark.smoke("sync")
async def test_keyboard_interrupt_while_sleeping(adapter, budget):
    inner = adapter.watched([503, 200])
    clock = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        await adapter.once(inner, budget=budget, policy=STEADY, clock=clock)
    assert (len(inner.requests), inner.closings) == (1, [1])
    assert budget.tokens(ORIGIN, clock.monotonic()) == 20


@pytest.mark.smoke
async def test_what_is_no_exception_is_never_retried(adapter, quick, budget):
    for stop, attempt in product((KeyboardInterrupt, SystemExit), (1, 2)):
        before = left(budget, quick)
        inner = adapter.watched([503] * (attempt - 1) + [stop()])
        with pytest.raises(stop):
            await adapter.once(inner, budget=budget, policy=STEADY, **quick)
        assert len(inner.requests) == attempt
        assert left(budget, quick) == before - (attempt - 1)


@pytest.mark.smoke
async def test_four_attempts_use_one_connection(adapter, server, quick):
    server.script("/thing", "503", "429;retry-after=0;body=60000", "500;chunked=1", 200)
    response = await adapter.once(url=server.url + "/thing", **quick)
    assert response.status_code == 200
    found = [(each.connection, each.nth) for each in server.requests()]
    assert found == [(1, nth) for nth in (1, 2, 3, 4)]


@pytest.mark.parametrize("body", ["700000", "400000;chunked=1", "70000;drip=300", "64;drip=1000"])
async def test_a_large_or_slow_failed_body_is_not_read(adapter, server, quickest, body):
    """More than 64 KiB, or than a quarter of a second, costs more than a new connection."""
    bound = 0.45 if body.startswith("64;") else 0.2

    async def run():
        server.script("/thing", f"503;body={body}", 200)
        before = server.connections
        async with adapter.client(policy=RetryPolicy(backoff=Fixed(0))) as client:
            response = await adapter.call(client, "GET", server.url + "/thing")
        assert response.status_code == 200
        assert server.connections == before + 2

    assert await quickest(run, bound=bound) <= max(bound, 0.3)


@pytest.mark.adapters("httpx-family")
@pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")  # of trio: left in the middle
async def test_a_failed_body_without_end_does_not_hold_the_call(adapter, quick):
    def answer(request):
        endless = stream_of(adapter.library, repeat(b"x" * 1000))
        return adapter.library.Response(200 if inner.sent > 1 else 503, stream=endless)

    inner = Foreign(answer)
    request = adapter.library.Request("GET", URL)
    response = await adapter.send(adapter.transport(inner, **quick), request)
    assert response.status_code == 200


@pytest.mark.adapters("httpx-family")
@pytest.mark.parametrize("size", [0, 10])
@pytest.mark.parametrize("is_shown", [False, True])
async def test_a_response_that_was_read_below_is_not_read_again(adapter, server, size, is_shown):
    """Its connection may be another request's by now, whose response would be taken from it."""
    seen, shown = [], []
    options = {"retry_if": lambda response: shown.append(len(response.content))}
    server.script("/thing", f"503;body={size}", "200;body=20")
    inner, policy = reading(adapter, seen), RetryPolicy(backoff=Fixed(0))
    client = adapter.client(inner=inner, policy=policy, **(options if is_shown else {}))
    async with client as client:
        response = await adapter.call(client, "GET", server.url + "/thing")
        assert [one.is_idle() for one in inner._pool.connections] == [True]
    assert (response.status_code, len(response.content), seen) == (200, 20, [])
    assert shown == ([size, 20] if is_shown else [])
    assert server.connections == 1


async def test_draining_keeps_the_deadline(adapter, server, quickest):
    server.script("/thing", "503;body=64;drip=400")
    policy = RetryPolicy(total_timeout=0.1, backoff=Fixed(0))

    async def run():
        async with adapter.client(policy=policy) as client:
            with contextlib.suppress(adapter.DeadlineExceeded):
                await adapter.close(await adapter.open(client, "GET", server.url + "/thing"))

    assert await quickest(run, bound=0.15) <= 0.15


FAULTS = {
    "answers": ["503", "429;retry-after=0", 200],
    "large-and-reset": ["503;body=100000", "reset", 200], "hang": ["hang", 200],
    "garbage": ["garbage"], "gave-up": ["503"], "cut": ["cut:3", 200],
    "reset-body": ["reset-body:3", 200],
}  # fmt: skip


@pytest.mark.adapters("httpx-family")
@pytest.mark.parametrize("name", FAULTS)
async def test_pools_are_idle_and_sockets_closed_afterwards(adapter, server, quick, name):
    server.script("/thing", *FAULTS[name])
    descriptors = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None
    settings = adapter.reading_for(0.08) if name == "hang" else {}
    async with adapter.client(settings=settings, **quick) as client:
        for _ in range(3):
            with contextlib.suppress(adapter.transport_error):
                await adapter.call(client, "GET", server.url + "/thing")
        assert adapter.is_idle(client)
        assert len(client._transport.inner._pool.connections) <= 1
    assert await eventually(lambda: server.open_connections == 0)
    if descriptors is not None:
        assert len(os.listdir("/proc/self/fd")) <= descriptors


@pytest.mark.parametrize(("step", "is_read"), [*product(STEPS, [True]), (STEPS[1], False)])
async def test_a_pool_of_one_never_deadlocks(adapter, server, quick, step, is_read):
    server.script("/thing", step, step, 200)
    async with adapter.client(**adapter.pool_of(1), **quick) as client:
        for _ in range(2):
            with forbear.deadline(60):  # else a failure would wait for ever
                fetch = adapter.call if is_read else adapter.download
                response = await fetch(client, url=server.url + "/thing", method="GET")
            assert response.status_code == 200
        assert adapter.is_idle(client)
    assert len(server.requests()) == 4
