"""The gate: when a retry goes, when it is held, and what lets it go.

Expected numbers follow from the rule by hand: 3.9 tokens, a failure costs 1 at most, a good first
attempt earns 0.35, a good retry gives 1 back; probes after 1, 2, 4, 8 s (a draw of 0.5 is no jitter).
"""

import itertools

import pytest

from forbear import FailureKind
from forbear.limits.gate import RetryGate
from forbear.limits.health import Cause, cost_of
from forbear.strategies import Failure, Phase

from ..failures import REFUSED, RESET, TIMEOUT, answer
from ..threads import in_threads

HERE = "https://a:443"


class Gate(RetryGate):
    """A gate of one origin, with shorter words for tests."""

    def fails(self, now, times=1, weight=1.0, **more):
        for _ in range(times):
            self.bad(HERE, now, now, weight, **more)
        return self.is_healthy(HERE)

    def is_dead(self, now):
        self.fails(now, times=3)
        assert not self.is_healthy(HERE)

    def answers(self, now, times=1, retry=False):
        for _ in range(times):
            self.good(HERE, now, retry=retry)

    def begins(self, *times):
        for now in times:
            self.begin(HERE, now)

    def may_hold(self, now, ready_in=0.0, patience=10.0, **more):
        at = now + ready_in
        return self.hold(HERE, now, ready_at=at, until=at + patience, patience=patience, **more)

    def holds(self, now, **more):
        place = self.may_hold(now, **more)
        assert place is not None
        return place

    def asks(self, place, now, **more):
        return self.turn(place, now, lambda: 0.5, **more)


@pytest.fixture
def gate():
    return Gate()


def test_a_gate_is_quiet_until_something_fails_and_when_all_is_well_again(gate):
    gate.answers(0)
    assert gate.quiet
    assert gate.is_healthy(HERE)
    assert gate.fails(1), "one failure leaves 2.9 of 3.9 tokens"
    assert not gate.quiet
    gate.answers(2, times=19)
    assert not gate.quiet, "twenty in a row say that all is well"
    gate.answers(2)
    assert gate.quiet


@pytest.mark.parametrize(("failure", "in_a_row"), [
    pytest.param(answer(503), 3, id="a response"),
    pytest.param(REFUSED, 6, id="refused"),
    pytest.param(RESET, 6, id="reset"),
    pytest.param(Failure(FailureKind.DNS, Phase.UNSENT), 6, id="never sent"),
    pytest.param(TIMEOUT, 3, id="a timeout"),
])  # fmt: skip
def test_an_origin_is_unhealthy_after_so_many_failures(gate, failure, in_a_row):
    healthy = [gate.fails(0, weight=cost_of(failure, is_retry=False)) for _ in range(in_a_row)]
    assert healthy == [True] * (in_a_row - 1) + [False]


@pytest.mark.parametrize(("failure", "first", "again"), [
    pytest.param(answer(400), -1.0, -1.0, id="works"),
    pytest.param(answer(429, 1.0), 0.0, 1.0, id="a 429 again although its time was obeyed"),
    pytest.param(answer(429), 0.0, 0.0, id="a 429"),
    pytest.param(answer(202), 0.0, 0.0, id="polling"),
    pytest.param(Failure(FailureKind.CERTIFICATE, Phase.UNSENT), 0.0, 0.0, id="certificate"),
    pytest.param(Failure(FailureKind.POOL, Phase.UNSENT), 0.0, 0.0, id="own pool full"),
    pytest.param(Failure(FailureKind.RESET, Phase.SENT, stale_connection=True), 0.0, 0.0,
        id="stale"),
])  # fmt: skip
def test_a_failure_costs_what_it_says_of_the_origin(failure, first, again):
    assert (cost_of(failure, is_retry=False), cost_of(failure, is_retry=True)) == (first, again)


