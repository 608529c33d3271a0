"""Circuit breaker: sends nothing to an origin that keeps failing, and probes whether it is back.

One circuit per origin; only origins that failed are kept.

    state      trigger            next       caused by
    closed     TOO_MANY_FAILURES  open       an attempt that was sent since the circuit closed
    open       TIME_IS_UP         half-open  the first call that asks to send after ``until``
    half-open  PROBE_FAILED       open       the holder of the permit; open for twice as long
    half-open  PROBE_SUCCEEDED    closed     the holder of the permit

TRANSITIONS is this table, and nothing else sets a state. An attempt sent before the last transition
says how the origin was, so it causes none, and one without a permit should not have been sent.
Each transition voids the permit that is out, because it says nothing of the new state.

The circuit has no lock, because the breaker calls it inside its own. Instants are monotonic.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from itertools import count
from math import inf
from typing import NamedTuple

from ..core.call import CUT_BY_SENDER, Limit
from ..core.checks import (
    check_choice,
    check_duration,
    check_number,
    check_positive_int,
    rebuilt,
    shown,
    suggesting,
)
from ..core.feature_checks import check_is
from ..core.outcome import ORIGIN_FAILURE_KINDS, FailureKind, GiveUp, Reason
from ..errors import RetryRefused
from ..limits import Locked
from ..limits.scopes import delayed_so_far, note_delay

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from ..core.call import Call
    from ..core.outcome import Failure, Refusal
    from ..telemetry.rows import Row

SLICES = 10  # of the window, which slides by one at a time
LONGEST_HINT = 3600.0  # seconds; a server that names a year is not off until the process ends
# Seconds that a refusal names while the permit is out: most responses take less.
PROBE_ESTIMATE = 1.0
PROBE_TIMEOUT = 60.0  # seconds after which another probe replaces one that has not ended
GROWTH = 2.0  # of the time open after a probe has failed
JITTER = 0.2  # of the time open, to both sides
WARNING, INFO = 30, 20  # of logging, which is not needed to decide


class CircuitState(StrEnum):
    """The state of one origin; the value is the stable string of events and metrics."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Trigger(Enum):
    TOO_MANY_FAILURES = "too many failures"
    TIME_IS_UP = "time is up"
    PROBE_FAILED = "probe failed"
    PROBE_SUCCEEDED = "probe succeeded"


CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN
TRANSITIONS = {
    (CLOSED, Trigger.TOO_MANY_FAILURES): OPEN,
    (OPEN, Trigger.TIME_IS_UP): HALF_OPEN,
    (HALF_OPEN, Trigger.PROBE_FAILED): OPEN,
    (HALF_OPEN, Trigger.PROBE_SUCCEEDED): CLOSED,
}


class Transition(NamedTuple):
    """One edge of the table, for the event about it."""

    origin: str
    from_state: CircuitState
    to_state: CircuitState
    failures: int  # in a row, when it opened from closed; 0 otherwise
    failure_rate: float | None  # of the calls in the window, when that opened it
    open_for: float | None  # seconds until the first probe, when it opened


class Admission(NamedTuple):
    """Whether an attempt may be sent."""

    permit: int  # to be given back with ``record`` or ``release``; 0: none is needed
    refused_for: float  # seconds; 0: send
    edge: Transition | None


ADMITTED = Admission(0, 0.0, None)


