"""Shared state under interruption: a KeyboardInterrupt at any line leaves it usable.

Each test begins anew for each line of its inner block, which is interrupted there.
"""

import pytest

from forbear import ConcurrencyLimit, Origins, Pacing, RetryGate
from forbear.addons.concurrency import Slot
from forbear.addons.cooldown import Cooldown
from forbear.addons.pacing import Turn
from forbear.core.headers.quota import Quota
from forbear.limits.health import TOKENS

from ..injection import every_line, watched

A, B = "http://a:80", "http://b:80"
NOW = 1_000.0
LATER = NOW + 10_000  # when whatever was begun has expired


@pytest.fixture(autouse=True)
def lines_are_watched():
    with watched():
        yield


def is_free(shared):
    return bool(shared._lock.acquire(blocking=False)) and shared._lock.release() is None


def test_a_gate_knows_who_is_awake(monkeypatch):
    """Interrupted while it remembers an origin, forgets the oldest or fades."""
    monkeypatch.setattr("forbear.limits.gate.MOST_ORIGINS", 4)
    for line in every_line("limits/gate.py", 50):
        gate, place = RetryGate(), None
        for number in range(4):
            gate.bad(f"http://{number}:80", NOW, NOW, 1.0)
        with line:
            gate.bad(A, NOW, NOW, 1.0)
            gate.bad(A, NOW + 1, NOW + 1, 3.0, NOW, is_timeout=True)
            place = gate.hold(A, NOW + 1, ready_at=NOW + 1, until=NOW + 11)
            gate.good(A, NOW + 2, retry=True)
            gate.turn(place, NOW + 20, lambda: 0.0)
            gate.drop(place)
            gate.begin(A, NOW + 700)  # those that have not failed for ten minutes fade
        assert is_free(gate)
        if place is not None:
            gate.drop(place)
        assert gate.held() == 0
        assert len(gate._origins) <= 4
        for origin, health in gate._awake.items():
            assert gate._origins[origin] is health
        assert not gate.quiet or all(one.tokens >= TOKENS for one in gate._origins.values())
        gate.bad(B, LATER, LATER, 3.0)
        assert not gate.is_healthy(B)
        assert gate.unhealthy() == 1
        for _ in range(20):  # in a row: nothing is wrong any more
            gate.good(B, LATER, retry=False)
        assert gate.quiet


@pytest.mark.slow
def test_a_gate_counts_whom_it_holds():
    """Interrupted while it holds calls, lets them go, drops them or takes them back."""
    for line in every_line("limits", 50):
        gate, places = RetryGate(), []
        with line:
            for origin in ("http://0:80", "http://1:80"):
                for _ in range(3):
                    gate.bad(origin, NOW, sent_at=NOW, weight=1.0)
                for _ in range(3):
                    places.append(gate.hold(origin, NOW, ready_at=NOW, until=NOW + 10))
                gate.begin(origin, NOW)
                for _ in range(8):
                    gate.good(origin, NOW, retry=False)
                for place in places[-3:]:
                    gate.turn(place, NOW + 1, lambda: 0.0)
                gate.hold_again(places[-3])
                for place in places[-3:]:
                    gate.drop(place)
        for place in places:
            gate.drop(place)
        # A call that was interrupted while it took its place is forgotten when its patience ends.
        for origin in list(gate._origins):
            last = gate.hold(origin, LATER, ready_at=LATER, until=LATER + 10)
            if last is not None:
                gate.turn(last, LATER, lambda: 0.0)
                gate.drop(last)
        assert gate.held() == 0
        for origin in list(gate._origins):
            for _ in range(8):
                gate.good(origin, LATER, retry=False)
        gate.begin(A, 2 * LATER)
        assert gate.quiet
        assert repr(gate) == "<RetryGate healthy>"


def test_no_slot_is_lost_or_given_twice():
    """Interrupted while slots are taken, waited for, lost to a throttle, given back or granted."""
    for line in every_line("addons/concurrency.py", 80):
        limit, slots = ConcurrencyLimit(4, start=4), []
        with line:
            for _ in range(6):
                slots.append(Slot(limit, A, NOW))  # as a call's notes have it before it is taken
                limit.enter(slots[-1], A, NOW)
            limit.ask(slots[-1], NOW + 1)
            limit.throttled(slots[0], NOW, NOW + 1)
            for slot in slots[:3]:
                slot.free()
            limit.enter(Slot(limit, B, NOW), B, NOW)
        assert is_free(limit)
        for slot in slots:
            slot.free()
        scope = limit._scopes.get(A)
        assert scope is None or not (scope.taken or scope.waiting)
        assert limit.enter(Slot(limit, A, LATER), A, LATER)


def test_nobody_is_paced_for_ever():
    """Interrupted while quotas are learned, calls wait, go and end."""
    for line in every_line("addons/pacing.py", 50):
        pacing, turns = Pacing(), []
        with line:
            pacing.learn(A, [Quota("requests", 2, 10, 100, 10)], NOW, NOW)
            for number in range(4):
                turns.append(Turn(NOW + number))
                pacing.turn(turns[-1], A, 60.0, NOW + number)
            pacing.end(turns[0])
            pacing.learn(A, [Quota("requests", 0, 5, 100, 10)], NOW + 4, NOW + 5)
        assert is_free(pacing)
        for turn in turns:
            pacing.end(turn)
        assert pacing.waiting() == 0
        assert pacing.turn(Turn(LATER), A, 60.0, LATER) == 0


def test_a_cooldown_goes_on_holding_and_ends():
    for line in every_line("addons", 15):
        cooldown = Cooldown("all")
        cooldown.begin(A, b"", 5, NOW)
        with line:
            cooldown.begin(A, b"", 8, NOW)
            cooldown.left(A, b"", NOW)
            cooldown.begin(B, b"", 5, NOW)
        assert 5 <= cooldown.left(A, b"", NOW) <= 8
        assert cooldown.left(A, b"", LATER) == 0
        assert cooldown.is_idle
        cooldown.begin(A, b"", 5, LATER)
        assert cooldown.left(A, b"", LATER) == 5


def test_origins_rest_and_wake():
    for line in every_line("addons", 10):
        origins = Origins([A, B])
        with line:
            origins.rest(A, 5, NOW, longest_wait=60)
            origins.resting(NOW)
        origins.rest(A, 5, LATER, longest_wait=60)
        assert origins.resting(LATER) == {A: LATER + 5}
        assert origins.resting(LATER + 10) == {}
        assert origins.quiet
