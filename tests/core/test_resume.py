"""What can be resumed, what is asked for, and which answers are the rest of the same octets.

Expected values follow from RFC 9110: 8.8.2.2 and 13.1.5 (validators), 14.1.2 and 14.4 (ranges),
15.3.7 (206), 15.5.17 (416). Positions count from 0, so a body of 1000 octets ends at 999.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forbear.core.headers.ranges import Download, Part, download_of

TAG = '"v1"'
NOON = "Fri, 20 Nov 2026 12:00:00 GMT"
NOON_AND_1 = "Fri, 20 Nov 2026 12:00:01 GMT"
WHOLE = (("Content-Length", "1000"), ("ETag", TAG))
Lines = tuple[tuple[str, str], ...]


def downloaded(
    status: int = 200, lines: Lines = WHOLE, asked: Lines = (), method: str = "GET"
) -> Download | None:
    return download_of(method, asked, status, lines)


def a_download(status: int = 200, lines: Lines = WHOLE, asked: Lines = ()) -> Download:
    found = downloaded(status, lines, asked)
    assert found is not None
    return found


def rest(told: str, *more: tuple[str, str], tag: str = TAG) -> Lines:
    return (("Content-Range", told), ("ETag", tag), *more)


@pytest.mark.parametrize(
    ("status", "lines", "asked", "expected"),
    [
        pytest.param(200, WHOLE, (), (0, 999, 1000), id="whole"),
        pytest.param(200, (("ETag", TAG),), (), (0, None, None), id="length-unknown"),
        pytest.param(
            200,
            (("Transfer-Encoding", "chunked"), ("Content-Length", "7"), ("ETag", TAG)),
            (),
            (0, None, None),
            id="chunked-wins",  # RFC 9112 section 6.3: Transfer-Encoding overrides the Content-Length
        ),
        pytest.param(
            200,
            (("Content-Length", "5, 5"), ("ETag", TAG)),
            (),
            (0, 4, 5),
            id="length-twice-the-same",
        ),
        pytest.param(200, WHOLE, (("Range", "bytes=10-"),), (0, 999, 1000), id="range-ignored"),
        pytest.param(
            200, (*WHOLE, ("Accept-Ranges", "bytes")), (), (0, 999, 1000), id="accept-ranges-bytes"
        ),
        pytest.param(
            206, rest("bytes 10-999/1000"), (("Range", "bytes=10-"),), (10, 999, 1000), id="from"
        ),
        pytest.param(
            206, rest("bytes 10-99/1000"), (("range", "bytes=10-99"),), (10, 99, 1000), id="from-to"
        ),
        pytest.param(
            206,
            rest("bytes 10-99/*"),
            (("range", "bytes=10-99"),),
            (10, 99, None),
            id="from-to-unknown",
        ),
        pytest.param(
            206,
            rest("bytes 10-999/1000"),
            (("Range", "bytes=10-5000"),),
            (10, 999, 1000),
            id="past-the-end",
        ),
        pytest.param(
            206,
            rest("bytes 900-999/1000"),
            (("Range", "bytes=-100"),),
            (900, 999, 1000),
            id="last-hundred",
        ),
        pytest.param(
            206,
            rest("bytes 0-999/1000"),
            (("Range", "Bytes=-5000"),),
            (0, 999, 1000),
            id="last-more",
        ),
    ],
)
def test_what_a_download_is(
    status: int, lines: Lines, asked: Lines, expected: tuple[int, int, int]
) -> None:
    """Where the body begins and ends in the representation, and how long that is."""
    download = a_download(status, lines, asked)
    assert (download.first, download.last, download.complete) == expected


@pytest.mark.parametrize(
    ("status", "lines", "asked", "method"),
    [
        pytest.param(200, WHOLE, (), "HEAD", id="head"),
        pytest.param(200, WHOLE, (), "POST", id="post"),
        pytest.param(203, WHOLE, (), "GET", id="transformed"),
        pytest.param(404, WHOLE, (), "GET", id="404"),
        pytest.param(200, (("Content-Length", "1000"),), (), "GET", id="no-validator"),
        pytest.param(200, (*WHOLE, ("Accept-Ranges", "none")), (), "GET", id="accept-ranges-none"),
        pytest.param(
            200, (*WHOLE, ("Accept-Ranges", "lines, None")), (), "GET", id="accept-ranges-list"
        ),
        pytest.param(200, (("Content-Length", "5, 6"), ("ETag", TAG)), (), "GET", id="two-lengths"),
        pytest.param(200, (("Content-Length", "+5"), ("ETag", TAG)), (), "GET", id="bad-length"),
        pytest.param(
            200, (("Content-Length", "9" * 19), ("ETag", TAG)), (), "GET", id="absurd-length"
        ),
        pytest.param(206, rest("bytes 10-999/1000"), (), "GET", id="206-unasked"),
        pytest.param(
            206, (("ETag", TAG),), (("Range", "bytes=10-"),), "GET", id="206-no-content-range"
        ),
        pytest.param(
            206, rest("bytes 0-9/1000"), (("Range", "bytes=0-9,20-29"),), "GET", id="two-ranges"
        ),
        pytest.param(
            206, rest("bytes 10-999/1000"), (("Range", "bytes=9-"),), "GET", id="206-other-start"
        ),
        pytest.param(
            206,
            rest("bytes 10-998/1000"),
            (("Range", "bytes=10-"),),
            "GET",
            id="206-short-of-the-end",
        ),
        pytest.param(
            206,
            rest("bytes 10-100/1000"),
            (("Range", "bytes=10-99"),),
            "GET",
            id="206-more-than-asked",
        ),
        pytest.param(
            206,
            rest("bytes 10-98/1000"),
            (("Range", "bytes=10-99"),),
            "GET",
            id="206-less-than-asked",
        ),
        pytest.param(
            206, rest("bytes 10-98/*"), (("Range", "bytes=10-99"),), "GET", id="206-less-unknown"
        ),
        pytest.param(
            206,
            rest("bytes 901-999/1000"),
            (("Range", "bytes=-100"),),
            "GET",
            id="206-other-suffix",
        ),
        pytest.param(
            206, rest("bytes 900-999/*"), (("Range", "bytes=-100"),), "GET", id="206-suffix-unknown"
        ),
        pytest.param(
            206, rest("bytes 900-999/1000"), (("Range", "bytes=-"),), "GET", id="no-range-at-all"
        ),
        pytest.param(
            206, rest("lines 10-99/1000"), (("Range", "lines=10-99"),), "GET", id="another-unit"
        ),
        pytest.param(
            206,
            rest("bytes 10-99/1000", ("Content-Length", "91")),
            (("Range", "bytes=10-99"),),
            "GET",
            id="206-length",
        ),
        pytest.param(
            206,
            rest("bytes 10-99/1000", ("Content-Type", "multipart/byteranges; boundary=x")),
            (("Range", "bytes=10-99"),),
            "GET",
            id="multipart",
        ),
    ],
)
def test_what_cannot_be_resumed(status: int, lines: Lines, asked: Lines, method: str) -> None:
    """Only a GET answered with 200, or with the one part that it asked for, and a validator."""
    assert downloaded(status, lines, asked, method) is None


@pytest.mark.parametrize(
    ("lines", "validator"),
    [
        pytest.param((("ETag", '"a"'),), '"a"', id="tag"),
        pytest.param((("ETag", '""'),), '""', id="empty-tag"),
        pytest.param(
            (("ETag", '"a"'), ("Last-Modified", NOON), ("Date", NOON)), '"a"', id="tag-before-date"
        ),
        pytest.param((("ETag", 'W/"a"'),), None, id="weak"),
        pytest.param(
            (("ETag", 'W/"a"'), ("Last-Modified", NOON), ("Date", NOON_AND_1)),
            None,
            id="weak-and-date",
        ),
        pytest.param((("ETag", "a"),), None, id="unquoted"),
        pytest.param((("ETag", '"'),), None, id="half"),
        pytest.param((("ETag", '"a"b"'),), None, id="quote-inside"),
        pytest.param((("ETag", '"a b"'),), None, id="space-inside"),
        pytest.param((("ETag", '"\xe9"'),), None, id="not-ascii"),
        pytest.param((("ETag", '"a"'), ("ETag", '"b"')), None, id="two-tags"),
        # 8.8.2.2: "a Date value which is at least one second after the Last-Modified value"
        pytest.param((("Last-Modified", NOON), ("Date", NOON_AND_1)), NOON, id="a-second-later"),
        pytest.param((("Last-Modified", NOON), ("Date", NOON)), None, id="same-second"),
        pytest.param(
            (("Last-Modified", NOON_AND_1), ("Date", NOON)), None, id="modified-in-the-future"
        ),
        pytest.param((("Last-Modified", NOON),), None, id="no-date"),
        pytest.param(
            (("Last-Modified", NOON), ("Date", NOON_AND_1), ("Date", NOON_AND_1)),
            None,
            id="two-dates",
        ),
        pytest.param((("Last-Modified", "yesterday"), ("Date", NOON)), None, id="no-http-date"),
        pytest.param(
            (("Last-Modified", "Fri, 20 Nov 2026 25:00:00 GMT"), ("Date", NOON)), None, id="hour-25"
        ),
        pytest.param(
            (("Last-Modified", "Friday, 20-Nov-26 12:00:00 GMT"), ("Date", NOON_AND_1)),
            None,
            id="century-unknown",
        ),
    ],
)
def test_only_a_strong_validator_is_sent(lines: Lines, validator: str | None) -> None:
    """13.1.5: no weak tag, and a date only if there is no tag and it is strong; then the exact
    string.
    """
    download = downloaded(lines=(*lines, ("Content-Length", "1000")))
    assert (download and dict(download.fields(10))["If-Range"]) == validator


@pytest.mark.parametrize(
    ("status", "lines", "asked", "received", "wanted"),
    [
        (200, WHOLE, (), 0, "bytes=0-"),
        (200, WHOLE, (), 999, "bytes=999-"),
        (200, (("ETag", TAG),), (), 17, "bytes=17-"),
        (206, rest("bytes 10-99/1000"), (("Range", "bytes=10-99"),), 5, "bytes=15-99"),
        (206, rest("bytes 10-99/*"), (("Range", "bytes=10-99"),), 5, "bytes=15-99"),
        (206, rest("bytes 10-999/1000"), (("Range", "bytes=10-"),), 5, "bytes=15-"),
        (206, rest("bytes 900-999/1000"), (("Range", "bytes=-100"),), 5, "bytes=905-"),
    ],
)
def test_what_is_asked_for(
    status: int, lines: Lines, asked: Lines, received: int, wanted: str
) -> None:
    """From the first missing octet to the end of what the caller asked for."""
    assert a_download(status, lines, asked).fields(received) == (
        ("Range", wanted),
        ("If-Range", TAG),
    )


@pytest.mark.parametrize(
    ("lines", "received", "missing"),
    [
        (WHOLE, 0, 1000),
        (WHOLE, 1000, 0),
        (WHOLE, 1001, -1),
        ((("Content-Length", "0"), ("ETag", TAG)), 0, 0),
        ((("ETag", TAG),), 5, None),
    ],
)
def test_what_is_missing(lines: Lines, received: int, missing: int | None) -> None:
    assert a_download(lines=lines).missing(received) == missing


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(rest("bytes 400-999/1000"), id="plain"),
        pytest.param(rest("bytes 400-999/1000", ("Content-Length", "600")), id="with-length"),
        pytest.param(
            rest("BYTES 400-999/1000", ("Content-Encoding", "identity")), id="spelled-otherwise"
        ),
        pytest.param(rest("bytes 400-999/1000", ("Transfer-Encoding", "chunked")), id="chunked"),
        pytest.param(
            tuple((n.encode(), v.encode()) for n, v in rest("bytes 400-999/1000")), id="octets"
        ),
    ],
)
def test_the_rest_is_recognised(lines: Lines) -> None:
    """206 with the range that was asked for, of the same length, under the same validator."""
    assert a_download().judge(400, 206, lines) is Part.CONTINUES


@pytest.mark.parametrize(
    ("status", "lines"),
    [
        pytest.param(200, (*WHOLE,), id="200"),
        pytest.param(200, rest("bytes 400-999/1000"), id="200-with-content-range"),
        pytest.param(304, rest("bytes 400-999/1000"), id="304"),
        pytest.param(404, (), id="404"),
        pytest.param(206, rest("bytes 401-999/1000"), id="one-later"),
        pytest.param(206, rest("bytes 399-999/1000"), id="one-earlier"),
        pytest.param(206, rest("bytes 0-999/1000"), id="from-the-start"),
        pytest.param(206, rest("bytes 400-998/1000"), id="one-less"),
        pytest.param(206, rest("bytes 400-1000/1001"), id="one-more"),
        pytest.param(206, rest("bytes 400-999/1001"), id="longer-whole"),
        pytest.param(206, rest("bytes 400-899/900"), id="shorter-whole"),
        pytest.param(206, rest("bytes 400-999/*"), id="whole-untold"),
        pytest.param(
            206, rest("bytes 400-999/999"), id="invalid-whole"
        ),  # 14.4: complete must exceed last
        pytest.param(206, rest("bytes 400-399/1000"), id="invalid-places"),
        pytest.param(206, rest("bytes */1000"), id="unsatisfied"),
        pytest.param(206, rest("bytes 400-999"), id="no-whole"),
        pytest.param(206, rest("bytes=400-999/1000"), id="no-space"),
        pytest.param(206, rest("items 400-999/1000"), id="other-unit"),
        pytest.param(206, rest("bytes 4e2-999/1000"), id="no-number"),
        pytest.param(
            206,
            rest("bytes 400-999/1000", ("Content-Range", "bytes 400-999/1000")),
            id="told-twice",
        ),
        pytest.param(206, (("ETag", TAG),), id="no-content-range"),
        pytest.param(206, (("Content-Range", "bytes 400-999/1000"),), id="no-tag"),
        pytest.param(206, rest("bytes 400-999/1000", tag='"v2"'), id="other-tag"),
        pytest.param(206, rest("bytes 400-999/1000", tag='W/"v1"'), id="weak-tag"),
        pytest.param(206, rest("bytes 400-999/1000", ("ETag", '"v2"')), id="two-tags"),
        pytest.param(
            206, rest("bytes 400-999/1000", ("Content-Length", "599")), id="length-differs"
        ),
        pytest.param(
            206, rest("bytes 400-999/1000", ("Content-Length", "six")), id="length-malformed"
        ),
        pytest.param(
            206, rest("bytes 400-999/1000", ("Content-Encoding", "gzip")), id="encoded-now"
        ),
        pytest.param(
            206,
            rest("bytes 400-999/1000", ("Content-Type", "multipart/byteranges")),
            id="multipart",
        ),
        pytest.param(416, (), id="416-untold"),
        pytest.param(
            416, (("Content-Range", "bytes */1000"),), id="416-of-the-whole"
        ),  # 600 are missing
        pytest.param(416, (("Content-Range", "bytes */400"),), id="416-shorter-whole"),
        pytest.param(416, (("Content-Range", "bytes 0-399/400"),), id="416-with-places"),
    ],
)
def test_anything_else_is_not_the_rest(status: int, lines: Lines) -> None:
    """What was handed over cannot be taken back: one thing that does not fit is enough."""
    download = a_download()
    assert download.judge(400, status, lines) is Part.OTHER
    assert (download.last, download.complete) == (999, 1000)


def test_an_encoded_body_goes_on_in_the_same_encoding_only() -> None:
    """The identity octets are no continuation of gzip's, whatever the tag says."""
    lines = (*WHOLE, ("Content-Encoding", "GZip"))
    assert a_download(lines=lines).judge(
        4, 206, rest("bytes 4-999/1000", ("Content-Encoding", "gzip"))
    ) is (Part.CONTINUES)
    assert a_download(lines=lines).judge(4, 206, rest("bytes 4-999/1000")) is Part.OTHER
    assert (
        a_download(lines=lines).judge(4, 206, rest("bytes 4-999/1000", ("Content-Encoding", "br")))
        is Part.OTHER
    )


