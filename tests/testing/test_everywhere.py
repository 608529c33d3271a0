"""fast() and disabled(): retries that take no time, or are not made, in code whose transports are
out of reach.
"""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from random import Random

import anyio
import anyio.to_thread
import httpx
import httpx2
import pytest
import requests
import urllib3
from hypothesis import given
from hypothesis import strategies as st

import forbear
import forbear.httpx
import forbear.httpx2
import forbear.requests
import forbear.urllib3
from forbear import (
    AwsStandard,
    CircuitBreaker,
    Fixed,
    IdempotencyKeys,
    RetryGate,
    RetryPolicy,
    pytest_plugin,
    record_of,
)
from forbear.sending import context
from forbear.sending.clock import SYSTEM_CLOCK
from forbear.testing import FakeClock, FaultServer, ScriptedTransport, disabled, fast, record
from forbear.testing.clock import SKIPPING
from forbear.testing.everywhere import Everywhere

from ..threads import in_threads

URL = "http://api.example/"
PATIENT = RetryPolicy(max_attempts=4, backoff=Fixed(100.0))  # seconds that no test waits for
BRIEF = RetryPolicy(max_attempts=2, backoff=Fixed(0.05))


def is_on() -> bool:
    return context.everywhere is not None or SYSTEM_CLOCK.stand_in is not None


@pytest.fixture(autouse=True)
def nothing_is_left():
    """After each test, however its blocks were left, nothing holds any more."""
    yield
    assert not is_on()


@pytest.fixture
def server():
    with FaultServer() as server:
        server.script("/", 503)
        yield server


def scripted(*steps, policy=PATIENT, **options):
    options = {"gate": None, **options} if "strategy" not in options else options
    inner = ScriptedTransport(steps)
    return httpx.Client(transport=forbear.httpx.RetryTransport(inner, policy=policy, **options))


def ascripted(*steps, policy=PATIENT, **options):
    transport = forbear.httpx.AsyncRetryTransport(
        ScriptedTransport(steps), policy=policy, **{"gate": None, **options}
    )
    return httpx.AsyncClient(transport=transport)


def attempts(client, url=URL) -> int:
    return len(record_of(client.get(url)).attempts)


# --- every adapter ----------------------------------------------------------------------------


def over_httpx(policy, closing):
    client = httpx.Client(transport=forbear.httpx.RetryTransport(policy=policy, gate=None))
    closing(client.close)
    return client.get


def over_httpx2(policy, closing):
    client = forbear.httpx2.wrap(httpx2.Client(), policy, gate=None)
    closing(client.close)
    return client.get


def over_an_event_loop(backend):
    async def get(url, policy):
        transport = forbear.httpx.AsyncRetryTransport(policy=policy, gate=None)
        async with httpx.AsyncClient(transport=transport) as client:
            return await client.get(url)

    return lambda policy, closing: lambda url: anyio.run(get, url, policy, backend=backend)


def over_requests(policy, closing):
    session = requests.Session()
    session.trust_env = False
    closing(session.close)
    return forbear.requests.mount(session, policy, gate=None).get


def over_urllib3(make):
    def over(policy, closing):
        manager = make(policy)
        closing(manager.clear)
        return lambda url: manager.request("GET", url)

    return over


OVER = {
    "httpx": over_httpx,
    "httpx2": over_httpx2,
    "asyncio": over_an_event_loop("asyncio"),
    "trio": over_an_event_loop("trio"),
    "requests": over_requests,
    "pool": over_urllib3(lambda policy: forbear.urllib3.RetryPoolManager(policy, gate=None)),
    "Retry": over_urllib3(
        lambda policy: urllib3.PoolManager(retries=forbear.urllib3.Retry(policy))
    ),
}


@pytest.mark.parametrize("over", OVER.values(), ids=OVER)
def test_every_adapter_is_reached_also_in_a_bare_thread(over, server, request):
    """Waits of 100 s take no time and count as waited; a limit ends a call where it would."""
    url = f"{server.url}/"
    with ThreadPoolExecutor(1) as pool:
        get = pool.submit(over, PATIENT, request.addfinalizer).result()
        began = time.monotonic()
        with fast():
            found = record_of(pool.submit(get, url).result())
        assert time.monotonic() - began < 60
        assert [attempt.delay for attempt in found.attempts] == [100.0, 100.0, 100.0, None]
        assert 300 <= found.elapsed < 360
        with fast(max_attempts=2):
            assert len(record_of(get(url)).attempts) == 2
        with disabled():
            found = record_of(pool.submit(get, url).result())
        assert (len(found.attempts), found.reason) == (1, "attempts-exhausted")
    with fast(), forbear.deadline(250.0):
        found = record_of(get(url))
    assert (len(found.attempts), found.reason, found.refused_delay) == (3, "deadline", 100.0)
    # After the block waits are real, with a client that was used inside.
    get = over(BRIEF, request.addfinalizer)
    with fast():
        get(url)
    began = time.monotonic()
    get(url)
    assert time.monotonic() - began >= 0.05


