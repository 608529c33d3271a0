"""Incoming: what a request to this program says, and what its answer says upwards. Floor: acts.

The part of RetryContextMiddleware that ASGI and WSGI share. What it reads can be written by anybody
who sends a request; all it can do is to make the calls for that one request fewer and shorter.
"""

from __future__ import annotations

from math import inf
from typing import Generic, TypeVar

from ..core.checks import a_duration, a_switch, shown
from ..core.headers.nesting import retries_above, seconds_for, shrunk
from .clock import SYSTEM_CLOCK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .clock import Clock

__all__ = ["STOP", "Incoming", "Middleware", "with_mark"]

App = TypeVar("App")
T = TypeVar("T", bound=str | bytes)
# Seconds kept for the way back: two round trips between data centres of a region and a handler's
# rendering.
MARGIN = 0.05
STOP = "x-should-retry"
# What somebody above might send again; a 404 or 401 ends every loop by itself.
REPEATED = frozenset({408, 409, 425, 429})


class Incoming:
    """The request that is being answered: what it asks of calls made for it, what came of them.

    One object for all contexts that descend from the request's, on any thread: each attribute is
    only ever assigned.

    Attributes:
        retries: How often it was sent before. Unless 0, the calls made for it are sent once only:
            whoever sent it repeats it as a whole. 0 once it is answered.
        deadline_at: Until when its sender waits, on ``clock``; infinite once it is answered.
        announces_deadline: Calls made for it tell their server how much time is left.
        gave_up: A call made for it was given up on in a way that should stop those above too.
    """

    __slots__ = ("announces_deadline", "clock", "deadline_at", "gave_up", "retries")

    def __init__(
        self, retries: int, deadline_at: float, clock: Clock, announces_deadline: bool
    ) -> None:
        self.retries = retries
        self.deadline_at = deadline_at
        self.clock = clock
        self.announces_deadline = announces_deadline
        self.gave_up = False

    def end(self) -> None:
        """Ask nothing more: it is answered, and tasks that it started may run for ever."""
        self.retries = 0
        self.deadline_at = inf


class Middleware(Generic[App]):
    """The part of both RetryContextMiddleware: reads requests, says which answers are marked."""

    def __init__(
        self,
        app: App,
        *,
        margin: float = MARGIN,
        announce_deadline: bool = False,
        stop_outer_retries: bool = True,
        clock: Clock | None = None,
    ) -> None:
        if not callable(app):
            raise TypeError(f"RetryContextMiddleware goes around an application, got {shown(app)}")
        a_duration("margin", margin)
        a_switch("announce_deadline", announce_deadline)
        a_switch("stop_outer_retries", stop_outer_retries)
        self.app: App = app
        self._margin = margin
        self._announce_deadline = announce_deadline
        self._stop_outer_retries = stop_outer_retries
        self._clock: Clock = SYSTEM_CLOCK if clock is None else clock

    def incoming(self, lines: list[tuple[bytes, bytes]] | list[tuple[str, str]]) -> Incoming:
        """Read what a request says of itself."""
        ends_at = self._clock.monotonic() + shrunk(seconds_for(lines), self._margin)
        return Incoming(retries_above(lines), ends_at, self._clock, self._announce_deadline)

    def marks(self, incoming: Incoming, status: int) -> bool:
        """Is this the failed answer to a request for which a call was given up on?"""
        if not self._stop_outer_retries or not incoming.gave_up:
            return False
        return status >= 500 or status in REPEATED


def with_mark(lines: list[tuple[T, T]], name: T, value: T) -> list[tuple[T, T]]:
    """Return the lines of an answer with the mark, unless the answer says something itself."""
    if any(found.lower() == name for found, _ in lines):
        return lines
    return [*lines, (name, value)]
