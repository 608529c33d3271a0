"""Laws of a call under the standard strategy, for any answers, schedules, hints, budgets and
deadlines.
"""

from __future__ import annotations

from math import inf
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from forbear import (
    Exponential,
    Failure,
    FailureKind,
    Fixed,
    Phase,
    Reason,
    RetryBudget,
    RetryPolicy,
    RetryRefused,
    RetryToken,
    StandardStrategy,
)
from forbear.core.call import Call
from forbear.core.request import Request
from forbear.core.verdict import GiveUp, RetryAfter

UTC = 1_767_225_600.0
KEY = [("Idempotency-Key", "8e03978e-40d5-43e8-bc93-6894a57f9324")]
SLACK = 1e-9

backoffs = st.builds(
    lambda base, more, factor, jitter, immediate: Exponential(
        base, base + more, factor, jitter, immediate
    ),
    st.floats(0, 10),
    st.floats(0, 50),
    st.floats(1, 5),
    st.sampled_from(["full", "equal", "decorrelated", "none", 0.2]),
    st.booleans(),
) | st.builds(Fixed, st.floats(0, 20))

policies = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 8),
    backoff=backoffs,
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
outcomes = st.lists(st.tuples(answers | errors, st.floats(0, 5)), min_size=1, max_size=12)
requests = st.tuples(
    st.sampled_from(["GET", "PUT", "POST", "PATCH", "LOCK"]), st.sampled_from([(), tuple(KEY)])
)
deadlines = st.just(inf) | st.floats(0, 60)


def play(
    call: Call, steps: list[tuple[Any, float]], *, initial: float = 0.0
) -> list[tuple[Any, float, RetryAfter | GiveUp | None]]:
    """Send as the drivers do, with these outcomes; return each outcome, its instant and its
    verdict.
    """
    now, told = initial, []
    for outcome, elapsed in steps:
        call.sending(now)
        now += elapsed
        verdict: RetryAfter | GiveUp | None
        if len(outcome) == 2:
            verdict = call.after_error(Failure(outcome[0], outcome[1], error="E"), now)
        else:
            status, hint, more, flagged = outcome
            lines = [*(() if hint is None else (("Retry-After", str(hint)),)), *more]
            verdict = call.after_response(status, lines, now, utc_now=UTC, flagged=flagged)
        told.append((outcome, now, verdict))
        if not isinstance(verdict, RetryAfter):
            break
        now += verdict.delay
    return told


@settings(deadline=None)
@given(policies, requests, deadlines, outcomes, st.integers())
def test_the_laws_of_waits(
    policy: RetryPolicy,
    request: tuple[str, Any],
    deadline_at: float,
    steps: list[tuple[Any, float]],
    seed: int,
) -> None:
    """In [0, cap] without a hint, never below one, never past the deadline, never more attempts
    than allowed.
    """
    strategy = StandardStrategy(policy, random=Random(seed).random)
    call = Call(
        policy,
        Request(request[0], "http://a:80", request[1]),
        strategy,
        now=0.0,
        deadline_at=deadline_at,
    )
    told = play(call, steps)
    longest = max(cap_of(policy.backoff), cap_of(policy.throttle_backoff or policy.backoff))
    for outcome, now, verdict in told:
        if not isinstance(verdict, RetryAfter):
            continue
        hint = hint_of(outcome, policy)
        assert verdict.delay >= 0
        if hint is None:
            assert verdict.delay <= longest
        else:
            asked = float(hint)
            assert verdict.delay >= asked
            assert (
                verdict.delay <= max(longest, asked + policy.hint_spread * max(asked, 1.0)) + SLACK
            )
            assert asked <= policy.max_retry_after
        assert now + verdict.delay < deadline_at
    assert call.attempts == len(told) <= policy.max_attempts


def hint_of(outcome: Any, policy: RetryPolicy) -> Any:
    """Of a success nothing is a hint (rule H1), also where ``retry_if`` calls it a failure."""
    return None if len(outcome) == 2 or outcome[0] < 300 or policy.hints == "ignore" else outcome[1]


def cap_of(backoff: Any) -> float:
    return backoff.seconds if isinstance(backoff, Fixed) else backoff.cap  # type: ignore[no-any-return]