# --- what it does -----------------------------------------------------------------------------


def test_events_tell_of_as_many_attempts_as_are_made():
    events = record()
    with fast(max_attempts=9):
        assert attempts(scripted(503)) == 4  # never more than the policy has
    with Everywhere(listener=events), fast(max_attempts=2):
        attempts(scripted(503))
    assert events.names == ["attempt_failed", "retry_scheduled", "attempt_failed", "gave_up"]
    (scheduled,) = events.named("retry_scheduled")
    assert (scheduled.attempt, scheduled.max_attempts, scheduled.delay) == (1, 2, 100.0)


@pytest.mark.parametrize("setting", [{"max_attempts": 9}, RetryPolicy(max_attempts=9), None])
def test_a_request_of_its_own_mind_is_bounded_too(setting):
    client = scripted(503)
    with disabled(), forbear.override(max_attempts=8):
        assert len(record_of(client.get(URL, extensions={"forbear": setting})).attempts) == 1


def test_a_strategy_of_the_users_own_is_bounded_too():
    client = scripted(503, strategy=AwsStandard())
    with fast():
        assert attempts(client) == 3
    with fast(max_attempts=2):
        assert attempts(client) == 2


def test_everything_but_the_attempts_is_as_in_production_when_disabled():
    """A generated key is sent, and a policy that raises does so."""
    inner = ScriptedTransport([503])
    transport = forbear.httpx.RetryTransport(
        inner, policy=PATIENT.replace(on_exhausted="raise"), idempotency=IdempotencyKeys()
    )
    with disabled(), httpx.Client(transport=transport) as client:
        with pytest.raises(httpx.HTTPStatusError):
            client.post(URL, json={})
    assert [bool(request.headers["idempotency-key"]) for request in inner.requests] == [True]


def test_a_clock_of_the_transports_own_is_kept():
    clock = FakeClock()
    with fast():
        scripted(503, 200, clock=clock).get(URL)
    assert clock.sleeps == [100.0]


def test_a_breaker_lets_a_probe_through_after_the_waits_that_were_skipped():
    """Opened for 150 s by two failures: still open one wait of 100 s later, not after two."""
    breaker = CircuitBreaker(consecutive_failures=2, failure_rate=None, open_for=150.0)
    twice = PATIENT.replace(max_attempts=2)
    client = scripted(503, 503, 200, breaker=breaker, policy=twice)
    other = scripted(503, policy=twice)
    with fast():
        assert client.get(URL).status_code == 503
        other.get("http://other.example/")
        with pytest.raises(forbear.CircuitOpenError):
            client.get(URL)
        other.get("http://other.example/")
        assert client.get(URL).status_code == 200


def test_closing_the_transport_ends_a_call_that_skips():
    """As it wakes one that waits: the last answer is returned, nothing more is sent."""
    inner = ScriptedTransport([503])
    transport = forbear.httpx.RetryTransport(
        inner, policy=PATIENT, before_attempt=lambda request, attempt: transport.close()
    )
    with fast(), httpx.Client(transport=transport) as client:
        assert client.get(URL).status_code == 503
    assert len(inner.requests) == 2


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


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_calls_side_by_side_each_skip_their_own_waits(backend):
    """Ten calls that wait 300 s each, at once: with 350 s for each, none runs out of time."""
    found = []

    async def run():
        policy = PATIENT.replace(total_timeout=350.0)
        async with ascripted(503, policy=policy) as client:

            async def call():
                found.append(record_of(await client.get(URL)).reason)

            async with anyio.create_task_group() as tasks:
                for _ in range(10):
                    tasks.start_soon(call)

    with fast():
        anyio.run(run, backend=backend)
    assert found == ["attempts-exhausted"] * 10


# --- held calls -------------------------------------------------------------------------------


