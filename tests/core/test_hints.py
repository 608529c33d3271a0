"""What a server's headers say about when and whether to try again: the corpus, then every clause it
leaves open.

Expected numbers are worked out from the rule or source that is named beside them. ``NOW`` is
2026-11-20T12:00:00Z, a Friday; 1795176000 in Unix seconds.
"""

import json
from datetime import datetime
from pathlib import Path

import pytest

from forbear.core.headers import quota
from forbear.core.headers.dates import parse_http_date
from forbear.core.headers.hints import (
    QUOTA_FIELDS,
    READ_BYTES,
    READ_TEXT,
    Hint,
    read_hint,
)  # fmt: skip
from forbear.core.outcome import NO_HINT

CASES = json.loads((Path(__file__).parents[1] / "corpus" / "server_hints.json").read_text("utf-8"))[
    "cases"
]
NOW = 1795176000.0
FOREVER = 2147483648


def expect(hint: Hint, delay: float | None, should_retry: bool | None) -> None:
    assert hint.should_retry is should_retry
    if delay is None:
        assert hint.delay is None
        assert hint.source is None
    else:
        assert hint.delay == pytest.approx(delay, abs=0.001, rel=0)
        assert isinstance(hint.source, str)


def delay_of(status: int, *lines: tuple[str, str], now: float = NOW) -> float | None:
    return read_hint(status, lines, now=now).delay


def close(seconds: float | None) -> object:
    return None if seconds is None else pytest.approx(seconds, abs=0.001, rel=0)


# --- the corpus -----------------------------------------------------------------------------------


def as_octets(case) -> list[tuple[bytes, bytes]]:
    """RawBytes as they arrive: latin-1, unless a character has none there; then UTF-8 (rule H0)."""
    values = "".join(value for _, value in case["headers"])
    encoding = "latin-1" if all(character <= "\xff" for character in values) else "utf-8"
    return [(name.encode("ascii"), value.encode(encoding)) for name, value in case["headers"]]


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_corpus(case):
    """As text and as bytes."""
    now, expected = datetime.fromisoformat(case["now"]).timestamp(), case["expect"]
    for lines in ([*map(tuple, case["headers"])], as_octets(case)):
        hint = read_hint(case["status"], lines, now=now)
        expect(hint, expected["delay_s"], expected["should_retry"])


def test_a_failing_comparison_is_seen():
    with pytest.raises(AssertionError):
        expect(Hint(1.0, None, "retry-after"), 1.002, None)
    with pytest.raises(AssertionError):
        expect(Hint(None, True, None), None, None)


# --- what comes in: H0, H1 ------------------------------------------------------------------------

EVERYTHING = [
    ("Retry-After", "7"),
    ("retry-after-ms", "3000"),
    ("x-should-retry", "false"),
    ("RateLimit", '"default";r=0;t=9'),
]


def test_the_status_decides_what_is_read():
    cases = [
        (100, NO_HINT), (299, NO_HINT), (300, Hint(7.0, None, "retry-after")),
        (399, Hint(7.0, None, "retry-after")), (400, Hint(3.0, False, "retry-after-ms")),
        (599, Hint(3.0, False, "retry-after-ms")), (999, Hint(3.0, False, "retry-after-ms")),
        (0, NO_HINT), (-503, NO_HINT),
    ]  # fmt: skip
    for status, expected in cases:
        assert read_hint(status, EVERYTHING, now=NOW) == expected


def test_lines_may_be_an_iterator_and_mix_text_with_octets():
    lines = iter(
        [
            ("Retry-After", "Fri, 20 Nov 2026 12:02:00 GMT"),
            (b"Date", b"Fri, 20 Nov 2026 12:01:00 GMT"),
        ]
    )
    assert read_hint(503, lines, now=0.0) == Hint(60.0, None, "retry-after")


# --- one scan for a decision ----------------------------------------------------------------------