@pytest.mark.parametrize(("retry", "needed"), [(False, 3), (True, 1)])
def test_good_responses_make_an_origin_healthy_again(gate, retry, needed):
    gate.fails(0, times=5)
    gate.answers(1, times=needed - 1, retry=retry)
    assert not gate.is_healthy(HERE)
    gate.answers(1, retry=retry)
    assert gate.is_healthy(HERE)


def fails_in_turn(gate, now, calls, good=1, of=2):
    """So many of each few calls succeed, ten calls a second; return when they are over."""
    for number in range(calls):
        now += 0.1
        (gate.answers if number % of < good else gate.fails)(now)
    return now


def share_of(gate):
    """The share of retries that are sent although the origin is unhealthy."""
    return sum(gate.is_in_share(HERE, lambda at=at: at / 100) for at in range(100)) / 100


def test_an_origin_that_responds_to_half_of_the_calls_gets_a_growing_share_of_retries(gate):
    """A trial of 0.3 after 50 good responses, then 0.02 more by each new call, by 1 in 3 s at most."""
    gate.fails(0)
    now = fails_in_turn(gate, 0, 98)
    assert not gate.is_healthy(HERE)
    assert share_of(gate) == 0.0
    now = fails_in_turn(gate, now, 1)
    assert share_of(gate) == 0.3
    now = fails_in_turn(gate, now, 9)
    assert share_of(gate) == pytest.approx(0.48, abs=0.011)
    now = fails_in_turn(gate, now, 25)
    assert not gate.may_be_fast(HERE)
    fails_in_turn(gate, now, 2)
    assert gate.may_be_fast(HERE)
    assert share_of(gate) == 1.0


def test_a_share_grows_no_faster_than_a_server_can_show_what_it_does_to_it(gate):
    now = fails_in_turn(gate, 0, 103)  # two after it has begun
    for _ in range(9):
        gate.answers(now)
        gate.fails(now)
    assert share_of(gate) == pytest.approx(0.34, abs=0.011)
    for later in (1, 2, 3):
        gate.answers(now + later, retry=True)
    assert share_of(gate) == pytest.approx(0.34, abs=0.011), "retries show nothing of it"


@pytest.mark.parametrize(("good", "of", "calls", "share"), [
    pytest.param(1, 3, 600, 0.0, id="one of three: more could hardly fail"),
    pytest.param(2, 5, 127, 0.3, id="two of five"),
])  # fmt: skip
def test_a_trial_needs_attempts_that_succeed(gate, good, of, calls, share):
    fails_in_turn(gate, 0, calls, good, of)
    assert share_of(gate) == share


def test_a_process_of_few_calls_has_a_trial_after_a_minute(gate):
    for now in range(0, 60, 2):
        (gate.fails if now % 4 else gate.answers)(now + 1)
    gate.fails(62)
    assert share_of(gate) == 0.0
    gate.answers(64)
    assert share_of(gate) == 0.3


def test_a_trial_ends_where_more_attempts_fail_and_none_follows_for_twenty_seconds(gate):
    """Of a base of a half 0.8 is tolerated, so with one good of five each adds a fifth."""
    now = fails_in_turn(gate, 0, 140)
    assert share_of(gate) == 1.0
    now = fails_in_turn(gate, now, 60, 1, 5)
    assert share_of(gate) == 0.0
    now = fails_in_turn(gate, now, 160)
    assert share_of(gate) == 0.0
    fails_in_turn(gate, now, 50)
    assert share_of(gate) > 0.0


def test_retries_that_fail_end_a_trial_too(gate):
    now = fails_in_turn(gate, 0, 140)
    for number in range(100):
        gate.bad(HERE, now, now, 1.0, now - 1) if number % 5 else gate.answers(now, retry=True)
    assert share_of(gate) == 0.0


