"""override and deadline: what holds inside a block, for whom, and where it ends."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import anyio
import anyio.to_thread
import httpx
import httpx2
import pytest

import forbear
import forbear.httpx
import forbear.httpx2
from forbear import Fixed, RetryPolicy, record_of
from forbear.sending.clock import SYSTEM_CLOCK
from forbear.sending.context import CURRENT
from forbear.testing import FakeClock, ScriptedTransport, record

URL = "http://api.example/"
POLICY = RetryPolicy(max_attempts=5, backoff=Fixed(1.0), hint_spread=0.0)
FAMILIES = [
    pytest.param(httpx, forbear.httpx, id="httpx"),
    pytest.param(httpx2, forbear.httpx2, id="httpx2"),
]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Asked:
    """A client whose server always answers 503: how often it asks shows which policy held."""

    def __init__(
        self, module: Any = httpx, adapter: Any = forbear.httpx, policy: RetryPolicy = POLICY
    ) -> None:
        self.clock = FakeClock()
        self.inner = ScriptedTransport([503])
        options: dict[str, Any] = {"policy": policy, "clock": self.clock, "budget": None}
        self.client = module.Client(transport=adapter.RetryTransport(self.inner, **options))
        self.aclient = module.AsyncClient(
            transport=adapter.AsyncRetryTransport(self.inner, **options)
        )

    def get(self, setting: Any = None) -> int:
        before = len(self.inner.requests)
        self.client.get(URL, extensions={} if setting is None else {"forbear": setting})
        return len(self.inner.requests) - before

    async def aget(self) -> int:
        before = len(self.inner.requests)
        await self.aclient.get(URL)
        return len(self.inner.requests) - before


@pytest.fixture
def asked() -> Asked:
    return Asked()


# --- order and merging ------------------------------------------------------------------------


@pytest.mark.parametrize(("module", "adapter"), FAMILIES)
def test_the_inner_setting_wins(module: Any, adapter: Any) -> None:
    """The transport's policy < override < inner override < the request's."""
    asked = Asked(module, adapter)
    assert asked.get() == 5
    with forbear.override(max_attempts=4):
        assert asked.get() == 4
        with forbear.override(max_attempts=3):
            assert asked.get() == 3
            assert asked.get({"max_attempts": 2}) == 2
            assert asked.get() == 3
        assert asked.get() == 4
    assert asked.get() == 5


def test_fields_are_merged_one_by_one(asked: Asked) -> None:
    """An inner block leaves alone what it does not name."""
    with forbear.override(max_attempts=3, backoff=Fixed(7.0)):
        with forbear.override(max_attempts=2):
            assert asked.get() == 2
            assert asked.clock.sleeps == [7.0]
            assert asked.get({"backoff": Fixed(9.0)}) == 2
            assert asked.clock.sleeps == [7.0, 9.0]


def test_a_policy_on_the_request_is_the_whole_policy(asked: Asked) -> None:
    with forbear.override(max_attempts=2, backoff=Fixed(7.0)):
        assert asked.get(RetryPolicy(max_attempts=3, backoff=Fixed(2.0))) == 3
    assert asked.clock.sleeps == [2.0, 2.0]


@pytest.mark.parametrize(
    ("setting", "sent"),
    [
        pytest.param(None, 5, id="None: not given"),
        pytest.param({}, 5, id="no fields"),
        pytest.param(False, 1, id="False: off"),
        pytest.param({"statuses": ()}, 1, id="an empty set"),
        pytest.param({"max_attempts": 1}, 1, id="one attempt"),
    ],
)
def test_what_a_request_may_say(asked: Asked, setting: Any, sent: int) -> None:
    before = len(asked.inner.requests)
    asked.client.get(URL, extensions={"forbear": setting})
    assert len(asked.inner.requests) - before == sent


@pytest.mark.parametrize(
    ("setting", "error", "message"),
    [
        (
            True,
            TypeError,
            'extensions["forbear"] must be a RetryPolicy, a mapping of its fields, False for off or None',
        ),
        (3, TypeError, "got 3"),
        ({"retries": 3}, TypeError, "max_attempts = retries + 1"),
        ({"max_attempts": 0}, ValueError, "max_attempts must be at least 1"),
    ],
    ids=["True", "a number", "retries", "zero attempts"],
)
def test_a_request_that_says_nonsense_is_not_sent(
    asked: Asked, setting: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        asked.get(setting)
    assert message in str(caught.value)
    assert asked.inner.requests == []


def test_an_override_concerns_every_client(asked: Asked) -> None:
    other = Asked(httpx2, forbear.httpx2, RetryPolicy(backoff=Fixed(0.5)))
    with forbear.override(max_attempts=2):
        assert (asked.get(), other.get(), asked.get()) == (2, 2, 2)
    assert other.clock.sleeps == [0.5]  # its own policy otherwise


def test_a_block_ends_with_an_exception_too(asked: Asked) -> None:
    with pytest.raises(KeyError), forbear.override(max_attempts=1):
        raise KeyError
    assert asked.get() == 5
    assert CURRENT.get() is None


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"max_attempts": 0}, ValueError, "use max_attempts=1 to send once"),
        ({"retries": 3}, TypeError, "max_attempts = retries + 1"),
        ({"timeout": 3}, TypeError, "RetryPolicy has no field 'timeout'"),
        ({"statuses": 503}, TypeError, "statuses must be a set"),
    ],
    ids=str,
)
def test_an_override_is_checked_where_it_is_written(
    fields: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        forbear.override(**fields)
    assert message in str(caught.value)


# --- decorators -------------------------------------------------------------------------------


def test_a_decorated_function(asked: Asked) -> None:
    """Each call of it gets a block of its own, also one within another."""

    @forbear.override(max_attempts=2)
    def fetch(depth: int = 0) -> list[int]:
        """Says what it does."""
        return [asked.get(), *(fetch(depth - 1) if depth else [])]

    assert fetch(2) == [2, 2, 2]
    assert asked.get() == 5
    assert (fetch.__name__, fetch.__doc__) == ("fetch", "Says what it does.")


@pytest.mark.anyio
async def test_a_decorated_coroutine_function(asked: Asked) -> None:
    @forbear.override(max_attempts=2)
    async def fetch() -> int:
        await anyio.sleep(0)
        return await asked.aget()

    assert inspect.iscoroutinefunction(fetch)
    waiting = fetch()
    assert CURRENT.get() is None
    assert await waiting == 2
    assert await asked.aget() == 5


def test_a_decorated_methods_and_partials_work(asked: Asked) -> None:
    class Service:
        @forbear.override(max_attempts=3)
        def fetch(self) -> int:
            return asked.get()

    assert Service().fetch() == 3
    assert forbear.override(max_attempts=2)(functools.partial(Service().fetch))() == 3


def test_a_decorated_deadline_begins_with_each_call() -> None:
    clock = FakeClock()

    @forbear.deadline(2.0, clock=clock)
    def left() -> float:
        scope = CURRENT.get()
        assert scope is not None
        return scope.deadline_at - clock.monotonic()

    assert left() == 2.0
    clock.advance(100.0)
    assert left() == 2.0


def a_generator() -> Iterator[int]:
    yield 1


async def an_async_generator() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("function", [a_generator, an_async_generator])
@pytest.mark.parametrize(
    "block", [forbear.override(max_attempts=2), forbear.deadline(2.0)], ids=["override", "deadline"]
)
def test_generators_are_refused(function: Any, block: Any) -> None:
    """A generator's body runs after the call that made it has returned: the block would be over."""
    with pytest.raises(TypeError, match="use the with block inside it"):
        block(function)


