"""Alarms: one timer for all calls of an event loop that may need one, since few of them ring."""

from __future__ import annotations

import threading
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

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