@pytest.mark.parametrize("works", [True, False], ids=["it works again", "it is down"])
def test_twenty_results_alike_are_no_partial_failure(gate, works):
    now = fails_in_turn(gate, 0, 250 if works else 251)  # the last one is the other way
    for _ in range(19):
        (gate.answers if works else gate.fails)(now)
    assert share_of(gate) == 1.0
    (gate.answers if works else gate.fails)(now)
    assert share_of(gate) == 0.0


def test_where_all_retries_are_sent_each_good_response_releases_a_held_call(gate):
    now = fails_in_turn(gate, 0, 140)
    place = gate.holds(now, began_at=0.0)
    gate.begins(now)
    gate.answers(now)
    assert gate.asks(place, now) == 0.0


@pytest.mark.parametrize(("last", "needed"), [
    pytest.param({}, 5, id="every fifth after a response"),
    pytest.param({"is_timeout": True}, 15, id="every fifteenth after a timeout"),
    pytest.param({"weight": 0.5}, 1, id="each after a refused connection"),
])  # fmt: skip
def test_good_first_attempts_let_the_call_go_that_was_ready_first(gate, last, needed):
    gate.fails(0, times=2)
    gate.fails(0, **last)
    gate.fails(0, times=9, **last)
    later, sooner = gate.holds(0, ready_in=0.2), gate.holds(0, ready_in=0.1)
    assert gate.asks(later, 0.05) == pytest.approx(0.15), "not before it is ready"
    gate.begins(1.0)
    gate.answers(1.0, times=2)  # not healthy yet
    for _ in range(needed - 1):
        gate.begins(1.3)
        gate.answers(1.3)
    assert gate.asks(sooner, 1.3) == pytest.approx(0.3), "asks again in 0.1 to 0.5 s"
    gate.begins(1.3)
    gate.answers(1.3)
    assert gate.asks(later, 1.3) == pytest.approx(0.3)
    assert gate.asks(sooner, 1.3) == 0.0
    assert sooner.cause is Cause.HEALTHY
    assert gate.held(HERE) == 1


def test_a_process_that_goes_on_sending_lets_new_answers_decide(gate):
    gate.is_dead(0)
    gate.begins(0.2, 0.4, 0.6, 0.8, 1.0)  # some 4 calls a second feed a queue of 1
    place = gate.holds(0)
    gate.answers(1.1, retry=True)
    assert gate.asks(place, 1.1) == pytest.approx(0.3)
    gate.answers(2.1, retry=True)  # it has begun none for more than a second
    assert place.cause is Cause.GOOD_RETRY


def test_a_backlog_that_new_calls_cannot_feed_is_fed_by_its_retries(gate):
    """1 call a second gathers 2 releases in 10 s of patience; 21 held are more than 2 × 10 × 1."""
    gate.is_dead(100)
    places = [gate.holds(100) for _ in range(21)]
    gate.begins(101)
    gate.answers(101, retry=True)
    assert gate.asks(places[0], 101) == 0.0


def test_a_failure_voids_what_was_earned_and_at_most_ten_are_kept(gate):
    gate.is_dead(0)
    first = gate.holds(0, ready_in=5)
    gate.answers(1, times=20, retry=True)
    places = [gate.holds(1, ready_in=1) for _ in range(11)]
    gate.begins(1.9)
    free = [gate.asks(place, 2) for place in places]
    assert free == [0.0] * 10 + [pytest.approx(0.3)]
    gate.answers(2.5, times=20, retry=True)
    gate.fails(3)
    gate.begins(4.9)  # no probe is due
    assert gate.asks(first, 5) != 0.0


def test_a_call_is_not_held_beyond_the_room_or_if_it_could_not_go_in_time():
    gate = Gate(max_held=1)
    gate.is_dead(0)
    assert gate.hold(HERE, 0, ready_at=2, until=1) is None
    assert gate.hold(HERE, 0, ready_at=0, until=0) is None
    assert gate.hold(HERE, 0, ready_at=0, until=1) is not None
    assert gate.hold(HERE, 0, ready_at=0, until=1) is None
    assert RetryGate(max_held=0).hold(HERE, 0, ready_at=0, until=1) is None


