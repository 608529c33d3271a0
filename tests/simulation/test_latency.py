"""The latency world: promises of ``Hedge`` at low and at high load."""

from dataclasses import replace

import pytest

from benchmarks.simulation import LATENCIES, LatencyWorld, median_latencies, run_latencies
from forbear import Hedge

STRAGGLERS = LATENCIES["stragglers"][0]


def both(world, seeds=(0,)):
    """Without hedging, and with it; the same calls."""
    return [
        median_latencies([run_latencies(world, hedge, seed=seed) for seed in seeds])
        for hedge in (None, Hedge)
    ]


def test_at_low_load_the_tail_is_a_fifth_and_one_request_of_twenty_is_added():
    none, hedged = both(STRAGGLERS)
    assert hedged.p999 <= none.p999 / 5
    assert hedged.p99 < none.p99
    assert 0 < hedged.extra * STRAGGLERS.calls <= 0.05 * STRAGGLERS.calls + 2
    assert hedged.success == none.success == 1.0


def test_at_high_load_it_switches_itself_off():
    none, hedged = both(replace(STRAGGLERS, load=0.8))
    assert hedged.p99 <= none.p99 * 1.05
    assert hedged.extra < 0.02  # it would be 0.05


@pytest.mark.release
@pytest.mark.parametrize(("load", "clients"), [(0.8, 20), (0.9, 1)])
def test_at_high_load_nothing_is_slower_whoever_asks(load, clients):
    world = replace(STRAGGLERS, load=load, clients=clients, calls=60_000)
    none, hedged = both(world, seeds=range(5))
    for name in ("p50", "p95", "p99", "p999", "mean"):
        assert getattr(hedged, name) <= getattr(none, name) * 1.05, name


def test_with_a_dead_server_as_many_calls_succeed():
    """The first good answer wins, not the first one."""
    none, hedged = both(LATENCIES["stragglers-one-dead"][0])
    assert hedged.extra > 0.02
    assert hedged.success >= none.success


def test_without_second_attempts_it_is_a_queue():
    """One worker: half of the time busy at load 0.5; a lone call takes as long as its work."""
    plain = {"sigma": 0.0, "stragglers": 0.0, "median": 0.01}
    world = LatencyWorld(load=0.5, servers=1, workers=1, calls=50_000, **plain)
    found = run_latencies(world)
    assert found.busy == pytest.approx(0.5, rel=0.02)
    # Pollaczek and Khinchine: an M/D/1 queue at 0.5 waits half a service time on average.
    assert found.mean == pytest.approx(0.015, rel=0.03)
    lone = run_latencies(replace(world, load=0.001, calls=100))
    assert lone.p50 == pytest.approx(0.01)
