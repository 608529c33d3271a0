"""Cooldown: who is held, for how long, in which order let go, and what a tenant sees of another."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from forbear import (
    CircuitBreaker,
    Failure,
    FailureKind,
    Fixed,
    Hint,
    Origins,
    Phase,
    Reason,
    RetryBudget,
    RetryPolicy,
    RetryRefused,
    StandardStrategy,
)
from forbear.core.request import Request
from forbear.shared.cooldown import LONGEST, MOST_KEYS, PACE, Cooldown
from forbear.shared.standard import StandardToken

A, B = "http://a:80", "http://b:80"
NOW = 1_000.0
RESET = Failure(FailureKind.RESET, Phase.SENT, error="ReadError")


def answer(status: int, delay: float | None = None, source: str = "retry-after") -> Failure:
    hint = Hint(delay, None, source if delay is not None else None)
    return Failure(FailureKind.STATUS, Phase.ANSWERED, status=status, hint=hint)


def facts(origin: str = A, **headers: str) -> Request:
    return Request(
        "GET", origin, [(name.replace("_", "-"), value) for name, value in headers.items()]
    )


def a_strategy(mode: Any = "all", random: Any = lambda: 0.0, **options: Any) -> StandardStrategy:
    fields = {"backoff": Fixed(0.0), "hint_spread": 0.0, "max_attempts": 99}
    policy = options.pop("policy", None) or RetryPolicy(**{**fields, **options.pop("fields", {})})  # type: ignore[arg-type]
    return StandardStrategy(policy, cooldown=mode, random=random, **options)


def asked(
    strategy: StandardStrategy,
    failure: Failure,
    request: Request | None = None,
    now: float = NOW,
) -> Any:
    """A call gets this answer to its first attempt; return its token."""
    request = facts() if request is None else request
    return strategy.observe(
        None, failure, now, facts=request, scope=lambda: A, attempts=1, sent_at=now
    )


def held(strategy: StandardStrategy, request: Request | None = None, now: float = NOW) -> float:
    """Seconds that the first attempt of another call is held."""
    token = strategy.begin(facts() if request is None else request, A, now)
    strategy.release(token, now)
    return token.delay


# --- who is held ------------------------------------------------------------------------------


def test_a_503_with_a_time_holds_everybody() -> None:
    strategy = a_strategy()
    asked(strategy, answer(503, 5.0), facts(authorization="Bearer one"))
    assert held(strategy, facts(authorization="Bearer two")) == 5.0
    assert held(strategy, now=NOW + 2) == pytest.approx(3.0 + PACE)
    assert held(strategy, facts(B)) == 0.0
    assert held(strategy, now=NOW + 5) == 0.0


@pytest.mark.parametrize(
    "failure",
    [answer(429, 5.0), answer(403, 5.0, "x-ratelimit-reset")],
    ids=["429", "an exhausted quota"],
)
@pytest.mark.parametrize("header", ["Authorization", "X-API-Key"])
def test_a_429_holds_only_who_has_the_same_credential(failure: Failure, header: str) -> None:
    """One tenant does not punish another, nor those who have no name."""
    strategy = a_strategy()
    mine = {header: "one"}
    asked(strategy, failure, facts(**mine))
    assert held(strategy, facts(**{header.lower(): "one"})) == 5.0
    assert held(strategy, facts(**{header: "two"})) == 0.0
    assert held(strategy, facts()) == 0.0
    assert held(strategy, facts(B, **mine)) == 0.0


def test_calls_without_a_credential_are_one_tenant() -> None:
    strategy = a_strategy()
    asked(strategy, answer(429, 5.0))
    assert held(strategy) == 5.0
    assert held(strategy, facts(authorization="Bearer one")) == 0.0


def test_headers_in_octets_are_the_same_credential() -> None:
    cooldown = Cooldown("all", lambda: 0.5)
    text = cooldown.credential_of([("Authorization", "Bearer x"), ("Accept", "*/*")])
    assert text == cooldown.credential_of([(b"authorization", b"Bearer x")])
    assert text != cooldown.credential_of([("x-api-key", "Bearer x")])


def test_no_credential_is_kept_and_the_hash_is_salted() -> None:
    one, other = Cooldown("all", lambda: 0.1), Cooldown("all", lambda: 0.2)
    lines = [("Authorization", "Bearer s3cret")]
    assert one.credential_of(lines) != other.credential_of(lines)
    one.begin(A, one.credential_of(lines), 5.0, NOW)
    assert "s3cret" not in repr(one) + str(one._entries)


@pytest.mark.parametrize(
    "failure",
    [RESET, answer(429), answer(503), answer(500, 5.0), answer(503, 0.0)],
    ids=lambda value: repr(value),
)
def test_who_asked_for_nothing_gets_nothing(failure: Failure) -> None:
    """No time, or no throttling: only the caller's own backoff."""
    strategy = a_strategy()
    asked(strategy, failure)
    assert strategy.quiet
    assert held(strategy) == 0.0