@pytest.mark.parametrize(("is_timeout", "expected"), [
    pytest.param(False, [1, 2, 4, 8, 8, 8], id="at once"),
    pytest.param(True, [4, 8, 8, 8, 8, 8], id="timeouts: work may pile up"),
])  # fmt: skip
def test_a_dead_origin_is_probed_more_and_more_rarely(is_timeout, expected):
    gate, now, sent_at = Gate(), 0.0, [0.0]
    gate.fails(now, times=3, is_timeout=is_timeout)
    while len(sent_at) < 7:
        place = gate.holds(now, patience=60)
        while wait := gate.asks(place, now):
            now += wait
        assert place.cause is Cause.PROBE
        sent_at.append(now)
        now += 0.01
        gate.bad(HERE, now, sent_at[-1], 1.0, sent_at[-2], is_timeout)
    gaps = [later - sooner for sooner, later in itertools.pairwise(sent_at)]
    # The second failure of the burst was sent with the first, and is no second finding.
    assert gaps == pytest.approx(expected)


@pytest.mark.parametrize(("sent_at", "too_soon", "due"), [
    # Unhealthy since 0.2, and the time grew last at 1.1: 1.5 x 0.9 s after the last attempt.
    pytest.param([n / 10 for n in range(13)], 2.54, 2.56, id="busy"),
    # The fourth failure lets a probe wait for 8 s, and not for 1.5 times 5 s.
    pytest.param([0, 5, 10, 15], 22.9, 23.0, id="a call every five seconds"),
])  # fmt: skip
def test_a_busy_process_probes_no_rarer_than_one_and_a_half_times_the_age_of_the_outage(
    gate, sent_at, too_soon, due
):
    """All threads of a pool may be held by then, so that nothing else would be sent."""
    for now in sent_at:
        gate.begins(now)
        gate.fails(now)
    place = gate.holds(now)
    assert gate.asks(place, too_soon) != 0.0
    assert gate.asks(place, due) == 0.0


def test_probes_come_sooner_where_attempts_succeed_and_begin_anew_once_all_is_well(gate):
    for now in (0, 0, 0, 1, 3):  # the next probe would be 4 s later
        gate.fails(now)
    gate.answers(3, times=3)  # the last of them makes it healthy: half of that
    place = gate.holds(3)
    assert gate.asks(place, 4.9) == pytest.approx(0.1)
    assert gate.asks(place, 5.0) == 0.0
    for now in (5, 7, 15):
        gate.fails(now)
    gate.answers(15, times=20)
    gate.is_dead(100)
    place = gate.holds(100)
    assert gate.turn(place, 100.1, lambda: 1.0) == pytest.approx(0.5)
    assert gate.turn(place, 101.2, lambda: 1.0) == pytest.approx(0.05), "1 s, and a quarter at most"
    assert gate.turn(place, 101.25, lambda: 1.0) == 0.0


def test_only_the_head_of_the_queue_is_a_probe_and_a_new_call_puts_it_off(gate):
    gate.bad(HERE, 0.5, 0.0, 2.9)
    head, second = gate.holds(0.5), gate.holds(0.6)
    gate.begins(0.9)
    assert gate.asks(head, 1.0) == pytest.approx(0.3)
    assert gate.asks(second, 1.9) == pytest.approx(0.3)
    assert gate.asks(head, 1.9) == 0.0
    assert gate.asks(second, 1.9) == pytest.approx(0.3)


def test_calls_far_behind_in_the_queue_of_a_dead_origin_ask_later_and_together(gate):
    """None before them was released, and an event loop that woke for each did little else."""
    gate.is_dead(0)
    places = [gate.holds(0) for _ in range(18)]
    assert gate.asks(places[15], 0.1) == pytest.approx(0.3)
    asks_in = [gate.asks(places[16], 0.11), gate.asks(places[17], 0.12)]
    assert asks_in == pytest.approx([0.95 - 0.11, 0.95 - 0.12])


