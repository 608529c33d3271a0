"""Call: the ten steps of a decision, their order, and the arithmetic of waits and deadlines.

Facts and instants go in, verdicts come out; nothing sleeps. The numbers are worked out by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, nan
from typing import Any

import pytest

from forbear import (
    CallRecord,
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
from forbear.core.call import LEAST_ATTEMPT, Call
from forbear.core.record import record_from
from forbear.core.request import Request
from forbear.core.verdict import GiveUp, RetryAfter

ORIGIN = "http://origin.example:80"
UTC = 1_767_225_600.0
KEY = [("Idempotency-Key", "8e03978e-40d5-43e8-bc93-6894a57f9324")]
RESET = Failure(FailureKind.RESET, Phase.SENT, error="ReadError")
UNSENT = Failure(FailureKind.REFUSED, Phase.UNSENT, error="ConnectError")
STATUS = FailureKind.STATUS

Verdict = RetryAfter | GiveUp | None


def half() -> float:
    return 0.5


def draws(*values: float) -> Callable[[], float]:
    left = list(values)
    return lambda: left.pop(0)


def a_policy(**fields: Any) -> RetryPolicy:
    return RetryPolicy(**{"backoff": Fixed(1.0), "hint_spread": 0.0, **fields})


def a_call(
    policy: RetryPolicy | None = None,
    *,
    method: str = "GET",
    headers: Sequence[tuple[str, str]] = (),
    budget: RetryBudget | None = None,
    strategy: Any = None,
    random: Callable[[], float] = half,
    attempts: int = 1,
    now: float = 0.0,
    retries_used: int = 0,
    **limits: Any,
) -> Call:
    """A call whose attempt number ``attempts`` has been sent."""
    policy = a_policy() if policy is None else policy
    if strategy is None:
        strategy = StandardStrategy(policy, budget=budget, random=random)
    call = Call(policy, Request(method, ORIGIN, list(headers)), strategy, now=now, **limits)
    if retries_used:
        call.follow(retries_used)
    for _ in range(attempts):
        call.sending(now)
    return call


def answered(
    call: Call,
    status: int = 503,
    hint: float | str | None = None,
    now: float = 0.0,
    *more: Any,
    **facts: Any,
) -> Verdict:
    lines = [] if hint is None else [("Retry-After", str(hint))]
    return call.after_response(status, [*lines, *more], now, utc_now=UTC, **facts)


def story(call: Call, now: float) -> CallRecord:
    return record_from(call.close_trail(now))


def empty_budget() -> RetryBudget:
    """One that has nothing, now or later."""
    budget = RetryBudget(ratio=0, floor_per_second=0, burst=1)
    assert budget.spend(ORIGIN, 1.0, 0.0)
    return budget


class Refusing:
    """A strategy that would refuse for its breaker."""

    quiet = False

    def acquire_initial_token(self, scope: str, now: float) -> RetryToken:
        return RetryToken()

    def refresh_token(
        self, token: RetryToken, failure: Failure, now: float, *, latest: float
    ) -> RetryToken:
        raise RetryRefused(Reason.CIRCUIT_OPEN, retry_after=5.0)

    def record_success(self, token: RetryToken, now: float) -> None: ...

    def release(self, token: RetryToken, now: float) -> None: ...


# --- each step --------------------------------------------------------------------------------

NOT_AGAIN = ("x-should-retry", "false")
REPLAYED = ("Idempotent-Replayed", "true")


def step_1_status() -> tuple[Call, Verdict]:
    call = a_call()
    return call, answered(call, 404)


def step_1_success() -> tuple[Call, Verdict]:
    call = a_call()
    return call, answered(call, 200)


def step_1_kind() -> tuple[Call, Verdict]:
    call = a_call(a_policy(failures={FailureKind.REFUSED}))
    return call, call.after_error(RESET, 0.0)


def step_2_no() -> tuple[Call, Verdict]:
    call = a_call()
    return call, answered(call, 503, None, 0.0, NOT_AGAIN)


def step_2_replayed() -> tuple[Call, Verdict]:
    call = a_call(headers=KEY)
    return call, answered(call, 503, None, 0.0, REPLAYED)


def step_3(kind: FailureKind) -> Callable[[], tuple[Call, Verdict]]:
    def run() -> tuple[Call, Verdict]:
        call = a_call()
        return call, call.after_error(Failure(kind, Phase.UNSENT), 0.0)

    return run


def step_4_method() -> tuple[Call, Verdict]:
    call = a_call(method="POST")
    return call, answered(call)


def step_4_key() -> tuple[Call, Verdict]:
    call = a_call(method="POST", headers=KEY, key_lifetime=10.0)
    return call, answered(call, now=10.5)


def step_5_body() -> tuple[Call, Verdict]:
    call = a_call()
    return call, answered(call, body_ready=False)


def step_5_nested() -> tuple[Call, Verdict]:
    call = a_call()
    return call, answered(call, nested=True)


def step_6() -> tuple[Call, Verdict]:
    call = a_call(attempts=4)
    return call, answered(call)


def step_7() -> tuple[Call, Verdict]:
    call = a_call()
    return call, answered(call, hint=61)


def step_8() -> tuple[Call, Verdict]:
    call = a_call(deadline_at=0.5)
    return call, answered(call)


def step_9() -> tuple[Call, Verdict]:
    call = a_call(strategy=Refusing())
    return call, answered(call)


def step_10() -> tuple[Call, Verdict]:
    call = a_call(budget=empty_budget())
    return call, answered(call)


STEPS: list[Any] = [
    pytest.param(step_1_status, None, None, id="1 status"),
    pytest.param(step_1_success, None, None, id="1 success"),
    pytest.param(step_1_kind, None, None, id="1 kind"),
    pytest.param(step_2_no, Reason.SERVER_SAID_NO, None, id="2 no"),
    pytest.param(step_2_replayed, Reason.REPLAYED_RESPONSE, None, id="2 replayed"),
    pytest.param(step_3(FailureKind.CERTIFICATE), Reason.PERMANENT_ERROR, None, id="3 permanent"),
    pytest.param(step_3(FailureKind.POOL), Reason.LOCAL_SATURATION, None, id="3 saturation"),
    pytest.param(step_3(FailureKind.UNKNOWN), Reason.UNKNOWN_ERROR, None, id="3 unknown"),
    pytest.param(step_4_method, Reason.METHOD_NOT_REPLAYABLE, None, id="4 method"),
    pytest.param(step_4_key, Reason.KEY_EXPIRED, None, id="4 key"),
    pytest.param(step_5_body, Reason.BODY_CONSUMED, None, id="5 body"),
    pytest.param(step_5_nested, Reason.NESTED_CALL, None, id="5 nested"),
    pytest.param(step_6, Reason.ATTEMPTS_EXHAUSTED, None, id="6 attempts"),
    pytest.param(step_7, Reason.RETRY_AFTER_TOO_LONG, 61.0, id="7 too long"),
    pytest.param(step_8, Reason.DEADLINE, 1.0, id="8 deadline"),
    pytest.param(step_9, Reason.CIRCUIT_OPEN, 5.0, id="9 breaker"),
    pytest.param(step_10, Reason.BUDGET_EXHAUSTED, 1.0, id="10 budget"),
]


@pytest.mark.parametrize(("run", "reason", "delay"), STEPS)
def test_each_step_refuses_with_its_reason(
    run: Callable[[], tuple[Call, Verdict]], reason: Reason | None, delay: float | None
) -> None:
    """One reason per refusal, on the verdict and on the record; what was not refused has none."""
    call, verdict = run()
    assert verdict == (None if reason is None else GiveUp(reason, delay))
    record = story(call, 0.0)
    assert (record.reason, record.refused_delay) == (reason, delay)


def test_every_reason_is_reached_by_some_step() -> None:
    reached = {case.values[1] for case in STEPS} - {None}
    elsewhere = {Reason.RESPONSE_DELIVERED, Reason.STRATEGY_FAILED}
    assert reached | elsewhere == set(Reason)


# Two refusals hold: the earlier one is given. Each row breaks one step and all that follow it.
WORST: dict[str, Any] = {
    "deadline_at": 0.5,
    "attempts": 4,
    "key_lifetime": 1.0,
    "now": 0.0,
}


def worst(method: str = "POST", **changes: Any) -> Call:
    """A call that everything speaks against."""
    policy = a_policy(max_retry_after=5.0)
    options: dict[str, Any] = {**WORST, "method": method, "budget": empty_budget(), **changes}
    return a_call(policy, **options)


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        pytest.param(lambda: answered(worst(), 404, 9, 0.0, NOT_AGAIN), None, id="1 before 2"),
        pytest.param(
            lambda: answered(
                worst(headers=KEY), 503, 9, 0.0, NOT_AGAIN, REPLAYED, body_ready=False
            ),
            Reason.SERVER_SAID_NO,
            id="2: no before replayed",
        ),
        pytest.param(
            lambda: answered(worst(headers=KEY), 503, 9, 2.0, REPLAYED, body_ready=False),
            Reason.REPLAYED_RESPONSE,
            id="2 before 4",
        ),
        pytest.param(
            lambda: worst().after_error(
                Failure(FailureKind.POOL, Phase.SENT), 0.0, body_ready=False, nested=True
            ),
            Reason.LOCAL_SATURATION,
            id="3 before 4",
        ),
        pytest.param(
            lambda: worst().after_error(RESET, 0.0, body_ready=False, nested=True),
            Reason.METHOD_NOT_REPLAYABLE,
            id="4 before 5",
        ),
        pytest.param(
            lambda: worst(headers=KEY).after_error(RESET, 2.0, body_ready=False, nested=True),
            Reason.KEY_EXPIRED,
            id="4: expired key before 5",
        ),
        pytest.param(
            lambda: answered(worst("GET"), 503, 9, body_ready=False, nested=True),
            Reason.BODY_CONSUMED,
            id="5: body before nested",
        ),
        pytest.param(
            lambda: answered(worst("GET"), 503, 9, nested=True), Reason.NESTED_CALL, id="5 before 6"
        ),
        pytest.param(
            lambda: answered(worst("GET"), 503, 9), Reason.ATTEMPTS_EXHAUSTED, id="6 before 7"
        ),
        pytest.param(
            lambda: answered(worst("GET", attempts=1), 503, 9),
            Reason.RETRY_AFTER_TOO_LONG,
            id="7 before 8",
        ),
        pytest.param(
            lambda: answered(worst("GET", attempts=1), 503, 4), Reason.DEADLINE, id="8 before 10"
        ),
        pytest.param(
            lambda: answered(worst("GET", attempts=1, deadline_at=inf), 503, 4),
            Reason.BUDGET_EXHAUSTED,
            id="10",
        ),
    ],
)
def test_where_two_refusals_hold_the_earlier_wins(
    run: Callable[[], Verdict], reason: Reason | None
) -> None:
    """The order is the contract: a caller who fixes the named cause meets the next one, not a
    surprise.
    """
    verdict = run()
    assert (verdict.reason if isinstance(verdict, GiveUp) else verdict) == reason


def test_a_refusal_of_the_deadline_takes_nothing() -> None:
    """Only the last step takes something."""
    budget = RetryBudget(burst=20)
    assert answered(a_call(budget=budget, deadline_at=0.5)) == GiveUp(Reason.DEADLINE, 1.0)
    assert answered(a_call(budget=budget), hint=61) == GiveUp(Reason.RETRY_AFTER_TOO_LONG, 61.0)
    assert answered(a_call(budget=budget, attempts=4)) == GiveUp(Reason.ATTEMPTS_EXHAUSTED)
    assert budget.tokens(ORIGIN, 0.0) == 20


# --- what is a failure ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "hint", "policy", "retried"),
    [
        pytest.param(403, 2, {"hinted_statuses": {403}}, True, id="hinted status with a hint"),
        pytest.param(403, None, {"hinted_statuses": {403}}, False, id="hinted status without"),
        pytest.param(
            403,
            "soon",
            {"hinted_statuses": {403}},
            False,
            id="hinted status with an unreadable one",
        ),
        pytest.param(403, 2, {}, False, id="not asked for"),
        pytest.param(
            403,
            2,
            {"hinted_statuses": {403}, "hints": "ignore"},
            True,
            id="the hint still flags it",
        ),
        pytest.param(503, None, {"statuses": ()}, False, id="no statuses"),
        pytest.param(501, None, {"statuses": {501}}, True, id="a status of one's own"),
    ],
)
def test_which_statuses_are_failures(
    status: int, hint: Any, policy: dict[str, Any], retried: bool
) -> None:
    assert isinstance(answered(a_call(a_policy(**policy)), status, hint), RetryAfter) is retried


@pytest.mark.parametrize("status", [200, 204, 302, 404])
def test_retry_if_widens(status: int) -> None:
    """A body that says "try again" under 200 is a failure like 503, with every later rule."""
    assert answered(a_call(), status, flagged=True) == RetryAfter(1.0, "backoff")
    assert answered(a_call(method="POST"), status, flagged=True) == GiveUp(
        Reason.METHOD_NOT_REPLAYABLE
    )
    assert answered(a_call(attempts=4), status, flagged=True) == GiveUp(Reason.ATTEMPTS_EXHAUSTED)


def test_retry_if_does_not_outvote_the_servers_no() -> None:
    assert answered(a_call(), 404, None, 0.0, NOT_AGAIN, flagged=True) == GiveUp(
        Reason.SERVER_SAID_NO
    )


def test_a_kind_that_the_policy_does_not_retry_is_the_callers_to_see() -> None:
    """``failures={REFUSED}``: refused connections, not read timeouts."""
    policy = a_policy(failures={FailureKind.REFUSED})
    assert isinstance(a_call(policy).after_error(UNSENT, 0.0), RetryAfter)
    call = a_call(policy)
    assert call.after_error(Failure(FailureKind.READ_TIMEOUT, Phase.SENT), 0.0) is None
    assert story(call, 0.0).attempts[0].failure is FailureKind.READ_TIMEOUT
    empty = a_call(a_policy(failures=()))
    assert empty.after_error(UNSENT, 0.0) is None


@pytest.mark.parametrize(("attempts", "retried"), [(1, True), (2, True), (3, False), (4, False)])
def test_every_sending_counts(attempts: int, retried: bool) -> None:
    """``max_attempts=3`` is three sendings in all."""
    assert (
        isinstance(answered(a_call(a_policy(max_attempts=3), attempts=attempts)), RetryAfter)
        is retried
    )


def test_one_attempt_means_never_retry() -> None:
    assert answered(a_call(RetryPolicy.disabled())) == GiveUp(Reason.ATTEMPTS_EXHAUSTED)


def test_the_retries_of_earlier_hops_count_and_a_hops_first_sending_does_not() -> None:
    """A redirected call shares its retries: with 3 of 3 used, the next hop is sent once."""
    call = a_call(a_policy(max_attempts=4), retries_used=3)
    assert call.attempts == 4
    assert answered(call) == GiveUp(Reason.ATTEMPTS_EXHAUSTED)
    call = a_call(a_policy(max_attempts=4), retries_used=2)
    assert isinstance(answered(call), RetryAfter)


# --- delays -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hint", "backoff", "delay", "source"),
    [
        pytest.param(5, Fixed(1.0), 5.0, "retry-after", id="hint longer"),
        pytest.param(2, Fixed(7.0), 7.0, "backoff", id="backoff longer"),
        pytest.param(0, Fixed(0.5), 0.5, "backoff", id="hint 0 is a floor of 0"),
        pytest.param(0, Fixed(0), 0.0, "retry-after", id="both 0"),
        pytest.param(None, Fixed(0.25), 0.25, "backoff", id="no hint"),
        pytest.param(60, Fixed(1.0), 60.0, "retry-after", id="longest that is waited for"),
    ],
)
def test_delay_is_the_longer_of_hint_and_backoff(
    hint: Any, backoff: Fixed, delay: float, source: str
) -> None:
    """Never sooner than the server asked."""
    assert answered(a_call(a_policy(backoff=backoff)), hint=hint) == RetryAfter(delay, source)


@pytest.mark.parametrize(
    ("hint", "spread", "random", "delay"),
    [
        # hint + random × hint_spread × max(hint, 1 s)
        pytest.param(10, 0.1, 0.5, 10.5, id="half of 10 % of 10 s"),
        pytest.param(10, 0.1, 0.0, 10.0, id="nothing on top"),
        pytest.param(10, 0.1, 0.999, 10.999, id="nearly all of it"),
        pytest.param(10, 0.5, 0.5, 12.5, id="another share"),
        pytest.param(10, 0.0, 0.9, 10.0, id="no spread"),
        pytest.param(1, 0.1, 0.5, 1.05, id="one second"),
        pytest.param(0, 0.1, 0.5, 0.05, id="a hint of 0 is spread over 0.1 s"),
        pytest.param("0.2", 0.1, 0.5, 0.25, id="below a second: as of one"),
        pytest.param(60, 0.1, 0.5, 63.0, id="the limit is compared with the bare hint"),
    ],
)
def test_spread(hint: Any, spread: float, random: float, delay: float) -> None:
    """A fleet that is told the same second does not return in step."""
    call = a_call(a_policy(backoff=Fixed(0), hint_spread=spread), random=lambda: random)
    verdict = answered(call, hint=hint)
    assert isinstance(verdict, RetryAfter)
    assert verdict.delay == pytest.approx(delay)
    assert verdict.source == "retry-after"


@pytest.mark.parametrize(
    ("left", "delay"),
    [
        # A hint of 10 s with up to 1 s on top, random 0.5: 10.5 s; an attempt needs a millisecond.
        (20.0, 10.5),
        (10.501, 10.5),
        (10.3, 10.3 - LEAST_ATTEMPT),
        (10.001, 10.0),
    ],
)
def test_the_spread_is_cut_to_what_the_deadline_leaves(left: float, delay: float) -> None:
    """The courtesy on top gives way to the deadline, the server's own seconds do not."""
    call = a_call(a_policy(backoff=Fixed(0), hint_spread=0.1), deadline_at=left)
    verdict = answered(call, hint=10)
    assert isinstance(verdict, RetryAfter)
    assert verdict.delay == pytest.approx(delay)
    assert verdict.delay >= 10.0


