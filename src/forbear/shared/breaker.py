"""Breaker: leaves an origin alone that keeps failing, and finds out with few calls when it is back.
Floor: remembers.

One circuit per origin (circuit.py has the states and the table). Only origins that failed are kept.
"""

from __future__ import annotations

from itertools import count
from math import inf

from ..core.checks import a_choice, a_count, a_duration, a_number, shown
from ..core.frozen import rebuilt
from ..core.outcome import RETRYABLE_KINDS, FailureKind
from .circuit import ADMITTED, CLOSED, HALF_OPEN, OPEN, Circuit, Numbers
from .locks import Locked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

    from ..core.outcome import Failure
    from .circuit import Admission, CircuitState, Transition

__all__ = ["CircuitBreaker", "is_trouble"]

MOST_ORIGINS = 1024  # least recently used first out; a forgotten origin is closed again
# Seconds after which failures are forgotten, for an open circuit from when a probe may be sent: an
# origin that nobody calls any more must not slow down the calls to all others.
FADE = 600.0
# These say that an origin is in trouble. A healthy one ends a connection by turning streams away.
TROUBLE_KINDS = RETRYABLE_KINDS - {FailureKind.UNPROCESSED}


class CircuitBreaker(Locked):
    """Refuses calls to an origin that keeps failing. One object may serve many transports.

    Thread-safe. Failures are answers of 5xx (and what ``retry_if`` flags), failed connections,
    resets and timeouts, also those that a deadline cut short. Any other answer is a success. A 429
    and what else says "too much", failed certificates, errors of this side and cancelled attempts
    count as neither; nor does an attempt that the deadline of an incoming request cut short
    (``RetryContextMiddleware``) before it had a second, or ``attempt_timeout`` or ``total_timeout``
    if one of them is shorter.

    While open, every call is refused at once with the library's ``CircuitOpenError``; its
    ``retry_after`` says for how long. Then the circuit is half-open: at most ``probes`` calls at
    once are let through. A probe that fails opens the circuit again, for twice as long.

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
        max_open_for: Seconds up to which ``open_for`` doubles while probes fail, ±20 %; None: twice
            ``open_for``.
        probes: Most calls in flight while half-open; at least 1.
        successes_to_close: Probes that must succeed; at least 1.
        probe_timeout: Seconds after which a probe that has not ended gives way to another one.
        mode: "enforce", or "observe": keep states and tell of transitions, but refuse nothing.

    Raises:
        ValueError: A number is out of its range, or nothing is left that could open the circuit.
        TypeError: A value is of the wrong type.
    """

    def __init__(
        self,
        consecutive_failures: int | None = None,
        *,
        failure_rate: float | None = 0.5,
        window: float = 5.0,
        minimum_calls: int = 20,
        open_for: float = 0.5,
        max_open_for: float | None = None,
        probes: int = 1,
        successes_to_close: int = 1,
        probe_timeout: float = 60.0,
        mode: Literal["enforce", "observe"] = "enforce",
    ) -> None:
        if consecutive_failures is not None:
            a_count("consecutive_failures", consecutive_failures)
        if failure_rate is not None:
            a_number("failure_rate", failure_rate)
            if not 0 < failure_rate <= 1:
                rate = shown(failure_rate)
                raise ValueError(f"failure_rate must be above 0 and at most 1, got {rate}")
        elif consecutive_failures is None:
            raise ValueError(
                "give consecutive_failures= or failure_rate=: nothing else opens a circuit"
            )
        a_count("minimum_calls", minimum_calls)
        a_count("probes", probes)
        a_count("successes_to_close", successes_to_close)
        a_duration("window", window, zero=False)
        a_duration("open_for", open_for, zero=False)
        a_duration("probe_timeout", probe_timeout, zero=False)
        a_duration("max_open_for", max_open_for, none="twice open_for", zero=False)
        if max_open_for is not None and max_open_for < open_for:
            least = f"open_for ({open_for:g} s)"
            raise ValueError(f"max_open_for must be at least {least}, got {shown(max_open_for)}")
        a_choice("mode", mode, ("enforce", "observe"))
        self.consecutive_failures = consecutive_failures
        self.failure_rate = failure_rate
        self.window = window
        self.minimum_calls = minimum_calls
        self.open_for = open_for
        self.max_open_for = 2 * open_for if max_open_for is None else max_open_for
        self.probes = probes
        self.successes_to_close = successes_to_close
        self.probe_timeout = probe_timeout
        self.mode = mode
        self._fades_after = max(FADE, window, probe_timeout)
        self._numbers = count(1)
        self._begin()
        super().__init__()

    def _begin(self) -> None:
        """Begin with all circuits closed: at first, and when a change was interrupted."""
        self.quiet = True  # all circuits are well: successes need not be recorded
        self.is_closed = True  # all are closed: nobody needs a permit
        self._circuits: dict[str, Circuit] = {}
        # Those that are not closed or have failures to count; looked at without the lock too.
        self._unwell: dict[str, Circuit] = {}
        self._off: set[str] = set()  # those that are open or half-open
        self._fades_at = -inf  # by then the unwell are forgotten

    def state(self, origin: str, now: float) -> CircuitState:
        """Return the state; "half_open" also when the next call would be the first probe."""
        circuit = self._unwell.get(origin)
        if circuit is None:
            return CLOSED
        return HALF_OPEN if circuit.state is OPEN and now >= circuit.until else circuit.state

    def refused_for(self, origin: str, now: float) -> float:
        """Seconds until a call to this origin may be sent, 0 if it may be now. Takes nothing."""
        if self.is_closed or self.mode == "observe":
            return 0.0
        with self._lock:
            circuit = self._unwell.get(origin)
            return 0.0 if circuit is None else circuit.refused_for(self, now)

    def states(self, now: float) -> dict[str, CircuitState]:
        """Return the states of all origins whose circuit is not closed."""
        with self._lock:
            return {origin: self.state(origin, now) for origin in self._off}

    def admit(self, origin: str, now: float) -> Admission:
        """Ask to send now; a permit in the answer must be given back, else it expires."""
        if self.quiet or (origin not in self._off and now < self._fades_at):
            return ADMITTED  # without the lock: nothing changes
        with self._lock:
            try:
                if now >= self._fades_at:
                    self._fade(origin)
                circuit = self._circuits.get(origin)
                if circuit is None:
                    return ADMITTED
                self._used(circuit)
                admission = circuit.admit(self, next(self._numbers), now)
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
        ``admit``, ``hint`` the seconds for which the origin asked to be left alone, ``draw`` a
        random number from 0 to 1.
        """
        if not failed and (self.quiet or (origin not in self._unwell and now < self._fades_at)):
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
            if circuit is not None:
                circuit.probes.pop(permit, None)

    def _used(self, circuit: Circuit) -> Circuit:
        """Keep the circuit as the one used most recently. With the lock held."""
        circuits, origin = self._circuits, circuit.origin
        circuits.pop(origin, None)
        circuits[origin] = circuit
        if len(circuits) > MOST_ORIGINS:
            oldest = next(iter(circuits))
            del circuits[oldest]
            self._unwell.pop(oldest, None)
            self._off.discard(oldest)
            self.is_closed = not self._off
        return circuit

    def _settle(self, circuit: Circuit, edge: Transition | None, now: float) -> None:
        """Note how the circuit is, which has changed. With the lock held."""
        origin = circuit.origin
        if circuit.is_well:
            self._unwell.pop(origin, None)
        else:
            self._unwell[origin] = circuit
            since = now if circuit.state is CLOSED or circuit.until < now else circuit.until
            if since + self._fades_after > self._fades_at:
                self._fades_at = since + self._fades_after
        self.quiet = not self._unwell
        if edge is not None:
            self._off.discard(origin)
            if edge.to_state is not CLOSED:
                self._off.add(origin)
            self.is_closed = not self._off

    def _fade(self, origin: str) -> None:
        """Forget who was unwell long ago, but ``origin``. With the lock held."""
        kept = self._unwell.get(origin)
        for faded in self._unwell:
            if faded != origin:
                del self._circuits[faded]
        self._unwell = {} if kept is None else {origin: kept}
        self.quiet = kept is None
        self._off &= self._unwell.keys()
        self.is_closed = not self._off

    def after_fork(self) -> None:
        super().after_fork()
        for circuit in self._circuits.values():
            circuit.probes = {}  # they are in flight in the parent

    def __repr__(self) -> str:
        with self._lock:
            states = [circuit.state for circuit in self._unwell.values()]
        counts = [(states.count(OPEN), "open"), (states.count(HALF_OPEN), "half-open")]
        text = ", ".join(f"{number} {name}" for number, name in counts if number) or "closed"
        return f"<CircuitBreaker {text}{', observing' if self.mode == 'observe' else ''}>"

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy in another process starts closed: what was seen here was seen here.
        return rebuilt, (CircuitBreaker, {name: getattr(self, name) for name in OPTIONS})


OPTIONS = (*Numbers.__annotations__, "mode")


def is_trouble(failure: Failure | None) -> bool | None:
    """Does the origin fail (True) or answer as it should (False)? None: this says nothing."""
    if failure is None:
        return False
    if failure.kind is not FailureKind.STATUS:
        return True if failure.kind in TROUBLE_KINDS else None
    status = failure.status or 0
    if status >= 500 or status < 400:  # below 400: ``retry_if`` calls the answer a failure
        return True
    return None if failure.is_throttle else False
