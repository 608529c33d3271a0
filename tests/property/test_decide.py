"""Laws of decisions under the default limits, for any answers, schedules, hints and deadlines."""

from math import inf
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forbear import (
    CircuitBreaker,
    Exponential,
    Failure,
    FailureKind,
    Fixed,
    Phase,
    RetryBudget,
    RetryGate,
    RetryPolicy,
)
from forbear.core.call import Call
from forbear.core.decide import answered
from forbear.core.outcome import SendAgain
from forbear.core.request import Request
from forbear.engine.loop import settle
from forbear.limits.limits import Limits
from forbear.testing import FakeClock

pytestmark = pytest.mark.slow

ORIGIN = "http://a:80"
UTC = 1_767_225_600.0
KEY = [("Idempotency-Key", "8e03978e-40d5-43e8-bc93-6894a57f9324")]
SLACK = 1e-9

exponentials = st.builds(
    lambda base, more, factor, jitter, fast: Exponential(base, base + more, factor, jitter, fast),
    st.floats(0, 10),
    st.floats(0, 50),
    st.floats(1, 5),
    st.sampled_from(["full", "equal", "decorrelated", "none", 0.2]),
    st.none() | st.floats(0, 2),
)
backoffs = exponentials | st.builds(Fixed, st.floats(0, 20))

policies = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 8),
    statuses=st.just(RetryPolicy().statuses) | st.just({401, 429, 503}),
    backoff=backoffs,
    patience=st.floats(0, 30),
    throttle_backoff=st.none() | backoffs,
    max_retry_after=st.floats(0, 120),
    hints=st.sampled_from(["obey", "ignore"]),
    hint_spread=st.floats(0, 2),
    conflict_with_key=st.booleans(),
)

hints = st.none() | st.integers(0, 200) | st.floats(0, 150).map(lambda seconds: f"{seconds:.3f}")
advice = st.sampled_from([(), (("x-should-retry", "true"),), (("x-should-retry", "false"),)])
answers = st.tuples(
    st.sampled_from([200, 301, 400, 404, 408, 409, 425, 429, 500, 502, 503, 504, 529]),
    hints,
    advice,
    st.booleans(),
)
errors = st.tuples(
    st.sampled_from(sorted(set(FailureKind) - {FailureKind.STATUS})), st.sampled_from(sorted(Phase))
)
bare = st.tuples(st.sampled_from([401, 429, 500, 503]), st.none(), st.just(()), st.just(False))
outcomes = st.lists(st.tuples(answers | errors | bare, st.floats(0, 5)), min_size=1, max_size=12)
usual_policies = st.builds(
    RetryPolicy,
    max_attempts=st.integers(2, 8),
    statuses=st.just(RetryPolicy().statuses) | st.just({401, 429, 503}),
    backoff=exponentials,
    throttle_backoff=st.none() | exponentials,
)
requests = st.tuples(
    st.sampled_from(["GET", "PUT", "POST", "PATCH", "LOCK"]), st.sampled_from([(), tuple(KEY)])
)
deadlines = st.just(inf) | st.floats(0, 60)


