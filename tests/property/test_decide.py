"""Laws of decisions: drawn calls against an oracle of the ten rules.

The oracle is written from the rules of tests/corpus (S1 to S10 of retry_safety, H1 to H8 of
server_hints) and from what the policy's fields promise, without the code of forbear. So a rule that
is lost in ``decide``, or changes its place, is found by any drawn call on which the two disagree.
"""

from dataclasses import dataclass
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forbear import Exponential, FailureKind, Fixed, Reason, RetryBudget, RetryGate, RetryPolicy
from forbear.addons.breaker import CircuitBreaker
from forbear.core.call import Call
from forbear.core.decide import answered
from forbear.core.outcome import GiveUp, SendAgain
from forbear.core.request import Request
from forbear.engine.loop import settle
from forbear.engine.settings import Events, limits_of
from forbear.strategies import Failure, Phase
from forbear.testing import FakeClock

pytestmark = pytest.mark.release

ORIGIN = "http://a:80"
UTC = 1_767_225_600.0
KEY = [("Idempotency-Key", "8e03978e-40d5-43e8-bc93-6894a57f9324")]
IDEMPOTENT = {"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "QUERY"}  # S2
NEVER = {  # S9
    **dict.fromkeys(("certificate", "decoding", "permanent"), Reason.PERMANENT_ERROR),
    "pool": Reason.LOCAL_SATURATION, "unknown": Reason.UNKNOWN_ERROR,
}  # fmt: skip
# Of the client or of a gateway: the work may still go on.
TIMEOUTS = {"connect-timeout", "read-timeout", "write-timeout", "timeout", 408, 504, 522, 524}
LEAST_ATTEMPT = 0.001


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended: a status with header lines, or an error of a kind, in a phase."""

    status: int | None = None
    lines: tuple[tuple[str, str], ...] = ()
    flagged: bool = False  # ``retry_if`` returned True
    kind: str = "status"
    phase: str = "answered"
    is_stale: bool = False  # the connection had carried a request before

    def named(self, name: str) -> list[str]:
        return [value.strip().lower() for key, value in self.lines if key.lower() == name]

    @property
    def advice(self) -> bool | None:
        """The server's yes or no. (H8)"""
        said = self.named("x-should-retry")
        if "false" in said or not all(map(str.isdigit, self.named("grpc-retry-pushback-ms"))):
            return False
        return True if "true" in said else None

    @property
    def named_time(self) -> tuple[float, str] | None:
        """The seconds that the server asked for, and where. (H2)"""
        units = {"retry-after-ms": 1000.0, "grpc-retry-pushback-ms": 1000.0, "retry-after": 1.0}
        for name, unit in units.items():
            for value in self.named(name):
                if value.replace(".", "", 1).isdigit():
                    return float(value) / unit, name
        return None


@dataclass
class Oracle:
    """One call."""

    policy: RetryPolicy
    method: str
    keyed: bool
    draw: float  # what ``random`` returns, each time
    deadline_at: float = inf
    key_until: float = inf
    body_is_gone: bool = False
    barred: Reason | None = None  # by the caller, or by another retry loop
    stop: GiveUp | None = None
    was_executed: bool = False  # an attempt so far, as far as anybody can know
    attempts: int = 0
    stale: int = 0
    rejected: int = 0  # responses 401
    has_begun_fast: bool = False
    previous: float = 0.0

    def verdict(
        self, outcome: Outcome, now: float, *, may_be_fast: bool, refused_for: float, tokens: float
    ) -> Any:
        """What becomes of the next attempt's outcome; None: it is accepted.

        The gate has the last word: it may hold or refuse a retry to an unhealthy origin. Gate and
        circuit are as this outcome has left them; ``tokens`` are there.
        """
        policy = self.policy
        self.attempts += 1
        self.stale += outcome.is_stale
        time = outcome.named_time
        if outcome.status is None:
            if outcome.kind in NEVER:  # 3
                return GiveUp(NEVER[outcome.kind])
            if outcome.kind not in policy.failures:  # 1
                return None
        else:
            if not self.is_failure(outcome):  # 1
                return None
            if outcome.advice is False:  # 2
                return GiveUp(Reason.SERVER_SAID_NO)
            if self.barred is Reason.CALLER_SAID_NO:
                return GiveUp(Reason.CALLER_SAID_NO)
            is_replayed = self.keyed and "true" in outcome.named("idempotent-replayed")  # S6
            if is_replayed and outcome.advice is None:
                return GiveUp(Reason.REPLAYED_RESPONSE)
        if policy.hints == "ignore":
            time = None
        is_refused = outcome.phase == "unsent" or outcome.status in policy.unexecuted_statuses
        self.was_executed = self.was_executed or not is_refused
        relies_on_key = self.was_executed and self.method not in IDEMPOTENT  # S8, S10
        if relies_on_key and not self.keyed:  # 4
            return GiveUp(Reason.METHOD_NOT_REPLAYABLE)
        if relies_on_key and now > self.key_until:
            return GiveUp(Reason.KEY_EXPIRED)
        if self.body_is_gone:  # 5
            return GiveUp(Reason.BODY_CONSUMED)
        if self.barred is Reason.NESTED_CALL:
            return GiveUp(Reason.NESTED_CALL)
        has_spare = self.stale and policy.max_attempts > 1  # one more than the policy says
        if self.attempts >= policy.max_attempts + bool(has_spare):  # 6
            return GiveUp(Reason.ATTEMPTS_EXHAUSTED)
        if self.stop is not None:
            return self.stop
        latest = self.deadline_at - now - LEAST_ATTEMPT
        asked, source = time or (0.0, "backoff")
        if asked:  # 7
            spread = self.draw * policy.hint_spread * max(asked, 1.0)
            delay = asked + spread if asked + spread <= latest or asked > latest else latest
        else:
            source = "backoff"
            self.rejected += outcome.status == 401
            if outcome.status != 401:
                delay = self.backoff(outcome, time, latest, may_be_fast)
            elif self.rejected > 1:
                return GiveUp(Reason.ATTEMPTS_EXHAUSTED)
            else:
                delay = 0.0
        if asked > policy.max_retry_after:
            return GiveUp(Reason.RETRY_AFTER_TOO_LONG, asked)
        if delay > latest:  # 8
            return GiveUp(Reason.DEADLINE, delay)
        if relies_on_key and now + delay > self.key_until:
            return GiveUp(Reason.KEY_EXPIRED, delay)
        if refused_for > delay:  # 9
            return GiveUp(Reason.CIRCUIT_OPEN, refused_for)
        if tokens < (1.0 if time is None else 0.25):  # 10
            return GiveUp(Reason.BUDGET_EXHAUSTED, delay)
        return SendAgain(delay, source)

    def is_failure(self, outcome: Outcome) -> bool:
        """By the policy, the server or ``retry_if``. (S4, S5)"""
        policy, status = self.policy, outcome.status
        if outcome.flagged or status in {*policy.statuses, *policy.unexecuted_statuses}:
            return True
        if status < 400:  # type: ignore[operator]
            return False
        if status == 409 and self.keyed and policy.conflict_with_key:
            return True
        is_hinted = status in policy.hinted_statuses and outcome.named_time is not None
        return is_hinted or outcome.advice is True

    def backoff(self, outcome: Outcome, time: Any, latest: float, may_be_fast: bool) -> float:
        """The client's own delay; the first one is fast where nothing speaks against it."""
        policy = self.policy
        schedule: Any = policy.backoff
        is_throttle = outcome.status == 429 or (outcome.status == 503 and time is not None)
        if policy.throttle_backoff is not None and is_throttle:
            schedule = policy.throttle_backoff
        fast = getattr(schedule, "fast_first", None)
        is_timeout = outcome.kind in TIMEOUTS or outcome.status in TIMEOUTS
        is_fast = fast is not None and not is_timeout and may_be_fast
        if not self.has_begun_fast and (outcome.is_stale or is_fast):
            self.has_begun_fast = True
            is_unsent = outcome.phase == "unsent" and outcome.kind in ("reset", "unprocessed")
            if is_unsent or outcome.is_stale:  # no new connection has failed yet
                return 0.0
            return float(min(fast, max(latest, 0.0)) * self.draw)
        number = self.attempts - self.has_begun_fast
        delay = wait(schedule, number, self.previous, self.draw)
        if delay > latest:  # drawn again in what fits, if half of the range does
            least = wait(schedule, number, self.previous, 0.0)
            most = wait(schedule, number, self.previous, 1.0)
            if least <= latest and latest - least >= (most - least) / 2:
                delay = least + (latest - least) * self.draw
        self.previous = delay
        return delay


def wait(schedule: Any, number: int, previous: float, draw: float) -> float:
    """The wait after attempt ``number``, as its docstring has it."""
    if not isinstance(schedule, Exponential):
        return float(schedule.seconds)
    base, cap, jitter = schedule.base, schedule.cap, schedule.jitter
    if jitter == "decorrelated":
        return min(base + draw * (3 * max(previous, base) - base), cap)
    full = min(base * schedule.factor ** (number - 1), cap)
    if not isinstance(jitter, str):
        return min(full * (1 - jitter + 2 * jitter * draw), cap)
    return full * {"none": 1.0, "full": draw, "equal": 0.5 + 0.5 * draw}[jitter]


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


@settings(max_examples=400)
@given(
    ruled, calls, st.booleans(), st.booleans(), st.sampled_from([0.0, 0.5, 2.0, 5.0]),
    st.floats(0.01, 3),
)  # fmt: skip
def test_each_retry_is_decided_by_the_ten_rules(
    policy, calls, has_gate, has_breaker, tokens, elapsed
):
    """One call after the other. Only a retry is paid for; what bought no sending comes back."""
    gate, budget = RetryGate() if has_gate else None, RetryBudget(0, 0, 5)
    breaker = CircuitBreaker(2, failure_rate=None) if has_breaker else None
    limits, clock = limits_of(gate=gate, breaker=breaker, budget=budget), FakeClock()
    settings: Any = SimpleNamespace(clock=clock, rewrites=(), events=Events("property", ()))
    budget.spend(ORIGIN, 5 - tokens, clock.monotonic())
    for situation, outcomes in calls:
        oracle, paid = Oracle(policy, **situation), []
        start, before = clock.monotonic(), budget.tokens(ORIGIN, 0.0)
        request = Request(oracle.method, ORIGIN, KEY if oracle.keyed else ())
        call = Call(policy, request, limits, start, policy.max_attempts)
        oracle.deadline_at = call.deadline_at = oracle.deadline_at + start
        oracle.key_until = call.key_until = oracle.key_until + start
        request.guard = SimpleNamespace(ready=not oracle.body_is_gone)
        call.stop, call.random = oracle.stop, lambda draw=oracle.draw: draw
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
            facts = {"may_be_fast": may_be_fast, "refused_for": refused_for, "tokens": left}
            expected = oracle.verdict(end, now, **facts)
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
