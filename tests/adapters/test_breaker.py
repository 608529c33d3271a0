"""breaker=: refused at once in the library's own family, probed by few, and nothing stays taken, on
every adapter.
"""

import time

import anyio
import pytest

from forbear import (
    CircuitBreaker,
    CircuitOpenError,
    Reason,
    RetryBudget,
    RetryGate,
    RetryPolicy,
    record_of,
)
from forbear.engine.clock import SYSTEM_CLOCK
from forbear.engine.context import Incoming
from forbear.engine.incoming import Answering
from forbear.testing import FakeClock, ScriptedTransport

pytestmark = pytest.mark.anyio
one_lane = pytest.mark.adapters("httpx", "sync")

URL = "http://api.example.com/thing"
ORIGIN = "http://api.example.com:80"
ONCE = RetryPolicy(max_attempts=1)


def a_breaker(failures, **fields):
    """A breaker that opens after so many failures in a row, for 30 s."""
    slow = {"failure_rate": None, "open_for": 30.0}
    return CircuitBreaker(failures, **{**slow, **fields})


async def outcome(adapter, client, method="GET", url=URL, **request):
    """The status of an answer, or the exception."""
    try:
        return (await adapter.call(client, method, url, **request)).status_code
    except Exception as error:
        return error


@pytest.mark.smoke
async def test_after_five_failures_calls_are_refused_at_once(adapter, quick):
    inner, budget = adapter.watched([503]), RetryBudget(ratio=0, floor_per_second=0)
    options = {"policy": ONCE, "breaker": a_breaker(5), "budget": budget, **quick}
    async with adapter.client(inner, **options) as client:
        assert [await outcome(adapter, client) for _ in range(5)] == [503] * 5
        quick["clock"].advance(10)
        with pytest.raises(adapter.CircuitOpenError) as caught:
            await adapter.call(client, "GET", URL)
    error = caught.value
    assert isinstance(error, adapter.transport_error)
    assert isinstance(error, CircuitOpenError)
    assert (error.reason, error.retry_after) == (Reason.CIRCUIT_OPEN, 20.0)
    assert str(error) == f"nothing is sent to {ORIGIN} now: circuit-open, try again in 20 s"
    assert (record_of(error).attempts, record_of(error).reason) == ((), Reason.CIRCUIT_OPEN)
    assert len(inner.requests) == 5
    assert quick["clock"].sleeps == []
    assert budget.quiet


@pytest.mark.smoke
async def test_a_probe_that_succeeds_closes_it(adapter, quick):
    breaker = a_breaker(1)
    async with adapter.client([503, 200], policy=ONCE, breaker=breaker, **quick) as client:
        await outcome(adapter, client)
        quick["clock"].advance(30)
        assert [await outcome(adapter, client) for _ in range(3)] == [200] * 3
    assert breaker.quiet


@pytest.mark.smoke
@pytest.mark.adapters("httpx-family", "async")
@pytest.mark.parametrize("special", [False, True], ids=["fast path", "loop"])
async def test_a_probe_that_is_cancelled_gives_its_permit_back(adapter, quick, special):
    class Slow(ScriptedTransport):
        async def handle_async_request(self, request):
            response = await super().handle_async_request(request)
            if response.status_code == 201:
                await anyio.sleep_forever()
            return response

    breaker = a_breaker(1)
    policy = ONCE.replace(total_timeout=1e6) if special else ONCE
    options = {"policy": policy, "breaker": breaker, **quick}
    async with adapter.client(Slow([503, *[201] * 100, 200]), **options) as client:
        await outcome(adapter, client)
        quick["clock"].advance(30)
        for _ in range(100):
            with anyio.move_on_after(0.001):
                await adapter.call(client, "GET", URL)
        assert breaker.refused_for(ORIGIN, quick["clock"].monotonic()) == 0
        assert await outcome(adapter, client) == 200
    assert breaker.quiet


@pytest.mark.smoke
@pytest.mark.adapters("sync")
@pytest.mark.parametrize("special", [False, True], ids=["fast path", "loop"])
async def test_an_interrupted_probe_gives_its_permit_back(adapter, quick, special):
    def interrupted(request):
        raise KeyboardInterrupt

    breaker = a_breaker(1)
    policy = ONCE.replace(total_timeout=1e6) if special else ONCE
    async with adapter.client(
        [503, interrupted, 200], policy=policy, breaker=breaker, **quick
    ) as client:
        await outcome(adapter, client)
        quick["clock"].advance(30)
        with pytest.raises(KeyboardInterrupt):
            await adapter.call(client, "GET", URL)
        assert await outcome(adapter, client) == 200
    assert breaker.quiet


@one_lane
async def test_pitfall_68_a_probe_whose_answer_is_never_read_blocks_nobody(adapter, quick, server):
    server.script("/probe", 503, 200)
    breaker = a_breaker(1)
    async with adapter.client(policy=ONCE, breaker=breaker, **quick) as client:
        await outcome(adapter, client, url=server.url + "/probe")
        quick["clock"].advance(30)
        response = await adapter.open(client, "GET", server.url + "/probe")
        assert response.status_code == 200 if adapter.name != "urllib3" else response.status == 200
        assert breaker.quiet
        await adapter.close(response)


@pytest.mark.adapters("httpx-family")
async def test_an_attempt_that_the_callers_deadline_cuts_says_nothing_unless_it_had_its_time(
    adapter,
):
    for seconds, limits, counts in (
        *((0.04, {}, False), (0.9, {}, False), (1.2, {}, True)),
        (0.04, {"total_timeout": 0.03}, True),  # our own deadline cuts it
        (0.04, {"total_timeout": 30}, False),
        (0.5, {"attempt_timeout": 0.6}, False),
        (0.7, {"attempt_timeout": 0.6}, True),  # our own timeout ends it
        (0.04, None, True),  # a deadline of the service's own: RetryContextMiddleware(deadline=)
    ):
        clock, gate, breaker = FakeClock(), RetryGate(), a_breaker(3)

        def hang(request, clock=clock):
            clock.advance(request.extensions["timeout"].get("read"))
            raise adapter.library.ReadTimeout("too slow")

        policy = ONCE.replace(**limits or {})
        options = {"policy": policy, "breaker": breaker, "gate": gate}
        async with adapter.client([hang], clock=clock, **options) as client:
            for _ in range(3):
                ends_at = clock.monotonic() + seconds
                with Answering(Incoming(0, ends_at, clock, False, limits is None)):
                    await outcome(adapter, client)
        assert (breaker.state(ORIGIN, clock.monotonic()) == "open") is counts, (seconds, limits)
        assert gate.is_healthy(ORIGIN) is not counts


@pytest.mark.adapters("urllib3-family")
@pytest.mark.parametrize("probes", [False, True])
async def test_the_callers_deadline_opens_no_circuit_and_keeps_no_permit(adapter, server, probes):
    server.script("/hang", "hang")
    breaker = a_breaker(2, open_for=0.001)
    async with adapter.client(policy=ONCE, breaker=breaker) as client:
        origin = server.url
        for _ in range(2 * probes):
            breaker.record(origin, failed=True, sent_at=time.monotonic(), now=time.monotonic())
        time.sleep(0.01)
        for _ in range(3):
            with Answering(Incoming(0, time.monotonic() + 0.04, SYSTEM_CLOCK, False)):
                error = await outcome(adapter, client, url=server.url + "/hang")
            assert type(error) is adapter.DeadlineExceeded
    assert breaker.state(origin, time.monotonic()) == ("half_open" if probes else "closed")
