"""fast() and disabled(): retries that take no time, or are not made, in code whose transports are
out of reach.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

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
    RetryPolicy,
    StandardStrategy,
    record_of,
)
from forbear._rehearsal import AROUND, ON, Rehearsal, in_force
from forbear.sending.clock import SKIPPING, SYSTEM_CLOCK
from forbear.testing import FakeClock, FaultServer, ScriptedTransport, disabled, fast, record
from forbear.testing.rehearsing import Rehearsing

URL = "http://api.example/"
LONG = Fixed(100.0)  # seconds that no test waits for
BRIEF = Fixed(0.05)  # seconds that a test can wait for, and that nothing else here takes
PATIENT = RetryPolicy(max_attempts=4, backoff=LONG)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


CLOSES: list[Any] = []  # of the clients of the test that runs


@pytest.fixture(autouse=True)
def nothing_is_left():
    """After each test, however its blocks were left, nothing is rehearsed any more."""
    yield
    while CLOSES:
        CLOSES.pop()()
    assert not ON
    assert in_force() is None


@pytest.fixture
def server():
    with FaultServer() as server:
        server.script("/", 503)
        yield server


# One function per adapter and colour; each builds its client before any block is entered.


def over_httpx(url, policy, **options):
    client = httpx.Client(transport=forbear.httpx.RetryTransport(policy=policy, **options))
    CLOSES.append(client.close)
    return lambda: client.get(url)


def over_httpx2(url, policy, **options):
    client = forbear.httpx2.wrap(httpx2.Client(), policy, **options)
    CLOSES.append(client.close)
    return lambda: client.get(url)


def over_requests(url, policy, **options):
    session = requests.Session()
    session.trust_env = False
    forbear.requests.mount(session, policy, **options)
    CLOSES.append(session.close)
    return lambda: session.get(url)


def over_a_pool(url, policy, **options):
    manager = forbear.urllib3.RetryPoolManager(policy, **options)
    CLOSES.append(manager.clear)
    return lambda: manager.request("GET", url)


def over_retry(url, policy, **options):
    manager = urllib3.PoolManager(retries=forbear.urllib3.Retry(policy, **options))
    CLOSES.append(manager.clear)
    return lambda: manager.request("GET", url)


def asynchronous(module, library, backend):
    def over(url, policy, **options):
        async def get():
            transport = module.AsyncRetryTransport(policy=policy, **options)
            async with library.AsyncClient(transport=transport) as client:
                return await client.get(url)

        return lambda: anyio.run(get, backend=backend)

    return over


SYNC = [
    pytest.param(over_httpx, id="httpx"),
    pytest.param(over_httpx2, id="httpx2"),
    pytest.param(over_requests, id="requests"),
    pytest.param(over_a_pool, id="urllib3"),
    pytest.param(over_retry, id="urllib3 Retry"),
]
ASYNC = [  # each call runs an event loop of its own
    *(
        pytest.param(asynchronous(module, library, backend), id=f"{library.__name__} {backend}")
        for module, library in ((forbear.httpx, httpx), (forbear.httpx2, httpx2))
        for backend in ("asyncio", "trio")
    ),
]
every_adapter = pytest.mark.parametrize("over", SYNC + ASYNC)


def scripted(*steps, policy=PATIENT, **options):
    return httpx.Client(
        transport=forbear.httpx.RetryTransport(ScriptedTransport(steps), policy=policy, **options)
    )


def ascripted(*steps, policy=PATIENT, **options):
    transport = forbear.httpx.AsyncRetryTransport(
        ScriptedTransport(steps), policy=policy, **options
    )
    return httpx.AsyncClient(transport=transport)


def waited(get) -> float:
    """Seconds of real time; a machine under load only makes them more."""
    began = time.monotonic()
    get()
    return time.monotonic() - began


# --- what it does -----------------------------------------------------------------------------


@every_adapter
def test_waits_take_no_time_and_count_as_waited(over, server):
    """Four attempts, three waits of 100 s in the record and its elapsed time, and none on the
    wall.
    """
    get = over(f"{server.url}/", PATIENT)
    began = time.monotonic()
    with fast():
        found = record_of(get())
    assert time.monotonic() - began < 60
    assert len(server.requests()) == 4
    assert [attempt.delay for attempt in found.attempts] == [100.0, 100.0, 100.0, None]
    assert 300 <= found.elapsed < 360
    assert found.reason == "attempts-exhausted"


@every_adapter
def test_a_time_limit_ends_the_call_where_it_would_in_production(over, server):
    """Waits of 100 s in 250 s: two fit, the third does not."""
    get = over(f"{server.url}/", PATIENT.replace(total_timeout=250.0))
    with fast():
        found = record_of(get())
    assert len(found.attempts) == 3
    assert (found.reason, found.refused_delay) == ("deadline", 100.0)


@pytest.mark.parametrize("over", SYNC)
def test_calls_share_the_seconds_of_a_deadline(over, server):
    """350 s: the first call uses 300, the second has 50 left, too few for a wait of 100."""
    get = over(f"{server.url}/", PATIENT)
    with fast(), forbear.deadline(350.0):
        assert len(record_of(get()).attempts) == 4
        found = record_of(get())
    assert len(found.attempts) == 1
    assert found.reason == "deadline"


@every_adapter
def test_what_a_server_asks_for_is_obeyed_or_refused_as_in_production(over, server):
    """Retry-After 7 is waited for; 61, above max_retry_after, is not."""
    server.script("/", "429;retry-after=7", "429;retry-after=61", 200)
    get = over(
        f"{server.url}/", PATIENT.replace(backoff=Fixed(0.0), hint_spread=0.0, max_retry_after=60.0)
    )
    with fast():
        found = record_of(get())
    assert [attempt.delay for attempt in found.attempts] == [7.0, None]
    assert (found.reason, found.refused_delay) == ("retry-after-too-long", 61.0)


@every_adapter
def test_fewer_attempts_if_asked_for(over, server):
    get = over(f"{server.url}/", PATIENT)
    with fast(max_attempts=2):
        found = record_of(get())
    assert len(server.requests()) == len(found.attempts) == 2
    assert found.reason == "attempts-exhausted"


@every_adapter
def test_events_tell_of_as_many_attempts_as_are_made(over, server):
    """What is listened to from outside is told in every thread and loop, and says two of two."""
    events = record()
    get = over(f"{server.url}/", PATIENT)
    with Rehearsing(listener=events), fast(max_attempts=2), ThreadPoolExecutor(1) as pool:
        pool.submit(get).result()
    assert events.names == ["attempt_failed", "retry_scheduled", "attempt_failed", "gave_up"]
    (scheduled,) = events.named("retry_scheduled")
    assert (scheduled.attempt, scheduled.max_attempts, scheduled.delay) == (1, 2, 100.0)


@every_adapter
def test_never_more_attempts_than_the_policy_has(over, server):
    get = over(f"{server.url}/", PATIENT)
    with fast(max_attempts=9):
        assert len(record_of(get()).attempts) == 4


@every_adapter
def test_disabled_sends_once_and_tells_it_as_the_last_attempt(over, server):
    get = over(f"{server.url}/", PATIENT)
    with disabled():
        found = record_of(get())
    assert len(server.requests()) == len(found.attempts) == 1
    assert found.reason == "attempts-exhausted"


@every_adapter
def test_after_the_block_waits_are_real(over, server):
    """With the very client that was used inside."""
    get = over(f"{server.url}/", RetryPolicy(max_attempts=2, backoff=BRIEF))
    with fast():
        get()
    assert waited(get) >= 0.05
    assert waited(get) >= 0.05


@every_adapter
def test_a_bare_thread_is_reached(over, server):
    """A pool's threads do not inherit the context."""
    with ThreadPoolExecutor(1) as pool:
        get = pool.submit(over, f"{server.url}/", PATIENT).result()
        with fast():
            assert len(record_of(pool.submit(get).result()).attempts) == 4
        with disabled():
            assert len(record_of(pool.submit(get).result()).attempts) == 1