class Calls:
    """Stands for a port: judges as ``run`` does, and keeps the verdicts."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.judged: list[tuple[Any, float, Any]] = []
        self.events = self

    def retried(self, call: Call, failure: Failure, verdict: Any, now: float) -> None:
        self.judged.append((failure, now, verdict))

    gave_up = retried

    def not_retried(self, call: Call, status: int) -> None:
        """Nothing is given up: the response is accepted."""

    def play(self, call: Call, steps: list[tuple[Any, float]]) -> None:
        """Send until a verdict says not to, with these outcomes; then leave."""
        clock = self.clock
        for outcome, elapsed in steps:
            call.sending(clock.monotonic())
            clock.advance(elapsed)
            delay = settle(call, self, failure_of(call, outcome))  # type: ignore[arg-type]
            if delay is None:
                break
            clock.advance(delay)
        call.limits.leave(call, clock.monotonic())


def failure_of(call: Call, outcome: Any) -> Failure | None:
    if len(outcome) == 2:
        return Failure(outcome[0], outcome[1], error="E")
    status, hint, more, flagged = outcome
    if status < 400 and not flagged:
        return None
    lines = [*(() if hint is None else (("Retry-After", str(hint)),)), *more]
    return answered(call.policy, status, lines, lambda: UTC, flagged=flagged)


def cap_of(backoff: Any) -> float:
    if isinstance(backoff, Fixed):
        return backoff.seconds
    return max(backoff.cap, backoff.fast_first or 0.0)  # type: ignore[no-any-return]


@given(policies, requests, deadlines, outcomes, st.integers())
def test_the_laws_of_waits_and_of_safety(policy, request, deadline_at, steps, seed):
    """Waits: in [0, cap] without a hint, with one that time and its spread, never past the deadline,
    never more attempts than allowed. Safety: a retry follows only what was not sent, or a request that is safe
    to repeat, and never an explicit no.
    """
    method, headers = request
    limits = Limits(random=Random(seed).random)
    call = Call(policy, Request(method, ORIGIN, headers), limits, 0.0, policy.max_attempts)
    call.deadline_at = deadline_at
    calls = Calls()
    start = calls.clock.monotonic()
    call.deadline_at += start
    calls.play(call, steps)
    longest = max(cap_of(policy.backoff), cap_of(policy.throttle_backoff or policy.backoff))
    for failure, now, verdict in calls.judged:
        if type(verdict) is not SendAgain:
            continue
        delay, hint = verdict.delay, failure.hint.delay
        if hint:
            assert hint <= delay <= hint + policy.hint_spread * max(hint, 1.0) + SLACK
            assert hint <= policy.max_retry_after
        else:
            assert 0 <= delay <= longest
        assert now + delay < call.deadline_at
        assert failure.phase is Phase.UNSENT or method in policy.methods or headers
        assert failure.hint.should_retry is not False
    assert call.attempts == len(call.history) <= policy.max_attempts


@given(policies, requests, deadlines, outcomes, st.floats(0, 4), st.integers())
def test_only_a_retry_is_paid_for(policy, request, deadline_at, steps, tokens, seed):
    """Nothing is spent on a verdict that is none, and what bought no sending comes back."""
    budget = RetryBudget(ratio=0, floor_per_second=0, burst=5)
    calls = Calls()
    start = calls.clock.monotonic()
    assert budget.spend(ORIGIN, 5 - tokens, start)
    limits = Limits(budget=budget, random=Random(seed).random)
    view = Request(request[0], ORIGIN, request[1])
    call = Call(policy, view, limits, start, policy.max_attempts)
    call.deadline_at = start + deadline_at
    calls.play(call, steps)
    paid = [
        1.0 if failure.hint.delay is None else 0.25
        for failure, _, verdict in calls.judged
        if type(verdict) is SendAgain
    ]
    sent = call.attempts - 1  # retries; the last one that was paid for may not have been sent
    assert len(paid) - sent in (0, 1)
    left = budget.tokens(ORIGIN, calls.clock.monotonic())
    assert left == pytest.approx(tokens - sum(paid[:sent]))
    assert left >= 0


SPECIAL = ["", "breaker", "used-up body", "deadline", "retry_if says no", "random raises"]


def decided(
    policy: RetryPolicy, method: str, calls: list[Any], special: str, seed: int, *, usual: bool
) -> Any:
    """What is decided of some calls in a row, and what their gate has learned from them."""
    player, gate, found = Calls(), RetryGate(), []
    breaker = CircuitBreaker(2) if special == "breaker" else None
    limits = Limits(gate=gate, breaker=breaker, random=Random(seed).random)
    for steps in calls:
        now = player.clock.monotonic()
        call = Call(policy, Request(method, ORIGIN), limits, now, policy.max_attempts)
        if usual and method in policy.methods:  # as begin_call does
            call.usual_failures = limits.usual_failures(policy)
        if special == "used-up body":
            call.guard = SimpleNamespace(ready=False)
        elif special == "deadline":
            call.deadline_at = now + 3
        elif special == "retry_if says no":
            call.inspects_responses, call.retry_if_result = True, False
        elif special == "random raises":
            call.random = {}.popitem  # type: ignore[assignment]
        player.play(call, steps)
        found.append((call.history, call.stop, call.last_backoff, call.off_schedule, call.origin))
    health = gate._origins.get(ORIGIN)
    learned = health and (health.tokens, health.trust, health.probe, health.good_at, health.credit)
    return [verdict for _, _, verdict in player.judged], found, learned


@pytest.mark.parametrize("special", SPECIAL)
@settings(max_examples=200)
@given(
    usual_policies,
    st.sampled_from(["GET", "GET", "GET", "POST"]),
    st.lists(outcomes, min_size=1, max_size=3),
    st.integers(),
)
def test_the_usual_retry_is_decided_as_by_the_ten_rules(special, policy, method, calls, seed):
    """``Limits.judge`` has a shorter way to the same verdicts, draws and tokens."""
    shorter = decided(policy, method, calls, special, seed, usual=True)
    assert shorter == decided(policy, method, calls, special, seed, usual=False)