def test_an_answer_without_a_name_that_is_read_need_not_be_read():
    assert {name.decode() for name in READ_BYTES} == READ_TEXT
    assert {name.lower() for name, _, _ in IN_ORDER} < READ_TEXT
    gates = {"x-should-retry", "stripe-should-retry", "idempotent-replayed", "ratelimit-remaining"}
    assert gates < READ_TEXT
    # Written once more in hints.py, so that quota.py is loaded by the first that is met.
    quotas = [(reset.name, *reset.remaining) for family in quota._FAMILIES for reset in family]
    assert {"ratelimit"}.union(*quotas) == QUOTA_FIELDS < READ_TEXT
    assert READ_TEXT.isdisjoint({"date", "age", "content-type", "content-length", "server"})


# --- sources in order: H2 -------------------------------------------------------------------------

IN_ORDER = [
    ("Retry-After-Ms", "1000", 1.0), ("X-Ms-Retry-After-Ms", "2000", 2.0),
    ("X-Amz-Retry-After", "3000", 3.0), ("Grpc-Retry-Pushback-Ms", "4000", 4.0),
    ("Retry-After", "5", 5.0), ("RateLimit", '"a";r=0;t=6', 6.0), ("RateLimit-Reset", "7", 7.0),
    ("X-RateLimit-Reset-After", "8", 8.0), ("X-RateLimit-Reset", "9", 9.0),
    ("X-Rate-Limit-Reset", "10", 10.0), ("x-ratelimit-reset-requests", "11", 11.0),
    ("anthropic-ratelimit-tokens-reset", "2026-11-20T12:00:12Z", 12.0),
]  # fmt: skip


# --- HTTP-dates: H5 -------------------------------------------------------------------------------


def test_http_dates():
    cases = [
        # the grammar of RFC 9110 §5.6.7; the distance to NOW is in the value
        ("Fri Nov 20 12:00:05 2026", 5), ("Sat Dec 05 12:00:00 2026", 15 * 86400),
        ("Sat Dec 5 12:00:00 2026", None), ("Sat Dec  05 12:00:00 2026", None),
        ("Sat Dec  0 12:00:00 2026", None), ("Fri Nov 20 12:00:05 2026 GMT", None),
        ("Fri, Nov 20 12:00:05 2026", None), ("Friday, 20-Nov-26 12:00:05 UTC", None),
        ("Friday, 20-Nov-26 12:00:05 +0000", None), ("Friday, 20-Nov-2026 12:00:05 GMT", None),
        ("Fri, 20-Nov-26 12:00:05 GMT", None), ("Friday, 20 Nov 2026 12:00:05 GMT", None),
        ("Monday, 20-Nov-26 12:00:05 GMT", 5), ("WEDNESDAY, 20-NOV-26 12:00:05 gmt", 5),
        ("Mon Nov 20 12:00:05 2026", 5), ("fRI nOV 20 12:00:05 2026", 5),
        ("Xyz, 20 Nov 2026 12:00:05 GMT", None), ("20 Nov 2026 12:00:05 GMT", None),
        ("Fri, 20 Nov 2026 12:00:05", None), ("Fri, 20 Nov 2026 12:00:05 utc", 5),
        ("Fri, 20 Nov 2026 12:00:05 Z", None), ("Fri, 20 Nov 2026 12:00:05 EST", None),
        ("Fri, 20 Nov 2026 12:00:05 UT", None), ("Fri, 20 Nov 2026 13:30:05 +0130", 5),
        ("Fri, 20 Nov 2026 12:00:05 -0000", 5), ("Thu, 19 Nov 2026 12:01:05 -2359", 5),
        ("Fri, 20 Nov 2026 12:00:05 +2400", None), ("Fri, 20 Nov 2026 12:00:05 +0060", None),
        ("Fri, 20 Nov 2026 12:00:05 +01:00", None), ("Fri, 20 Nov 2026 12:00:05 +000", None),
        ("Fri, 20 Nov 2026 12:00:05 0000", None), ("Fri, 20 Nov 2026 12:00:05 GMT+1", None),
        ("Fri, 20 Nov 2026 12:00:05 GMT x", None), ("Fri, 20 Nov 2026 12:00:05.5 GMT", None),
        ("Fri, 20 Nov 2026 12:00:05\tGMT", None), ("Fri, 20 Nov 2026  12:00:05 GMT", None),
        ("Fri,  20 Nov 2026 12:00:05 GMT", None), ("Fri,20 Nov 2026 12:00:05 GMT", None),
        ("Fri , 20 Nov 2026 12:00:05 GMT", None), ("Fri, 20 Nov 26 12:00:05 GMT", None),
        ("Fri, 20 Nov 12026 12:00:05 GMT", None), ("Fri, 1 Jan 2027 12:00:05 GMT", None),
        ("Fri, 20 November 2026 12:00:05 GMT", None), ("Fri, 20 Nov 2026 12:00 GMT", None),
        ("Fri, 20 Nov 2026 1:00:05 GMT", None), ("Fri, 20 Nov 2026 12-00-05 GMT", None),
        ("Fri, 00 Nov 2026 12:00:05 GMT", None), ("Fri, 31 Nov 2026 12:00:05 GMT", None),
        ("Fri, 32 Dec 2026 12:00:05 GMT", None), ("Fri, 20 Nov 2026 12:60:05 GMT", None),
        ("Fri, 20 Nov 2026 24:00:00 GMT", None), ("Friday, 29-Feb-27 12:00:05 GMT", None),
        ("Fri Feb 30 12:00:05 2026", None), ("Fri, 20 Nov 2026 12:00:60 GMT", 60),
        ("Fri Nov 20 12:00:60 2026", 60), ("Mon, 01 Mar 2100 00:00:00 GMT", FOREVER),
        ("Mon, 29 Feb 2100 00:00:00 GMT", None), ("Tue, 29 Feb 2000 00:00:00 GMT", 0),
        ("Sat, 01 Jan 0000 00:00:00 GMT", 0), ("Fri, ２０ Nov 2026 12:00:05 GMT", None),
        ("Fri, 20 Nov 2026 12:00:0² GMT", None), ("Fri, 20 Nov 2026 12:00:+5 GMT", None),
        ("Fri, 20 Nov 2026 12:00: 5 GMT", None), ("2026-11-20T12:00:05Z", None),
        ("1795176005", 1795176005),
    ]  # fmt: skip
    for value, delay in cases:
        assert delay_of(503, ("Retry-After", value)) == close(delay)