class Circuit:
    """One origin. The methods are given the numbers of its breaker as ``limits``.

    Attributes:
        since: Instant of the last transition.
        until: While open: when probes may be sent.
        probe: The permit that is out, 0 if none is.
        failures: In a row since the last success, while closed.
    """

    __slots__ = (
        "_asked_until", "_calls", "_failed", "_probe_until", "_slices",
        "failures", "origin", "probe", "since", "state", "until",
    )  # fmt: skip

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.state = CLOSED
        self.since = self.until = -inf
        self.failures = 0
        self.probe = 0
        self._probe_until = -inf  # when the permit expires
        self._asked_until = -inf  # by hints of the failures in a row
        self._slices: list[list[int]] = []  # number in time, calls, failed; empty: no window
        self._calls = self._failed = 0  # their sums

    @property
    def is_healthy(self) -> bool:
        """Closed, and nothing to count: successes need not be recorded."""
        return self.state is CLOSED and not self.failures and not self._slices

    def refused_for(self, now: float) -> float:
        """Seconds until a call may be sent, 0 if now; changes nothing."""
        if self.state is OPEN:
            return max(0.0, self.until - now)
        if self.probe:
            return max(0.0, min(PROBE_ESTIMATE, self._probe_until - now))
        return 0.0

    def admit(self, permit: int, now: float) -> Admission:
        """Let a call send, with this permit if one is needed, or refuse it."""
        edge = None
        if self.state is OPEN and now >= self.until:
            edge = self._move(Trigger.TIME_IS_UP, now)
        if self.state is CLOSED:
            return ADMITTED
        if refused_for := self.refused_for(now):
            return Admission(0, refused_for, edge)
        self.probe, self._probe_until = permit, now + PROBE_TIMEOUT
        return Admission(permit, 0.0, edge)

    def succeed(
        self, limits: CircuitBreaker, permit: int, sent_at: float, now: float
    ) -> Transition | None:
        """The origin responded as it should."""
        if self.state is CLOSED:
            if sent_at >= self.since:
                self.failures = 0
                self._asked_until = -inf
                if limits.failure_rate is not None:
                    self._count(limits, now, failed=0)
        elif self._is_probe(permit):
            self._asked_until = -inf
            return self._move(Trigger.PROBE_SUCCEEDED, now)
        return None

    def fail(
        self,
        limits: CircuitBreaker,
        permit: int,
        sent_at: float,
        hint: float | None,
        now: float,
        draw: float,
    ) -> Transition | None:
        """The attempt failed; ``hint`` is for how long the origin asked for a pause.

        ``draw``, from 0 to 1, makes the time open random, so that a fleet does not probe in step.
        """
        counts = sent_at >= self.since if self.state is CLOSED else self._is_probe(permit)
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

    def _is_probe(self, permit: int) -> bool:
        return permit != 0 and permit == self.probe

    def _open(
        self,
        trigger: Trigger,
        limits: CircuitBreaker,
        failures: int,
        rate: float | None,
        now: float,
        draw: float,
    ) -> Transition:
        open_for = limits.open_for * (GROWTH if trigger is Trigger.PROBE_FAILED else 1)
        jitter = 1 - JITTER + 2 * JITTER * draw
        self.until = max(now + open_for * jitter, self._asked_until)
        edge = self._move(trigger, now)
        return edge._replace(failures=failures, failure_rate=rate, open_for=self.until - now)

    def _move(self, trigger: Trigger, now: float) -> Transition:
        before = self.state
        self.state = TRANSITIONS[before, trigger]
        self.since = now
        self.failures = self._calls = self._failed = self.probe = 0
        self._slices = []
        return Transition(self.origin, before, self.state, 0, None, None)

    def _count(self, limits: CircuitBreaker, now: float, failed: int) -> None:
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


MOST_ORIGINS = 1024  # least recently used first out; a forgotten origin is closed again
# Seconds after which failures are forgotten, for an open circuit from when a probe may be sent: an
# origin that is not called any more must not slow down the calls to all others.
FADE = 600.0


