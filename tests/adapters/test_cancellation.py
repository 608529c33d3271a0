"""P6 under cancellation: nothing stays open and nothing stays taken."""

import asyncio

import anyio
import pytest

import forbear
from forbear import Fixed, RetryPolicy

from ..lanes import ORIGIN

pytestmark = pytest.mark.adapters("httpx-family", "async")

LONG = RetryPolicy(backoff=Fixed(30))  # of real time: a wait that was not cut would show


class Stuck:
    """Answers by a script, then never."""

    def __init__(self, adapter, steps):
        self.answering, self.left = adapter.watched(steps or [200]), len(steps)
        self.reached, self.aclose = anyio.Event(), self.answering.aclose

    async def handle_async_request(self, request):
        if self.left:
            self.left -= 1
            return await self.answering.handle_async_request(request)
        self.reached.set()
        return await anyio.sleep_forever()


async def cancel_when(event, adapter, client):
    """Begin a call and cancel its task natively once the event is there; say how it ended."""
    ended = []

    async def call():
        try:
            ended.append(await adapter.outcome(client))
        except anyio.get_cancelled_exc_class():
            ended.append("cancelled")
            raise

    if adapter.flavour == "asyncio":
        task = asyncio.get_running_loop().create_task(call())
        await event.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await event.wait()
            group.cancel_scope.cancel()
    return ended


@pytest.mark.parametrize("steps", [[], [503], [503, 502]], ids=len)
@pytest.mark.smoke
async def test_cancelled_while_sending(adapter, budget, steps, clock):
    inner = Stuck(adapter, steps)
    options = {"policy": RetryPolicy(backoff=Fixed(0)), "budget": budget, "clock": clock}
    async with adapter.client(inner, **options) as client:
        with anyio.fail_after(20):
            assert await cancel_when(inner.reached, adapter, client) == ["cancelled"]
    assert budget.tokens(ORIGIN, clock.monotonic()) == 20 - len(steps)
    assert inner.answering.closings == [1] * len(steps)


@pytest.mark.parametrize("steps", [[503, 200], ["connect_error", 200]], ids=["answer", "error"])
@pytest.mark.smoke
async def test_cancelled_while_sleeping(adapter, budget, steps):
    inner = adapter.watched(steps)
    sleeping = anyio.Event()

    def scheduled(event):
        if event.name == "retry_scheduled":
            sleeping.set()

    transport = adapter.transport(inner, policy=LONG, budget=budget, on_event=[scheduled])
    async with adapter.client(settings={"transport": transport}) as client:
        with anyio.fail_after(20):
            assert await cancel_when(sleeping, adapter, client) == ["cancelled"]
        assert transport.port.settings.sleeper.waiting() == 0
    assert len(inner.requests) == 1
    assert inner.closings == ([1] if steps[0] == 503 else [])
    assert budget.tokens(ORIGIN, 0.0) == 20


async def test_a_scope_around_the_call_is_not_taken_for_our_deadline(adapter):
    inner = Stuck(adapter, [])
    with anyio.move_on_after(0.03) as scope:
        await adapter.once(inner, policy=RetryPolicy(total_timeout=60))
    assert scope.cancelled_caught
    with anyio.move_on_after(60) as scope, pytest.raises(adapter.DeadlineExceeded):
        await adapter.once(inner, policy=RetryPolicy(total_timeout=0.03))
    assert not scope.cancelled_caught


@pytest.mark.parametrize("bound", ["total_timeout", "deadline"])
@pytest.mark.smoke
async def test_an_inner_transport_that_ignores_timeouts_is_cut_off(adapter, quickest, bound):
    """P4: an asynchronous call ends at most 50 ms after its deadline (and 20 more to get here)."""
    policy = RetryPolicy(backoff=Fixed(0), total_timeout=0.1 if bound == "total_timeout" else None)

    async def run():
        inner = Stuck(adapter, [503])
        with forbear.deadline(0.1 if bound == "deadline" else 60):
            with pytest.raises(adapter.DeadlineExceeded) as caught:
                await adapter.once(inner, policy=policy)
        assert forbear.record_of(caught.value).reasons == ("503", "DeadlineExceeded")
        assert inner.answering.closings == [1]

    assert 0.1 <= await quickest(run, bound=0.17) <= 0.17
