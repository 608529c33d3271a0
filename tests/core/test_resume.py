"""What can be resumed, what is asked for, and which answers are the rest of the same bytes.

Expected values follow from RFC 9110: 8.8.2.2 and 13.1.5 (validators), 14.1.2 and 14.4 (ranges),
15.3.7 (206). Positions count from 0, so a body of 1000 bytes ends at 999.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forbear.core.headers.ranges import download_of

TAG = '"v1"'
NOON, NOON_AND_1 = "Fri, 20 Nov 2026 12:00:00 GMT", "Fri, 20 Nov 2026 12:00:01 GMT"
TAGGED = ("ETag", TAG)
WHOLE = (("Content-Length", "1000"), TAGGED)
UNKNOWN = ("Content-Range", "bytes */1000")
Lines = tuple[tuple[str, str], ...]


def downloaded(status=200, lines=WHOLE, method="GET"):
    return download_of(method, status, lines)


def rest(told: str, *more: tuple[str, str], tag: str = TAG) -> Lines:
    return (("Content-Range", f"bytes {told}"), ("ETag", tag), *more)


@pytest.mark.parametrize(("status", "lines", "expected", "wanted"), [
    (200, WHOLE, (0, 999, 1000), "5-"), (200, (TAGGED,), (0, None, None), "5-"),
    (200, (("Transfer-Encoding", "chunked"), ("Content-Length", "7"), TAGGED),
        (0, None, None), "5-"),
    (200, (("Content-Length", "9, 9"), TAGGED), (0, 8, 9), "5-"),
    (200, (*WHOLE, ("Accept-Ranges", "bytes")), (0, 999, 1000), "5-"),
    (206, rest("10-999/1000"), (10, 999, 1000), "15-"),
    (206, rest("10-99/1000"), (10, 99, 1000), "15-99"),
    (206, rest("10-99/*"), (10, 99, None), "15-99"),
    (206, rest("0-999/1000"), (0, 999, 1000), "5-"),
])  # fmt: skip
def test_what_a_download_is_and_what_is_asked_for(status, lines, expected, wanted):
    """Its place in the representation; from the first missing byte to the end of what was sent."""
    download = downloaded(status, lines)
    assert (download.first, download.last, download.complete) == expected
    assert download.fields(5) == (("Range", f"bytes={wanted}"), ("If-Range", TAG))


@pytest.mark.parametrize(("status", "lines"), [
    (203, WHOLE), (404, WHOLE), (200, (("Content-Length", "1000"),)),
    (200, (*WHOLE, ("Accept-Ranges", "none"))),
    (200, (*WHOLE, ("Accept-Ranges", "lines, None"))),
    (200, (("Content-Length", "5, 6"), TAGGED)), (200, (("Content-Length", "+5"), TAGGED)),
    (200, (("Content-Length", "9" * 19), TAGGED)), (206, (TAGGED,)),
    (206, (("Content-Range", "lines 10-99/1000"), TAGGED)),
    (206, rest("10-99/1000", ("Content-Length", "91"))),
    (206, rest("10-99/1000", ("Content-Type", "multipart/byteranges; boundary=x"))),
])  # fmt: skip
def test_what_cannot_be_resumed(status, lines):
    """Only a GET answered with 200, or with one part of a known place, and a validator."""
    assert downloaded(status, lines) is None
    assert downloaded(method="HEAD") is downloaded(method="POST") is None


@pytest.mark.parametrize(("lines", "validator"), [
    *(((("ETag", tag),), tag) for tag in ('"a"', '""', '"!~"')),
    *(((("ETag", tag),), None) for tag in ('W/"a"', "a", '"', '"a"b"', '"a b"', '"\xe9"')),
    ((("ETag", '"a"'), ("Last-Modified", NOON), ("Date", NOON)), '"a"'),
    ((("ETag", 'W/"a"'), ("Last-Modified", NOON), ("Date", NOON_AND_1)), None),
    ((("ETag", '"a"'), ("ETag", '"b"')), None),
    # 8.8.2.2: "a Date value which is at least one second after the Last-Modified value"
    ((("Last-Modified", NOON), ("Date", NOON_AND_1)), NOON),
    ((("Last-Modified", NOON), ("Date", NOON)), None),
    ((("Last-Modified", NOON_AND_1), ("Date", NOON)), None), ((("Last-Modified", NOON),), None),
    ((("Last-Modified", NOON), ("Date", NOON_AND_1), ("Date", NOON_AND_1)), None),
    ((("Last-Modified", "yesterday"), ("Date", NOON)), None),
    ((("Last-Modified", "Fri, 20 Nov 2026 25:00:00 GMT"), ("Date", NOON)), None),
    ((("Last-Modified", "Friday, 20-Nov-26 12:00:00 GMT"), ("Date", NOON_AND_1)), None),
])  # fmt: skip
def test_only_a_strong_validator_is_sent(lines, validator):
    """13.1.5: no weak tag; the exact string of a date only if it is strong and there is no tag."""
    download = downloaded(lines=(*lines, ("Content-Length", "1000")))
    assert (download and dict(download.fields(10))["If-Range"]) == validator


@pytest.mark.parametrize(("lines", "received", "missing"), [
    (WHOLE, 0, 1000), (WHOLE, 1000, 0), (WHOLE, 1001, -1),
    ((("Content-Length", "0"), TAGGED), 0, 0), ((TAGGED,), 5, None),
])  # fmt: skip
def test_what_is_missing(lines, received, missing):
    assert downloaded(lines=lines).missing(received) == missing


@pytest.mark.parametrize("lines", [
    rest("400-999/1000"), rest("400-999/1000", ("Content-Length", "600")),
    rest("400-999/*"),  # 14.4: the first response has said how long it is
    (("Content-Range", "BYTES 400-999/1000"), TAGGED, ("Content-Encoding", "identity")),
    rest("400-999/1000", ("Transfer-Encoding", "chunked")),
    tuple((n.encode(), v.encode()) for n, v in rest("400-999/1000")),
])  # fmt: skip
def test_the_rest_is_recognised(lines):
    """206 with the range that was asked for, of the same length, under the same validator."""
    assert downloaded().fits(400, 206, lines)


@pytest.mark.parametrize(("status", "lines"), [
    (200, (*WHOLE,)), (200, rest("400-999/1000")), (304, rest("400-999/1000")), (404, ()),
    # 14.4: complete must exceed last
    *((206, rest(told)) for told in (
        "401-999/1000", "399-999/1000", "0-999/1000", "400-998/1000", "400-1000/1001",
        "400-999/1001", "400-899/900", "400-998/*", "400-999/999", "400-399/1000", "*/1000",
        "400-999", "4e2-999/1000")),
    *((206, (("Content-Range", told), TAGGED)) for told in (
        "bytes=400-999/1000", "items 400-999/1000")),
    (206, (TAGGED,)), (206, (("Content-Range", "bytes 400-999/1000"),)),
    *((206, rest("400-999/1000", tag=tag)) for tag in ('"v2"', 'W/"v1"')),
    *((206, rest("400-999/1000", line)) for line in (
        ("Content-Range", "bytes 400-999/1000"), ("ETag", '"v2"'), ("Content-Length", "599"),
        ("Content-Length", "six"), ("Content-Encoding", "gzip"),
        ("Content-Type", "multipart/byteranges"))),
    (416, (("Content-Range", "bytes */400"),)),  # says what was received, but not of what
    (416, (("Content-Range", "bytes 0-399/400"),)),
])  # fmt: skip
def test_anything_else_is_not_the_rest(status, lines):
    """What was handed over cannot be taken back: one thing that does not fit is enough."""
    download = downloaded()
    assert not download.fits(400, status, lines)
    assert (download.last, download.complete) == (999, 1000)


def test_a_download_of_unknown_length_learns_it() -> None:
    """The first part tells where the end is, and every later one must tell the same."""
    download = downloaded(lines=(TAGGED,))
    for received, told, fits in (
        (400, "400-899/1000", False),  # not to the end
        (400, "400-999/*", False),  # not known to be the end
        (400, "400-999/1000", True), (400, "400-999/*", True),
        (500, "500-1000/1001", False), (500, "500-999/1000", True),
    ):  # fmt: skip
        assert download.fits(received, 206, rest(told)) is fits
    assert (download.missing(400), download.complete) == (600, 1000)


values = st.text(st.characters(max_codepoint=255), max_size=24) | st.sampled_from(
    [TAG, 'W/"v1"', NOON, "bytes", "none", "bytes 4-9/10", "bytes */10", "gzip", "10", "0-9", "*/*"]
)
names = st.sampled_from([
    "ETag", "Content-Range", "Content-Length", "Content-Encoding", "Last-Modified", "Date",
    "Accept-Ranges",
])  # fmt: skip
header_lines = st.lists(st.tuples(names, values), max_size=6)


@given(
    header_lines, st.sampled_from([200, 206]), st.integers(0, 10**6), header_lines,
    st.sampled_from([200, 206, 416, 503]),
)  # fmt: skip
def test_nothing_a_server_says_crashes_it(first, status, received, second, answer):
    download = download_of("GET", status, first)
    if download is not None:
        assert download.fits(received, answer, second) in (True, False)
        assert all(value.isascii() for _, value in download.fields(received))


offsets = st.integers(-3, 3)


@given(
    st.integers(0, 50), st.integers(1, 50), st.integers(0, 50), st.integers(0, 49),
    offsets, offsets, offsets,
)  # fmt: skip
def test_only_the_very_bytes_that_are_missing_continue(
    first, length, beyond, received, shift, cut, grown
):
    """An answer continues exactly if it is [first + received, last] of the same whole."""
    last, complete = first + length - 1, first + length + beyond
    told = rest(f"{first}-{last}/{complete}")
    download = downloaded(206, told)
    told = rest(f"{first + received + shift}-{last - cut}/{complete + grown}")
    is_rest = (shift, cut, grown) == (0, 0, 0) and received < length
    assert download.fits(received, 206, told) == is_rest
