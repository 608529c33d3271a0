"""Decide: the ten rules, their order, and the arithmetic of waits. Numbers are worked out by hand."""

import json
from math import inf, nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import forbear.httpx
import forbear.httpx2
from forbear import Exponential, FailureKind, Fixed, Reason, RetryBudget, RetryGate, RetryPolicy
from forbear.core.call import PLUGIN_ERROR, Call
from forbear.core.decide import LEAST_ATTEMPT, answered, decide
from forbear.core.event_streams import ErrorEvent
from forbear.core.outcome import NO_HINT, GiveUp, SendAgain
from forbear.core.request import Request
from forbear.engine.loop import check_wait
from forbear.engine.settings import limits_of
from forbear.strategies import Failure, Phase, RetryRefused

from ..failures import REFUSED, RESET, TIMEOUT, UNPROCESSED
from ..httpx_errors import exception_of

ORIGIN = "http://origin.example:80"
UTC = 1_767_225_600.0
KEY = [("Idempotency-Key", "8e03978e-40d5-43e8-bc93-6894a57f9324")]
STEADY = RetryPolicy(backoff=Fixed(1.0), hint_spread=0.0)
THROTTLED = STEADY.replace(unexecuted_statuses={429, 598})
FAST = STEADY.replace(backoff=Exponential(base=1.0, jitter="none", fast_first=0.2))
STALE = Failure(FailureKind.RESET, Phase.UNSENT)
FORGOTTEN = Failure(FailureKind.RESET, Phase.SENT, stale_connection=True)
DNS, TLS = Failure(FailureKind.DNS, Phase.UNSENT), Failure(FailureKind.TLS, Phase.UNSENT)
CONNECTING = Failure(FailureKind.CONNECT_TIMEOUT, Phase.UNSENT)
ERROR_EVENT = ErrorEvent(429, NO_HINT).failure  # in a stream that began with 200
AGAIN, ASKED = SendAgain(1.0, "backoff"), SendAgain(2.0, "retry-after")
NO_METHOD, OUTDATED = GiveUp(Reason.METHOD_NOT_REPLAYABLE), GiveUp(Reason.KEY_EXPIRED)
REPLAY, CONSUMED = GiveUp(Reason.REPLAYED_RESPONSE), GiveUp(Reason.BODY_CONSUMED)
NESTED = GiveUp(Reason.NESTED_CALL)
NO, YES = ("x-should-retry", "false"), ("x-should-retry", "true")
REPLAYED, IN_TWO = ("Idempotent-Replayed", "true"), ("Retry-After", "2")


def a_call(policy=STEADY, method="GET", headers=(), *, random=0.5, limits=None, **state) -> Call:
    """A call whose first attempt was sent at 0; ``state`` is written over its attributes."""
    shared = limits_of(random=lambda: random, **(limits or {}))
    call = Call(policy, Request(method, ORIGIN, list(headers)), shared, 0.0, policy.max_attempts)
    call.sending(0.0)
    for name, value in state.items():
        setattr(call.request if name == "guard" else call, name, value)
    return call


def verdict_on(call: Call, outcome=503, *lines, after=None, now=0.0) -> Any:
    """The verdict on a failure, or a status; ``after`` is its Retry-After."""
    if after is not None:
        lines = (("Retry-After", str(after)), *lines)
    if isinstance(outcome, int):
        outcome = answered(call.policy, outcome, lines, lambda: UTC)
    return decide(call, outcome, now)


def no_tokens() -> RetryBudget:
    budget = RetryBudget(ratio=0, floor_per_second=0, burst=1)
    assert budget.spend(ORIGIN, 1.0, 0.0)
    return budget


def unhealthy(**options: Any) -> RetryGate:
    """A gate that has seen three failures of the origin in a row, at 0."""
    gate = RetryGate(**options)
    for _ in range(3):
        gate.bad(ORIGIN, 0.0, sent_at=0.0, weight=1.0)
    return gate


BREAKER = SimpleNamespace(quiet=False, is_closed=False, refused_for=lambda origin, now: 5.0)
GONE = SimpleNamespace(ready=False)  # a body that was read and cannot be read again

