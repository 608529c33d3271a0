"""Laws of the breaker: over any order of calls and ends, states move along the table only."""

from typing import NamedTuple

import hypothesis.strategies as st
from hypothesis import settings, stateful
from hypothesis.stateful import consumes, rule

from forbear import CircuitBreaker
from forbear.addons.breaker import PROBE_TIMEOUT, Transition

ORIGINS = st.sampled_from(["http://a:80", "http://b:80"])
CLOSED, OPEN, HALF_OPEN = "closed", "open", "half_open"
ALLOWED = {(CLOSED, OPEN), (OPEN, HALF_OPEN), (HALF_OPEN, OPEN), (HALF_OPEN, CLOSED)}
SLACK = 1e-6


class Sent(NamedTuple):
    """A call in flight."""

    origin: str
    sent_at: float
    permit: int


numbers = st.fixed_dictionaries({
    "consecutive_failures": st.none() | st.integers(1, 4), "failure_rate": st.floats(0.1, 1.0),
    "window": st.floats(1, 20), "minimum_calls": st.integers(1, 6), "open_for": st.floats(0.5, 20),
})  # fmt: skip


class BreakerLaws(stateful.RuleBasedStateMachine):
    """Calls are sent, fail, succeed, are cancelled or forgotten; time passes."""

    calls: stateful.Bundle[Sent] = stateful.Bundle("calls")

    @stateful.initialize(fields=numbers)
    def begin(self, fields: dict[str, float]) -> None:
        self.now = 100.0
        self.breaker = CircuitBreaker(**fields)  # type: ignore[arg-type]
        self.states: dict[str, str] = {}
        self.opened_at: dict[str, tuple[float, float]] = {}
        # Permits of this generation, and when they expire.
        self.out: dict[str, dict[int, float]] = {}

    def passed(self, edge: Transition | None, origin: str, permit: int = 0) -> None:
        """Every edge is on the table, and starts where the last one ended."""
        if edge is None:
            return
        assert edge.origin == origin
        assert edge.from_state == self.states.get(origin, CLOSED)
        assert (edge.from_state, edge.to_state) in ALLOWED
        if edge.from_state == HALF_OPEN:
            assert permit in self.out[origin], "only who holds a permit of this generation moves it"
        if edge.to_state == OPEN:
            assert edge.open_for is not None
            assert edge.open_for >= self.breaker.open_for - SLACK
            self.opened_at[origin] = (self.now, edge.open_for)
        self.states[origin] = edge.to_state
        self.out[origin] = {}

    @rule(target=calls, origin=ORIGINS)
    def send(self, origin: str) -> object:
        before = self.states.get(origin, CLOSED)
        promised = self.breaker.refused_for(origin, self.now)
        permit, refused_for, edge = self.breaker.admit(origin, self.now)
        assert refused_for == promised, "what was looked up is what is answered"
        self.passed(edge, origin)
        state = self.states.get(origin, CLOSED)
        if before == OPEN and not refused_for:
            opened_at, open_for = self.opened_at[origin]
            assert self.now >= opened_at + open_for - SLACK, "sooner than it was opened for"
        assert state != OPEN or refused_for > 0
        if refused_for:
            assert permit == 0
            return stateful.multiple()
        assert (permit > 0) == (state == HALF_OPEN)
        if permit:
            self.out[origin][permit] = self.now + PROBE_TIMEOUT
            assert sum(expires_at > self.now for expires_at in self.out[origin].values()) <= 1
        return Sent(origin, self.now, permit)

    def end(self, call: Sent, failed: bool, hint: float | None = None) -> Transition | None:
        origin, sent_at, permit = call
        given = {"failed": failed, "sent_at": sent_at, "permit": permit, "hint": hint}
        edge = self.breaker.record(origin, now=self.now, **given)
        self.passed(edge, origin, permit)
        self.out.get(origin, {}).pop(permit, None)
        return edge

    @rule(call=consumes(calls), hint=st.none() | st.floats(0, 100))
    def fail(self, call: Sent, hint: float | None) -> None:
        edge = self.end(call, failed=True, hint=hint)
        if edge is not None and hint is not None:
            assert edge.open_for is not None
            assert edge.open_for >= hint - SLACK
        elif hint is not None and self.states.get(call.origin) == OPEN:
            opened_at, open_for = self.opened_at[call.origin]
            self.opened_at[call.origin] = (opened_at, max(open_for, self.now + hint - opened_at))

    @rule(call=consumes(calls))
    def succeed(self, call: Sent) -> None:
        edge = self.end(call, failed=False)
        assert edge is None or edge.to_state == CLOSED, "a success never opens anything"

    @rule(call=consumes(calls))
    def cancel(self, call: Sent) -> None:
        before = self.breaker.state(call.origin, self.now)
        self.breaker.release(call.origin, call.permit)
        self.out.get(call.origin, {}).pop(call.permit, None)
        assert self.breaker.state(call.origin, self.now) == before

    @rule(call=consumes(calls))
    def forget(self, call: Sent) -> None:
        """Its holder is gone without a word."""

    @rule(seconds=st.floats(0, 80))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(origin=ORIGINS)
    def it_can_always_be_probed_in_the_end(self, origin: str) -> None:
        """Whatever was cancelled or forgotten: after its time and all permits someone may go."""
        if self.states.get(origin, CLOSED) != CLOSED:
            later = max(self.breaker.refused_for(origin, self.now), PROBE_TIMEOUT) + 1.0
            assert self.breaker.refused_for(origin, self.now + later) == 0.0

    @stateful.invariant()
    def the_state_is_the_one_told(self) -> None:
        for origin, state in getattr(self, "states", {}).items():
            found = self.breaker.state(origin, self.now)
            is_over = state == OPEN and self.breaker.refused_for(origin, self.now) == 0
            assert found == (HALF_OPEN if is_over else state)

    @stateful.invariant()
    def quiet_means_that_every_origin_is_well(self) -> None:
        if hasattr(self, "breaker") and self.breaker.quiet:
            assert all(state == CLOSED for state in self.states.values())


TestBreakerLaws = BreakerLaws.TestCase
TestBreakerLaws.settings = settings(max_examples=40, stateful_step_count=50)
