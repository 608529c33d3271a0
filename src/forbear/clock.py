"""Clock: the only place that reads time and sleeps. Floor: acts.

A clock has ``monotonic()``, ``time()``, ``sleep(seconds)`` and ``async asleep(seconds)``; tests pass
``forbear.testing.FakeClock``. Functions of ``time`` are looked up when they are called, so that
gevent's replacements take effect.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Protocol

__all__ = ["SYSTEM_CLOCK", "Clock", "Sleeper"]


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
        time.sleep(seconds)

    async def asleep(self, seconds: float) -> None:
        import anyio

        await anyio.sleep(seconds)

    def __repr__(self) -> str:
        return "<SystemClock>"


SYSTEM_CLOCK: Clock = SystemClock()


class Sleeper:
    """Sleeps on a clock until the time is over or ``close`` is called, from any thread.

    A clock that a user injected sleeps by itself and is not woken: it is a test's.
    """

    __slots__ = ("_clock", "_closings", "_event", "_waiting")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._closings = 0
        self._event = threading.Event()
        self._waiting: set[Any] = set()  # futures of asyncio, events of anyio

    def sleep(self, seconds: float) -> bool:
        """Sleep; False if ``close`` was called meanwhile."""
        closings, event = self._closings, self._event
        if self._clock is not SYSTEM_CLOCK:
            self._clock.sleep(seconds)
        else:
            event.wait(seconds)
        return closings == self._closings

    async def asleep(self, seconds: float) -> bool:
        """Sleep; False if ``close`` was called meanwhile."""
        closings = self._closings
        if self._clock is not SYSTEM_CLOCK:
            await self._clock.asleep(seconds)
        elif (loop := asyncio_loop()) is None:
            await self._sleep_on_anyio(seconds)
        else:
            # A bare future: a third of the memory and time of an event inside a cancel scope.
            future = loop.create_future()
            timer = loop.call_later(seconds, wake, future)
            self._waiting.add(future)
            try:
                await future
            finally:
                timer.cancel()
                self._waiting.discard(future)
        return closings == self._closings

    async def _sleep_on_anyio(self, seconds: float) -> None:
        import anyio

        event = anyio.Event()
        self._waiting.add(event)
        try:
            with anyio.move_on_after(seconds):
                await event.wait()
        finally:
            self._waiting.discard(event)

    def close(self) -> None:
        """Wake everyone who sleeps now."""
        self._closings += 1
        event, self._event = self._event, threading.Event()
        event.set()
        for waiting in list(self._waiting):
            if hasattr(waiting, "get_loop"):
                loop = waiting.get_loop()
                if not loop.is_closed():
                    loop.call_soon_threadsafe(wake, waiting)
            else:
                waiting.set()


def wake(future: Any) -> None:
    if not future.done():
        future.set_result(None)


def asyncio_loop() -> Any:
    """The running asyncio loop, None under trio (also where trio is a guest on an asyncio loop)."""
    import sys

    trio = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_run():
        return None
    import asyncio

    return asyncio.get_running_loop()
