"""What comes out: percentiles, recovery, medians."""

import pytest

from benchmarks.simulation import Scenario
from benchmarks.simulation.tally import Tally

# Trouble from 2.0 to 2.2 s of 10: judged are the windows of a quarter second from 2.25 to 9.0 s.
SCENARIO = Scenario()
FIRST, LAST = 9, 35


def tally_of(bad):
    """100 calls in each window; of those in bad ones 97 are served well, else 98."""
    tally = Tally()
    for window in range(40):
        tally.arrived[window] = 100
        tally.good[window] = 97 if window in bad else 98
    return tally


@pytest.mark.parametrize(
    ("bad", "after"),
    [
        ((), 0.0),
        ((8,), 0.0),  # 2.0 to 2.25 s: the trouble's own
        ((FIRST, 12), 1.05),  # 3.25 s: it had come back once, but did not stay
        ((LAST - 1,), 6.55),  # 8.75 s
        ((LAST,), None),
        ((36, 37, 38, 39), 0.0),  # who begins after 9.0 s is helped by traffic that ends
    ],
)
def test_recovered_is_when_it_is_good_and_stays_so(bad, after):
    found = tally_of(bad).recovered_after(SCENARIO, 0.98)
    assert found == (None if after is None else pytest.approx(after))


def test_percentiles_are_those_of_the_successes():
    tally = Tally()
    tally.requests = 200
    for number in range(1, 101):
        tally.succeed(0.0, number / 100)
    assert tally.percentile(0.5) == pytest.approx(0.50, rel=0.003)
    assert tally.percentile(0.99) == pytest.approx(0.99, rel=0.003)
    assert tally.percentile(1.0) == pytest.approx(1.0, rel=0.003)
    latencies, shares = zip(*tally.distribution(), strict=True)
    assert shares[-1] == 0.5  # of all calls
    assert latencies[0] == pytest.approx(0.01)
    assert Tally().percentile(0.5) is None
    assert (tally.within(0.5), tally.within(5.0)) == (50, 100)