# --- deadlines --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outer", "inner", "left"), [(5.0, 2.0, 2.0), (2.0, 5.0, 2.0), (2.0, 2.0, 2.0), (2.0, 0.0, 0.0)]
)
def test_a_nested_deadline_never_lengthens(outer: float, inner: float, left: float) -> None:
    clock = FakeClock()
    with forbear.deadline(outer, clock=clock), forbear.deadline(inner, clock=clock):
        scope = CURRENT.get()
        assert scope is not None
        assert scope.deadline_at - clock.monotonic() == left
    assert CURRENT.get() is None


def test_a_nested_deadline_counts_from_where_it_is_entered() -> None:
    """5 s outside, 3 s gone, 10 s inside: 2 s are left."""
    clock = FakeClock()
    with forbear.deadline(5.0, clock=clock):
        clock.advance(3.0)
        with forbear.deadline(10.0, clock=clock):
            scope = CURRENT.get()
            assert scope is not None
            assert scope.deadline_at - clock.monotonic() == 2.0


def test_a_deadline_on_another_clock_is_carried_over_by_the_time_left() -> None:
    outer, inner = FakeClock(), FakeClock()
    inner.advance(1_000.0)
    with forbear.deadline(5.0, clock=outer):
        outer.advance(3.0)
        with forbear.deadline(60.0, clock=inner):
            scope = CURRENT.get()
            assert scope is not None
            assert scope.deadline_at - inner.monotonic() == pytest.approx(2.0)