def test_a_two_digit_year_is_the_last_that_is_not_over_fifty_years_ahead():
    cases = [
        # RFC 9110 §5.6.7: more than 50 years ahead is the past; 50 years to the second are not
        # more.
        ("Friday, 20-Nov-76 12:00:00 GMT", "2026-11-20T12:00:00", "2076-11-20T12:00:00"),
        ("Friday, 20-Nov-76 12:00:01 GMT", "2026-11-20T12:00:00", "1976-11-20T12:00:01"),
        ("Friday, 20-Nov-76 12:00:01 GMT", "2026-11-20T12:00:00.999", "1976-11-20T12:00:01"),
        ("Friday, 20-Nov-76 12:00:00 GMT", "2026-11-20T12:00:00.001", "2076-11-20T12:00:00"),
        ("Friday, 19-Nov-76 23:59:59 GMT", "2026-11-20T12:00:00", "2076-11-19T23:59:59"),
        ("Friday, 21-Nov-76 00:00:00 GMT", "2026-11-20T12:00:00", "1976-11-21T00:00:00"),
        ("Friday, 01-Dec-76 00:00:00 GMT", "2026-11-20T12:00:00", "1976-12-01T00:00:00"),
        ("Friday, 31-Oct-76 23:59:59 GMT", "2026-11-20T12:00:00", "2076-10-31T23:59:59"),
        ("Friday, 01-Jan-27 00:00:00 GMT", "2026-11-20T12:00:00", "2027-01-01T00:00:00"),
        ("Friday, 01-Jan-00 00:00:00 GMT", "2026-11-20T12:00:00", "2000-01-01T00:00:00"),
        ("Friday, 31-Dec-99 23:59:59 GMT", "2026-11-20T12:00:00", "1999-12-31T23:59:59"),
        ("Friday, 01-Jan-00 00:00:00 GMT", "2060-01-01T00:00:00", "2100-01-01T00:00:00"),
        ("Sunday, 06-Nov-94 08:49:37 GMT", "1994-11-06T08:49:37", "1994-11-06T08:49:37"),
        # 50 years after 29 February falls between 28 February and 1 March of a common year, and
        # back again.
        ("Friday, 28-Feb-78 23:59:59 GMT", "2028-02-29T12:00:00", "2078-02-28T23:59:59"),
        ("Friday, 01-Mar-78 00:00:00 GMT", "2028-02-29T12:00:00", "1978-03-01T00:00:00"),
        ("Friday, 29-Feb-76 23:59:59 GMT", "2026-03-01T00:00:00", "2076-02-29T23:59:59"),
        ("Friday, 29-Feb-76 00:00:00 GMT", "2026-02-28T23:59:59", "1976-02-29T00:00:00"),
        # Second 60 is the first of the next minute, also when it is compared.
        ("Friday, 20-Nov-76 11:59:60 GMT", "2026-11-20T12:00:00", "2076-11-20T12:00:00"),
        ("Friday, 20-Nov-76 12:00:60 GMT", "2026-11-20T12:00:59", "1976-11-20T12:01:00"),
    ]  # fmt: skip
    for value, now, expected in cases:
        instant = parse_http_date(value, now=datetime.fromisoformat(f"{now}Z").timestamp())
        assert instant == datetime.fromisoformat(f"{expected}Z").timestamp()


