"""What a server's headers say of another attempt: the corpus, then each clause that it leaves open.

Expected numbers follow from the rule or source that is named beside them. ``NOW`` is
2026-11-20T12:00:00Z, a Friday; 1795176000 in Unix seconds.
"""

import json
from datetime import datetime
from pathlib import Path

import pytest

from forbear.core.headers import hints, quota
from forbear.core.headers.dates import parse_http_date
from forbear.core.headers.hints import Hint, read_hint
from forbear.core.outcome import NO_HINT

CASES = json.loads((Path(__file__).parents[1] / "corpus/server_hints.json").read_text("utf-8"))
NOW = 1795176000.0
FOREVER = 2147483648
DATE = ("Date", "Fri, 20 Nov 2026 12:00:00 GMT")


def delay_of(status: int, *lines: tuple[str, str], now: float = NOW) -> float | None:
    return read_hint(status, lines, now=now).delay


def close(seconds: float | None) -> object:
    return None if seconds is None else pytest.approx(seconds, abs=0.001, rel=0)


def as_octets(case) -> list[tuple[bytes, bytes]]:
    """RawBytes as they arrive: latin-1, unless a character has none there; then UTF-8 (rule H0)."""
    values = "".join(value for _, value in case["headers"])
    encoding = "latin-1" if all(character <= "\xff" for character in values) else "utf-8"
    return [(name.encode("ascii"), value.encode(encoding)) for name, value in case["headers"]]


@pytest.mark.parametrize("case", CASES["cases"], ids=lambda case: case["id"])
def test_corpus(case):
    now, expected = datetime.fromisoformat(case["now"]).timestamp(), case["expect"]
    for lines in ([*map(tuple, case["headers"])], as_octets(case)):
        hint = read_hint(case["status"], lines, now=now)
        assert hint.should_retry is expected["should_retry"]
        assert hint.delay == close(expected["delay_s"])
        assert (hint.source is None) is (hint.delay is None)


EVERYTHING = [  # H1
    ("Retry-After", "7"), ("retry-after-ms", "3000"), ("x-should-retry", "false"),
    ("RateLimit", '"default";r=0;t=9'),
]  # fmt: skip


def test_the_status_decides_what_is_read():
    of_redirect, of_error = Hint(7.0, None, "retry-after"), Hint(3.0, False, "retry-after-ms")
    for statuses, expected in (
        ((100, 299, 0, -503), NO_HINT), ((300, 399), of_redirect), ((400, 599, 999), of_error),
    ):  # fmt: skip
        for status in statuses:
            assert read_hint(status, EVERYTHING, now=NOW) == expected


def test_lines_may_be_an_iterator_and_mix_text_with_octets():
    lines = [
        ("Retry-After", "Fri, 20 Nov 2026 12:02:00 GMT"),
        (b"Date", b"Fri, 20 Nov 2026 12:01:00 GMT"),
    ]
    assert read_hint(503, iter(lines), now=0.0) == Hint(60.0, None, "retry-after")


def test_every_quota_is_looked_for():
    """By its beginning, so that quota.py is loaded by the first that is met."""
    assert all(map(hints.is_quota, quota.QUOTA_FIELDS))