@settings(deadline=None)
@given(policies, requests, outcomes, st.integers())
def test_the_laws_of_safety(
    policy: RetryPolicy, request: tuple[str, Any], steps: list[tuple[Any, float]], seed: int
) -> None:
    """A retry follows only what was not sent, or a request that is safe to repeat; never an
    explicit no.
    """
    strategy = StandardStrategy(policy, random=Random(seed).random)
    method, headers = request
    call = Call(policy, Request(method, "http://a:80", headers), strategy, now=0.0)
    for outcome, _, verdict in play(call, steps):
        if isinstance(verdict, RetryAfter):
            unsent = len(outcome) == 2 and outcome[1] is Phase.UNSENT
            assert unsent or method in policy.methods or headers
            assert len(outcome) == 2 or outcome[0] < 400 or "false" not in dict(outcome[2]).values()


class Counting:
    """A strategy that counts what it gave, and answers anything."""

    quiet = False

    def __init__(self, random: Random) -> None:
        self.random = random
        self.given = 0
        self.ended: list[int] = []

    def acquire_initial_token(self, scope: str, now: float) -> RetryToken:
        if self.random.random() < 0.1:
            raise RetryRefused(Reason.BUDGET_EXHAUSTED)
        self.given += 1
        return RetryToken(self.random.choice([0.0, 1.0, -1.0, inf]), state=self.given)

    def refresh_token(
        self, token: RetryToken, failure: Failure, now: float, *, latest: float
    ) -> RetryToken:
        answer = self.random.choice(["delay"] * 6 + ["refuse", "raise", "nonsense", "nothing"])
        if answer == "refuse":
            raise RetryRefused(Reason.CIRCUIT_OPEN)
        if answer == "raise":
            raise KeyError("boom")
        if answer == "nothing":
            return None  # type: ignore[return-value]
        token.delay = -1.0 if answer == "nonsense" else self.random.random() * 10
        return token

    def record_success(self, token: RetryToken, now: float) -> None:
        self.ended.append(token.state)

    release = record_success


@settings(deadline=None)
@given(policies, requests, deadlines, outcomes, st.booleans(), st.integers())
def test_tokens_are_conserved(
    policy: RetryPolicy,
    request: tuple[str, Any],
    deadline_at: float,
    steps: list[tuple[Any, float]],
    opened: bool,
    seed: int,
) -> None:
    """Whatever a strategy answers and wherever the call stops, every token given is ended exactly
    once.
    """
    strategy = Counting(Random(seed))
    call = Call(
        policy,
        Request(request[0], "http://a:80", request[1]),
        strategy,
        now=0.0,
        deadline_at=deadline_at,
    )
    if opened:
        try:
            call.open(0.0)
        except RetryRefused:  # the delay it wants first does not fit before the deadline
            call.release(0.0)
            assert strategy.ended == [1]
            return
    told = play(call, steps)
    assert len(told) == len(call.trail.entries)
    call.release(told[-1][1])  # what drivers do on every way out
    call.release(told[-1][1])
    assert sorted(strategy.ended) == list(range(1, strategy.given + 1))


@settings(deadline=None)
@given(
    policies,
    st.lists(outcomes, min_size=1, max_size=12),
    st.floats(1, 10),
    st.integers(),
)
def test_budget_tokens_are_conserved(
    policy: RetryPolicy, calls: list[list[tuple[Any, float]]], burst: float, seed: int
) -> None:
    """What is missing from a budget without income is what was paid for retries that were sent."""
    budget = RetryBudget(ratio=0, floor_per_second=0, burst=burst)
    strategy = StandardStrategy(policy, budget=budget, random=Random(seed).random)
    paid = 0.0
    for steps in calls:
        call = Call(policy, Request("GET", "http://a:80"), strategy, now=0.0)
        told = play(call, steps)
        call.release(told[-1][1])
        # Each verdict bought the sending that followed it; the last one's may not have been sent.
        for outcome, _, verdict in told[:-1]:
            assert isinstance(verdict, RetryAfter)
            paid += 1.0 if hint_of(outcome, policy) is None else 0.25
    assert abs(burst - paid - budget.tokens("http://a:80", 0.0)) < 1e-6
