"""Laws of decisions under the default limits, for any answers, schedules, hints and deadlines."""

import json
from math import inf
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forbear import (
    CircuitBreaker,
    Exponential,
    FailureKind,
    Fixed,
    Reason,
    RetryBudget,
    RetryGate,
    RetryPolicy,
)
from forbear.core.call import Call
from forbear.core.decide import answered
from forbear.core.outcome import GiveUp, SendAgain
from forbear.core.request import Request
from forbear.engine.loop import settle
from forbear.engine.settings import limits_of
from forbear.limits.limits import Limits
from forbear.strategies import Failure, Phase
from forbear.testing import FakeClock

from .ten_rules import Oracle, Outcome

pytestmark = pytest.mark.release

ORIGIN = "http://a:80"
UTC = 1_767_225_600.0
KEY = [("Idempotency-Key", "8e03978e-40d5-43e8-bc93-6894a57f9324")]
CORPUS = Path(__file__).parents[1] / "corpus" / "retry_safety.json"
ANSWERED = [
    case
    for case in json.loads(CORPUS.read_text(encoding="utf-8"))["cases"]
    if "status" in case["outcome"]
]

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
        self.before_attempt = None

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


@given(policies, requests, deadlines, outcomes, st.floats(0, 4), st.integers())
def test_only_a_retry_is_paid_for(policy, request, deadline_at, steps, tokens, seed):
    """Nothing is spent on a verdict that is none, and what bought no sending comes back."""
    budget = RetryBudget(ratio=0, floor_per_second=0, burst=5)
    calls = Calls()
    start = calls.clock.monotonic()
    assert budget.spend(ORIGIN, 5 - tokens, start)
    limits = limits_of(budget=budget, random=Random(seed).random)
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


lines = st.lists(
    st.sampled_from(
        [
            ("Retry-After", "0"), ("Retry-After", "3"), ("retry-after", " 2.5 "),
            ("Retry-After", "90"), ("Retry-After", "soon"), ("retry-after-ms", "1500"),
            ("grpc-retry-pushback-ms", "700"), ("grpc-retry-pushback-ms", "-1"),
            ("x-should-retry", "true"), ("X-Should-Retry", "False"), ("x-should-retry", "maybe"),
            ("Idempotent-Replayed", "true"), ("X-Request-Id", "1"),
        ]
    ),
    max_size=2,
    unique_by=lambda line: line[0].lower(),
).map(tuple)  # fmt: skip
STATUSES = [200, 302, 400, 401, 403, 404, 408, 409, 425, 429, 500, 502, 503, 504, 529]
ends = st.one_of(
    st.builds(Outcome, st.sampled_from([429, 500, 503])),
    st.builds(Outcome, st.sampled_from(STATUSES), lines, st.booleans()),
    st.builds(
        Outcome,
        kind=st.sampled_from(sorted(set(FailureKind) - {FailureKind.STATUS})),
        phase=st.sampled_from(sorted(Phase)),
    ),
    st.builds(
        Outcome,
        kind=st.sampled_from(["refused", "reset", "dns", "read-timeout"]),
        phase=st.sampled_from(["unsent", "sent"]),
    ),
    st.just(Outcome(kind="reset", phase="sent", is_stale=True)),
)
ruled = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 6),
    statuses=st.just(RetryPolicy().statuses) | st.just({401, 429, 503}),
    hinted_statuses=st.just(()) | st.just({403}),
    unexecuted_statuses=st.sampled_from([(), (), {429}, {404, 429}]),
    failures=st.just(RetryPolicy().failures) | st.just({FailureKind.RESET}),
    backoff=backoffs,
    throttle_backoff=st.none() | backoffs,
    patience=st.sampled_from([None, 0.0, 10.0]),
    max_retry_after=st.sampled_from([2.0, 60.0]),
    hints=st.sampled_from(["obey", "obey", "ignore"]),
    hint_spread=st.sampled_from([0.0, 0.25]),
    conflict_with_key=st.booleans(),
)
rarely = st.sampled_from([False, False, False, False, False, True])
situations = st.fixed_dictionaries(
    {
        "method": st.sampled_from(["GET", "GET", "PUT", "POST", "POST", "PATCH"]),
        "keyed": st.booleans(),
        "draw": st.sampled_from([0.0, 0.25, 0.999]),
        "deadline_at": st.sampled_from([inf, inf, 0.5, 2.0, 8.0]),
        "key_until": st.sampled_from([inf, inf, 0.5, 2.0, 8.0]),
        "body_is_gone": rarely,
        "barred": st.sampled_from(
            [None, None, None, None, Reason.CALLER_SAID_NO, Reason.NESTED_CALL]
        ),
        "stop": st.sampled_from([None, None, None, GiveUp(Reason.CIRCUIT_OPEN, 1.0)]),
    }
)