# Each row lifts the objection that the row before met: what is named next is the next rule.
AGAINST_AN_ANSWER: list[tuple[dict[str, Any], Any]] = [
    ({}, GiveUp(Reason.DEADLINE)),  # the deadline has ended the attempt
    ({"barred": Reason.CALLER_SAID_NO}, None),  # 1: 404
    ({"status": 503}, GiveUp(Reason.SERVER_SAID_NO)),  # 2
    ({"lines": [REPLAYED]}, GiveUp(Reason.CALLER_SAID_NO)),
    ({"barred": Reason.NESTED_CALL}, REPLAY),
    ({"headers": ()}, NO_METHOD),  # 4
    ({"headers": KEY, "lines": []}, CONSUMED),  # 5
    ({"guard": None}, NESTED),
    ({"barred": None}, GiveUp(Reason.ATTEMPTS_EXHAUSTED)),  # 6
    ({"attempts": 1}, GiveUp(Reason.STRATEGY_FAILED)),  # refused before the first attempt
    ({"stop": None}, GiveUp(Reason.RETRY_AFTER_TOO_LONG, 61.0)),  # 7
    ({"after": 2}, GiveUp(Reason.DEADLINE, 2.0)),  # 8
    ({"deadline_at": inf}, GiveUp(Reason.KEY_EXPIRED, 2.0)),
    ({"key_until": inf}, GiveUp(Reason.CIRCUIT_OPEN, 5.0)),  # 9
    ({"breaker": None}, GiveUp(Reason.ORIGIN_UNHEALTHY, 2.0)),  # 10
    ({"gate": None}, GiveUp(Reason.BUDGET_EXHAUSTED, 2.0)),
    ({"budget": None}, ASKED),
]


@pytest.mark.parametrize("step", range(len(AGAINST_AN_ANSWER)))
def test_the_rules_in_their_order(step: int) -> None:
    """A caller who mends the cause that is named meets the next one, and no surprise."""
    facts: dict[str, Any] = {
        "status": 404, "after": 61, "lines": [NO, REPLAYED], "headers": KEY, "barred": Reason.DEADLINE,
        "guard": GONE, "attempts": 5, "deadline_at": 1.0, "key_until": 0.5,
        "stop": GiveUp(Reason.STRATEGY_FAILED), "breaker": BREAKER, "budget": no_tokens(),
        "gate": unhealthy(max_held=0),
    }  # fmt: skip
    for changes, _ in AGAINST_AN_ANSWER[: step + 1]:
        facts |= changes
    limits = {name: facts.pop(name) for name in ("breaker", "budget", "gate")}
    status, lines, after = facts.pop("status"), facts.pop("lines"), facts.pop("after")
    call = a_call(STEADY, "POST", facts.pop("headers"), limits=limits, **facts)
    assert verdict_on(call, status, *lines, after=after) == AGAINST_AN_ANSWER[step][1]


NEVER = {FailureKind.POOL: Reason.LOCAL_SATURATION, FailureKind.UNKNOWN: Reason.UNKNOWN_ERROR}
PERMANENT = FailureKind.CERTIFICATE, FailureKind.DECODING, FailureKind.PERMANENT
NEVER |= dict.fromkeys(PERMANENT, Reason.PERMANENT_ERROR)


@pytest.mark.parametrize("kind", NEVER)
def test_what_can_never_succeed_is_never_repeated(kind: FailureKind) -> None:
    """Rule 3 (S9), before rules 4 and 5, whatever method, key or phase."""
    for method, headers in (("GET", ()), ("POST", KEY), ("POST", ())):
        for phase in Phase:
            call = a_call(STEADY, method, headers, guard=GONE, barred=Reason.NESTED_CALL)
            assert decide(call, Failure(kind, phase), 0.0) == GiveUp(NEVER[kind])


