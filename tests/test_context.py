"""override and deadline: what holds inside a block, for whom, and where it ends."""

import inspect
import re
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import anyio
import anyio.to_thread
import httpx
import httpx2
import pytest

import forbear
from forbear import Fixed, RetryPolicy, record_of
from forbear.engine.current import CURRENT
from forbear.testing import FakeClock, ScriptedTransport, record

URL = "http://api.example/"
POLICY = RetryPolicy(max_attempts=5, backoff=Fixed(1.0), hint_spread=0.0)


class Asked:
    """A client whose server always answers 503: how often it asks shows which policy held."""

    def __init__(self, module=httpx, adapter=forbear.httpx, policy=POLICY):
        self.clock = FakeClock()
        self.inner = ScriptedTransport([503])
        options = {"policy": policy, "clock": self.clock, "gate": None}
        self.client = module.Client(transport=adapter.RetryTransport(self.inner, **options))
        transport = adapter.AsyncRetryTransport(self.inner, **options)
        self.aclient = module.AsyncClient(transport=transport)

    def get(self, setting=None):
        before = len(self.inner.requests)
        self.client.get(URL, extensions={"forbear": setting})
        return len(self.inner.requests) - before

    async def aget(self):
        before = len(self.inner.requests)
        await self.aclient.get(URL)
        return len(self.inner.requests) - before


def seconds_left(clock):
    return CURRENT.get().deadline_at - clock.monotonic()


@pytest.fixture
def asked():
    return Asked()


def test_a_policy_on_the_request_is_the_whole_policy(asked):
    with forbear.override(max_attempts=2, backoff=Fixed(7.0)):
        assert asked.get(RetryPolicy(max_attempts=3, backoff=Fixed(2.0))) == 3
    assert asked.clock.sleeps == [2.0, 2.0]


def test_what_a_request_may_say(asked):
    """Nothing; no fields; off; an empty set, which is not "not given"; one attempt."""
    settings = [None, {}, False, {"statuses": ()}, {"max_attempts": 1}]
    assert [asked.get(setting) for setting in settings] == [5, 5, 1, 1, 1]


@pytest.mark.parametrize(("setting", "error", "message"), [
    (True, TypeError, 'extensions["forbear"] must be a RetryPolicy, a mapping of its fields, F'),
    (0, TypeError, "False for off"),  # it could mean two things
    ({"retries": 3}, TypeError, "max_attempts = retries + 1"),
    ({"max_attempts": 0}, ValueError, "max_attempts must be at least 1"),
])  # fmt: skip
def test_a_request_that_says_nonsense_is_not_sent(asked, setting, error, message):
    with pytest.raises(error, match=re.escape(message)):
        asked.get(setting)
    assert asked.inner.requests == []


def test_an_override_concerns_every_client(asked):
    other = Asked(httpx2, forbear.httpx2, RetryPolicy(backoff=Fixed(0.5)))
    with forbear.override(max_attempts=2):
        assert (asked.get(), other.get(), asked.get()) == (2, 2, 2)
    assert other.clock.sleeps == [0.5]  # its own policy otherwise


@pytest.mark.anyio
async def test_a_block_is_entered_with_async_with_too(asked):
    """As ``with``, around async code; it ends with an exception too."""
    async with forbear.override(max_attempts=2) as block:
        assert isinstance(block, forbear.override)
        assert await asked.aget() == 2
        with pytest.raises(forbear.httpx.DeadlineExceeded):
            async with forbear.deadline(0.0, clock=asked.clock):
                await asked.aget()
        assert await asked.aget() == 2
    assert await asked.aget() == 5
    assert CURRENT.get() is None


def test_a_decorated_function(asked):
    """Each call of it gets a block of its own, also one within another."""

    @forbear.override(max_attempts=2)
    def fetch(depth=0):
        """Says what it does."""
        return [asked.get(), *(fetch(depth - 1) if depth else [])]

    assert fetch(2) == [2, 2, 2]
    assert asked.get() == 5
    assert (fetch.__name__, fetch.__doc__) == ("fetch", "Says what it does.")


@pytest.mark.anyio
async def test_a_decorated_coroutine_function(asked):
    @forbear.override(max_attempts=2)
    async def fetch():
        await anyio.sleep(0)
        return await asked.aget()

    assert inspect.iscoroutinefunction(fetch)
    waiting = fetch()
    assert CURRENT.get() is None
    assert await waiting == 2
    assert await asked.aget() == 5


