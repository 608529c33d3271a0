"""The gate: when a retry goes, when it is held, and what lets it go.

Expected numbers follow from the rule by hand: two tokens, a failure costs 1, a good answer earns
0.25; probes after 1, 2, 4, 8 s (a draw of 0.5 is no jitter).
"""

from __future__ import annotations

import itertools
import pickle

import pytest

from forbear import FailureKind, Phase
from forbear.core.outcome import Failure, Hint
from forbear.shared.gate import RetryGate
from forbear.shared.health import Cause, Place, cost_of

from ..threads import in_threads

HERE = "https://a:443"


def draw() -> float:
    return 0.5


class Gate(RetryGate):
    """A gate of one origin, with shorter words for tests."""

    def fails(self, now: float, times: int = 1, weight: float = 1.0) -> bool:
        for _ in range(times):
            self.bad(HERE, now, sent_at=now, weight=weight)
        return self.is_well(HERE)

    def answers(self, now: float, times: int = 1, retry: bool = False) -> None:
        for _ in range(times):
            self.good(HERE, now, retry=retry)

    def holds(self, now: float, ready_in: float = 0.0, patience: float = 10.0) -> Place:
        ready_at = now + ready_in
        place = self.hold(HERE, now, ready_at=ready_at, until=ready_at + patience)
        assert place is not None
        return place

    def asks(self, place: Place, now: float) -> float | None:
        return self.turn(place, now, draw)


# Go.


def test_a_gate_is_quiet_until_something_fails_and_when_all_is_well_again() -> None:
    gate = Gate()
    gate.answers(0)
    assert gate.quiet
    assert gate.is_well(HERE)
    assert gate.fails(1), "one failure leaves one of two tokens"
    assert not gate.quiet
    gate.answers(2, times=3)
    assert not gate.quiet
    gate.answers(2)  # 1 + 4 × 0.25
    assert gate.quiet


@pytest.mark.parametrize(
    ("failure", "in_a_row"),
    [
        pytest.param(Failure(FailureKind.STATUS, Phase.ANSWERED, 503), 2, id="an answer"),
        pytest.param(Failure(FailureKind.REFUSED, Phase.UNSENT), 3, id="refused"),
        pytest.param(Failure(FailureKind.RESET, Phase.SENT), 3, id="reset"),
        pytest.param(Failure(FailureKind.DNS, Phase.UNSENT), 3, id="never sent"),
        pytest.param(Failure(FailureKind.READ_TIMEOUT, Phase.SENT), 1, id="a timeout"),
        pytest.param(Failure(FailureKind.CONNECT_TIMEOUT, Phase.UNSENT), 1, id="no connection"),
    ],
)
def test_an_origin_is_unwell_after_so_many_failures(failure: Failure, in_a_row: int) -> None:
    gate = Gate()
    words = [gate.fails(0, weight=cost_of(failure, is_retry=False)) for _ in range(in_a_row)]
    assert words == [True] * (in_a_row - 1) + [False]


NAMED = Failure(FailureKind.STATUS, Phase.ANSWERED, 429, Hint(1.0, None, "retry-after"))


@pytest.mark.parametrize(
    ("failure", "first", "again"),
    [
        pytest.param(Failure(FailureKind.STATUS, Phase.ANSWERED, 404), -1.0, -1.0, id="works"),
        pytest.param(NAMED, 0.0, 1.0, id="a 429 that names a time"),
        pytest.param(Failure(FailureKind.STATUS, Phase.ANSWERED, 429), 1.0, 1.0, id="a 429"),
        pytest.param(Failure(FailureKind.STATUS, Phase.ANSWERED, 200), 1.0, 1.0, id="retry_if"),
        pytest.param(Failure(FailureKind.CERTIFICATE, Phase.UNSENT), 0.0, 0.0, id="certificate"),
        pytest.param(Failure(FailureKind.POOL, Phase.UNSENT), 0.0, 0.0, id="own pool full"),
    ],
)
def test_a_failure_costs_what_it_says_of_the_origin(
    failure: Failure, first: float, again: float
) -> None:
    assert (cost_of(failure, is_retry=False), cost_of(failure, is_retry=True)) == (first, again)


def test_an_unwell_origin_needs_four_good_answers_for_each_failure() -> None:
    gate = Gate()
    gate.fails(0, times=5)
    gate.answers(1, times=3)
    assert not gate.is_well(HERE)
    gate.answers(1)
    assert gate.is_well(HERE)


def test_origins_do_not_concern_each_other() -> None:
    gate = Gate()
    gate.fails(0, times=2)
    assert gate.is_well("https://b:443")
    assert not gate.is_well(HERE)


# Hold.


