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
    st.sampled_from(PLAUSIBLE),
    st.lists(st.sampled_from(FRAGMENTS), max_size=8).map("".join),
    st.text(st.characters(), max_size=20),  # surrogates included
)
text_lines = st.tuples(st.one_of(st.sampled_from(NAMES), st.text(max_size=8)), values)
byte_lines = st.tuples(
    st.one_of(st.sampled_from(NAMES).map(str.encode), st.binary(max_size=8)),
    st.one_of(st.sampled_from(PLAUSIBLE).map(str.encode), st.binary(max_size=20)),
)
headers = st.lists(st.one_of(text_lines, byte_lines), max_size=8)
statuses = st.one_of(st.sampled_from([302, 403, 429, 500, 503]), st.integers())
laws = settings(max_examples=100)


@given(status=statuses, lines=headers, now=st.one_of(st.just(NOW), st.floats(), st.integers()))
@laws
def test_every_answer_is_read_and_every_delay_is_in_range(status, lines, now):
    hint = read_hint(status, lines, now=now)
    assert isinstance(hint, Hint)
    assert hint.delay is None or (isinstance(hint.delay, float) and 0 <= hint.delay <= FOREVER)
    assert (hint.delay is None) == (hint.source is None)
    assert hint.should_retry in {True, False, None}


@given(
    values=st.lists(
        st.sampled_from([value for value in PLAUSIBLE if value]), min_size=1, max_size=4
    )
)
@laws
def test_several_lines_mean_what_one_joined_line_means(values):
    """RFC 9110 §5.3, and why it does not matter whether a library joins."""
    for name in NAMES:
        if name != "Date":
            lines = [(name, value) for value in values]
            joined = [(name, ", ".join(values))]
            assert read_hint(429, lines, now=NOW) == read_hint(429, joined, now=NOW)


# --- dates, against datetime and email.utils ------------------------------------------------------

moments = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))


@given(
    moments.filter(lambda moment: moment.year > 100),
    st.integers(-49 * 365 * 86400, 49 * 365 * 86400),
)
@laws
def test_an_rfc850_date_within_49_years_of_the_clock_comes_back(moment, distance):
    moment = moment.replace(microsecond=0)
    names = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
    text = format_datetime(moment, usegmt=True)[5:]
    day, month, year, *rest = text.split(" ")
    rfc850 = f"{names[moment.weekday()]}, {day}-{month}-{year[2:]} {' '.join(rest)}"
    assert parse_http_date(rfc850, now=moment.timestamp() + distance) == moment.timestamp()


# --- RateLimit, against http_sf -------------------------------------------------------------------

bare_items = st.one_of(
    st.integers(-1, 9).map(str),
    st.sampled_from(
        ["000", "1.5", "-0", "-0.0", "999999999999999", "1234567890123456", "1.", "1.2345"]
    ),
    st.sampled_from(['"a"', r'"\"\\"', '"', "a", "*a/b:c", "A", "?0", "?1", "?2", ":aGk=:"]),
    st.sampled_from([":aGk:", "::", ":a:"]),
    st.sampled_from(["@1795176000", "@-1", "@1.5", '%"f%c3%bc"', '%"%C3%BC"', '%"%ff"', "", "(1)"]),
)
parameters = st.lists(
    st.one_of(
        st.tuples(st.sampled_from([";", "; "]), st.sampled_from(["r=0", "t=5", "t=7", "r=1"])).map(
            "".join
        ),
        st.tuples(st.sampled_from([";r=", ";t=", ";pk=", "; x="]), bare_items).map("".join),
        st.sampled_from([";r", ";a", ";X=1", " ;r=0", ";r =0", ";"]),
    ),
    max_size=4,
).map("".join)
good_members = st.sampled_from(
    ['"a";r=0;t=5', '"b";r=0;t=9;pk=:aGk=:', '"c";r=3;t=60', '"d";r=0', '"e";t=1;r=0;t=2']
)
items = st.one_of(
    good_members, st.tuples(st.one_of(st.just('"a"'), bare_items), parameters).map("".join)
)
commas = st.sampled_from([",", ", ", " ,", "\t,\t", ",,", " "])
inner_lists = st.lists(items, max_size=3).map(lambda inner: f"({' '.join(inner)})")
entries = st.tuples(
    st.sampled_from(["limit", "remaining", "reset", "x"]),
    st.one_of(
        st.just(""),
        bare_items.map("={}".format),
        st.sampled_from(["=0", "=5"]),
        inner_lists.map("={}".format),
    ),
    st.one_of(st.just(""), parameters),
).map("".join)