@pytest.mark.parametrize(("inner", "left"), [(1.0, 1.0), (10.0, 2.0), (0.0, 0.0)])
def test_a_nested_deadline_never_lengthens(inner, left):
    """It counts from where it is entered: 3 s later."""
    clock = FakeClock()
    with forbear.deadline(5.0, clock=clock):
        clock.advance(3.0)
        with forbear.deadline(inner, clock=clock):
            assert seconds_left(clock) == left
    assert CURRENT.get() is None


def test_a_deadline_on_another_clock_is_carried_over_by_the_time_left():
    outer, inner = FakeClock(), FakeClock()
    inner.advance(1_000.0)
    with forbear.deadline(5.0, clock=outer):
        outer.advance(3.0)
        with forbear.deadline(60.0, clock=inner):
            assert seconds_left(inner) == pytest.approx(2.0)


def test_calls_share_the_seconds_of_a_deadline(asked):
    """Waits of 1 s under 2.5 s: three attempts, and the next call has half a second left."""
    with forbear.deadline(2.5, clock=asked.clock):
        response = asked.client.get(URL)
        assert asked.clock.sleeps == [1.0, 1.0]
        assert record_of(response).reason is forbear.Reason.DEADLINE
        assert record_of(response).refused_delay == 1.0
        assert asked.get() == 1
    assert asked.get() == 5


def test_a_deadline_in_real_time_holds_for_a_transport_on_another_clock(asked):
    """The transports of a test may run on a FakeClock of their own; the seconds left are the same."""
    with forbear.deadline(60.0):
        assert asked.get({"backoff": Fixed(25.0), "max_attempts": 9}) == 3
    assert asked.clock.sleeps == [25.0, 25.0]


@pytest.mark.anyio
async def test_a_block_follows_tasks(asked):
    """And a task's own block is not seen outside it."""
    found = []

    async def fetch():
        found.append(await asked.aget())
        with forbear.override(max_attempts=3):
            await anyio.sleep(0)
            found.append(await asked.aget())

    with forbear.override(max_attempts=2):
        async with anyio.create_task_group() as group:
            group.start_soon(fetch)
        found.append(await asked.aget())
    assert found == [2, 3, 2]


def test_a_block_does_not_follow_a_bare_thread_pool(asked):
    """What is submitted enters a block itself, or runs in a copy of the context."""
    with ThreadPoolExecutor(1) as pool, forbear.override(max_attempts=2):
        assert pool.submit(asked.get).result() == 5
        assert pool.submit(copy_context().run, asked.get).result() == 2
        assert pool.submit(forbear.override(max_attempts=3)(asked.get)).result() == 3


def test_of_blocks_that_a_thread_inherited_those_count_that_were_not_left(asked):
    """A worker that was started inside has them all, and a block of its own goes around the rest."""
    with ThreadPoolExecutor(1) as pool:
        with forbear.override(max_attempts=3):
            with forbear.deadline(5.0, clock=asked.clock), record() as events:
                inherited = copy_context()
            asked.clock.advance(100.0)
            assert pool.submit(inherited.run, asked.get).result() == 3
            own = forbear.deadline(0.5, clock=asked.clock)
            assert pool.submit(inherited.run, own(asked.get)).result() == 1
        assert pool.submit(inherited.run, asked.get).result() == 5
    assert events.names == []


def test_a_block_that_is_left_in_another_context_says_so_and_ends_no_other(asked):
    """As in a dependency of FastAPI that is no coroutine: each half of it is run in a copy."""
    block = forbear.override(max_attempts=1)
    with ThreadPoolExecutor(1) as pool, forbear.override(max_attempts=2):
        copy_context().run(block.__enter__)
        assert asked.get() == 2
        with pytest.warns(UserWarning, match=r"forbear\.override was left in another context"):
            copy_context().run(block.__exit__)
        assert pool.submit(copy_context().run, asked.get).result() == 2
    with pytest.warns(UserWarning, match=r"forbear\.override was left in another context"):
        block.__exit__()


def test_blocks_that_end_in_another_order_each_end_their_own(asked):
    """As in two generators that take turns, of which the one begun first ends first."""
    first, second = forbear.override(max_attempts=2), forbear.override(max_attempts=3)
    first.__enter__()
    second.__enter__()
    first.__exit__()
    assert asked.get() == 3
    second.__exit__()
    assert asked.get() == 5


@pytest.mark.anyio
async def test_a_task_that_outlives_its_block_keeps_it(asked):
    """``gather`` may stand outside of the block in which its tasks were made."""
    left, found = anyio.Event(), []

    async def fetch():
        await left.wait()
        found.append(await asked.aget())

    async with anyio.create_task_group() as group:
        with forbear.override(max_attempts=2):
            group.start_soon(fetch)
        left.set()
    assert found == [2]
