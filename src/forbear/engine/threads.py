"""Threads: how a synchronous call waits."""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from ..limits import Locked
from .clock import SLICE, SYSTEM_CLOCK, Waiter

if TYPE_CHECKING:
    from .clock import Queued


class Threads(Waiter, Locked):
    """Waits of threads. Its coroutine never suspends."""

    async def sleep(
        self, seconds: float, *, since: float, after: float, queued: Queued | None = None
    ) -> bool:
        seconds, is_staged = self._left(seconds, after, queued)
        if is_staged:
            if self._closed_at <= since and seconds > 0:
                self._clock.sleep(seconds)
            return self._closed_at <= since
        ends_at = SYSTEM_CLOCK.monotonic() + seconds
        held = threading.Lock()  # of this wait: half the CPU time of an Event
        held.acquire()
        # Checked and added under one lock: a close between the two would release the locks that it
        # knows without this one, and the thread would wait to the end.
        with self._lock:
            if self._closed_at > since:
                return False
            self._asleep[held] = None
        try:
            if queued is not None:
                # Set first, checked second: its giver does it in the other order.
                queued.wake = partial(self._wake, held)
                if queued.is_taken:
                    return True
            # In a loop also because a wait may end one tick of the clock too early.
            while seconds > 0 and not held.acquire(timeout=min(seconds, SLICE)):
                seconds = ends_at - SYSTEM_CLOCK.monotonic()
        finally:
            self._asleep.pop(held, None)
        return self._closed_at <= since

    def _wake(self, asleep: threading.Lock, ending: object = None) -> None:
        with suppress(RuntimeError):  # something else has woken the thread too
            asleep.release()