class CircuitBreaker(Locked):
    """Refuses calls to an origin that keeps failing. One object may serve many transports.

    Thread-safe. Failures are responses of 5xx (and what ``retry_if`` flags), failed connections,
    resets and timeouts, also those that a deadline cut short. Any other response is a success. A
    429 and what else says "too much", failed certificates, errors of this side and cancelled
    attempts count as neither; nor does an attempt that the deadline of an incoming request
    (``RetryContextMiddleware``) cut short before it had a second, or ``attempt_timeout`` or
    ``total_timeout`` if one of them is shorter.

    While open, every call is refused at once with the library's ``CircuitOpenError``; its
    ``retry_after`` says for how long. Then the circuit is half-open: one call is sent. If
    it succeeds, the circuit closes. If it fails, the circuit opens again, for twice as long.

    The defaults were found by simulation: a circuit that is open for longer than a second costs
    more calls than it spares (docs/guides/breaker.md).

    Args:
        consecutive_failures: Failures in a row, with no success in between, that open the circuit
            too; at least 1. None: only the rate counts.
        failure_rate: Share of calls that opens it, above 0 and at most 1, in a window that begins
            with a failure. None: only failures in a row count.
        window: Seconds that the rate looks back.
        minimum_calls: Calls in the window below which the rate says nothing; at least 1.
        open_for: Seconds until the first probe, ±20 %; longer if the origin asked for more, up to
            an hour.
        mode: "enforce", or "observe": keep states and emit transitions, but refuse nothing.

    Raises:
        ValueError: A number is out of its range, or nothing is left that could open the circuit.
        TypeError: A value is of the wrong type.
    """

    @suggesting
    def __init__(
        self,
        consecutive_failures: int | None = None,
        *,
        failure_rate: float | None = 0.5,
        window: float = 5.0,
        minimum_calls: int = 20,
        open_for: float = 0.5,
        mode: Literal["enforce", "observe"] = "enforce",
    ) -> None:
        if consecutive_failures is not None:
            check_positive_int("consecutive_failures", consecutive_failures)
        if failure_rate is not None:
            check_number("failure_rate", failure_rate)
            if not 0 < failure_rate <= 1:
                rate = shown(failure_rate)
                raise ValueError(f"failure_rate must be above 0 and at most 1, got {rate}")
        elif consecutive_failures is None:
            raise ValueError(
                "give consecutive_failures= or failure_rate=: nothing else opens a circuit"
            )
        check_positive_int("minimum_calls", minimum_calls)
        check_duration("window", window, zero=False)
        check_duration("open_for", open_for, zero=False)
        check_choice("mode", mode, ("enforce", "observe"))
        self.consecutive_failures = consecutive_failures
        self.failure_rate = failure_rate
        self.window = window
        self.minimum_calls = minimum_calls
        self.open_for = open_for
        self.mode = mode
        self._fades_after = max(FADE, window)
        self._numbers = count(1)
        self._begin()
        super().__init__()

    def _begin(self) -> None:
        """Begin with all circuits closed: at first, and when a change was interrupted."""
        self.quiet = True  # all circuits are healthy: successes need not be recorded
        self.is_closed = True  # all are closed: no call needs a permit
        self._circuits: dict[str, Circuit] = {}
        # Those that are not closed or have failures to count; read without the lock too.
        self._unhealthy: dict[str, Circuit] = {}
        self._off: set[str] = set()  # those that are open or half-open
        self._fades_at = -inf  # by then the unhealthy are forgotten

    def state(self, origin: str, now: float) -> CircuitState:
        """Return the state; "half_open" also when the next call would be the first probe."""
        circuit = self._unhealthy.get(origin)
        if circuit is None:
            return CLOSED
        return HALF_OPEN if circuit.state is OPEN and now >= circuit.until else circuit.state

    def refused_for(self, origin: str, now: float) -> float:
        """Seconds until a call to this origin may be sent, 0 if it may be now. Takes nothing."""
        if self.is_closed or self.mode == "observe":
            return 0.0
        with self._lock:
            circuit = self._unhealthy.get(origin)
            return 0.0 if circuit is None else circuit.refused_for(now)

    def states(self, now: float) -> dict[str, CircuitState]:
        """Return the states of all origins whose circuit is not closed."""
        with self._lock:
            return {origin: self.state(origin, now) for origin in self._off}

    def admit(self, origin: str, now: float) -> Admission:
        """Ask to send now; a permit that is returned must be given back, else it expires."""
        if self.quiet or (origin not in self._off and now < self._fades_at):
            return ADMITTED  # without the lock, since nothing changes: healthy calls never wait
        with self._lock:
            try:
                if now >= self._fades_at:
                    self._fade(origin)
                circuit = self._circuits.get(origin)
                if circuit is None:
                    return ADMITTED
                self._used(circuit)
                admission = circuit.admit(next(self._numbers), now)
                self._settle(circuit, admission.edge, now)
                return admission._replace(refused_for=0.0) if self.mode == "observe" else admission
            except BaseException:  # interrupted: half of a change is worse than none
                self._begin()
                raise

    def record(
        self,
        origin: str,
        *,
        failed: bool,
        sent_at: float,
        now: float,
        permit: int = 0,
        hint: float | None = None,
        draw: float = 0.5,
    ) -> Transition | None:
        """Note how an attempt ended, and take its permit back.

        ``failed``: with a failure that counts; else it succeeded. ``permit`` is the one of
        ``admit``, ``hint`` the seconds for which the origin asked for a pause, ``draw`` a
        random number from 0 to 1.
        """
        if not failed and (self.quiet or (origin not in self._unhealthy and now < self._fades_at)):
            return None
        with self._lock:
            try:
                if now >= self._fades_at:
                    self._fade(origin)
                circuit = self._circuits.get(origin)
                if failed:
                    circuit = self._used(circuit or Circuit(origin))
                    edge = circuit.fail(self, permit, sent_at, hint, now, draw)
                elif circuit is not None:
                    edge = circuit.succeed(self, permit, sent_at, now)
                else:
                    return None
                self._settle(circuit, edge, now)
            except BaseException:
                self._begin()
                raise
        return edge

    def release(self, origin: str, permit: int) -> None:
        """Take back the permit of an attempt that says nothing of its origin."""
        with self._lock:
            circuit = self._circuits.get(origin)
            if circuit is not None and circuit.probe == permit:
                circuit.probe = 0

    def _used(self, circuit: Circuit) -> Circuit:
        """Keep the circuit as the one used most recently. With the lock held."""
        circuits, origin = self._circuits, circuit.origin
        circuits.pop(origin, None)
        circuits[origin] = circuit
        if len(circuits) > MOST_ORIGINS:
            oldest = next(iter(circuits))
            del circuits[oldest]
            self._unhealthy.pop(oldest, None)
            self._off.discard(oldest)
            self.is_closed = not self._off
        return circuit

    def _settle(self, circuit: Circuit, edge: Transition | None, now: float) -> None:
        """Note the state of a circuit that has changed. With the lock held."""
        origin = circuit.origin
        if circuit.is_healthy:
            self._unhealthy.pop(origin, None)
        else:
            self._unhealthy[origin] = circuit
            since = now if circuit.state is CLOSED or circuit.until < now else circuit.until
            if since + self._fades_after > self._fades_at:
                self._fades_at = since + self._fades_after
        self.quiet = not self._unhealthy
        if edge is not None:
            self._off.discard(origin)
            if edge.to_state is not CLOSED:
                self._off.add(origin)
            self.is_closed = not self._off

    def _fade(self, origin: str) -> None:
        """Forget origins that were unhealthy long ago, except ``origin``. With the lock held."""
        kept = self._unhealthy.get(origin)
        for faded in self._unhealthy:
            if faded != origin:
                del self._circuits[faded]
        self._unhealthy = {} if kept is None else {origin: kept}
        self.quiet = kept is None
        self._off &= self._unhealthy.keys()
        self.is_closed = not self._off

    def after_fork(self) -> None:
        super().after_fork()
        for circuit in self._circuits.values():
            circuit.probe = 0  # it is in flight in the parent

    def __repr__(self) -> str:
        with self._lock:
            states = [circuit.state for circuit in self._unhealthy.values()]
        counts = [(states.count(OPEN), "open"), (states.count(HALF_OPEN), "half-open")]
        text = ", ".join(f"{number} {name}" for number, name in counts if number) or "closed"
        return f"<CircuitBreaker {text}{', observing' if self.mode == 'observe' else ''}>"

    def __reduce__(self) -> tuple[object, ...]:
        # A copy in another process starts closed, because it has seen none of these failures.
        return rebuilt, (CircuitBreaker, {name: getattr(self, name) for name in OPTIONS})


