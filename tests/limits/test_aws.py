"""AwsStandard and TokenBucket: the published scenarios, worked out by hand, and what we add.

The sequences are those of smithy-python's functional tests
(``tests/functional/test_sync_retries.py`` of smithy-core) and of the example in Smithy's guide
"Retrying Requests". What must be left is counted here from the rules: start full; a retry takes its
cost; a success brings back what its last retry has cost, or 1.
"""

import copy
import pickle

import pytest

from forbear import Exponential, Fixed, Reason
from forbear.strategies import AwsStandard, RetryRefused, TokenBucket

from ..failures import RESET, TIMEOUT, answer
from ..threads import hasty, in_threads

A = "http://a:80"


def a_strategy(capacity=500, **fields):
    return AwsStandard(**{"bucket": TokenBucket(capacity), "random": lambda: 1.0, **fields})


def run(strategy, *outcomes):
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


EXHAUSTED, EMPTY = Reason.ATTEMPTS_EXHAUSTED, Reason.BUDGET_EXHAUSTED


@pytest.mark.parametrize(("capacity", "most", "calls", "left"), [
    pytest.param(500, 3, [([500, 500, 200], 3, None)], 486, id="the last cost back: - 14 - 14 + 14"),
    pytest.param(500, 3, [([502, 502, 502], 3, EXHAUSTED)], 472, id="nothing back for what was sent"),
    pytest.param(14, 3, [([500, 502], 2, EMPTY)], 0, id="exhausted: no 14 for the next"),
    pytest.param(0, 3, [([500], 1, EMPTY)], 0, id="nothing from the start"),
    pytest.param(20, 5, [([500, 502], 2, EMPTY)], 6, id="a rest of 6 that buys nothing"),
    pytest.param(30, 5, [([500, 502, 200], 3, None), ([500, 200], 2, None)], 16,
        id="recovers: - 14 - 14 + 14, - 14 + 14"),
    pytest.param(500, 3, [([TIMEOUT, TIMEOUT, 200], 3, None)], 486, id="timeouts cost as failures do"),
    pytest.param(500, 5, [([500, 500, 200], 3, None), ([500, 200], 2, None)], 486, id="two calls"),
    pytest.param(500, 3, [([429, 429, 200], 3, None)], 495, id="throttled: - 5 - 5 + 5"),
    # What the last retry has cost comes back, not the sum.
    pytest.param(500, 3, [([429, 500, 200], 3, None)], 495, id="throttled, failed: - 5 - 14 + 14"),
    pytest.param(500, 3, [([500, 429, 200], 3, None)], 486, id="failed, throttled: - 14 - 5 + 5"),
    pytest.param(500, 3, [([502, 502, 502], 3, EXHAUSTED), *[([200], 1, None)] * 2], 474,
        id="gains 1 for each success without a retry"),
    pytest.param(500, 3, [([200], 1, None)] * 3, 500, id="no more than full"),
])  # fmt: skip
def test_standard(capacity, most, calls, left):
    strategy = a_strategy(capacity, max_attempts=most)
    for outcomes, attempts, reason in calls:
        assert run(strategy, *outcomes) == (attempts, reason)
    assert strategy.bucket.tokens == left
    assert strategy.quiet is (left >= capacity)


def refreshed(strategy, *failures):
    """The token of a call after these failures, and the waits that it was given."""
    token, waits = strategy.acquire_initial_token(A, 0.0), []
    assert token.delay == 0.0
    for failure in failures:
        token.attempts += 1
        token = strategy.refresh_token(token, failure, 0.0, latest=1e9)
        waits.append(token.delay)
    return token, waits


@pytest.mark.parametrize(("failure", "delay", "source"), [
    # AWS would cut both at 0.05 + 5 s, and 1 + 5 s: P3
    pytest.param(answer(500, 30.0), 30.0, "retry-after", id="far beyond the backoff"),
    pytest.param(answer(429, 6.5, "retry-after-ms"), 6.5, "retry-after-ms", id="beyond, throttled"),
    pytest.param(answer(500, 0.02), 0.05, "backoff", id="below the backoff"),
    pytest.param(answer(500, 0.0), 0.05, "backoff", id="at once"),
])  # fmt: skip
def test_the_servers_word_is_obeyed_in_full(failure, delay, source):
    token, _ = refreshed(a_strategy(), failure)
    assert (token.delay, token.source) == (delay, source)


