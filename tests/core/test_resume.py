"""What can be resumed, what is asked for, and which answers are the rest of the same bytes.

Expected values follow from RFC 9110: 8.8.2.2 and 13.1.5 (validators), 14.1.2 and 14.4 (ranges),
15.3.7 (206), 15.5.17 (416). Positions count from 0, so a body of 1000 bytes ends at 999.
"""

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


@pytest.mark.parametrize(("status", "lines", "asked", "expected"), [
    (200, WHOLE, (), (0, 999, 1000)), (200, (("ETag", TAG),), (), (0, None, None)),
    (200, (("Transfer-Encoding", "chunked"), ("Content-Length", "7"), ("ETag", TAG)), (), (0,
        None, None)),
    (200, (("Content-Length", "5, 5"), ("ETag", TAG)), (), (0, 4, 5)),
    (200, WHOLE, (("Range", "bytes=10-"),), (0, 999, 1000)),
    (200, (*WHOLE, ("Accept-Ranges", "bytes")), (), (0, 999, 1000)),
    (206, rest("bytes 10-999/1000"), (("Range", "bytes=10-"),), (10, 999, 1000)),
    (206, rest("bytes 10-99/1000"), (("range", "bytes=10-99"),), (10, 99, 1000)),
    (206, rest("bytes 10-99/*"), (("range", "bytes=10-99"),), (10, 99, None)),
    (206, rest("bytes 10-999/1000"), (("Range", "bytes=10-5000"),), (10, 999, 1000)),
    (206, rest("bytes 900-999/1000"), (("Range", "bytes=-100"),), (900, 999, 1000)),
    (206, rest("bytes 0-999/1000"), (("Range", "Bytes=-5000"),), (0, 999, 1000)),
])  # fmt: skip
def test_what_a_download_is(status, lines, asked, expected):
    """Where the body begins and ends in the representation, and how long that is."""
    download = a_download(status, lines, asked)
    assert (download.first, download.last, download.complete) == expected


@pytest.mark.parametrize(("status", "lines", "asked", "method"), [
    (200, WHOLE, (), "HEAD"), (200, WHOLE, (), "POST"), (203, WHOLE, (), "GET"),
    (404, WHOLE, (), "GET"), (200, (("Content-Length", "1000"),), (), "GET"),
    (200, (*WHOLE, ("Accept-Ranges", "none")), (), "GET"),
    (200, (*WHOLE, ("Accept-Ranges", "lines, None")), (), "GET"),
    (200, (("Content-Length", "5, 6"), ("ETag", TAG)), (), "GET"),
    (200, (("Content-Length", "+5"), ("ETag", TAG)), (), "GET"),
    (200, (("Content-Length", "9" * 19), ("ETag", TAG)), (), "GET"),
    (206, rest("bytes 10-999/1000"), (), "GET"),
    (206, (("ETag", TAG),), (("Range", "bytes=10-"),), "GET"),
    (206, rest("bytes 0-9/1000"), (("Range", "bytes=0-9,20-29"),), "GET"),
    (206, rest("bytes 10-999/1000"), (("Range", "bytes=9-"),), "GET"),
    (206, rest("bytes 10-998/1000"), (("Range", "bytes=10-"),), "GET"),
    (206, rest("bytes 10-100/1000"), (("Range", "bytes=10-99"),), "GET"),
    (206, rest("bytes 10-98/1000"), (("Range", "bytes=10-99"),), "GET"),
    (206, rest("bytes 10-98/*"), (("Range", "bytes=10-99"),), "GET"),
    (206, rest("bytes 901-999/1000"), (("Range", "bytes=-100"),), "GET"),
    (206, rest("bytes 900-999/*"), (("Range", "bytes=-100"),), "GET"),
    (206, rest("bytes 900-999/1000"), (("Range", "bytes=-"),), "GET"),
    (206, rest("lines 10-99/1000"), (("Range", "lines=10-99"),), "GET"),
    (206, rest("bytes 10-99/1000", ("Content-Length", "91")), (("Range", "bytes=10-99"),),
        "GET"),
    (206, rest("bytes 10-99/1000", ("Content-Type", "multipart/byteranges; boundary=x")),
        (("Range", "bytes=10-99"),), "GET"),
])  # fmt: skip
def test_what_cannot_be_resumed(status, lines, asked, method):
    """Only a GET answered with 200, or with the one part that it asked for, and a validator."""
    assert downloaded(status, lines, asked, method) is None


