"""Clock: the only place that reads time and sleeps.

Tests pass ``forbear.testing.FakeClock``. Functions of ``time`` and ``threading`` are looked up when
they are called, so that gevent's replacements take effect.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from functools import partial
from math import inf, nextafter
from typing import TYPE_CHECKING, Protocol

from ..limits import Locked

if TYPE_CHECKING:
    from collections.abc import Callable

LONGEST = threading.TIMEOUT_MAX  # seconds, 292 years; a longer wait would raise
# Seconds that a thread waits at once. On Windows a timed wait ignores Ctrl-C until it ends.
SLICE = 0.25 if os.name == "nt" else LONGEST
# Seconds that a test's clock sleeps at once where another call ends the wait: none can wake it.
STEP = 0.01


# Seconds behind the deadline at which an asynchronous attempt or body is cut (tasks.py).
BACKSTOP = 0.03


def before_fork() -> None:
    if threading.active_count() > 1:
        from .forks import load_all

        load_all()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(before=before_fork)


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
        return (self.stand_in or time).time()

    def sleep(self, seconds: float) -> None:
        (self.stand_in or time).sleep(seconds)

    async def asleep(self, seconds: float) -> None:
        if self.stand_in is None:
            import anyio

            await anyio.sleep(seconds)
        else:
            await self.stand_in.asleep(seconds)

    def __repr__(self) -> str:
        return "<SystemClock>"


SYSTEM_CLOCK = SystemClock()


class Waiter:
    """Waits on a clock until the time is over or ``close`` is called. Thread-safe.

    How, a thread or a task knows: ``Threads``, and ``Tasks`` of tasks.py. ``close`` ends the waits
    of calls that had begun by then, whether they wait already or not; later calls are not affected.
    A wait on the clock of a test is not interrupted.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._closed_at = -inf
        self._asleep: set[Callable[[], object]] = set()  # what wakes each wait

    def after_fork(self) -> None:
        super().after_fork()  # type: ignore[misc]
        self._asleep = set()  # those of the parent do not exist in a forked child

    async def sleep(
        self, seconds: float, *, since: float, after: float, queued: Queued | None = None
    ) -> bool:
        """Wait until so many seconds after an instant, such as when a delay was decided.

        Args:
            seconds: How long the wait is.
            since: When the call began.
            after: When the wait began; the time that has passed since is subtracted.
            queued: What wakes it earlier; None: nothing does.

        Returns:
            False: ``close`` was called since the call began.
        """
        now = self._clock.monotonic()
        if now > after:  # else the wait is exactly as long as was decided
            seconds -= now - after
        clock = self._stand_in
        if clock is None:
            await self._wait(seconds, since, queued)
        elif seconds <= 0:
            self.goes_on(inf)  # resets the notice, since no further part follows
        elif self._closed_at <= since:
            await self._pass(clock, seconds if queued is None else min(seconds, STEP))
        return self._closed_at <= since

    if TYPE_CHECKING:  # of threads or tasks

        async def _wait(self, seconds: float, since: float, queued: Queued | None) -> None: ...
        async def _pass(self, clock: Clock, seconds: float) -> None: ...

    @property
    def _stand_in(self) -> Clock | None:
        """The clock of a test, on which waits pass; None: they take their time."""
        return SYSTEM_CLOCK.stand_in if self._clock is SYSTEM_CLOCK else self._clock

    def _add(self, wake: Callable[[], object], since: float, queued: Queued | None) -> None:
        """Let a wait be ended before its time, by ``wake``, from any thread."""
        # Added first, checked second; close, in another thread, sets ``_closed_at`` first and reads
        # the waits second. So at least one of the two sees the other, and no wait is missed. Who
        # takes a place in a queue does as close does.
        self._asleep.add(wake)
        if queued is not None:
            queued.wake = wake
        if self._closed_at > since or (queued is not None and queued.is_taken):
            wake()

    def goes_on(self, since: float) -> None:
        """Notify the clock of a test: the next sleep continues the wait begun after ``since``.

        A wait is slept in parts where a call checks again whether its attempt may be sent.
        """
        goes_on = getattr(self._stand_in, "goes_on", None)
        if goes_on is not None:
            goes_on(since)

    def waiting(self) -> int:
        """Count the calls that wait now; without those on a test's clock."""
        return len(self._asleep)

    def close(self) -> None:
        """End the waits of all calls that have begun."""
        closed_at = self._clock.monotonic()
        if self._stand_in is None:
            # Calls of the same tick count as begun: the clocks of Windows tick every 15.6 ms.
            closed_at = nextafter(closed_at, inf)
        self._closed_at = closed_at
        for wake in list(self._asleep):
            with suppress(RuntimeError):  # its event loop is closed, and the call is gone too
                wake()


class Threads(Waiter, Locked):
    """Waits of threads. Its coroutines never suspend."""

    async def _wait(self, seconds: float, since: float, queued: Queued | None) -> None:
        ends_at = SYSTEM_CLOCK.monotonic() + seconds
        held = threading.Lock()  # of this wait: half the CPU time of an Event
        held.acquire()
        wake = partial(release, held)
        try:
            self._add(wake, since, queued)
            # In a loop also because a wait may end one tick of the clock too early.
            while seconds > 0 and not held.acquire(timeout=min(seconds, SLICE)):
                seconds = ends_at - SYSTEM_CLOCK.monotonic()
        finally:
            self._asleep.discard(wake)

    async def _pass(self, clock: Clock, seconds: float) -> None:
        clock.sleep(seconds)


def release(held: threading.Lock) -> None:
    with suppress(RuntimeError):  # something else has woken the thread too
        held.release()
