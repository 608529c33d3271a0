"""Backoff: the schedules as Brooker's article and plain arithmetic give them."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from forbear import Backoff, Exponential, Fixed, RetryPolicy
from forbear.core.call import Call
from forbear.core.outcome import Failure, FailureKind, Phase
from forbear.core.request import Request
from forbear.shared.standard import StandardStrategy


def always(value: float) -> Callable[[], float]:
    return lambda: value


def never() -> float:
    raise AssertionError("this schedule is not random")


# --- formulas ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        # base × factor**(n - 1), cut at cap
        pytest.param(
            Exponential(base=0.5, jitter="none"), [0.5, 1, 2, 4, 8, 16, 30, 30], id="defaults"
        ),
        pytest.param(Exponential(base=1, cap=4, jitter="none"), [1, 2, 4, 4], id="whole numbers"),
        pytest.param(
            Exponential(base=0.1, cap=60.0, factor=3.0, jitter="none"),
            [0.1, 0.3, 0.9, 2.7, 8.1],
            id="×3",
        ),
        pytest.param(
            Exponential(base=2.0, factor=1.0, jitter="none"),
            [2.0, 2.0, 2.0],
            id="factor 1 does not grow",
        ),
        pytest.param(Exponential(base=5.0, cap=5.0, jitter="none"), [5.0, 5.0], id="cap at base"),
        pytest.param(Exponential(base=0.0, cap=0.0, jitter="none"), [0.0, 0.0], id="cap 0 means 0"),
        pytest.param(Fixed(1.5), [1.5, 1.5, 1.5], id="fixed"),
        pytest.param(Fixed(0), [0, 0], id="fixed 0 means 0"),
    ],
)
def test_schedule_without_jitter(backoff: Any, expected: list[float]) -> None:
    """Each wait is the one before times the factor, until the cap."""
    assert [backoff.delay(n, 0.0, never) for n in range(1, len(expected) + 1)] == pytest.approx(
        expected
    )


def test_the_gateway_schedule_is_50_75_112_168_253_ms_before_jitter() -> None:
    """50 ms × 1.5**n: 50, 75, 112.5, 168.75, 253.125 ms; a draw of one half is the middle of ±20
    %.
    """
    backoff = RetryPolicy.gateway().backoff
    assert [backoff.delay(n, 0.0, always(0.5)) for n in range(1, 6)] == pytest.approx(
        [0.050, 0.075, 0.1125, 0.16875, 0.253125]
    )
    assert backoff.delay(1, 0.0, always(0.0)) == pytest.approx(0.040)
    assert backoff.delay(1, 0.0, always(1.0)) == pytest.approx(0.060)


@pytest.mark.parametrize(
    ("jitter", "drawn", "expected"),
    [
        # attempt 3 of base 0.5 × 2: d = 2 s
        pytest.param("full", 0.0, 0.0, id="full, lowest"),
        pytest.param("full", 0.25, 0.5, id="full, a quarter"),
        pytest.param("full", 1.0, 2.0, id="full, highest"),
        pytest.param("equal", 0.0, 1.0, id="equal, lowest is half"),
        pytest.param("equal", 0.5, 1.5, id="equal, middle"),
        pytest.param("equal", 1.0, 2.0, id="equal, highest"),
        pytest.param("none", 0.7, 2.0, id="none"),
        pytest.param(0.2, 0.0, 1.6, id="±20 %, lowest"),
        pytest.param(0.2, 0.5, 2.0, id="±20 %, middle"),
        pytest.param(0.2, 1.0, 2.4, id="±20 %, highest"),
        pytest.param(1.0, 0.0, 0.0, id="±100 %, lowest"),
        pytest.param(0.0, 0.9, 2.0, id="±0"),
        pytest.param(0, 0.9, 2.0, id="±0 as a whole number"),
        pytest.param(1, 1.0, 4.0, id="±100 % as a whole number, highest"),
    ],
)
def test_jitter(jitter: Any, drawn: float, expected: float) -> None:
    """Brooker, "Exponential Backoff And Jitter": full = [0, d], equal = d/2 + [0, d/2]."""
    backoff = Exponential(base=0.5, cap=30.0, jitter=jitter)
    assert backoff.delay(3, 0.0, always(drawn)) == pytest.approx(expected)


def test_jitter_does_not_lift_a_wait_over_the_cap() -> None:
    """The cap holds after jitter too: ±20 % of 30 s at cap 30 is at most 30."""
    assert Exponential(base=30.0, cap=30.0, jitter=0.2).delay(1, 0.0, always(1.0)) == 30.0


@pytest.mark.parametrize(
    ("previous", "drawn", "expected"),
    [
        # sleep = min(cap, random_between(base, sleep * 3)), the article's formula
        pytest.param(0.0, 0.0, 0.5, id="first wait, lowest: base"),
        pytest.param(0.0, 1.0, 1.5, id="first wait, highest: 3 × base"),
        pytest.param(1.5, 0.0, 0.5, id="later, lowest: base again"),
        pytest.param(1.5, 0.5, 2.5, id="later, middle of [0.5, 4.5]"),
        pytest.param(1.5, 1.0, 4.5, id="later, highest: 3 × previous"),
        pytest.param(9.0, 1.0, 20.0, id="cap"),
    ],
)
def test_decorrelated_jitter(previous: float, drawn: float, expected: float) -> None:
    """min(cap, random between base and 3 × the previous wait)."""
    backoff = Exponential(base=0.5, cap=20.0, jitter="decorrelated")
    assert backoff.delay(7, previous, always(drawn)) == pytest.approx(expected)


# --- saturation -------------------------------------------------------------------------------


@pytest.mark.parametrize("attempt", [1_024, 1_025, 10_000, 10**6])
@pytest.mark.parametrize(
    "backoff",
    [
        pytest.param(Exponential(jitter="none"), id="floats"),
        pytest.param(Exponential(base=1, cap=30, factor=2, jitter="none"), id="whole numbers"),
        pytest.param(Exponential(base=0.5, cap=30.0, factor=3, jitter="none"), id="whole factor"),
        pytest.param(
            Exponential(base=0.5, cap=30.0, factor=1e300, jitter="none"), id="huge factor"
        ),
    ],
)
def test_exponents_saturate(backoff: Exponential, attempt: int) -> None:
    """Attempt 10,000 waits the cap, it is no overflow (stamina#137, Polly#2163)."""
    assert backoff.delay(attempt, 0.0, never) == 30


@pytest.mark.parametrize("attempt", [1, 2, 1_024, 1_026, 10_000])
@pytest.mark.parametrize("jitter", ["none", "full", "equal", "decorrelated", 0.2])
def test_a_base_of_zero_means_no_wait_at_any_attempt(attempt: int, jitter: Any) -> None:
    """0 × anything is 0, also where factor**n no longer fits a float."""
    assert Exponential(base=0.0, cap=30.0, jitter=jitter).delay(attempt, 0.0, always(0.9)) == 0.0


# --- state ------------------------------------------------------------------------------------


def test_one_calls_long_wait_does_not_set_anothers() -> None:
    """Decorrelated state belongs to one call: a fresh call starts from the base again."""
    policy = RetryPolicy(
        max_attempts=9, backoff=Exponential(base=1.0, cap=100.0, jitter="decorrelated")
    )
    strategy = StandardStrategy(policy, random=always(1.0))

    def waits(count: int) -> list[float]:
        call = Call(policy, Request("GET", "http://a:80"), strategy, now=0.0)
        found = []
        for _ in range(count):
            call.sending(0.0)
            verdict = call.after_error(
                Failure(FailureKind.RESET, Phase.SENT, error="ReadError"), 0.0
            )
            assert verdict is not None
            found.append(verdict.delay)
        return found

    assert waits(3) == [3.0, 9.0, 27.0]
    assert waits(2) == [3.0, 9.0]


def test_every_third_wait_is_one_second_is_three_lines() -> None:
    """A custom schedule is one method."""

    class EveryThird:
        def delay(self, attempt: int, previous: float, random: Callable[[], float]) -> float:
            return 1.0 if attempt % 3 == 0 else 0.1

    policy = RetryPolicy(max_attempts=7, backoff=EveryThird())
    call = Call(policy, Request("GET", "http://a:80"), StandardStrategy(policy), now=0.0)
    waits = []
    for _ in range(6):
        call.sending(0.0)
        verdict = call.after_error(Failure(FailureKind.RESET, Phase.SENT, error="ReadError"), 0.0)
        assert verdict is not None
        waits.append(verdict.delay)
    assert waits == [0.1, 0.1, 1.0, 0.1, 0.1, 1.0]


def test_schedules_are_values() -> None:
    """Equal, hashable, copied and pickled like the frozen things they are."""
    one = Exponential(base=0.2, cap=20.0)
    assert one == Exponential(0.2, 20.0)
    assert one != Exponential(base=0.2, cap=21.0)
    assert len({one, Exponential(0.2, 20.0), Fixed(1.0), Fixed(1.0)}) == 2
    assert copy.deepcopy(one) == one
    assert pickle.loads(pickle.dumps(one)) == one
    assert pickle.loads(pickle.dumps(Fixed(2.0))) == Fixed(2.0)
    assert repr(Fixed(2.0)) == "Fixed(seconds=2.0)"
    with pytest.raises(AttributeError):
        one.base = 1.0  # type: ignore[misc]
    schedule: Backoff = one
    assert schedule.delay(1, 0.0, always(1.0)) == 0.2


# --- fork -------------------------------------------------------------------------------------

FORKING = """
import os, sys
from forbear import Exponential, RetryPolicy, StandardStrategy, Failure, FailureKind, Phase

strategy = StandardStrategy(RetryPolicy(max_attempts=99))

def draws():
    token = strategy.acquire_initial_token("http://a:80", 0.0)
    found = []
    for attempt in range(1, 7):
        token.attempts = attempt
        found.append(strategy.refresh_token(token, Failure(FailureKind.RESET, Phase.SENT), 0.0, latest=1e9).delay)
    return found

draws()  # the generator has been used before the fork, as in a preloaded web server
for _ in range(4):
    child = os.fork()
    if child == 0:
        os.write(1, (repr(draws()) + "\\n").encode())
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_children_of_a_fork_draw_different_jitter() -> None:
    """Workers forked from one preloaded parent do not come back in step."""
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORKING],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert len(lines) == 4
    assert len(set(lines)) == 4


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"base": -1}, ValueError, "base must be at least 0 and finite, got -1"),
        ({"base": float("nan")}, ValueError, "base must be at least 0 and finite, got nan"),
        ({"base": "1"}, TypeError, "base must be a number of seconds, got '1'"),
        ({"base": True}, TypeError, "base must be a number of seconds, got True"),
        ({"base": None}, TypeError, "base must be a number of seconds, got None"),
        ({"cap": float("inf")}, ValueError, "cap must be at least 0 and finite, got inf"),
        ({"base": 2.0, "cap": 1.0}, ValueError, "cap must be at least base (2.0), got 1.0"),
        (
            {"factor": 0.5},
            ValueError,
            "factor must be at least 1, got 0.5; use 1 for waits that do not grow",
        ),
        ({"factor": float("inf")}, ValueError, "factor must be finite, got inf"),
        (
            {"jitter": "half"},
            ValueError,
            "jitter must be one of full, equal, decorrelated, none or a float",
        ),
        (
            {"jitter": 1.5},
            ValueError,
            "jitter as a number must be in [0, 1], got 1.5; 0.2 means ±20 %",
        ),
        ({"jitter": float("nan")}, ValueError, "jitter must be finite, got nan"),
        ({"jitter": True}, TypeError, "jitter must be a number, got True"),
        ({"immediate_first": 1}, TypeError, "immediate_first must be True or False, got 1"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_wrong_schedule_is_told_what_to_write(
    fields: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        Exponential(**fields)
    assert message in str(caught.value)


@pytest.mark.parametrize("seconds", [-0.1, float("nan"), float("inf"), "1", None, True])
def test_a_fixed_wait_is_a_finite_number_of_seconds(seconds: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="seconds must be"):
        Fixed(seconds)