@pytest.mark.parametrize("left", [10.0, 9.9, 1.0])
def test_a_hint_that_the_deadline_does_not_allow_is_refused_uncut(left: float) -> None:
    """Stop now, with the server's answer, and say how long it wanted."""
    call = a_call(a_policy(backoff=Fixed(0), hint_spread=0.1), deadline_at=left)
    verdict = answered(call, hint=10)
    assert isinstance(verdict, GiveUp)
    assert verdict.reason is Reason.DEADLINE
    assert verdict.delay is not None
    assert 10.0 <= verdict.delay <= 11.0
    assert story(call, 0.0).refused_delay == verdict.delay


@pytest.mark.parametrize(
    ("hint", "limit", "retried"),
    [
        (60, 60.0, True),
        ("60.001", 60.0, False),
        (61, 60.0, False),
        (1, 0, False),
        (0, 0, True),
        (300, 300.0, True),
    ],
)
def test_max_retry_after_is_compared_with_the_bare_hint(
    hint: Any, limit: float, retried: bool
) -> None:
    """A spread does not push a hint over the limit; a longer backoff neither."""
    policy = a_policy(max_retry_after=limit, hint_spread=0.5, backoff=Fixed(100.0))
    verdict = answered(a_call(policy), hint=hint)
    if retried:
        assert isinstance(verdict, RetryAfter)
    else:
        assert verdict == GiveUp(Reason.RETRY_AFTER_TOO_LONG, float(hint))


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        pytest.param((429, None), 9.0, id="429"),
        pytest.param((503, 2), 9.0, id="503 that names a time"),
        pytest.param((503, None), 1.0, id="503"),
        pytest.param((500, None), 1.0, id="500"),
        pytest.param((500, 2), 2.0, id="500 that names a time"),
    ],
)
def test_throttling_has_a_schedule_of_its_own(failure: tuple[int, Any], expected: float) -> None:
    call = a_call(a_policy(throttle_backoff=Fixed(9.0)))
    assert answered(call, *failure) == RetryAfter(
        expected, "retry-after" if expected == 2.0 else "backoff"
    )


