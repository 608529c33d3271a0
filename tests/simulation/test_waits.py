"""Waits: means and quantiles, by hand, by a second method and by laws."""

from __future__ import annotations

from math import sqrt
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forbear import Exponential, Fixed
from forbear.tools.simulation import waits
from forbear.tools.simulation.waits import outlook


def last(backoff, retries):
    return outlook(backoff, retries)[-1]


# --- by hand -----------------------------------------------------------------------------------


def test_full_jitter_is_half_the_range_on_average():
    """U[0, 1/2] + U[0, 1] + U[0, 2] + U[0, 4]: means 1/4, 1/2, 1, 2."""
    found = outlook(Exponential(0.5, 20.0, jitter="full"), 4)
    assert [one.mean for one in found] == [0.25, 0.5, 1.0, 2.0]
    assert [one.so_far for one in found] == [0.25, 0.75, 1.75, 3.75]
    assert [one.worst for one in found] == [0.5, 1.5, 3.5, 7.5]
    assert [(one.shortest, one.longest) for one in found] == [(0, 0.5), (0, 1), (0, 2), (0, 4)]
    assert [one.number for one in found] == [1, 2, 3, 4]
    assert not any(one.mean_is_drawn or one.quantiles_are_drawn for one in found)


def test_quantiles_of_one_uniform_wait():
    """q of the range [a, b] is at a + q (b - a)."""
    (one,) = outlook(Exponential(2.0, 20.0, jitter="equal"), 1)
    assert one.quantiles == pytest.approx((1.05, 1.5, 1.95))


def test_quantiles_of_two_uniform_waits():
    """Of U[0, 1] + U[0, 2] the corner above x holds (3 - x)² / 4 for x ≥ 2, and the one below x²/4
    for x ≤ 1.
    """
    quantiles = last(Exponential(1.0, 20.0, jitter="full"), 2).quantiles
    assert quantiles == pytest.approx((sqrt(4 * 0.05), 1.5, 3 - sqrt(4 * 0.05)))


def test_quantiles_of_the_sum_of_equal_waits():
    """Irwin and Hall: of U + U + U the last corner holds (3 - x)³ / 6."""
    quantiles = last(Exponential(1.0, 1.0, factor=1.0, jitter="full"), 3).quantiles
    assert quantiles[0] == pytest.approx((6 * 0.05) ** (1 / 3))
    assert quantiles[1] == pytest.approx(1.5)
    assert quantiles[2] == pytest.approx(3 - (6 * 0.05) ** (1 / 3))


def test_plus_and_minus_a_share():
    """1 ± 0.2, 1.5 ± 0.3 …: the mean is the wait before jitter."""
    found = outlook(Exponential(1.0, 30.0, factor=1.5, jitter=0.2), 3)
    assert [one.mean for one in found] == pytest.approx([1.0, 1.5, 2.25])
    assert (found[0].shortest, found[0].longest) == pytest.approx((0.8, 1.2))
    assert found[0].quantiles == pytest.approx((0.82, 1.0, 1.18))


def test_what_is_cut_to_the_cap_weighs_there():
    """4 ± 2, at most 4: one half is 4 s, the other uniform from 2 to 4, so 3.5 s on average."""
    one = last(Exponential(4.0, 4.0, jitter=0.5), 1)
    assert one.mean == pytest.approx(3.5)
    assert one.quantiles == pytest.approx((2.2, 4.0, 4.0))
    assert one.worst == 4.0


def test_two_waits_that_may_both_be_cut():
    """A quarter is 8 s, so the 95th percentile is. P(sum ≤ 7) = 2 · ½ · P(U ≤ 3) + ¼ P(U + U' ≤
    7).
    """
    one = last(Exponential(4.0, 4.0, factor=1.0, jitter=0.5), 2)
    assert one.quantiles[2] == pytest.approx(8.0)
    # below x = 6 + t, 0 ≤ t ≤ 1: ½ · t/2 + ¼ · (1 - (2 - t)²/8); of t = 1 it is 0.25 + 0.21875
    assert one.quantiles[1] == pytest.approx(
        7.0 + solved(lambda t: t / 4 + 0.25 + (1 - (1 - t) ** 2 / 8) / 4 - 0.5)
    )


def solved(difference, low=0.0, high=1.0):
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if difference(middle) < 0 else (low, middle)
    return low


def test_without_jitter_all_are_the_same():
    found = outlook(Exponential(1.0, 3.0, jitter="none"), 3)
    assert [one.quantiles for one in found] == [(1.0,) * 3, (3.0,) * 3, (6.0,) * 3]
    assert [one.so_far for one in found] == [1.0, 3.0, 6.0]


def test_no_wait_at_all():
    found = outlook(Fixed(0.0), 2)
    assert [(one.mean, one.quantiles, one.worst) for one in found] == [(0.0, (0.0,) * 3, 0.0)] * 2
    assert outlook(Fixed(2.0), 0) == []


