"""What a ConcurrencyLimit finds of a server that says nothing, in virtual time (benchmarks/)."""

from math import inf

import pytest

pytest.importorskip("benchmarks.concurrency", reason="benchmarks/ is not installed")

from benchmarks.concurrency import World, settled
from forbear import ConcurrencyLimit

SEEDS = range(3)
BEGAN = 1000.0  # when a world begins


@pytest.mark.parametrize("seed", SEEDS)
def test_two_hundred_tasks_at_a_server_that_allows_ten(seed):
    """At most 5 % of the requests are 429s, and 80 % of the bulkhead's throughput."""
    known, found = (
        World(limit, [(0.0, 10)], tasks=200, requests=200, seed=seed).run()
        for limit in (ConcurrencyLimit(10, adaptive=False), ConcurrencyLimit())
    )
    assert (known.good, known.throttled, found.good) == (200, 0, 200)
    assert found.throttled <= 0.05 * found.sent
    assert found.now - BEGAN <= (known.now - BEGAN) / 0.8


@pytest.mark.parametrize("seed", SEEDS)
def test_a_capacity_that_changes_is_found_within_twenty_round_trips(seed):
    """Of 20, then 5, then 20 in flight: 90 % of it, five round trips in a row."""
    down, _ = settled([(0.0, 20), (5.0, 5)], 5.0, 5, seed)
    up, throttled = settled([(0.0, 20), (5.0, 5), (10.0, 20)], 10.0, 20, seed)
    assert down <= 20
    assert 0 < up <= 20
    assert throttled <= 0.05


@pytest.mark.parametrize("tasks", [5, 200])
def test_a_server_that_allows_any_number_gets_all_that_is_wanted(tasks):
    world = World(ConcurrencyLimit(), [(0.0, 10**6)], tasks=tasks, requests=inf, ends_at=3.0).run()
    assert world.throttled == 0
    assert world.limit.waiting() == 0
    assert world.limit.in_flight() == tasks
