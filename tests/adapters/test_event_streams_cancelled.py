"""Streams of events that are cancelled at each of their awaits: all that was taken comes back."""

import asyncio
from contextlib import suppress
from itertools import count

import anyio
import pytest

from forbear import CircuitBreaker, ConcurrencyLimit, EventStreams, RetryGate, RetryPolicy
from forbear.testing import answer

pytestmark = pytest.mark.lanes("httpx-asyncio", "httpx-trio", "aiohttp-asyncio")

POLICY = RetryPolicy(max_attempts=9, patience=60.0).for_vendors("anthropic")
EVENTS = [f"id: {n}\ndata: {n}\n\n".encode() for n in range(1, 6)]
OVERLOADED = b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error"}}\n\n'


def stream(step, *events):
    return answer(step, body=b"".join(events), headers={"Content-Type": "text/event-stream"})


GOOD = stream("200;chunked=1", *EVENTS)
WAYS = {
    "default": (None, [stream("cut:0;chunked=1", *EVENTS), 503, stream("200", b""), GOOD]),
    "option": (
        EventStreams(first_event_timeout=60.0),
        [stream("200;chunked=1", OVERLOADED), 503, stream("cut:4;chunked=1", *EVENTS), GOOD],
    ),
    "resumed": (
        EventStreams(resume=True),
        [
            stream("cut:25;chunked=1", *EVENTS), 503, stream("200;chunked=1", *EVENTS[1:4]),
            stream("reset-body:0;chunked=1", *EVENTS), stream("200;chunked=1", *EVENTS[4:]), 204,
        ],
    ),
}  # fmt: skip


class Cancelling:
    """Awaits a coroutine, and calls ``cancel`` when it suspends for the n-th time."""

    def __init__(self, coroutine, n, cancel):
        self._coroutine, self._n, self._cancel = coroutine, n, cancel
        self.suspended = 0

    def __await__(self):
        step, value = self._coroutine.send, None
        while True:
            try:
                awaited = step(value)
            except StopIteration as ended:
                return ended.value
            self.suspended += 1
            if self.suspended == self._n:
                self._cancel()
            try:
                step, value = self._coroutine.send, (yield awaited)
            except BaseException as error:
                step, value = self._coroutine.throw, error


async def cancelled_at(n, coroutine, *, natively):
    """Run a coroutine up to its n-th await; return its result, None if it was cancelled."""
    if not natively:
        with anyio.CancelScope() as scope:
            return await Cancelling(coroutine, n, scope.cancel)
        return None

    async def run():
        return await Cancelling(coroutine, n, asyncio.current_task().cancel)

    with suppress(asyncio.CancelledError):
        return await asyncio.create_task(run())
    return None


async def whole(adapter, client, url):
    """Read a stream as a caller does, who closes it in any case."""
    response, got = await adapter.open(client, "GET", url), bytearray()
    try:
        await adapter.collect(response, got)
    finally:
        await adapter.close(response)
    return bytes(got)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
async def test_cancelled_at_any_await_nothing_is_left(adapter, server, quick, way):
    streams, steps = WAYS[way]
    tasks, got = tasks_of(adapter), None
    for n in count(1):
        slots, gate, breaker = ConcurrencyLimit(1), RetryGate(), CircuitBreaker()
        shared = {"concurrency": slots, "gate": gate, "breaker": breaker}
        options = {"policy": POLICY, "event_streams": streams, **shared, **adapter.pool_of(1)}
        path = f"/{n}"
        server.script(path, *steps)
        async with adapter.client(**options, **quick) as client:
            reading = whole(adapter, client, server.url + path)
            # httpcore itself loses connections to a task's own cancel().
            got = await cancelled_at(n, reading, natively=adapter.name == "aiohttp")
            assert adapter.is_idle(client), n
            assert (slots.in_flight(), slots.waiting(), gate.held()) == (0, 0, 0), n
            assert not any(circuit.probe for circuit in breaker._circuits.values()), n
            assert not adapter.retrying(client).port.settings.sleeper.waiting(), n
            assert tasks_of(adapter) == tasks, n
        if got is not None:
            break
    assert got == b"".join(EVENTS)
    assert n > 10
    assert len(server.requests(path)) == len(steps)


def tasks_of(adapter):
    return asyncio.all_tasks() if adapter.flavour == "asyncio" else None
