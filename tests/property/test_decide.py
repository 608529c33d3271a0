"""Laws of decisions under the default limits, for any answers, schedules, hints and deadlines."""

import json
from math import inf
from pathlib import Path
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
CASES = json.loads(CORPUS.read_text(encoding="utf-8"))["cases"]

backoffs = st.builds(Fixed, st.floats(0, 20)) | st.builds(
    lambda base, more, *rest: Exponential(base, base + more, *rest),
    st.floats(0, 10), st.floats(0, 50), st.floats(1, 5),
    st.sampled_from(["full", "equal", "decorrelated", "none", 0.2]), st.none() | st.floats(0, 2),
)  # fmt: skip
LINES = [
    ("Retry-After", "0"), ("Retry-After", "3"), ("retry-after", " 2.5 "), ("Retry-After", "90"),
    ("Retry-After", "soon"), ("retry-after-ms", "1500"), ("grpc-retry-pushback-ms", "700"),
    ("grpc-retry-pushback-ms", "-1"), ("x-should-retry", "true"), ("X-Should-Retry", "False"),
    ("x-should-retry", "maybe"), ("Idempotent-Replayed", "true"), ("X-Request-Id", "1"),
]  # fmt: skip
lines = st.lists(st.sampled_from(LINES), max_size=2, unique_by=lambda line: line[0].lower())
STATUSES = [200, 302, 400, 401, 403, 404, 408, 409, 425, 429, 500, 502, 503, 504, 529]
KINDS = sorted(set(FailureKind) - {FailureKind.STATUS})
ends = st.one_of(
    st.builds(Outcome, st.sampled_from([429, 500, 503])),
    st.builds(Outcome, st.sampled_from(STATUSES), lines.map(tuple), st.booleans()),
    st.builds(Outcome, kind=st.sampled_from(KINDS), phase=st.sampled_from(sorted(Phase))),
    st.builds(Outcome, kind=st.sampled_from(["refused", "reset", "dns", "read-timeout"]),
        phase=st.sampled_from(["unsent", "sent"])),
    st.just(Outcome(kind="reset", phase="sent", is_stale=True)),
)  # fmt: skip
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
situations = st.fixed_dictionaries({
    "method": st.sampled_from(["GET", "GET", "PUT", "POST", "POST", "PATCH"]),
    "keyed": st.booleans(), "draw": st.sampled_from([0.0, 0.25, 0.999]),
    "deadline_at": st.sampled_from([inf, inf, 0.5, 2.0, 8.0]),
    "key_until": st.sampled_from([inf, inf, 0.5, 2.0, 8.0]), "body_is_gone": rarely,
    "barred": st.sampled_from([None] * 4 + [Reason.CALLER_SAID_NO, Reason.NESTED_CALL]),
    "stop": st.sampled_from([None, None, None, GiveUp(Reason.CIRCUIT_OPEN, 1.0)]),
})  # fmt: skip
calls = st.lists(
    st.tuples(situations, st.lists(ends, min_size=1, max_size=6)), min_size=1, max_size=5
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
    ruled, calls, st.booleans(), st.booleans(), st.sampled_from([0.0, 0.5, 2.0, 5.0]),
    st.floats(0.01, 3),
)  # fmt: skip
def test_each_retry_is_decided_by_the_ten_rules(
    policy, calls, has_gate, has_breaker, tokens, elapsed
):
    """Drawn calls, one after the other through the same limits, against an oracle of the rules.

    Only a retry is paid for, and what bought no sending comes back.
    """
    gate, budget = RetryGate() if has_gate else None, RetryBudget(0, 0, 5)
    breaker = CircuitBreaker(2, failure_rate=None) if has_breaker else None
    limits, clock = limits_of(gate=gate, breaker=breaker, budget=budget), FakeClock()
    unheard = dict.fromkeys(("retried", "gave_up", "not_retried"), lambda *told: None)
    events = SimpleNamespace(**unheard)
    settings: Any = SimpleNamespace(clock=clock, before_attempt=None, events=events)
    budget.spend(ORIGIN, 5 - tokens, clock.monotonic())
    for situation, outcomes in calls:
        oracle, paid = Oracle(policy, **situation), []
        call, before = begun(oracle, limits, clock.monotonic()), budget.tokens(ORIGIN, 0.0)
        for end in outcomes:
            call.sending(clock.monotonic())
            call.barred = oracle.barred
            clock.advance(elapsed)
            now, failure = clock.monotonic(), failure_from(call, end)
            left = budget.tokens(ORIGIN, now)
            delay = settle(call, settings, failure)
            if delay is not None:
                paid.append(1.0 if failure.hint.delay is None else 0.25)
            assert budget.tokens(ORIGIN, now) == pytest.approx(before - sum(paid))
            if failure is None:
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
        limits.leave(call, clock.monotonic())
        kept = before - sum(paid[: call.attempts - 1])  # the last one may not have been sent
        assert budget.tokens(ORIGIN, clock.monotonic()) == pytest.approx(kept)


@pytest.mark.parametrize(
    "case", [case for case in CASES if "status" in case["outcome"]], ids=lambda case: case["id"]
)
def test_the_oracle_knows_the_corpus(case):
    outcome = Outcome(case["outcome"]["status"], tuple(map(tuple, case["outcome"]["headers"])))
    is_gone = case["body"] == "one-shot" and case["body_read"]
    keyed = Request(case["method"], ORIGIN, list(map(tuple, case["headers"]))).keyed
    oracle = Oracle(RetryPolicy(), case["method"], keyed, 0.5, body_is_gone=is_gone)
    verdict = oracle.verdict(outcome, 0.0, may_be_fast=True, refused_for=0.0, tokens=1.0)
    assert (type(verdict) is SendAgain) is case["expect"]["may_retry"]
    if type(verdict) is GiveUp:
        assert verdict.reason == case["expect"]["reason"]
