"""Alarms: what cancels an asynchronous attempt that outlives its deadline.

The library's own timeouts end an attempt in time unless the peer keeps dripping bytes. A cancel
scope or timer for each attempt costs up to 8 µs, so on asyncio one timer per transport checks all
attempts under way. On trio a cancel scope is the only way. Loaded with the first asynchronous
transport.
"""

from __future__ import annotations

import sys
import threading
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from .clock import SystemClock
from .tasks import asyncio_loop

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from types import TracebackType

    class Alarm(Protocol):
        at: float

        def ring(self) -> None: ...


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
