"""Clock and Sleeper: waits that end on time, or when the transport is closed, from wherever."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import pytest

from forbear.sending.clock import SYSTEM_CLOCK, Clock, Sleeper
from forbear.testing import FakeClock

LONG = 60.0  # seconds of real time that no test waits for


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def now() -> float:
    return SYSTEM_CLOCK.monotonic()


async def asleep(sleeper: Sleeper, seconds: float, since: float) -> bool:
    """As adrive does it."""
    nap = sleeper.lie_down(seconds, since=since)
    try:
        return await nap
    finally:
        sleeper.get_up(nap)


def until(condition: Callable[[], Any]) -> None:
    ends_at = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < ends_at, "it did not happen"
        time.sleep(0.001)


# --- the system's clock -----------------------------------------------------------------------


def test_the_system_clock_tells_monotonic_and_unix_time() -> None:
    clock: Clock = SYSTEM_CLOCK
    assert abs(clock.monotonic() - time.monotonic()) < 1
    assert abs(clock.time() - time.time()) < 1
    assert repr(clock) == "<SystemClock>"


def test_functions_of_time_are_looked_up_when_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """gevent replaces them after the import, and a sleep must not block its other greenlets."""
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(time, "time", lambda: 7.0)
    SYSTEM_CLOCK.sleep(3.0)
    assert slept == [3.0]
    assert SYSTEM_CLOCK.time() == 7.0


@pytest.mark.anyio
async def test_the_system_clock_sleeps_on_any_event_loop() -> None:
    began = now()
    await SYSTEM_CLOCK.asleep(0.02)
    assert now() - began >= 0.02


# --- sync -------------------------------------------------------------------------------------


def test_a_sleep_takes_its_time() -> None:
    sleeper, began = Sleeper(SYSTEM_CLOCK), now()
    assert sleeper.sleep(0.02, since=began) is True
    assert 0.015 < now() - began < 5


def test_close_from_another_thread_wakes_a_sleeper() -> None:
    sleeper, began = Sleeper(SYSTEM_CLOCK), now()
    timer = threading.Timer(0.02, sleeper.close)
    timer.start()
    assert sleeper.sleep(LONG, since=began) is False
    assert now() - began < 5
    timer.join()


def test_close_wakes_every_sleeper_however_they_came() -> None:
    """Sixteen threads fall asleep at the same moment, as they do when an outage begins."""
    for _ in range(20):
        sleeper, began, slept = Sleeper(SYSTEM_CLOCK), now(), []
        barrier = threading.Barrier(17)

        def nap(
            sleeper: Sleeper = sleeper, began: float = began, slept: list[bool] = slept
        ) -> None:
            barrier.wait()  # noqa: B023
            slept.append(sleeper.sleep(5.0, since=began))

        threads = [threading.Thread(target=nap) for _ in range(16)]
        for thread in threads:
            thread.start()
        barrier.wait()
        sleeper.close()
        for thread in threads:
            thread.join()
        assert slept == [False] * 16
        assert now() - began < 4


def test_a_call_that_began_before_the_close_does_not_fall_asleep_after_it() -> None:
    sleeper, began = Sleeper(SYSTEM_CLOCK), now()
    sleeper.close()
    assert sleeper.sleep(LONG, since=began) is False
    assert now() - began < 5


def test_a_later_call_is_not_concerned() -> None:
    """A transport may be used again after close, as httpx's own may."""
    sleeper = Sleeper(SYSTEM_CLOCK)
    sleeper.close()
    time.sleep(0.002)
    began = now()
    assert sleeper.sleep(0.02, since=began) is True
    assert now() - began >= 0.015


def test_close_is_idempotent() -> None:
    sleeper, began = Sleeper(SYSTEM_CLOCK), now()
    sleeper.close()
    sleeper.close()
    assert sleeper.sleep(LONG, since=began) is False


