"""Incoming: what a request to this program says of itself, and what its answer says to those above.
Floor: acts.

The part of RetryContextMiddleware that ASGI and WSGI share. What it reads can be written by anybody
who sends a request; all it can do is to make the calls for that one request fewer and shorter.
"""

from __future__ import annotations

from ..core.checks import a_duration, a_switch, shown
from ..core.headers.nesting import retries_above
from ..core.headers.timeouts import seconds_for, shrunk
from .clock import SYSTEM_CLOCK
from .context import Incoming

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .clock import Clock

__all__ = ["MARGIN", "STOP", "RetryContext"]

# Seconds kept for the way back: two round trips between data centres of a region and a handler's
# rendering.
MARGIN = 0.05
STOP = "x-should-retry"
# What somebody above might send again; a 404 or 401 ends every loop by itself.
REPEATED = frozenset({408, 409, 425, 429})


class RetryContext:
    """How one application reads its requests and marks its answers."""

    def __init__(
        self,
        app: object,
        margin: float,
        announce_deadline: bool,
        stop_outer_retries: bool,
        clock: Clock | None,
    ) -> None:
        if not callable(app):
            raise TypeError(f"RetryContextMiddleware goes around an application, got {shown(app)}")
        a_duration("margin", margin)
        a_switch("announce_deadline", announce_deadline)
        a_switch("stop_outer_retries", stop_outer_retries)
        self._margin = margin
        self._announce_deadline = announce_deadline
        self._stop_outer_retries = stop_outer_retries
        self._clock: Clock = SYSTEM_CLOCK if clock is None else clock

    def _read(self, lines: list[tuple[bytes, bytes]] | list[tuple[str, str]]) -> Incoming:
        ends_at = self._clock.monotonic() + shrunk(seconds_for(lines), self._margin)
        return Incoming(retries_above(lines), ends_at, self._clock, self._announce_deadline)

    def _is_marked(self, incoming: Incoming, status: int) -> bool:
        """Is this the failed answer to a request for which a call was given up on?"""
        return (
            self._stop_outer_retries and incoming.gave_up and (status >= 500 or status in REPEATED)
        )
