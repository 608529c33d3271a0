"""Clock: the only place that reads time and sleeps. Floor: acts.

A clock has ``monotonic()``, ``time()``, ``sleep(seconds)`` and ``async asleep(seconds)``; tests pass
``forbear.testing.FakeClock``. Functions of ``time`` are looked up when they are called, so that
gevent's replacements take effect.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import threading

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

    __slots__ = ("_clock", "_event", "_waiting", "closed")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._event: threading.Event | None = None
        self._waiting: set[Any] = set()  # futures of asyncio, events of anyio
        self.closed = False

    def sleep(self, seconds: float) -> None:
        if self._clock is not SYSTEM_CLOCK:
            self._clock.sleep(seconds)
            return
        event = self._event
        if event is None:
            import threading

            event = self._event = threading.Event()
            if self.closed:
                return
        event.wait(seconds)

    async def asleep(self, seconds: float) -> None:
        if self._clock is not SYSTEM_CLOCK:
            await self._clock.asleep(seconds)
            return
        loop = asyncio_loop()
        if loop is None:
            import anyio

            event = anyio.Event()
            self._waiting.add(event)
            try:
                with anyio.move_on_after(seconds):
                    await event.wait()
            finally:
                self._waiting.discard(event)
            return
        # A bare future: a third of the memory and time of an event inside a cancel scope.
        future = loop.create_future()
        timer = loop.call_later(seconds, wake, future)
        self._waiting.add(future)
        try:
            await future
        finally:
            timer.cancel()
            self._waiting.discard(future)

    def close(self) -> None:
        """Wake every sleeper. Idempotent."""
        self.closed = True
        if self._event is not None:
            self._event.set()
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