def test_an_exhausted_quota_is_throttling() -> None:
    headers = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", str(int(UTC) + 3))]
    call = a_call(a_policy(throttle_backoff=Fixed(9.0), hinted_statuses={403}))
    assert call.after_response(403, headers, 0.0, utc_now=UTC) == RetryAfter(9.0, "backoff")


def test_an_error_is_not_throttling() -> None:
    call = a_call(a_policy(throttle_backoff=Fixed(9.0)))
    assert call.after_error(RESET, 0.0) == RetryAfter(1.0, "backoff")


def retry(call: Call, failure: Failure | int) -> float:
    verdict = (
        answered(call, failure) if isinstance(failure, int) else call.after_error(failure, 0.0)
    )
    assert isinstance(verdict, RetryAfter)
    call.sending(0.0)
    return verdict.delay


PLAIN = Exponential(base=1.0, cap=8.0, jitter="none", immediate_first=True)
UNPROCESSED = Failure(FailureKind.UNPROCESSED, Phase.UNSENT, error="RemoteProtocolError")
TIMEOUT = Failure(FailureKind.READ_TIMEOUT, Phase.SENT, error="ReadTimeout")


@pytest.mark.parametrize(
    ("failures", "waits"),
    [
        # The schedule by attempt: 1, 2, 4, 8
        pytest.param([RESET, RESET, RESET], [0.0, 2.0, 4.0], id="once"),
        pytest.param(
            [UNPROCESSED, RESET, UNPROCESSED], [0.0, 2.0, 4.0], id="once for both kinds together"
        ),
        pytest.param([503, RESET, RESET], [1.0, 0.0, 4.0], id="also later than first"),
        pytest.param([503, 500, 503], [1.0, 2.0, 4.0], id="not for an answer"),
        pytest.param([UNSENT, TIMEOUT, UNSENT], [1.0, 2.0, 4.0], id="not for what lasts"),
    ],
)
def test_one_retry_may_come_at_once_for_a_momentary_cause(
    failures: list[Any], waits: list[float]
) -> None:
    """An idle connection that was closed under us needs no wait; a second time it is no
    accident.
    """
    call = a_call(a_policy(backoff=PLAIN, max_attempts=9))
    assert [retry(call, failure) for failure in failures] == waits


