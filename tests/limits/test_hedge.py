"""Hedge: when a second attempt is wanted, and how many may be sent. All times by hand."""

from math import inf

import pytest

from forbear import Hedge

from ..threads import hasty, in_threads

ORIGIN = "https://api.example:443"


def times_of(hedge, *answers):
    times = hedge.times(ORIGIN, "GET")
    for seconds in answers:
        times.learn(seconds)
    return times


@pytest.mark.parametrize(("quick", "slow", "quantile", "delay"), [
    (94, 6, 0.95, 0.3), (95, 5, 0.95, 0.1), (94, 6, 0.9, 0.1)])  # fmt: skip
def test_the_delay_is_the_quantile_of_good_answers(quick, slow, quantile, delay):
    hedge = Hedge(learn_from=100, quantile=quantile)
    times = times_of(hedge, *[0.1] * quick, *[0.3] * slow)
    assert times.delay == pytest.approx(delay, rel=0.06)


def test_a_given_delay_needs_nothing_to_be_learnt():
    assert Hedge(delay=0.2).times(ORIGIN, "GET").delay == 0.2


def test_the_last_512_answers_count_or_as_many_as_are_needed():
    hedge = Hedge(learn_from=50)
    assert times_of(hedge, *[0.05] * 1_000).delay == 0.05
    assert times_of(hedge, *[0.15] * 512).delay == 0.15
    assert times_of(Hedge(learn_from=1_000), *[0.1] * 999).delay == inf
    assert times_of(Hedge(learn_from=1_000), *[0.1] * 1_000).delay == 0.1


def test_origins_and_methods_are_known_apart_and_at_most_1024():
    hedge = Hedge(learn_from=1)
    times_of(hedge, 0.1)
    assert hedge.times(ORIGIN, "HEAD").delay == inf
    assert hedge.times("https://other.example:443", "GET").delay == inf
    for number in range(1024):
        hedge.times(f"https://{number}.example:443", "GET")
    assert "1024 origins" in repr(hedge)
    assert hedge.times(ORIGIN, "GET").delay == inf, "the oldest was forgotten"


def test_threads_that_meet_new_origins_leave_no_more_of_them_known_than_may_be():
    hedge = Hedge()

    def meet(n):
        for number in range(1500):
            hedge.times(f"https://{n}-{number}.example:443", "GET")

    with hasty():
        in_threads(8, meet)
    assert "1024 origins" in repr(hedge)


def test_second_attempts_are_at_most_the_burst_and_the_ratio_of_good_answers():
    times = times_of(Hedge(ratio=0.25, burst=2))
    assert [times.spend() for _ in range(3)] == [True, True, False]
    for _ in range(3):
        times.learn(0.1)
    assert not times.spend()
    times.learn(0.1)  # four quarters
    assert [times.spend(), times.spend()] == [True, False]
    for _ in range(100):
        times.learn(0.1)
    assert [times.spend() for _ in range(3)] == [True, True, False]


def test_how_widely_answers_spread_does_not_depend_on_the_quantile():
    answers = [0.1] * 98 + [2.0] * 2  # 95 of 100 came as usual
    assert not times_of(Hedge(learn_from=100, quantile=0.99), *answers).is_strained
    assert times_of(Hedge(learn_from=100, quantile=0.8), *[0.1] * 90, *[0.5] * 10).is_strained


def test_answers_that_are_all_slower_than_they_were_are_not_hedged_until_that_is_usual():
    hedge = Hedge(learn_from=64)
    times = times_of(hedge, *[0.1] * 64)
    assert times_of(hedge, *[0.19] * 1024) is times
    assert not times.is_strained
    times_of(hedge, *[0.25] * 2048)
    assert times.is_strained
    times_of(hedge, *[0.1] * 2048)
    assert not times.is_strained
    times_of(hedge, *[0.25] * 30_000)  # the best is forgotten by half in 22,000
    assert not times.is_strained
