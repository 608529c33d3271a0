"""Circuit breaker: sends nothing to an origin that keeps failing, and probes whether it is back.

One circuit per origin; only origins that failed are kept.

    state      becomes    when                                              because of
    closed     open       too many attempts failed                          one sent since it closed
    open       half-open  a call asks to send after ``until``               time
    half-open  open       the probe failed; it is open for twice as long    who holds the permit
    half-open  closed     the probe succeeded                               who holds the permit

An attempt sent before the last transition says how the origin was, so it causes none, and one
without a permit should not have been sent. Each transition voids the permit that is out, because it
says nothing of the new state.

The circuit has no lock, because the breaker calls it inside its own. Instants are monotonic.
"""

from __future__ import annotations

from dataclasses import KW_ONLY
from itertools import count
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from ..core.call import CUT_BY_SENDER, Limit
from ..core.checks import (
    check_choice,
    check_duration,
    check_number,
    check_positive_int,
)
from ..core.feature_checks import begins_anew, check_is
from ..core.outcome import ORIGIN_FAILURE_KINDS, FailureKind, GiveUp, Reason
from ..errors import RetryRefused
from ..limits import Locked

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from ..core.call import Call
    from ..core.outcome import Failure, Refusal

    CircuitState = Literal["closed", "open", "half_open"]

SLICES = 10  # of the window, which slides by one at a time
LONGEST_HINT = 3600.0  # seconds; a server that names a year is not off until the process ends
# Seconds that a refusal names while the permit is out: most responses take less.
PROBE_ESTIMATE = 1.0
PROBE_TIMEOUT = 60.0  # seconds after which another probe replaces one that has not ended
JITTER = 0.2  # of the time open, to both sides
MOST_ORIGINS = 1024  # the oldest first out; a forgotten origin is closed again
# Seconds after which failures are forgotten, for an open circuit from when a probe may be sent: an
# origin that is not called any more must not slow down the calls to all others.
FADE = 600.0
WARNING, INFO = 30, 20  # of logging, which is not needed to decide


class Transition(NamedTuple):
    """The fields of the event about a transition."""

    origin: str
    from_state: CircuitState
    to_state: CircuitState
    failures: int = 0  # in a row, when they opened it
    failure_rate: float | None = None  # of the calls in the window, when that opened it
    open_for: float | None = None  # seconds until the first probe, when it opened


class Admission(NamedTuple):
    """Whether an attempt may be sent."""

    permit: int  # to be given back with ``record`` or ``release``; 0: none is needed
    refused_for: float  # seconds; 0: send
    edge: Transition | None


ADMITTED = Admission(0, 0.0, None)


class Circuit:
    """One origin, under the numbers of its breaker.

    Attributes:
        since: Instant of the last transition.
        until: While open: when probes may be sent; before, what failures have asked for.
        probe: The permit that is out, 0 if none is.
        failures: In a row since the last success, while closed.
        slices: The window: number in time, calls, failed. Open from a failure until the last one
            has left it.
    """

    def __init__(self, breaker: CircuitBreaker, origin: str) -> None:
        self.breaker, self.origin = breaker, origin
        self.state: CircuitState = "closed"
        self.since = self.until = -inf
        self.failures = 0
        self.probe = 0
        self._probe_until = -inf  # when the permit expires
        self.slices: list[list[int]] = []

    def state_at(self, now: float) -> CircuitState:
        """Return the state; half-open also when the next call would be the first probe."""
        return "half_open" if self.state == "open" and now >= self.until else self.state

    def refused_for(self, now: float) -> float:
        """Seconds until a call may be sent, 0 if now; changes nothing."""
        if self.state == "open":
            return max(0.0, self.until - now)
        return max(0.0, min(PROBE_ESTIMATE, self._probe_until - now)) if self.probe else 0.0

    def admit(self, permit: int, now: float) -> Admission:
        """Let a call send, with this permit if one is needed, or refuse it."""
        edge = None
        if self.state == "open" and now >= self.until:
            edge = self._move("half_open", now)
        if self.state == "closed":
            return ADMITTED
        if refused_for := self.refused_for(now):
            return Admission(0, refused_for, edge)
        self.probe, self._probe_until = permit, now + PROBE_TIMEOUT
        return Admission(permit, 0.0, edge)

    def record(
        self,
        failed: bool,
        sent_at: float,
        now: float,
        permit: int,
        hint: float | None,
        draw: float,
    ) -> Transition | None:
        """Note how an attempt ended."""
        is_closed = self.state == "closed"
        counts = sent_at >= self.since if is_closed else permit == self.probe != 0
        if failed and hint is not None and (counts or self.state == "open"):
            self.until = max(self.until, now + min(hint, LONGEST_HINT))
        if not counts:
            return None
        if not failed:
            self.until = -inf  # what earlier failures asked for
        if not is_closed:
            open_for = 2 * self.breaker.open_for
            return self._open(open_for, now, draw) if failed else self._move("closed", now)
        self.failures = failures = self.failures + 1 if failed else 0
        rate = self._rate(failed, now) if self.breaker.failure_rate else 0.0
        in_a_row = failures >= (self.breaker.consecutive_failures or inf)
        too_often = rate >= (self.breaker.failure_rate or inf)
        if not (failed and (in_a_row or too_often)):
            return None
        return self._open(self.breaker.open_for, now, draw)._replace(
            failures=failures if in_a_row else 0, failure_rate=rate if too_often else None
        )

    def _rate(self, failed: bool, now: float) -> float:
        """Count a call in the window; return the share that failed, 0 of too few calls."""
        number = int(now * SLICES / self.breaker.window)
        slices = [one for one in self.slices if one[0] > number - SLICES]
        if not slices or slices[-1][0] < number:
            slices.append([number, 0, 0])
        slices[-1][1] += 1
        slices[-1][2] += failed
        calls, failures = sum(one[1] for one in slices), sum(one[2] for one in slices)
        self.slices = slices if failures else []
        return failures / calls if calls >= self.breaker.minimum_calls else 0.0

    def _open(self, seconds: float, now: float, draw: float) -> Transition:
        """Open for so long; ``draw`` makes that random, so that a fleet does not probe in step."""
        self.until = max(now + seconds * (1 - JITTER + 2 * JITTER * draw), self.until)
        return self._move("open", now)._replace(open_for=self.until - now)

    def _move(self, state: CircuitState, now: float) -> Transition:
        edge = Transition(self.origin, self.state, state)
        self.state, self.since = state, now
        self.failures = self.probe = 0
        self.slices = []
        return edge


