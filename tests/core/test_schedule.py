"""Schedules: waits, their ranges and worst cases by hand, and the bounds that no call breaks."""

import os
from itertools import cycle
from math import inf, nan

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forbear import Exponential, Fixed, RetryPolicy
from forbear.cli.explain import worst_case
from forbear.core.waits import ranges
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


@pytest.mark.parametrize(("backoff", "expected"), [
    # 1 ± 0.25, 2 ± 0.5, 4 ± 1, of which nothing above 4 is left
    (Exponential(1.0, 4.0, jitter=0.25), [(0.75, 1.25), (1.5, 2.5), (3, 4), (3, 4)]),
    (Exponential(1.0, 9.0, factor=1.0, jitter="full"), [(0, 1), (0, 1), (0, 1)]),
    (Fixed(2.0), [(2, 2), (2, 2)]), (Thirds(), [(0, 0.1), (0, 0.1), (1, 1), (0, 0.1)]),
    (Longer(), [(1, 1), (1.5, 1.5), (2.25, 2.25)]),
])  # fmt: skip
def test_the_range_of_each_wait(backoff, expected):
    """Those of the other kinds of jitter are in tests/testing/test_schedule.py."""
    assert ranges(backoff, len(expected)) == [pytest.approx(one) for one in expected]


@given(
    st.floats(0.001, 5), st.floats(1, 20), st.floats(1, 3),
    st.sampled_from(["full", "equal", "decorrelated", "none"]) | st.floats(0, 1),
    st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=8),
)  # fmt: skip
def test_a_range_contains_every_draw(base, times, factor, jitter, draws):
    backoff = Exponential(base, base * times, factor, jitter)
    drawn = 0.0
    for attempt, number in enumerate(draws, start=1):
        low, high = ranges(backoff, attempt)[-1]
        drawn = backoff.delay(attempt, drawn, lambda number=number: number)
        assert low * (1 - 1e-12) <= drawn <= high * (1 + 1e-12)


@pytest.mark.parametrize("answer", [-1.0, nan, inf])
def test_a_schedule_that_answers_no_time_is_named(answer):
    class Broken:
        def delay(self, attempt, previous, random):
            return answer

        def __repr__(self):
            return "Broken()"

    says = rf"the backoff Broken\(\) returns {answer} for attempt 1"
    with pytest.raises(ValueError, match=says):
        ranges(Broken(), 1)


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
    schedules = (policy.backoff, policy.throttle_backoff or policy.backoff)
    waits = {number: ranges(one, attempts - 1) for number, one in enumerate(schedules)}
    assert sum(clock.sleeps) <= worst_case(policy, waits, 0.0, hints=1) + 1e-9


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
