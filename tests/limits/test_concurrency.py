"""ConcurrencyLimit: slots, the queue, what is learned; with numbers alone."""

from math import inf

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from forbear import ConcurrencyLimit, Reason, RetryPolicy
from forbear.addons.concurrency import Slot
from forbear.core.call import IN_QUEUE, PREPARED_FOR, STORY, Call
from forbear.core.request import Request
from forbear.engine.settings import limits_of
from forbear.strategies import RetryRefused

from .. import failures

A, B = "http://a:80", "http://b:80"
NOW = 1_000.0
MOST_SCOPES = 1_024
# Seconds: after which a new scope gets the rest of its slots, between two of those, and after which
# a server that was faster counts as silent.
STARTING, EACH, SILENCE = 0.5, 0.05, 0.2


class Woken:
    """A call in the queue, which notes that it was woken."""

    def __init__(self, limit, key=A, now=NOW):
        self.slot = Slot(limit, key, now)
        self.times = 0
        self.slot.wake = self.wake
        self.found = limit.enter(self.slot, key, now)

    def wake(self):
        self.times += 1


@pytest.fixture
def limit():
    return ConcurrencyLimit(start=20)


@pytest.fixture
def bulkhead():
    return ConcurrencyLimit(1, adaptive=False)


def fill(limit, count, key=A, now=NOW):
    return [Woken(limit, key, now) for _ in range(count)]


def answer(limit, one, sent_at, now):
    one.slot.scope.good(sent_at, now - sent_at, limit.most or inf)
    one.slot.free()


def test_who_leaves_the_queue_is_passed_over(bulkhead):
    first, second, third = fill(bulkhead, 3)
    second.slot.free()
    first.slot.free()
    assert (second.times, third.times) == (0, 1)
    third.slot.free()
    third.slot.free()  # idempotent
    assert (bulkhead.in_flight(), bulkhead.waiting()) == (0, 0)


def test_the_slot_of_a_call_whose_loop_is_closed_goes_to_the_next(bulkhead):
    first, second, third = fill(bulkhead, 3)

    def closed():
        raise RuntimeError("Event loop is closed")

    second.slot.wake = closed
    first.slot.free()
    assert third.slot.is_taken
    assert bulkhead.in_flight() == 1


def test_a_full_queue_refuses():
    limit = ConcurrencyLimit(1, adaptive=False, max_waiting=1)
    assert [one.found for one in fill(limit, 3)] == [True, False, None]
    assert [one.found for one in fill(limit, 3, B)] == [True, False, None]


@pytest.mark.parametrize("come_next", [
    lambda limit, other, waiting: limit.in_flight(),
    lambda limit, other, waiting: Woken(limit, "http://c:80"),
    lambda limit, other, waiting: limit.ask(waiting.slot, NOW),
    lambda limit, other, waiting: limit.throttled(other.slot, NOW, NOW),
], ids=["reads", "enters", "asks", "is throttled"])  # fmt: skip
def test_a_finalizer_inside_the_limit_waits_for_no_lock(come_next):
    """The garbage collector may run in any line. Whoever comes next enters what it gave back."""
    limit = ConcurrencyLimit(1)
    (first, second), (other, waiting) = fill(limit, 2), fill(limit, 2, B)
    with limit._lock:
        first.slot.free()
        assert not second.slot.is_taken
    come_next(limit, other, waiting)
    assert (second.slot.is_taken, second.times) == (True, 1)


def test_half_of_start_goes_at_once_and_the_rest_with_time(limit):
    """One after the other, because a server that takes a second has said nothing by then."""
    waiting = [one for one in fill(limit, 30) if not one.found]
    assert len(waiting) == 20
    assert limit.ask(waiting[-1].slot, NOW) == pytest.approx(STARTING)
    assert limit.ask(waiting[0].slot, NOW + STARTING) == 0
    assert limit.in_flight() == 11
    assert limit.ask(waiting[1].slot, NOW + STARTING) == pytest.approx(EACH)
    for number in range(1, 10):
        assert limit.ask(waiting[number].slot, NOW + STARTING + number) == 0
    assert limit.in_flight() == 20
    assert limit.ask(waiting[10].slot, NOW + STARTING + 10) > 1


def test_a_call_that_asks_wakes_those_whose_turn_it_is_and_not_itself():
    """They would sleep on for seconds; it is awake."""
    limit = ConcurrencyLimit(start=4)
    first, last = fill(limit, 4)[2:]
    assert limit.ask(last.slot, NOW + STARTING) > 0
    assert (first.slot.is_taken, first.times) == (True, 1)
    assert limit.ask(last.slot, NOW + STARTING + EACH) == 0
    assert (first.times, last.times) == (1, 0)