def failure_from(call: Call, end: Outcome) -> Failure | None:
    """As a port would make it."""
    if end.status is None:
        kind, phase = FailureKind(end.kind), Phase(end.phase)
        return Failure(kind, phase, error="E", stale_connection=end.is_stale)
    if end.status < 400 and not end.flagged:
        return None
    return answered(call.policy, end.status, end.lines, lambda: UTC, flagged=end.flagged)


def begun(oracle: Oracle, limits: Limits, start: float) -> Call:
    """The call that the oracle knows, with instants from ``start`` on."""
    policy, lines = oracle.policy, KEY if oracle.keyed else ()
    call = Call(policy, Request(oracle.method, ORIGIN, lines), limits, start, policy.max_attempts)
    oracle.deadline_at = call.deadline_at = oracle.deadline_at + start
    oracle.key_until = call.key_until = oracle.key_until + start
    call.request.guard = SimpleNamespace(ready=not oracle.body_is_gone)
    call.stop, call.random = oracle.stop, lambda: oracle.draw
    return call


@settings(max_examples=400)
@given(
    ruled,
    st.lists(st.tuples(situations, st.lists(ends, min_size=1, max_size=6)), min_size=1, max_size=5),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0.0, 0.5, 2.0, 5.0]),
    st.floats(0.01, 3),
)
def test_each_retry_is_decided_by_the_ten_rules(
    policy, calls, has_gate, has_breaker, tokens, elapsed
):
    """Drawn calls, one after the other through the same limits, against an oracle of the rules."""
    player, gate, budget = Calls(), RetryGate() if has_gate else None, RetryBudget(0, 0, 5)
    breaker = CircuitBreaker(2, failure_rate=None) if has_breaker else None
    limits = limits_of(gate=gate, breaker=breaker, budget=budget)
    clock = player.clock
    budget.spend(ORIGIN, 5 - tokens, clock.monotonic())
    for situation, outcomes in calls:
        oracle = Oracle(policy, **situation)
        call = begun(oracle, limits, clock.monotonic())
        for end in outcomes:
            call.sending(clock.monotonic())
            call.barred = oracle.barred
            clock.advance(elapsed)
            now = clock.monotonic()
            left = budget.tokens(ORIGIN, now)
            delay = settle(call, player, failure_from(call, end))  # type: ignore[arg-type]
            if end.status is not None and end.status < 400 and not end.flagged:
                break
            has_say = gate is not None and policy.patience is not None
            may_be_fast = not has_say or gate.may_be_fast(ORIGIN)
            is_healthy = not has_say or gate.is_healthy(ORIGIN)
            refused_for = 0.0 if breaker is None else breaker.refused_for(ORIGIN, now)
            expected = oracle.verdict(
                end, now, may_be_fast=may_be_fast, refused_for=refused_for, tokens=left
            )
            found = None if call.history[-1].failure is None else call.stop
            if delay is not None:
                found = SendAgain(delay, call.history[-1].source)
            if not is_healthy and found and found[0] is Reason.ORIGIN_UNHEALTHY:  # 10: the gate
                assert type(expected) is SendAgain or expected.reason is Reason.BUDGET_EXHAUSTED
                break
            assert type(found) is type(expected)
            assert found == (expected and pytest.approx(expected))
            assert (call.hold is not None) <= (not is_healthy)
            if delay is None:
                break
            if call.hold is not None:
                gate.drop(call.hold)
                call.hold = None
            clock.advance(delay)
        call.limits.leave(call, clock.monotonic())


@pytest.mark.parametrize("case", ANSWERED, ids=lambda case: case["id"])
def test_the_oracle_knows_the_corpus(case):
    outcome = Outcome(case["outcome"]["status"], tuple(map(tuple, case["outcome"]["headers"])))
    is_gone = case["body"] == "one-shot" and case["body_read"]
    keyed = Request(case["method"], ORIGIN, list(map(tuple, case["headers"]))).keyed
    oracle = Oracle(RetryPolicy(), case["method"], keyed, 0.5, body_is_gone=is_gone)
    verdict = oracle.verdict(outcome, 0.0, may_be_fast=True, refused_for=0.0, tokens=1.0)
    assert (type(verdict) is SendAgain) is case["expect"]["may_retry"]
    if type(verdict) is GiveUp:
        assert verdict.reason == case["expect"]["reason"]