class Outage:
    """So many answers of 503, then 200."""

    def __init__(self, failing):
        self.left = failing
        self._lock = threading.Lock()

    def __call__(self, request):
        with self._lock:
            self.left -= 1
            return 503 if self.left >= 0 else 200


def test_a_held_call_is_given_up_at_once_and_counts_as_held():
    """Sent at 0 and 0.5 s, and as a probe 2 and 4 s later, ±25 %; the next one comes after 10.5 s."""
    policy = RetryPolicy(max_attempts=99, backoff=Fixed(0.5))
    began = time.monotonic()
    with fast():
        found = record_of(scripted(503, policy=policy, gate=RetryGate()).get(URL))
    assert time.monotonic() - began < 5
    assert found.reason == "origin-unwell"
    assert 10.5 <= found.elapsed < 10.5 + 5
    assert len(found.attempts) == 4


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_tasks_over_a_short_outage_all_succeed(backend):
    """20 at once, and as many answers of 503, as in production."""
    statuses = []

    async def run():
        async with ascripted(Outage(20), policy=RetryPolicy(), gate=RetryGate()) as client:

            async def call():
                statuses.append((await client.get(URL)).status_code)

            async with anyio.create_task_group() as tasks:
                for _ in range(20):
                    tasks.start_soon(call)

    with fast():
        anyio.run(run, backend=backend)
    assert statuses == [200] * 20


def test_threads_over_a_short_outage_all_succeed():
    statuses = []
    client = scripted(Outage(20), policy=RetryPolicy(), gate=RetryGate())
    with fast():
        in_threads(20, lambda n: statuses.append(client.get(URL).status_code))
    assert statuses == [200] * 20


def test_a_held_call_is_not_held_when_disabled():
    gate = RetryGate()
    client = scripted(503, policy=RetryPolicy(), gate=gate)
    with disabled():
        assert [attempts(client) for _ in range(3)] == [1, 1, 1]
    assert gate.held() == 0


def test_threads_that_have_skipped_different_times_share_a_gate():
    """One has skipped an hour; for it the other's new call was long ago, for that one's it is."""
    gate = RetryGate()
    client = scripted(503, 503, 200, policy=PATIENT.replace(backoff=Fixed(3_600)), gate=gate)
    with fast(), ThreadPoolExecutor(1) as pool:
        client.get(URL)
        assert not gate.quiet
        client.get(URL)
        assert pool.submit(client.get, URL).result().status_code == 200


BROKEN = "cut:70001;body=200000;etag=v1", "200;body=200000;etag=v1"


def test_a_broken_download_goes_on_at_once(server, request):
    """The wait before the rest is asked for is skipped and noted as any other, and is heard of."""
    server.script("/", *BROKEN)
    events = record()
    with fast(), Everywhere(listener=events):
        response = over_httpx(PATIENT, request.addfinalizer)(f"{server.url}/")
        assert len(response.content) == 200_000
    assert record_of(response).attempts[0].delay == 100.0
    assert events.names == ["attempt_failed", "retry_scheduled", "resume"]


def test_a_broken_download_stays_broken_when_disabled(server, request):
    """The rest would be a second request."""
    server.script("/", *BROKEN)
    with disabled(), pytest.raises(httpx.RemoteProtocolError) as caught:
        over_httpx(PATIENT, request.addfinalizer)(f"{server.url}/")
    assert len(server.requests()) == 1
    assert record_of(caught.value).reason == "attempts-exhausted"


# --- as a decorator ---------------------------------------------------------------------------


def test_a_decorated_function_is_fast_and_keeps_its_name():
    """A coroutine function too."""
    client = scripted(503)

    @fast(max_attempts=3)
    def look():
        return attempts(client)

    @fast()
    async def alook():
        async with ascripted(503) as client:
            return len(record_of(await client.get(URL)).attempts)

    assert [look(), look(), anyio.run(alook)] == [3, 3, 4]
    assert (look.__name__, alook.__name__) == ("look", "alook")


def test_what_cannot_be_decorated_says_what_to_do():
    def generator():
        yield

    with pytest.raises(TypeError, match="use the with block inside it instead"):
        fast()(generator)
    with pytest.raises(TypeError, match="decorate the functions of FakeClock, or use the fixture"):
        disabled()(FakeClock)