def test_a_throttle_takes_three_of_ten_once_per_round_trip(limit):
    sent = fill(limit, 20)
    limit.ask(sent[-1].slot, NOW + STARTING + 1)
    for one in sent[:4]:
        limit.throttled(one.slot, NOW + STARTING, NOW + 1)
        one.slot.free()
    assert limit.lowest() == 14
    limit.throttled(sent[5].slot, NOW + 1.5, NOW + 2)  # sent after that: another round trip
    assert limit.lowest() == 9


def test_what_a_throttled_attempt_gives_back_is_not_sent_again_at_once():
    """Ten fit in: the others would only be throttled too."""
    limit = ConcurrencyLimit(start=40)
    sent = fill(limit, 60)
    in_flight = [one for one in sent if one.found]
    assert len(in_flight) == 20
    for one in in_flight[10:]:
        limit.throttled(one.slot, NOW, NOW + 0.01)
        one.slot.free()
    assert (limit.in_flight(), limit.lowest()) == (10, 28)
    # Then one more for each good response up to half of the limit, and one for each window of them.
    flying, seen = in_flight[:10], []
    for _ in range(20):
        answer(limit, flying.pop(0), NOW + 1, NOW + 1.05)
        flying = [one for one in sent if one.slot.is_taken]
        seen.append(limit.in_flight())
    assert seen == [11, 12, 13] + [14] * 15 + [15] * 2


def test_good_responses_give_a_new_scope_the_rest_of_its_slots_too(limit):
    for one in [one for one in fill(limit, 30) if one.found][:4]:
        assert limit.in_flight() == 10
        answer(limit, one, NOW, NOW + 0.05)
    assert limit.in_flight() == 11


def grown(limit, windows, seconds=0.05, now=NOW):
    """The slots after so many windows in which all of them were used."""
    one_of_all = fill(limit, 400, now=now)
    for _ in range(windows):
        taken = [one for one in one_of_all if one.slot.is_taken]
        now += seconds
        for one in taken:
            answer(limit, one, now - seconds, now)
        one_of_all = [one for one in one_of_all if one not in taken]
    for one in one_of_all:
        one.slot.free()
    return int(limit.lowest())


def test_the_way_back_to_what_fitted_is_quick_then_slow_and_quicker_again(limit):
    """20 were in flight when one was throttled, so 19 fit. Of 14 half of the rest of the way, at
    least one; one by one beyond; then there may be far more than there were.
    """
    sent = fill(limit, 100)
    for number in range(10):
        limit.ask(sent[-1].slot, NOW + STARTING + number)
    limit.throttled(sent[0].slot, NOW + 20, NOW + 20)
    scope, slots = sent[0].slot.scope, [limit.lowest()]
    for _ in range(400):
        scope.good(NOW + 20, 0.05, inf)
        if limit.lowest() != slots[-1]:
            slots.append(limit.lowest())
    assert slots[:10] == [14, 16, 17, 18, 19, 20, 21, 23, 26, 30]


def test_a_limit_that_was_proven_to_fit_grows_after_one_window(limit):
    """15 in flight when one is throttled: 14 fit, and are as many as are left."""
    sent = fill(limit, 15)
    for number in range(5):
        limit.ask(sent[-1].slot, NOW + STARTING + number)
    limit.throttled(sent[0].slot, NOW + 10, NOW + 10)
    assert (limit.in_flight(), Woken(limit, now=NOW + 10).found) == (15, False)
    scope = sent[0].slot.scope
    for slots in [14] * 14:
        assert limit.lowest() == slots
        scope.good(NOW + 10, 0.05, inf)
    assert limit.lowest() == 15


def test_good_responses_add_slots_only_where_they_were_needed():
    limit = ConcurrencyLimit(start=10)
    for k in range(50):
        now = NOW + k
        for one in fill(limit, 5, now=now):
            answer(limit, one, now, now + 0.05)
    assert limit.lowest() == 10
    assert grown(limit, 6) > 10


def test_slots_are_needed_where_calls_are_refused_for_want_of_one_too():
    limit = ConcurrencyLimit(start=10, max_waiting=0)
    for now in range(50):
        for one in [one for one in fill(limit, 40, now=now) if one.found]:
            answer(limit, one, now, now + 0.05)
    assert limit.lowest() > 10


def test_a_server_that_becomes_slow_gets_no_more():
    limit, other = ConcurrencyLimit(start=10), ConcurrencyLimit(start=10)
    before = grown(limit, 8), grown(other, 8)
    assert before[0] == before[1]
    slow, fast = grown(limit, 8, now=NOW + 10, seconds=0.25), grown(other, 8, now=NOW + 10)
    assert before[0] <= slow < fast


