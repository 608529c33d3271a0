"""AwsStandard and TokenBucket: the published scenarios, worked out by hand, and what forbear adds
to them.

The sequences are those of smithy-python's functional tests
(``tests/functional/test_sync_retries.py`` of smithy-core) and of the example in Smithy's guide
"Retrying Requests". What must be left is counted here from the rules: start full; a retry takes its
cost; a success brings back what its last retry has cost, or 1.
"""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from forbear import (
    AwsStandard,
    Exponential,
    Failure,
    FailureKind,
    Fixed,
    Phase,
    Reason,
    RetryRefused,
    RetryStrategy,
    TokenBucket,
)

from ..failures import RESET, TIMEOUT, answer
from ..threads import hasty, in_threads

A = "http://a:80"


def a_strategy(capacity: float = 500, **fields: Any) -> AwsStandard:
    return AwsStandard(**{"bucket": TokenBucket(capacity), "random": lambda: 1.0, **fields})


def run(strategy: RetryStrategy, *outcomes: int | Failure) -> tuple[int, Reason | None]:
    """One call as the core makes it; attempts sent, and why it gave up."""
    token = strategy.acquire_initial_token(A, 0.0)
    for outcome in outcomes:
        token.attempts += 1
        if outcome == 200:
            strategy.record_success(token, 0.0)
            return token.attempts, None
        try:
            failure = answer(outcome) if isinstance(outcome, int) else outcome
            token = strategy.refresh_token(token, failure, 0.0, latest=1e9)
        except RetryRefused as refused:
            strategy.release(token, 0.0)
            return token.attempts, refused.reason
    raise AssertionError("the call went on")


# --- published scenarios ----------------------------------------------------------------------

EXHAUSTED, EMPTY = Reason.ATTEMPTS_EXHAUSTED, Reason.BUDGET_EXHAUSTED


@pytest.mark.parametrize(
    ("capacity", "most", "calls", "left"),
    [
        # 500 - 14 - 14, and the last cost back: + 14
        pytest.param(500, 3, [([500, 500, 200], 3, None)], 486, id="eventually succeeds"),
        # 500 - 14 - 14; nothing comes back for attempts that were sent
        pytest.param(500, 3, [([502, 502, 502], 3, EXHAUSTED)], 472, id="attempts exhausted"),
        # 14 - 14, and no 14 for the next
        pytest.param(14, 3, [([500, 502], 2, EMPTY)], 0, id="exhausted after one retry"),
        pytest.param(0, 3, [([500], 1, EMPTY)], 0, id="nothing from the start"),
        # 20 - 14 = 6, less than 14
        pytest.param(20, 5, [([500, 502], 2, EMPTY)], 6, id="a rest that buys nothing"),
        # 30 - 14 - 14 + 14 = 16; 16 - 14 + 14 = 16
        pytest.param(30, 5, [([500, 502, 200], 3, None), ([500, 200], 2, None)], 16, id="recovers"),
        # a timeout costs what any failure costs: 500 - 14 - 14 + 14
        pytest.param(500, 3, [([TIMEOUT, TIMEOUT, 200], 3, None)], 486, id="timeouts"),
        # 500 - 14 - 14 + 14, then - 14 + 14
        pytest.param(
            500, 5, [([500, 500, 200], 3, None), ([500, 200], 2, None)], 486, id="two calls"
        ),
        # throttling costs 5: 500 - 5 - 5 + 5
        pytest.param(500, 3, [([429, 429, 200], 3, None)], 495, id="throttled"),
        # 500 - 5 - 14 + 14: what the last retry has cost, not the sum
        pytest.param(500, 3, [([429, 500, 200], 3, None)], 495, id="throttled, then failed"),
        # 500 - 14 - 5 + 5
        pytest.param(500, 3, [([500, 429, 200], 3, None)], 486, id="failed, then throttled"),
        # 472 after the first, + 1 for each success without a retry
        pytest.param(
            500,
            3,
            [([502, 502, 502], 3, EXHAUSTED), ([200], 1, None), ([200], 1, None)],
            474,
            id="gains",
        ),
        # 500 is all there can be
        pytest.param(500, 3, [([200], 1, None)] * 3, 500, id="no more than full"),
    ],
)
def test_standard(capacity: int, most: int, calls: list[Any], left: int) -> None:
    strategy = a_strategy(capacity, max_attempts=most)
    for outcomes, attempts, reason in calls:
        assert run(strategy, *outcomes) == (attempts, reason)
    assert strategy.bucket.tokens == left
    assert strategy.quiet is (left >= capacity)