def test_a_two_digit_year_is_near_the_servers_clock_and_its_own_near_ours():
    lines = [
        ("Date", "Friday, 20-Nov-26 12:00:00 GMT"),
        ("Retry-After", "Friday, 20-Nov-26 12:00:09 GMT"),
    ]
    assert delay_of(503, *lines, now=NOW + 40 * 365 * 86400) == 9
    # In 1960 the year 26 is 1926, and so is the other one, which is near the Date.
    assert delay_of(503, *lines, now=-315619200.0) == 9


# --- the reference clock: H6 ----------------------------------------------------------------------

DATE = ("Date", "Fri, 20 Nov 2026 12:00:00 GMT")


# --- several values: H7 ---------------------------------------------------------------------------


def test_the_longest_of_several_retry_afters():
    cases = [
        (["1, 2", "x, 9", "3"], 9), (["-5, 4"], 4), (["", "8", ""], 8), ([",,,"], None),
        (["5", "Fri, 20 Nov 2026 12:00:04 GMT"], 5), (["5,Fri, 20 Nov 2026 12:00:09 GMT,7"], 9),
        (["Fri, 20 Nov 2026 12:00:04 GMT, Friday, 20-Nov-26 12:00:08 GMT, Fri Nov 20 12:00:06 2026" ], 8),
        (["Fri, 20 Nov 2026 12:00:04 GMT,Fri, 20 Nov 2026 12:00:09 GMT"], 9),
        (["Fri, Fri, 20 Nov 2026 12:00:09 GMT"], 9), (["Fri, 30 Feb 2026 12:00:00 GMT, 6"], 6),
        (["Fri, 30"], 30),  # not inside an HTTP-date, so this comma does split
        (["Fri", "20 Nov 2026 12:00:09 GMT"], 9), (["1.5, 1.25"], 1.5), (["9" * 500, "3"], FOREVER),
    ]  # fmt: skip
    for values, delay in cases:
        assert delay_of(503, *(("Retry-After", value) for value in values)) == close(delay)


@pytest.mark.parametrize("name", ["retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after"])
def test_the_longest_of_several_milliseconds(name):
    assert delay_of(503, (name, "100, soon,,"), (name, "250"), (name, "\t200")) == close(0.25)
    assert delay_of(503, (name, ", ,"), (name, "")) is None


# --- advice: H8 -----------------------------------------------------------------------------------