@pytest.mark.parametrize("block", [fast(max_attempts=1), disabled()], ids=["fast", "disabled"])
@pytest.mark.parametrize(
    "setting",
    [{"max_attempts": 9}, RetryPolicy(max_attempts=9), None],
    ids=["fields", "policy", "nothing"],
)
def test_a_request_of_its_own_mind_is_bounded_too(block, setting):
    client = scripted(503)
    with block, forbear.override(max_attempts=8):
        assert len(record_of(client.get(URL, extensions={"forbear": setting})).attempts) == 1


def test_a_request_that_is_off_stays_off():
    client = scripted(503)
    with fast():
        response = client.get(URL, extensions={"forbear": False})
    assert response.status_code == 503
    assert "forbear" not in response.extensions or not response.extensions["forbear"]


@pytest.mark.parametrize(
    "strategy", [AwsStandard(), StandardStrategy(PATIENT)], ids=["aws", "standard"]
)
def test_strategies_of_the_users_own_are_bounded_too(strategy):
    client = scripted(503, strategy=strategy)
    with fast():
        assert len(record_of(client.get(URL)).attempts) >= 3
    with fast(max_attempts=2):
        assert len(record_of(client.get(URL)).attempts) == 2
    with disabled():
        assert len(record_of(client.get(URL)).attempts) == 1


