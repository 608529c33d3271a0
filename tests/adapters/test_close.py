"""close() while calls are waiting: they wake at once and end with what they have."""

import threading

import anyio
import anyio.to_thread
import pytest

from forbear import Fixed, RetryPolicy, record_of

pytestmark = pytest.mark.anyio

URL = "http://api.example.com/thing"
ORIGIN = "http://api.example.com:80"
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