def test_who_waits_for_a_server_that_answers_nothing_goes_on_in_the_end():
    """It never said that it has too many, so what piled up here would meet it when it is back."""
    for limit, more in ((ConcurrencyLimit(start=10), True), (ConcurrencyLimit(12), False)):
        before = grown(limit, 8)
        sent = fill(limit, 100, now=NOW + 10)
        limit.ask(sent[-1].slot, NOW + 10)  # they come after a pause, which is no silence
        assert limit.in_flight() == before
        limit.ask(sent[-1].slot, NOW + 10 + SILENCE - 0.01)
        assert limit.in_flight() == before
        limit.ask(sent[-1].slot, NOW + 10 + SILENCE)
        assert (limit.in_flight() > before) is more
        assert before <= limit.in_flight() <= 2 * before


def test_a_server_that_has_just_responded_is_not_silent():
    limit = ConcurrencyLimit(start=10)
    grown(limit, 8)
    sent = fill(limit, 100, now=NOW + 10)
    answer(limit, sent[0], NOW + 10, NOW + 10.15)
    before = limit.in_flight()
    limit.ask(sent[-1].slot, NOW + 10.3)
    assert limit.in_flight() == before


def test_a_time_that_lasts_is_the_usual_one():
    limit = ConcurrencyLimit(start=10)
    grown(limit, 8)
    slow = grown(limit, 8, seconds=0.25, now=NOW + 10)
    assert grown(limit, 8, seconds=0.25, now=NOW + 20) == slow
    for number in range(60):
        grown(limit, 1, seconds=0.25, now=NOW + 30 + number)
    assert grown(limit, 8, seconds=0.25, now=NOW + 100) > slow


def a_call(limits, tenant="one"):
    request = Request("GET", A, [("Authorization", tenant)])
    return Call(RetryPolicy(), request, limits, NOW, 5)


@pytest.mark.parametrize(("scope", "is_shared"), [
    ("credential", False), ("origin", True), (lambda request: "x", True)])  # fmt: skip
def test_which_tenants_share_slots(scope, is_shared):
    limits = limits_of(concurrency=ConcurrencyLimit(1, adaptive=False, scope=scope))
    assert limits.admit(a_call(limits), NOW) == 0
    assert (limits.admit(a_call(limits, "two"), NOW) != 0) is is_shared


def refused(limits, call, now):
    with pytest.raises(RetryRefused) as caught:
        limits.admit(call, now)
    assert (caught.value.reason, caught.value.send) == (Reason.CONCURRENCY_LIMIT, False)


def test_a_call_waits_for_its_slot_until_its_deadline_and_says_how_long():
    limits = limits_of(concurrency=ConcurrencyLimit(1, adaptive=False, max_waiting=2))
    first, second, third, fourth = (a_call(limits) for _ in range(4))
    second.deadline_at = third.deadline_at = NOW + 3
    assert [limits.admit(call, NOW) for call in (first, second, third)] == [0, 3, 3]
    refused(limits, fourth, NOW)  # the queue is full
    hooked = a_call(limits)
    hooked.notes[PREPARED_FOR] = ""  # what its hook sends needs slots first
    assert limits.admit(hooked, NOW) == 0
    limits.leave(first, NOW + 2)
    assert IN_QUEUE in second.notes
    assert limits.admit(second, NOW + 2) == 0
    assert second.notes[STORY] == {"waited_for_slot": 2.0}
    limits.leave(second, NOW + 3)
    refused(limits, third, NOW + 3)  # it has the slot, and nothing is sent any more


def observed(limit, failure, seconds=0.05, calls=400):
    """The slots after calls that all came at once, and all ended like this."""
    limits = limits_of(concurrency=limit)
    now, waiting = NOW, [a_call(limits) for _ in range(calls)]
    while waiting:
        sent = [call for call in waiting if limits.admit(call, now) == 0]
        for call in sent:
            call.sending(now)
        now += seconds
        for call in sent:
            limits.observe(call, failure, now)
            limits.leave(call, now)
        waiting = [call for call in waiting if call not in sent]
    return int(limit.lowest())


@pytest.mark.parametrize(("status", "grows"), [(200, True), (404, True), (500, False)])
def test_a_404_shows_that_there_was_room_and_a_500_shows_nothing(limit, status, grows):
    """Nor is it silence, after which more are sent."""
    before = observed(limit, None, calls=100)
    failure = None if status == 200 else failures.answer(status)
    assert (observed(limit, failure) > before) is grows