def test_a_half_open_circuit_takes_its_probe_from_the_head(gate):
    gate.is_dead(0)
    head, second = gate.holds(0), gate.holds(0)
    assert gate.asks(second, 0.1, probe_is_due=True) != 0.0
    assert gate.asks(head, 0.1, probe_is_due=True) == 0.0
    gate.hold_again(head)
    assert gate.held() == 2
    assert gate.asks(second, 0.2, probe_is_due=True) != 0.0
    assert gate.asks(head, 0.2, probe_is_due=True) == 0.0


def test_a_call_that_does_not_ask_any_more_blocks_nobody(gate):
    gate.is_dead(0)
    gate.holds(0, patience=5)
    second = gate.holds(0, patience=20)
    for now in range(5):
        assert gate.asks(second, now) != 0.0
    assert gate.asks(second, 5) == 0.0
    assert gate.held() == 0


def test_time_in_which_the_process_did_not_run_is_nobodys_patience(gate):
    """Frozen at 1 s, when a retry, a new call and two held calls were under way."""
    gate.is_dead(0)
    places = [gate.holds(0, patience=5), gate.holds(0, ready_in=1, patience=5)]
    assert gate.asks(places[0], 0.9) == pytest.approx(0.1)
    gate.answers(16.0, retry=True)
    gate.answers(16.0)
    assert [gate.asks(place, 16.0) for place in places] == [0.0, 0.0]
    gate.is_dead(17)
    deadline_reads = gate.holds(17, latest_at=25)
    lasting = gate.holds(17, patience=2)
    assert gate.asks(lasting, 18.5) == pytest.approx(0.3)
    assert gate.asks(lasting, 27) is not None
    assert gate.asks(deadline_reads, 27) is None
    assert gate.may_hold(27.5, patience=8, began_at=27.4) is not None, "nor the outage's age"


def test_a_call_that_was_let_go_is_sent_also_after_its_patience_but_not_after_its_deadline(gate):
    gate.is_dead(0)
    patient = gate.holds(0, patience=5)
    deadline_reads = gate.holds(0, patience=5, latest_at=5)
    gate.answers(1, retry=True)
    assert gate.asks(patient, 6) == 0.0
    assert gate.asks(deadline_reads, 6) is None


def test_a_call_ends_as_soon_as_no_probe_can_come_before_its_deadline(gate):
    gate.is_dead(0)
    assert gate.may_hold(0.1, latest_at=1.0) is None, "the first one is due at 1"
    place = gate.holds(0.1, latest_at=2.0)
    assert gate.asks(place, 0.5) == pytest.approx(0.3)
    gate.fails(0.7)  # the next one is 2 s later
    assert gate.asks(place, 0.8) is None


def test_a_busy_process_holds_calls_until_their_deadline(gate):
    """Its new calls find out sooner than probes; so do they where others are responded to."""
    gate.is_dead(0)
    gate.begins(0.1, 0.2, 0.3, 0.4)
    place = gate.holds(0.4, latest_at=1.0)
    assert gate.asks(place, 0.5) == pytest.approx(0.3)
    assert gate.asks(place, 0.8) is None, "it is not busy any more"
    place = gate.holds(0.8, latest_at=2.0)
    gate.begins(1.5)  # while a call is held
    assert gate.asks(place, 1.9) == pytest.approx(0.1)
    gate.drop(place)
    gate.answers(1.95)
    gate.is_dead(1.95)
    assert gate.may_hold(1.95, latest_at=2.5) is not None