@pytest.mark.parametrize(("module", "adapter"), FAMILIES)
def test_calls_share_the_seconds_of_a_deadline(module: Any, adapter: Any) -> None:
    """Waits of 1 s under 2.5 s: three attempts, and the next call has half a second left."""
    asked = Asked(module, adapter)
    with forbear.deadline(2.5, clock=asked.clock):
        response = asked.client.get(URL)
        assert asked.clock.sleeps == [1.0, 1.0]
        assert record_of(response).reason is forbear.Reason.DEADLINE
        assert record_of(response).refused_delay == 1.0
        assert asked.get() == 1
    assert asked.get() == 5


@pytest.mark.parametrize(("module", "adapter"), FAMILIES)
def test_after_the_deadline_nothing_is_sent(module: Any, adapter: Any) -> None:
    asked = Asked(module, adapter)
    with forbear.deadline(2.0, clock=asked.clock):
        asked.clock.advance(2.0)
        with pytest.raises(adapter.DeadlineExceeded) as caught:
            asked.get()
        with pytest.raises(module.TimeoutException):
            asked.get(False)  # off, but the deadline still holds
    assert asked.inner.requests == []
    assert caught.value.reason is forbear.Reason.DEADLINE
    assert record_of(caught.value).attempts == ()


def test_a_deadline_of_zero_sends_nothing(asked: Asked) -> None:
    with forbear.deadline(0), pytest.raises(forbear.httpx.DeadlineExceeded):
        asked.get()
    assert asked.inner.requests == []


def test_a_deadline_in_real_time_holds_for_a_transport_on_another_clock(asked: Asked) -> None:
    """The transports of a test may run on a FakeClock of their own; the seconds left are the
    same.
    """
    with forbear.deadline(60.0):
        assert asked.get({"backoff": Fixed(25.0), "max_attempts": 9}) == 3
    assert asked.clock.sleeps == [25.0, 25.0]


def test_the_earlier_of_deadline_and_total_timeout_holds(asked: Asked) -> None:
    with forbear.deadline(10.0, clock=asked.clock):
        assert asked.get({"total_timeout": 1.5}) == 2
    with forbear.deadline(1.5, clock=asked.clock):
        assert asked.get({"total_timeout": 10.0}) == 2


def test_a_step_of_the_wall_clock_changes_nothing(asked: Asked) -> None:
    """NTP steps an hour: waits and deadlines are monotonic."""
    with forbear.deadline(2.5, clock=asked.clock):
        asked.clock.step_utc(3_600.0)
        assert asked.get() == 3


