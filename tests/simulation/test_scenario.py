"""A world that cannot be is refused with what to write instead."""

import pytest

from benchmarks.simulation import Scenario


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"duration": 0}, "duration must be more than 0 seconds, got 0"),
        ({"arrivals": "random"}, "arrivals must be one of 'even', 'poisson', got 'random'"),
        ({"fleet": 1.5}, "fleet must be a whole number of at least 0, got 1.5"),
        ({"trouble_for": 9.0}, "the trouble must end before the calls do"),
        ({"bad_replicas": 1}, "bad_replicas must be at most replicas (0), got 1"),
    ],
)
def test_a_mistake_is_told(changes, says):
    with pytest.raises((ValueError, TypeError)) as told:
        Scenario(**changes)
    assert says in str(told.value)