def test_immediate_first_is_off_by_default() -> None:
    call = a_call(a_policy(backoff=Exponential(base=1.0, jitter="none")))
    assert retry(call, RESET) == 1.0


def test_another_call_has_its_own_immediate_retry() -> None:
    policy = a_policy(backoff=PLAIN)
    strategy = StandardStrategy(policy)
    assert [retry(a_call(policy, strategy=strategy), RESET) for _ in range(3)] == [0.0, 0.0, 0.0]


def test_hints_ignored_are_ignored_as_delays_only() -> None:
    policy = a_policy(hints="ignore")
    assert answered(a_call(policy), hint=30) == RetryAfter(1.0, "backoff")
    assert answered(a_call(policy), hint=3_600) == RetryAfter(1.0, "backoff")
    assert answered(a_call(policy), 503, 30, 0.0, NOT_AGAIN) == GiveUp(Reason.SERVER_SAID_NO)
    assert answered(a_call(policy), 400, 30, 0.0, ("x-should-retry", "true")) == RetryAfter(
        1.0, "backoff"
    )


def test_a_schedule_grows_from_what_it_drew_itself() -> None:
    """Decorrelated from 1 s, drawn highest: 3, then 9, although a server made 20 of the first."""
    policy = a_policy(backoff=Exponential(base=1.0, cap=100.0, jitter="decorrelated"))
    call = a_call(policy, random=lambda: 1.0)
    assert answered(call, hint=20) == RetryAfter(20.0, "retry-after")
    call.sending(20.0)
    assert answered(call, now=20.0) == RetryAfter(9.0, "backoff")


# --- the deadline -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "deadline_at", "retried"),
    [
        (0.0, inf, True),
        (0.0, 1.0 + 2 * LEAST_ATTEMPT, True),
        (0.0, 1.0, False),
        (0.0, 0.5, False),
        (100.0, 101.5, True),
        (100.0, 100.9, False),
        (100.0, 99.0, False),
    ],
)
def test_no_wait_is_begun_that_cannot_be_followed_by_an_attempt(
    now: float, deadline_at: float, retried: bool
) -> None:
    """Sleeping the remaining time and then failing is the worst of both."""
    verdict = answered(a_call(now=now, deadline_at=deadline_at), now=now)
    assert verdict == (RetryAfter(1.0, "backoff") if retried else GiveUp(Reason.DEADLINE, 1.0))


def test_a_retry_without_a_wait_still_needs_time() -> None:
    policy = a_policy(backoff=Fixed(0))
    assert answered(a_call(policy, deadline_at=10.0), now=9.9) == RetryAfter(0.0, "backoff")
    assert answered(a_call(policy, deadline_at=10.0), now=10.0) == GiveUp(Reason.DEADLINE, 0.0)


