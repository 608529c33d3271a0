"""Laws of the gate: in any order nobody is held too long, and what was taken comes back."""

from itertools import chain, cycle
from math import inf
from typing import Any

import httpx
import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from forbear import Fixed, RetryBudget, RetryGate, RetryPolicy, record_of
from forbear.core.call import Hold
from forbear.httpx import RetryTransport
from forbear.limits.health import HEALTHY, TOKENS, Cause, Health
from forbear.testing import ScriptedTransport

from ..clocks import Interrupted

HERE = "https://a:443"
MOST = 16
SLACK = 1e-9
EARNED = {Cause.HEALTHY, Cause.GOOD_RETRY}
LET_GO = EARNED | {Cause.PROBE}
draws = st.floats(0, 1, exclude_max=True)


class GateLaws(RuleBasedStateMachine):
    """Any order of failures, good answers, new calls, held calls that ask, and calls that leave."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.now = RetryGate(max_held=MOST), 100.0
        self.places: list[Hold] = []  # that are held
        self.has_earned = False  # a good answer has come since the last failure

    def close_unused(self) -> None:
        """Look at what the last step has let go."""
        gone = [place for place in self.places if place.cause is not None]
        self.places = [place for place in self.places if place.cause is None]
        for place in gone:
            if place.cause in LET_GO:
                assert place.ready_at <= self.now
                order = place.ready_at, place.number
                others = [(other.ready_at, other.number) for other in self.places]
                assert all(order < other for other in others), "not the one that was ready first"
        earned = sum(place.cause in EARNED for place in gone)
        assert earned <= 10
        assert self.has_earned or not earned
        assert sum(place.cause is Cause.PROBE for place in gone) <= 1

    @initialize()
    def is_unwell(self) -> None:
        self.fails(1.0, 0.0, 3, None, False)

    @rule(
        weight=st.sampled_from([0.5, 1.0]), age=st.floats(0, 3), times=st.integers(1, 3),
        before=st.none() | st.floats(0, 20), is_timeout=st.booleans(),
    )  # fmt: skip
    def fails(self, weight, age, times, before, is_timeout):
        sent_at = self.now - age
        sent_before = None if before is None else sent_at - before
        credit = self.health.credit if HERE in self.gate._origins else 0.0
        for _ in range(times):
            self.gate.bad(HERE, self.now, sent_at, weight, sent_before, is_timeout)
        self.has_earned = self.health.credit > 0
        assert self.health.credit in (0.0, credit), "it voids what was earned, or says nothing"
        self.close_unused()

    @property
    def health(self) -> Health:
        return self.gate._origins[HERE]

    @rule(retry=st.booleans(), times=st.integers(1, 12))
    def answers(self, retry: bool, times: int) -> None:
        for _ in range(times):
            self.has_earned = True
            self.gate.good(HERE, self.now, retry=retry)
            self.close_unused()

    @rule(times=st.integers(1, 5))
    def begins(self, times: int) -> None:
        for _ in range(times):
            self.gate.begin(HERE, self.now)

    @rule(
        ready_in=st.lists(st.sampled_from([0.0, 0.1, 1.0, 3.0]), min_size=1, max_size=6),
        times=st.sampled_from([1, MOST]),
        patience=st.sampled_from([0.5, 5.0, 10.0, 60.0]) | st.floats(0, 12),
    )
    def holds(self, ready_in: list[float], times: int, patience: float) -> None:
        until = self.now + patience
        for seconds in ready_in * times:
            ready_at = self.now + seconds
            place = self.gate.hold(HERE, self.now, ready_at=ready_at, until=until)
            could = ready_at <= until and until > self.now and len(self.places) < MOST
            is_crowded = HERE in self.gate._origins and self.now < self.health.crowded_until
            assert place is None or could
            assert place is not None or not could or is_crowded
            if place is not None:
                self.places.append(place)

    @rule(number=st.integers(0, MOST), draw=draws, probe_is_due=st.booleans(), back=st.booleans())
    def asks(self, number: int, draw: float, probe_is_due: bool, back: bool) -> None:
        if not self.places:
            return
        place = self.places[number % len(self.places)]
        wait = self.gate.turn(place, self.now, lambda: draw, probe_is_due=probe_is_due)
        self.close_unused()
        if wait is None:
            assert self.now >= place.until
            assert place.cause is Cause.PATIENCE_OVER
        elif wait == 0:
            assert place.cause in LET_GO
            if back:
                self.gate.hold_again(place)
                self.places.append(place)
        else:
            assert place.cause is None
            assert 0 < wait <= place.until - self.now

    @rule()
    def all_ask(self) -> None:
        """In whatever order they were held."""
        for place in list(self.places):
            if place.cause is None:
                wait = self.gate.turn(place, self.now, lambda: 0.5)
                assert not wait or place.cause is None
                self.close_unused()

    @rule(number=st.integers(0, MOST), twice=st.booleans())
    def leaves(self, number: int, twice: bool) -> None:
        if self.places:
            place = self.places[number % len(self.places)]
            for _ in range(1 + twice):
                self.gate.drop(place)
            self.close_unused()

    @rule(seconds=st.sampled_from([0.1, 1.0, 1.5, 4.0, 9.0]) | st.floats(0, 6))
    def waits(self, seconds: float) -> None:
        """Each asks again twice a second, and so when its patience is over."""
        until = self.now + seconds
        while self.now < until:
            self.now = min(until, self.now + 0.5)
            self.all_ask()
        assert all(place.until > self.now for place in self.places)

    @rule(seconds=st.floats(4, 60))
    def is_frozen(self, seconds: float) -> None:
        """The process does not run for so long, which is nobody's patience.

        The gate takes what it is asked too late for that, from two seconds on, and asks nobody
        before his backoff is over.
        """
        places, soon = self.places, self.now + 1
        patient = [place for place in places if place.until > max(soon, place.ready_at + 2)]
        self.all_ask()
        self.now += seconds
        for place in patient:
            if place.cause is None:
                assert self.gate.turn(place, self.now, lambda: 0.5) is not None
            self.close_unused()

    @invariant()
    def as_many_are_held_as_have_a_place(self) -> None:
        assert self.gate.held() == self.gate.held(HERE) == len(self.places) <= MOST

    @invariant()
    def its_numbers_stay_in_their_ranges(self) -> None:
        if HERE in self.gate._origins:
            health = self.health
            assert 0 <= health.tokens <= TOKENS
            assert 0 <= health.share <= 1
            assert 0 < health.probe <= 8
            assert (health.tokens >= HEALTHY) is (health.unhealthy_since == inf)

    @invariant()
    def quiet_means_well_and_empty(self) -> None:
        if self.gate.quiet:
            assert self.gate.is_healthy(HERE)
            assert not self.places


TestGateLaws = GateLaws.TestCase
TestGateLaws.settings = settings(max_examples=40, stateful_step_count=40)

LONE = [200, 503, 429, 502, "read_error", "connect_error", "read_timeout"]
HINTED = [(503, {"Retry-After": str(seconds)}) for seconds in (1, 2, 6)]


def scripts(of: list[Any]) -> st.SearchStrategy[list[Any]]:
    """Each answer some times in a row: an origin that is down stays down for a while."""
    runs = st.builds(lambda step, times: [step] * times, st.sampled_from(of), st.integers(1, 6))
    return st.lists(runs, min_size=1, max_size=8).map(lambda found: [*chain.from_iterable(found)])


@settings(max_examples=60)
@given(
    scripts(LONE) | scripts(LONE + HINTED) | scripts(HINTED), st.floats(0, 12),
    st.none() | st.floats(0.01, 12), st.just(-1) | st.integers(0, 30),
    st.lists(draws, min_size=7, max_size=7),
)  # fmt: skip
def test_held_calls_keep_to_patience_and_deadline_and_leave_nothing(
    script, patience, total_timeout, at, numbers
):
    """Calls of a lone program, one of them interrupted while it waits."""
    clock, gate, drawn = Interrupted(at=at), RetryGate(), cycle(numbers)
    budget = RetryBudget(ratio=0, floor_per_second=0, burst=99)
    limits = {"patience": patience, "total_timeout": total_timeout}
    policy = RetryPolicy(max_attempts=5, backoff=Fixed(0.3), **limits)
    options = {"budget": budget, "clock": clock, "random": lambda: next(drawn)}
    inner, paid = ScriptedTransport([*script, 200]), 0.0
    transport = RetryTransport(inner, policy=policy, gate=gate, **options)
    with httpx.Client(transport=transport) as client:
        for _ in range(8):
            start, before = clock.monotonic(), len(inner.requests)
            try:
                record = record_of(client.get("https://a/"))
            except httpx.TransportError as error:
                record = record_of(error)
            except KeyboardInterrupt:
                assert gate.held() == 0
                return
            assert gate.held() == 0
            assert record.held <= patience + SLACK, "in all, beyond the delays that were decided"
            assert total_timeout is None or clock.monotonic() - start <= total_timeout + SLACK
            assert len(record.attempts) == len(inner.requests) - before
            sources = [failed.delay_source for failed in record.attempts[:-1]]
            paid += sum(0.25 if source == "retry-after" else 1.0 for source in sources)
            assert budget.tokens("https://a:443", clock.monotonic()) == pytest.approx(99 - paid)
