"""close() while calls are waiting: they wake at once and end with what they have."""

import threading

import anyio
import anyio.to_thread
import pytest

from forbear import Fixed, RetryPolicy, record_of

from .foreign import Foreign

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
    """Whether that or the library's client is closed. The answer was let go of before the wait, so
    the library's own error has its story; a held call has it (test_holding.py). The retry is given
    back.
    """
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


@pytest.mark.smoke
async def test_a_call_waiting_after_an_error_raises_it(adapter, budget):
    """The library's own error comes out with its story; its retry is given back."""
    waiting = []
    steps, noting = ["read_timeout", 200], note_waits(waiting)
    async with adapter.client(steps, policy=LONG, budget=budget, on_event=noting) as client:
        (error,) = await close_while_waiting(adapter, client, waiting)
    assert type(error) is adapter.read_timeout
    assert record_of(error).reasons == (adapter.read_timeout.__name__,)
    assert any("forbear" in note for note in error.__notes__)
    assert budget.tokens(ORIGIN, 0.0) == 20


@pytest.mark.adapters("httpx-family")
@pytest.mark.smoke
async def test_closing_the_client_closes_the_inner_transport_once(adapter):
    """close() reaches what is below, and leaving a with block as well."""

    class Counting(Foreign):
        closed = entered = 0

        def __enter__(self):
            self.entered += 1

        def __exit__(self, *exception):
            self.closed += 1

        close = __exit__

        async def __aenter__(self):
            self.entered += 1

        async def __aexit__(self, *exception):
            self.closed += 1

        aclose = __aexit__

    for in_block in (False, True):
        inner = Counting(lambda request: adapter.library.Response(200))
        client = adapter.bare_client(transport=adapter.transport(inner))
        if not in_block:
            await adapter.call(client, "GET", URL)
            await adapter.close(client)
        elif adapter.is_async:
            async with client:
                await adapter.call(client, "GET", URL)
        else:
            with client:
                await adapter.call(client, "GET", URL)
        assert (inner.entered, inner.closed) == (in_block, 1)


async def test_a_transport_that_was_closed_before_the_wait_does_not_wait(adapter, elapsed):
    """close() between the failure and the wait: no lost wake-up."""

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
