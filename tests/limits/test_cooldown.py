"""Cooldown: for how long an origin is left alone, by whom, and in which order callers are let go.

Who is held when a call asks is in test_limits.py.
"""

from itertools import chain

import pytest

from forbear.addons.cooldown import MOST_KEYS, PACE, Cooldown
from forbear.limits.scopes import EVERYBODY, credential_of

from ..processes import python
from ..threads import in_threads

A, B = "http://a:80", "http://b:80"
NOW = 1_000.0


def a_cooldown(mode="all", random=0.0):
    return Cooldown(mode, lambda: random)


@pytest.fixture
def cooldown():
    return a_cooldown()


def test_the_longest_time_holds(cooldown):
    for seconds, left in [(5.0, 5.0), (2.0, 5.0), (8.0, 8.0)]:
        cooldown.begin(A, EVERYBODY, seconds, NOW)
        assert cooldown.left(A, b"one", NOW) == left
    assert cooldown.left(B, b"one", NOW) == 0.0
    assert cooldown.left(A, b"one", NOW + 8) == 0.0


def test_headers_in_octets_are_the_same_credential():
    text = credential_of([("Authorization", "Bearer x"), ("Accept", "*/*")])
    assert text == credential_of([(b"authorization", b"Bearer x")])
    assert text != credential_of([("x-api-key", "Bearer x")])
    assert credential_of([]) != EVERYBODY


def test_no_credential_is_kept_and_the_hash_is_salted(cooldown):
    found = credential_of([("Authorization", "Bearer s3cret")])
    cooldown.begin(A, found, 5.0, NOW)
    assert "s3cret" not in repr(cooldown) + str(cooldown._entries)
    code = "from forbear.limits.scopes import credential_of as found\n"
    code += "print(found([('Authorization', 'Bearer s3cret')]))"
    assert len({python(code, PYTHONHASHSEED="random") for _ in range(2)}) == 2


def test_a_lone_caller_waits_a_millisecond_more_at_most():
    cooldown = a_cooldown(random=0.999)
    cooldown.begin(A, EVERYBODY, 0.2, NOW)
    assert 0 <= cooldown.queue(A, EVERYBODY, NOW) <= PACE


def test_a_caller_queues_behind_those_of_its_own_credential_and_behind_everybody(cooldown):
    cooldown.begin(A, b"one", 5.0, NOW)
    assert [cooldown.queue(A, b"one", NOW) for _ in range(2)] == [0.0, PACE]
    cooldown.begin(A, EVERYBODY, 5.0, NOW)
    assert cooldown.queue(A, b"two", NOW) == 0.0
    assert cooldown.queue(A, b"one", NOW) == 2 * PACE


def test_threads_get_different_places(cooldown):
    cooldown.begin(A, EVERYBODY, 60.0, NOW)
    places = in_threads(8, lambda n: [cooldown.queue(A, EVERYBODY, NOW) for _ in range(100)])
    assert len(set(chain(*places))) == 800


def test_the_keys_kept_are_bounded(cooldown):
    for number in range(MOST_KEYS + 5):
        cooldown.begin(A, str(number).encode(), 5.0, NOW)
    assert repr(cooldown) == f"<Cooldown all, {MOST_KEYS} held>"
    assert cooldown.left(A, b"4", NOW) == 0.0
    assert cooldown.left(A, b"5", NOW) == 5.0
