"""Circuit: the states of one origin, and who may move it from one to the next. Floor: remembers.

    state      trigger            next       who may cause it
    closed     TOO_MANY_FAILURES  open       an attempt that was sent since the circuit closed
    open       TIME_IS_UP         half-open  the first call that asks to send after ``until``
    half-open  PROBE_FAILED       open       the holder of a permit; open for twice as long
    half-open  PROBES_SUCCEEDED   closed     the holder of the last of ``successes_to_close``

TRANSITIONS is this table, and nothing else sets a state. Nobody else moves it: an attempt sent
before the last transition says how the origin was, and one without a permit should not have been
sent. Each transition begins a generation of permits: those of the one before hold nothing.

No lock: breaker.py calls these methods inside its own. All instants are monotonic seconds.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from math import inf
from typing import NamedTuple, Protocol

__all__ = ["ADMITTED", "TRANSITIONS", "Admission", "Circuit", "CircuitState", "Transition"]

SLICES = 10  # of the window; it moves on by one at a time
LONGEST_HINT = 3600.0  # seconds; a server that names a year is not off until the process ends
# Seconds a caller is told while all permits are out: most answers take less.
PROBE_ESTIMATE = 1.0
GROWTH = 2.0  # of the time open while probes fail, up to max_open_for
JITTER = 0.2  # of the time open, to both sides


class CircuitState(StrEnum):
    """The state of one origin; the value is the stable string of events and metrics."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Trigger(Enum):
    TOO_MANY_FAILURES = "too many failures"
    TIME_IS_UP = "time is up"
    PROBE_FAILED = "probe failed"
    PROBES_SUCCEEDED = "probes succeeded"


CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN
TRANSITIONS = {
    (CLOSED, Trigger.TOO_MANY_FAILURES): OPEN,
    (OPEN, Trigger.TIME_IS_UP): HALF_OPEN,
    (HALF_OPEN, Trigger.PROBE_FAILED): OPEN,
    (HALF_OPEN, Trigger.PROBES_SUCCEEDED): CLOSED,
}


class Transition(NamedTuple):
    """One edge, for whoever tells of it."""

    origin: str
    from_state: CircuitState
    to_state: CircuitState
    failures: int  # in a row, when it opened from closed; 0 otherwise
    failure_rate: float | None  # of the calls in the window, when that opened it
    open_for: float | None  # seconds until the first probe, when it opened


class Admission(NamedTuple):
    """The answer to someone who wants to send."""

    permit: int  # to be given back with ``record`` or ``release``; 0: none is needed
    refused_for: float  # seconds; 0: send
    edge: Transition | None


ADMITTED = Admission(0, 0.0, None)


class Numbers(Protocol):
    """The settings that a circuit reads from its breaker, which explains them."""

    consecutive_failures: int | None
    failure_rate: float | None
    window: float
    minimum_calls: int
    open_for: float
    max_open_for: float
    probes: int
    successes_to_close: int
    probe_timeout: float


