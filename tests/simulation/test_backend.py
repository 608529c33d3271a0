"""What an attempt meets. All figures are worked out by hand from capacity 100: one attempt is 10 ms
of work.
"""

from dataclasses import replace
from math import inf
from random import Random

import pytest

from benchmarks.simulation import Scenario
from benchmarks.simulation.backend import OVERLOADED, Backend, utc
from forbear import FailureKind, read_hint
from forbear.strategies import Phase

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


def test_a_trouble_can_come_again():
    """For 0.3 s of each 2 s."""
    backend = Backend(Scenario(trouble_at=1.7, trouble_for=0.3, trouble_every=2.0))
    bad = [backend.receive(tenth / 10)[1] is not None for tenth in range(61)]
    assert [place for place, one in enumerate(bad) if one] == [17, 18, 19, 37, 38, 39, 57, 58, 59]


def test_a_quota_may_reject_with_another_status():
    limit = Scenario(quota=1, quota_window=0.5, quota_status=503, quota_hint=False)
    backend = Backend(limit)
    assert [backend.receive(at)[1] for at in (0.0, 0.1, 0.6)] == [None, (503, ()), None]


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


def test_the_fuller_the_slower():
    """Five places. An attempt costs 1 and a share of what is there: 1 + 1.2 + 1.44 make 3.64, and
    one more 4.73 + 1 > 5: no room.
    """
    backend = Backend(replace(LIMITED, thrash=1.0))
    assert at_once(backend, 1.0, 8) == 4


def test_caches_are_cold_after_the_trouble():
    """Half of 100/s at 6 s, all of it 10 s later; 50 ms after the end there is room for 2 or 3."""
    backend = Backend(replace(LIMITED, cold_for=10.0))
    assert at_once(backend, 6.0, 8) == 5
    assert at_once(backend, 6.0502, 8) == 2
    assert at_once(backend, 16.0, 8) == 5
    assert at_once(backend, 16.0501, 8) == 5


def test_what_is_too_much_may_be_refused_or_told_a_time():
    refusing = Backend(replace(LIMITED, rejection="refused"))
    assert at_once(refusing, 1.0, 5) == 5
    assert refusing.receive(1.0)[1].kind is FailureKind.REFUSED
    telling = Backend(replace(LIMITED, rejection=429, rejection_hint=2.0))
    assert at_once(telling, 1.0, 5) == 5
    assert telling.receive(1.0)[1] == (429, (("Retry-After", "2"),))


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


def test_the_first_attempts_of_each_process_meet_stale_connections():
    backend = Backend(Scenario(trouble="reset", first=2))
    answers = [backend.receive(2.1, client)[1] is None for client in (0, 0, 1, 0, 1, 1)]
    assert answers == [False, False, False, True, False, True]


# --- partial failures ---------------------------------------------------------------------------

PARTLY = Scenario(rate=100.0, duration=100.0, arrivals="poisson", timeout=1.0, trouble_for=0.0)


def is_bad(backend, client=0):
    return backend.receive(5.0, client)[1] is not None


def test_a_flaky_server_fails_its_share_of_the_attempts():
    """0.3 of 10,000: 3,000, within four standard deviations (184), as whatever it is to fail with."""
    flaky = replace(PARTLY, flaky=0.3, partial_failure="reset")
    backend = Backend(flaky, Random(1).random)
    answers = [backend.receive(5.0)[1] for _ in range(10_000)]
    assert 3_000 - 184 <= sum(answer is not None for answer in answers) <= 3_000 + 184
    assert {answer.kind for answer in answers if answer is not None} == {FailureKind.RESET}


def test_by_turns_exactly_every_third_attempt_of_a_process_meets_the_bad_one():
    third = replace(PARTLY, replicas=3, bad_replicas=1, balancing="round-robin")
    backend = Backend(third, Random(1).random)
    for client in (0, 1, 2):
        met = [is_bad(backend, client) for _ in range(12)]
        assert met.count(True) == 4
        assert met == met[:3] * 4


def test_a_replica_that_hangs_costs_its_timeout_and_a_broken_route_answers():
    hanging = replace(PARTLY, replicas=1, bad_replicas=1, partial_failure="hang")
    at, failure = Backend(hanging).receive(5.0)
    assert (at, failure.kind) == (inf, FailureKind.READ_TIMEOUT)
    broken = Backend(replace(PARTLY, broken_share=0.5))
    assert broken.receive(5.0) == (5.005, None)
    assert broken.receive(5.0, is_broken=True) == (5.005, (500, ()))
