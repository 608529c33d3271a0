"""Incoming: the request that is being answered.

``Middleware`` is the part of RetryContextMiddleware that ASGI and WSGI share: the headers of an
incoming request, and those of its response. Any client can write these headers, so all that they
can do is to make the calls for that one request fewer and shorter.

Two headers say how long the sender waits for the response, counted from when it sent the request,
so that the way here has taken its share already. Envoy's ``x-envoy-expected-rq-timeout-ms`` is "the
time in milliseconds the router expects the request to be completed" (router filter), where 0 means
no timeout; ``grpc-timeout`` is "a positive integer as ASCII string of at most 8 digits" and one
letter for the unit (PROTOCOL-HTTP2).

A value that cannot be read is as if it were absent.
"""

from __future__ import annotations

from math import inf
from typing import Generic, TypeVar

from ..core.checks import check_bool, check_duration, shown, suggesting
from ..core.headers.fields import Names, collect, is_digits
from ..engine.blocks import Block
from ..engine.clock import SYSTEM_CLOCK, Clock
from ..engine.context import EXPECTED, CallContext, Incoming, converted
from ..engine.outer import retries_above

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..core.headers.fields import Line


class Answering(Block):
    """Around the work for one incoming request; the middlewares of asgi.py and wsgi.py enter it."""

    def __init__(self, incoming: Incoming) -> None:
        self._incoming = incoming

    def inside(self, outer: CallContext) -> CallContext:
        incoming, around = self._incoming, outer.incoming
        if around is not None:  # one of our services called another one in the same context
            clock = incoming.clock
            ends_at = converted(around.deadline_at, around.clock, clock, clock.monotonic())
            incoming.retries = max(incoming.retries, around.retries)
            if ends_at < incoming.deadline_at:
                incoming.deadline_at = ends_at
                incoming.has_own_deadline = around.has_own_deadline
        return CallContext(outer.fields, outer.deadline_at, outer.clock, outer.listeners, incoming)


App = TypeVar("App")
T = TypeVar("T", bound=str | bytes)
# Seconds kept for the way back: two round trips between data centres of a region and a handler's
# rendering.
MARGIN = 0.05
STOP = "x-should-retry"
# Statuses that an outer client may retry; a 404 or 401 ends every retry loop by itself.
REPEATED = frozenset({408, 409, 425, 429})


class Middleware(Generic[App]):
    """The part of both RetryContextMiddleware: reads requests, says which responses are marked."""

    @suggesting
    def __init__(
        self,
        app: App,
        *,
        deadline: float | None = None,
        margin: float = MARGIN,
        announce_deadline: bool = False,
        stop_outer_retries: bool = True,
        clock: Clock | None = None,
    ) -> None:
        if not callable(app):
            raise TypeError(f"RetryContextMiddleware goes around an application, got {shown(app)}")
        check_duration("deadline", deadline, none="no deadline of its own")
        check_duration("margin", margin)
        check_bool("announce_deadline", announce_deadline)
        check_bool("stop_outer_retries", stop_outer_retries)
        self.app: App = app
        self._deadline = inf if deadline is None else deadline
        self._margin = margin
        self._announce_deadline = announce_deadline
        self._stop_outer_retries = stop_outer_retries
        self._clock: Clock = SYSTEM_CLOCK if clock is None else clock

    def incoming(self, lines: list[tuple[bytes, bytes]] | list[tuple[str, str]]) -> Incoming:
        """Read the retry count and the deadline in the headers of a request."""
        left, own = shrunk(seconds_for(lines), self._margin), self._deadline
        return Incoming(
            retries_above(lines),
            self._clock.monotonic() + min(left, own),
            self._clock,
            self._announce_deadline,
            has_own_deadline=own <= left,
        )

    def marks(self, incoming: Incoming, status: int) -> bool:
        """Is this the failed response to a request for which a call gave up?"""
        if not self._stop_outer_retries or not incoming.gave_up:
            return False
        return status >= 500 or status in REPEATED


def with_mark(lines: list[tuple[T, T]], name: T, value: T) -> list[tuple[T, T]]:
    """Return the header lines of a response with the mark, unless the response has its own."""
    if any(found.lower() == name for found, _ in lines):
        return lines
    return [*lines, (name, value)]


def seconds_for(lines: Iterable[Line]) -> float:
    """Return the seconds that a request's sender waits, the least that it names; else infinity."""
    found = collect(lines, _TIMED)
    return min((TIMEOUTS[name](value) for name in found for value in found[name]), default=inf)


def shrunk(seconds: float, margin: float) -> float:
    """Return the seconds left when ``margin`` is kept for the way back; never less than half."""
    return seconds - min(margin, seconds / 2)


def _grpc_timeout(value: str) -> float:
    unit = UNITS.get(value[-1:])
    return inf if unit is None else _positive(value[:-1], 8, unit)


def _positive(digits: str, most: int, unit: float) -> float:
    return int(digits) * unit or inf if len(digits) <= most and is_digits(digits) else inf


# header -> the seconds that a value of it names
TIMEOUTS = {EXPECTED: lambda value: _positive(value, 15, 1e-3), "grpc-timeout": _grpc_timeout}
UNITS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_TIMED = Names(TIMEOUTS)