def test_http_dates():
    """H5: the grammar of RFC 9110 §5.6.7; the distance to NOW is in the value."""
    cases = [
        ("Fri Nov 20 12:00:05 2026", 5), ("Sat Dec 05 12:00:00 2026", 15 * 86400),
        ("Monday, 20-Nov-26 12:00:05 GMT", 5), ("WEDNESDAY, 20-NOV-26 12:00:05 gmt", 5),
        ("Mon Nov 20 12:00:05 2026", 5), ("fRI nOV 20 12:00:05 2026", 5),
        ("Fri, 20 Nov 2026 12:00:05 utc", 5), ("Fri, 20 Nov 2026 13:30:05 +0130", 5),
        ("Fri, 20 Nov 2026 12:00:05 -0000", 5), ("Thu, 19 Nov 2026 12:01:05 -2359", 5),
        ("Fri, 20 Nov 2026 12:00:60 GMT", 60), ("Fri Nov 20 12:00:60 2026", 60),
        ("Mon, 01 Mar 2100 00:00:00 GMT", FOREVER), ("Tue, 29 Feb 2000 00:00:00 GMT", 0),
        ("Sat, 01 Jan 0000 00:00:00 GMT", 0), ("1795176005", 1795176005),
    ]  # fmt: skip
    none = [
        "Sat Dec 5 12:00:00 2026", "Sat Dec  05 12:00:00 2026", "Sat Dec  0 12:00:00 2026",
        "Fri Nov 20 12:00:05 2026 GMT", "Fri, Nov 20 12:00:05 2026", "Fri Feb 30 12:00:05 2026",
        "Friday, 20-Nov-26 12:00:05 UTC", "Friday, 20-Nov-26 12:00:05 +0000", "2026-11-20T12:00:05Z",
        *(f"{day} 12:00:05 GMT" for day in (
            "Friday, 20-Nov-2026", "Fri, 20-Nov-26", "Friday, 20 Nov 2026", "Xyz, 20 Nov 2026",
            "20 Nov 2026", "Fri, 20 Nov 2026 ", "Fri,  20 Nov 2026", "Fri,20 Nov 2026",
            "Fri , 20 Nov 2026", "Fri, 20 Nov 26", "Fri, 20 Nov 12026", "Fri, 1 Jan 2027",
            "Fri, 20 November 2026", "Fri, 00 Nov 2026", "Fri, 31 Nov 2026", "Fri, 32 Dec 2026",
            "Friday, 29-Feb-27", "Mon, 29 Feb 2100", "Fri, ２０ Nov 2026")),
        *(f"Fri, 20 Nov 2026 12:00:05{zone}" for zone in (
            "", " Z", " EST", " UT", " +2400", " +0060", " +01:00", " +000", " 0000", " GMT+1",
            " GMT x", ".5 GMT", "\tGMT")),
        *(f"Fri, 20 Nov 2026 {time} GMT" for time in (
            "12:00", "1:00:05", "12-00-05", "12:60:05", "24:00:00", "12:00:0²", "12:00:+5", "12:00: 5")),
    ]  # fmt: skip
    for value, delay in [*cases, *((value, None) for value in none)]:
        assert delay_of(503, ("Retry-After", value)) == close(delay)


def test_a_two_digit_year_is_the_last_that_is_not_over_fifty_years_ahead():
    cases = [
        # RFC 9110 §5.6.7: more than 50 years ahead is the past; 50 years to the second are not.
        ("20-Nov-76 12:00:00", "2026-11-20T12:00:00", "2076-11-20T12:00:00"),
        ("20-Nov-76 12:00:01", "2026-11-20T12:00:00", "1976-11-20T12:00:01"),
        ("20-Nov-76 12:00:01", "2026-11-20T12:00:00.999", "1976-11-20T12:00:01"),
        ("20-Nov-76 12:00:00", "2026-11-20T12:00:00.001", "2076-11-20T12:00:00"),
        ("21-Nov-76 00:00:00", "2026-11-20T12:00:00", "1976-11-21T00:00:00"),
        ("31-Oct-76 23:59:59", "2026-11-20T12:00:00", "2076-10-31T23:59:59"),
        ("01-Jan-00 00:00:00", "2026-11-20T12:00:00", "2000-01-01T00:00:00"),
        ("31-Dec-99 23:59:59", "2026-11-20T12:00:00", "1999-12-31T23:59:59"),
        ("01-Jan-00 00:00:00", "2060-01-01T00:00:00", "2100-01-01T00:00:00"),
        # 50 years after 29 February falls between 28 February and 1 March, and back again.
        ("28-Feb-78 23:59:59", "2028-02-29T12:00:00", "2078-02-28T23:59:59"),
        ("01-Mar-78 00:00:00", "2028-02-29T12:00:00", "1978-03-01T00:00:00"),
        ("29-Feb-76 23:59:59", "2026-03-01T00:00:00", "2076-02-29T23:59:59"),
        ("29-Feb-76 00:00:00", "2026-02-28T23:59:59", "1976-02-29T00:00:00"),
        # Second 60 is the first of the next minute, also when it is compared.
        ("20-Nov-76 11:59:60", "2026-11-20T12:00:00", "2076-11-20T12:00:00"),
        ("20-Nov-76 12:00:60", "2026-11-20T12:00:59", "1976-11-20T12:01:00"),
    ]
    for value, now, expected in cases:
        now = datetime.fromisoformat(f"{now}Z").timestamp()
        instant = parse_http_date(f"Friday, {value} GMT", now=now)
        assert instant == datetime.fromisoformat(f"{expected}Z").timestamp()


