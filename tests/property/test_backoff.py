"""Laws of schedules: whatever the numbers, a wait is in its range."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forbear import Exponential

seconds = st.floats(0, 1e6)
jitters = st.sampled_from(["full", "equal", "decorrelated", "none"]) | st.floats(0, 1)
unit = st.floats(0, 1, exclude_max=True)


@st.composite
def schedules(draw: st.DrawFn) -> Exponential:
    base, more = draw(seconds), draw(seconds)
    return Exponential(
        base=base, cap=base + more, factor=draw(st.floats(1, 1e6)), jitter=draw(jitters)
    )


@given(schedules(), st.integers(1, 10**6), seconds, unit)
def test_a_wait_is_in_0_to_cap(
    schedule: Exponential, attempt: int, previous: float, drawn: float
) -> None:
    """For any attempt, any previous wait and any draw."""
    assert 0 <= schedule.delay(attempt, previous, lambda: drawn) <= schedule.cap


@given(schedules(), st.integers(1, 10**4), unit)
def test_jitter_is_drawn_around_the_plain_wait(
    schedule: Exponential, attempt: int, drawn: float
) -> None:
    """full: at most the plain wait; equal: at least half of it; ±f: within f of it."""
    plain = Exponential(schedule.base, schedule.cap, schedule.factor, "none").delay(
        attempt, 0.0, lambda: drawn
    )
    slack = plain * 1e-12
    jitter = schedule.jitter
    wait = schedule.delay(attempt, 0.0, lambda: drawn)
    if jitter == "full":
        assert wait <= plain
    elif jitter == "equal":
        assert plain / 2 <= wait <= plain
    elif isinstance(jitter, float):
        assert plain * (1 - jitter) - slack <= wait <= plain * (1 + jitter) + slack


@given(schedules(), unit, st.lists(unit, min_size=1, max_size=30))
def test_decorrelated_waits_stay_between_base_and_three_times_the_last(
    schedule: Exponential, first: float, draws: list[float]
) -> None:
    walk = Exponential(schedule.base, schedule.cap, schedule.factor, "decorrelated")
    previous = walk.delay(1, 0.0, lambda: first)
    for attempt, drawn in enumerate(draws, 2):
        wait = walk.delay(attempt, previous, lambda drawn=drawn: drawn)  # type: ignore[misc]
        slack = 1e-9 * walk.cap
        assert walk.base - slack <= wait <= min(walk.cap, 3 * max(previous, walk.base)) + slack
        previous = wait