def test_every_reason_is_given() -> None:
    """But an accepted status is no verdict, and the others follow a body, a hook and a slot."""
    given = {verdict.reason for _, verdict in AGAINST_AN_ANSWER if isinstance(verdict, GiveUp)}
    others = {Reason.RESPONSE_DELIVERED, Reason.HOOK_FAILED, Reason.CONCURRENCY_LIMIT}
    assert set(Reason) - given - set(NEVER.values()) == {*others, Reason.STATUS_NOT_RETRIED}


def test_a_yes_makes_any_error_retryable_and_nothing_else() -> None:
    verdicts = [verdict_on(a_call(), status, YES) for status in (302, 399, 400, 404, 499)]
    assert verdicts == [None, None, AGAIN, AGAIN, AGAIN]


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_409_waits_for_the_first_request_only_with_a_key(method: str) -> None:
    """Idempotency-Key draft section 2.7: the request with this key is still being processed."""
    assert verdict_on(a_call(STEADY, method, KEY), 409) == AGAIN
    assert verdict_on(a_call(STEADY, method), 409) is None
    assert verdict_on(a_call(STEADY.replace(conflict_with_key=False), method, KEY), 409) is None


@pytest.mark.parametrize(("method", "headers", "failure", "state", "expected"), [
    ("POST", (), 429, {}, AGAIN), ("LOCK", (), 429, {}, AGAIN),
    ("POST", (), 598, {}, AGAIN), ("GET", (), 598, {}, AGAIN),  # which is not in statuses
    ("POST", (), 503, {}, NO_METHOD), ("POST", (), RESET, {}, NO_METHOD),
    ("POST", (), TIMEOUT, {}, NO_METHOD), ("POST", (), ERROR_EVENT, {}, NO_METHOD),
    ("POST", KEY, 429, {"key_until": -1.0}, AGAIN),  # which needs no key
    ("POST", (), 429, {"guard": GONE}, CONSUMED),
    ("POST", (), 429, {"barred": Reason.NESTED_CALL}, NESTED),
    ("POST", (), 429, {"attempts": 5}, GiveUp(Reason.ATTEMPTS_EXHAUSTED)),
])  # fmt: skip
def test_statuses_after_which_any_method_is_retried(method, headers, failure, state, expected):
    """A rate limiter in front of the server refuses a request before anybody executes it."""
    assert verdict_on(a_call(THROTTLED, method, headers, **state), failure) == expected


@pytest.mark.parametrize("refusal", [REFUSED, answered(THROTTLED, 429, (), lambda: UTC)])
@pytest.mark.parametrize(("first", "expected"), [(RESET, OUTDATED), (REFUSED, AGAIN)])
def test_a_refusal_says_nothing_of_the_attempts_before_it(refusal, first, expected):
    """The first response was lost: the server may have executed it, and forgotten its key."""
    call = a_call(THROTTLED, "POST", KEY, key_until=10.0)
    assert decide(call, first, 9.0) == AGAIN
    call.note(first, 9.0, 1.0)
    call.sending(10.5)
    assert decide(call, refusal, 10.5) == expected


@pytest.mark.parametrize("failure", [RESET, REFUSED, UNPROCESSED], ids=lambda each: each.kind)
def test_a_body_that_was_read_is_not_sent_again(failure: Failure) -> None:
    """Never an empty or half body, whatever else would allow the retry. (S3)"""
    call = a_call(STEADY, "POST", KEY, guard=GONE)
    assert decide(call, failure, 0.0) == CONSUMED
    call.request.guard = SimpleNamespace(ready=True)
    assert decide(call, failure, 0.0) == AGAIN


def test_a_body_that_progressed_is_nobody_elses_to_repeat() -> None:
    """A loop above would begin anew; ours asks for the rest."""
    progressed = Failure(FailureKind.RESET, Phase.ANSWERED, progress=True)
    call = a_call(barred=Reason.NESTED_CALL)
    assert (decide(call, RESET, 0.0), decide(call, progressed, 0.0)) == (NESTED, AGAIN)


