"""Laws of what is read from a request: nothing that anybody can send raises, or asks for more than
it may.
"""

from math import inf, isnan

from hypothesis import given
from hypothesis import strategies as st

from forbear.core.headers.nesting import (
    COUNTERS,
    TIMEOUTS,
    outer_loop,
    retries_above,
    seconds_for,
    shrunk,
)

NAMES = st.sampled_from([*COUNTERS, *TIMEOUTS]) | st.text(max_size=30)
VALUES = st.text() | st.from_regex(r"\A[ \t]*(attempt=)?[0-9]{1,20}[HMSmun]?[;, \t]*\Z")
TEXT = st.lists(st.tuples(NAMES, VALUES), max_size=5)
OCTETS = st.lists(
    st.tuples(NAMES.map(lambda name: name.encode()) | st.binary(max_size=30), st.binary()),
    max_size=5,
)


@given(TEXT | OCTETS)
def test_readers_are_total(lines):
    assert 0 <= retries_above(lines) < 10**9
    seconds = seconds_for(lines)
    assert seconds > 0
    assert not isnan(seconds)
    assert outer_loop(lines) is None or retries_above(lines) > 0


@given(st.integers(1, 99_999_999), st.sampled_from("HMSmun"))
def test_what_grpc_may_write_is_read(number, unit):
    seconds = {"H": 3600, "M": 60, "S": 1, "m": 1e-3, "u": 1e-6, "n": 1e-9}[unit]
    assert abs(seconds_for([("grpc-timeout", f"{number}{unit}")]) / (number * seconds) - 1) < 1e-9


@given(
    st.floats(min_value=1e-9, max_value=1e12) | st.just(inf), st.floats(min_value=0, max_value=1e6)
)
def test_a_margin_leaves_something_and_adds_nothing(seconds, margin):
    assert seconds / 2 <= shrunk(seconds, margin) <= seconds


@given(st.integers(1, 10**9 - 1))
def test_counts_are_told_apart(number):
    """The three ways to count, over their whole range."""
    assert retries_above([("x-envoy-attempt-count", str(number))]) == number - 1
    assert retries_above([("amz-sdk-request", f"attempt={number}; max=3")]) == number - 1
    assert retries_above([("x-stainless-retry-count", str(number))]) == number
    assert retries_above([("grpc-previous-rpc-attempts", str(number))]) == number
    assert retries_above([("retry-attempt", str(number))]) == max(1, number - 1)