@pytest.mark.parametrize(
    ("calls", "left"),
    [
        # 500 - 5 - 5 + 1: a success brings 1, whatever its retries have cost
        pytest.param([([500, 500, 200], 3, None)], 491, id="eventually succeeds"),
        # 500 - 10 - 10 + 1
        pytest.param([([TIMEOUT, TIMEOUT, 200], 3, None)], 481, id="timeouts"),
        # four retries: 500 - 4 * 5
        pytest.param([([500] * 5, 5, EXHAUSTED)], 480, id="attempts exhausted"),
        # 500 - 5 - 10 - 5 + 1: throttling costs what a failure costs
        pytest.param([([429, TIMEOUT, 503, 200], 4, None)], 481, id="mixed"),
        # 480, then a token for each of two successes
        pytest.param(
            [([500] * 5, 5, EXHAUSTED), ([200], 1, None), ([200], 1, None)], 482, id="gains"
        ),
    ],
)
def test_numbers_of_smithys_example(calls: list[Any], left: int) -> None:
    """5 tokens a retry, 10 after a timeout, 1 for a success, five attempts."""
    bucket = TokenBucket(
        cost=5, throttling_cost=5, timeout_cost=10, success_gain=1, returns_cost=False
    )
    strategy = a_strategy(max_attempts=5, bucket=bucket)
    for outcomes, attempts, reason in calls:
        assert run(strategy, *outcomes) == (attempts, reason)
    assert strategy.bucket.tokens == left


# --- waits ------------------------------------------------------------------------------------


def waits(strategy: AwsStandard, *failures: Failure) -> list[float]:
    token, found = strategy.acquire_initial_token(A, 0.0), []
    assert token.delay == 0.0
    for failure in failures:
        token.attempts += 1
        token = strategy.refresh_token(token, failure, 0.0, latest=1e9)
        found.append(token.delay)
    return found


@pytest.mark.parametrize(
    ("status", "delays"),
    [
        (500, [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 20.0, 20.0]),
        (429, [1.0, 2.0, 4.0, 8.0, 16.0, 20.0]),
    ],
    ids=["50 ms doubling", "1 s doubling after throttling"],
)
def test_it_waits_twice_as_long_each_time_up_to_20_s(status: int, delays: list[float]) -> None:
    """0.05 × 2**8 = 12.8, then 25.6 is cut to 20."""
    assert waits(a_strategy(max_attempts=99), *[answer(status)] * len(delays)) == delays


def test_the_schedule_follows_each_failure() -> None:
    """The number of the attempt counts for both: 0.05, 1 × 2, 0.05 × 4."""
    strategy = a_strategy(max_attempts=99)
    assert waits(strategy, RESET, answer(429), answer(500)) == pytest.approx([0.05, 2.0, 0.2])


def test_the_wait_is_drawn_from_all_of_it() -> None:
    """Full jitter: from 0."""
    draws = iter([0.0, 0.25, 0.5])
    strategy = a_strategy(max_attempts=99, random=lambda: next(draws))
    assert waits(strategy, *[answer(500)] * 3) == [0.0, 0.025, 0.1]


@pytest.mark.parametrize(
    ("failure", "delay", "source"),
    [
        # AWS would cut both at 0.05 + 5 s, and 1 + 5 s: P3
        pytest.param(answer(500, 30.0), 30.0, "retry-after", id="far beyond the backoff"),
        pytest.param(
            answer(429, 6.5, "retry-after-ms"), 6.5, "retry-after-ms", id="beyond, throttled"
        ),
        pytest.param(answer(500, 0.02), 0.05, "backoff", id="below the backoff"),
        pytest.param(answer(500, 0.0), 0.05, "backoff", id="at once"),
    ],
)
def test_the_servers_word_is_obeyed_in_full(failure: Failure, delay: float, source: str) -> None:
    strategy = a_strategy()
    token = strategy.acquire_initial_token(A, 0.0)
    token.attempts = 1
    strategy.refresh_token(token, failure, 0.0, latest=1e9)
    assert (token.delay, token.source) == (delay, source)


