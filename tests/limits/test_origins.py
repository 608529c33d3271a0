"""Origins: which of several servers is next, worked out by hand with three of them: a, b, c."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forbear import Origins
from forbear.addons.origins import OriginsLimit
from forbear.errors import RetryRefused

A, B, C = (f"https://{name}.example.com:443" for name in "abc")
WRITTEN = [origin.removesuffix(":443") for origin in (A, B, C)]


def nobody(origin, now):
    return 0.0


def refusing(**seconds):
    """A breaker that refuses the origins named for so many seconds."""
    return lambda origin, now: seconds.get(origin[8], 0.0)


def asked(origins, origin, refused, tried=()):
    """The limit, and a call of one origin to which others are closed."""
    limits = SimpleNamespace(closed=lambda _, origin, now: refused(origin, now))
    call = SimpleNamespace(origin=origin, is_under_way=False, limits=limits, notes={})
    limit = OriginsLimit(origins)
    call.notes[limit] = tried
    return limit, call


def first(origins, named, now, refused):
    limit, call = asked(origins, named, refused)
    try:
        delay = limit.begin(call, 0.0, now)
        return call.origin, delay
    except RetryRefused as refusal:
        return call.origin, refusal.retry_after


def next_after(origins, after, tried, refused, **times):
    limit, call = asked(origins, after, refused, tried)
    delay = limit.move(call, 0.0, **times)
    return call.origin, delay


@pytest.fixture
def origins():
    return Origins(WRITTEN)


def test_if_all_are_refused_the_soonest_is_told(origins):
    assert first(origins, A, 0.0, refusing(a=9, b=4, c=6)) == (B, 4)


def test_an_origin_that_is_not_listed_stands_for_itself(origins):
    """And notices like any other that nobody rests any more."""
    origins.rest(A, 10.0, 0.0, longest_wait=60)
    other = "https://d.example.com:443"
    assert first(origins, other, 9.9, refusing(d=5)) == (other, 0.0)
    assert not origins.quiet
    assert first(origins, other, 10.0, nobody) == (other, 0.0)
    assert origins.quiet


def test_in_turn():
    origins = Origins(WRITTEN, choose="round-robin")
    assert not origins.quiet
    assert [first(origins, A, 0.0, nobody)[0] for _ in range(5)] == [A, B, C, A, B]
    assert first(origins, A, 0.0, refusing(c=1))[0] == A  # c's turn


@pytest.mark.parametrize(("after", "tried", "refused", "expected"), [
    pytest.param(A, {A}, {}, (B, 0.0), id="the next one, at once"),
    pytest.param(C, {C}, {}, (A, 0.0), id="round the end"),
    pytest.param(B, {A, B}, {}, (C, 0.0), id="the one that is left"),
    pytest.param(C, {A, B, C}, {}, (A, 2.0), id="all tried: after the backoff"),
    pytest.param(A, {A}, {"b": 5}, (C, 0.0), id="b is refused"),
    pytest.param(A, {A}, {"b": 5, "c": 1}, (C, 1), id="both others are: the soonest"),
    pytest.param(A, {A}, {"b": 5, "c": 3}, (A, 2.0), id="the soonest is the same one again"),
])  # fmt: skip
def test_the_next_one_after_a_failure(origins, after, tried, refused, expected):
    """With nothing to wait for before a fresh origin, and 2 s before one that was tried."""
    assert next_after(origins, after, tried, refusing(**refused), fresh=0.0, again=2.0) == expected


@given(
    st.sampled_from([A, B, C]), st.sets(st.sampled_from([A, B, C])),
    st.fixed_dictionaries({name: st.floats(0, 100) for name in "abc"}),
    st.floats(0, 10), st.floats(0, 10),
)  # fmt: skip
def test_nothing_listed_would_be_free_sooner(after, tried, refused, fresh, extra):
    """Law: the delay is the least of all origins' delays, and that origin's own."""
    again = fresh + extra
    tried |= {after}
    times = {"fresh": fresh, "again": again}
    chosen, delay = next_after(Origins(WRITTEN), after, tried, refusing(**refused), **times)
    delays = {at: max(again if at in tried else fresh, refused[at[8]]) for at in (A, B, C)}
    assert delay == delays[chosen] == min(delays.values())
