"""Laws of the hint reader: total, bounded, blind to case and order, linear; oracles agree."""

import time
from datetime import UTC, datetime
from decimal import Decimal
from email.utils import format_datetime

import http_sf
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from forbear.core.headers.dates import parse_http_date
from forbear.core.headers.hints import Hint, read_hint

NOW = 1795176000.0
FOREVER = 2147483648

NAMES = [
    "Retry-After", "retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after",
    "grpc-retry-pushback-ms", "x-should-retry", "stripe-should-retry", "Date", "Age", "RateLimit",
    "RateLimit-Reset", "RateLimit-Remaining", "X-RateLimit-Reset-After", "X-RateLimit-Reset",
    "X-RateLimit-Remaining", "X-Rate-Limit-Reset", "X-Rate-Limit-Remaining",
    "x-ratelimit-reset-tokens", "x-ratelimit-remaining-tokens",
    "anthropic-ratelimit-input-tokens-reset", "anthropic-ratelimit-input-tokens-remaining",
]  # fmt: skip
PLAUSIBLE = [
    "0", "1", "30", "2.5", "1795176030", "1795176030000", "9" * 400, "-1", "true", "false",
    "Fri, 20 Nov 2026 12:01:00 GMT", "Friday, 20-Nov-76 12:00:00 GMT", "Fri Nov 20 12:01:00 2026",
    "Thu, 31 Dec 2026 23:59:60 GMT", "2026-11-20T12:05Z", "6m0s", '"default";r=0;t=30',
    "limit=100, remaining=0, reset=50", "",
]  # fmt: skip
FRAGMENTS = [
    *PLAUSIBLE, ",", ", ", ";", "=", '"', "(", ")", ":", "%", "@", "?", "\\", ".", " ", "\t", "T",
    "٣", "²",
]  # fmt: skip

values = st.one_of(
    st.sampled_from(PLAUSIBLE), st.lists(st.sampled_from(FRAGMENTS), max_size=8).map("".join),
    st.text(st.characters(), max_size=20),  # surrogates included
)  # fmt: skip
text_lines = st.tuples(st.sampled_from(NAMES) | st.text(max_size=8), values)
byte_lines = st.tuples(
    st.sampled_from(NAMES).map(str.encode) | st.binary(max_size=8),
    st.sampled_from(PLAUSIBLE).map(str.encode) | st.binary(max_size=20),
)
headers = st.lists(text_lines | byte_lines, max_size=8)
statuses = st.sampled_from([302, 403, 429, 500, 503]) | st.integers()
laws = settings(max_examples=100)


@given(statuses, headers, st.just(NOW) | st.floats() | st.integers())
@laws
def test_every_answer_is_read_and_every_delay_is_in_range(status, lines, now):
    hint = read_hint(status, lines, now=now)
    assert isinstance(hint, Hint)
    assert hint.delay is None or (isinstance(hint.delay, float) and 0 <= hint.delay <= FOREVER)
    assert (hint.delay is None) == (hint.source is None)
    assert hint.should_retry in {True, False, None}


@given(st.lists(st.sampled_from(PLAUSIBLE).filter(bool), min_size=1, max_size=4))
@laws
def test_several_lines_mean_what_one_joined_line_means(values):
    """RFC 9110 §5.3, and why it does not matter whether a library joins."""
    for name in NAMES:
        lines, joined = [(name, value) for value in values], [(name, ", ".join(values))]
        if name != "Date":
            assert read_hint(429, lines, now=NOW) == read_hint(429, joined, now=NOW)


# Against datetime and email.utils.
moments = st.datetimes(datetime(101, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))


@given(moments, st.integers(-49 * 365 * 86400, 49 * 365 * 86400))
@laws
def test_an_rfc850_date_within_49_years_of_the_clock_comes_back(moment, distance):
    moment = moment.replace(microsecond=0)
    day, month, year, *rest = format_datetime(moment, usegmt=True)[5:].split(" ")
    rfc850 = f"{moment:%A}, {day}-{month}-{year[2:]} {' '.join(rest)}"
    assert parse_http_date(rfc850, now=moment.timestamp() + distance) == moment.timestamp()