@pytest.mark.parametrize(
    ("most", "attempts", "is_retried"), [(1, 1, False), (2, 2, True), (3, 3, True), (3, 4, False)]
)
def test_a_stale_connection_takes_no_attempt_once(most, attempts, is_retried):
    """Whenever it was met; but ``max_attempts=1`` is sent once."""
    policy = STEADY.replace(max_attempts=most)
    at_last, before = a_call(policy, attempts=attempts), a_call(policy, attempts=attempts)
    before.note(FORGOTTEN, 0.0, *AGAIN)
    for verdict in decide(at_last, FORGOTTEN, 0.0), verdict_on(before):
        assert (type(verdict) is SendAgain) is is_retried


@pytest.mark.parametrize(
    ("left", "delay"), [(20.0, 10.5), (10.501, 10.5), (10.3, 10.3 - LEAST_ATTEMPT), (10.001, 10.0)]
)
def test_the_spread_is_cut_to_what_the_deadline_leaves(left: float, delay: float) -> None:
    """A hint of 10 s, 0.5 s on top: the courtesy gives way, the server's own seconds do not."""
    policy = STEADY.replace(backoff=Fixed(0), hint_spread=0.1)
    verdict = verdict_on(a_call(policy, deadline_at=left), after=10)
    assert verdict == (pytest.approx(delay), "retry-after")


@pytest.mark.parametrize(("after", "limit"), [(60, 60), (0, 0), (300, 300), (60.001, 60), (1, 0)])
def test_max_retry_after_is_compared_with_the_bare_hint(after, limit):
    """Neither a spread nor a longer backoff pushes a hint over the limit."""
    policy = STEADY.replace(max_retry_after=limit, hint_spread=0.5, backoff=Fixed(100.0))
    refusal = GiveUp(Reason.RETRY_AFTER_TOO_LONG, after)
    assert (verdict_on(a_call(policy), after=after) == refusal) is (after > limit)


QUOTA = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", str(int(UTC) + 3))]


def test_only_below_400_is_a_flagged_response_read_as_a_503() -> None:
    """There its headers are for the application, and a 202's Retry-After says when to poll again."""
    answers = [answered(STEADY, each, QUOTA, lambda: UTC, flagged=True) for each in (200, 399, 400)]
    assert [failure.hint.delay for failure in answers] == [3.0, 3.0, None]


@pytest.mark.parametrize(("outcome", "lines", "expected"), [
    (429, [], SendAgain(9.0, "backoff")), (429, [IN_TWO], ASKED), (503, [IN_TWO], ASKED),
    (403, QUOTA, SendAgain(3.0, "x-ratelimit-reset")), (503, [], AGAIN), (500, [], AGAIN),
    (500, [IN_TWO], ASKED), (RESET, [], AGAIN),
])  # fmt: skip
def test_throttling_without_a_time_has_a_schedule_of_its_own(outcome, lines, expected):
    call = a_call(STEADY.replace(throttle_backoff=Fixed(9.0), hinted_statuses={403}))
    assert verdict_on(call, outcome, *lines) == expected


@pytest.mark.parametrize(("failures", "waits"), [
    # The schedule: 1, 2, 4 s, which the fast retry does not advance. Half of 0.2 s is drawn.
    ([RESET, RESET, RESET], [0.1, 1.0, 2.0]), ([REFUSED, RESET, 502], [0.1, 1.0, 2.0]),
    ([DNS, TLS, 502], [0.1, 1.0, 2.0]), ([TLS, DNS, 502], [0.1, 1.0, 2.0]),
    ([503, 500, 429], [0.1, 1.0, 2.0]), ([TIMEOUT, RESET, RESET], [1.0, 0.1, 2.0]),
    # What was lost with an old connection, or not begun, is sent again at once.
    ([STALE, RESET, STALE], [0.0, 1.0, 2.0]), ([FORGOTTEN, RESET, FORGOTTEN], [0.0, 1.0, 2.0]),
    ([UNPROCESSED, RESET, 502], [0.0, 1.0, 2.0]),
    # After a timeout, also of a gateway, work may have piled up.
    ([TIMEOUT, CONNECTING, TIMEOUT], [1.0, 2.0, 4.0]), ([504, 408, 524, 502], [1.0, 2.0, 4.0, 0.1]),
])  # fmt: skip
def test_one_retry_is_fast(failures: Any, waits: Any) -> None:
    """Most failures are of one replica or one connection; a second time it is no accident."""
    schedule = Exponential(base=1.0, cap=8.0, jitter="none", fast_first=0.2)
    policy = STEADY.for_vendors("cloudflare").replace(backoff=schedule, max_attempts=9)
    call, found = a_call(policy), []
    for each in failures:
        found.append(verdict_on(call, each).delay)
        call.sending(0.0)
    assert found == waits