def test_what_a_bulkhead_lets_go_does_not_depend_on_the_server():
    limit = ConcurrencyLimit(20, adaptive=False)
    assert observed(limit, None) == 20
    assert observed(limit, failures.answer(429)) == 20
    one = Woken(limit)
    limit.throttled(one.slot, NOW, NOW)
    assert limit.lowest() == 20


def test_calls_are_measured_from_when_they_were_sent():
    limit = ConcurrencyLimit(start=10)
    before = observed(limit, None, calls=100)
    assert observed(limit, None, 0.5, calls=before) == before
    assert observed(limit, None, 0.5, calls=8 * before) < 2 * before


def test_a_quick_404_is_no_measure_of_how_long_a_response_takes(limit):
    observed(limit, None)
    before = observed(limit, failures.answer(404), 0.001)
    assert observed(limit, None) > before


def test_a_scope_that_is_not_used_is_forgotten(limit):
    one = Woken(limit)
    limit.throttled(one.slot, NOW, NOW + 0.1)
    one.slot.free()
    assert limit.lowest() == 14
    Woken(limit, B).slot.free()
    for seconds, slots in ((600.0, 14), (1_201.0, 20)):  # since it was used last
        Woken(limit, now=NOW + seconds).slot.free()
        assert limit.lowest() == slots
    bulkhead = ConcurrencyLimit(1, adaptive=False)
    Woken(bulkhead)
    assert not Woken(bulkhead, now=NOW + 601).found  # it is in use


def test_scopes_are_bounded_and_those_in_use_are_kept(bulkhead):
    Woken(bulkhead, A)
    for number in range(MOST_SCOPES + 10):
        Woken(bulkhead, f"http://{number}:80").slot.free()
    assert len(bulkhead._scopes) <= MOST_SCOPES
    assert Woken(bulkhead, A).found is False


def test_of_the_scopes_the_least_recently_used_are_forgotten(limit):
    for key, now in (("http://z:80", NOW), (A, NOW + 5)):
        one = Woken(limit, key, now)
        limit.throttled(one.slot, now, now + 0.1)
        one.slot.free()
    for number in range(MOST_SCOPES - 1):
        assert limit.lowest() == 14
        Woken(limit, f"http://m{number}:80", NOW + 1).slot.free()
    one = Woken(limit, A, NOW + 6)
    assert one.slot.scope.limit == 14


def test_a_forked_child_begins_anew(bulkhead):
    parents = Woken(bulkhead)
    bulkhead.after_fork()
    assert bulkhead.in_flight() == 0
    assert Woken(bulkhead).found
    parents.slot.free()
    assert bulkhead.in_flight() == 1


class Slots(RuleBasedStateMachine):
    """Whatever comes in any order: as many as allowed, first come, first served, and none is lost.

    A finalizer may free a slot while the lock is held.
    """

    def __init__(self):
        super().__init__()
        self.limit = ConcurrencyLimit(6, start=4, max_waiting=5)
        self.now = NOW
        self.calls = []

    @rule()
    def enter(self):
        one = Woken(self.limit, now=self.now)
        if one.found is None:
            assert self.limit.waiting() == 5
        else:
            self.calls.append(one)

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), how=st.sampled_from(["leaves", "answered", "throttled", "finalized"]))
    def end(self, data, how):
        one = self.calls.pop(data.draw(st.integers(0, len(self.calls) - 1)))
        if how == "finalized":
            with self.limit._lock:
                one.slot.free()
        elif how == "answered" and one.slot.is_taken:
            answer(self.limit, one, self.now - 0.1, self.now)
        elif how == "throttled" and one.slot.is_taken:
            self.limit.throttled(one.slot, self.now - 0.1, self.now)
        one.slot.free()

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), seconds=st.floats(0, 2))
    def ask(self, data, seconds):
        self.now += seconds
        one = data.draw(st.sampled_from(self.calls))
        if not one.slot.is_taken:
            self.limit.ask(one.slot, self.now)

    @invariant()
    def adds_up(self):
        in_flight = self.limit.in_flight()  # first: it enters what finalizers gave back
        taken = [one for one in self.calls if one.slot.is_taken]
        assert in_flight == len(taken)
        assert self.limit.waiting() == len(self.calls) - len(taken)
        assert self.limit.in_flight() <= 6
        is_taken = [one.slot.is_taken for one in self.calls]
        assert is_taken == sorted(is_taken, reverse=True)  # in the order of arrival

    def teardown(self):
        for one in self.calls:
            one.slot.free()
        assert (self.limit.in_flight(), self.limit.waiting()) == (0, 0)


TestSlots = Slots.TestCase
TestSlots.settings = settings(max_examples=40, stateful_step_count=40)