def test_a_two_digit_year_is_near_the_servers_clock_and_its_own_near_ours():
    due = ("Retry-After", "Friday, 20-Nov-26 12:00:09 GMT")
    lines = [("Date", "Friday, 20-Nov-26 12:00:00 GMT"), due]
    assert delay_of(503, *lines, now=NOW + 40 * 365 * 86400) == 9
    # In 1960 the year 26 is 1926, and so is the other one, which is near the Date.
    assert delay_of(503, *lines, now=-315619200.0) == 9


def test_the_longest_of_several_retry_afters():
    """H7"""
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


def test_pushback():
    """H8, gRPC A6: a signed 32-bit integer without leading zeros; else, or negative: a no."""
    delays = {"0": 0.0, "-0": 0.0, " 10\t": 0.01, "2147483647": 2147483.647}
    refusals = [
        "2147483648", "-2147483648", "00", "007", "+5", "5.0", "1e3", "", "-", "٥", "250, 250",
        "9" * 5000,
    ]  # fmt: skip
    for value in [*delays, *refusals]:
        hint = read_hint(503, [("grpc-retry-pushback-ms", value)], now=NOW)
        assert hint.should_retry is (None if value in delays else False)
        assert hint.delay == close(delays.get(value))


# H9, H11
RESETS = [
    ("RateLimit-Reset", "40", "RateLimit-Remaining"),
    ("X-RateLimit-Reset-After", "40", "X-RateLimit-Remaining"),
    ("X-RateLimit-Reset", "1795176040", "X-RateLimit-Remaining"),
    ("X-Rate-Limit-Reset", "2026-11-20T12:00:40Z", "X-Rate-Limit-Remaining"),
    ("x-ratelimit-reset-requests", "40s", "x-ratelimit-remaining-requests"),
    ("x-ratelimit-reset-tokens", "40", "x-ratelimit-remaining-tokens"),
    *((f"anthropic-ratelimit-{of}-reset", "2026-11-20T12:00:40Z", f"anthropic-ratelimit-{of}-remaining")
        for of in ("requests", "tokens", "input-tokens", "output-tokens")),
]  # fmt: skip


def test_a_reset_does_not_count_from_a_cache_or_behind_a_request_to_wait():
    for name, value, remaining in RESETS:
        lines = [(name, value), (remaining, "0")]
        for more, delay in (
            ([("Age", "0")], 40), ([("Age", "x")], 40), ([("Age", "1")], None),
            ([("Age", "1"), DATE], None), ([("Retry-After", "0")], 0), ([("Retry-After", "soon")], 40),
        ):  # fmt: skip
            assert delay_of(429, *lines, *more) == delay