@st.composite
def fields(draw, members):
    made = draw(st.lists(members, max_size=4))
    return "".join(
        member
        + (
            draw(st.one_of(st.just(", "), commas))
            if index < len(made) - 1
            else draw(st.sampled_from(["", "", ","]))
        )
        for index, member in enumerate(made)
    )


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
        type(name) is str
        and count(given.get("r")) is not None
        and ("t" not in given or count(given["t"]) is not None)
        for name, given in policies
    ):
        waits = [given["t"] for _, given in policies if given["r"] == 0 and "t" in given]
        return min(max(waits), FOREVER) if waits else None
    quota = parse("dictionary") or {}
    reset = count(quota.get("reset", (None,))[0])
    remaining = quota.get("remaining", (None,))[0]
    known = (
        type(remaining) not in {bool, str}
        and isinstance(remaining, (int, Decimal))
        and remaining >= 0
    )
    exhausted = remaining == 0 if known else status == 429
    return min(reset, FOREVER) if reset is not None and exhausted else None


soup = st.text(alphabet='"rt=0123;, \t()a:?-.\\*%é', max_size=30)


@pytest.mark.release
@given(text=st.one_of(fields(items), fields(entries), soup), status=st.sampled_from([429, 503]))
@settings(max_examples=300)
def test_rate_limit_is_read_as_http_sf_reads_it(text, status):
    assume(text.count("reset") < 2 and text.count("remaining") < 2)  # http_sf keeps the last
    assert read_hint(status, [("RateLimit", text)], now=NOW).delay == expected_delay(text, status)


# --- time -----------------------------------------------------------------------------------------

SIZE = 30_000
SHAPES = {
    "digits": "9" * SIZE, "zeros": "0" * SIZE, "fraction": "0." + "9" * SIZE,
    "points": "1." * (SIZE // 2), "spaces": " " * SIZE, "spaces inside": "1" + " " * SIZE + "1",
    "tabs around": "\t" * (SIZE // 2) + "5" + "\t" * (SIZE // 2), "commas": "," * SIZE,
    "numbers": "1," * (SIZE // 2), "day names": "Fri, " * (SIZE // 5),
    "dates": "Fri, 20 Nov 2026 12:01:00 GMT, " * (SIZE // 31),
    "nearly dates": "Fri, 20 Nov 2026 12:01:00 GMX, " * (SIZE // 31),
    "rfc850 dates": "Friday, 20-Nov-26 12:01:00 GMT," * (SIZE // 31),
    "timestamp": "2026-11-20T12:00:00." + "1" * SIZE + "Z", "hyphens": "-" * SIZE, "Ts": "T" * SIZE,
    "colons": ":" * SIZE, "duration": "1s" * (SIZE // 2), "long units": "1" + "s" * SIZE,
    "long amounts": "1" * (SIZE // 2) + "s" + "1" * (SIZE // 2), "words": "true," * (SIZE // 5),
    "members": '"a";r=0;t=5,' * (SIZE // 12) + '"a";r=0',
    "parameters": '"a"' + ";r=0;t=5" * (SIZE // 8), "open string": '"' + "a" * SIZE,
    "many strings": '""' * (SIZE // 2), "escapes": '"' + "\\\\" * (SIZE // 2),
    "long key": '"a";' + "r" * SIZE, "long token": "a" * SIZE, "keys": "a," * (SIZE // 2) + "a",
    "inner list": "a=(" + "1 " * (SIZE // 2), "open lists": "a=(" * (SIZE // 3),
    "bytes": '"a";x=:' + "a" * SIZE, "padding": '"a";x=:' + "=" * SIZE,
    "shown": '"a";x=%"' + "%c3%bc" * (SIZE // 6), "semicolons": '"a"' + ";" * SIZE,
    "wide": "é" * SIZE, "wider": "\N{ARABIC-INDIC DIGIT THREE}" * SIZE,
    "surrogates": "\ud800" * SIZE,
}  # fmt: skip


@pytest.mark.release
def test_time_is_linear_in_the_length_of_a_value():
    """All headers at once, 30 kB each: quadratic work on one of them would take minutes."""
    for shape, value in SHAPES.items():
        lines = [(name, value) for name in NAMES]
        began = time.process_time()
        for headers in (lines, *([line] for line in lines)):
            read_hint(429, headers, now=NOW)
        assert time.process_time() - began < 20.0, shape


def test_time_is_linear_in_the_number_of_lines():
    for value in ["1", "x", "", "Fri", '"a";r=0;t=5']:
        began = time.process_time()
        for name in NAMES:
            read_hint(429, [(name, value)] * 2_000, now=NOW)
        assert time.process_time() - began < 20.0, value