def test_a_strategy_of_the_users_own_is_bounded_over_urllib3_retry(server):
    get = over_retry(f"{server.url}/", PATIENT, strategy=AwsStandard())
    with disabled():
        assert len(record_of(get()).attempts) == 1
    with fast(), forbear.override(max_attempts=2):
        assert len(record_of(get()).attempts) == 2


def test_everything_but_the_attempts_is_as_in_production_when_disabled():
    """A generated key is sent, and a policy that raises does so."""
    script = ScriptedTransport([503])
    policy = PATIENT.replace(on_exhausted="raise")
    transport = forbear.httpx.RetryTransport(script, policy=policy, idempotency=IdempotencyKeys())
    with disabled(), httpx.Client(transport=transport) as client:
        with pytest.raises(httpx.HTTPStatusError):
            client.post(URL, json={})
    assert len(script.requests) == 1
    assert script.requests[0].headers["idempotency-key"]


def test_a_clock_of_the_transports_own_is_kept():
    clock = FakeClock()
    client = scripted(503, 200, clock=clock)
    with fast():
        client.get(URL)
    assert clock.sleeps == [100.0]


def test_a_breaker_lets_a_probe_through_after_the_waits_that_were_skipped():
    """Opened for 150 s by two failures: still open one wait of 100 s later, and no longer after
    two.
    """
    breaker = CircuitBreaker(consecutive_failures=2, open_for=150.0)
    twice = RetryPolicy(max_attempts=2, backoff=LONG)
    client, other = (
        scripted(503, 503, 200, breaker=breaker, policy=twice),
        scripted(503, policy=twice),
    )
    with fast():
        assert client.get(URL).status_code == 503
        other.get("http://other.example/")
        with pytest.raises(forbear.CircuitOpenError):
            client.get(URL)
        other.get("http://other.example/")
        assert client.get(URL).status_code == 200


def test_redirected_calls_go_on_with_the_time_that_was_skipped():
    """250 s for a call and its hops: one wait of 100 s before the redirect, one after it, and no
    third.
    """
    moved = (302, {"Location": "http://api.example/there"})
    client = scripted(503, moved, 503, policy=PATIENT.replace(total_timeout=250.0))
    with fast():
        response = client.get(URL, follow_redirects=True)
    assert response.status_code == 503
    assert record_of(response).reason == "deadline"


