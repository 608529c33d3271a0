"""Laws of what is read from a request: nothing raises, or asks for more than it may."""

from math import isnan

from hypothesis import given
from hypothesis import strategies as st

from forbear.engine.incoming import TIMEOUTS, seconds_for
from forbear.engine.outer import COUNTERS, outer_loop, retries_above

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