def test_decorrelated_means_as_long_as_the_cap_is_far():
    """E[w'] = (1 + 3 E[w]) / 2 from E[w] = 2: 2, 3.5, 5.75; the fourth can be 81 s, above the
    cap.
    """
    found = outlook(Exponential(1.0, 30.0, jitter="decorrelated"), 4)
    assert [one.mean for one in found[:3]] == [2.0, 3.5, 5.75]
    assert [one.mean_is_drawn for one in found] == [False, False, False, True]
    assert found[0].quantiles == pytest.approx((1.1, 2.0, 2.9))
    assert [one.quantiles_are_drawn for one in found] == [False, True, True, True]
    assert 5.75 < found[3].mean < (1 + 3 * 5.75) / 2


def test_a_first_decorrelated_wait_that_is_cut():
    """U[1, 3] at most 2: half of it is 2 s."""
    one = last(Exponential(1.0, 2.0, jitter="decorrelated"), 1)
    assert one.quantiles == pytest.approx((1.1, 2.0, 2.0))


# --- by a second method ------------------------------------------------------------------------


def drawn(backoff, retries, times=20_000):
    """Sums of waits as a transport makes them, in order."""
    random, sums = Random(1).random, []
    for _ in range(times):
        total = wait = 0.0
        for attempt in range(1, retries + 1):
            wait = backoff.delay(attempt, wait, random)
            total += wait
        sums.append(total)
    return sorted(sums)


@pytest.mark.parametrize(
    ("backoff", "retries"),
    [
        (Exponential(0.1, 60.0, jitter="full"), 10),
        (Exponential(0.5, 2.0, jitter="equal"), 6),
        (Exponential(0.5, 2.0, factor=1.7, jitter=0.4), 5),
        (Exponential(0.5, 2.0, jitter=1.0), 4),
        (Exponential(0.5, 8.0, jitter="decorrelated"), 5),
        (Exponential(1.0, 1.0, jitter="full"), 15),
    ],
    ids=str,
)
def test_the_figures_are_those_of_many_calls(backoff, retries):
    """The share of 20,000 sums below a quantile is that quantile, but for 4 standard errors of both
    (1.5 %).
    """
    found = last(backoff, retries)
    sums = drawn(backoff, retries)
    for wanted, value in zip(waits.QUANTILES, found.quantiles, strict=True):
        if value < found.worst:
            assert sum(one <= value for one in sums) / len(sums) == pytest.approx(wanted, abs=0.015)
    assert found.so_far == pytest.approx(sum(sums) / len(sums), rel=0.02)
    assert sums[-1] <= found.worst * (1 + 1e-12)


def test_a_schedule_of_ones_own_is_drawn():
    class Thirds:
        def delay(self, attempt, previous, random):
            return 1.0 if attempt % 3 == 0 else random()

    found = outlook(Thirds(), 3)
    assert [one.quantiles_are_drawn for one in found] == [True, True, True]
    assert found[2].so_far == pytest.approx(2.0, abs=0.02)
    assert found[2].worst == pytest.approx(3.0)
    assert (found[2].shortest, found[2].longest) == (1.0, 1.0)


def test_what_is_drawn_is_always_the_same():
    backoff = Exponential(0.3, 5.0, jitter="decorrelated")
    assert outlook(backoff, 4) == outlook(backoff, 4)


def test_too_many_corners_are_drawn():
    found = outlook(Exponential(0.01, 1e6, factor=1.1, jitter="full"), 13)
    assert [one.quantiles_are_drawn for one in found] == [False] * 12 + [True]
    assert not found[-1].mean_is_drawn


# --- laws --------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    st.floats(0.001, 5),
    st.floats(1, 50),
    st.floats(1, 3),
    st.sampled_from(["full", "equal", "none"]) | st.floats(0, 1),
    st.integers(1, 6),
)
def test_the_worst_is_above_p95_and_that_above_the_mean(base, times, factor, jitter, retries):
    in_order(Exponential(base, base * times, factor, jitter), retries)


@pytest.mark.parametrize("cap", [1.0, 2.0, 9.0, 100.0])
def test_so_it_is_with_decorrelated_jitter(cap):
    in_order(Exponential(1.0, cap, jitter="decorrelated"), 4)


def in_order(backoff, retries):
    worst = so_far = 0.0
    for one in outlook(backoff, retries):
        low, median, high = one.quantiles
        assert low <= median <= high <= one.worst
        assert one.so_far <= high * (1 + 1e-9)
        assert one.shortest <= one.mean * (1 + 1e-9)
        assert one.mean <= one.longest * (1 + 1e-9)
        worst, so_far = worst + one.longest, so_far + one.mean
        assert (one.worst, one.so_far) == (pytest.approx(worst), pytest.approx(so_far))


@settings(deadline=None)
@given(
    st.floats(0.01, 5),
    st.floats(1, 50),
    st.floats(1, 3),
    st.floats(0, 1),
    st.integers(1, 5),
    st.data(),
)
def test_no_call_waits_longer_than_the_worst(base, times, factor, jitter, retries, data):
    backoff = Exponential(base, base * times, factor, jitter)
    numbers = data.draw(
        st.lists(st.floats(0, 1, exclude_max=True), min_size=retries, max_size=retries)
    )
    total = sum(backoff.delay(n, 0.0, lambda n=n: numbers[n - 1]) for n in range(1, retries + 1))
    assert total <= last(backoff, retries).worst * (1 + 1e-9)