def test_a_fast_retry_is_none_where_the_origin_is_not_well() -> None:
    """It is held like any other, after the wait of the schedule, and has the fast one still."""
    call = a_call(FAST, limits={"gate": unhealthy()})
    assert decide(call, REFUSED, 0.0) == AGAIN
    assert call.hold.ready_at == 1.0
    assert not call.used_fast_first


@pytest.mark.parametrize(("fast_first", "wait"), [(None, 1.0), (0.0, 0.0), (0.2, 0.1), (4.0, 2.0)])
def test_a_schedule_says_how_fast(fast_first: float | None, wait: float) -> None:
    policy = STEADY.replace(backoff=Exponential(base=1.0, jitter="none", fast_first=fast_first))
    assert decide(a_call(policy), REFUSED, 0.0) == SendAgain(wait, "backoff")


def test_a_fast_retry_keeps_to_the_deadline() -> None:
    """0.1 s are left for it: half of them."""
    call = a_call(FAST, deadline_at=0.1 + LEAST_ATTEMPT)
    assert decide(call, REFUSED, 0.0) == (pytest.approx(0.05), "backoff")


def test_a_schedule_grows_from_what_it_drew_itself() -> None:
    """Decorrelated from 1 s, drawn highest: 3, then 9, although a server named 20 before."""
    policy = STEADY.replace(backoff=Exponential(base=1.0, cap=100.0, jitter="decorrelated"))
    call = a_call(policy, random=1.0)
    assert verdict_on(call, after=20) == SendAgain(20.0, "retry-after")
    call.sending(20.0)
    assert verdict_on(call, now=20.0) == SendAgain(3.0, "backoff")
    call.sending(23.0)
    assert verdict_on(call, now=23.0) == SendAgain(9.0, "backoff")


THIRD = 1 / 3  # of 0.75 s on both sides: 0.5 to 1 s


@pytest.mark.parametrize(("jitter", "left", "draws", "expected"), [
    # base 0.75 s; latest is what is left, without the least time of an attempt
    (THIRD, 1.0, [0.8], 0.9), (THIRD, 0.8, [0.8, 0.5], 0.65), (THIRD, 0.8, [0.8, 0.0], 0.5),
    # 0.5 to 0.76 is more than half of 0.5 to 1, and to 0.74 less; 0 to 0.4 is more of 0 to 0.75
    (THIRD, 0.76, [0.8, 0.5], 0.63), (THIRD, 0.74, [0.8], None), (THIRD, 0.4, [0.8], None),
    ("full", 0.4, [0.8, 0.5], 0.2), ("full", 0.3, [0.8], None), ("none", 0.74, [], None),
])  # fmt: skip
def test_a_draw_that_does_not_fit_is_drawn_again_in_what_fits(jitter, left, draws, expected):
    """A long draw is bad luck, and no reason to give up what the schedule means to allow."""
    policy = STEADY.replace(backoff=Exponential(base=0.75, jitter=jitter))
    call, numbers = a_call(policy, deadline_at=left + LEAST_ATTEMPT), iter(draws)
    call.random = lambda: next(numbers)
    verdict = verdict_on(call)
    assert verdict[0] == (Reason.DEADLINE if expected is None else pytest.approx(expected))
    assert not list(numbers)