@begins_anew
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

    consecutive_failures: int | None = None
    _: KW_ONLY
    failure_rate: float | None = 0.5
    window: float = 5.0
    minimum_calls: int = 20
    open_for: float = 0.5
    mode: Literal["enforce", "observe"] = "enforce"

    def __post_init__(self) -> None:
        if self.consecutive_failures is not None:
            check_positive_int("consecutive_failures", self.consecutive_failures)
        elif self.failure_rate is None:
            raise ValueError("give consecutive_failures= or failure_rate=: else nothing opens it")
        if self.failure_rate is not None:
            check_number("failure_rate", self.failure_rate)
            if not 0 < self.failure_rate <= 1:
                raise ValueError(
                    f"failure_rate must be above 0 and at most 1, got {self.failure_rate}"
                )
        check_positive_int("minimum_calls", self.minimum_calls)
        check_duration("window", self.window, zero=False)
        check_duration("open_for", self.open_for, zero=False)
        check_choice("mode", self.mode, ("enforce", "observe"))
        self.quiet = True  # all circuits are healthy: successes need not be recorded
        self._numbers = count(1)
        self._circuits: dict[str, Circuit] = {}
        self._unhealthy: set[str] = set()  # origins; read without the lock too
        self._fades_at = -inf  # by then all are forgotten
        super().__init__()

    def state(self, origin: str, now: float) -> CircuitState:
        """Return the state; "half_open" also when the next call would be the first probe."""
        with self._lock:
            circuit = self._circuits.get(origin)
            return "closed" if circuit is None else circuit.state_at(now)

    def states(self, now: float) -> dict[str, CircuitState]:
        """Return the states of all origins whose circuit is not closed."""
        if self.quiet:
            return {}
        with self._lock:
            circuits = list(self._circuits.values())
        return {one.origin: one.state_at(now) for one in circuits if one.state != "closed"}

    def refused_for(self, origin: str, now: float) -> float:
        """Seconds until a call to this origin may be sent, 0 if it may be now. Takes nothing."""
        if self.quiet or self.mode == "observe":
            return 0.0
        with self._lock:
            circuit = self._circuits.get(origin)
            return 0.0 if circuit is None else circuit.refused_for(now)

    def admit(self, origin: str, now: float) -> Admission:
        """Ask to send now; a permit that is returned must be given back, else it expires."""
        if self._is_well(origin, now):
            return ADMITTED
        with self._lock:
            circuit = self._circuit(origin, now)
            admission = circuit.admit(next(self._numbers), now)
            self._settle(circuit, now)
        return admission._replace(refused_for=0.0) if self.mode == "observe" else admission

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
        if not failed and self._is_well(origin, now):
            return None
        with self._lock:
            circuit = self._circuit(origin, now)
            edge = circuit.record(failed, sent_at, now, permit, hint, draw)
            self._settle(circuit, now)
        return edge

    def release(self, origin: str, permit: int) -> None:
        """Take back the permit of an attempt that says nothing of its origin."""
        with self._lock:
            circuit = self._circuits.get(origin)
            if circuit is not None and circuit.probe == permit:
                circuit.probe = 0

    def _is_well(self, origin: str, now: float) -> bool:
        """Would a success change nothing? Asked without the lock: healthy calls never wait."""
        return self.quiet or (origin not in self._unhealthy and now < self._fades_at)

    def _circuit(self, origin: str, now: float) -> Circuit:
        """Return the circuit of an origin, a closed one if it is not kept. With the lock held."""
        if now >= self._fades_at:
            self._circuits.clear()
            self._unhealthy.clear()
        return self._circuits.get(origin) or Circuit(self, origin)

    def _settle(self, circuit: Circuit, now: float) -> None:
        """Note the state of a circuit that may have changed. With the lock held."""
        origin = circuit.origin
        self.quiet = False
        if circuit.state == "closed" and not circuit.failures and not circuit.slices:
            self._unhealthy.discard(origin)
        else:
            if origin not in self._circuits and len(self._circuits) >= MOST_ORIGINS:
                oldest = next(iter(self._circuits))
                del self._circuits[oldest]
                self._unhealthy.discard(oldest)
            self._circuits[origin] = circuit
            self._unhealthy.add(origin)
            fades_at = max(now, circuit.until) + max(FADE, self.window)
            self._fades_at = max(self._fades_at, fades_at)
        self.quiet = not self._unhealthy

    def after_fork(self) -> None:
        super().after_fork()
        for circuit in self._circuits.values():
            circuit.probe = 0  # it is in flight in the parent

    def __repr__(self) -> str:
        states = list(self.states(-inf).values())
        counts = [f"{states.count(state)} {state}" for state in sorted(set(states), reverse=True)]
        text = ", ".join(counts).replace("_", "-") or "closed"
        return f"<CircuitBreaker {text}{', observing' if self.mode == 'observe' else ''}>"