def test_off_holds_nobody() -> None:
    strategy = a_strategy("off")
    asked(strategy, answer(503, 5.0))
    assert held(strategy) == 0.0


def test_retries_only() -> None:
    """A first attempt goes through; a retry of another call waits as long as the origin asked."""
    strategy = a_strategy("retries")
    asked(strategy, answer(503, 5.0))
    assert strategy.quiet  # first attempts need not ask
    token = strategy.begin(facts(), A, NOW)
    assert (token.delay, strategy.admit(token, NOW)) == (0.0, 0.0)
    token.attempts = 1
    token = strategy.observe(
        token, RESET, NOW + 1, facts=facts(), scope=lambda: A, attempts=1, sent_at=NOW
    )
    strategy.refresh_token(token, RESET, NOW + 1, latest=1e9)
    assert (token.delay, token.source) == (4.0, "cooldown")


def test_a_policy_that_ignores_hints_is_not_held() -> None:
    strategy = a_strategy()
    asked(strategy, answer(503, 5.0))
    stubborn = strategy.with_policy(RetryPolicy(hints="ignore"))
    assert held(stubborn) == 0.0


# --- for how long -----------------------------------------------------------------------------


def test_the_longest_word_holds() -> None:
    strategy = a_strategy()
    asked(strategy, answer(503, 5.0))
    asked(strategy, answer(503, 2.0))
    assert held(strategy) == 5.0
    asked(strategy, answer(503, 8.0))
    assert held(strategy) == pytest.approx(8.0 + PACE)


def test_everybodys_and_ones_own() -> None:
    strategy = a_strategy()
    asked(strategy, answer(503, 2.0))
    asked(strategy, answer(429, 5.0), facts(authorization="one"))
    assert held(strategy, facts(authorization="one")) == 5.0
    assert held(strategy, facts(authorization="two")) == pytest.approx(2.0 + PACE)


def test_no_server_can_be_left_alone_for_ever() -> None:
    cooldown = Cooldown("all", lambda: 0.0)
    cooldown.begin(A, b"", 2_147_483_648.0, NOW)
    assert cooldown.left(A, b"", NOW) == LONGEST


def test_one_that_would_wait_too_long_is_told_at_once() -> None:
    strategy = a_strategy(fields={"max_retry_after": 10.0})
    asked(strategy, answer(503, 30.0))
    with pytest.raises(RetryRefused) as caught:
        strategy.begin(facts(), A, NOW + 5)
    assert (caught.value.reason, caught.value.send) == (Reason.RETRY_AFTER_TOO_LONG, False)
    assert caught.value.retry_after == 25.0
    assert held(strategy, now=NOW + 20) == 10.0


def test_a_retry_that_would_wait_too_long_is_refused_before_it_is_paid() -> None:
    budget = RetryBudget()
    strategy = a_strategy("retries", budget=budget, fields={"max_retry_after": 10.0})
    asked(strategy, answer(503, 30.0))
    token = asked(strategy, RESET)
    with pytest.raises(RetryRefused) as caught:
        strategy.refresh_token(token, RESET, NOW, latest=1e9)
    assert (caught.value.reason, caught.value.retry_after) == (Reason.RETRY_AFTER_TOO_LONG, 30.0)
    with pytest.raises(RetryRefused) as caught:
        strategy.refresh_token(token, RESET, NOW + 25, latest=4.0)
    assert (caught.value.reason, caught.value.retry_after) == (Reason.DEADLINE, 5.0)
    assert budget.quiet


