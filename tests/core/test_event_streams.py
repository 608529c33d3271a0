"""Event streams: where events end, what the first one reports, and how a stream is resumed."""

import json
import re
import struct
import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forbear import EventStreams
from forbear.core import event_streams
from forbear.core.event_streams import FRAMES, SSE, EventStream, FirstEvent, WholeEvents
from forbear.core.headers.vendors import VENDORS_WITH_BODY_HINTS
from forbear.core.outcome import NO_HINT, Hint

NO = Hint(None, False, None)
LINES, BOM = "application/x-ndjson", b"\xef\xbb\xbf"
KIND = [("Content-Type", SSE)]


def pieces_of(data: bytes, places: list[int]) -> list[bytes]:
    cuts = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[one:other] for one, other in pairwise(cuts)]


def by_the_letter(data: bytes) -> tuple[bytes, str]:
    """The whole events of a stream and the last ID, read line by line as 9.2.6 says."""
    end, last_id, buffer = 0, "", ""
    for line in re.finditer(rb"([^\r\n]*)(?:\r\n|\r|\n)", data.removeprefix(BOM)):
        field, _, value = line[1].partition(b":")
        if not line[1]:
            end, last_id = line.end() + len(BOM) * data.startswith(BOM), buffer
        elif field == b"id":
            buffer = value.removeprefix(b" ").decode()
    return data[:end], last_id


PARTS = st.sampled_from(
    [b"id: 1", b"id:22", b"id", b"data: \xc3\xa9", b"data", b": c", b"ident: 9", b"x id: 8"]
)
ENDS = st.sampled_from([b"\n", b"\r", b"\r\n", b"\n\n", b"\r\n\r\n", b"\r\r"])
STREAMS = st.lists(st.tuples(PARTS, ENDS).map(b"".join), max_size=12).map(b"".join)


@given(STREAMS, st.booleans(), st.lists(st.integers(0, 200), max_size=8))
def test_only_whole_events_pass_and_their_last_id_is_known(body, has_mark, places):
    """However the bytes are split; a CR LF that is split may leave its LF for the next event."""
    data = BOM * has_mark + body
    whole = WholeEvents(EventStream(SSE, ""), 65_536)
    passed = b"".join(whole.take(piece) for piece in pieces_of(data, places))
    events, last_id = by_the_letter(data)
    assert passed.rstrip(b"\r\n") == events.rstrip(b"\r\n")
    assert data.startswith(passed)
    assert whole.stream.last_id == last_id
    assert passed + whole.left() == data


@pytest.mark.parametrize(("lines", "last_id", "retry"), [
    ("id: 7\ndata: a", "7", None), ("id:  7", "", None), ("id: a b", "a b", None),
    ("id: a\0b", "", None), ("id: \u00e9", "", None), ("id: 1\nid", "", None),
    ("retry: 300", "", 0.3), ("retry: 3s", "", None), ("retry: -3", "", None),
    ("retry: " + "9" * 10, "", 9999999.999), ("retry: " + "9" * 40, "", 2147483648.0),
    ("id: 5\nretry:1500\r\ndata: x", "5", 1.5),
])  # fmt: skip
def test_what_events_say_of_resuming(lines: str, last_id: str, retry: float | None) -> None:
    """An ID that no header can carry unchanged leaves a stream that cannot be resumed."""
    whole = WholeEvents(EventStream(SSE, ""), 100)
    whole.take(lines.encode() + b"\n\n")
    stream = whole.stream
    assert (stream.last_id, stream.retry) == (last_id, retry)
    assert stream.fields(0) == ((("Last-Event-ID", last_id),) if last_id else ())


