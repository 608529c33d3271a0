"""Cooldown: for how long an origin is left alone, and by whom.

Who is held when a call asks is in test_limits.py.
"""

import pytest

from forbear.addons.cooldown import MOST_KEYS, Cooldown
from forbear.limits.scopes import EVERYBODY, credential_of

from ..processes import python

A, B = "http://a:80", "http://b:80"
NOW = 1_000.0


@pytest.fixture
def cooldown():
    return Cooldown("all")


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
    assert "s3cret" not in repr(cooldown) + str(cooldown._until)
    code = "from forbear.limits.scopes import credential_of as found\n"
    code += "print(found([('Authorization', 'Bearer s3cret')]))"
    assert len({python(code, PYTHONHASHSEED="random") for _ in range(2)}) == 2


def test_the_keys_kept_are_bounded(cooldown):
    for number in range(MOST_KEYS + 5):
        cooldown.begin(A, str(number).encode(), 5.0, NOW)
    assert repr(cooldown) == f"<Cooldown all, {MOST_KEYS} held>"
    assert cooldown.left(A, b"4", NOW) == 0.0
    assert cooldown.left(A, b"5", NOW) == 5.0