def test_what_is_on_top_is_cut_to_the_deadline_and_the_word_is_not() -> None:
    strategy = a_strategy("retries", random=lambda: 0.9, fields={"hint_spread": 0.5})
    asked(strategy, answer(503, 4.0))
    token = asked(strategy, RESET)
    assert strategy.refresh_token(token, RESET, NOW, latest=4.2).delay == 4.2


def test_the_own_answers_header_stays_the_source() -> None:
    strategy = a_strategy("retries")
    failure = answer(503, 5.0)
    token = asked(strategy, failure)
    strategy.refresh_token(token, failure, NOW, latest=1e9)
    assert (token.delay, token.source) == (5.0, "retry-after")


def test_one_looks_again_when_its_time_has_come() -> None:
    """Held for 5 s; meanwhile another call was told 4 s more: 4 s again, and then it goes."""
    strategy = a_strategy()
    asked(strategy, answer(503, 5.0))
    token = strategy.begin(facts(), A, NOW)
    assert token.delay == 5.0
    asked(strategy, answer(503, 4.0), now=NOW + 5)
    assert strategy.admit(token, NOW + 5) == 4.0
    assert strategy.admit(token, NOW + 9) == 0.0


def test_a_call_is_not_held_for_ever() -> None:
    """5 + 4 + 4 s are longer than the 10 s that the policy waits for a server."""
    strategy = a_strategy(fields={"max_retry_after": 10.0})
    asked(strategy, answer(503, 5.0))
    token = strategy.begin(facts(), A, NOW)
    asked(strategy, answer(503, 4.0), now=NOW + 5)
    assert strategy.admit(token, NOW + 5) == 4.0
    asked(strategy, answer(503, 4.0), now=NOW + 9)
    with pytest.raises(RetryRefused) as caught:
        strategy.admit(token, NOW + 9)
    assert (caught.value.reason, caught.value.send) == (Reason.RETRY_AFTER_TOO_LONG, False)


def test_nobody_waits_for_a_circuit_that_is_open() -> None:
    breaker = CircuitBreaker(1, open_for=30.0)
    strategy = a_strategy(breaker=breaker)
    asked(strategy, answer(503, 5.0))
    with pytest.raises(RetryRefused) as caught:
        strategy.begin(facts(), A, NOW)
    assert (caught.value.reason, caught.value.retry_after) == (Reason.CIRCUIT_OPEN, 30.0)


def test_a_permit_is_not_held_while_waiting() -> None:
    """Open for 1 s, held for 5: nothing waits for a probe, and the permit is taken when it is
    sent.
    """
    breaker = CircuitBreaker(1, open_for=1.0)
    strategy = a_strategy(breaker=breaker)
    asked(strategy, answer(429, 5.0), facts(authorization="one"))
    asked(strategy, RESET)
    with pytest.raises(RetryRefused) as caught:
        strategy.begin(facts(authorization="one"), A, NOW)
    assert (caught.value.reason, caught.value.retry_after) == (Reason.CIRCUIT_OPEN, 1.0)
    token = strategy.begin(facts(authorization="one"), A, NOW + 2)
    assert token.delay == 3.0
    assert breaker.refused_for(A, NOW + 4) == 0.0
    assert strategy.admit(token, NOW + 5) == 0.0
    assert breaker.refused_for(A, NOW + 5) > 0.0


# --- let go -----------------------------------------------------------------------------------


def test_a_thousand_callers_are_let_go_one_after_the_other() -> None:
    """A millisecond apart: no 10 ms in which more than 11 of them send, and all within a second."""
    strategy = a_strategy(fields={"hint_spread": 0.0})
    asked(strategy, answer(503, 5.0))
    releases = sorted(held(strategy) for _ in range(1_000))
    assert releases[0] == 5.0
    assert releases[-1] == pytest.approx(5.999)
    assert max(sum(1 for other in releases if at <= other < at + 0.010) for at in releases) <= 11


def test_a_fleet_that_was_told_the_same_second_does_not_return_in_step() -> None:
    """hint_spread, as for hints: 0.1 of 5 s, by each caller's own random number."""
    draws = iter([0.0, 0.0, 0.5, 0.0, 1.0, 0.0])
    strategy = a_strategy(random=lambda: next(draws), fields={"hint_spread": 0.1})
    strategy._cooldown.begin(A, b"", 5.0, NOW)  # type: ignore[union-attr]
    assert [strategy.acquire_initial_token(A, NOW).delay for _ in range(3)] == pytest.approx(
        [5.0, 5.251, 5.502]
    )


