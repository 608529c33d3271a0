"""Clock: the only place that reads time and sleeps, and what cancels attempts past their deadline.

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
    from contextlib import AbstractContextManager
    from types import ModuleType, TracebackType

    class Alarm(Protocol):
        at: float

        def ring(self) -> None: ...


LONGEST = threading.TIMEOUT_MAX  # seconds, 292 years; a longer wait would raise
# Seconds that a thread waits at once. On Windows a timed wait ignores Ctrl-C until it ends.
SLICE = 0.25 if os.name == "nt" else LONGEST
# Seconds that a test's clock sleeps at once where another call ends the wait: none can wake it.
STEP = 0.01


class Slot(Protocol):
    """What a call waits for in a queue (limits/concurrency.py)."""

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
        self, seconds: float, *, since: float, after: float, slot: Slot | None = None
    ) -> bool:
        """Sleep until so many seconds after an instant, such as when a delay was decided.

        Args:
            seconds: How long the wait is.
            since: When the call began.
            after: When the wait began; the time that has passed since is subtracted.
            slot: What wakes it earlier; None: nothing does.

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
                self._clock.sleep(seconds if slot is None else min(seconds, STEP))
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
            if slot is not None:  # set first, checked second: its giver does it in the other order
                slot.wake = partial(release, held)
                if slot.is_taken:
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

    def begin_sleep(
        self, seconds: float, *, since: float, after: float, slot: Slot | None = None
    ) -> Awaitable[bool]:
        """Begin an asynchronous sleep and return what to await; its result is that of ``sleep``."""
        # Not a coroutine function, and on asyncio a bare future: 250 bytes less per waiting call.
        now = self._clock.monotonic()
        if now > after:
            seconds -= now - after
        if self._clock is not SYSTEM_CLOCK or SYSTEM_CLOCK.stand_in is not None:
            return self._sleep_on_stand_in(seconds if slot is None else min(seconds, STEP), since)
        if (loop := asyncio_loop()) is None:
            return self._sleep_on_trio(seconds, since, slot)
        sleep: Future[bool] = loop.create_future()
        ends_at = now + seconds
        # Added first, checked second; close, in another thread, sets ``_closed_at`` first and reads
        # the sleeps second. So at least one of the two sees the other, and no sleep is missed.
        self._tasks[sleep] = loop.call_later(seconds, self._end, loop, sleep, ends_at)
        if self._closed_at > since:
            wake(sleep, False)
        if slot is not None:  # as above
            slot.wake = partial(wake_from_anywhere, loop, sleep)
            if slot.is_taken:
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

    async def _sleep_on_trio(self, seconds: float, since: float, slot: Slot | None) -> bool:
        import anyio

        event = anyio.Event()
        # A token, since another thread may call close.
        token = self._tasks[event] = sys.modules["trio"].lowlevel.current_trio_token()
        try:
            if slot is not None:
                slot.wake = partial(token.run_sync_soon, event.set, idempotent=True)
            if self._closed_at <= since and not (slot is not None and slot.is_taken):
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
    from asyncio import _get_running_loop

    if _get_running_loop() is loop:
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


# The library's own timeouts end an attempt in time unless the peer keeps dripping bytes. A cancel
# scope or timer for each attempt costs up to 8 µs, so on asyncio one timer per transport checks all
# attempts under way. On trio a cancel scope is the only way.
BACKSTOP = 0.03  # seconds behind the deadline at which an asynchronous attempt or body is cut


class Alarms:
    """The alarms of one transport on one asyncio loop.

    An alarm has ``at``, when it is due, and ``ring``. The code that puts one into ``pending`` also
    removes it.

    Attributes:
        loop: The event loop of the timer; None: none yet.
        rings_at: When the timer checks the alarms next.
        pending: Those that were not removed.
    """

    __slots__ = ("_now", "_timer", "loop", "pending", "rings_at")

    def __init__(self, now: Callable[[], float], loop: Any = None) -> None:
        self._now = now
        self._timer: Any = None
        self.loop = loop
        self.rings_at = inf
        self.pending: dict[Alarm, None] = {}

    def prepare(self, at: float) -> None:
        """Set the timer early enough for an alarm that is put into ``pending`` now."""
        if self._timer is not None:
            self._timer.cancel()
        self.rings_at = at
        self._timer = self.loop.call_later(max(0.0, at - self._now()), self.ring_due)

    def add(self, alarm: Alarm) -> None:
        """Add an alarm, and set the timer for it."""
        if alarm.at < self.rings_at:
            self.prepare(alarm.at)
        self.pending[alarm] = None

    def ring_due(self) -> None:
        """Ring the alarms that are due, and set the timer for the next one."""
        self.rings_at = inf
        now = self._now()
        # A list first, since ringing may remove alarms while the dict is iterated.
        for alarm in [alarm for alarm in self.pending if alarm.at <= now]:
            alarm.ring()
        at = min((alarm.at for alarm in self.pending), default=inf)
        if at < inf:
            self.prepare(at)