@pytest.mark.parametrize(
    ("seconds", "error", "message"),
    [
        (-1, ValueError, "seconds must be at least 0 and finite, got -1"),
        (float("nan"), ValueError, "seconds must be at least 0 and finite, got nan"),
        (float("inf"), ValueError, "seconds must be at least 0 and finite, got inf"),
        ("2", TypeError, "seconds must be a number of seconds, got '2'"),
        (None, TypeError, "seconds must be a number of seconds, got None"),
        (True, TypeError, "seconds must be a number of seconds, got True"),
    ],
    ids=str,
)
def test_a_deadline_is_checked_where_it_is_written(
    seconds: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        forbear.deadline(seconds)
    assert message in str(caught.value)


def test_the_default_clock_is_the_systems() -> None:
    with forbear.deadline(2.0):
        scope = CURRENT.get()
        assert scope is not None
        assert scope.clock is SYSTEM_CLOCK
        assert 1.0 < scope.deadline_at - SYSTEM_CLOCK.monotonic() <= 2.0


def test_override_and_deadline_do_not_undo_each_other(asked: Asked) -> None:
    for blocks in [
        (forbear.override(max_attempts=3), forbear.deadline(1.5, clock=asked.clock)),
        (forbear.deadline(1.5, clock=asked.clock), forbear.override(max_attempts=3)),
    ]:
        with record() as events, blocks[0], blocks[1]:
            response = asked.client.get(URL)
        assert record_of(response).reason is forbear.Reason.DEADLINE
        assert events.names == ["attempt_failed", "retry_scheduled", "attempt_failed", "gave_up"]


# --- where a block is seen --------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_block_follows_tasks(asked: Asked) -> None:
    """And a task's own block is not seen outside it."""
    found: list[int] = []

    async def fetch() -> None:
        found.append(await asked.aget())
        with forbear.override(max_attempts=3):
            await anyio.sleep(0)
            found.append(await asked.aget())

    with forbear.override(max_attempts=2):
        async with anyio.create_task_group() as group:
            group.start_soon(fetch)
        found.append(await asked.aget())
    assert found == [2, 3, 2]


@pytest.mark.anyio
async def test_a_block_follows_to_thread(asked: Asked) -> None:
    with forbear.override(max_attempts=2):
        assert await anyio.to_thread.run_sync(asked.get) == 2


def test_a_block_follows_asyncios_to_thread(asked: Asked) -> None:
    async def run() -> int:
        with forbear.override(max_attempts=2):
            return await asyncio.to_thread(asked.get)

    assert asyncio.run(run()) == 2


def test_a_block_does_not_follow_a_bare_thread_pool(asked: Asked) -> None:
    """As the documentation says; what is submitted enters a block itself, or runs in a copy of the
    context.
    """
    with ThreadPoolExecutor(1) as pool, forbear.override(max_attempts=2):
        assert pool.submit(asked.get).result() == 5
        assert pool.submit(copy_context().run, asked.get).result() == 2
        assert pool.submit(forbear.override(max_attempts=3)(asked.get)).result() == 3


@pytest.mark.anyio
async def test_tasks_do_not_see_each_others_blocks(asked: Asked) -> None:
    found: dict[int, int] = {}

    async def fetch(attempts: int) -> None:
        with forbear.override(max_attempts=attempts):
            await anyio.sleep(0)
            found[attempts] = len((await fetch_story()).attempts)
            await anyio.sleep(0)

    async def fetch_story() -> forbear.CallRecord:
        return record_of(await asked.aclient.get(URL))

    async with anyio.create_task_group() as group:
        for attempts in (2, 3, 4):
            group.start_soon(fetch, attempts)
    assert found == {2: 2, 3: 3, 4: 4}


# --- one block used by many -------------------------------------------------------------------


def test_a_block_can_be_entered_again_and_within_itself(asked: Asked) -> None:
    """``GENTLE = forbear.override(max_attempts=2)`` at the top of a module is made to be used
    often.
    """
    gentle = forbear.override(max_attempts=2)
    for _ in range(2):
        with gentle:
            with gentle:
                assert asked.get() == 2
            assert asked.get() == 2
        assert asked.get() == 5


@pytest.mark.anyio
async def test_one_block_serves_tasks_that_overlap(asked: Asked) -> None:
    gentle = forbear.override(max_attempts=2)
    order: list[str] = []
    entered, left = anyio.Event(), anyio.Event()

    async def first() -> None:
        with gentle:
            order.append("first in")
            await entered.wait()
        order.append("first out")
        left.set()

    async def second() -> None:
        with gentle:
            order.append("second in")
            entered.set()
            await left.wait()
            assert CURRENT.get() is not None
            assert await asked.aget() == 2
        assert CURRENT.get() is None

    async with anyio.create_task_group() as group:
        group.start_soon(first)
        await anyio.lowlevel.checkpoint()
        group.start_soon(second)
    assert sorted(order[:2]) == ["first in", "second in"]
    assert await asked.aget() == 5


def test_one_block_serves_threads_that_overlap() -> None:
    gentle = forbear.override(max_attempts=2)
    barrier = threading.Barrier(8)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(50):
                barrier.wait(5)
                with gentle:
                    scope = CURRENT.get()
                    assert scope is not None
                    assert scope.fields == {"max_attempts": 2}
                assert CURRENT.get() is None
        except BaseException as error:
            failed.append(error)
            barrier.abort()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