def is_origin_failure(failure: Failure | None) -> bool | None:
    """Does the origin fail (True) or respond as it should (False)? None: this says nothing."""
    if failure is None:
        return False
    if failure.kind is not FailureKind.STATUS:
        is_its_fault = failure.kind in ORIGIN_FAILURE_KINDS and not failure.stale_connection
        return True if is_its_fault else None
    if 400 <= (failure.status or 0) < 500:
        return None if failure.is_throttle else False
    return True  # below 400: ``retry_if`` calls it a failure


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
        """Take a permit. If the circuit has opened meanwhile, go to another origin that is free."""
        if self.breaker.quiet or call.notes.get(self):
            return 0.0
        try:
            self._take_permit(call, now)
        except RetryRefused:
            if not call.limits.can_fail_over(call) or call.limits.fail_over(call, now):
                raise
            self._take_permit(call, now)
        return 0.0

    def observe(self, call: Call, failure: Failure | None, now: float) -> None:
        """Pass on whether the origin works, and return the permit."""
        permit = call.notes.get(self, 0)
        failed = None if CUT_BY_SENDER in call.notes else is_origin_failure(failure)
        if failed and call.rest is not None and call.rest.has_progress and call.rest.has_ended:
            failed = None  # a server may end a feed after each of its events
        if failed is None:
            self.leave(call, now)
            return
        edge = self.breaker.record(
            call.sent_to, failed=failed, sent_at=call.sent_at, now=now, permit=permit,
            hint=failure and failure.hint.delay, draw=call.random() if failed else 0.5,
        )  # fmt: skip
        call.notes.pop(self, None)
        self._emit(call, edge)

    def take(self, call: Call, failure: Failure, delay: float, now: float, until: float) -> Refusal:
        """Refuse a retry for which the circuit would still be open."""
        if call.limits.can_fail_over(call):
            return None
        refused_for = self.breaker.refused_for(call.origin, now)
        return GiveUp(Reason.CIRCUIT_OPEN, refused_for) if refused_for > delay else None

    def closed(self, call: Call, origin: str, now: float) -> float:
        """Seconds for which the circuit of an origin is open."""
        return self.breaker.refused_for(origin, now)

    def wants_probe(self, call: Call, now: float) -> bool:
        """Is the circuit half-open, so that one call has to find out whether it may close?"""
        state = self.breaker.state(call.origin, now)
        return state == "half_open" and self.breaker.mode == "enforce"

    def leave(self, call: Call, now: float) -> None:
        if permit := call.notes.pop(self, 0):
            self.breaker.release(call.origin, permit)

    def _take_permit(self, call: Call, now: float) -> None:
        admission = self.breaker.admit(call.origin, now)
        call.notes[self] = admission.permit
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
            self.events.emit(CircuitTransition, call, **edge._asdict())


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

    def level(self) -> int:
        return WARNING if self.to_state == "open" else INFO

    def sentence(self) -> str:
        from ..records import in_seconds

        text = f"circuit {self.from_state} to {self.to_state}"
        if self.open_for is not None:
            text += f" for {in_seconds(self.open_for)}"
        if self.failure_rate is not None:
            return f"{text}, {self.failure_rate:.0%} of the calls in the window failed"
        return f"{text}, {self.failures} failures in a row" if self.failures else text