def test_every_fifth_good_first_answer_lets_the_call_go_that_was_ready_first() -> None:
    gate = Gate()
    gate.fails(0, times=2)
    later, sooner = gate.holds(0, ready_in=0.2), gate.holds(0, ready_in=0.1)
    for now in (1.0, 1.1, 1.2, 1.3):  # until the origin is well; the fourth is counted already
        gate.begin(HERE, now)
        gate.answers(now)
    gate.answers(1.3, times=3)  # 4 × 0.2
    assert gate.asks(later, 1.3) == pytest.approx(0.3), "asks again in 0.1 to 0.5 s"
    gate.answers(1.3)
    assert gate.asks(later, 1.3) == pytest.approx(0.3)
    assert gate.asks(sooner, 1.3) == 0.0
    assert sooner.cause is Cause.WELL
    assert gate.held(HERE) == 1


def test_where_nothing_new_is_sent_a_good_retry_lets_two_go() -> None:
    gate = Gate()
    gate.fails(0, times=2)
    places = [gate.holds(0) for _ in range(4)]
    gate.answers(2, retry=True)
    assert [gate.asks(place, 2) for place in places[:3]] == [0.0, 0.0, pytest.approx(0.3)]
    assert places[1].cause is Cause.GOOD_RETRY


def test_a_process_that_goes_on_sending_lets_new_answers_decide() -> None:
    gate = Gate()
    gate.fails(0, times=2)
    for now in (0.2, 0.4, 0.6, 0.8, 1.0):  # some 4 calls a second feed a queue of 1
        gate.begin(HERE, now)
    place = gate.holds(0)
    gate.answers(1.1, retry=True)
    assert gate.asks(place, 1.1) == pytest.approx(0.3)


def test_a_backlog_that_new_calls_cannot_feed_is_fed_by_its_retries() -> None:
    """1 call a second gathers 2 releases in 10 s of patience; 21 held are more than 2 × 10 × 1."""
    gate = Gate()
    gate.fails(0, times=2)
    places = [gate.holds(0) for _ in range(21)]
    gate.begin(HERE, 1.0)
    gate.answers(1.0, retry=True)
    assert gate.asks(places[0], 1.0) == 0.0


def test_a_failure_voids_what_was_earned_and_at_most_ten_are_kept() -> None:
    gate = Gate()
    gate.fails(0, times=2)
    first = gate.holds(0, ready_in=5)
    gate.answers(1, times=20, retry=True)
    places = [gate.holds(1, ready_in=1) for _ in range(11)]
    gate.begin(HERE, 1.9)
    free = [gate.asks(place, 2) for place in places]
    assert free == [0.0] * 10 + [pytest.approx(0.3)]
    gate.answers(2.5, times=20, retry=True)
    gate.fails(3)
    assert gate.asks(first, 5) != 0.0


def test_a_call_is_not_held_beyond_the_room_or_if_it_could_not_go_in_time() -> None:
    gate = Gate(max_held=1)
    gate.fails(0, times=2)
    assert gate.hold(HERE, 0, ready_at=2, until=1) is None
    assert gate.hold(HERE, 0, ready_at=0, until=0) is None
    assert gate.hold(HERE, 0, ready_at=0, until=1) is not None
    assert gate.hold(HERE, 0, ready_at=0, until=1) is None
    assert RetryGate().hold(HERE, 0, ready_at=0, until=1, most=0) is None


def test_patience_ends_with_no_place_left() -> None:
    gate = Gate()
    gate.fails(0, times=2)
    gate.begin(HERE, 0.9)
    place = gate.holds(0, patience=1)
    assert gate.asks(place, 0.9) == pytest.approx(0.1), "asks again at the end of its patience"
    assert gate.asks(place, 1.0) is None
    assert gate.held() == 0
    assert place.cause is Cause.PATIENCE_OVER


# Probe.


def test_a_dead_origin_is_probed_after_one_two_four_and_then_every_eight_seconds() -> None:
    gate, now, sent_at = Gate(), 0.0, [0.0]
    gate.fails(now, times=2)
    while len(sent_at) < 7:
        place = gate.holds(now, patience=60)
        while wait := gate.asks(place, now):
            now += wait
        assert place.cause is Cause.PROBE
        sent_at.append(now)
        now += 0.01
        gate.bad(HERE, now, sent_at=sent_at[-1], weight=1.0)
    gaps = [later - sooner for sooner, later in itertools.pairwise(sent_at)]
    # The second failure of the burst was sent with the first, and is no second finding.
    assert gaps == pytest.approx([1, 2, 4, 8, 8, 8])


def test_attempts_sent_before_the_last_step_do_not_lengthen_the_gap() -> None:
    gate = Gate()
    for sent_at in (0.0, 0.01, 0.02):
        gate.bad(HERE, 0.1, sent_at=sent_at, weight=1.0)
    place = gate.holds(0.1)
    assert gate.asks(place, 0.9) == pytest.approx(0.12), "the last was sent at 0.02: due at 1.02"
    assert gate.asks(place, 1.02) == 0.0


