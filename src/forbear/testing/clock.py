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

    def monotonic(self) -> float:
        return self._began_at + self._elapsed

    def time(self) -> float:
        return self._utc_offset + self._elapsed

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.advance(seconds)

    async def asleep(self, seconds: float) -> None:
        self.sleep(seconds)
        await checkpoint()

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


class SkippingClock:
    """The system's clock, plus the waits that were skipped: they take no time, and yet are over.

    Each task and thread skips by itself, as each would have waited by itself: ten calls at once
    that wait a second each leave all of them one second later.
    """

    def monotonic(self) -> float:
        return SYSTEM_CLOCK.true_monotonic() + SKIPPED.get()

    def time(self) -> float:
        """Return the real time: dates of servers, which skip nothing, are compared with it."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        SKIPPED.set(SKIPPED.get() + seconds)

    async def asleep(self, seconds: float) -> None:
        self.sleep(seconds)
        await checkpoint()

    def __repr__(self) -> str:
        return "<SkippingClock>"


SKIPPED: ContextVar[float] = ContextVar("forbear_skipped", default=0.0)  # seconds
SKIPPING = SkippingClock()
