"""Clock: the only place that reads time and sleeps. Floor: acts.

A clock has ``monotonic()``, ``time()``, ``sleep(seconds)`` and ``async asleep(seconds)``; tests
pass ``forbear.testing.FakeClock``. Functions of ``time`` are looked up when they are called, so
that gevent's replacements take effect.
"""

from __future__ import annotations

import threading
import time
from contextvars import ContextVar
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable

__all__ = ["SKIPPED", "SKIPPING", "SYSTEM_CLOCK", "Clock", "Sleeper"]

LONGEST = threading.TIMEOUT_MAX  # seconds, 292 years; what is asked to wait longer raises


class Clock(Protocol):
    """Time as a transport sees it. All durations are seconds."""

    def monotonic(self) -> float:
        """Return an instant that never goes back."""
        ...

    def time(self) -> float:
        """Return Unix seconds; compared only with dates that a server sends."""
        ...

    def sleep(self, seconds: float) -> None: ...

    async def asleep(self, seconds: float) -> None: ...


class SystemClock:
    """The clock of the operating system."""

    monotonic = staticmethod(time.monotonic)

    def time(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(min(seconds, LONGEST))

    async def asleep(self, seconds: float) -> None:
        import anyio

        await anyio.sleep(seconds)

    def __repr__(self) -> str:
        return "<SystemClock>"


SYSTEM_CLOCK: Clock = SystemClock()


class SkippingClock:
    """The system's clock, plus what the code that asks has skipped: a wait takes no time, and yet
    it is over.

    Each task and thread skips by itself, as each would have waited by itself: ten calls at once
        that wait a second
    each leave all of them one second later.
    """

    def monotonic(self) -> float:
        return SYSTEM_CLOCK.monotonic() + SKIPPED.get()

    def time(self) -> float:
        return (
            SYSTEM_CLOCK.time()
        )  # a server's dates are compared with it, and the server skips nothing

    def sleep(self, seconds: float) -> None:
        SKIPPED.set(SKIPPED.get() + seconds)

    async def asleep(self, seconds: float) -> None:
        import anyio.lowlevel

        self.sleep(seconds)
        await (
            anyio.lowlevel.checkpoint()
        )  # others run, and a cancellation arrives, as in a real sleep

    def __repr__(self) -> str:
        return "<SkippingClock>"


SKIPPING: Clock = SkippingClock()
SKIPPED: ContextVar[float] = ContextVar(
    "forbear_skipped", default=0.0
)  # for tests, see _rehearsal.py


class Sleeper:
    """Sleeps on a clock until the time is over or ``close`` is called, from any thread.

    ``close`` ends the waits of calls that had begun by then, whether they sleep already or not;
    later calls are not concerned. A clock that a user injected sleeps by itself and is not woken:
    it is a test's.
    """

    __slots__ = ("_asleep", "_clock", "_closed_at", "_event", "_naps")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._closed_at = -inf
        self._event = threading.Event()
        self._asleep: set[int] = set()  # threads that sleep
        self._naps: dict[Any, Any] = {}  # what asynchronous callers await -> what ends it

    def sleep(self, seconds: float, *, since: float) -> bool:
        """Sleep; False if ``close`` was called after the instant ``since``, at which the call
        began.
        """
        event = self._event
        if self._closed_at > since:
            return False
        thread = threading.get_ident()
        self._asleep.add(thread)
        try:
            if self._clock is not SYSTEM_CLOCK:
                self._clock.sleep(seconds)
            else:
                event.wait(min(seconds, LONGEST))
        finally:
            self._asleep.discard(thread)
        return self._closed_at <= since

    def waiting(self) -> int:
        """How many sleep now; without asynchronous callers on an injected clock."""
        return len(self._asleep) + len(self._naps)

    def lie_down(self, seconds: float, *, since: float) -> Awaitable[bool]:
        """Begin a sleep of asynchronous code and return what to await; its result is as of
        ``sleep``.

        Not a coroutine function, and on asyncio a bare future: a waiting call holds 250 bytes less
            than
        with one more frame, and a third of the memory and time of a cancel scope.
        """
        if self._clock is SYSTEM_CLOCK and (loop := asyncio_loop()) is not None:
            nap: Awaitable[bool] = loop.create_future()
            self._naps[nap] = loop.call_later(seconds, wake, nap, True)
            if self._closed_at > since:
                wake(nap, False)
            return nap
        return self._sleep_elsewhere(seconds, since)

    def get_up(self, nap: Awaitable[bool]) -> None:
        """End what ``lie_down`` began, also when it was cancelled."""
        timer = self._naps.pop(nap, None)
        if timer is not None:
            timer.cancel()

    async def _sleep_elsewhere(self, seconds: float, since: float) -> bool:
        if self._clock is not SYSTEM_CLOCK:
            if self._closed_at <= since:
                await self._clock.asleep(seconds)
            return self._closed_at <= since
        import sys

        import anyio

        event = anyio.Event()
        self._naps[event] = sys.modules[
            "trio"
        ].lowlevel.current_trio_token()  # close may come from another thread
        try:
            if self._closed_at <= since:
                with anyio.move_on_after(seconds):
                    await event.wait()
        finally:
            del self._naps[event]
        return self._closed_at <= since

    def was_closed(self, *, since: float) -> bool:
        """Was ``close`` called after this instant of the clock?"""
        return self._closed_at > since

    def close(self) -> None:
        """End the waits of all calls that have begun."""
        self._closed_at = self._clock.monotonic()
        event, self._event = self._event, threading.Event()
        event.set()
        for nap, ending in list(self._naps.items()):
            try:
                if hasattr(nap, "get_loop"):
                    nap.get_loop().call_soon_threadsafe(wake, nap, False)
                else:
                    ending.run_sync_soon(nap.set)
            except RuntimeError:  # its event loop is gone, and the call with it
                pass


def wake(nap: Any, slept: bool) -> None:
    if not nap.done():
        nap.set_result(slept)


def asyncio_loop() -> Any:
    """The running asyncio loop, None under trio (also where trio is a guest on an asyncio loop)."""
    import sys

    trio = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_run():
        return None
    import asyncio

    return asyncio.get_running_loop()
