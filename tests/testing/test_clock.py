"""FakeClock: time that passes only when someone sleeps, so that tests of waits take none."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import anyio
import httpx
import pytest

from forbear import Fixed, RetryPolicy
from forbear.httpx import AsyncRetryTransport, RetryTransport
from forbear.sending.clock import Clock
from forbear.testing import FakeClock, ScriptedTransport


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_sleep_advances_the_clock_and_is_kept() -> None:
    clock, began = FakeClock(), time.monotonic()
    start, utc = clock.monotonic(), clock.time()
    clock.sleep(3_600.0)
    clock.sleep(0.5)
    assert clock.sleeps == [3_600.0, 0.5]
    assert clock.monotonic() - start == 3_600.5
    assert clock.time() - utc == 3_600.5
    assert time.monotonic() - began < 1


@pytest.mark.anyio
async def test_asynchronous_sleeps_too() -> None:
    clock = FakeClock()
    await clock.asleep(2.0)
    assert clock.sleeps == [2.0]


@pytest.mark.anyio
async def test_others_run_during_an_asynchronous_sleep() -> None:
    """And a cancellation arrives there, as in a real one."""
    clock, ran = FakeClock(), []
    async with anyio.create_task_group() as group:
        group.start_soon(note, ran)
        for _ in range(3):  # trio chooses who runs first
            await clock.asleep(1.0)
        assert ran == [True]
    with anyio.CancelScope() as scope:
        scope.cancel()
        await clock.asleep(1.0)
        ran.append(False)
    assert ran == [True]


async def note(ran: list[bool]) -> None:
    ran.append(True)


def test_the_start_is_the_first_second_of_2026() -> None:
    assert (
        datetime.fromtimestamp(FakeClock().time(), UTC).isoformat() == "2026-01-01T00:00:00+00:00"
    )
    assert FakeClock(now=7.0).time() == 7.0


def test_monotonic_time_does_not_begin_at_zero() -> None:
    """An instant that happens to be falsy would hide ``if deadline_at:``."""
    assert FakeClock().monotonic() > 0


def test_time_passes_without_a_sleep_when_told() -> None:
    clock = FakeClock()
    before = clock.monotonic()
    clock.advance(5.0)
    clock.advance(0.0)
    assert clock.monotonic() - before == 5.0
    assert clock.sleeps == []


def test_time_does_not_go_back() -> None:
    with pytest.raises(
        ValueError, match="time does not go back, got -1; step_utc steps the wall clock"
    ):
        FakeClock().advance(-1)


def test_the_wall_clock_can_be_stepped_alone() -> None:
    clock = FakeClock(now=1_000.0)
    before = clock.monotonic()
    clock.step_utc(-3_600.0)
    assert clock.time() == -2_600.0
    assert clock.monotonic() == before


def test_it_is_a_clock_and_shows_its_state() -> None:
    clock: Clock = FakeClock()
    clock.sleep(1.5)
    assert repr(clock) == "<FakeClock +1.5 s, 1 sleeps>"


def test_it_makes_a_retrying_client_instant() -> None:
    """The use it is for: hours of waiting, no time."""
    clock, began = FakeClock(), time.monotonic()
    policy = RetryPolicy(max_attempts=3, backoff=Fixed(3_600.0))
    transport = RetryTransport(ScriptedTransport([503, 503, 200]), policy=policy, clock=clock)
    with httpx.Client(transport=transport) as client:
        assert client.get("http://api.example/").status_code == 200
    assert clock.sleeps == [3_600.0, 3_600.0]
    assert time.monotonic() - began < 2


@pytest.mark.anyio
async def test_it_makes_an_asynchronous_client_instant() -> None:
    clock = FakeClock()
    policy = RetryPolicy(max_attempts=3, backoff=Fixed(3_600.0))
    transport = AsyncRetryTransport(ScriptedTransport([503, 503, 200]), policy=policy, clock=clock)
    with anyio.fail_after(5):
        async with httpx.AsyncClient(transport=transport) as client:
            assert (await client.get("http://api.example/")).status_code == 200
    assert clock.sleeps == [3_600.0, 3_600.0]