OPTIONS = (
    "consecutive_failures", "failure_rate", "window", "minimum_calls", "open_for", "mode",
)  # fmt: skip


def is_origin_failure(failure: Failure | None) -> bool | None:
    """Does the origin fail (True) or respond as it should (False)? None: this says nothing."""
    if failure is None:
        return False
    if failure.kind is not FailureKind.STATUS:
        return (
            True if failure.kind in ORIGIN_FAILURE_KINDS and not failure.stale_connection else None
        )
    status = failure.status or 0
    if status >= 500 or status < 400:  # below 400: ``retry_if`` calls it a failure
        return True
    return None if failure.is_throttle else False


def check(value: object) -> CircuitBreaker:
    """Check the option ``breaker``."""
    return check_is(
        "breaker", value, CircuitBreaker, "a CircuitBreaker, or None for none", "CircuitBreaker()"
    )


class BreakerLimit(Limit):
    """Lets a breaker admit and observe the attempts of one transport."""

    def __init__(self, breaker: CircuitBreaker) -> None:
        self.shared = self.breaker = breaker

    def begin(self, call: Call, wait: float, now: float) -> float:
        """Take the first attempt's permit, unless it has to wait."""
        if not (wait or self.breaker.quiet or call.is_under_way):
            self._take_permit(call, now)
        return wait

    def admit(self, call: Call, now: float) -> float:
        """Take a permit. If the circuit has opened meanwhile, choose another origin."""
        if self.breaker.is_closed or call.notes.get(self):
            return 0.0
        try:
            self._take_permit(call, now)
        except RetryRefused:
            if not call.limits.can_fail_over(call):
                raise
            delay = call.limits.fail_over(call, now)
            if delayed_so_far(call) + delay > call.policy.max_retry_after:
                raise RetryRefused(Reason.CIRCUIT_OPEN, send=False, retry_after=delay) from None
            note_delay(call, delay)
            if delay:
                return delay
            self._take_permit(call, now)
        return 0.0

    def observe(self, call: Call, failure: Failure | None, now: float) -> None:
        """Pass on whether the origin works, and return the permit."""
        permit, origin = call.notes.get(self, 0), call.sent_to
        failed = None if CUT_BY_SENDER in call.notes else is_origin_failure(failure)
        if failed and call.rest is not None and call.rest.has_progress and call.rest.has_ended:
            failed = None  # a server may end a feed after each of its events
        hint = None if failure is None else failure.hint.delay
        if failed is not None:
            edge = self.breaker.record(
                origin, failed=failed, sent_at=call.sent_at, now=now, permit=permit, hint=hint,
                draw=call.random() if failed else 0.5,
            )  # fmt: skip
            self._emit(call, edge)
        elif permit:
            self.breaker.release(origin, permit)
        call.notes.pop(self, None)

    def take(self, call: Call, failure: Failure, delay: float, now: float, until: float) -> Refusal:
        """Refuse a retry for which the circuit would still be open."""
        if self.breaker.is_closed or call.limits.can_fail_over(call):
            return None
        refused_for = self.breaker.refused_for(call.origin, now)
        return GiveUp(Reason.CIRCUIT_OPEN, refused_for) if refused_for > delay else None

    def closed(self, call: Call, origin: str, now: float) -> float:
        """Seconds for which the circuit of an origin is open."""
        return self.breaker.refused_for(origin, now)

    def wants_probe(self, call: Call, now: float) -> bool:
        """Is the circuit half-open, so that one call has to find out whether it may close?"""
        return self.breaker.mode == "enforce" and self.breaker.state(call.origin, now) is HALF_OPEN

    def refuse_extra(self, call: Call, now: float) -> str | None:
        return None if self.breaker.state(call.origin, now) is CLOSED else "circuit-open"

    def leave(self, call: Call, now: float) -> None:
        permit = call.notes.get(self)
        if permit:
            self.breaker.release(call.origin, permit)
            del call.notes[self]

    def _take_permit(self, call: Call, now: float) -> None:
        # In one statement: an interruption between two would lose the permit until it expires.
        call.notes[self] = (admission := self.breaker.admit(call.origin, now)).permit
        self._emit(call, admission.edge)
        if admission.refused_for:
            raise RetryRefused(Reason.CIRCUIT_OPEN, send=False, retry_after=admission.refused_for)
        if call.awaits_hook:
            self.leave(call, now)

    def circuit_states(self, now: float) -> dict[str, CircuitState]:
        """Return the states of all origins whose circuit is not closed, for metrics."""
        return self.breaker.states(now)

    def _emit(self, call: Call, edge: Transition | None) -> None:
        if edge is not None and self.events is not None:
            self.events.emit("circuit_transition", call, **edge._asdict())


def limits(breaker: CircuitBreaker, random: Callable[[], float]) -> list[Limit]:
    return [BreakerLimit(breaker)]


class CircuitTransition(NamedTuple):
    """A circuit changed its state; emitted by the client whose call caused that."""

    client: str
    origin: str
    from_state: str  # "closed", "open" or "half_open"
    to_state: str
    failures: int  # in a row, when they opened it; else 0
    failure_rate: float | None  # in the window, when that opened it
    open_for: float | None  # seconds until the first probe, when it opened
    name: str = "circuit_transition"


def rows() -> list[Row]:
    """The row of its event."""
    from ..core.record import in_seconds
    from ..telemetry.rows import Row

    def sentence(event: CircuitTransition) -> str:
        text = f"circuit {event.from_state} to {event.to_state}"
        if event.open_for is not None:
            text += f" for {in_seconds(event.open_for)}"
        if event.failure_rate is not None:
            return f"{text}, {event.failure_rate:.0%} of the calls in the window failed"
        return f"{text}, {event.failures} failures in a row" if event.failures else text

    def level(event: CircuitTransition, call: Call) -> int:
        return WARNING if event.to_state == OPEN else INFO

    return [Row(CircuitTransition, WARNING, sentence, level_of=level)]