def test_a_date_is_compared_where_it_was_the_validator() -> None:
    lines = (("Content-Length", "1000"), ("Last-Modified", NOON), ("Date", NOON_AND_1))
    told = ("Content-Range", "bytes 400-999/1000")
    assert (
        a_download(lines=lines).judge(400, 206, (told, ("Last-Modified", NOON))) is Part.CONTINUES
    )
    assert (
        a_download(lines=lines).judge(400, 206, (told, ("Last-Modified", NOON_AND_1))) is Part.OTHER
    )
    assert a_download(lines=lines).judge(400, 206, (told,)) is Part.OTHER


def test_a_download_of_unknown_length_learns_it() -> None:
    """The first part tells where the end is, and every later one must tell the same."""
    download = a_download(lines=(("ETag", TAG),))
    assert download.judge(400, 206, rest("bytes 400-899/1000")) is Part.OTHER  # not to the end
    assert (
        download.judge(400, 206, rest("bytes 400-999/*")) is Part.OTHER
    )  # not known to be the end
    assert download.judge(400, 206, rest("bytes 400-999/1000")) is Part.CONTINUES
    assert download.missing(400) == 600
    assert download.judge(500, 206, rest("bytes 500-1000/1001")) is Part.OTHER
    assert download.judge(500, 206, rest("bytes 500-999/1000")) is Part.CONTINUES


