"""Clock, and how threads and tasks wait: waits that end on time, or when the transport is closed, from wherever."""

import asyncio
import os
import threading
import time
from contextlib import contextmanager

import anyio
import anyio.to_thread
import pytest

import forbear.engine.clock
from forbear.engine.clock import SYSTEM_CLOCK, Threads
from forbear.engine.loop import drive
from forbear.engine.tasks import Tasks
from forbear.testing import FakeClock

from .threads import in_threads

LONG = 60.0  # seconds of real time that no test waits for


def now():
    return SYSTEM_CLOCK.monotonic()


async def asleep(waiter, seconds, since, after=None):
    """Wait, as the loop does."""
    return await waiter.sleep(seconds, since=since, after=now() if after is None else after)


both = pytest.mark.parametrize("kind", [Threads, Tasks])


@contextmanager
def asleep_until_closed(sleeper, sleep, threads=1):
    """Threads that are asleep in the block, and what they have returned; a close wakes them."""
    slept = []
    started = [threading.Thread(target=lambda: slept.append(sleep())) for _ in range(threads)]
    for thread in started:
        thread.start()
    ends_at = time.monotonic() + 30
    while sleeper.waiting() < threads and time.monotonic() < ends_at:
        time.sleep(0.001)
    yield slept
    sleeper.close()
    for thread in started:
        thread.join(30)
    assert slept == [False] * threads


def test_functions_of_time_are_looked_up_when_called(monkeypatch):
    """gevent replaces them after the import, and a sleep must not block its other greenlets."""
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(time, "time", lambda: 7.0)
    SYSTEM_CLOCK.sleep(3.0)
    assert slept == [3.0]
    assert SYSTEM_CLOCK.time() == 7.0
    assert time.monotonic() <= SYSTEM_CLOCK.monotonic() <= time.monotonic()
    assert repr(SYSTEM_CLOCK) == "<SystemClock>"


@pytest.mark.anyio
async def test_the_system_clock_sleeps_on_any_event_loop():
    began = now()
    await SYSTEM_CLOCK.asleep(0.02)
    assert now() - began >= 0.02


@both
def test_a_stand_in_takes_the_clocks_place_until_it_is_taken_back(kind):
    """Also for a sleeper that was made before; its close ends a call as ever."""
    sleeper, clock = kind(SYSTEM_CLOCK), FakeClock()
    SYSTEM_CLOCK.replace_by(clock)
    try:
        began = now()
        assert (began, SYSTEM_CLOCK.time()) == (clock.monotonic(), clock.time())
        SYSTEM_CLOCK.sleep(1.0)
        asyncio.run(SYSTEM_CLOCK.asleep(2.0))
        assert asyncio.run(asleep(sleeper, LONG, began)) is True
        sleeper.close()
        assert asyncio.run(asleep(sleeper, LONG, began)) is False
    finally:
        SYSTEM_CLOCK.replace_by(None)
    assert clock.sleeps == [1.0, 2.0, LONG]
    assert time.monotonic() <= now() <= time.monotonic()
    assert SYSTEM_CLOCK.stand_in is None


@both
@pytest.mark.anyio
async def test_a_sleep_takes_its_time(kind):
    sleeper, began = kind(SYSTEM_CLOCK), now()
    assert await asleep(sleeper, 0.02, began) is True
    assert now() - began > 0.015
    assert sleeper.waiting() == 0


def test_a_wait_of_centuries_is_cut_to_what_a_lock_can_wait():
    sleeper, began = Threads(SYSTEM_CLOCK), now()
    with asleep_until_closed(sleeper, lambda: drive(asleep(sleeper, 1e300, began, began))):
        pass


def test_close_wakes_every_sleeper_however_they_came():
    """Sixteen threads fall asleep at the same moment, as they do when an outage begins."""
    for _ in range(20):
        sleeper, began = Threads(SYSTEM_CLOCK), now()

        def work(n, sleeper=sleeper, began=began):
            return drive(asleep(sleeper, LONG, began)) if n else sleeper.close()

        assert in_threads(17, work) == [None] + [False] * 16


def test_a_close_concerns_the_calls_that_had_begun():
    """Those after it may use the transport again, as they may use httpx's own."""
    sleeper, began = Threads(SYSTEM_CLOCK), now()
    sleeper.close()
    sleeper.close()
    assert drive(asleep(sleeper, LONG, began)) is False
    time.sleep(0.002)
    began = now()
    assert drive(asleep(sleeper, 0.02, began)) is True
    assert now() - began >= 0.015


def test_a_close_concerns_a_call_that_began_at_the_same_tick(monkeypatch):
    """Clocks of Windows tick every 15.6 ms: such a call would else wait to the end."""
    monkeypatch.setattr(SYSTEM_CLOCK, "monotonic", lambda: 1_000.0)
    sleeper = Threads(SYSTEM_CLOCK)
    sleeper.close()
    assert drive(asleep(sleeper, 0.01, 1_000.0)) is False


