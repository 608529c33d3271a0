"""Backstop: cuts asynchronous attempts from outside that outlive their deadline. Floor: acts.

The library's own timeouts end an attempt in time, but for a peer that keeps dripping bytes. A
cancel scope or timer for each attempt costs up to 8 µs; on asyncio one timer per transport looks
at all attempts under way. On trio a cancel scope is the only way.
"""

from __future__ import annotations

import sys
from math import inf
from typing import TYPE_CHECKING, Any

from .clock import SystemClock, asyncio_loop

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from types import TracebackType

__all__ = ["BACKSTOP", "Alarms", "Backstop", "TrioAlarms", "current_trio_token", "spawn_on_trio"]

BACKSTOP = 0.03  # seconds behind the deadline at which an asynchronous attempt or body is cut


class Alarms:
    """Whatever of one transport is to ring at an instant, on one asyncio loop at a time.

    An alarm has ``at`` and ``ring``. Whoever puts one into ``alarms`` takes it out.

    Attributes:
        loop: Where the timer is.
        rings_at: When the timer looks at the alarms next.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._timer: Any = None
        self.loop: Any = None
        self.rings_at = inf
        self.alarms: dict[Any, None] = {}

    def prepare(self, loop: Any, at: float) -> None:
        """Let the timer ring in time for an alarm that is put into ``alarms`` now."""
        if loop is not self.loop:
            self.loop, self.alarms = loop, {}
        elif self._timer is not None:
            self._timer.cancel()
        self.rings_at = at
        self._timer = loop.call_later(max(0.0, at - self._now()), self.look)

    def look(self) -> None:
        """Ring what is due."""
        self.rings_at = inf
        now = self._now()
        for alarm in [alarm for alarm in self.alarms if alarm.at <= now]:
            alarm.ring()
        at = min((alarm.at for alarm in self.alarms), default=inf)
        if at < inf:
            self.prepare(self.loop, at)


class TrioAlarms(Alarms):
    """The same on trio, where a system task sleeps in place of a timer."""

    def prepare(self, loop: Any, at: float) -> None:
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

    async def _sleep(self, trio: Any) -> None:
        with self._timer:
            await trio.sleep_forever()
        self._timer = None
        self.look()


def current_trio_token() -> Any:
    """What tells one run of trio from another."""
    return sys.modules["trio"].lowlevel.current_trio_token()


def spawn_on_trio(function: Any, context: Any) -> None:
    """Run an asynchronous function in a system task of trio."""
    sys.modules["trio"].lowlevel.spawn_system_task(function, context=context)


class Backstop(Alarms):
    """The attempts of one transport that have a deadline."""

    def __init__(self) -> None:
        super().__init__(SystemClock.true_monotonic)

    def after(self, seconds: float) -> AbstractContextManager[Any, bool]:
        """Around an attempt: the block ends silently, without its last statement, after so long."""
        loop = asyncio_loop()
        if loop is None:
            import anyio

            return anyio.CancelScope(deadline=anyio.current_time() + seconds)
        at = self._now() + seconds
        if at < self.rings_at or loop is not self.loop:
            self.prepare(loop, at)
        return Cut(self.alarms, at)


class Cut:
    """One attempt that is to be cut, unless it ends before."""

    __slots__ = ("_alarms", "_cancelling", "_fired", "_task", "at")

    def __init__(self, alarms: dict[Any, None], at: float) -> None:
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
        self.at = inf
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

        # As asyncio.timeout does: another cancellation, from outside, goes on.
        is_ours = self._task.uncancel() <= self._cancelling
        return is_ours and kind is asyncio.CancelledError