@pytest.mark.parametrize(("now", "backoff", "is_retried"), [
    (9.0, 1.0, True), (9.5, 1.0, False), (10.0, 0.0, True), (10.1, 0.0, False),
])  # fmt: skip
def test_a_key_is_not_used_after_its_lifetime(now: float, backoff: float, is_retried: bool) -> None:
    """The server may have forgotten it by 10 s; a PUT, or what was not sent, needs no key."""
    policy = STEADY.replace(backoff=Fixed(backoff))
    verdict = verdict_on(a_call(policy, "POST", KEY, key_until=10.0), now=now)
    again = SendAgain(backoff, "backoff")
    expired = GiveUp(Reason.KEY_EXPIRED, None if now > 10 else backoff)
    assert verdict == (again if is_retried else expired)
    assert verdict_on(a_call(policy, "PUT", KEY, key_until=10.0), now=now) == again
    assert decide(a_call(policy, "POST", KEY, key_until=10.0), REFUSED, now) == again


def test_a_further_wait_has_to_fit_too() -> None:
    """As in a queue, after the retry was decided: in the deadline, and in the lifetime of a key."""
    settings: Any = SimpleNamespace(sleeper=SimpleNamespace(goes_on=lambda since: None))
    call = a_call(STEADY, "POST", KEY, key_until=10.0, deadline_at=12.0)
    call.note(RESET, 0.0, 1.0, "backoff")
    check_wait(call, settings, 6.0, 4.0)
    assert call.waited() == 7.0
    for delay, reason in ((6.1, Reason.KEY_EXPIRED), (8.1, Reason.DEADLINE)):
        with pytest.raises(RetryRefused) as refused:
            check_wait(call, settings, delay, 4.0)
        assert (refused.value.reason, refused.value.send) == (reason, False)


def test_a_wait_that_outlasts_the_breaker_is_begun() -> None:
    """The origin is refused for 5 s: a retry after that finds it open for a probe."""
    call = a_call(limits={"breaker": BREAKER})
    assert verdict_on(call, after=4) == GiveUp(Reason.CIRCUIT_OPEN, 5.0)
    assert verdict_on(call, after=5) == SendAgain(5.0, "retry-after")


@pytest.mark.parametrize(("fields", "held", "state", "after", "until"), [
    # The schedule waits for 1 s; patience is 10 s on top of it, or of the time that was named.
    ({}, 0.0, {}, None, 11.0), ({}, 0.0, {}, 2, 12.0),
    ({"patience": 1_800.0}, 0.0, {}, None, 1_801.0), ({"patience": 0.9}, 0.0, {}, None, 1.9),
    ({"patience": 0.0}, 0.0, {}, None, None),
    # What it was held for before counts.
    ({}, 4.0, {}, None, 7.0), ({}, 4.0, {}, 2, 8.0), ({}, 10.0, {}, None, None),
    ({}, 0.0, {"deadline_at": 5.0}, None, 5.0 - LEAST_ATTEMPT),
    ({}, 0.0, {"key_until": 5.0}, None, 5.0),
    ({"methods": {"POST"}}, 0.0, {"key_until": 5.0}, None, 11.0),  # which needs no key
])  # fmt: skip
def test_a_call_is_held_while_its_origin_is_unwell(fields, held, state, after, until):
    gate = unhealthy()
    call = a_call(STEADY.replace(**fields), "POST", KEY, limits={"gate": gate}, **state)
    call.add_to_story("held", held)
    verdict, seconds = verdict_on(call, after=after), 1.0 if after is None else float(after)
    if until is None:
        assert verdict == GiveUp(Reason.ORIGIN_UNHEALTHY, seconds)
        assert gate.held() == 0
    else:
        assert verdict == SendAgain(seconds, "backoff" if after is None else "retry-after")
        assert call.hold.refusal == GiveUp(Reason.ORIGIN_UNHEALTHY, seconds)
        assert (call.hold.ready_at, call.hold.until) == (seconds, pytest.approx(until))
        assert gate.held() == 1