def test_a_sleep_on_windows_is_cut_into_slices_and_does_not_end_early(monkeypatch):
    """A timed wait ignores Ctrl-C there until it ends, which is up to a tick too soon."""
    at, timeouts = 1_000.0, []

    class Lock:
        def acquire(self, timeout=-1):
            nonlocal at
            if timeout == -1:
                return True
            timeouts.append(timeout)
            at += max(timeout - 0.015, 0.001)
            return False

    monkeypatch.setattr(forbear.engine.clock, "SLICE", 0.25)
    monkeypatch.setattr(SYSTEM_CLOCK, "monotonic", lambda: at)
    sleeper = Threads(SYSTEM_CLOCK)
    with monkeypatch.context() as patched:
        patched.setattr(threading, "Lock", Lock)
        assert drive(asleep(sleeper, 1.0, at - 1.0)) is True
    assert max(timeouts) <= 0.25
    assert at >= 1_001.0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_sleeps_and_closes_for_itself():
    """Calls of the parent sleep on, and are none of the child's."""
    sleeper, began = Threads(SYSTEM_CLOCK), now()
    with asleep_until_closed(sleeper, lambda: drive(asleep(sleeper, LONG, began))) as slept:
        child = os.fork()
        if not child:
            counted = sleeper.waiting()
            rested = drive(asleep(sleeper, 0.01, now()))
            sleeper.close()
            os._exit(0 if (counted, rested) == (0, True) else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert slept == []


class HastyLoop(asyncio.SelectorEventLoop):
    """Fires timers early, as uvloop does, which counts whole milliseconds; by more, to be seen."""

    def call_later(self, delay, *rest, **named):
        return super().call_later(max(0.0, delay - 0.004), *rest, **named)


def test_a_timer_that_fires_early_does_not_end_a_sleep_early():
    """A server that said when to come back is not asked before."""
    sleeper, early = Tasks(SYSTEM_CLOCK), []

    async def run():
        for _ in range(3):
            began = now()
            assert await asleep(sleeper, 0.01, began) is True
            early.append(now() - began < 0.01)

    with asyncio.Runner(loop_factory=HastyLoop) as runner:
        runner.run(run())
    assert early == [False] * 3
    assert sleeper.waiting() == 0


@pytest.mark.anyio
@pytest.mark.parametrize("place", ["loop", "thread"])
async def test_close_wakes_every_asynchronous_sleeper(place):
    """A program's shutdown runs where it runs."""
    sleeper, began, slept = Tasks(SYSTEM_CLOCK), now(), []

    async def run():
        slept.append(await asleep(sleeper, LONG, began))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(run)
            while sleeper.waiting() < 8:
                await anyio.sleep(0)
            if place == "loop":
                sleeper.close()
            else:
                await anyio.to_thread.run_sync(sleeper.close)
        assert slept == [False] * 8
        # A call that had begun does not fall asleep after it: close() may come while it drains.
        assert await asleep(sleeper, LONG, began) is False
    assert sleeper.waiting() == 0


@pytest.mark.anyio
async def test_a_cancelled_sleep_leaves_nothing_behind():
    sleeper = Tasks(SYSTEM_CLOCK)
    with anyio.move_on_after(0.02) as scope:
        await asleep(sleeper, LONG, now())
    assert scope.cancelled_caught
    assert sleeper.waiting() == 0
    sleeper.close()


def test_loops_in_several_threads_share_one_sleeper():
    """One transport used from two event loops: close wakes the calls of both."""
    sleeper, began = Tasks(SYSTEM_CLOCK), now()
    with asleep_until_closed(sleeper, lambda: asyncio.run(asleep(sleeper, LONG, began)), threads=2):
        pass


def test_a_loop_that_is_gone_does_not_stop_close():
    """A loop that was closed with a call asleep on it, as a crashed one is."""
    sleeper = Tasks(SYSTEM_CLOCK)
    loop = asyncio.new_event_loop()

    task = loop.create_task(asleep(sleeper, LONG, now()))
    loop.run_until_complete(asyncio.sleep(0))
    assert sleeper.waiting() == 1
    loop.close()
    sleeper.close()
    task._log_destroy_pending = False


@both
@pytest.mark.anyio
async def test_an_injected_clock_sleeps_itself_and_a_close_ends_calls_at_their_next_wait(kind):
    clock = FakeClock()
    sleeper, began = kind(clock), clock.monotonic()
    assert await asleep(sleeper, LONG, began, clock.monotonic()) is True
    sleeper.close()
    clock.advance(1.0)
    assert await asleep(sleeper, LONG, began, clock.monotonic()) is False
    assert clock.sleeps == [LONG]
    assert await asleep(sleeper, LONG, clock.monotonic(), clock.monotonic()) is True
