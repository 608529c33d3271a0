"""Clocks of tests: one that passes only when someone sleeps, one that skips sleeps. Floor: acts."""

from __future__ import annotations

import time
from contextvars import ContextVar

from ..sending.clock import SYSTEM_CLOCK

__all__ = ["SKIPPING", "FakeClock", "SkippingClock"]


async def checkpoint() -> None:
    """Let others run and a cancellation arrive, as in a real sleep."""
    import anyio.lowlevel

    await anyio.lowlevel.checkpoint()


class FakeClock:
    """A clock for ``clock=``: its sleeps return at once, advance it, and are kept.

    Tasks that sleep at the same time wake in the order in which they would, and leave the clock at
    the latest of their ends; the sleeps of threads add up.

    Attributes:
        sleeps: Seconds of each sleep, sync and async, in order.

    Args:
        now: Unix seconds at the start; the default is 2026-01-01 00:00:00 UTC.
        monotonic: The first instant; not 0, because a false value hides mistakes.
    """

    def __init__(self, now: float = 1_767_225_600.0, *, monotonic: float = 1_000.0) -> None:
        self._utc_offset = now
        self._began_at = monotonic
        self._elapsed = 0.0
        self.sleeps: list[float] = []
        self._ends: list[float] = []  # of the tasks that sleep, in elapsed seconds

    def monotonic(self) -> float:
        return self._began_at + self._elapsed

    def time(self) -> float:
        return self._utc_offset + self._elapsed

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.advance(seconds)

    async def asleep(self, seconds: float) -> None:
        began_at = self._elapsed
        self.sleep(seconds)  # which a subclass may have made its own
        ends_at, self._elapsed = self._elapsed, began_at
        self._ends.append(ends_at)
        try:
            await checkpoint()
            while min(self._ends) < ends_at:
                await checkpoint()
            self._elapsed = max(self._elapsed, ends_at)
        finally:
            self._ends.remove(ends_at)

    def advance(self, seconds: float) -> None:
        """Let time pass without a sleep.

        Raises:
            ValueError: Time does not go back; to step the wall clock use ``step_utc``.
        """
        if seconds < 0:
            raise ValueError(f"time does not go back, got {seconds}; step_utc steps the wall clock")
        self._elapsed += seconds

    def step_utc(self, seconds: float) -> None:
        """Step the wall clock only, as an operator or NTP does; monotonic time is not changed."""
        self._utc_offset += seconds

    def __repr__(self) -> str:
        return f"<FakeClock +{self._elapsed:.6g} s, {len(self.sleeps)} sleeps>"


def pause_of(seconds: float) -> float:
    """Seconds that a skip of so many really takes: 10 s in the steps of a held call some 50 ms."""
    return min(seconds / 150, 0.002)


class SkippingClock:
    """The system's clock, plus the waits that were skipped: they take no time, and yet are over.

    Each task and thread skips by itself, as each would have waited by itself: ten calls at once
    that wait a second each leave all of them one second later. A skip really takes up to 2 ms: a
    held call that skips its patience in no time would end before the retry that lets it go is
    answered.
    """

    def monotonic(self) -> float:
        return SYSTEM_CLOCK.true_monotonic() + SKIPPED.get()

    def time(self) -> float:
        """Return the real time: dates of servers, which skip nothing, are compared with it."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        SKIPPED.set(SKIPPED.get() + seconds)
        time.sleep(pause_of(seconds))

    async def asleep(self, seconds: float) -> None:
        SKIPPED.set(SKIPPED.get() + seconds)
        ends_at = SYSTEM_CLOCK.true_monotonic() + pause_of(seconds)
        await checkpoint()
        # Not on a timer of the loop, which may be frozen; of tasks that skip at once one pauses.
        left = ends_at - SYSTEM_CLOCK.true_monotonic()
        if left > 0:
            time.sleep(left)
            await checkpoint()

    def __repr__(self) -> str:
        return "<SkippingClock>"


SKIPPED: ContextVar[float] = ContextVar("forbear_skipped", default=0.0)  # seconds
SKIPPING = SkippingClock()
