"""Origins: which of several servers is next. Worked out by hand on paper with three of them: a, b,
c.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forbear import Origins

A, B, C = (f"https://{name}.example.com:443" for name in "abc")
WRITTEN = [origin.removesuffix(":443") for origin in (A, B, C)]


def nobody(origin, now):
    return 0.0


def refusing(**seconds):
    """A breaker that refuses the origins named for so many seconds."""
    return lambda origin, now: seconds.get(origin[8], 0.0)


@pytest.fixture
def origins():
    return Origins(WRITTEN)


def test_origins_are_kept_in_the_one_form_that_is_compared():
    listed = Origins(["HTTPS://A.example.com", "http://b.example.com:8080"]).listed
    assert listed == ("https://a.example.com:443", "http://b.example.com:8080")


def test_a_call_begins_at_the_origin_it_names(origins):
    assert origins.first(B, 0.0, nobody) == (B, 0.0)
    assert origins.quiet


def test_while_that_is_refused_at_the_first_one_listed_that_is_not(origins):
    assert origins.first(B, 0.0, refusing(b=5)) == (A, 0.0)
    assert origins.first(B, 0.0, refusing(a=2, b=5)) == (C, 0.0)


def test_if_all_are_refused_the_soonest_is_told(origins):
    assert origins.first(A, 0.0, refusing(a=9, b=4, c=6)) == (B, 4)


def test_an_origin_that_rests_is_passed_over_while_another_is_free(origins):
    origins.rest(A, 10.0, 0.0, longest_wait=60)
    assert not origins.quiet
    assert origins.first(A, 9.9, nobody) == (B, 0.0)
    assert origins.first(A, 9.9, refusing(b=1, c=1)) == (A, 0.0)
    assert origins.first(A, 10.0, nobody) == (A, 0.0)
    assert origins.quiet


def test_a_year_is_an_hour_to_the_calls_to_come(origins):
    """And longer than any call waits, to those that are on their way."""
    origins.rest(A, 31_536_000, 0.0, longest_wait=60)
    assert origins.next(B, (A, B), 0.0, refusing(c=9e9), fresh=0, again=1) == (B, 1)
    assert origins.next(B, (A, B), 0.0, refusing(b=9e9, c=9e9), fresh=0, again=1) == (A, 3660)
    assert origins.first(A, 3659.9, nobody) == (B, 0.0)
    assert origins.first(A, 3660.0, nobody) == (A, 0.0)


def test_an_origin_that_is_not_listed_stands_for_itself(origins):
    """And notices like any other that nobody rests any more."""
    origins.rest(A, 10.0, 0.0, longest_wait=60)
    assert origins.first("https://d.example.com:443", 9.9, refusing(d=5)) == (
        "https://d.example.com:443",
        0.0,
    )
    assert not origins.quiet
    assert origins.first("https://d.example.com:443", 10.0, nobody) == (
        "https://d.example.com:443",
        0.0,
    )
    assert origins.quiet


def test_in_turn():
    origins = Origins(WRITTEN, choose="round-robin")
    assert not origins.quiet
    assert [origins.first(A, 0.0, nobody)[0] for _ in range(5)] == [A, B, C, A, B]
    assert origins.first(A, 0.0, refusing(c=1))[0] == A  # c's turn


@pytest.mark.parametrize(
    ("after", "tried", "refused", "expected"),
    [
        pytest.param(A, {A}, {}, (B, 0.0), id="the next one, at once"),
        pytest.param(C, {C}, {}, (A, 0.0), id="round the end"),
        pytest.param(B, {A, B}, {}, (C, 0.0), id="the one that is left"),
        pytest.param(C, {A, B, C}, {}, (A, 2.0), id="all tried: after the backoff"),
        pytest.param(A, {A}, {"b": 5}, (C, 0.0), id="b is refused"),
        pytest.param(A, {A}, {"b": 5, "c": 1}, (C, 1), id="both others are: the soonest"),
        pytest.param(A, {A}, {"b": 5, "c": 3}, (A, 2.0), id="the soonest is the same one again"),
    ],
)
def test_the_next_one_after_a_failure(origins, after, tried, refused, expected):
    """With nothing to wait for before a fresh origin, and 2 s before one that was tried."""
    assert origins.next(after, tried, 0.0, refusing(**refused), fresh=0.0, again=2.0) == expected


def test_an_origin_that_asked_to_be_left_alone_is(origins):
    """a for 30 s from 0, b for 4 s: at 1 the others are c, at once, then b, after 3 s."""
    origins.rest(A, 30.0, 0.0, longest_wait=60)
    origins.rest(B, 4.0, 0.0, longest_wait=60)
    assert origins.next(A, {A}, 1.0, nobody, fresh=0.5, again=0.5) == (C, 0.5)
    assert origins.next(A, {A}, 1.0, refusing(c=20), fresh=0.5, again=0.5) == (B, 3.0)


def test_the_longer_wish_counts(origins):
    origins.rest(A, 30.0, 0.0, longest_wait=60)
    origins.rest(A, 5.0, 0.0, longest_wait=60)
    assert origins.first(A, 6.0, nobody) == (B, 0.0)


@given(
    st.sampled_from([A, B, C]),
    st.sets(st.sampled_from([A, B, C])),
    st.fixed_dictionaries({name: st.floats(0, 100) for name in "abc"}),
    st.floats(0, 10),
    st.floats(0, 10),
)
def test_nothing_listed_would_be_free_sooner(after, tried, refused, fresh, extra):
    """Law: the delay is the least of all origins' delays, and that origin's own."""
    origins = Origins(WRITTEN)
    again = fresh + extra
    tried |= {after}
    chosen, delay = origins.next(after, tried, 0.0, refusing(**refused), fresh=fresh, again=again)
    delays = {
        origin: max(again if origin in tried else fresh, refused[origin[8]]) for origin in (A, B, C)
    }
    assert delay == delays[chosen] == min(delays.values())