class TrioAlarms(Alarms):
    """The same on trio, where a system task sleeps in place of a timer."""

    __slots__ = ()

    def prepare(self, at: float) -> None:
        trio = sys.modules["trio"]
        self.rings_at = at
        deadline = trio.current_time() + max(0.0, at - self._now())
        if self._timer is not None:
            self._timer.deadline = deadline
        else:
            self._timer = trio.CancelScope(deadline=deadline)
            trio.lowlevel.spawn_system_task(self._sleep, trio)

    async def _sleep(self, trio: ModuleType) -> None:
        with self._timer:
            await trio.sleep_forever()
        self._timer = None
        self.ring_due()


def current_trio_token() -> object:
    """Return a value that distinguishes one run of trio from another."""
    return sys.modules["trio"].lowlevel.current_trio_token()


def spawn_on_trio(function: Callable[[], object], context: object) -> None:
    """Run an asynchronous function in a system task of trio."""
    sys.modules["trio"].lowlevel.spawn_system_task(function, context=context)


class PerThread(threading.local):
    """The alarms of one transport, by thread.

    The loops of several threads may share a transport, and a timer may only be set and cancelled in
    the thread of its loop.

    Attributes:
        alarms: Those of the loop that asked last in this thread.
    """

    def __init__(self, kind: type[Alarms], now: Callable[[], float]) -> None:
        self._kind, self._now = kind, now
        self.alarms = kind(now)

    def of(self, loop: object) -> Alarms:
        """Return the alarms of a loop of this thread. Reading them takes 0.07 µs: once an attempt.

        Loops may take turns in a thread. Each timer holds the alarms of its loop, so those of the
        others stay, and go with a loop that has ended.
        """
        alarms = self.alarms
        if loop is not alarms.loop:
            alarms = self.alarms = self._kind(self._now, loop)
        return alarms


class Backstop(PerThread):
    """The attempts of one transport that have a deadline."""

    def __init__(self) -> None:
        super().__init__(Alarms, SystemClock.true_monotonic)

    def after(self, seconds: float) -> AbstractContextManager[object, bool]:
        """Limit an attempt: after so long the block ends silently, without its last statement."""
        loop = asyncio_loop()
        if loop is None:
            import anyio

            return anyio.CancelScope(deadline=anyio.current_time() + seconds)
        alarms, at = self.of(loop), SystemClock.true_monotonic() + seconds
        if at < alarms.rings_at:
            alarms.prepare(at)
        return Cut(alarms.pending, at, sys.modules["asyncio"].current_task(loop))


class Cut:
    """One attempt that is cancelled at an instant, unless it ends before."""

    __slots__ = ("_cancelling", "_fired", "_pending", "_task", "at")

    def __init__(self, pending: dict[Alarm, None], at: float, task: Any) -> None:
        self.at = at
        self._pending = pending
        self._task = task
        self._cancelling = task.cancelling()
        self._fired = False

    def ring(self) -> None:
        """Cancel the task; ``__exit__`` takes that back."""
        self._fired = True
        self.at = inf  # stays in the dict until __exit__, and must not cancel the task twice
        self._task.cancel()

    def __enter__(self) -> None:
        self._pending[self] = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> bool:
        self._pending.pop(self, None)
        if not self._fired:
            return False
        import asyncio

        # As asyncio.timeout does: a cancellation from outside, at the same time, must propagate.
        is_ours = self._task.uncancel() <= self._cancelling
        return is_ours and kind is asyncio.CancelledError
