"""Backstop: cancels asynchronous attempts that outlive their deadline, from outside.

The library's own timeouts end an attempt in time unless the peer keeps dripping bytes. A cancel
scope or timer for each attempt costs up to 8 µs, so on asyncio one timer per transport checks all
attempts under way. On trio a cancel scope is the only way.
"""

from __future__ import annotations

import sys
import threading
from math import inf
from typing import TYPE_CHECKING, Any

from .clock import SystemClock, asyncio_loop

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from types import ModuleType, TracebackType
    from typing import Protocol

    class Alarm(Protocol):
        at: float

        def ring(self) -> None: ...


BACKSTOP = 0.03  # seconds behind the deadline at which an asynchronous attempt or body is cut


class Alarms(threading.local):
    """The alarms of one transport, each due at an instant, on one asyncio loop at a time.

    Each thread has its own, because the loops of several threads may share a transport, and a timer
    may only be set and cancelled in the thread of its loop.

    An alarm has ``at`` and ``ring``. The code that puts one into ``alarms`` also removes it.

    Attributes:
        loop: The event loop of the timer.
        rings_at: When the timer checks the alarms next.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._timer: Any = None
        self.loop: Any = None
        self.rings_at = inf
        self.alarms: dict[Alarm, None] = {}

    def prepare(self, loop: Any, at: float) -> None:
        """Set the timer early enough for an alarm that is put into ``alarms`` now."""
        # Alarms of another loop are dropped: that loop has ended, so cancelling one of its tasks
        # would raise RuntimeError in this one.
        if loop is not self.loop:
            self.loop, self.alarms = loop, {}
        elif self._timer is not None:
            self._timer.cancel()
        self.rings_at = at
        self._timer = loop.call_later(max(0.0, at - self._now()), self.ring_due)

    def add(self, alarm: Alarm, loop: Any) -> None:
        """Add an alarm, and set the timer for it."""
        if alarm.at < self.rings_at or loop is not self.loop:
            self.prepare(loop, alarm.at)
        self.alarms[alarm] = None

    def ring_due(self) -> None:
        """Ring the alarms that are due, and set the timer for the next one."""
        self.rings_at = inf
        now = self._now()
        # A list first, since ringing may remove alarms while the dict is iterated.
        for alarm in [alarm for alarm in self.alarms if alarm.at <= now]:
            alarm.ring()
        at = min((alarm.at for alarm in self.alarms), default=inf)
        if at < inf:
            self.prepare(self.loop, at)


class TrioAlarms(Alarms):
    """The same on trio, where a system task sleeps in place of a timer."""

    def prepare(self, loop: object, at: float) -> None:
        trio = sys.modules["trio"]
        if loop is not self.loop:
            self.loop, self.alarms, self._timer = loop, {}, None
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


class Backstop(Alarms):
    """The attempts of one transport that have a deadline."""

    def __init__(self) -> None:
        super().__init__(SystemClock.true_monotonic)

    def after(self, seconds: float) -> AbstractContextManager[object, bool]:
        """Limit an attempt: after so long the block ends silently, without its last statement."""
        loop = asyncio_loop()
        if loop is None:
            import anyio

            return anyio.CancelScope(deadline=anyio.current_time() + seconds)
        at = self._now() + seconds
        if at < self.rings_at or loop is not self.loop:
            self.prepare(loop, at)
        return Cut(self.alarms, at)


class Cut:
    """One attempt that is cancelled at an instant, unless it ends before."""

    __slots__ = ("_alarms", "_cancelling", "_fired", "_task", "at")

    def __init__(self, alarms: dict[Alarm, None], at: float) -> None:
        import asyncio

        task = asyncio.current_task()
        assert task is not None
        self.at = at
        self._alarms = alarms
        self._task = task
        self._cancelling = task.cancelling()
        self._fired = False

    def ring(self) -> None:
        """Cancel the task; ``__exit__`` takes that back."""
        self._fired = True
        self.at = inf  # stays in the dict until __exit__, and must not cancel the task twice
        self._task.cancel()

    def __enter__(self) -> None:
        self._alarms[self] = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> bool:
        self._alarms.pop(self, None)
        if not self._fired:
            return False
        import asyncio

        # As asyncio.timeout does: a cancellation from outside, at the same time, must propagate.
        is_ours = self._task.uncancel() <= self._cancelling
        return is_ours and kind is asyncio.CancelledError