def test_an_attempt_that_the_deadline_ended_is_told_so() -> None:
    call = a_call(deadline_at=1.0)
    assert call.cut_off(TIMEOUT, 1.0) == GiveUp(Reason.DEADLINE)
    assert call.was_cut
    assert story(call, 1.0).reason is Reason.DEADLINE
    assert story(call, 1.0).attempts[0].error == "ReadTimeout"


# --- the key's lifetime -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "backoff", "reason"),
    [
        pytest.param(5.0, 1.0, None, id="well within"),
        pytest.param(9.0, 1.0, None, id="to the second"),
        pytest.param(9.5, 1.0, Reason.KEY_EXPIRED, id="over after the wait"),
        pytest.param(10.0, 0.0, None, id="now is the last instant"),
        pytest.param(10.1, 0.0, Reason.KEY_EXPIRED, id="over already"),
    ],
)
def test_a_key_is_not_used_after_its_lifetime(
    now: float, backoff: float, reason: Reason | None
) -> None:
    """The server may have forgotten the key, and would execute the request again."""
    budget = RetryBudget(burst=20)
    policy = a_policy(backoff=Fixed(backoff))
    call = a_call(policy, method="POST", headers=KEY, key_lifetime=10.0, budget=budget)
    verdict = answered(call, now=now)
    if reason is None:
        assert isinstance(verdict, RetryAfter)
    else:
        assert isinstance(verdict, GiveUp)
        assert verdict.reason is reason
        assert budget.tokens(ORIGIN, now) == 20  # what was taken for it came back


@pytest.mark.parametrize(
    ("method", "failure"),
    [("PUT", RESET), ("GET", RESET), ("POST", UNSENT)],
    ids=["put", "get", "nothing sent"],
)
def test_an_expired_key_does_not_matter_where_no_key_is_needed(
    method: str, failure: Failure
) -> None:
    call = a_call(method=method, headers=KEY, key_lifetime=10.0)
    assert isinstance(call.after_error(failure, 50.0), RetryAfter)


# --- foreign strategies -----------------------------------------------------------------------


class Ledger:
    """A strategy that answers what it is told to, and notes what it is asked."""

    def __init__(self, *answers: Any, initial: Any = None) -> None:
        self.answers = list(answers)
        self.initial = initial
        self.asked: list[str] = []
        self.ended: list[tuple[str, RetryToken]] = []
        self.given: list[RetryToken] = []
        self.latest: list[float] = []

    quiet = False

    def acquire_initial_token(self, scope: str, now: float) -> RetryToken:
        self.asked.append(f"acquire {scope}")
        if isinstance(self.initial, Exception):
            raise self.initial
        token = self.initial if self.initial is not None else RetryToken()
        self.given.append(token)
        return token

    def refresh_token(
        self, token: RetryToken, failure: Failure, now: float, *, latest: float
    ) -> RetryToken:
        self.asked.append(f"refresh after {token.attempts}")
        self.latest.append(latest)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, (int, float)):
            token.delay = answer
            token.source = "mine"
            return token
        return answer

    def record_success(self, token: RetryToken, now: float) -> None:
        self.ended.append(("success", token))

    def release(self, token: RetryToken, now: float) -> None:
        self.ended.append(("release", token))


def test_what_a_strategy_is_asked() -> None:
    strategy = Ledger(0.5, 0.25)
    call = a_call(strategy=strategy, attempts=0, deadline_at=10.0)
    assert call.open(0.0) == 0.0
    for now in (0.0, 1.0):
        call.sending(now)
        assert isinstance(answered(call, now=now), RetryAfter)
    call.sending(2.0)
    assert answered(call, 200, now=2.0) is None
    assert strategy.asked == [f"acquire {ORIGIN}", "refresh after 1", "refresh after 2"]
    assert strategy.latest == [
        pytest.approx(10.0 - LEAST_ATTEMPT),
        pytest.approx(9.0 - LEAST_ATTEMPT),
    ]
    assert [how for how, _ in strategy.ended] == ["success"]


@pytest.mark.parametrize(
    ("answer", "hint", "verdict"),
    [
        pytest.param(0.5, None, RetryAfter(0.5, "mine"), id="as it says"),
        pytest.param(0, None, RetryAfter(0, "mine"), id="at once"),
        pytest.param(0.5, 3, RetryAfter(3.0, "retry-after"), id="sooner than the server asked"),
        pytest.param(5, 3, RetryAfter(5, "mine"), id="later than the server asked"),
        pytest.param(
            5, 61, GiveUp(Reason.RETRY_AFTER_TOO_LONG, 61.0), id="a hint that is too long"
        ),
        pytest.param(12, None, GiveUp(Reason.DEADLINE, 12), id="past the deadline"),
        pytest.param(1, 12, GiveUp(Reason.DEADLINE, 12.0), id="hint past the deadline"),
        pytest.param(
            RetryRefused(Reason.CIRCUIT_OPEN), None, GiveUp(Reason.CIRCUIT_OPEN), id="refused"
        ),
        pytest.param(
            RetryRefused(Reason.DEADLINE, retry_after=40.0),
            None,
            GiveUp(Reason.DEADLINE, 40.0),
            id="refused, with time",
        ),
    ],
)
def test_a_strategy_is_held_to_the_servers_word_and_the_deadline(
    answer: Any, hint: Any, verdict: Verdict
) -> None:
    """A user's strategy cannot break P3 or P4."""
    strategy = Ledger(answer)
    call = a_call(strategy=strategy, deadline_at=10.0)
    assert answered(call, hint=hint) == verdict
    assert [how for how, _ in strategy.ended] == (
        [] if isinstance(verdict, RetryAfter) else ["release"]
    )


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(nan, id="NaN"),
        pytest.param(-1, id="-1"),
        pytest.param(-0.001, id="just below 0"),
        pytest.param(inf, id="inf"),
        pytest.param(-inf, id="-inf"),
        pytest.param(ValueError("secret"), id="ValueError"),
        pytest.param(KeyError("secret"), id="KeyError"),
        pytest.param(None, id="no token"),
        pytest.param("soon", id="a word"),
        pytest.param(RetryToken("soon"), id="a token with a word"),  # type: ignore[arg-type]
        pytest.param(RetryToken(None), id="a token with None"),  # type: ignore[arg-type]
    ],
)
@pytest.mark.parametrize("opened", [True, False], ids=["from the start", "late"])
def test_a_strategy_that_fails_costs_the_retry_not_the_response(answer: Any, opened: bool) -> None:
    """strategy-failed: the call ends with what it has, its token is given back, the error is kept
    for the log.
    """
    strategy = Ledger(answer)
    call = a_call(strategy=strategy, attempts=0)
    if opened:
        call.open(0.0)
    call.sending(0.0)
    assert answered(call) == GiveUp(Reason.STRATEGY_FAILED)
    assert isinstance(call.strategy_error, Exception)
    assert story(call, 0.0).attempts[0].status == 503
    assert [how for how, _ in strategy.ended] == ["release"]
    assert call.token is None


