"""Clocks of tests: one that advances only when a call sleeps, one that skips sleeps."""

from __future__ import annotations

import threading
import time
from contextvars import ContextVar

from ..engine.clock import SYSTEM_CLOCK


async def checkpoint() -> None:
    """Let other tasks run and a cancellation arrive, as in a real sleep."""
    import anyio.lowlevel

    await anyio.lowlevel.checkpoint()


class FakeClock:
    """A clock for ``clock=``: its sleeps return at once, advance it, and are recorded.

    Tasks that sleep at the same time wake in the order in which they would, and leave the clock at
    the latest of their ends; the sleeps of threads add up. Thread-safe.

    Attributes:
        sleeps: Seconds of each wait, sync and async, in order, as in ``CallRecord.waits``. A wait
            that is slept in parts, because its call is held, is one.

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
        self._lock = threading.RLock()  # reentrant: the sleep of a subclass may do anything

    def monotonic(self) -> float:
        with self._lock:
            return self._began_at + self._elapsed

    def time(self) -> float:
        with self._lock:
            return self._utc_offset + self._elapsed

    def sleep(self, seconds: float) -> None:
        clock, index = PART_OF.get()
        PART_OF.set((None, 0))
        if clock is not self or index >= len(self.sleeps):
            LAST.set((self, len(self.sleeps), self.monotonic()))
            self.sleeps.append(seconds)
        else:  # to the nanosecond: the parts are differences of instants
            self.sleeps[index] = round(self.sleeps[index] + seconds, 9)
        self.advance(seconds)

    def goes_on(self, since: float) -> None:
        """Count the next sleep of this thread or task to its last one, if that began ``since``."""
        clock, index, began_at = LAST.get()
        PART_OF.set((self if clock is self and began_at >= since else None, index))

    async def asleep(self, seconds: float) -> None:
        with self._lock:  # else another thread would read, or advance, a clock that is ahead
            began_at = self._elapsed
            self.sleep(seconds)  # a subclass may override it
            ends_at, self._elapsed = self._elapsed, began_at
            self._ends.append(ends_at)
        try:
            await checkpoint()
            while min(self._ends) < ends_at:
                await checkpoint()
            with self._lock:
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
        with self._lock:
            self._elapsed += seconds

    def step_utc(self, seconds: float) -> None:
        """Step the wall clock only, as an operator or NTP does; monotonic time is not changed."""
        with self._lock:
            self._utc_offset += seconds

    def __repr__(self) -> str:
        return f"<FakeClock +{self._elapsed:.6g} s, {len(self.sleeps)} sleeps>"


# Of this thread or task: the last sleep (clock, index in ``sleeps``, instant), and the index of the
# one that the next sleep is a part of.
LAST: ContextVar[tuple[FakeClock | None, int, float]] = ContextVar("last", default=(None, 0, 0.0))
PART_OF: ContextVar[tuple[FakeClock | None, int]] = ContextVar("part_of", default=(None, 0))


def pause_of(seconds: float) -> float:
    """Return what a skip really takes, in seconds: for 10 s in the steps of a held call 50 ms."""
    return min(seconds / 150, 0.002)


class SkippingClock:
    """The system's clock plus the waits that were skipped, which count although they take no time.

    Each task and thread skips by itself, as each would have waited by itself: after ten concurrent
    calls that wait a second each, all of them are one second later. A skip really takes up to 2 ms,
    because a held call that skips its patience in no time would end before the response to the
    retry that releases it.
    """

    def monotonic(self) -> float:
        return SYSTEM_CLOCK.true_monotonic() + SKIPPED.get()

    def time(self) -> float:
        """Return the real time: it is compared with dates of servers, which skip nothing."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        SKIPPED.set(SKIPPED.get() + seconds)
        time.sleep(pause_of(seconds))

    async def asleep(self, seconds: float) -> None:
        SKIPPED.set(SKIPPED.get() + seconds)
        ends_at = SYSTEM_CLOCK.true_monotonic() + pause_of(seconds)
        await checkpoint()
        # Not with a timer of the loop, which may be frozen; of concurrent tasks only one pauses.
        left = ends_at - SYSTEM_CLOCK.true_monotonic()
        if left > 0:
            time.sleep(left)
            await checkpoint()

    def __repr__(self) -> str:
        return "<SkippingClock>"


SKIPPED: ContextVar[float] = ContextVar("forbear_skipped", default=0.0)  # seconds
SKIPPING = SkippingClock()