def test_closing_the_transport_ends_a_call_that_skips():
    """As it wakes one that waits: the last answer is returned, nothing more is sent."""
    client = scripted(503, before_attempt=lambda request, attempt: client._transport.close())
    with fast():
        assert client.get(URL).status_code == 503
    assert len(client._transport._inner.requests) == 2


async def aclosing(request, attempt):
    transport = request.extensions["mine"]
    await transport.aclose()


@pytest.mark.anyio
async def test_closing_an_asynchronous_transport_ends_a_call_that_skips():
    async with ascripted(503, before_attempt=aclosing) as client:
        transport = client._transport
        with fast():
            assert (await client.get(URL, extensions={"mine": transport})).status_code == 503
        assert len(transport._inner.requests) == 2


@pytest.mark.anyio
async def test_others_run_while_a_wait_is_skipped_and_a_cancellation_arrives():
    """Ten thousand attempts are no busy loop that only ends with itself."""
    async with ascripted(
        503, policy=RetryPolicy(max_attempts=10_000, backoff=LONG), budget=None
    ) as client:
        with fast():
            with anyio.move_on_after(0.05) as scope:
                await client.get(URL)
    assert scope.cancelled_caught


@pytest.mark.anyio
async def test_calls_side_by_side_each_skip_their_own_waits():
    """Ten calls that wait 300 s each, at once: with 350 s for each, none runs out of time."""
    found = []
    async with ascripted(503, policy=PATIENT.replace(total_timeout=350.0), budget=None) as client:

        async def call():
            found.append(record_of(await client.get(URL)).reason)

        with fast():
            async with anyio.create_task_group() as tasks:
                for _ in range(10):
                    tasks.start_soon(call)
    assert found == ["attempts-exhausted"] * 10


BROKEN = "cut:70001;body=200000;etag=v1", "200;body=200000;etag=v1"


def over_httpx_stream(url, policy):
    client = httpx.Client(transport=forbear.httpx.RetryTransport(policy=policy))
    CLOSES.append(client.close)
    return lambda: client.get(url)


def over_requests_stream(url, policy):
    session = requests.Session()
    session.trust_env = False
    forbear.requests.mount(session, policy)
    CLOSES.append(session.close)
    return lambda: session.get(url, stream=True)


DOWNLOADS = [
    pytest.param(over_httpx_stream, httpx.ReadError, id="httpx"),
    pytest.param(over_requests_stream, requests.exceptions.ChunkedEncodingError, id="requests"),
]


@pytest.mark.parametrize(("over", "_"), DOWNLOADS)
def test_a_broken_download_goes_on_at_once(over, _, server):
    """The wait before the rest is asked for is skipped and noted as any other, and is heard of."""
    server.script("/", *BROKEN)
    events = record()
    with fast(), Rehearsing(listener=events):
        response = over(f"{server.url}/", PATIENT)()
        assert len(response.content) == 200_000
    assert len(server.requests()) == 2
    assert record_of(response).attempts[0].delay == 100.0
    assert events.names == ["attempt_failed", "retry_scheduled", "resume"]


@pytest.mark.parametrize(("over", "error"), DOWNLOADS)
def test_a_broken_download_stays_broken_when_disabled(over, error, server):
    """The rest would be a second request."""
    server.script("/", *BROKEN)
    with disabled(), pytest.raises((error, httpx.RemoteProtocolError)) as caught:
        _ = over(f"{server.url}/", PATIENT)().content
    assert len(server.requests()) == 1
    assert record_of(caught.value).reason == "attempts-exhausted"


# --- as a decorator ---------------------------------------------------------------------------


def test_a_decorated_function_is_fast_and_keeps_its_name():
    client = scripted(503)

    @fast(max_attempts=3)
    def look():
        return record_of(client.get(URL))

    assert [len(look().attempts) for _ in range(2)] == [3, 3]
    assert look.__name__ == "look"


