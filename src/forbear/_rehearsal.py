"""Rehearsal: what a test makes of calls: no time for waits, fewer attempts, another clock. Floor:
acts.

Made by forbear.testing and by nothing else. Asked once per call, when the call has failed or
something special concerns it; what is answered then holds until the call ends, so no call is left
between two clocks. A transport is never changed: one that was built before a rehearsal plays in it,
one that was built in it is untouched after it.
"""

from __future__ import annotations

import sys
from contextvars import ContextVar
from math import inf
from threading import get_ident
from typing import TYPE_CHECKING

from .sending.clock import SKIPPED, SKIPPING, SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from .core.events import Event
    from .core.policy import RetryPolicy

__all__ = ["ON", "Rehearsal", "Terms", "clock_here", "in_force"]

# The rehearsals that are on, in the order they began. A dict, because taking one out is one step
# for all threads.
ON: dict[Rehearsal, None] = {}
AROUND: ContextVar[Rehearsal | None] = ContextVar("forbear_rehearsal", default=None)


class Rehearsal:
    """Rules for calls, from ``begin`` to ``end``.

    Begun in a task of asyncio or trio, it holds for this task, for those that it starts, and for
    what runs in other threads, of which nobody can say whose work they do. Begun anywhere else, as
    in a fixture, it holds for the whole process.

    Args:
        clock: In place of the system's; transports with a clock of their own keep it.
        random: In place of the system's, for the standard strategy.
        most_attempts: No call sends more often, whatever its policy says.
        listener: Is told the events of all calls.
    """

    __slots__ = ("_outer", "_thread", "clock", "listener", "most_attempts", "random")

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        random: Callable[[], float] | None = None,
        most_attempts: float = inf,
        listener: Callable[[Event], object] | None = None,
    ) -> None:
        self.clock = clock
        self.random = random
        self.most_attempts = most_attempts
        self.listener = listener
        self._outer: Rehearsal | None = None
        self._thread: int | None = None

    def begin(self) -> None:
        self._outer = still_on(AROUND.get())
        self._thread = get_ident() if is_in_task() else None
        AROUND.set(self)
        ON[self] = None

    def end(self) -> None:
        """Also from another task or thread than the one it began in."""
        ON.pop(self, None)
        if AROUND.get() is self:
            AROUND.set(still_on(self._outer))

    def is_around(self) -> bool:
        """Was it begun by this very task or thread, or by who started this task?"""
        found = AROUND.get()
        while found is not None and found is not self:
            found = found._outer
        return found is self

    def covers(self) -> bool:
        """Does it hold for the code that asks?"""
        return self._thread != get_ident() or self.is_around()  # no thread has the ident None


def still_on(rehearsal: Rehearsal | None) -> Rehearsal | None:
    """It, or the next one around it; those between ended in another context or out of turn."""
    while rehearsal is not None and rehearsal not in ON:
        rehearsal = rehearsal._outer
    return rehearsal


def is_in_task() -> bool:
    trio, asyncio = sys.modules.get("trio"), sys.modules.get("asyncio")
    if trio is not None and trio.lowlevel.in_trio_task():
        return True
    try:
        return asyncio is not None and asyncio.current_task() is not None
    except RuntimeError:  # no loop runs here
        return False


class Terms:
    """What all rehearsals that cover a call say together."""

    __slots__ = ("clock", "listeners", "most_attempts", "random")

    def __init__(self, rehearsals: list[Rehearsal]) -> None:
        self.clock: Clock | None = None
        self.random: Callable[[], float] | None = None
        for one in rehearsals:
            if one.clock is not None and (self.clock is None or one.clock is not SKIPPING):
                self.clock = (
                    one.clock
                )  # the innermost that a test reads; on it waits take no time either
            self.random = one.random or self.random
        self.most_attempts = min(one.most_attempts for one in rehearsals)
        self.listeners = tuple(one.listener for one in rehearsals if one.listener is not None)

    def clock_for(self, clock: Clock) -> Clock:
        return self.clock if self.clock is not None and clock is SYSTEM_CLOCK else clock

    def since(self, started_at: float) -> float:
        """On the clock of the rehearsal, the instant at which a call began by the system's."""
        if self.clock is SKIPPING:
            return started_at + SKIPPED.get()
        assert self.clock is not None
        return self.clock.monotonic()  # a test's clock stood still since

    def bounded(self, policy: RetryPolicy) -> RetryPolicy:
        most = self.most_attempts
        return policy if policy.max_attempts <= most else policy.replace(max_attempts=int(most))


def in_force() -> Terms | None:
    """The terms for a call that begins here; None outside of tests."""
    if not ON:
        return None
    covering = [rehearsal for rehearsal in list(ON) if rehearsal.covers()]
    return Terms(covering) if covering else None


def clock_here(clock: Clock) -> Clock:
    """The clock, or what takes its place in a rehearsal."""
    terms = in_force()
    return clock if terms is None else terms.clock_for(clock)