@pytest.mark.parametrize(
    ("failure", "latest", "attempts", "reason", "delay"),
    [
        pytest.param(RESET, 1e9, 3, EXHAUSTED, None, id="attempts"),
        pytest.param(RESET, 0.04, 1, Reason.DEADLINE, 0.05, id="backoff past the deadline"),
        pytest.param(answer(503, 5.0), 4.0, 1, Reason.DEADLINE, 5.0, id="hint past the deadline"),
        pytest.param(RESET, -1.0, 1, Reason.DEADLINE, 0.05, id="deadline over"),
    ],
)
def test_it_refuses_before_it_takes(
    failure: Failure, latest: float, attempts: int, reason: Reason, delay: float | None
) -> None:
    strategy = a_strategy()
    token = strategy.acquire_initial_token(A, 0.0)
    token.attempts = attempts
    with pytest.raises(RetryRefused) as caught:
        strategy.refresh_token(token, failure, 0.0, latest=latest)
    assert (caught.value.reason, caught.value.retry_after) == (reason, delay)
    assert strategy.bucket.tokens == 500
    assert strategy.quiet


@pytest.mark.parametrize("wait", [-1.0, float("nan")])
def test_a_schedule_that_answers_nonsense_is_an_error_before_anything_is_taken(wait: float) -> None:
    class Nonsense:
        def delay(self, attempt: int, previous: float, random: Any) -> float:
            return wait

    strategy = a_strategy(backoff=Nonsense())
    token = strategy.acquire_initial_token(A, 0.0)
    token.attempts = 1
    with pytest.raises(ValueError, match="the backoff answered"):
        strategy.refresh_token(token, RESET, 0.0, latest=1e9)
    assert strategy.bucket.tokens == 500


# --- the bucket -------------------------------------------------------------------------------


def test_quiet_is_a_full_bucket() -> None:
    """Only then would a success bring nothing."""
    bucket = TokenBucket(20)
    strategy = a_strategy(bucket=bucket)
    assert strategy.quiet
    assert bucket.spend(2)
    assert not strategy.quiet
    assert not bucket.spend(19)
    assert not strategy.quiet
    bucket.deposit(0)
    assert not strategy.quiet
    bucket.deposit(0)
    assert strategy.quiet


def test_what_a_retry_costs() -> None:
    """A server that says "too much" is well: cheaper. A pool's timeout is a timeout too."""
    bucket = TokenBucket(cost=1, throttling_cost=2, timeout_cost=3)
    assert bucket.cost_of(RESET) == 1
    assert bucket.cost_of(answer(500)) == 1
    assert bucket.cost_of(answer(504)) == 1
    assert bucket.cost_of(answer(503)) == 1
    assert bucket.cost_of(answer(503, 1.0)) == 2
    assert bucket.cost_of(answer(429)) == 2
    assert bucket.cost_of(TIMEOUT) == 3
    assert bucket.cost_of(Failure(FailureKind.CONNECT_TIMEOUT, Phase.UNSENT)) == 3


def test_one_bucket_for_several_strategies() -> None:
    """14 + 14 of 30: the other one finds 2."""
    bucket = TokenBucket(30)
    one, two = a_strategy(bucket=bucket), a_strategy(bucket=bucket)
    assert run(one, 500, 500, 500) == (3, EXHAUSTED)
    assert run(two, 500) == (1, EMPTY)


def test_each_has_a_bucket_of_its_own_if_none_is_given() -> None:
    assert AwsStandard().bucket is not AwsStandard().bucket