def test_nothing_but_the_end_was_missing() -> None:
    """15.5.17: 416 tells the current length; if that is what was given, nothing is missing."""
    chunked = a_download(lines=(("ETag", TAG),))
    assert chunked.judge(1000, 416, (("Content-Range", "bytes */1000"),)) is Part.COMPLETE
    assert chunked.judge(999, 416, (("Content-Range", "bytes */1000"),)) is Part.OTHER
    assert a_download().judge(1000, 416, (("Content-Range", "bytes */1000"),)) is Part.COMPLETE
    assert chunked.judge(1000, 416, rest("bytes */1000")) is Part.COMPLETE
    assert chunked.judge(1000, 416, rest("bytes */1000", tag='"v2"')) is Part.OTHER
    assert chunked.judge(0, 416, (("Content-Range", "bytes */0"),)) is Part.OTHER


def test_a_part_goes_on_as_that_part() -> None:
    """Of bytes 10-99, with 5 given: 15-99."""
    part = a_download(206, rest("bytes 10-99/1000"), (("Range", "bytes=10-99"),))
    assert part.judge(5, 206, rest("bytes 15-99/1000")) is Part.CONTINUES
    assert part.judge(5, 206, rest("bytes 15-999/1000")) is Part.OTHER
    assert part.judge(5, 206, rest("bytes 5-99/1000")) is Part.OTHER
    unknown = a_download(206, rest("bytes 10-99/*"), (("Range", "bytes=10-99"),))
    assert unknown.judge(5, 206, rest("bytes 15-99/*")) is Part.CONTINUES
    assert unknown.judge(5, 206, rest("bytes 15-99/1000")) is Part.CONTINUES
    assert unknown.judge(6, 206, rest("bytes 16-99/2000")) is Part.OTHER