@pytest.mark.anyio
async def test_a_decorated_coroutine_function_is_fast_also_side_by_side():
    async with ascripted(503, budget=None) as client:

        @fast()
        async def look():
            assert len(record_of(await client.get(URL)).attempts) == 4

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(look)


def test_what_cannot_be_decorated_says_what_to_do():
    with pytest.raises(TypeError, match="use the with block inside it instead"):

        @fast()
        def generator():
            yield

    with pytest.raises(
        TypeError, match="decorate the functions of TestOrders, or let them use the fixture"
    ):

        @disabled()
        class TestOrders:
            pass


@pytest.mark.parametrize(
    ("given", "error"), [(0, ValueError), (-1, ValueError), ("2", TypeError), (1.5, TypeError)]
)
def test_a_number_of_attempts_is_checked_at_once(given, error):
    with pytest.raises(error, match="max_attempts"):
        fast(max_attempts=given)


# --- nothing is left behind -------------------------------------------------------------------


def test_an_inner_block_ends_alone():
    client = scripted(503)
    with fast():
        with fast(max_attempts=2):
            assert len(record_of(client.get(URL)).attempts) == 2
        with disabled():
            with fast(max_attempts=3):  # what disables holds
                assert len(record_of(client.get(URL)).attempts) == 1
        assert len(record_of(client.get(URL)).attempts) == 4


def test_one_block_can_be_entered_again_inside_itself():
    block = fast()
    with block:
        with block:
            assert len(ON) == 2
        assert len(ON) == 1


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("block", [fast, disabled])
def test_an_exception_ends_a_block(block, error):
    with pytest.raises(error):
        with block():
            raise error
    assert not ON
    with pytest.raises(error):

        @block()
        def fails():
            raise error

        fails()
    assert not ON


def test_a_generator_that_is_dropped_ends_its_block():
    def fixture():
        with fast():
            yield

    running = fixture()
    next(running)
    assert ON
    running.close()
    assert not ON


def test_blocks_may_end_out_of_turn():
    first, second = fast(), disabled()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert in_force().most_attempts == 1
    second.__exit__(None, None, None)
    assert AROUND.get() is None


@pytest.mark.anyio
async def test_a_task_beside_the_block_waits_as_ever():
    """The block is one task's; another one that runs meanwhile neither skips nor is stopped from
    retrying.
    """
    brief = RetryPolicy(max_attempts=2, backoff=BRIEF)
    inside, done = anyio.Event(), anyio.Event()

    async def fast_one():
        with fast(), disabled():
            inside.set()
            await done.wait()

    async def slow_one():
        await inside.wait()
        async with ascripted(503, policy=brief) as client:
            began = time.monotonic()
            assert len(record_of(await client.get(URL)).attempts) == 2
            assert time.monotonic() - began >= 0.05
        done.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fast_one)
        tasks.start_soon(slow_one)


@pytest.mark.anyio
async def test_tasks_and_threads_that_are_started_inside_are_inside():
    client = scripted(503)
    found = []

    async def call():
        found.append(
            await anyio.to_thread.run_sync(lambda: len(record_of(client.get(URL)).attempts))
        )

    with fast(max_attempts=3):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
        if asyncio_runs():
            loop = asyncio.get_running_loop()  # its executor copies no context
            found.append(
                await loop.run_in_executor(None, lambda: len(record_of(client.get(URL)).attempts))
            )
    assert set(found) == {3}


def asyncio_runs() -> bool:
    try:
        return asyncio.current_task() is not None
    except RuntimeError:
        return False


@pytest.mark.anyio
async def test_a_task_that_outlives_the_block_waits_again():
    brief = RetryPolicy(max_attempts=2, backoff=BRIEF)
    over, took = anyio.Event(), []

    async def later():
        await over.wait()
        async with ascripted(503, policy=brief) as client:
            began = time.monotonic()
            await client.get(URL)
            took.append(time.monotonic() - began)

    async with anyio.create_task_group() as tasks:
        with fast():
            tasks.start_soon(later)
            await anyio.sleep(0)
        over.set()
    assert took[0] >= 0.05


