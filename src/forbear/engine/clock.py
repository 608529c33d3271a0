"""Clock: the only place that reads time and sleeps.

Tests pass ``forbear.testing.FakeClock``. Functions of ``time`` and ``threading`` are looked up when
they are called, so that gevent's replacements take effect.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from math import inf, nextafter
from typing import TYPE_CHECKING, Any, Protocol

from ..limits import Locked

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future
    from collections.abc import Awaitable, Callable

LONGEST = threading.TIMEOUT_MAX  # seconds, 292 years; a longer wait would raise
# Seconds that a thread waits at once. On Windows a timed wait ignores Ctrl-C until it ends.
SLICE = 0.25 if os.name == "nt" else LONGEST
# Seconds that a test's clock sleeps at once where another call ends the wait: none can wake it.
STEP = 0.01


# Seconds behind the deadline at which an asynchronous attempt or body is cut (alarms.py).
BACKSTOP = 0.03


class Queued(Protocol):
    """A place in a queue, for which a call waits (addons/concurrency.py)."""

    wake: Callable[[], object] | None

    @property
    def is_taken(self) -> bool: ...


class Clock(Protocol):
    """Time as a transport sees it. All durations are seconds."""

    # An instant that never goes back.
    def monotonic(self) -> float: ...

    # Unix seconds; compared only with dates that a server sends.
    def time(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...

    async def asleep(self, seconds: float) -> None: ...


class SystemClock:
    """The clock of the operating system, or the stand-in that a test has put in its place.

    Attributes:
        monotonic: Read it at each call and never keep it: ``replace_by`` sets another function.
        stand_in: The clock of a test that holds for the whole process; None outside of tests.
    """

    # Kept by the class, where libraries that freeze time do not look for functions to replace.
    true_monotonic = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self.replace_by(None)

    def replace_by(self, clock: Clock | None) -> None:
        """Replace the system's clock by ``clock`` in the whole process; None ends that."""
        self.stand_in = clock
        now: Callable[[], float] = self.true_monotonic if clock is None else clock.monotonic
        self.monotonic = now

    def time(self) -> float:
        return time.time() if self.stand_in is None else self.stand_in.time()

    def sleep(self, seconds: float) -> None:
        if self.stand_in is None:
            time.sleep(min(seconds, LONGEST))
        else:
            self.stand_in.sleep(seconds)

    async def asleep(self, seconds: float) -> None:
        if self.stand_in is None:
            import anyio

            await anyio.sleep(seconds)
        else:
            await self.stand_in.asleep(seconds)

    def __repr__(self) -> str:
        return "<SystemClock>"


SYSTEM_CLOCK = SystemClock()