def test_an_outage_that_has_lasted_longer_than_patience_ends_calls_at_once(gate):
    gate.is_dead(0)
    gate.drop(gate.holds(9.9))
    assert gate.may_hold(10.1, began_at=10.0) is None
    gate.drop(gate.may_hold(10.1, began_at=0.0))  # who began before the outage has all its patience
    gate.drop(gate.holds(10.1, patience=60))  # who is more patient is held
    gate.answers(11, times=2)
    gate.fails(20, times=2)
    assert gate.may_hold(20.1) is not None, "another outage"


def test_a_queue_that_stands_while_others_are_answered_is_refused(gate):
    gate.is_dead(100)
    gate.holds(100)
    gate.answers(100.9)
    assert gate.may_hold(100.95) is not None, "it has stood for less than a second"
    gate.answers(101.9)
    gate.fails(101.95)
    assert gate.may_hold(102.0) is None
    gate.holds(112.0, patience=60)  # nobody was answered for ten seconds: an outage


def test_where_held_calls_pile_up_a_new_queue_begins_only_when_nobody_is_answered(gate):
    gate.is_dead(0)
    place = gate.holds(0)
    gate.answers(1.9)
    assert gate.may_hold(2.0) is None
    gate.drop(place)
    gate.answers(2.5)
    assert gate.may_hold(3.4) is None
    assert gate.may_hold(3.6) is not None


def test_a_queue_that_was_served_a_while_ago_is_refused(gate):
    # Two at 2 s and two at 3 s count 2.1 at 4.5 s, so 1.4 go in two seconds, and one is held; at
    # 5.8 s they count 1.35, so 0.9 go.
    gate.is_dead(0)
    for _ in range(5):
        gate.holds(0)
    for now in (2.0, 3.0):
        gate.answers(now, retry=True)
    assert gate.held() == 1
    gate.drop(gate.may_hold(4.5))
    assert gate.may_hold(5.8) is None


def test_a_call_may_be_held_for_an_origin_that_has_recovered_meanwhile(gate):
    """It has rested, and is known no more, when the call joins the queue."""
    place = gate.holds(0)
    for now in (0.1, 0.2, 0.3, 0.4, 0.5):
        gate.begins(now)
        gate.answers(now)
    assert gate.asks(place, 0.5) == 0.0


def test_cancelled_calls_are_not_remembered(gate):
    gate.is_dead(0)
    stays = gate.holds(0)
    for _ in range(1000):
        gate.drop(gate.holds(0, ready_in=60, patience=60))
    assert len(stays.health.queue) < 100
    assert gate.held() == 1


def test_places_are_exact_under_64_threads(gate):
    def work(number):
        for turn in range(50):
            now = turn + number / 100
            gate.fails(now, times=3)
            place = gate.may_hold(now)
            gate.answers(now, retry=True)
            if place is not None and gate.asks(place, now) != 0.0:
                gate.drop(place)

    in_threads(64, work)
    assert gate.held() == 0


def test_a_thousand_and_some_origins_are_remembered_the_least_used_first_out(gate):
    gate.is_dead(0)
    for number in range(1023):
        gate.bad(f"https://{number}:443", 1, 1, 3.0)
    gate.answers(2, times=20)  # it is at rest, and
    gate.fails(3, times=4)  # has failed anew
    gate.bad("https://b:443", 3, 3, 3.0)
    unhealthy = [not gate.is_healthy(f"https://{at}:443") for at in ("a", "0", "1", "b")]
    assert unhealthy == [True, False, True, True]


def test_an_origin_that_nobody_calls_any_more_is_forgotten_after_ten_minutes(gate):
    gate.begin("https://b:443", 0.0)
    gate.fails(1, times=2)
    gate.begin("https://b:443", 599.0)
    assert not gate.quiet
    gate.begin("https://b:443", 602.0)
    assert gate.quiet
    assert gate.is_healthy(HERE)


def test_a_forked_child_knows_of_no_trouble_and_holds_nobody(gate):
    gate.is_dead(0)
    gate.holds(0)
    gate.after_fork()
    assert (gate.quiet, gate.held(), gate.is_healthy(HERE)) == (True, 0, True)
