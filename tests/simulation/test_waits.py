"""Waits: ranges and means by hand, percentiles by a second method, and laws."""

from math import sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forbear import Exponential
from forbear.tools.simulation import waits
from forbear.tools.simulation.waits import outlook

pytestmark = pytest.mark.no_cover  # ``forbear explain`` covers the lines, with fewer calls


def test_full_jitter_is_half_the_range_on_average():
    """U[0, 1/2] + U[0, 1] + U[0, 2] + U[0, 4]: means 1/4, 1/2, 1, 2."""
    found = outlook(Exponential(0.5, 20.0, jitter="full"), 4)
    assert [one.number for one in found] == [1, 2, 3, 4]
    assert [one.mean for one in found] == pytest.approx([0.25, 0.5, 1.0, 2.0])
    assert [one.mean_so_far for one in found] == pytest.approx([0.25, 0.75, 1.75, 3.75])
    assert [one.worst_so_far for one in found] == [0.5, 1.5, 3.5, 7.5]
    assert [(one.shortest, one.longest) for one in found] == [(0, 0.5), (0, 1), (0, 2), (0, 4)]


@pytest.mark.parametrize(
    ("backoff", "retries", "p95"),
    [
        # Of one uniform wait in [a, b]: a + 0.95 (b - a).
        (Exponential(2.0, 20.0, jitter="equal"), 1, 1.95),
        # Of U[0, 1] + U[0, 2] the corner above x holds (3 - x)² / 4.
        (Exponential(1.0, 20.0, jitter="full"), 2, 3 - sqrt(4 * 0.05)),
        # Irwin and Hall: of U + U + U the last corner holds (3 - x)³ / 6.
        (Exponential(1.0, 1.0, factor=1.0, jitter="full"), 3, 3 - (6 * 0.05) ** (1 / 3)),
        # 4 ± 2, at most 4: one half is 4 s; of two such waits a quarter is 8 s.
        (Exponential(4.0, 4.0, factor=1.0, jitter=0.5), 2, 8.0),
    ],
    ids=str,
)
def test_the_95th_percentile(backoff, retries, p95):
    assert outlook(backoff, retries)[-1].p95_so_far == pytest.approx(p95, rel=0.005)


def test_decorrelated_means():
    """E[w'] = (1 + 3 E[w]) / 2 from E[w] = 2: 2, 3.5, 5.75, as long as the cap is far."""
    found = outlook(Exponential(1.0, 30.0, jitter="decorrelated"), 3)
    assert [one.mean for one in found] == pytest.approx([2.0, 3.5, 5.75], rel=0.005)


def test_a_schedule_of_ones_own_is_asked():
    class Thirds:
        def delay(self, attempt, previous, random):
            return 1.0 if attempt % 3 == 0 else random()

    found = outlook(Thirds(), 3)
    assert found[2].mean_so_far == pytest.approx(2.0)
    assert (found[2].shortest, found[2].longest) == (1.0, 1.0)


@settings(max_examples=20, deadline=None)
@given(
    st.floats(0.001, 5),
    st.floats(1, 50),
    st.floats(1, 3),
    st.sampled_from(["full", "equal", "none", "decorrelated"]) | st.floats(0, 1),
)
def test_the_worst_is_above_p95_and_that_above_the_mean(base, times, factor, jitter):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(waits, "CALLS", 2_000)
        found = outlook(Exponential(base, base * times, factor, jitter), 3)
    for one in found:
        assert one.mean_so_far <= one.p95_so_far * (1 + 1e-9)
        assert one.p95_so_far <= one.worst_so_far
        assert one.shortest <= one.mean * (1 + 1e-9)
        assert one.mean <= one.longest
