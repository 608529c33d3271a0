"""Breaker: leaves an origin alone that keeps failing, and finds out with few calls when it is back.
Floor: remembers.

One circuit per origin (circuit.py has the states and the table). Only origins that failed are kept,
and while all of them are well ``quiet`` is True: then successes are not recorded and nothing is
locked.
"""

from __future__ import annotations

from itertools import count
from math import inf
from typing import NamedTuple

from ..core.checks import a_choice, a_duration, a_number, shown
from .circuit import Circuit, CircuitState, Transition
from .watched import Watched

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

__all__ = ["Admission", "CircuitBreaker"]

MOST_ORIGINS = 1024  # least recently used first out; a forgotten origin is closed again
# Seconds after which the last failures of all origins are forgotten, counted for an open circuit
# from when a probe may be sent: an origin that nobody calls any more must not keep the calls to all
# others from the short way.
FADE = 600.0


class Admission(NamedTuple):
    """The answer to someone who wants to send."""

    permit: int  # to be given back with ``record`` or ``release``; 0: none is needed
    refused_for: float  # seconds; 0: send
    edge: Transition | None


ADMITTED = Admission(0, 0.0, None)


class CircuitBreaker(Watched):
    """Refuses calls to an origin that keeps failing. One object may serve many transports.
    Thread-safe.

    Failures are answers of 5xx (and what ``retry_if`` flags), failed connections, resets and
    timeouts, also those that a deadline cut short. Any other answer is a success, but 429 and what
    else says "too much", failed certificates, errors of this side and cancelled attempts are
    neither.

    While open every call is refused at once with the library's ``CircuitOpenError``; its
    ``retry_after`` says for how long. Then the circuit is half-open: at most ``probes`` calls at
    once are let through, as they come, and the others refused. A probe that fails opens it again,
    for twice as long.

    Args:
        consecutive_failures: Failures in a row, with no success in between, that open the circuit;
            at least 1. None: only the rate counts.
        failure_rate: Share of calls that opens it, above 0 and at most 1, in a window that begins
            with a failure. None: only failures in a row count.
        window: Seconds that the rate looks back.
        minimum_calls: Calls in the window below which the rate says nothing; at least 1.
        open_for: Seconds until the first probe; longer if the origin asked for more, up to an hour.
        max_open_for: Seconds up to which ``open_for`` doubles while probes fail; None: ten times
            ``open_for``.
        probes: Most calls in flight while half-open; at least 1.
        successes_to_close: Probes that must succeed; at least 1.
        probe_timeout: Seconds after which a probe that has not ended gives way to another one.
        mode: "enforce", or "observe": keep states and tell of transitions, but refuse nothing.

    Raises:
        ValueError: A number is out of its range, or nothing is left that could open the circuit.
        TypeError: A value is of the wrong type.
    """

    __slots__ = (
        "_circuits", "_fades_at", "_numbers", "_tripped", "_troubled", "consecutive_failures", "failure_rate",
        "max_open_for", "minimum_calls", "mode", "open_for", "probe_timeout", "probes", "successes_to_close", "window",
    )  # fmt: skip

    def __init__(
        self,
        consecutive_failures: int | None = 5,
        *,
        failure_rate: float | None = None,
        window: float = 30.0,
        minimum_calls: int = 20,
        open_for: float = 30.0,
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
                raise ValueError(
                    f"failure_rate must be above 0 and at most 1, got {shown(failure_rate)}"
                )
        elif consecutive_failures is None:
            raise ValueError(
                "give consecutive_failures= or failure_rate=: nothing else opens a circuit"
            )
        for name, number in (
            ("minimum_calls", minimum_calls),
            ("probes", probes),
            ("successes_to_close", successes_to_close),
        ):
            a_count(name, number)
        for name, seconds in (
            ("window", window),
            ("open_for", open_for),
            ("probe_timeout", probe_timeout),
        ):
            a_duration(name, seconds, zero=False)
        a_duration("max_open_for", max_open_for, none="ten times open_for", zero=False)
        if max_open_for is not None and max_open_for < open_for:
            raise ValueError(
                f"max_open_for must be at least open_for ({open_for:g} s), got {shown(max_open_for)}"
            )
        a_choice("mode", mode, ("enforce", "observe"))
        self.consecutive_failures = consecutive_failures
        self.failure_rate = failure_rate
        self.window = window
        self.minimum_calls = minimum_calls
        self.open_for = open_for
        self.max_open_for = 10 * open_for if max_open_for is None else max_open_for
        self.probes = probes
        self.successes_to_close = successes_to_close
        self.probe_timeout = probe_timeout
        self.mode = mode
        super().__init__(quiet=True)  # every circuit is well
        self._circuits: dict[str, Circuit] = {}
        self._tripped: set[str] = set()  # origins whose circuit is not closed
        self._troubled: set[str] = set()  # closed, with failures to count
        self._fades_at = -inf  # by then both are forgotten
        self._numbers = count(1)

    # What a user may ask.

    def state(self, origin: str, now: float) -> CircuitState:
        """The state of ``scheme://host:port``; "half_open" also when the next call would be its
        first probe.
        """
        with self._lock:
            circuit = self._circuits.get(origin)
            if circuit is None:
                return CircuitState.CLOSED
            is_over = circuit.state is CircuitState.OPEN and now >= circuit.until
            return CircuitState.HALF_OPEN if is_over else circuit.state

    def refused_for(self, origin: str, now: float) -> float:
        """Seconds until a call to this origin may be sent, 0 if it may be now. Takes and changes
        nothing.
        """
        if self.quiet or self.mode == "observe":
            return 0.0
        with self._lock:
            circuit = self._circuits.get(origin)
            return 0.0 if circuit is None else circuit.refused_for(self, now)

    def states(self, now: float) -> dict[str, CircuitState]:
        """The states of all origins whose circuit is not closed, as of ``state``."""
        with self._lock:
            origins = list(self._tripped)
        found = {origin: self.state(origin, now) for origin in origins}
        return {
            origin: state for origin, state in found.items() if state is not CircuitState.CLOSED
        }

    # What a strategy reports and asks.

    def admit(self, origin: str, now: float) -> Admission:
        """Ask to send now. A permit that comes with the answer must be given back; if not, it
        expires.
        """
        if self.quiet or self._concerns_others(origin, now):
            return ADMITTED
        with self._lock:
            circuit = self._found(origin)
            if circuit is None:
                admission = ADMITTED
            else:
                permit, refused_for, edge = circuit.admit(self, next(self._numbers), now)
                admission = Admission(permit, 0.0 if self.mode == "observe" else refused_for, edge)
            is_changed = self._settled(circuit, now)
        if is_changed:
            self._adjust()
        return admission

    def record(
        self,
        origin: str,
        *,
        failed: bool,
        sent_at: float,
        now: float,
        permit: int = 0,
        hint: float | None = None,
    ) -> Transition | None:
        """An attempt ended: with a failure that counts, or well. Gives the permit back.

        Args:
            origin: To which it was sent.
            failed: Otherwise it succeeded.
            sent_at: When it was sent.
            now: Monotonic seconds.
            permit: What ``admit`` answered, if it was asked.
            hint: Seconds that the origin asked to be left alone for.
        """
        if not failed and (self.quiet or self._concerns_others(origin, now)):
            return None
        with self._lock:
            circuit = self._found(origin)
            if circuit is None and failed:
                circuit = self._circuits[origin] = Circuit(origin)
                if len(self._circuits) > MOST_ORIGINS:
                    oldest = next(iter(self._circuits))
                    del self._circuits[oldest]
                    self._tripped.discard(oldest)
                    self._troubled.discard(oldest)
            if circuit is None:
                edge = None
            elif failed:
                edge = circuit.fail(self, permit, sent_at, hint, now)
            else:
                edge = circuit.succeed(self, permit, sent_at, now)
            is_changed = self._settled(circuit, now, failed)
        if is_changed:
            self._adjust()
        return edge

    def release(self, origin: str, permit: int) -> None:
        """Give back the permit of an attempt that says nothing of its origin: cancelled, or not
        sent.
        """
        with self._lock:
            circuit = self._circuits.get(origin)
            if circuit is not None:
                circuit.probes.pop(permit, None)

    def _concerns_others(self, origin: str, now: float) -> bool:
        """What makes this breaker unwell is not this origin, and nothing has faded: no need for the
        lock.
        """
        return origin not in self._circuits and now < self._fades_at

    # Inside the lock.

    def _found(self, origin: str) -> Circuit | None:
        circuit = self._circuits.pop(origin, None)
        if circuit is not None:
            self._circuits[origin] = circuit  # at the end: the most recently used
        return circuit

    def _settled(self, circuit: Circuit | None, now: float, failed: bool = False) -> bool:
        """Note whose circuit is well; did ``quiet`` change?"""
        if now >= self._fades_at:
            for origin in self._troubled | self._tripped:
                if circuit is None or origin != circuit.origin:
                    del self._circuits[origin]
            self._troubled, self._tripped = set(), set()
        fades_after = max(FADE, self.window, self.probe_timeout)
        if circuit is not None:
            if circuit.state is not CircuitState.CLOSED:
                self._tripped.add(circuit.origin)
                self._troubled.discard(circuit.origin)
                self._fades_at = max(self._fades_at, max(now, circuit.until) + fades_after)
            else:
                self._tripped.discard(circuit.origin)
                if circuit.is_well:
                    self._troubled.discard(circuit.origin)
                else:
                    self._troubled.add(circuit.origin)
                    if failed:
                        self._fades_at = max(self._fades_at, now + fades_after)
        quiet = not (self._tripped or self._troubled)
        is_changed = quiet != self.quiet
        self.quiet = quiet
        return is_changed

    # Outside it.

    def _forked(self) -> None:
        for circuit in self._circuits.values():
            circuit.probes = {}  # they are in flight in the parent

    def __repr__(self) -> str:
        with self._lock:
            states = [self._circuits[origin].state for origin in self._tripped]
        half_open = states.count(CircuitState.HALF_OPEN)
        counts = [(len(states) - half_open, "open"), (half_open, "half-open")]
        told = ", ".join(f"{number} {name}" for number, name in counts if number) or "closed"
        return f"<CircuitBreaker {told}{', observing' if self.mode == 'observe' else ''}>"

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy in another process starts closed: what was seen here was seen here.
        return _rebuild, ({name: getattr(self, name) for name in OPTIONS},)


OPTIONS = (
    "consecutive_failures", "failure_rate", "window", "minimum_calls", "open_for", "max_open_for", "probes",
    "successes_to_close", "probe_timeout", "mode",
)  # fmt: skip


def _rebuild(options: dict[str, Any]) -> CircuitBreaker:
    return CircuitBreaker(**options)


def a_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, got {shown(value)}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {shown(value)}")
