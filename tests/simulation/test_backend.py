"""What an attempt meets. All figures are worked out by hand from capacity 100: one attempt is 10 ms
of work.
"""

from dataclasses import replace

import pytest

from forbear import FailureKind, Phase, read_hint
from forbear.tools.simulation import Scenario
from forbear.tools.simulation.backend import OVERLOADED, Backend, utc

# Room for 50 ms of work: five attempts.
LIMITED = Scenario(capacity=100.0, rate=1.0, trouble_at=5.0, trouble_for=1.0, service_time=0.01)


def at_once(backend, now, times):
    """How many of so many attempts at one instant are served."""
    return [backend.receive(now)[1] for _ in range(times)].count(None)


def test_a_burst_is_taken_on_and_the_rest_rejected():
    backend = Backend(LIMITED)
    assert at_once(backend, 1.0, 8) == 5
    assert backend.receive(1.0) == (pytest.approx(1.01), OVERLOADED)
    assert at_once(backend, 1.02, 8) == 2  # 20 ms later there is room for two more
    assert at_once(backend, 4.0, 8) == 5  # and never for more than the burst


def test_rejecting_costs_what_it_costs():
    """Five served fill the room; ten rejections at 0.3 put 3 more on top. 30 ms later 5 of work are
    left: no room. Ten more milliseconds later there is room for one."""
    backend = Backend(replace(LIMITED, rejection_cost=0.3))
    assert at_once(backend, 1.0, 15) == 5
    assert at_once(backend, 1.0299, 1) == 0  # 0.3 more: 5.31
    assert at_once(backend, 1.0429, 1) == 0  # 4.01 and one would be more than 5; 0.3 more: 4.31
    assert at_once(backend, 1.0460, 1) == 1  # 4.00


def test_debt_is_limited_to_once_more_the_room():
    """However many are rejected, 60 ms later there is room for one, 100 ms later for five."""
    for later, times, served in ((1.0599, 1, 0), (1.0601, 1, 1), (1.1001, 9, 5)):
        backend = Backend(replace(LIMITED, rejection_cost=1.0))
        at_once(backend, 1.0, 1_000)
        assert at_once(backend, later, times) == served


def test_what_queues_is_answered_in_its_turn():
    """50 ms at once, then 30 ms in the queue: three wait 0, 10 and 20 ms, one is rejected."""
    backend = Backend(replace(LIMITED, queue=0.03))
    answers = [backend.receive(1.0) for _ in range(9)]
    assert [at for at, _ in answers[:8]] == pytest.approx([1.01] * 6 + [1.02, 1.03])
    assert [answer for _, answer in answers] == [None] * 8 + [OVERLOADED]


def test_down_answers_its_status_and_costs_nothing():
    backend = Backend(replace(LIMITED, rejection_cost=1.0, status=500))
    assert at_once(backend, 4.999, 9) == 5
    assert {backend.receive(5.0)[1] for _ in range(100)} == {(500, ())}
    assert backend.receive(5.9999)[0] == pytest.approx(6.0099)
    assert at_once(backend, 6.0, 9) == 5  # at its end all is forgotten


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


def test_hanging_ends_for_all_at_one_instant():
    backend = Backend(Scenario(trouble="hang"))
    answers = {backend.receive(now) for now in (2.0, 2.05, 2.199)}
    ((at, answer),) = answers
    assert at == 2.2
    assert (answer.kind, answer.phase) == (FailureKind.RESET, Phase.SENT)
    assert backend.receive(2.2) == (2.205, None)


def test_half_speed_drains_half_as_fast():
    """100 ms are 10 of work; at half speed 5. Across the boundary each part counts at its own
    speed.
    """
    backend = Backend(replace(LIMITED, trouble="slow", speed=0.5, slowdown=3.0))
    assert at_once(backend, 4.98, 9) == 5
    assert at_once(backend, 5.0201, 9) == 3  # 20 ms at 100/s and 20 ms at 50/s
    assert at_once(backend, 5.0602, 9) == 2
    assert backend.receive(5.1)[0] == pytest.approx(5.13)  # three times 10 ms
    assert at_once(backend, 6.5, 9) == 5
    assert backend.receive(6.6)[0] == pytest.approx(6.61)