def test_only_the_head_of_the_queue_is_a_probe_and_a_new_call_puts_it_off() -> None:
    gate = Gate()
    gate.bad(HERE, 0.5, sent_at=0.0, weight=1.9)
    head, second = gate.holds(0.5), gate.holds(0.6)
    gate.begin(HERE, 0.9)
    assert gate.asks(head, 1.0) == pytest.approx(0.3)
    assert gate.asks(second, 1.9) == pytest.approx(0.3)
    assert gate.asks(head, 1.9) == 0.0
    assert gate.asks(second, 1.9) == pytest.approx(0.3)


def test_a_half_open_circuit_takes_its_probe_from_the_head() -> None:
    gate = Gate()
    gate.fails(0, times=2)
    head, second = gate.holds(0), gate.holds(0)
    assert gate.turn(second, 0.1, draw, probe_is_due=True) != 0.0
    assert gate.turn(head, 0.1, draw, probe_is_due=True) == 0.0
    gate.put_back(head)
    assert gate.held() == 2
    assert gate.turn(head, 0.2, draw, probe_is_due=True) == 0.0


# What is left behind.


def test_a_cancelled_call_leaves_no_place() -> None:
    gate = Gate()
    gate.fails(0, times=2)
    first, second = gate.holds(0), gate.holds(0)
    gate.drop(first)
    gate.drop(first)
    assert gate.held() == 1
    gate.answers(1, retry=True)
    assert gate.asks(second, 1) == 0.0
    gate.drop(second)  # it went already
    assert gate.held() == 0


def test_a_call_that_does_not_ask_any_more_blocks_nobody() -> None:
    gate = Gate()
    gate.fails(0, times=2)
    gate.holds(0, patience=5)
    second = gate.holds(0, patience=20)
    assert gate.asks(second, 4) != 0.0
    assert gate.asks(second, 6) == 0.0
    assert gate.held() == 0


def test_a_call_that_wakes_after_its_patience_does_not_go() -> None:
    gate = Gate()
    gate.fails(0, times=2)
    place = gate.holds(0, patience=5)
    gate.answers(1, retry=True)
    assert gate.asks(place, 5) is None


def test_cancelled_calls_are_not_remembered() -> None:
    gate = Gate()
    gate.fails(0, times=2)
    stays = gate.holds(0)
    for _ in range(1000):
        gate.drop(gate.holds(0, ready_in=60, patience=60))
    assert len(stays.health.queue) < 100
    assert gate.held() == 1


def test_places_are_exact_under_64_threads() -> None:
    gate = Gate()

    def work(number: int) -> None:
        for turn in range(50):
            now = turn + number / 100
            gate.fails(now, times=2)
            place = gate.holds(now)
            gate.answers(now, retry=True)
            if gate.asks(place, now) != 0.0:
                gate.drop(place)

    in_threads(64, work)
    assert gate.held() == 0


def test_a_thousand_and_some_origins_are_remembered_the_least_used_first_out() -> None:
    gate = Gate()
    gate.fails(0, times=2)
    for number in range(1024):
        gate.bad(f"https://{number}:443", 1, sent_at=1, weight=2.0)
    assert gate.is_well(HERE)
    assert not gate.is_well("https://0:443")


def test_an_origin_that_nobody_calls_any_more_is_forgotten_after_ten_minutes() -> None:
    gate = Gate()
    gate.begin("https://b:443", 0.0)
    gate.fails(1, times=2)
    gate.begin("https://b:443", 599.0)
    assert not gate.quiet
    gate.begin("https://b:443", 602.0)
    assert gate.quiet
    assert gate.is_well(HERE)


def test_a_copy_and_a_child_begin_anew() -> None:
    gate = Gate(max_held=3)
    gate.fails(0, times=2)
    gate.holds(0)
    copy = pickle.loads(pickle.dumps(gate))
    assert copy.max_held == 3
    assert copy.quiet
    assert copy.held() == 0
    gate.after_fork()
    assert gate.quiet
    assert gate.is_well(HERE)
    assert gate.held() == 0


def test_a_gate_shows_its_state() -> None:
    gate = Gate()
    assert repr(gate) == "<RetryGate well>"
    assert gate.unwell() == 0
    gate.fails(0, times=2)
    gate.holds(0)
    assert repr(gate) == "<RetryGate 1 origin unwell, 1 held>"
    assert (gate.unwell(), gate.held()) == (1, 1)


@pytest.mark.parametrize(
    ("given", "error"), [(-1, ValueError), (1.5, TypeError), (True, TypeError)]
)
def test_a_wrong_room_is_refused(given: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="max_held must be"):
        RetryGate(max_held=given)  # type: ignore[arg-type]