def test_a_deadline_that_is_infinite_is_said_so() -> None:
    strategy = Ledger(1e300)
    assert answered(a_call(strategy=strategy)) == RetryAfter(1e300, "mine")
    assert strategy.latest == [inf]


def test_a_class_in_place_of_a_token_is_not_written_to() -> None:
    """``return RetryToken`` for ``return RetryToken()``: the class of all tokens stays as it is."""
    call = a_call(strategy=Ledger(RetryToken))
    assert answered(call) == GiveUp(Reason.STRATEGY_FAILED)
    assert RetryToken().attempts == 0
    RetryToken().attempts = 1


@pytest.mark.parametrize(
    "refusal", [RetryRefused(FailureKind.DNS), RetryRefused(Reason.DEADLINE, retry_after="soon")]
)  # type: ignore[arg-type]
@pytest.mark.parametrize("initial", [True, False])
def test_a_refusal_that_cannot_be_told_is_strategy_failed(
    refusal: RetryRefused, initial: bool
) -> None:
    """What ends up in records and logs is a Reason and a number; ``send=False`` needs them too."""
    refusal.send = False
    call = a_call(strategy=Ledger(initial=refusal) if initial else Ledger(refusal), attempts=0)
    assert call.open(0.0) == 0.0
    call.sending(0.0)
    assert answered(call) == GiveUp(Reason.STRATEGY_FAILED)
    assert isinstance(call.strategy_error, (TypeError, ValueError))


def test_of_two_failures_the_first_is_told() -> None:
    class Failing(Ledger):
        def release(self, token: RetryToken, now: float) -> None:
            raise KeyError

    call = a_call(strategy=Failing(ValueError("first")))
    assert answered(call) == GiveUp(Reason.STRATEGY_FAILED)
    assert isinstance(call.strategy_error, ValueError)


class Closer(Ledger):
    """It wants to know more of a request than its origin."""

    def __init__(self, scope: Any) -> None:
        super().__init__(1.0, 1.0)
        self.scope = scope

    def scope_of(self, facts: Request) -> str:
        if isinstance(self.scope, Exception):
            raise self.scope
        return self.scope  # type: ignore[no-any-return]


@pytest.mark.parametrize("opened", [True, False], ids=["from the start", "late"])
@pytest.mark.parametrize(
    ("scope", "asked"),
    [("mine", "mine"), (None, ORIGIN), (b"mine", ORIGIN), (ValueError("secret"), ORIGIN)],
    ids=str,
)
def test_scope_of_says_what_is_passed_as_scope(scope: Any, asked: str, opened: bool) -> None:
    """Where it fails the call is on its origin, and retried all the same."""
    call = a_call(strategy=(strategy := Closer(scope)), attempts=0)
    if opened:
        call.open(0.0)
    call.sending(0.0)
    assert isinstance(answered(call), RetryAfter)
    assert strategy.asked[0] == f"acquire {asked}"
    assert (call.scope_error is None) is (asked == "mine")
    assert call.strategy_error is None


def test_what_a_call_allows_bounds_any_strategy() -> None:
    """Nothing is bought for it."""
    strategy = Ledger(0.0, 0.0, 0.0)
    call = a_call(strategy=strategy, attempts=0)
    call.most_attempts = 2
    call.open(0.0)
    call.sending(0.0)
    assert isinstance(answered(call), RetryAfter)
    call.sending(0.0)
    assert answered(call) == GiveUp(Reason.ATTEMPTS_EXHAUSTED)
    assert strategy.asked == [f"acquire {ORIGIN}", "refresh after 1"]


# Before the first attempt.


def test_a_strategy_may_wait_before_the_first_attempt() -> None:
    call = a_call(strategy=Ledger(initial=RetryToken(2.0)), attempts=0, deadline_at=10.0)
    assert call.open(0.0) == 2.0


def test_a_strategy_may_refuse_to_send() -> None:
    """An open breaker: nothing is sent, and the reason is on the record."""
    strategy = Ledger(initial=RetryRefused(Reason.CIRCUIT_OPEN, send=False, retry_after=7.0))
    call = a_call(strategy=strategy, attempts=0)
    with pytest.raises(RetryRefused) as caught:
        call.open(0.0)
    assert caught.value.retry_after == 7.0
    record = story(call, 0.0)
    assert (record.attempts, record.reason, record.refused_delay) == ((), Reason.CIRCUIT_OPEN, 7.0)
    assert strategy.ended == []


@pytest.mark.parametrize(
    ("initial", "reason"),
    [
        pytest.param(RetryRefused(Reason.BUDGET_EXHAUSTED), Reason.BUDGET_EXHAUSTED, id="refused"),
        pytest.param(ValueError("secret"), Reason.STRATEGY_FAILED, id="raised"),
    ],
)
def test_a_strategy_may_allow_one_sending_without_retries(
    initial: Exception, reason: Reason
) -> None:
    strategy = Ledger(initial=initial)
    call = a_call(strategy=strategy, attempts=0)
    assert call.open(0.0) == 0.0
    call.sending(0.0)
    assert answered(call) == GiveUp(reason)
    assert strategy.asked == [f"acquire {ORIGIN}"]
    assert strategy.ended == []


def test_a_refusal_before_a_success_is_no_longer_a_reason() -> None:
    call = a_call(strategy=Ledger(initial=RetryRefused(Reason.BUDGET_EXHAUSTED)), attempts=0)
    call.open(0.0)
    call.sending(0.0)
    assert answered(call, 200) is None
    assert story(call, 0.0).reason is None


@pytest.mark.parametrize("delay", [nan, -1.0, inf, "soon", None], ids=str)
def test_nonsense_before_the_first_attempt_is_strategy_failed_too(delay: Any) -> None:
    """The request is sent at once and not retried; the token is given back."""
    strategy = Ledger(0.0, initial=RetryToken(delay))
    call = a_call(strategy=strategy, attempts=0)
    assert call.open(0.0) == 0.0
    assert isinstance(call.strategy_error, Exception)
    call.sending(0.0)
    assert answered(call) == GiveUp(Reason.STRATEGY_FAILED)
    assert [how for how, _ in strategy.ended] == ["release"]