def test_a_lone_caller_waits_a_millisecond_more_at_most() -> None:
    strategy = a_strategy(random=lambda: 0.999)
    asked(strategy, answer(503, 0.2))
    assert 0.2 <= held(strategy) <= 0.2 + PACE


def test_a_new_cooldown_has_a_new_queue() -> None:
    strategy = a_strategy()
    asked(strategy, answer(503, 1.0))
    for _ in range(100):
        held(strategy)
    asked(strategy, answer(503, 1.0), now=NOW + 2)
    assert held(strategy, now=NOW + 2) == pytest.approx(1.0)


def test_threads_get_different_places() -> None:
    cooldown = Cooldown("all", lambda: 0.0)
    cooldown.begin(A, b"", 60.0, NOW)
    places: list[float] = []

    def wait() -> None:
        for _ in range(100):
            places.append(cooldown.queue(A, b"", NOW))

    threads = [threading.Thread(target=wait) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(places)) == 800


# --- what is kept -----------------------------------------------------------------------------


def test_quiet_is_back_when_the_last_one_is_over() -> None:
    strategy = a_strategy()
    assert strategy.gauge.quiet
    asked(strategy, answer(503, 5.0))
    asked(strategy, answer(503, 7.0), facts(B))
    assert (strategy.gauge.quiet, strategy.quiet) == (False, False)
    assert held(strategy, now=NOW + 6) == 0.0
    assert not strategy.gauge.quiet
    assert held(strategy, now=NOW + 7) == 0.0
    assert (strategy.gauge.quiet, strategy.quiet) == (True, True)


def test_what_is_kept_is_bounded() -> None:
    cooldown = Cooldown("all", lambda: 0.0)
    for number in range(MOST_KEYS + 5):
        cooldown.begin(A, str(number).encode(), 5.0, NOW)
    assert repr(cooldown) == f"<Cooldown all, {MOST_KEYS} held>"
    assert cooldown.left(A, b"4", NOW) == 0.0
    assert cooldown.left(A, b"5", NOW) == 5.0


def test_without_anybody_to_tell_it_still_counts() -> None:
    cooldown = Cooldown("all", lambda: 0.0)
    cooldown.begin(A, b"", 5.0, NOW)
    assert not cooldown.quiet
    assert cooldown.left(A, b"", NOW + 5) == 0.0
    assert cooldown.quiet


def test_a_mode_that_there_is_not() -> None:
    with pytest.raises(
        ValueError, match="cooldown must be one of 'off', 'retries', 'all', got 'on'"
    ):
        a_strategy("on")


# --- where another origin can stand in ---------------------------------------------------------


@pytest.mark.parametrize("seconds", [30.0, 120.0])
def test_a_retry_goes_on_to_an_origin_that_nobody_is_to_leave_alone(seconds: float) -> None:
    """It was to go to B after 1 s; then another call was told by B to come back later. A named no
    time.
    """
    strategy = a_strategy("retries", origins=Origins([A, B]), fields={"backoff": Fixed(1.0)})
    token = asked(strategy, RESET)
    assert strategy.refresh_token(token, RESET, NOW, latest=1e9).delay == 1.0
    assert token.origin == B
    asked(strategy, answer(503, seconds), facts(B))
    assert strategy.admit(token, NOW + 1) == 0
    assert token.origin == A


def test_when_all_are_left_alone_a_retry_is_held_for_the_one_that_comes_back_first() -> None:
    strategy = a_strategy("all", origins=Origins([A, B]))
    asked(strategy, answer(503, 30.0), facts(A))
    asked(strategy, answer(503, 20.0), facts(B))
    token = strategy.begin(facts(A), A, NOW)
    assert isinstance(token, StandardToken)
    assert (token.origin, token.delay) == (B, 20.0)
    assert strategy.admit(token, NOW + 20) == 0
    strategy.release(token, NOW + 20)
    asked(strategy, answer(503, 90.0), facts(B))
    asked(strategy, answer(503, 80.0), facts(A))
    with pytest.raises(RetryRefused) as caught:
        strategy.begin(facts(A), A, NOW)
    assert (caught.value.reason, caught.value.send, caught.value.retry_after) == (
        "retry-after-too-long",
        False,
        80.0,
    )