@pytest.mark.parametrize(("lines", "validator"), [
    ((("ETag", '"a"'),), '"a"'), ((("ETag", '""'),), '""'), ((("ETag", '"!~"'),), '"!~"'),
    ((("ETag", '"a"'), ("Last-Modified", NOON), ("Date", NOON)), '"a"'),
    ((("ETag", 'W/"a"'),), None),
    ((("ETag", 'W/"a"'), ("Last-Modified", NOON), ("Date", NOON_AND_1)), None),
    ((("ETag", "a"),), None), ((("ETag", '"'),), None), ((("ETag", '"a"b"'),), None),
    ((("ETag", '"a b"'),), None), ((("ETag", '"\xe9"'),), None),
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
    """13.1.5: no weak tag, and a date only if there is no tag and it is strong; then the exact
    string.
    """
    download = downloaded(lines=(*lines, ("Content-Length", "1000")))
    assert (download and dict(download.fields(10))["If-Range"]) == validator


@pytest.mark.parametrize(("status", "lines", "asked", "received", "wanted"), [
    (200, WHOLE, (), 0, "bytes=0-"), (200, WHOLE, (), 999, "bytes=999-"),
    (200, (("ETag", TAG),), (), 17, "bytes=17-"),
    (206, rest("bytes 10-99/1000"), (("Range", "bytes=10-99"),), 5, "bytes=15-99"),
    (206, rest("bytes 10-99/*"), (("Range", "bytes=10-99"),), 5, "bytes=15-99"),
    (206, rest("bytes 10-999/1000"), (("Range", "bytes=10-"),), 5, "bytes=15-"),
    (206, rest("bytes 900-999/1000"), (("Range", "bytes=-100"),), 5, "bytes=905-"),
])  # fmt: skip
def test_what_is_asked_for(status, lines, asked, received, wanted):
    """From the first missing byte to the end of what the caller asked for."""
    assert a_download(status, lines, asked).fields(received) == (
        ("Range", wanted),
        ("If-Range", TAG),
    )


@pytest.mark.parametrize(("lines", "received", "missing"), [
    (WHOLE, 0, 1000), (WHOLE, 1000, 0), (WHOLE, 1001, -1),
    ((("Content-Length", "0"), ("ETag", TAG)), 0, 0), ((("ETag", TAG),), 5, None),
])  # fmt: skip
def test_what_is_missing(lines, received, missing):
    assert a_download(lines=lines).missing(received) == missing


@pytest.mark.parametrize("lines", [
    rest("bytes 400-999/1000"), rest("bytes 400-999/1000", ("Content-Length", "600")),
    rest("bytes 400-999/*"),  # 14.4: the first response has said how long it is
    rest("BYTES 400-999/1000", ("Content-Encoding", "identity")),
    rest("bytes 400-999/1000", ("Transfer-Encoding", "chunked")),
    tuple((n.encode(), v.encode()) for n, v in rest("bytes 400-999/1000")),
])  # fmt: skip
def test_the_rest_is_recognised(lines):
    """206 with the range that was asked for, of the same length, under the same validator."""
    assert a_download().check_part(400, 206, lines) is Part.CONTINUES


@pytest.mark.parametrize(("status", "lines"), [
    (200, (*WHOLE,)), (200, rest("bytes 400-999/1000")), (304, rest("bytes 400-999/1000")),
    (404, ()), (206, rest("bytes 401-999/1000")), (206, rest("bytes 399-999/1000")),
    (206, rest("bytes 0-999/1000")), (206, rest("bytes 400-998/1000")),
    (206, rest("bytes 400-1000/1001")), (206, rest("bytes 400-999/1001")),
    (206, rest("bytes 400-899/900")), (206, rest("bytes 400-998/*")),
    (206, rest("bytes 400-999/999")),  # 14.4: complete must exceed last
    (206, rest("bytes 400-399/1000")), (206, rest("bytes */1000")),
    (206, rest("bytes 400-999")), (206, rest("bytes=400-999/1000")),
    (206, rest("items 400-999/1000")), (206, rest("bytes 4e2-999/1000")),
    (206, rest("bytes 400-999/1000", ("Content-Range", "bytes 400-999/1000"))),
    (206, (("ETag", TAG),)), (206, (("Content-Range", "bytes 400-999/1000"),)),
    (206, rest("bytes 400-999/1000", tag='"v2"')),
    (206, rest("bytes 400-999/1000", tag='W/"v1"')),
    (206, rest("bytes 400-999/1000", ("ETag", '"v2"'))),
    (206, rest("bytes 400-999/1000", ("Content-Length", "599"))),
    (206, rest("bytes 400-999/1000", ("Content-Length", "six"))),
    (206, rest("bytes 400-999/1000", ("Content-Encoding", "gzip"))),
    (206, rest("bytes 400-999/1000", ("Content-Type", "multipart/byteranges"))), (416, ()),
    (416, (("Content-Range", "bytes */1000"),)),  # 600 are missing
    (416, (("Content-Range", "bytes */400"),)), (416, (("Content-Range", "bytes 0-399/400"),)),
])  # fmt: skip
def test_anything_else_is_not_the_rest(status, lines):
    """What was handed over cannot be taken back: one thing that does not fit is enough."""
    download = a_download()
    assert download.check_part(400, status, lines) is Part.OTHER
    assert (download.last, download.complete) == (999, 1000)


def test_a_download_of_unknown_length_learns_it() -> None:
    """The first part tells where the end is, and every later one must tell the same."""
    download = a_download(lines=(("ETag", TAG),))
    assert download.check_part(400, 206, rest("bytes 400-899/1000")) is Part.OTHER  # not to the end
    assert (
        download.check_part(400, 206, rest("bytes 400-999/*")) is Part.OTHER
    )  # not known to be the end
    assert download.check_part(400, 206, rest("bytes 400-999/1000")) is Part.CONTINUES
    assert download.missing(400) == 600
    assert download.check_part(400, 206, rest("bytes 400-999/*")) is Part.CONTINUES
    assert download.complete == 1000
    assert download.check_part(500, 206, rest("bytes 500-1000/1001")) is Part.OTHER
    assert download.check_part(500, 206, rest("bytes 500-999/1000")) is Part.CONTINUES


def test_nothing_but_the_end_was_missing() -> None:
    """15.5.17: 416 tells the current length; if that is what was given, nothing is missing."""
    chunked = a_download(lines=(("ETag", TAG),))
    assert chunked.check_part(1000, 416, (("Content-Range", "bytes */1000"),)) is Part.COMPLETE
    assert chunked.check_part(999, 416, (("Content-Range", "bytes */1000"),)) is Part.OTHER
    assert a_download().check_part(1000, 416, (("Content-Range", "bytes */1000"),)) is Part.COMPLETE
    assert chunked.check_part(1000, 416, rest("bytes */1000")) is Part.COMPLETE
    assert chunked.check_part(1000, 416, rest("bytes */1000", tag='"v2"')) is Part.OTHER
    assert chunked.check_part(0, 416, (("Content-Range", "bytes */0"),)) is Part.OTHER


def test_a_download_shows_no_header_value() -> None:
    assert repr(a_download()) == "<Download 0-999 of 1000>"
    assert repr(a_download(lines=(("ETag", TAG),))) == "<Download 0- of unknown>"


values = st.text(st.characters(max_codepoint=255), max_size=24) | st.sampled_from(
    [TAG, 'W/"v1"', NOON, "bytes", "none", "bytes 4-9/10", "bytes */10", "gzip", "10", "0-9", "*/*"]
)
names = st.sampled_from(
    ["ETag", "Content-Range", "Content-Length", "Content-Encoding", "Last-Modified"]
) | st.sampled_from(["Date", "Accept-Ranges"])
header_lines = st.lists(st.tuples(names, values), max_size=6)


@given(
    asked=st.lists(st.tuples(st.just("Range"), values), max_size=2),
    first=header_lines,
    status=st.sampled_from([200, 206]),
    received=st.integers(0, 10**6),
    second=header_lines,
    answer=st.sampled_from([200, 206, 416, 503]),
)
def test_nothing_a_server_says_crashes_it(asked, first, status, received, second, answer):
    download = download_of("GET", asked, status, first)
    if download is not None:
        assert download.check_part(received, answer, second) in Part
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
def test_only_the_very_bytes_that_are_missing_continue(
    first: int, length: int, beyond: int, received: int, shift: int, cut: int, grown: int
) -> None:
    """An answer continues exactly if it is [first + received, last] of the same whole."""
    last, complete = first + length - 1, first + length + beyond
    asked = (("Range", f"bytes={first}-{last}"),)
    download = a_download(206, rest(f"bytes {first}-{last}/{complete}"), asked)
    offset = first + received + shift
    told = rest(f"bytes {offset}-{last - cut}/{complete + grown}")
    is_rest = (shift, cut, grown) == (0, 0, 0) and received < length
    assert (download.check_part(received, 206, told) is Part.CONTINUES) == is_rest