def test_pushback():
    cases = [
        # gRPC A6: a signed 32-bit integer without unnecessary leading zeros; else, or negative: do
        # not retry
        ("0", 0.0, None), ("-0", 0.0, None), (" 10\t", 0.01, None),
        ("2147483647", 2147483.647, None), ("2147483648", None, False),
        ("-2147483648", None, False), ("00", None, False), ("007", None, False),
        ("+5", None, False), ("5.0", None, False), ("1e3", None, False), ("", None, False),
        ("-", None, False), ("٥", None, False), ("250, 250", None, False),
        ("9" * 5000, None, False),
    ]  # fmt: skip
    for value, delay, should_retry in cases:
        expect(read_hint(503, [("grpc-retry-pushback-ms", value)], now=NOW), delay, should_retry)


# --- quotas: H9, H11 ------------------------------------------------------------------------------

RESETS = [
    ("RateLimit-Reset", "40", "RateLimit-Remaining"),
    ("X-RateLimit-Reset-After", "40", "X-RateLimit-Remaining"),
    ("X-RateLimit-Reset", "1795176040", "X-RateLimit-Remaining"),
    ("X-Rate-Limit-Reset", "2026-11-20T12:00:40Z", "X-Rate-Limit-Remaining"),
    ("x-ratelimit-reset-requests", "40s", "x-ratelimit-remaining-requests"),
    ("x-ratelimit-reset-tokens", "40", "x-ratelimit-remaining-tokens"),
    ("anthropic-ratelimit-requests-reset", "2026-11-20T12:00:40Z",
        "anthropic-ratelimit-requests-remaining"),
    ("anthropic-ratelimit-tokens-reset", "2026-11-20T12:00:40Z",
        "anthropic-ratelimit-tokens-remaining"),
    ("anthropic-ratelimit-input-tokens-reset", "2026-11-20T12:00:40Z",
        "anthropic-ratelimit-input-tokens-remaining"),
    ("anthropic-ratelimit-output-tokens-reset", "2026-11-20T12:00:40Z",
        "anthropic-ratelimit-output-tokens-remaining"),
]  # fmt: skip


def test_a_reset_does_not_count_from_a_cache_or_behind_a_request_to_wait():
    for name, value, remaining in RESETS:
        lines = [(name, value), (remaining, "0")]
        assert delay_of(429, *lines, ("Age", "0")) == 40
        assert delay_of(429, *lines, ("Age", "x")) == 40
        assert delay_of(429, *lines, ("Age", "1")) is None
        assert delay_of(429, *lines, ("Age", "1"), DATE) is None
        assert delay_of(429, *lines, ("Retry-After", "0")) == 0
        assert delay_of(429, *lines, ("Retry-After", "soon")) == 40


