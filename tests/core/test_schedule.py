"""Schedules: waits, their ranges and worst cases by hand, and the bounds that no call breaks."""

import os
from itertools import cycle
from math import inf, nan

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forbear import Exponential, Fixed, RetryPolicy
from forbear.core.policy_check import extremes
from forbear.httpx import RetryTransport
from forbear.testing import FakeClock, ScriptedTransport

from ..processes import python


class Thirds:
    """Every third wait is a second; the others are up to a tenth."""

    def delay(self, attempt, previous, random):
        return 1.0 if attempt % 3 == 0 else 0.1 * random()


class Longer:
    """Half as long again as the wait before."""

    def delay(self, attempt, previous, random):
        return max(1.0, previous * 1.5)


@pytest.mark.parametrize(("backoff", "ranges"), [
    # 1 ± 0.25, 2 ± 0.5, 4 ± 1, of which nothing above 4 is left
    (Exponential(1.0, 4.0, jitter=0.25), [(0.75, 1.25), (1.5, 2.5), (3, 4), (3, 4)]),
    (Exponential(1.0, 9.0, factor=1.0, jitter="full"), [(0, 1), (0, 1), (0, 1)]),
    (Fixed(2.0), [(2, 2), (2, 2)]), (Thirds(), [(0, 0.1), (0, 0.1), (1, 1), (0, 0.1)]),
    (Longer(), [(1, 1), (1.5, 1.5), (2.25, 2.25)]),
])  # fmt: skip
def test_the_range_of_each_wait(backoff, ranges):
    """Those of the other kinds of jitter are in tests/testing/test_schedule.py."""
    found = []
    for attempt in range(1, len(ranges) + 1):
        found.append(extremes(backoff, attempt, *(found[-1] if found else (0.0, 0.0))))
    assert found == [pytest.approx(one) for one in ranges]


@given(
    st.floats(0.001, 5), st.floats(1, 20), st.floats(1, 3),
    st.sampled_from(["full", "equal", "decorrelated", "none"]) | st.floats(0, 1),
    st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=8),
)  # fmt: skip
def test_a_range_contains_every_draw(base, times, factor, jitter, draws):
    backoff = Exponential(base, base * times, factor, jitter)
    drawn = low = high = 0.0
    for attempt, number in enumerate(draws, start=1):
        low, high = extremes(backoff, attempt, low, high)
        drawn = backoff.delay(attempt, drawn, lambda number=number: number)
        assert low * (1 - 1e-12) <= drawn <= high * (1 + 1e-12)


@pytest.mark.parametrize("answer", [-1.0, nan, inf])
def test_a_schedule_that_answers_no_time_is_named(answer):
    class Broken:
        def delay(self, attempt, previous, random):
            return answer

        def __repr__(self):
            return "Broken()"

    policy = RetryPolicy(max_attempts=2, backoff=Broken())
    says = rf"the backoff Broken\(\) returns {answer} for attempt 1"
    with pytest.raises(ValueError, match=says):
        policy.worst_case(attempt_timeout=1.0)


FULL = RetryPolicy(max_attempts=4, backoff=Exponential(0.5, 30.0), patience=0.0, hints="ignore")
WAITS = 0.5 + 1.0 + 2.0
OBEYS = FULL.replace(hints="obey", hint_spread=0.0)
DRAWN = Exponential(1.0, 100.0, jitter="decorrelated")  # at most 3, 9 and 27 s, each from the last
SLOW_FIRST = Exponential(0.5, 30.0, fast_first=3.0)
DOUBLING = Exponential(1.0, 30.0, jitter="none")
CASES = {
    "waits": (FULL, 0.0, WAITS),
    "attempts are added": (FULL, 2.0, 4 * 2.0 + WAITS),
    "patience, however often a call is held": (FULL.replace(patience=10.0), 2.0, 8 + WAITS + 10),
    "what is never sent again is never held": (
        FULL.replace(patience=10.0, max_attempts=1), 2.0, 2.0),
    "one attempt has no waits": (RetryPolicy.disabled(), 3.0, 3.0),
    "a fast first retry that is longer than the shortest wait": (
        FULL.replace(backoff=SLOW_FIRST), 0.0, 3.0 + 1.0 + 2.0),
    "one that is never the longest": (
        FULL.replace(backoff=Exponential(0.5, 30.0, fast_first=0.2)), 0.0, WAITS),
    "one attempt has no fast first retry": (
        FULL.replace(max_attempts=1, backoff=SLOW_FIRST), 0.0, 0.0),
    "a hint counts with its spread": (
        OBEYS.replace(max_retry_after=60.0, hint_spread=0.1), 2.0, 8 + 3 * 66),
    "a share of a second, if the hint is shorter": (
        OBEYS.replace(max_retry_after=0.2, hint_spread=0.5), 0.0, 0.7 + 1.0 + 2.0),
    "the longer of hint and backoff: any answer may name a time or none": (
        OBEYS.replace(max_attempts=5, backoff=DOUBLING, max_retry_after=3.0), 0.0, 3 + 3 + 4 + 8),
    "a hint lengthens a wait and not the next draw": (
        OBEYS.replace(backoff=DRAWN, max_retry_after=10.0), 0.0, 10 + 10 + 27),
    "the slower schedule": (FULL.replace(throttle_backoff=Fixed(1.5)), 0.0, 1.5 + 1.5 + 2.0),
    "total_timeout ends it": (FULL.replace(total_timeout=5.0), 2.0, 5.0),
    "unless it is longer": (FULL.replace(total_timeout=50.0), 2.0, 11.5),
    "also where no attempt has a limit": (FULL.replace(total_timeout=5.0), None, 5.0),
    "no time at all": (FULL.replace(total_timeout=0.0), None, 0.0),
    "without any limit of an attempt it is not known": (FULL, None, inf),
    "the policy's own limit is of each of four phases": (
        FULL.replace(attempt_timeout=1.0), None, 4 * 4.0 + WAITS),
    "in place of which one may be given": (FULL.replace(attempt_timeout=1.0), 1.5, 6.0 + WAITS),
}  # fmt: skip