@pytest.mark.parametrize(
    ("now", "began_at", "is_held"), [(10.0, 5.0, True), (10.1, 5.0, False), (10.1, 0.0, True)]
)
def test_patience_belongs_to_the_outage(now: float, began_at: float, is_held: bool) -> None:
    """Unhealthy since 0: after 10 s failed calls end at once, but those that began before it."""
    refusal = GiveUp(Reason.ORIGIN_UNHEALTHY, 1.0)
    call = a_call(limits={"gate": unhealthy()}, started_at=began_at)
    assert verdict_on(call, now=now) == (AGAIN if is_held else refusal)


@pytest.mark.parametrize("answer", [nan, -0.001, inf, None, "soon", ValueError("secret")], ids=str)
def test_a_schedule_that_fails_costs_the_retry_not_the_response(answer: Any) -> None:
    """A user's schedule that raises, or answers no time: the error is kept for the log."""

    class Schedule:
        def delay(self, attempt: int, previous: float, random: Any) -> float:
            if isinstance(answer, Exception):
                raise answer
            return answer  # type: ignore[no-any-return]

    call = a_call(STEADY.replace(backoff=Schedule()))
    assert verdict_on(call) == GiveUp(Reason.STRATEGY_FAILED)
    assert isinstance(call.notes[PLUGIN_ERROR], Exception)


CORPUS = json.loads((Path(__file__).parents[1] / "corpus/retry_safety.json").read_text("utf-8"))
# DESIGN section 4: the corpus has finer labels than ``Reason``; None: accepted.
REASONS: dict[str, Reason | None] = {
    "decoding-error": Reason.PERMANENT_ERROR, "caller-error": Reason.PERMANENT_ERROR,
    "conflict-without-key": None, "status-final": None, "not-an-error": None,  # for a decision
}  # fmt: skip


def group_of(case: dict[str, Any]) -> str:
    return "status" if "status" in (end := case["outcome"]) else end["exception"].partition(".")[0]


def in_group(name: str) -> list[Any]:
    """What broke in a body is judged by its reader."""
    cases = [one for one in CORPUS["cases"] if one["outcome"].get("phase") != "body"]
    return [pytest.param(one, id=one["id"]) for one in cases if group_of(one) == name]


@pytest.mark.parametrize(("method", "headers", "status", "lines", "expected"), [
    ("POST", KEY, 500, [REPLAYED], REPLAY), ("PUT", KEY, 500, [REPLAYED], REPLAY),
    ("POST", KEY, 409, [REPLAYED], REPLAY),
    ("POST", KEY, 500, [("idempotent-replayed", " TRUE ")], REPLAY),
    ("POST", KEY, 500, [("Idempotent-Replayed", "1")], AGAIN),
    ("GET", (), 500, [REPLAYED], AGAIN),  # without a key it is not ours
    ("POST", KEY, 500, [REPLAYED, YES], AGAIN),  # an explicit yes outranks it
    ("POST", KEY, 500, [REPLAYED, NO], GiveUp(Reason.SERVER_SAID_NO)),
    ("POST", KEY, 422, [REPLAYED], None),  # a final status is accepted
])  # fmt: skip
def test_replayed(method: str, headers: Any, status: int, lines: Any, expected: Any) -> None:
    """The same key would bring the same stored answer again (Stripe API v1). (S6)"""
    assert verdict_on(a_call(STEADY, method, headers), status, *lines) == expected