class Circuit:
    """One origin. The methods are given the numbers of its breaker as ``limits``.

    Attributes:
        since: Instant of the last transition.
        until: While open: when probes may be sent.
        probes: Permits that are out, and when each one expires.
        failures: In a row since the last success, while closed.
    """

    __slots__ = (
        "_asked_until", "_calls", "_failed", "_open_for", "_slices", "_successes",
        "failures", "origin", "probes", "since", "state", "until",
    )  # fmt: skip

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.state = CLOSED
        self.since = self.until = -inf
        self.failures = 0
        self.probes: dict[int, float] = {}
        self._successes = 0
        self._open_for = 0.0  # seconds it was open for the last time; 0 while that went well
        self._asked_until = -inf  # by hints of the failures in a row
        self._slices: list[list[int]] = []  # number in time, calls, failed; empty: no window
        self._calls = self._failed = 0  # their sums

    @property
    def is_well(self) -> bool:
        """Closed, and nothing to count: successes need not be recorded."""
        return self.state is CLOSED and not self.failures and not self._slices

    def refused_for(self, limits: Numbers, now: float) -> float:
        """Seconds until a call may be sent, 0 if now; changes nothing."""
        if self.state is OPEN:
            return max(0.0, self.until - now)
        if self.state is HALF_OPEN:
            expiries = [until for until in self.probes.values() if until > now]
            if len(expiries) >= limits.probes:
                return min(PROBE_ESTIMATE, min(expiries) - now)
        return 0.0

    def admit(self, limits: Numbers, permit: int, now: float) -> Admission:
        """Let a call send, with this permit if one is needed, or refuse it."""
        edge = None
        if self.state is OPEN and now >= self.until:
            edge = self._move(Trigger.TIME_IS_UP, now)
        if self.state is CLOSED:
            return ADMITTED
        if refused_for := self.refused_for(limits, now):
            return Admission(0, refused_for, edge)
        self.probes = {number: until for number, until in self.probes.items() if until > now}
        self.probes[permit] = now + limits.probe_timeout
        return Admission(permit, 0.0, edge)

    def succeed(
        self, limits: Numbers, permit: int, sent_at: float, now: float
    ) -> Transition | None:
        """The origin answered as it should."""
        if self.state is CLOSED:
            if sent_at >= self.since:
                self.failures = 0
                self._asked_until = -inf
                if limits.failure_rate is not None:
                    self._count(limits, now, failed=0)
        elif self.probes.pop(permit, None) is not None:
            self._successes += 1
            if self._successes >= limits.successes_to_close:
                self._open_for = 0.0
                self._asked_until = -inf
                return self._move(Trigger.PROBES_SUCCEEDED, now)
        return None

    def fail(
        self,
        limits: Numbers,
        permit: int,
        sent_at: float,
        hint: float | None,
        now: float,
        draw: float,
    ) -> Transition | None:
        """The origin did not; ``hint`` is for how long it asked to be left alone.

        ``draw``, from 0 to 1, makes the time open random, so that a fleet does not probe in step.
        """
        if self.state is CLOSED:
            counts = sent_at >= self.since
        else:
            counts = self.probes.pop(permit, None) is not None
        if hint is not None and (counts or self.state is OPEN):
            self._asked_until = max(self._asked_until, now + min(hint, LONGEST_HINT))
            self.until = max(self.until, self._asked_until)
        if not counts:
            return None
        if self.state is HALF_OPEN:
            return self._open(Trigger.PROBE_FAILED, limits, 0, None, now, draw)
        most, rate = limits.consecutive_failures, None
        if most is not None:
            self.failures += 1
        if limits.failure_rate is not None:
            self._count(limits, now, failed=1)
            share = self._failed / self._calls
            if self._calls >= limits.minimum_calls and share >= limits.failure_rate:
                rate = share
        if rate is None and (most is None or self.failures < most):
            return None
        return self._open(Trigger.TOO_MANY_FAILURES, limits, self.failures, rate, now, draw)

    def _open(
        self,
        trigger: Trigger,
        limits: Numbers,
        failures: int,
        rate: float | None,
        now: float,
        draw: float,
    ) -> Transition:
        self._open_for = min(self._open_for * GROWTH or limits.open_for, limits.max_open_for)
        jitter = 1 - JITTER + 2 * JITTER * draw
        self.until = max(now + self._open_for * jitter, self._asked_until)
        edge = self._move(trigger, now)
        return edge._replace(failures=failures, failure_rate=rate, open_for=self.until - now)

    def _move(self, trigger: Trigger, now: float) -> Transition:
        before = self.state
        self.state = TRANSITIONS[before, trigger]
        self.since = now
        self.failures = self._successes = self._calls = self._failed = 0
        self._slices = []
        self.probes = {}
        return Transition(self.origin, before, self.state, 0, None, None)

    def _count(self, limits: Numbers, now: float, failed: int) -> None:
        """Count a call in the window, which is open from a failure until the last one left it."""
        slices = self._slices
        number = int(now * SLICES / limits.window)
        while slices and slices[0][0] <= number - SLICES:
            _, calls, failures = slices.pop(0)
            self._calls -= calls
            self._failed -= failures
        if not (failed or self._failed):
            self._slices = []
            self._calls = 0
            return
        if not slices or slices[-1][0] < number:
            slices.append([number, 0, 0])
        slices[-1][1] += 1
        slices[-1][2] += failed
        self._calls += 1
        self._failed += failed