@pytest.mark.parametrize(("policy", "timeout", "longest"), CASES.values(), ids=CASES)
def test_the_worst_case_is(policy, timeout, longest):
    assert policy.worst_case(attempt_timeout=timeout) == pytest.approx(longest)


def test_a_billion_attempts_are_not_counted_one_by_one():
    """0.5 + 1 + 2 + 4 + 8 + 16, then 30 s each."""
    policy = FULL.replace(max_attempts=10**9)
    assert policy.worst_case(attempt_timeout=0.0) == pytest.approx(31.5 + (10**9 - 1 - 6) * 30.0)
    policy = FULL.replace(max_attempts=10**9, backoff=Exponential(1.0, 9.0, jitter="decorrelated"))
    assert policy.worst_case(attempt_timeout=0.0) == pytest.approx(3.0 + (10**9 - 2) * 9.0)


@given(
    st.lists(st.none() | st.integers(0, 12), min_size=6, max_size=6), st.integers(1, 6),
    st.sampled_from(["full", "equal", "decorrelated", "none", 0.3]),
    st.none() | st.just(Fixed(0.7)), st.sampled_from([0.0, 0.1, 1.0]),
    st.sampled_from([0.0, 0.5, 2.0, 10.0]),
    st.lists(st.floats(0, 1, exclude_max=True), min_size=30, max_size=30),
)  # fmt: skip
def test_no_call_waits_longer(asked, attempts, jitter, throttled, spread, patience, draws):
    """Whatever a server asks for, and whatever is drawn, through a transport; held or not."""
    policy = RetryPolicy(
        max_attempts=attempts, backoff=Exponential(0.5, 7.0, jitter=jitter), patience=patience,
        throttle_backoff=throttled, max_retry_after=9.0, hint_spread=spread,
    )  # fmt: skip
    steps = [503 if seconds is None else (503, {"Retry-After": str(seconds)}) for seconds in asked]
    inner, clock, numbers = ScriptedTransport(steps), FakeClock(), cycle(draws)
    transport = RetryTransport(inner, policy=policy, clock=clock, random=lambda: next(numbers))
    with httpx.Client(transport=transport) as client:
        client.get("https://origin.example/")
    assert sum(clock.sleeps) <= policy.worst_case(attempt_timeout=0.0) + 1e-9


@pytest.mark.parametrize(("jitter", "drawn", "expected"), [
    # attempt 3 of base 0.5 × 2: d = 2 s
    ("full", 0.0, 0.0), ("full", 0.25, 0.5), ("full", 1.0, 2.0), ("equal", 0.0, 1.0),
    ("equal", 0.5, 1.5), ("equal", 1.0, 2.0), ("none", 0.7, 2.0), (0.2, 0.0, 1.6),
    (0.2, 0.5, 2.0), (0.2, 1.0, 2.4), (1.0, 0.0, 0.0), (0.0, 0.9, 2.0), (0, 0.9, 2.0),
    (1, 1.0, 4.0),
])  # fmt: skip
def test_jitter(jitter, drawn, expected):
    """Brooker, "Exponential Backoff And Jitter": full = [0, d], equal = d/2 + [0, d/2]."""
    backoff = Exponential(base=0.5, cap=30.0, jitter=jitter)
    assert backoff.delay(3, 0.0, lambda: drawn) == pytest.approx(expected)


def test_a_base_of_zero_means_no_wait_at_any_attempt() -> None:
    """0 × anything is 0, also where factor**n no longer fits a float."""
    for jitter in ["none", "full", "equal", "decorrelated", 0.2]:
        backoff = Exponential(base=0.0, cap=30.0, jitter=jitter)
        assert not any(backoff.delay(n, 0.0, lambda: 0.9) for n in [1, 2, 1_024, 1_026, 10_000])


FORKING = """
import os
from forbear import FailureKind, RetryPolicy
from forbear.strategies import Failure, Phase, StandardStrategy

RESET = Failure(FailureKind.RESET, Phase.SENT)

strategy = StandardStrategy(RetryPolicy(max_attempts=99))

def draws():
    token = strategy.acquire_initial_token("http://a:80", 0.0)
    for token.attempts in range(1, 7):
        yield strategy.refresh_token(token, RESET, 0.0, latest=1e9).delay

list(draws())  # the generator has been used before the fork, as in a preloaded web server
for _ in range(4):
    child = os.fork()
    if child == 0:
        os.write(1, (repr(list(draws())) + "\\n").encode())
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_children_of_a_fork_draw_different_jitter() -> None:
    """Workers forked from one preloaded parent do not come back in step."""
    lines = python(FORKING).splitlines()
    assert len(lines) == len(set(lines)) == 4