def test_which_reset_counts():
    """The one whose own remaining is 0; of several the longest."""
    cases = [
        ("x-ratelimit-reset 9, x-rate-limit-remaining 0", 9.0, "x-ratelimit-reset"),
        ("x-rate-limit-reset 9, x-ratelimit-remaining 0", 9.0, "x-rate-limit-reset"),
        ("x-rate-limit-reset 9, x-ratelimit-remaining 3", None, None),
        ("x-ratelimit-reset 9, x-ratelimit-remaining 3, x-rate-limit-reset 8,"
            " x-rate-limit-remaining 0", 8.0, "x-rate-limit-reset"),
        ("x-ratelimit-reset 9, x-ratelimit-remaining-requests 0", None, None),
        ("x-ratelimit-remaining-requests 0, x-ratelimit-reset-requests 1s,"
            " x-ratelimit-remaining-tokens 7, x-ratelimit-reset-tokens 6m0s",
            1.0, "x-ratelimit-reset-requests"),
        ("anthropic-ratelimit-tokens-remaining 0,"
            " anthropic-ratelimit-tokens-reset 2026-11-20T12:00:30Z,"
            " anthropic-ratelimit-output-tokens-remaining 0,"
            " anthropic-ratelimit-output-tokens-reset 2026-11-20T12:00:50Z,"
            " anthropic-ratelimit-input-tokens-remaining 0,"
            " anthropic-ratelimit-input-tokens-reset 2026-11-20T12:00:20Z,"
            " anthropic-ratelimit-requests-remaining 1,"
            " anthropic-ratelimit-requests-reset 2026-11-20T13:00:00Z",
            50.0, "anthropic-ratelimit-output-tokens-reset"),
        ("x-ratelimit-remaining-requests 0, x-ratelimit-reset-requests soon,"
            " x-ratelimit-remaining-tokens 0, x-ratelimit-reset-tokens 2s",
            2.0, "x-ratelimit-reset-tokens"),
        ("ratelimit-remaining 3, ratelimit-reset 9, x-ratelimit-remaining 0, x-ratelimit-reset 8",
            8.0, "x-ratelimit-reset"),
        ("ratelimit-reset 7, ratelimit-reset 9, ratelimit-remaining 0", 9.0, "ratelimit-reset"),
    ]  # fmt: skip
    for lines, delay, source in cases:
        pairs = [tuple(line.split(" ")) for line in lines.split(", ")]
        assert read_hint(503, pairs, now=NOW) == Hint(delay, None, source)


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
    """RFC 3339 §5.6 and the one leniency of H10."""
    values = [
        ("2026-11-20T12:00:30Z", 30), ("2026-11-20t12:00:30z", 30),
        ("2026-11-20T12:00:30.75Z", 30.75), ("2026-11-20T12:00:30." + "5" * 5000 + "Z", 30.5555),
        ("2026-11-20T14:00:30+02:00", 30), ("2026-11-20T06:30:30-05:30", 30),
        ("2026-11-20T12:00:30-00:00", 30), ("2026-11-20T12:01Z", 60),
        ("2026-11-20T13:01+01:00", 60), ("2026-11-20T11:59:00Z", 0), ("2026-11-20T12:00:60Z", 60),
        ("2026-11-20T12:00:60.5Z", 60.5), ("9999-12-31T23:59:59Z", FOREVER),
        ("0000-01-01T00:00:00Z", 0), (" 2026-11-20T12:00:30Z\t", 30),
    ]  # fmt: skip
    none = [
        *(f"2026-11-20T{time}" for time in (
            "12:00:30", "12:00:30 Z", "12:00:30.Z", "12:00.5Z", "12:00:30,5Z", "12Z", "12:00:30+0200",
            "12:00:30+02", "12:00:30+24:00", "12:00:30+02:60", "12:00:30Z+02:00", "12:00:61Z",
            "12:60:00Z", "24:00:00Z", "Z")),
        *(f"{day}T12:00:30Z" for day in (
            "2026-02-29", "2026-13-01", "2026-00-01", "2026-11-00", "26-11-20", "02026-11-20",
            "2026-1-20", "２０２６-11-20")),
        "2026-11-20 12:00:30Z", "20261120T120030Z", "2026-11-20", "T", "Z",
        "Fri, 20 Nov 2026 12:00:30 GMT",
    ]  # fmt: skip
    for value, delay in [*values, *((value, None) for value in none)]:
        for name in ["X-RateLimit-Reset", "X-Rate-Limit-Reset", "anthropic-ratelimit-tokens-reset"]:
            assert delay_of(429, (name, value)) == close(delay)


def test_timestamps_are_read_by_the_servers_clock_and_only_where_they_belong():
    reset = "2026-11-20T12:00:30Z"
    assert delay_of(429, DATE, ("anthropic-ratelimit-tokens-reset", reset), now=NOW + 600) == 30
    for name in ("RateLimit-Reset", "X-RateLimit-Reset-After", "x-ratelimit-reset-tokens"):
        assert delay_of(429, (name, reset)) is None
    assert delay_of(429, ("anthropic-ratelimit-tokens-reset", "30")) is None