@pytest.mark.parametrize("size", [1, 7])
def test_an_event_that_is_too_long_ends_where_it_begins(size: int) -> None:
    whole = WholeEvents(EventStream(SSE, ""), 20)
    data = b"data: 1\n\n" + b"data: " + b"x" * 20 + b"\n\ndata: 2\n\n"
    passed = b"".join(whole.take(data[at : at + size]) for at in range(0, len(data), size))
    assert passed == b"data: 1\n\n"
    assert "longer than max_event_bytes" in whole.fault


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_comments_of_a_quiet_server_are_no_long_event(end: bytes) -> None:
    """Sent to keep the connection open, each a line of its own, without a blank line."""
    events = WholeEvents(EventStream(SSE, ""), 50)
    sent = [b": alive" + end] * 30 + [b"id: 7\ndata: 1\n\n"]
    assert b"".join(map(events.take, sent)) == b"".join(sent)
    assert (events.fault, events.stream.last_id) == ("", "7")


def test_a_response_continues_a_stream_of_its_kind_alone() -> None:
    stream = event_streams.event_stream(200, KIND)
    for status, kind, fits in (
        (200, "text/event-stream; charset=utf-8", True),
        (200, "application/json", False), (206, SSE, False), (204, SSE, False),
    ):  # fmt: skip
        assert stream.fits(0, status, [("Content-Type", kind)]) is fits
    assert not stream.fits(0, 200, [*KIND, ("Content-Encoding", "gzip")])
    stream.note(b"id: 1\n\n")
    assert stream.fits(0, 204, [])
    assert stream.is_over
    assert event_streams.event_stream(201, KIND) is None
    assert event_streams.event_stream(200, [("Content-Type", "text/html")]) is None


def first(media: str, data: bytes, *places: int, vendors: tuple[str, ...] = ()) -> FirstEvent:
    found = FirstEvent(media, 65_536, vendors)
    for piece in pieces_of(data, list(places)):
        found.feed(piece)
    return found


@pytest.mark.parametrize(("media", "before", "event"), [
    (SSE, b": c\n\n\r\n: d\r\revent: ping\ndata: {}\n\nid: 1\nretry: 3\n\n", b"data: x\n\n"),
    (SSE, BOM + b"event: ping\r\ndata\r\n\r\n", b"event: a\r\ndata:\n\n"),
    (LINES, b"\n\r\n  \n", b"{}\n"), ("application/jsonl", b"", b"1\r\n"), (FRAMES, b"", b"frame"),
])  # fmt: skip
def test_the_first_event_is_there_with_its_last_byte(media, before, event):
    """Comments, pings and blank lines do not count, wherever the bytes are split."""
    data = before + (frame({":event-type": "chunk"}, b"{}") if event == b"frame" else event)
    for place in range(len(data)):
        found = FirstEvent(media, 65_536, ())
        assert not found.feed(data[:place])
        assert found.feed(data[place:] + b"more"), place
        assert found.error is None


def test_a_last_line_of_json_needs_no_end() -> None:
    assert first(LINES, b"{}").end()
    assert not first(LINES, b" \n").end()
    assert not first(SSE, b"data: x\n").end()


@pytest.mark.parametrize(("media", "data"), [
    (SSE, b"data: " + b"x" * 40), (LINES, b"1" * 41), (FRAMES, b"\0" * 12),
    (FRAMES, b"\xff" * 12), (FRAMES, struct.pack(">III", 41, 0, 0)),
])  # fmt: skip
def test_what_is_too_long_or_none_of_its_format_is_not_waited_for(media: str, data: bytes) -> None:
    found = FirstEvent(media, 40, VENDORS_WITH_BODY_HINTS)
    assert found.feed(data)
    assert found.error is None


@given(st.sampled_from([SSE, LINES, FRAMES]), st.binary(max_size=200))
def test_nothing_that_a_server_sends_raises(media: str, data: bytes) -> None:
    found = first(media, data, 7, 30, vendors=VENDORS_WITH_BODY_HINTS)
    found.end()
    whole = WholeEvents(EventStream(SSE, ""), 50)
    assert data.startswith(whole.take(data))


def frame(headers: dict[str, str], payload: bytes) -> bytes:
    """A frame as smithy.io, "Amazon event stream specification", lays it out."""
    block = b"\x04flag\x00"  # a header of another type before them
    for name, value in headers.items():
        block += struct.pack(">B", len(name)) + name.encode()
        block += struct.pack(">BH", 7, len(value)) + value.encode()
    prelude = struct.pack(">II", 16 + len(block) + len(payload), len(block))
    prelude += struct.pack(">I", zlib.crc32(prelude))
    message = prelude + block + payload
    return message + struct.pack(">I", zlib.crc32(message))


