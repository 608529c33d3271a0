"""FakeClock: time that passes only when someone sleeps, so that tests of waits take none."""

import anyio
import pytest

from forbear.testing import FakeClock


def test_a_sleep_advances_the_clock_and_is_kept():
    clock = FakeClock()
    start, utc = clock.monotonic(), clock.time()
    clock.sleep(3_600.0)
    clock.sleep(0.5)
    assert clock.monotonic() - start == 3_600.5
    assert clock.time() - utc == 3_600.5
    assert repr(clock) == "<FakeClock +3600.5 s, 2 sleeps>"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_others_run_during_an_asynchronous_sleep(backend):
    """And a cancellation arrives there, as in a real one; who was cancelled holds up nobody."""
    clock, ran = FakeClock(monotonic=1.0), []

    async def note():
        ran.append(True)

    async def run():
        async with anyio.create_task_group() as group:
            group.start_soon(note)
            for _ in range(3):  # trio chooses who runs first
                await clock.asleep(1.0)
            assert ran == [True]
        with anyio.CancelScope() as scope:
            scope.cancel()
            await clock.asleep(1.0)
            ran.append(False)
        await clock.asleep(7.0)

    anyio.run(run, backend=backend)
    assert ran == [True]
    assert clock.sleeps == [1.0] * 4 + [7.0]
    assert clock.monotonic() == 1.0 + 3.0 + 7.0


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_tasks_that_sleep_at_once_wake_in_their_order(backend):
    """5, 1 and 3 s side by side are over after 5 s, and not after 9."""
    clock, woke = FakeClock(monotonic=1.0), []

    async def sleep(seconds):
        await clock.asleep(seconds)
        woke.append((seconds, clock.monotonic()))

    async def run():
        async with anyio.create_task_group() as group:
            for seconds in (5.0, 1.0, 3.0):
                group.start_soon(sleep, seconds)

    anyio.run(run, backend=backend)
    assert woke == [(1.0, 2.0), (3.0, 4.0), (5.0, 6.0)]
    assert sorted(clock.sleeps) == [1.0, 3.0, 5.0]


def test_time_passes_without_a_sleep_and_the_wall_clock_is_stepped_alone():
    clock = FakeClock(now=1_000.0, monotonic=1.0)
    clock.advance(5.0)
    clock.advance(0.0)
    clock.step_utc(-3_600.0)
    assert (clock.monotonic(), clock.time(), clock.sleeps) == (6.0, -2_595.0, [])