# --- tokens are conserved ---------------------------------------------------------------------


def end_success(call: Call) -> None:
    assert answered(call, 200) is None


def end_final_status(call: Call) -> None:
    assert answered(call, 404) is None


def end_give_up(call: Call) -> None:
    assert isinstance(answered(call, 503, None, 0.0, NOT_AGAIN), GiveUp)


def end_permanent(call: Call) -> None:
    assert isinstance(call.after_error(Failure(FailureKind.PERMANENT, Phase.UNSENT), 0.0), GiveUp)


def end_unwanted_kind(call: Call) -> None:
    assert call.after_error(Failure(FailureKind.DNS, Phase.UNSENT), 0.0) is None


def end_cancelled(call: Call) -> None:
    call.release(0.0)


def end_cut_off(call: Call) -> None:
    call.cut_off(TIMEOUT, 0.0)


def end_delivered(call: Call) -> None:
    assert isinstance(call.after_error(RESET, 0.0, delivered=True), GiveUp)


ENDS = {
    end_success: "success",
    end_final_status: "success",
    end_give_up: "release",
    end_permanent: "release",
    end_unwanted_kind: "release",
    end_cancelled: "release",
    end_cut_off: "release",
    end_delivered: "release",
}


@pytest.mark.parametrize("retries", [0, 1, 2])
@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_exactly_one_of_success_and_release_ends_every_token(
    end: Callable[[Call], None], retries: int
) -> None:
    """On every way out, and only once, whoever releases again."""
    strategy = Ledger(*[1.0] * retries)
    call = a_call(a_policy(failures={FailureKind.RESET}), strategy=strategy, attempts=0)
    call.open(0.0)
    call.sending(0.0)
    for _ in range(retries):
        assert isinstance(call.after_error(RESET, 0.0), RetryAfter)
        call.sending(0.0)
    end(call)
    call.release(0.0)
    call.release(0.0)
    assert [how for how, _ in strategy.ended] == [ENDS[end]]
    assert strategy.ended[0][1] is strategy.given[0]
    assert len(strategy.given) == 1


def test_a_token_that_was_exchanged_is_ended_instead_of_the_first() -> None:
    """What ``refresh_token`` returns takes the place of what it was given."""
    other = RetryToken(1.0)
    strategy = Ledger(other)
    call = a_call(strategy=strategy, attempts=0)
    call.open(0.0)
    call.sending(0.0)
    assert isinstance(answered(call), RetryAfter)
    call.sending(1.0)
    assert other.attempts == 2
    assert answered(call, 200, now=1.0) is None
    assert strategy.ended == [("success", other)]


def test_a_plain_first_attempt_takes_no_token() -> None:
    """The door skips the strategy while it is quiet; one token is taken when the first failure is
    judged.
    """
    strategy = Ledger(1.0)
    call = a_call(strategy=strategy)
    assert isinstance(answered(call), RetryAfter)
    assert strategy.asked == [f"acquire {ORIGIN}", "refresh after 1"]


@pytest.mark.parametrize("end", ["record_success", "release"])
def test_a_strategy_that_fails_at_the_end_costs_nothing(end: str) -> None:
    class Failing(Ledger):
        def record_success(self, token: RetryToken, now: float) -> None:
            raise ValueError("secret")

        release = record_success

    call = a_call(strategy=Failing(1.0), attempts=0)
    call.open(0.0)
    call.sending(0.0)
    if end == "record_success":
        assert answered(call, 200) is None
    else:
        assert answered(call, 503, None, 0.0, NOT_AGAIN) == GiveUp(Reason.SERVER_SAID_NO)
    assert isinstance(call.strategy_error, ValueError)


# --- refunds ----------------------------------------------------------------------------------


def test_a_retry_that_was_sent_is_paid_for() -> None:
    budget = RetryBudget(ratio=0, floor_per_second=0, burst=20)
    call = a_call(budget=budget)
    assert isinstance(answered(call), RetryAfter)
    assert budget.tokens(ORIGIN, 0.0) == 19
    call.sending(0.0)
    assert answered(call, 200) is None
    call.release(0.0)
    assert budget.tokens(ORIGIN, 0.0) == 19


def test_a_retry_that_was_not_sent_is_given_back_exactly_once() -> None:
    """Cancelled while sleeping: spent before the sleep, given back once."""
    budget = RetryBudget(ratio=0, floor_per_second=0, burst=20)
    for _ in range(3):
        assert budget.spend(ORIGIN, 1.0, 0.0)
    call = a_call(budget=budget)
    assert isinstance(answered(call), RetryAfter)
    assert budget.tokens(ORIGIN, 0.0) == 16
    call.release(0.0)
    call.release(0.0)
    assert budget.tokens(ORIGIN, 0.0) == 17


@pytest.mark.parametrize(("hint", "cost"), [(None, 1.0), (2, 0.25), (0, 0.25)])
def test_a_retry_that_the_server_scheduled_costs_less(hint: Any, cost: float) -> None:
    budget = RetryBudget(ratio=0, floor_per_second=0, burst=20)
    call = a_call(budget=budget)
    assert isinstance(answered(call, hint=hint), RetryAfter)
    assert budget.tokens(ORIGIN, 0.0) == 20 - cost
    call.release(0.0)
    assert budget.tokens(ORIGIN, 0.0) == 20


def test_a_hint_that_is_ignored_is_no_discount() -> None:
    budget = RetryBudget(ratio=0, floor_per_second=0, burst=20)
    assert isinstance(answered(a_call(a_policy(hints="ignore"), budget=budget), hint=2), RetryAfter)
    assert budget.tokens(ORIGIN, 0.0) == 19


# --- the record -------------------------------------------------------------------------------