@pytest.mark.parametrize(("given", "error"), [(0, ValueError), ("2", TypeError), (1.5, TypeError)])
def test_a_number_of_attempts_is_checked_at_once(given, error):
    with pytest.raises(error, match="max_attempts"):
        fast(max_attempts=given)


# --- nothing is left behind -------------------------------------------------------------------


def test_an_inner_block_ends_alone():
    client = scripted(503)
    with fast():
        with fast(max_attempts=2):
            assert attempts(client) == 2
        with disabled():
            with fast(max_attempts=3):  # what disables holds
                assert attempts(client) == 1
        assert attempts(client) == 4


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, GeneratorExit])
def test_an_exception_ends_a_block(error):
    with pytest.raises(error), fast(), disabled():
        raise error
    assert not is_on()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_block_holds_for_the_whole_process(backend):
    """Also for a task beside it; and not for one that was begun in it and outlives it."""
    found = []

    async def call(began, ended):
        await began.wait()
        async with ascripted(503) as client:
            found.append(len(record_of(await client.get(URL)).attempts))
        await ended.wait()
        async with ascripted(503, policy=BRIEF) as client:
            found.append(len(record_of(await client.get(URL)).attempts))

    async def run():
        began, ended = anyio.Event(), anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, began, ended)
            with disabled():
                tasks.start_soon(call, began, ended)
                began.set()
                await anyio.sleep(0.01)
            ended.set()

    anyio.run(run, backend=backend)
    assert found == [1, 1, 2, 2]


def test_overlapping_blocks_of_threads_leave_nothing():
    """Eight threads enter and leave one block at once."""
    shared = fast()
    missing = []

    def play(n):
        for _ in range(200):
            with shared:
                if not is_on():
                    missing.append(True)

    in_threads(8, play)
    assert not missing
    assert not is_on()


def test_threads_leave_shared_blocks_in_any_order():
    """200 times eight threads enter three shared blocks, and leave them in random order."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    blocks = [fast(), disabled(), fast(max_attempts=2)]
    missing = []

    def play(n):
        random = Random(n)
        for _ in range(200):
            mine = random.choices(blocks, k=3)
            for block in mine:
                block.__enter__()
            fewest = min(block.most_attempts for block in mine)
            if context.everywhere is None or context.everywhere.most_attempts > fewest:
                missing.append(mine)
            for block in random.sample(mine, 3):
                block.__exit__(None, None, None)

    try:
        in_threads(8, play)
    finally:
        sys.setswitchinterval(interval)
    assert not missing
    assert not is_on()


def test_fixtures_beside_blocks_of_threads_leave_nothing():
    """The three of the process, entered and left in threads, as parallel runners of pytest do."""
    names = ("forbear_clock", "forbear_events", "forbear_fast")
    made = [getattr(pytest_plugin, name).__wrapped__ for name in names]

    def play(n):
        random = Random(n)
        for _ in range(50):
            mine = [make() for make in random.choices(made, k=2)]
            for fixture in mine:
                next(fixture)
            for fixture in random.sample(mine, 2):
                assert next(fixture, None) is None

    in_threads(4, play)
    assert not is_on()


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=40))
def test_what_holds_is_what_was_entered_and_not_left(steps):
    """Blocks entered and left in any order, by a model: a list."""
    clocks = [FakeClock(), None, SKIPPING, None]
    entered = []
    for enters, which in steps:
        if enters:
            block = Everywhere(most_attempts=which, clock=clocks[which])
            entered.append(block.__enter__())
        elif entered:
            entered.pop(which % len(entered)).__exit__(None, None, None)
        assert is_on() == bool(entered)
        if entered:
            assert context.everywhere.most_attempts == min(b.most_attempts for b in entered)
        given_clocks = {block.clock for block in entered} - {None}
        # The clock that a test reads wins over the one that skips.
        expected = clocks[0] if clocks[0] in given_clocks else next(iter(given_clocks), None)
        assert SYSTEM_CLOCK.stand_in is expected
    for block in entered:
        block.__exit__(None, None, None)


def test_time_that_was_skipped_is_skipped_inside_only():
    assert repr(SKIPPING) == "<SkippingClock>"
    with fast():
        before = SYSTEM_CLOCK.monotonic()
        scripted(503).get(URL)
        assert 300 <= SYSTEM_CLOCK.monotonic() - before < 360
        assert abs(SYSTEM_CLOCK.time() - time.time()) < 60
    assert abs(SYSTEM_CLOCK.monotonic() - time.monotonic()) < 60