def sse(name: str, data: object) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


RETRY_INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}
A_DAY = {"@type": "google.rpc.QuotaFailure", "violations": [{"quotaId": "RequestsPerDay"}]}
LIMIT = {"details": {"error_code": "enforced_spend_limit_reached"}}


@pytest.mark.parametrize(("vendor", "event", "reported"), [
    *(("anthropic", sse("error", {"type": "error", "error": {"type": kind, **more}}), reported)
        for kind, more, reported in (
            ("overloaded_error", {}, (529, NO_HINT)), ("api_error", {}, (500, NO_HINT)),
            ("rate_limit_error", {}, (429, NO_HINT)), ("rate_limit_error", LIMIT, (429, NO)),
            ("invalid_request_error", {}, None))),
    ("anthropic", sse("message_start", {"type": "message_start"}), None),
    *(("openai", sse("response.failed",
        {"type": "response.failed", "response": {"error": {"code": code}}}), reported)
        for code, reported in (
            ("server_error", (500, NO_HINT)), ("rate_limit_exceeded", (429, NO_HINT)),
            ("rate_limit_error", (429, NO_HINT)), ("rate_limit", (429, NO_HINT)),
            ("insufficient_quota", (429, NO)), ("invalid_prompt", None))),
    ("openai", sse("error", {"type": "error", "code": "server_error"}), (500, NO_HINT)),
    ("openai", sse("", {"error": {"type": "server_error", "code": None}}), (500, NO_HINT)),
    ("openai", sse("", {"choices": [], "code": "server_error"}), None),
    *(("google", sse("", {"error": {"code": code, "status": "S", "details": details}}), reported)
        for code, details, reported in (
            (429, [RETRY_INFO], (429, Hint(7.0, None, "google.rpc.retryinfo"))),
            (503, [], (503, NO_HINT)), (429, [A_DAY, RETRY_INFO], (429, NO)), (400, [], None))),
    ("google", sse("", {"candidates": []}), None),
    *(("bedrock", frame({":message-type": "exception", ":exception-type": kind}, b"{}"), reported)
        for kind, reported in (
            ("throttlingException", (429, NO_HINT)), ("validationException", None),
            ("ModelStreamErrorException", (424, NO_HINT)))),
    ("bedrock", frame({":message-type": "event", ":event-type": "chunk"}, b"{}"), None),
])  # fmt: skip
def test_error_events_of_the_vendors(vendor, event, reported):
    """A retry of the first four types can cure nothing else; a cap ends the call."""
    media = FRAMES if vendor == "bedrock" else SSE
    for place in range(len(event)):
        found = first(media, event, place, vendors=(vendor,))
        failure = found.error and found.error.failure
        assert found.is_there
        if reported is None:
            assert failure is None
        else:
            assert (failure.status, failure.hint, failure.flagged) == (*reported, True)
    others = [name for name in VENDORS_WITH_BODY_HINTS if name != vendor]
    for vendors in [others, ()] if vendor == "bedrock" else [()]:
        assert first(media, event, vendors=tuple(vendors)).error is None


@pytest.mark.parametrize(("options", "error", "message"), [
    ({"first_event_timeout": 0}, ValueError, "more than 0 seconds, got 0; use None"),
    ({"first_event_timeout": "3"}, TypeError, "must be a number of seconds"),
    ({"resume": 1}, TypeError, "resume must be True or False, got 1"),
    ({"max_event_bytes": 0}, ValueError, "must be at least 1, got 0; 65536 is usual"),
    ({"max_event_bytes": 1.5}, TypeError, "must be a whole number"),
])  # fmt: skip
def test_a_wrong_option_says_what_to_write(options, error, message):
    with pytest.raises(error, match=message):
        EventStreams(**options)