class Sleeper(Locked):
    """Sleeps on a clock until the time is over or ``close`` is called. Thread-safe.

    ``close`` ends the sleeps of calls that had begun by then, whether they sleep already or not;
    later calls are not affected. A sleep on the clock of a test is not interrupted.
    """

    __slots__ = ("_clock", "_closed_at", "_tasks", "_threads")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._closed_at = -inf
        super().__init__()
        self._begin()

    def after_fork(self) -> None:
        super().after_fork()
        self._begin()

    def _begin(self) -> None:
        """Begin without sleeps; those of the parent do not exist in a forked child."""
        self._threads: set[threading.Lock] = set()  # the lock that each sleeping thread waits for
        self._tasks: dict[Any, Any] = {}  # what each sleeping task awaits -> what ends the sleep

    def sleep(
        self, seconds: float, *, since: float, after: float, queued: Queued | None = None
    ) -> bool:
        """Sleep until so many seconds after an instant, such as when a delay was decided.

        Args:
            seconds: How long the wait is.
            since: When the call began.
            after: When the wait began; the time that has passed since is subtracted.
            queued: What wakes it earlier; None: nothing does.

        Returns:
            False: ``close`` was called since the call began.
        """
        now = self._clock.monotonic()
        if now > after:  # else the sleep is exactly as long as was decided
            seconds -= now - after
        if self._clock is not SYSTEM_CLOCK or SYSTEM_CLOCK.stand_in is not None:
            if self._closed_at > since:
                return False
            if seconds > 0:
                self._clock.sleep(seconds if queued is None else min(seconds, STEP))
            else:
                self.goes_on(inf)  # resets the notice, since no further part follows
            return self._closed_at <= since
        ends_at = SYSTEM_CLOCK.monotonic() + seconds
        held = threading.Lock()  # of this sleep: half the CPU time of an Event
        held.acquire()
        # Checked and added under one lock: a close between the two would release the locks of the
        # set without this one, and the thread would sleep to the end.
        with self._lock:
            if self._closed_at > since:
                return False
            self._threads.add(held)
        try:
            if (
                queued is not None
            ):  # set first, checked second: its giver does it in the other order
                queued.wake = partial(release, held)
                if queued.is_taken:
                    return True
            # In a loop also because a wait may end one tick of the clock too early.
            while seconds > 0 and not held.acquire(timeout=min(seconds, SLICE)):
                seconds = ends_at - SYSTEM_CLOCK.monotonic()
        finally:
            self._threads.discard(held)
        return self._closed_at <= since

    def goes_on(self, since: float) -> None:
        """Notify the clock of a test: the next sleep continues the wait begun after ``since``.

        A wait is slept in parts where a call checks again whether its attempt may be sent.
        """
        clock: Any = SYSTEM_CLOCK.stand_in if self._clock is SYSTEM_CLOCK else self._clock
        if hasattr(clock, "goes_on"):
            clock.goes_on(since)

    async def asleep(
        self, seconds: float, *, since: float, after: float, queued: Queued | None = None
    ) -> bool:
        """Do as ``sleep``, on asyncio or trio."""
        sleep = self.begin_sleep(seconds, since=since, after=after, queued=queued)
        try:
            return await sleep
        finally:
            self.end_sleep(sleep)

    def begin_sleep(
        self, seconds: float, *, since: float, after: float, queued: Queued | None = None
    ) -> Awaitable[bool]:
        """Begin an asynchronous sleep and return what to await; its result is that of ``sleep``."""
        # Not a coroutine function, and on asyncio a bare future: 250 bytes less per waiting call.
        now = self._clock.monotonic()
        if now > after:
            seconds -= now - after
        if self._clock is not SYSTEM_CLOCK or SYSTEM_CLOCK.stand_in is not None:
            return self._sleep_on_stand_in(seconds if queued is None else min(seconds, STEP), since)
        if (loop := asyncio_loop()) is None:
            return self._sleep_on_trio(seconds, since, queued)
        sleep: Future[bool] = loop.create_future()
        ends_at = now + seconds
        # Added first, checked second; close, in another thread, sets ``_closed_at`` first and reads
        # the sleeps second. So at least one of the two sees the other, and no sleep is missed.
        self._tasks[sleep] = loop.call_later(seconds, self._end, loop, sleep, ends_at)
        if self._closed_at > since:
            wake(sleep, False)
        if queued is not None:  # as above
            queued.wake = partial(wake_from_anywhere, loop, sleep)
            if queued.is_taken:
                wake(sleep, True)
        return sleep

    def _end(self, loop: AbstractEventLoop, sleep: Future[bool], ends_at: float) -> None:
        """End a sleep, unless the timer fired early: uvloop's may, by up to half a millisecond."""
        left = ends_at - SYSTEM_CLOCK.monotonic()
        if left > 0 and not sleep.done():
            self._tasks[sleep] = loop.call_later(left, self._end, loop, sleep, ends_at)
        else:
            wake(sleep, True)

    def end_sleep(self, sleep: Awaitable[bool]) -> None:
        """Clear up after ``begin_sleep``, also when the sleep was cancelled."""
        timer = self._tasks.pop(sleep, None)
        if timer is not None:
            timer.cancel()

    async def _sleep_on_stand_in(self, seconds: float, since: float) -> bool:
        if seconds <= 0:
            self.goes_on(inf)  # resets the notice, since no further part follows
        elif self._closed_at <= since:
            await self._clock.asleep(seconds)
        return self._closed_at <= since

    async def _sleep_on_trio(self, seconds: float, since: float, queued: Queued | None) -> bool:
        import anyio

        event = anyio.Event()
        # A token, since another thread may call close.
        token = self._tasks[event] = sys.modules["trio"].lowlevel.current_trio_token()
        try:
            if queued is not None:
                queued.wake = partial(token.run_sync_soon, event.set, idempotent=True)
            if self._closed_at <= since and not (queued is not None and queued.is_taken):
                with anyio.move_on_after(seconds):
                    await event.wait()
        finally:
            self._tasks.pop(event, None)
        return self._closed_at <= since

    def waiting(self) -> int:
        """Count the calls that sleep now; without those on a test's clock."""
        return len(self._threads) + len(self._tasks)

    def close(self) -> None:
        """End the sleeps of all calls that have begun."""
        with self._lock:
            closed_at = self._clock.monotonic()
            if self._clock is SYSTEM_CLOCK and SYSTEM_CLOCK.stand_in is None:
                # Calls of the same tick count as begun: the clocks of Windows tick every 15.6 ms.
                closed_at = nextafter(closed_at, inf)
            self._closed_at = closed_at
            threads, self._threads = self._threads, set()
        for held in list(threads):
            release(held)
        for sleep, ending in list(self._tasks.items()):
            with suppress(RuntimeError):  # its event loop is closed, and the call is gone too
                if hasattr(sleep, "get_loop"):
                    sleep.get_loop().call_soon_threadsafe(wake, sleep, False)
                else:
                    ending.run_sync_soon(sleep.set)


def release(held: threading.Lock) -> None:
    with suppress(RuntimeError):  # something else has woken the thread too
        held.release()


def wake_from_anywhere(loop: AbstractEventLoop, sleep: Future[bool]) -> None:
    """End a sleep from any thread. RuntimeError: its loop is closed."""
    from asyncio import get_running_loop

    running = None
    with suppress(RuntimeError):  # none runs here
        running = get_running_loop()
    if running is loop:
        wake(sleep, True)
    else:
        loop.call_soon_threadsafe(wake, sleep, True)


def wake(sleep: Future[bool], slept: bool) -> None:
    if not sleep.done():
        sleep.set_result(slept)


def asyncio_loop() -> AbstractEventLoop | None:
    """The running asyncio loop, None under trio (also where trio is a guest on an asyncio loop)."""
    # Another thread may be importing trio: it has no ``lowlevel`` yet, and nothing runs under it.
    lowlevel = getattr(sys.modules.get("trio"), "lowlevel", None)
    if lowlevel is not None and lowlevel.in_trio_run():
        return None
    import asyncio

    return asyncio.get_running_loop()
