"""Hedging: however two attempts end and are cancelled, one answer at most reaches the caller."""

import asyncio
from math import inf

import anyio
import httpx
from hypothesis import given, settings
from hypothesis import strategies as st

import forbear
from forbear import Fixed, Hedge, RetryBudget, RetryPolicy
from forbear.httpx import AsyncRetryTransport

STATUSES = {"good": 200, "accepted": 404, "bad": 500, "told": 503}
ORIGIN = "http://a.example:80"


class Body(httpx.AsyncByteStream):
    def __init__(self, inner):
        self.inner, self.is_open = inner, True
        inner.open += 1

    async def __aiter__(self):
        yield b"body"

    async def aclose(self):
        await anyio.sleep(0)
        if self.is_open:
            self.is_open = False
            self.inner.open -= 1


class Inner(httpx.AsyncBaseTransport):
    """Ends attempts when it is told to; ``open`` responses are those that nobody has closed."""

    def __init__(self):
        self.open = self.under_way = self.sent = 0
        self.ends = {}

    async def handle_async_request(self, request):
        self.sent += 1
        end = self.ends[self.sent] = asyncio.get_running_loop().create_future()
        self.under_way += 1
        try:
            how = await end
        finally:
            self.under_way -= 1
        if how == "reset":
            raise httpx.ReadError("reset", request=request)
        return httpx.Response(STATUSES[how], stream=Body(self))


async def check(steps, max_attempts):
    inner, got = Inner(), []
    hedging = Hedge(delay=0.01, at_least=0, burst=1, ratio=1e-9)
    budget = RetryBudget(ratio=0, floor_per_second=0, burst=20)
    policy = RetryPolicy(max_attempts=max_attempts, backoff=Fixed(0))
    transport = AsyncRetryTransport(inner, policy=policy, hedge=hedging, gate=None, budget=budget)

    async def call():
        request = httpx.Request("GET", "http://a.example/")
        try:
            response = await transport.handle_async_request(request)
        except (Exception, asyncio.CancelledError) as error:
            got.append(error)
            raise
        got.append(response)
        await response.aread()
        await response.aclose()

    async def settled():
        for _ in range(20):
            await asyncio.sleep(0)

    task, cancelled = asyncio.create_task(call()), False
    await settled()
    alarms = transport.port.settings.layers[0].of_thread.alarms
    for kind, n, waits in steps:
        if kind == "ring":  # its timer is due now
            for race in alarms.pending:
                if race.at < inf:
                    race.at = transport.port.clock.monotonic()
            alarms.ring_due(alarms.rings_at)
        elif kind == "cancel":
            cancelled = task.cancel() or cancelled
        elif n in inner.ends and not inner.ends[n].done():
            inner.ends[n].set_result(kind)
        if waits:
            await settled()
    for _ in range(5):  # all that is still under way is answered
        for end in inner.ends.values():
            if not end.done():
                end.set_result("good")
        await settled()
    (outcome,) = await asyncio.gather(task, return_exceptions=True)
    assert isinstance(outcome, asyncio.CancelledError) == cancelled
    assert len(got) == 1
    assert inner.open == inner.under_way == 0
    assert inner.sent <= max_attempts
    assert len(asyncio.all_tasks()) == 1
    assert not transport.port.settings.layers[0].of_thread.alarms.pending
    # Each sending but the first was paid for, by one token; no other was taken.
    spent = 20 - budget.tokens(ORIGIN, transport.port.clock.monotonic())
    assert spent == max(0, inner.sent - 1)
    has_token = hedging.times(ORIGIN, "GET").spend()
    if isinstance(got[0], httpx.Response):
        attempts = forbear.record_of(got[0]).attempts
        assert has_token == all(attempt.hedged_after is None for attempt in attempts)
        assert len(attempts) == inner.sent


STEP = st.tuples(st.sampled_from([*STATUSES, "reset"]), st.integers(1, 4), st.booleans())
STEP |= st.tuples(st.sampled_from(["ring", "cancel"]), st.just(0), st.booleans())
RUNG = st.lists(STEP, max_size=3).map(lambda more: [("ring", 0, bool(len(more) % 2)), *more])


@settings(max_examples=100)
@given(RUNG | st.lists(STEP, max_size=6), st.sampled_from([2, 3]))
def test_one_answer_reaches_the_caller_and_all_is_back(steps, max_attempts):
    asyncio.run(check(steps, max_attempts))