def test_the_record_tells_the_story() -> None:
    """Attempts, waits, reasons and times, in the order they happened."""
    call = a_call(a_policy(max_attempts=3), now=100.0)
    call.after_error(UNSENT, 100.5)
    call.sending(101.5)
    answered(call, 429, 2, 101.75)
    call.sending(103.75)
    answered(call, 503, None, 104.0)
    record = story(call, 104.0)
    assert (record.method, record.origin) == ("GET", ORIGIN)
    assert record.elapsed == 4.0
    assert record.reason is Reason.ATTEMPTS_EXHAUSTED
    assert [attempt.number for attempt in record.attempts] == [1, 2, 3]
    assert [attempt.status for attempt in record.attempts] == [None, 429, 503]
    assert [attempt.error for attempt in record.attempts] == ["ConnectError", None, None]
    assert [attempt.phase for attempt in record.attempts] == [
        Phase.UNSENT,
        Phase.ANSWERED,
        Phase.ANSWERED,
    ]
    assert [attempt.elapsed for attempt in record.attempts] == [0.5, 0.25, 0.25]
    assert [attempt.delay for attempt in record.attempts] == [1.0, 2.0, None]
    assert [attempt.delay_source for attempt in record.attempts] == ["backoff", "retry-after", None]
    assert record.waits == (1.0, 2.0)
    assert call.trail.waited() == 3.0
    assert record.retries == 2
    assert record.reasons == ("ConnectError", "429", "503")


def test_draws_are_two_per_hinted_retry_and_one_otherwise() -> None:
    """Randomness is used up in a stated order, so that a seeded run can be repeated."""
    policy = RetryPolicy(backoff=Exponential(base=1.0, jitter="full"))
    call = a_call(policy, random=draws(0.25, 0.5, 0.75))
    assert answered(call, hint=4) == RetryAfter(4.2, "retry-after")
    call.sending(4.2)
    assert answered(call, now=4.2) == RetryAfter(1.5, "backoff")


# A strategy that follows attempts.


class Watcher(Ledger):
    """A Ledger that is also asked before each sending, and told of each end."""

    watches = True

    def __init__(self, *answers: Any, admits: Sequence[Any] = (), initial: Any = None) -> None:
        super().__init__(*answers, initial=initial)
        self.admits = list(admits)
        self.heard: list[tuple[int | str | None, int, float]] = []

    def begin(self, facts: Request, scope: str, now: float) -> RetryToken:
        return self.acquire_initial_token(scope, now)

    def admit(self, token: RetryToken, now: float) -> float:
        answer = self.admits.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    def observe(
        self,
        token: RetryToken | None,
        failure: Failure | None,
        now: float,
        *,
        facts: Request,
        scope: Callable[[], str],
        attempts: int,
        sent_at: float,
    ) -> RetryToken | None:
        if self.admits == ["broken"]:
            raise ZeroDivisionError
        self.heard.append((failure and (failure.status or failure.kind.value), attempts, sent_at))
        if token is None and failure is not None:
            token = self.acquire_initial_token(facts.origin, now)
            token.attempts = attempts
        return token


def test_it_hears_of_every_attempt_whoever_decides_about_it() -> None:
    """What steps 1 to 5 decide, what is accepted, what the deadline cuts: all of it, with the
    attempt's number.
    """
    strategy = Watcher(0.0, 0.0)
    call = a_call(strategy=strategy, now=5.0)
    answered(call, now=5.5)
    call.sending(6.0)
    answered(call, 200, now=6.5)
    assert strategy.heard == [(503, 1, 5.0), (None, 2, 6.0)]
    strategy = Watcher()
    for call, end in (
        (a_call(method="POST", strategy=strategy), lambda call: answered(call, 503)),
        (a_call(strategy=strategy), lambda call: answered(call, 404)),
        (a_call(strategy=strategy), lambda call: answered(call, 503, None, 0.0, NOT_AGAIN)),
        (
            a_call(strategy=strategy),
            lambda call: call.after_error(Failure(FailureKind.POOL, Phase.UNSENT), 0.0),
        ),
        (
            a_call(strategy=strategy),
            lambda call: call.cut_off(Failure(FailureKind.TIMEOUT, Phase.SENT), 0.0),
        ),
    ):
        end(call)
    assert [what for what, *_ in strategy.heard] == [503, 404, 503, "pool", "timeout"]
    assert len(strategy.ended) == len(strategy.given) == 5


def test_it_may_ask_for_a_further_wait_which_is_on_the_record() -> None:
    strategy = Watcher(1.0, admits=[0.0, 2.0, 0.0])
    call = a_call(strategy=strategy, attempts=0)
    call.open(0.0)
    assert call.admit(0.0) == 0.0
    call.sending(0.0)
    answered(call)
    assert (call.admit(1.0), call.admit(3.0)) == (2.0, 0.0)
    assert story(call, 3.0).waits == (3.0,)


def test_a_first_wait_is_on_no_record() -> None:
    call = a_call(strategy=Watcher(admits=[2.0]), attempts=0)
    call.open(0.0)
    assert call.admit(0.0) == 2.0
    assert story(call, 2.0).waits == ()


@pytest.mark.parametrize(
    ("answer", "limits", "reason", "delay"),
    [
        pytest.param(
            RetryRefused(Reason.CIRCUIT_OPEN, send=False, retry_after=7.0),
            {},
            Reason.CIRCUIT_OPEN,
            7.0,
            id="circuit",
        ),
        pytest.param(4.0, {"deadline_at": 5.0}, Reason.DEADLINE, 4.0, id="deadline"),
        pytest.param(4.0, {"key_lifetime": 4.5}, Reason.KEY_EXPIRED, 4.0, id="key"),
    ],
)
def test_it_may_refuse_right_before_the_sending(
    answer: Any, limits: Any, reason: Reason, delay: float
) -> None:
    """The token is given back; the reason and what was wanted are on the record."""
    strategy = Watcher(1.0, admits=[answer])
    call = a_call(method="POST", headers=KEY, strategy=strategy, **limits)
    answered(call)
    with pytest.raises(RetryRefused) as caught:
        call.admit(1.0)
    assert (caught.value.reason, caught.value.send) == (reason, False)
    found = story(call, 1.0)
    assert (found.reason, found.refused_delay) == (reason, delay)
    assert [how for how, _ in strategy.ended] == ["release"]


@pytest.mark.parametrize("answer", [ZeroDivisionError(), nan, -1.0, inf, "soon"], ids=str)
def test_one_that_fails_right_before_the_sending_does_not_stop_it(answer: Any) -> None:
    """The answer before has been let go of: sending is all that can be done for the caller."""
    call = a_call(strategy=Watcher(1.0, admits=[answer]))
    answered(call)
    assert call.admit(1.0) == 0.0
    assert isinstance(call.strategy_error, Exception)


def test_one_that_fails_when_it_is_told_costs_no_response() -> None:
    call = a_call(strategy=Watcher(1.0, admits=["broken"]))
    assert isinstance(answered(call), RetryAfter)
    assert isinstance(call.strategy_error, ZeroDivisionError)
