"""What an attempt meets. All figures are worked out by hand from capacity 100: one attempt is 10 ms
of work.
"""

from dataclasses import replace
from random import Random

import pytest

from benchmarks.simulation import Scenario
from benchmarks.simulation.backend import Backend, utc
from forbear import read_hint

# Room for 50 ms of work: five attempts.
LIMITED = Scenario(capacity=100.0, rate=1.0, trouble_at=5.0, trouble_for=1.0, service_time=0.01)


def at_once(backend, now, times):
    """How many of so many attempts at one instant are served."""
    return [backend.receive(now)[1] for _ in range(times)].count(None)


def test_rejecting_costs_what_it_costs():
    """Five served fill the room; ten rejections at 0.3 put 3 more on top. 30 ms later 5 of work are
    left: no room. Ten more milliseconds later there is room for one."""
    backend = Backend(replace(LIMITED, rejection_cost=0.3))
    assert at_once(backend, 1.0, 15) == 5
    assert at_once(backend, 1.0299, 1) == 0  # 0.3 more: 5.31
    assert at_once(backend, 1.0429, 1) == 0  # 4.01 and one would be more than 5; 0.3 more: 4.31
    assert at_once(backend, 1.0460, 1) == 1  # 4.00


@pytest.mark.parametrize(("asked", "delay"), [(3.0, 3.0), (0.25, 0.25), ("end", 1.5)])
def test_a_hint_is_read_as_it_is_meant(asked, delay):
    """ "end" is a date, which has whole seconds: the first at which the trouble, from 2 to 3.2 s,
    is over is 4.
    """
    scenario = Scenario(trouble_for=1.2, retry_after=asked, status=429)
    _, answer = Backend(scenario).receive(2.5)
    status, lines = answer
    assert status == 429
    hint = read_hint(status, lines, now=utc(2.5))
    assert hint.delay == delay
    assert hint.source == "retry-after"


def test_a_quota_is_counted_in_windows():
    """Three in each second; at 0.7 s the next window is 0.3 s away, and hints are whole seconds."""
    backend = Backend(Scenario(quota=3, quota_window=1.0, share=0.0))
    assert at_once(backend, 0.5, 3) == 3
    assert backend.receive(0.7)[1] == (429, (("Retry-After", "1"),))
    assert at_once(backend, 1.0, 5) == 3
    silent = Backend(Scenario(quota=1, quota_hint=False, share=0.0))
    assert [silent.receive(0.0)[1] for _ in range(2)] == [None, (429, ())]
    assert backend.quota_lines(1.2) == (
        ("RateLimit-Policy", '"default";q=3;w=1'),
        ("RateLimit", '"default";r=0;t=1'),
    )
    assert Backend(Scenario()).quota_lines(0.0) == ()


# --- partial failures ---------------------------------------------------------------------------

PARTLY = Scenario(rate=100.0, duration=100.0, arrivals="poisson", timeout=1.0, trouble_for=0.0)


def is_bad(backend, client=0):
    return backend.receive(5.0, client)[1] is not None


def test_by_turns_exactly_every_third_attempt_of_a_process_meets_the_bad_one():
    third = replace(PARTLY, replicas=3, bad_replicas=1, balancing="round-robin")
    backend = Backend(third, Random(1).random)
    for client in (0, 1, 2):
        met = [is_bad(backend, client) for _ in range(12)]
        assert met.count(True) == 4
        assert met == met[:3] * 4