LISTS = [
    ('"a";r=0;t=5', 5), ('"a";t=5;r=0', 5), ('"";r=0;t=5', 5), (r'"a\"\\;r=9,";r=0;t=5', 5),
    ('"a";r=0;t=5,"b";r=0;t=7', 7), ('"a";r=0;t=5\t ,\t "b";r=1;t=7', 5),
    ('"a";r=0, "b";r=0;t=7', 7), ('"a";r=0;t=0', 0), ('"a";r=-0;t=-0', 0), ('"a";r=000;t=007', 7),
    ('"a";r=0;t=999999999999999', FOREVER), ('"a"; r=0;   t=5', 5),
    ('"a";r=9;r=0;t=1;t=5', 5),  # RFC 9651 §4.2.3.2: the last one counts
    ('"a";r=0;t=5;pk=:aGVsbG8=:', 5), ('"a";r=0;t=5;pk=:aGVsbG8:;x=::', 5),
    ('"a";r=0;t=5;q;w=?0;x=?1;y=1.5;z=-12.125;d=@1795176000;tok=a/b:c;*k.-_9=*x', 5),
    ('"a";r=0;t=5;s=%"f%c3%bc%20\x7e";u="r=9;t=9"', 5),
]  # fmt: skip
NO_LISTS = [
    *(f'"a"{end}' for end in (
        "", ";t=5", ";r=0", ";r=0;t", ";r;t=5", ";r=0.0;t=5", ';r="0";t=5', ";r=?0;t=5", ";r=-1;t=5",
        ";r=0;r=9;t=5", ";r=0;t=5.0", ";r=0;t=@5", ";r=0;t=-1", ";r=0;t=1234567890123456", " ;r=0;t=5",
        ";\tr=0;t=5", ";r =0;t=5", ";r= 0;t=5", ";R=0;t=5", ";r=٠;t=5")),
    *(f'"a";r=0;t=5{end}' for end in (
        ', "b"', ', "b";r=-1', ', "b";r=x', ", b;r=0;t=7", ', ("b");r=0;t=7', ", 7;r=0;t=7", ",",
        ',,"b";r=0;t=5', ' "b";r=0;t=5', ";", ";x=", ";X=1", ";x=(1)")),
    "a;r=0;t=5", "'a';r=0;t=5", ',"a";r=0;t=5', '"a;r=0;t=5', r'"\a";r=0;t=5', '"a\\',
    '"ä";r=0;t=5', '"a\tb";r=0;t=5', "",
]  # fmt: skip


def test_rate_limit_lists():
    """H9 Q1; how other parameters may be written is in test_keys.py."""
    for value, delay in [*LISTS, *((value, None) for value in NO_LISTS)]:
        for status in (403, 429, 503):
            assert delay_of(status, ("RateLimit", value)) == close(delay)
        assert delay_of(500, ("RateLimit", value)) is None


def test_rate_limit_dictionaries():
    """H9 Q2; where nothing is known of what remains, 429 says that it is nothing."""
    whole = [
        "limit=100, remaining=0, reset=50", "limit=100,remaining=0\t,\treset=50",
        'reset=50, limit=100;w=60;burst=1000;policy="a", remaining=0;x', "remaining=0, reset=50",
        "limit=100, remaining=0.0, reset=50", "remaining=3, remaining=0, reset=9, reset=50",
        "remaining=0, remaining=3, reset=50, reset=9, reset=x",
        'remaining=0, x=(), y=(1 "b";q  c );p=1, z=:aGk=:, reset=50',
    ]  # fmt: skip
    unknown = ["", ", remaining", *(f", remaining={it}" for it in ("none", -1, '"0"', "(0)", "?0"))]
    none = [
        "limit=100, remaining=1, reset=50", "limit=100, remaining=0.5, reset=50", "remaining=0",
        *(f"remaining=0, reset{value}" for value in ("", "=-5", "=5.0", '="5"', "=(5)", "=50,")),
        *(f"remaining=0, x=({value}, reset=50" for value in (
            "1 2", "1,2)", "1\t2)", "(1))", "1)2")), "remaining=0, x=(",
        "remaining=0,, reset=50", "remaining=0 reset=50", "remaining=0; reset=50",
        "Remaining=0, Reset=50", "remaining = 0, reset = 50",
    ]  # fmt: skip
    for value, on_429, on_503 in [
        *((value, 50, 50) for value in whole), ("remaining=0, reset=0", 0, 0),
        *((f"limit=100{remaining}, reset=50", 50, None) for remaining in unknown),
        ("remaining=0, reset=1795176030", 1795176030, 1795176030),  # seconds, never an epoch
        *((value, None, None) for value in none),
    ]:  # fmt: skip
        assert delay_of(429, ("RateLimit", value)) == close(on_429)
        assert delay_of(503, ("RateLimit", value)) == close(on_503)
