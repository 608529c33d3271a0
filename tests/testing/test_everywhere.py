"""fast() and disabled(): retries that take no time, or are not made, in code out of reach."""

import time
from concurrent.futures import ThreadPoolExecutor

import anyio
import anyio.to_thread
import httpx
import pytest

import forbear
from forbear import Fixed, IdempotencyKeys, RetryGate, RetryPolicy, record_of
from forbear.engine import current
from forbear.engine.clock import SYSTEM_CLOCK
from forbear.testing import FakeClock, ScriptedTransport, disabled, fast
from forbear.testing.clock import SKIPPING, Everywhere

from ..lanes import lane_of
from .clients import PATIENT, URL, ascripted, scripted

HTTPX = lane_of("httpx-sync")
BRIEF = RetryPolicy(max_attempts=2, backoff=Fixed(0.05))


def is_on() -> bool:
    return current.everywhere is not None or SYSTEM_CLOCK.stand_in is not None


@pytest.fixture(autouse=True)
def nothing_is_left():
    """After each test, however its blocks were left, nothing holds any more."""
    yield
    assert not is_on()


@pytest.mark.smoke
def test_every_adapter_is_reached_also_in_a_bare_thread(adapter, server):
    """Waits of 100 s take no time and count as waited; a limit ends a call where it would."""
    server.script("/", 503)

    def get(policy=PATIENT):
        (response,) = adapter.calls(("GET", server.url), policy=policy, clock=None)
        return record_of(response)

    with ThreadPoolExecutor(1) as pool:
        began = time.monotonic()
        with fast():
            found = pool.submit(get).result()
        assert time.monotonic() - began < 60
        assert [attempt.delay for attempt in found.attempts] == [100.0, 100.0, 100.0, None]
        assert 300 <= found.elapsed < 360
        with fast(max_attempts=2):
            assert len(get().attempts) == 2
        with disabled():
            found = pool.submit(get).result()
        assert (len(found.attempts), found.reason) == (1, "attempts-exhausted")
    with fast(), forbear.deadline(250.0):
        found = get()
    assert (len(found.attempts), found.reason, found.refused_delay) == (3, "deadline", 100.0)
    began = time.monotonic()
    get(BRIEF)
    assert time.monotonic() - began >= 0.05, "after the block waits are real"


def test_a_request_of_its_own_mind_is_bounded_too():
    client = scripted(503)
    for setting in ({"max_attempts": 9}, RetryPolicy(max_attempts=9), None):
        with disabled(), forbear.override(max_attempts=8):
            assert len(record_of(client.get(URL, extensions={"forbear": setting})).attempts) == 1


def test_everything_but_the_attempts_is_as_in_production_when_disabled():
    """A generated key is sent, and a policy that raises does so."""
    inner = ScriptedTransport([503])
    options = {"policy": PATIENT.replace(on_exhausted="raise"), "idempotency": IdempotencyKeys()}
    with disabled(), HTTPX.build(inner, options) as client:
        with pytest.raises(httpx.HTTPStatusError):
            client.post(URL, json={})
    assert [bool(request.headers["idempotency-key"]) for request in inner.requests] == [True]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_cancellation_arrives_while_waits_are_skipped(backend):
    """Ten thousand attempts are no busy loop that only ends with itself."""

    async def run():
        policy = PATIENT.replace(max_attempts=10_000)
        async with ascripted(503, policy=policy) as client:
            with fast(), anyio.move_on_after(0.05) as scope:
                await client.get(URL)
        return scope.cancelled_caught

    assert anyio.run(run, backend=backend)


def test_a_held_call_is_given_up_at_once_and_counts_as_held():
    """Sent at 0, 0.5 and 1 s, and as a probe 4 s later. The next one would go at 13 s, and patience
    is over at 12: 10 s beyond four waits of 0.5 s.
    """
    policy = RetryPolicy(max_attempts=99, backoff=Fixed(0.5))
    client = scripted(503, policy=policy, gate=RetryGate(), random=lambda: 0.5)
    began = time.monotonic()
    with fast():
        found = record_of(client.get(URL))
    assert time.monotonic() - began < 12 <= found.elapsed < 24
    assert (found.reason, len(found.attempts)) == ("origin-unhealthy", 4)


@pytest.mark.parametrize("clock", [FakeClock(), SKIPPING], ids=["fake", "skipping"])
def test_tasks_over_a_short_outage_all_succeed(clock):
    """20 at once, and as many answers of 503, as in production: within 10 s of patience."""
    statuses = []

    async def run():
        outage = [503] * 20
        async with ascripted(*outage, 200, policy=RetryPolicy(), gate=RetryGate()) as client:

            async def call():
                statuses.append((await client.get(URL)).status_code)

            async with anyio.create_task_group() as tasks:
                for _ in range(20):
                    tasks.start_soon(call)

    began = clock.monotonic()
    with Everywhere(clock=clock):
        anyio.run(run)
        assert clock.monotonic() - began <= 10.75
    assert statuses == [200] * 20


def test_a_broken_download_stays_broken_when_disabled(server):
    """The rest would be a second request."""
    server.script("/", "cut:70001;body=200000;etag=v1", "200;body=200000;etag=v1")
    with disabled():
        (error,) = HTTPX.calls(("GET", server.url), policy=PATIENT, clock=None)
    assert isinstance(error, httpx.RemoteProtocolError)
    assert len(server.requests()) == 1
    assert record_of(error).reason == "attempts-exhausted"