# RateLimit against http_sf; test_keys.py does the same for every bare item.
bare_items = st.integers(-1, 9).map(str) | st.sampled_from([
    "000", "1.5", "-0", "-0.0", "999999999999999", "1234567890123456", "1.", '"a"', r'"\"\\"', '"',
    "a", "*a/b:c", "A", "?0", "?1", "?2", ":aGk=:", ":a:", "@1795176000", "@1.5", '%"f%c3%bc"',
    '%"%ff"', "", "(1)",
])  # fmt: skip
parameters = st.lists(st.one_of(
    st.tuples(st.sampled_from([";", "; "]), st.sampled_from(["r=0", "t=5", "t=7", "r=1"])),
    st.tuples(st.sampled_from([";r=", ";t=", ";pk=", "; x="]), bare_items),
    st.sampled_from([";r", ";a", ";X=1", " ;r=0", ";r =0", ";"]),
).map("".join), max_size=4).map("".join)  # fmt: skip
good_members = st.sampled_from(
    ['"a";r=0;t=5', '"b";r=0;t=9;pk=:aGk=:', '"c";r=3;t=60', '"d";r=0', '"e";t=1;r=0;t=2']
)
items = good_members | st.tuples(st.just('"a"') | bare_items, parameters).map("".join)
inner_lists = st.lists(items, max_size=3).map(lambda inner: f"({' '.join(inner)})")
given_values = (bare_items | st.sampled_from(["0", "5"]) | inner_lists).map("={}".format)
entries = st.tuples(
    st.sampled_from(["limit", "remaining", "reset", "x"]), st.just("") | given_values,
    st.just("") | parameters,
).map("".join)  # fmt: skip
commas = st.just(", ") | st.sampled_from([",", ", ", " ,", "\t,\t", ",,", " "])
ends = st.sampled_from(["", "", ","])


def fields(members):
    more = st.lists(st.tuples(commas, members).map("".join), max_size=3).map("".join)
    return st.just("") | st.tuples(members, more, ends).map("".join)


def expected_delay(text: str, status: int) -> float | None:
    """The rules H9 Q1 and Q2 over what http_sf parses."""

    def count(value):
        return value if type(value) is int and value >= 0 else None

    def parse(kind):
        try:
            return http_sf.parse(text.strip(" \t").encode(), tltype=kind)
        except http_sf.StructuredFieldError:
            return None

    policies = parse("list")
    if policies is not None and all(
        type(name) is str and count(of.get("r")) is not None and count(of.get("t", 0)) is not None
        for name, of in policies
    ):
        waits = [of["t"] for _, of in policies if of["r"] == 0 and "t" in of]
        return min(max(waits), FOREVER) if waits else None
    quota = parse("dictionary") or {}
    reset, remaining = count(quota.get("reset", (None,))[0]), quota.get("remaining", (None,))[0]
    known = type(remaining) in {int, Decimal} and remaining >= 0
    exhausted = remaining == 0 if known else status == 429
    return min(reset, FOREVER) if reset is not None and exhausted else None


soup = st.text(alphabet='"rt=0123;, \t()a:?-.\\*%é', max_size=30)


@pytest.mark.release
@given(text=st.one_of(fields(items), fields(entries), soup), status=st.sampled_from([429, 503]))
@settings(max_examples=300)
def test_rate_limit_is_read_as_http_sf_reads_it(text, status):
    assume(text.count("reset") < 2 and text.count("remaining") < 2)  # http_sf keeps the last
    assert read_hint(status, [("RateLimit", text)], now=NOW).delay == expected_delay(text, status)


SIZE = 30_000
SHAPES = [
    *(each * SIZE for each in ("9", "0", " ", ",", "-", "T", ":", "a", "é", "\u0663", "\ud800")),
    *((each * SIZE)[:SIZE] for each in (
        "1.", "1,", "Fri, ", "Fri, 20 Nov 2026 12:01:00 GMT, ", "Fri, 20 Nov 2026 12:01:00 GMX, ",
        "Friday, 20-Nov-26 12:01:00 GMT,", "1s", "true,", '""', "a,", "a=(")),
    "0." + "9" * SIZE, "1" + " " * SIZE + "1", "\t" * SIZE + "5" + "\t" * SIZE,
    "2026-11-20T12:00:00." + "1" * SIZE + "Z", "1" + "s" * SIZE, "1" * SIZE + "s" + "1" * SIZE,
    '"a";r=0;t=5,' * (SIZE // 12) + '"a";r=0', '"a"' + ";r=0;t=5" * (SIZE // 8), '"' + "a" * SIZE,
    '"' + "\\\\" * SIZE, '"a";' + "r" * SIZE, "a=(" + "1 " * SIZE, '"a";x=:' + "a" * SIZE,
    '"a";x=:' + "=" * SIZE, '"a";x=%"' + "%c3%bc" * (SIZE // 6), '"a"' + ";" * SIZE,
]  # fmt: skip


@pytest.mark.release
def test_time_is_linear_in_the_length_of_a_value():
    """All headers at once, 30 kB each: quadratic work on one of them would take minutes."""
    for value in SHAPES:
        lines = [(name, value) for name in NAMES]
        began = time.process_time()
        for headers in (lines, *([line] for line in lines)):
            read_hint(429, headers, now=NOW)
        assert time.process_time() - began < 20.0, value[:40]


def test_time_is_linear_in_the_number_of_lines():
    for value in ["1", "x", "", "Fri", '"a";r=0;t=5']:
        began = time.process_time()
        for name in NAMES:
            read_hint(429, [(name, value)] * 2_000, now=NOW)
        assert time.process_time() - began < 20.0, value