def test_a_download_shows_no_header_value() -> None:
    assert repr(a_download()) == "<Download 0-999 of 1000>"
    assert repr(a_download(lines=(("ETag", TAG),))) == "<Download 0- of unknown>"


values = st.one_of(
    st.sampled_from(
        [
            TAG,
            'W/"v1"',
            NOON,
            "bytes",
            "none",
            "bytes 4-9/10",
            "bytes */10",
            "gzip",
            "10",
            "0-9",
            "*/*",
        ]
    ),
    st.text(st.characters(max_codepoint=255), max_size=24),
)
names = st.sampled_from(
    [
        "ETag",
        "Content-Range",
        "Content-Length",
        "Content-Encoding",
        "Last-Modified",
        "Date",
        "Accept-Ranges",
    ]
)
header_lines = st.lists(st.tuples(names, values), max_size=6)


@given(
    asked=st.lists(st.tuples(st.just("Range"), values), max_size=2),
    first=header_lines,
    status=st.sampled_from([200, 206]),
    received=st.integers(0, 10**6),
    second=header_lines,
    answer=st.sampled_from([200, 206, 416, 503]),
)
def test_nothing_a_server_says_crashes_it(
    asked: list[tuple[str, str]],
    first: list[tuple[str, str]],
    status: int,
    received: int,
    second: list[tuple[str, str]],
    answer: int,
) -> None:
    download = download_of("GET", asked, status, first)
    if download is not None:
        assert download.judge(received, answer, second) in Part
        assert all(value.isascii() for _, value in download.fields(received))


@given(
    first=st.integers(0, 50),
    length=st.integers(1, 50),
    beyond=st.integers(0, 50),
    received=st.integers(0, 49),
    shift=st.integers(-3, 3),
    cut=st.integers(-3, 3),
    grown=st.integers(-3, 3),
)
def test_only_the_very_octets_that_are_missing_continue(
    first: int, length: int, beyond: int, received: int, shift: int, cut: int, grown: int
) -> None:
    """An answer continues exactly if it is [first + received, last] of the same whole."""
    last, complete = first + length - 1, first + length + beyond
    asked = (("Range", f"bytes={first}-{last}"),)
    download = a_download(206, rest(f"bytes {first}-{last}/{complete}"), asked)
    offset = first + received + shift
    told = rest(f"bytes {offset}-{last - cut}/{complete + grown}")
    is_rest = (shift, cut, grown) == (0, 0, 0) and received < length
    assert (download.judge(received, 206, told) is Part.CONTINUES) == is_rest