def test_which_reset_counts():
    cases = [
        ([("X-RateLimit-Reset", "9"), ("X-Rate-Limit-Remaining", "0")], Hint(9.0, None,
            "x-ratelimit-reset")),
        ([("X-Rate-Limit-Reset", "9"), ("X-RateLimit-Remaining", "0")], Hint(9.0, None,
            "x-rate-limit-reset")),
        ([("X-Rate-Limit-Reset", "9"), ("X-RateLimit-Remaining", "3")], NO_HINT),
        ([("X-RateLimit-Reset", "9"), ("X-RateLimit-Remaining", "3"), ("X-Rate-Limit-Reset", "8"),
            ("X-Rate-Limit-Remaining", "0")], Hint(8.0, None, "x-rate-limit-reset")),
        ([("X-RateLimit-Reset", "9"), ("X-RateLimit-Remaining-Requests", "0")], NO_HINT),
        ([("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "1s"),
            ("x-ratelimit-remaining-tokens", "7"), ("x-ratelimit-reset-tokens", "6m0s")], Hint(1.0,
            None, "x-ratelimit-reset-requests")),
        ([("anthropic-ratelimit-tokens-remaining", "0"), ("anthropic-ratelimit-tokens-reset",
            "2026-11-20T12:00:30Z"), ("anthropic-ratelimit-output-tokens-remaining", "0"),
            ("anthropic-ratelimit-output-tokens-reset", "2026-11-20T12:00:50Z"),
            ("anthropic-ratelimit-input-tokens-remaining", "0"),
            ("anthropic-ratelimit-input-tokens-reset", "2026-11-20T12:00:20Z"),
            ("anthropic-ratelimit-requests-remaining", "1"), ("anthropic-ratelimit-requests-reset",
            "2026-11-20T13:00:00Z")], Hint(50.0, None, "anthropic-ratelimit-output-tokens-reset")),
        ([("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "soon"),
            ("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "2s")], Hint(2.0,
            None, "x-ratelimit-reset-tokens")),
        ([("RateLimit-Remaining", "3"), ("RateLimit-Reset", "9"), ("X-RateLimit-Remaining", "0"),
            ("X-RateLimit-Reset", "8")], Hint(8.0, None, "x-ratelimit-reset")),
        ([("RateLimit-Reset", "7"), ("RateLimit-Reset", "9"), ("RateLimit-Remaining", "0")],
            Hint(9.0, None, "ratelimit-reset")),
    ]  # fmt: skip
    for lines, hint in cases:
        assert read_hint(503, lines, now=NOW) == hint


# --- reset values: H10 ----------------------------------------------------------------------------


def test_a_reset_number_is_told_by_its_size():
    values = [
        ("0", NOW, 0), ("1.5", NOW, 1.5), ("999999999", NOW, 999999999),
        ("999999999.99999999999", NOW, 1e9),  # below 1e9 however near: a delay
        ("1000000000", 999999990.0, 10), ("0001000000000", 999999990.0, 10),
        ("1795176030.25", NOW, 30.25), ("1795175999", NOW, 0), ("99999999999", 99999999989.0, 10),
        ("99999999999.99999999999", 99999999989.0, 11), ("100000000000", 99999990.0, 10),
        ("1795176045500", NOW, 45.5), ("99999999999999", 99999999990.0, 9.999),
        ("100000000000000", NOW, None), ("9" * 5000, NOW, None), ("-1", NOW, None),
        ("1795176030s", NOW, None), ("", NOW, None),
    ]  # fmt: skip
    for value, now, delay in values:
        for name in ["RateLimit-Reset", "X-RateLimit-Reset", "X-Rate-Limit-Reset"]:
            assert delay_of(429, (name, value), now=now) == close(delay)


def test_reset_timestamps():
    values = [
        # RFC 3339 §5.6 and the one leniency of H10
        ("2026-11-20T12:00:30Z", 30), ("2026-11-20t12:00:30z", 30),
        ("2026-11-20T12:00:30.75Z", 30.75), ("2026-11-20T12:00:30." + "5" * 5000 + "Z", 30.5555),
        ("2026-11-20T14:00:30+02:00", 30), ("2026-11-20T06:30:30-05:30", 30),
        ("2026-11-20T12:00:30-00:00", 30), ("2026-11-20T12:01Z", 60),
        ("2026-11-20T13:01+01:00", 60), ("2026-11-20T11:59:00Z", 0), ("2026-11-20T12:00:60Z", 60),
        ("2026-11-20T12:00:60.5Z", 60.5), ("9999-12-31T23:59:59Z", FOREVER),
        ("0000-01-01T00:00:00Z", 0), (" 2026-11-20T12:00:30Z\t", 30),
        ("2026-11-20 12:00:30Z", None), ("2026-11-20T12:00:30", None),
        ("2026-11-20T12:00:30 Z", None), ("2026-11-20T12:00:30.Z", None),
        ("2026-11-20T12:00.5Z", None), ("2026-11-20T12:00:30,5Z", None), ("2026-11-20T12Z", None),
        ("2026-11-20T12:00:30+0200", None), ("2026-11-20T12:00:30+02", None),
        ("2026-11-20T12:00:30+24:00", None), ("2026-11-20T12:00:30+02:60", None),
        ("2026-11-20T12:00:30Z+02:00", None), ("2026-11-20T12:00:61Z", None),
        ("2026-11-20T12:60:00Z", None), ("2026-11-20T24:00:00Z", None),
        ("2026-02-29T12:00:00Z", None), ("2026-13-01T12:00:00Z", None),
        ("2026-00-01T12:00:00Z", None), ("2026-11-00T12:00:00Z", None),
        ("26-11-20T12:00:30Z", None), ("02026-11-20T12:00:30Z", None),
        ("2026-1-20T12:00:30Z", None), ("20261120T120030Z", None), ("2026-11-20", None),
        ("2026-11-20TZ", None), ("T", None), ("Z", None), ("２０２６-11-20T12:00:30Z", None),
        ("Fri, 20 Nov 2026 12:00:30 GMT", None),
    ]  # fmt: skip
    for value, delay in values:
        for name in ["X-RateLimit-Reset", "X-Rate-Limit-Reset", "anthropic-ratelimit-tokens-reset"]:
            assert delay_of(429, (name, value)) == close(delay)


def test_timestamps_are_read_by_the_servers_clock_and_only_where_they_belong():
    reset = "2026-11-20T12:00:30Z"
    assert delay_of(429, DATE, ("anthropic-ratelimit-tokens-reset", reset), now=NOW + 600) == 30
    for name in ("RateLimit-Reset", "X-RateLimit-Reset-After", "x-ratelimit-reset-tokens"):
        assert delay_of(429, (name, reset)) is None
    assert delay_of(429, ("anthropic-ratelimit-tokens-reset", "30")) is None


# --- RateLimit: H9 Q1 and Q2 ----------------------------------------------------------------------

LISTS = [
    ('"a";r=0;t=5', 5), ('"a";t=5;r=0', 5), ('"";r=0;t=5', 5), (r'"a\"\\;r=9,";r=0;t=5', 5),
    ('"a";r=0;t=5,"b";r=0;t=7', 7), ('"a";r=0;t=5\t ,\t "b";r=1;t=7', 5),
    ('"a";r=0, "b";r=0;t=7', 7), ('"a";r=0', None), ('"a";r=0;t=0', 0), ('"a";r=-0;t=-0', 0),
    ('"a";r=000;t=007', 7), ('"a";r=0;t=999999999999999', FOREVER), ('"a"; r=0;   t=5', 5),
    ('"a";r=9;r=0;t=1;t=5', 5),  # RFC 9651 §4.2.3.2: the last one counts
    ('"a";r=0;r=9;t=5', None), ('"a";r=0;t=5;pk=:aGVsbG8=:', 5),
    ('"a";r=0;t=5;pk=:aGVsbG8:;x=::', 5),
    ('"a";r=0;t=5;q;w=?0;x=?1;y=1.5;z=-12.125;d=@1795176000;tok=a/b:c;*k.-_9=*x', 5),
    ('"a";r=0;t=5;s=%"f%c3%bc%20\x7e";u="r=9;t=9"', 5), ('"a"', None), ('"a";t=5', None),
    ('"a";r=0;t', None), ('"a";r;t=5', None), ('"a";r=0;t=5.0', None), ('"a";r=0.0;t=5', None),
    ('"a";r="0";t=5', None), ('"a";r=?0;t=5', None), ('"a";r=0;t=@5', None), ('"a";r=-1;t=5', None),
    ('"a";r=0;t=-1', None), ('"a";r=0;t=5, "b";r=-1', None), ('"a";r=0;t=1234567890123456', None),
    ('"a";r=0;t=5, "b"', None), ('"a";r=0;t=5, "b";r=x', None), ('"a";r=0;t=5, b;r=0;t=7', None),
    ('"a";r=0;t=5, ("b");r=0;t=7', None), ('"a";r=0;t=5, 7;r=0;t=7', None), ("a;r=0;t=5", None),
    ("'a';r=0;t=5", None), ('"a";r=0;t=5,', None), (',"a";r=0;t=5', None),
    ('"a";r=0;t=5,,"b";r=0;t=5', None), ('"a";r=0;t=5 "b";r=0;t=5', None), ('"a" ;r=0;t=5', None),
    ('"a";\tr=0;t=5', None), ('"a";r =0;t=5', None), ('"a";r= 0;t=5', None), ('"a";R=0;t=5', None),
    ('"a";r=0;t=5;', None), ('"a";r=0;t=5;x=', None), ('"a";r=0;t=5;X=1', None),
    ('"a";r=0;t=5;x=:a:', None), ('"a";r=0;t=5;x=:aGVsbG8', None),
    ('"a";r=0;t=5;x=:aGVs bG8:', None), ('"a";r=0;t=5;x=?2', None), ('"a";r=0;t=5;x=1.', None),
    ('"a";r=0;t=5;x=1.2345', None), ('"a";r=0;t=5;x=1234567890123.1', None),
    ('"a";r=0;t=5;x=--1', None), ('"a";r=0;t=5;x=@1.5', None), ('"a";r=0;t=5;x=%"%C3%BC"', None),
    ('"a";r=0;t=5;x=%"%ff"', None), ('"a";r=0;t=5;x=%"%c3', None), ('"a";r=0;t=5;x=(1)', None),
    ('"a;r=0;t=5', None), (r'"\a";r=0;t=5', None), ('"a\\', None), ('"ä";r=0;t=5', None),
    ('"a\tb";r=0;t=5', None), ('"a";r=٠;t=5', None), ("", None),
]  # fmt: skip


def test_rate_limit_lists():
    for value, delay in LISTS:
        for status in (403, 429, 503):
            assert delay_of(status, ("RateLimit", value)) == close(delay)
        assert delay_of(500, ("RateLimit", value)) is None


def test_rate_limit_dictionaries():
    cases = [
        ("limit=100, remaining=0, reset=50", 50, 50),
        ("limit=100,remaining=0\t,\treset=50", 50, 50),
        ('reset=50, limit=100;w=60;burst=1000;policy="a", remaining=0;x', 50, 50),
        ("remaining=0, reset=50", 50, 50), ("limit=100, remaining=1, reset=50", None, None),
        ("limit=100, remaining=0.5, reset=50", None, None),
        ("limit=100, remaining=0.0, reset=50", 50, 50), ("limit=100, reset=50", 50, None),
        ("limit=100, remaining, reset=50", 50, None),
        ("limit=100, remaining=none, reset=50", 50, None),
        ("limit=100, remaining=-1, reset=50", 50, None),
        ('limit=100, remaining="0", reset=50', 50, None),
        ("limit=100, remaining=(0), reset=50", 50, None),
        ("limit=100, remaining=?0, reset=50", 50, None),
        ("remaining=3, remaining=0, reset=9, reset=50", 50, 50),
        ("remaining=0, remaining=3, reset=50, reset=9, reset=x", 50, 50),
        ("remaining=0, reset=1795176030", 1795176030, 1795176030),
            # seconds in the draft, never an epoch
        ("remaining=0, reset=0", 0, 0), ("remaining=0", None, None),
        ("remaining=0, reset", None, None), ("remaining=0, reset=-5", None, None),
        ("remaining=0, reset=5.0", None, None), ('remaining=0, reset="5"', None, None),
        ("remaining=0, reset=(5)", None, None),
        ('remaining=0, x=(), y=(1 "b";q  c );p=1, z=:aGk=:, reset=50', 50, 50),
        ("remaining=0, x=(1 2, reset=50", None, None),
        ("remaining=0, x=(1,2), reset=50", None, None),
        ("remaining=0, x=(1\t2), reset=50", None, None),
        ("remaining=0, x=((1)), reset=50", None, None),
        ("remaining=0, x=(1)2, reset=50", None, None), ("remaining=0, x=(", None, None),
        ("remaining=0, reset=50,", None, None), ("remaining=0,, reset=50", None, None),
        ("remaining=0 reset=50", None, None), ("remaining=0; reset=50", None, None),
        ("Remaining=0, Reset=50", None, None), ("remaining = 0, reset = 50", None, None),
    ]  # fmt: skip
    for value, on_429, on_503 in cases:
        assert delay_of(429, ("RateLimit", value)) == close(on_429)
        assert delay_of(503, ("RateLimit", value)) == close(on_503)
