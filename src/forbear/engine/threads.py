"""Threads: how a synchronous call waits."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from ..limits import Locked
from .clock import SLICE, SYSTEM_CLOCK, Waiter

if TYPE_CHECKING:
    from .clock import Clock, Queued


class Threads(Waiter, Locked):
    """Waits of threads. Its coroutines never suspend."""

    async def _wait(self, seconds: float, since: float, queued: Queued | None) -> None:
        ends_at = SYSTEM_CLOCK.monotonic() + seconds
        held = threading.Lock()  # of this wait: half the CPU time of an Event
        held.acquire()
        try:
            self._add(held, None, since, queued)
            # In a loop also because a wait may end one tick of the clock too early.
            while seconds > 0 and not held.acquire(timeout=min(seconds, SLICE)):
                seconds = ends_at - SYSTEM_CLOCK.monotonic()
        finally:
            self._asleep.pop(held, None)

    def _wake(self, asleep: threading.Lock, place: object) -> None:
        with suppress(RuntimeError):  # something else has woken the thread too
            asleep.release()

    async def _pass(self, clock: Clock, seconds: float) -> None:
        clock.sleep(seconds)
