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

from dataclasses import KW_ONLY, dataclass
from math import inf
from typing import Generic, TypeVar

from ..core.checks import check_bool, check_duration, shown, suggesting
from ..core.headers.fields import FOREVER, Names, collect, is_digits
from ..core.outcome import Reason
from ..engine.blocks import Block
from ..engine.clock import SYSTEM_CLOCK, Clock
from ..engine.context import CallContext, converted
from ..engine.outer import retries_above

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..core.call import Call
    from ..core.headers.fields import Line


# Seconds within which most origins respond, unless the policy's own limits are shorter.
USUAL_RESPONSE_TIME = 1.0
# Envoy's header for the milliseconds in which the sender expects the response.
EXPECTED = "x-envoy-expected-rq-timeout-ms"


@dataclass(slots=True)
class Incoming:
    """The request that is being answered: what it sets for calls made for it, what came of them.

    All contexts that descend from the request's share this object, on any thread, so each attribute
    is only assigned: no value depends on one read before, and there is no lock.

    Attributes:
        retries: How often it was sent before. Unless 0, the calls made for it are not retried,
            because its sender retries it as a whole. 0 once its response is sent.
        deadline_at: Until when its sender waits, on ``clock``; infinite once its response is sent.
        has_own_deadline: That is the service's own, not its sender's.
        announces_deadline: Calls made for it send the time that is left in a header.
        gave_up: A call made for it gave up in a way that should stop the retries of its sender.
    """

    retries: int
    deadline_at: float
    clock: Clock
    announces_deadline: bool
    has_own_deadline: bool = False
    gave_up: bool = False

    def lines(self, left: float) -> list[tuple[str, str]]:
        """Return the header lines of an attempt for which so many seconds are left."""
        if not self.announces_deadline:
            return []
        return [(EXPECTED, str(max(1, int(left * 1000))))]  # 0 would mean no limit

    def deadline_on(self, clock: Clock, now: float) -> float:
        """The deadline as an instant of another clock."""
        return converted(self.deadline_at, self.clock, clock, now)

    def cuts(self, call: Call, clock: Clock) -> bool:
        """Did it leave the attempt less time than responses take?

        Then the timeout says nothing about the origin, and must not open its breaker: any client
        can send a deadline of 40 ms.
        """
        policy, now = call.policy, clock.monotonic()
        if self.has_own_deadline or self.deadline_on(clock, now) > call.deadline_at:
            return False  # our own was earlier
        usual = USUAL_RESPONSE_TIME
        own = policy.attempt_timeout or usual, policy.total_timeout or usual
        return now - call.sent_at < min(*own, usual)

    def note_end(self, attempts: int, reason: Reason) -> None:
        """A call made for it has ended without success, after so many attempts.

        The loops above us should not retry after it if we have retried ourselves, or must not for
        the sake of the server. Not after a single attempt that only we may not retry: a key of the
        caller's can make their request safe.
        """
        if attempts > 1 or reason in FOR_THE_SERVER:
            self.gave_up = True

    def end(self) -> None:
        """Limit calls no more: its response is sent, and tasks that it started may outlive it."""
        self.retries = 0
        self.deadline_at = inf


class Answering(Block):
    """Around the work for one incoming request; the middlewares of asgi.py and wsgi.py enter it."""

    def __init__(self, incoming: Incoming) -> None:
        self._incoming = incoming

    def inside(self, outer: CallContext) -> CallContext:
        incoming, around = self._incoming, outer.sender
        if around is not None:  # one of our services called another one in the same context
            clock = incoming.clock
            ends_at = around.deadline_on(clock, clock.monotonic())
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


@dataclass(eq=False)
class Middleware(Generic[App]):
    """The part of both RetryContextMiddleware: reads requests, says which responses are marked."""

    app: App
    _: KW_ONLY
    deadline: float | None = None
    margin: float = MARGIN
    announce_deadline: bool = False
    stop_outer_retries: bool = True
    clock: Clock = SYSTEM_CLOCK

    def __post_init__(self) -> None:
        if not callable(self.app):
            app = shown(self.app)
            raise TypeError(f"RetryContextMiddleware goes around an application, got {app}")
        check_duration("deadline", self.deadline, none="no deadline of its own")
        check_duration("margin", self.margin)
        check_bool("announce_deadline", self.announce_deadline)
        check_bool("stop_outer_retries", self.stop_outer_retries)

    def incoming(self, lines: list[tuple[bytes, bytes]] | list[tuple[str, str]]) -> Incoming:
        """Read the retry count and the deadline in the headers of a request."""
        left, own = seconds_for(lines), inf if self.deadline is None else self.deadline
        left -= min(self.margin, left / 2)
        ends_at, retries = self.clock.monotonic() + min(left, own), retries_above(lines)
        return Incoming(retries, ends_at, self.clock, self.announce_deadline, own <= left)

    def marked(
        self, incoming: Incoming, status: int, lines: list[tuple[T, T]], name: T, value: T
    ) -> list[tuple[T, T]]:
        """Return the header lines of a response, marked if it failed because a call gave up.

        Not if it has a mark of its own.
        """
        is_failed = status >= 500 or status in REPEATED
        if not (is_failed and incoming.gave_up and self.stop_outer_retries):
            return lines
        return lines if any(one.lower() == name for one, _ in lines) else [*lines, (name, value)]


Middleware.__init__ = suggesting(Middleware.__init__)  # type: ignore[method-assign]


def seconds_for(lines: Iterable[Line]) -> float:
    """Return the seconds that a request's sender waits, the least that it names; else infinity."""
    found = collect(lines, _TIMED)
    return min((TIMEOUTS[name](value) for name in found for value in found[name]), default=inf)


def _grpc_timeout(value: str) -> float:
    unit = UNITS.get(value[-1:])
    return inf if unit is None else _positive(value[:-1], 8, unit)


def _positive(digits: str, most: int, unit: float) -> float:
    seconds = int(digits) * unit if len(digits) <= most and is_digits(digits) else 0.0
    return seconds if 0 < seconds < FOREVER else inf  # of a longer one a socket makes an error


# header -> the seconds that a value of it names
TIMEOUTS = {EXPECTED: lambda value: _positive(value, 15, 1e-3), "grpc-timeout": _grpc_timeout}
UNITS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_TIMED = Names(TIMEOUTS)


FOR_THE_SERVER = frozenset(
    {Reason.SERVER_SAID_NO, Reason.RETRY_AFTER_TOO_LONG}
    | {Reason.CIRCUIT_OPEN, Reason.BUDGET_EXHAUSTED}
)