@pytest.mark.parametrize(("failure", "latest", "attempts", "reason", "delay"), [
    pytest.param(RESET, 1e9, 3, EXHAUSTED, None, id="attempts"),
    pytest.param(RESET, 0.04, 1, Reason.DEADLINE, 0.05, id="backoff past the deadline"),
    pytest.param(answer(503, 5.0), 4.0, 1, Reason.DEADLINE, 5.0, id="hint past the deadline"),
    pytest.param(RESET, 0.0499, 1, Reason.DEADLINE, 0.05, id="by a little"),
    pytest.param(RESET, -1.0, 1, Reason.DEADLINE, 0.05, id="deadline over"),
])  # fmt: skip
def test_it_refuses_before_it_takes(failure, latest, attempts, reason, delay):
    strategy = a_strategy()
    token = strategy.acquire_initial_token(A, 0.0)
    token.attempts = attempts
    with pytest.raises(RetryRefused) as caught:
        strategy.refresh_token(token, failure, 0.0, latest=latest)
    assert (caught.value.reason, caught.value.retry_after) == (reason, delay)
    assert strategy.bucket.tokens == 500
    assert strategy.quiet


def test_a_wait_that_ends_with_the_deadline_and_the_first_of_a_decorrelated_schedule():
    strategy = a_strategy(backoff=Exponential(base=0.05, cap=20.0, jitter="decorrelated"))
    token = strategy.acquire_initial_token(A, 0.0)
    token.attempts = 1
    assert strategy.refresh_token(token, RESET, 0.0, latest=3 * 0.05).delay == 3 * 0.05


def test_quiet_is_a_full_bucket():
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


@pytest.mark.parametrize("first", ["record_success", "release"])
@pytest.mark.parametrize("second", ["record_success", "release"])
def test_both_ends_are_idempotent(first, second):
    """500 - 14 - 5. Cancelled before the second retry was sent, or succeeded: its 5 back."""
    strategy = a_strategy()
    token, _ = refreshed(strategy, RESET, answer(429))
    assert strategy.bucket.tokens == 481
    token.attempts += first == "record_success"
    for end in (first, second, second):
        getattr(strategy, end)(token, 0.0)
    assert strategy.bucket.tokens == 486


def test_32_threads_never_overspend():
    """500 buys 35 retries at 14, and 10 are left: not one more, whoever comes first."""
    bucket = TokenBucket()
    with hasty():
        bought = in_threads(32, lambda n: sum(bucket.spend(14) for _ in range(20)))
    assert (sum(bought), bucket.tokens) == (35, 10)


def middle():
    return 0.5


@pytest.mark.parametrize(
    "twin_of", [copy.deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))]
)
def test_a_copy_of_a_strategy_follows_the_same_rules(twin_of):
    """For an adapter that is pickled with its session, and sent to another process."""
    strategy = a_strategy(30, max_attempts=7, backoff=Fixed(3.0), random=middle)
    assert run(strategy, 500, 500, 500) == (3, EMPTY)
    twin = twin_of(strategy)
    assert (twin.max_attempts, twin.bucket.tokens, strategy.bucket.tokens) == (7, 30, 2)
    assert refreshed(twin, RESET, answer(429))[1] == [3.0, 1.0]
    twins = [twin_of(AwsStandard()) for _ in "ab"]
    waits = [refreshed(twin, RESET)[1][0] for twin in twins]
    assert 0.0 <= min(waits) < max(waits) <= 0.05  # not in step


def test_repr_is_one_line_of_state():
    strategy = a_strategy()
    assert run(strategy, 500, 500, 200) == (3, None)
    assert repr(strategy) == "<AwsStandard max_attempts=3 <TokenBucket 486/500>>"
    token = strategy.acquire_initial_token(A, 0.0)
    assert repr(token) == "<RetryToken after 0 attempts, delay 0 s>"