def test_32_threads_never_overspend() -> None:
    """500 buys 35 retries at 14, and 10 are left: not one more, whoever comes first."""
    bucket = TokenBucket()
    with hasty():
        bought = in_threads(32, lambda n: sum(bucket.spend(14) for _ in range(20)))
    assert (sum(bought), bucket.tokens) == (35, 10)


# --- copies, reprs, what is refused -----------------------------------------------------------

TWINS = [copy.copy, copy.deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))]


@pytest.mark.parametrize("twin_of", TWINS, ids=["copy", "deepcopy", "pickle"])
def test_a_copy_of_a_bucket_has_the_same_numbers_and_is_full(twin_of: Any) -> None:
    bucket = TokenBucket(
        30, cost=2, throttling_cost=3, timeout_cost=4, success_gain=5, returns_cost=False
    )
    assert bucket.spend(7)
    twin = twin_of(bucket)
    assert [twin.cost_of(failure) for failure in (RESET, answer(429), TIMEOUT)] == [2, 3, 4]
    assert (twin.capacity, twin.success_gain, twin.returns_cost) == (30, 5, False)
    assert (twin.tokens, twin.quiet) == (30, True)
    assert twin.spend(1)
    assert bucket.tokens == 23


def middle() -> float:
    return 0.5


@pytest.mark.parametrize("twin_of", TWINS[1:], ids=["deepcopy", "pickle"])
def test_a_copy_of_a_strategy_follows_the_same_rules(twin_of: Any) -> None:
    """For an adapter that is pickled with its session, and sent to another process."""
    strategy = AwsStandard(
        max_attempts=7, bucket=TokenBucket(30), backoff=Fixed(3.0), random=middle
    )
    assert run(strategy, 500, 500, 500) == (3, EMPTY)
    twin = twin_of(strategy)
    assert (twin.max_attempts, twin.bucket.tokens, strategy.bucket.tokens) == (7, 30, 2)
    assert waits(twin, RESET, answer(429)) == [3.0, 1.0]
    assert 0.0 <= waits(twin_of(AwsStandard()), RESET)[0] <= 0.05


def test_repr_is_one_line_of_state() -> None:
    strategy = a_strategy()
    assert run(strategy, 500, 500, 200) == (3, None)
    assert repr(strategy) == "<AwsStandard max_attempts=3 <TokenBucket 486/500>>"
    token = strategy.acquire_initial_token(A, 0.0)
    assert repr(token) == "<AwsToken after 0 attempts, delay 0 s>"


WRONG: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
    (TokenBucket, {"capacity": -1}, ValueError, "capacity must be at least 0, got -1"),
    (TokenBucket, {"capacity": "500"}, TypeError, "capacity must be a number, got '500'"),
    (TokenBucket, {"cost": float("nan")}, ValueError, "cost must be finite, got nan"),
    (TokenBucket, {"returns_cost": 1}, TypeError, "returns_cost must be True or False, got 1"),
    (AwsStandard, {"max_attempts": 0}, ValueError, "max_attempts must be at least 1, got 0"),
    (AwsStandard, {"max_attempts": 2.5}, TypeError, "max_attempts must be a whole number, got 2.5"),
    (AwsStandard, {"bucket": 500}, TypeError, "bucket must be a TokenBucket, got 500"),
    (AwsStandard, {"backoff": 0.5}, TypeError, "backoff must be Exponential(…), Fixed(…) or"),
]


@pytest.mark.parametrize(("make", "fields", "error", "message"), WRONG)
def test_what_is_wrong_is_told(
    make: Any, fields: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        make(**fields)
    assert message in str(caught.value)


def test_defaults() -> None:
    """The numbers of the SDKs' standard mode."""
    strategy = AwsStandard()
    bucket = strategy.bucket
    costs = bucket.cost, bucket.throttling_cost, bucket.timeout_cost
    assert (strategy.max_attempts, bucket.capacity, costs) == (3, 500, (14, 5, 14))
    assert (bucket.success_gain, bucket.returns_cost) == (1, True)
    assert strategy.backoff == Exponential(base=0.05, cap=20.0, factor=2.0, jitter="full")
    assert strategy.throttle_backoff == Exponential(base=1.0, cap=20.0, factor=2.0, jitter="full")