@pytest.mark.anyio
async def test_overlapping_blocks_of_two_tasks_end_one_by_one():
    """First in, first out: each task keeps its own to its end."""
    first_in, second_in, first_out = anyio.Event(), anyio.Event(), anyio.Event()
    shared = disabled()

    async def first():
        with shared:
            first_in.set()
            await second_in.wait()
        assert in_force() is None
        first_out.set()

    async def second():
        await first_in.wait()
        with shared:
            second_in.set()
            await first_out.wait()
            assert in_force().most_attempts == 1
        assert in_force() is None

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first)
        tasks.start_soon(second)


def test_overlapping_blocks_of_threads_leave_nothing():
    """Many threads enter and leave one block at once."""
    shared, start = fast(), threading.Barrier(8)

    def play():
        start.wait()
        for _ in range(200):
            with shared:
                assert in_force() is not None

    threads = [threading.Thread(target=play) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not ON
    assert not shared._begun


@pytest.mark.anyio
async def test_a_block_may_be_left_in_another_task_than_it_was_entered_in():
    """As asynchronous fixtures are."""

    async def fixture():
        with fast():
            yield

    running = fixture()

    async def step():
        async for _ in running:
            break

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(step)
    assert len(ON) == 1
    await running.aclose()
    assert not ON


def test_a_transport_that_was_built_inside_is_as_any_other_after_it():
    """With the fixtures' clock too: nothing of the rehearsal is kept in it."""
    clock = FakeClock()
    with Rehearsing(clock=clock, random=lambda: 0.5):
        client = scripted(503, policy=RetryPolicy(max_attempts=2, backoff=BRIEF))
        client.get(URL)
    assert clock.sleeps == [0.05]
    assert client._transport._clock is SYSTEM_CLOCK
    assert waited(lambda: client.get(URL)) >= 0.05
    assert clock.sleeps == [0.05]


def test_time_that_was_skipped_is_skipped_for_tests_only():
    assert repr(SKIPPING) == "<SkippingClock>"
    with fast():
        scripted(503).get(URL)
        assert abs(SYSTEM_CLOCK.monotonic() - time.monotonic()) < 60
        with forbear.deadline(10):
            inside = forbear.sending.context.CURRENT.get()
            assert inside.clock is SKIPPING
    with forbear.deadline(10):
        assert forbear.sending.context.CURRENT.get().clock is SYSTEM_CLOCK


STEPS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["enter", "leave"]), st.integers(0, 3)),
    max_size=40,
)


@given(STEPS)
def test_what_is_on_is_what_was_entered_and_not_left(steps: list[tuple[str, str, int]]) -> None:
    """Blocks entered and left in any order, in contexts that know nothing of each other, by a
    model: a set.
    """
    contexts = {name: contextvars.Context() for name in "abc"}
    entered: list[tuple[Rehearsal, str]] = []

    def around(name: str) -> list[Rehearsal]:
        found, chain = contexts[name].get(AROUND), []
        while found is not None:
            chain.append(found)
            found = found._outer
        return chain

    for name, step, which in steps:
        if step == "enter":
            one = Rehearsal(most_attempts=which)
            contexts[name].run(one.begin)
            entered.append((one, name))
        elif entered:
            one, _ = entered.pop(which % len(entered))
            contexts[name].run(one.end)
        assert list(ON) == [one for one, _ in entered]
        for context in "abc":
            mine = {one for one, place in entered if place == context}
            assert mine <= set(around(context))
    for one, _ in entered:
        one.end()
    assert not ON
    for name in "abc":
        contexts[name].run(after := Rehearsal().begin)
        assert len(around(name)) == 1  # what ended elsewhere does not pile up
        contexts[name].run(after.__self__.end)