# --- async ------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_an_asynchronous_sleep_takes_its_time() -> None:
    sleeper, began = Sleeper(SYSTEM_CLOCK), now()
    assert await asleep(sleeper, 0.02, began) is True
    assert 0.015 < now() - began < 5
    assert sleeper._naps == {}


@pytest.mark.anyio
async def test_close_from_the_loop_wakes_every_sleeper() -> None:
    sleeper, began, slept = Sleeper(SYSTEM_CLOCK), now(), []

    async def nap() -> None:
        slept.append(await asleep(sleeper, LONG, began))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(nap)
            while len(sleeper._naps) < 8:
                await anyio.sleep(0)
            sleeper.close()
    assert slept == [False] * 8
    assert sleeper._naps == {}


@pytest.mark.anyio
async def test_close_from_another_thread_wakes_an_asynchronous_sleeper() -> None:
    """A program's shutdown runs where it runs."""
    sleeper, began = Sleeper(SYSTEM_CLOCK), now()

    async def close() -> None:
        while not sleeper._naps:
            await anyio.sleep(0)
        await anyio.to_thread.run_sync(sleeper.close)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(close)
            assert await asleep(sleeper, LONG, began) is False
    assert sleeper._naps == {}


@pytest.mark.anyio
async def test_an_asynchronous_call_that_began_before_the_close_does_not_fall_asleep_after_it() -> (
    None
):
    """close() may come while the failed response is drained."""
    sleeper, began = Sleeper(SYSTEM_CLOCK), now()
    sleeper.close()
    with anyio.fail_after(5):
        assert await asleep(sleeper, LONG, began) is False


@pytest.mark.anyio
async def test_a_cancelled_sleep_leaves_nothing_behind() -> None:
    sleeper = Sleeper(SYSTEM_CLOCK)
    with anyio.move_on_after(0.02) as scope:
        await asleep(sleeper, LONG, now())
    assert scope.cancelled_caught
    assert sleeper._naps == {}
    sleeper.close()


def test_loops_in_several_threads_share_one_sleeper() -> None:
    """One transport used from two event loops: close wakes the calls of both."""
    sleeper, began, slept = Sleeper(SYSTEM_CLOCK), now(), []

    def run() -> None:
        slept.append(asyncio.run(asleep(sleeper, LONG, began)))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    until(lambda: len(sleeper._naps) == 2)
    sleeper.close()
    for thread in threads:
        thread.join(5)
    assert slept == [False, False]


def test_a_loop_that_is_gone_does_not_stop_close() -> None:
    """A loop that was closed with a call asleep on it, as a crashed one is."""
    sleeper = Sleeper(SYSTEM_CLOCK)
    loop = asyncio.new_event_loop()

    async def leave() -> None:
        sleeper.lie_down(LONG, since=now())

    loop.run_until_complete(leave())
    loop.close()
    sleeper.close()


# --- an injected clock ------------------------------------------------------------------------


def test_an_injected_clock_sleeps_itself() -> None:
    clock = FakeClock()
    sleeper = Sleeper(clock)
    assert sleeper.sleep(LONG, since=clock.monotonic()) is True
    assert clock.sleeps == [LONG]


@pytest.mark.anyio
async def test_an_injected_clock_sleeps_itself_asynchronously() -> None:
    clock = FakeClock()
    sleeper = Sleeper(clock)
    assert await asleep(sleeper, LONG, clock.monotonic()) is True
    assert clock.sleeps == [LONG]


@pytest.mark.anyio
async def test_a_close_ends_calls_on_an_injected_clock_at_their_next_wait() -> None:
    clock = FakeClock()
    sleeper, began = Sleeper(clock), clock.monotonic()
    clock.advance(1.0)
    sleeper.close()
    clock.advance(1.0)
    assert sleeper.sleep(LONG, since=began) is False
    assert await asleep(sleeper, LONG, began) is False
    assert clock.sleeps == []
    assert sleeper.sleep(LONG, since=clock.monotonic()) is True
    assert clock.sleeps == [LONG]