@pytest.mark.parametrize(("methods", "expected"), [
    (["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "QUERY"], AGAIN),
    (["POST", "PATCH", "CONNECT", "PROPFIND", "MKCOL", "LOCK", "PURGE"], NO_METHOD),
    (["get", "Get", ""], NO_METHOD),  # RFC 9110 section 9.1: method names are case-sensitive
], ids=["idempotent", "others", "odd"])  # fmt: skip
def test_methods(methods: list[str], expected: Any) -> None:
    """RFC 9110 section 9.2.2; anything goes if nothing was sent, or with a key. (S2, S8, S10)"""
    for method in methods:
        assert decide(a_call(method=method), RESET, 0.0) == expected
        assert decide(a_call(method=method), REFUSED, 0.0) == AGAIN
        assert decide(a_call(method=method, headers=KEY), RESET, 0.0) == AGAIN


def test_an_explicit_no_outranks_an_unexecuted_status() -> None:
    call = a_call(THROTTLED, "POST")
    assert verdict_on(call, 429, NO) == GiveUp(Reason.SERVER_SAID_NO)
    assert verdict_on(call, 429, after=61) == GiveUp(Reason.RETRY_AFTER_TOO_LONG, 61.0)


def test_a_server_that_names_a_time_is_not_asked_sooner() -> None:
    call = a_call(FAST)
    assert verdict_on(call, 502, after=3) == SendAgain(3.0, "retry-after")
    call.sending(3.0)
    assert verdict_on(call, 502, after=0, now=3.0) == SendAgain(0.1, "backoff")


def test_hints_ignored_are_ignored_as_delays_only() -> None:
    policy = STEADY.replace(hints="ignore")
    assert verdict_on(a_call(policy), after=3_600) == AGAIN
    assert verdict_on(a_call(policy), 400, YES, after=30) == AGAIN


@pytest.mark.parametrize(("now", "deadline_at", "backoff", "is_retried"), [
    (0.0, 1.0 + 2 * LEAST_ATTEMPT, 1.0, True), (0.0, 1.0, 1.0, False),
    (100.0, 101.5, 1.0, True), (100.0, 99.0, 1.0, False), (9.9, 10.0, 0.0, True),
    (10.0, 10.0, 0.0, False),  # no wait at all still needs time for the attempt
])  # fmt: skip
def test_no_wait_is_begun_that_cannot_be_followed_by_an_attempt(
    now, deadline_at, backoff, is_retried
):
    """Sleeping for the remaining time and then failing is the worst of both."""
    call = a_call(STEADY.replace(backoff=Fixed(backoff)), deadline_at=deadline_at)
    expected = SendAgain(backoff, "backoff") if is_retried else GiveUp(Reason.DEADLINE, backoff)
    assert verdict_on(call, now=now) == expected


def test_the_budget_is_asked_after_the_gate_and_leaves_no_place() -> None:
    gate = unhealthy()
    call = a_call(limits={"gate": gate, "budget": no_tokens()})
    assert verdict_on(call) == GiveUp(Reason.BUDGET_EXHAUSTED, 1.0)
    call.limits.leave(call, 0.0)
    assert gate.held() == 0


def test_every_case_of_the_corpus_is_run_somewhere() -> None:
    elsewhere = {"requests", "urllib3", "asyncio", "builtins"}  # adapters/test_urllib3_errors.py
    assert set(map(group_of, CORPUS["cases"])) == {"status", "httpx"} | elsewhere


def check(case: dict[str, Any], failure: Failure) -> None:
    guard = GONE if case["body"] == "one-shot" and case["body_read"] else None
    call = a_call(STEADY, case["method"], case["headers"], guard=guard)
    verdict, expect = decide(call, failure, 0.0), case["expect"]
    assert isinstance(verdict, SendAgain) is expect["may_retry"]
    label: Any = expect["reason"]
    if not expect["may_retry"]:
        reason = REASONS[label] if label in REASONS else Reason(label)
        assert verdict == (None if reason is None else GiveUp(reason))
    elif failure.kind is FailureKind.UNPROCESSED:
        assert label == "unprocessed"
    elif failure.phase is Phase.UNSENT:
        assert label == "not-sent"
    else:
        is_idempotent = case["method"] in call.policy.methods
        assert label == ("idempotent-method" if is_idempotent else "idempotency-key")


@pytest.mark.parametrize("case", in_group("status"))
def test_corpus_status(case: dict[str, Any]) -> None:
    status, lines = case["outcome"]["status"], case["outcome"]["headers"]
    check(case, answered(STEADY, status, lines, lambda: UTC))


@pytest.mark.parametrize("case", in_group("httpx"))
def test_corpus_exception(case: dict[str, Any]) -> None:
    for family, adapter in (("httpx", forbear.httpx), ("httpx2", forbear.httpx2)):
        check(case, adapter.classify(exception_of(case["outcome"], family)))
