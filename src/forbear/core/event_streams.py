"""Event streams: where their events end, and how a broken one is requested again. No I/O.

Three formats, chosen by the media type. Server-sent events are ended by a blank line, JSON lines by
a line feed, and the frames of AWS begin with their length. Whether an event reports an error is
said by the rows of the vendors' table (headers/vendors.py).

Whatever the bytes hold, reading them raises nothing: a stream that is none of its format is handed
over as it came. Each byte is searched once, and at most ``max_event_bytes`` are kept.

Sources: WHATWG HTML, "Server-sent events" (9.2.4 last event ID, 9.2.5 fields, 9.2.6
interpretation); github.com/ndjson/ndjson-spec and jsonlines.org; AWS, "Amazon event stream
specification" of smithy.io (prelude of 12 bytes, headers, payload, checksum of 4).
"""

from __future__ import annotations

import re

from .headers.fields import (
    FOREVER,
    FRAMES,
    JSON_LINES,
    SSE,
    Names,
    begins_events,
    collect,
    is_digits,
    media_type,
    number,
)
from .headers.ranges import Part
from .outcome import Failure, FailureKind, Hint, Judged, Phase

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Literal

    from .headers.fields import Line

_CODING = Names(("content-encoding",))
_LINE_END = re.compile(rb"\r\n|\r|\n")
_LINE_FEED = re.compile(rb"\n")
# Atomic, so that CR LF is never taken for two ends.
_EVENT_END = re.compile(rb"(?>\r\n|\r|\n)(?>\r\n|\r|\n)")
_ENDS = (b"\n\n", b"\n\r", b"\r\r")  # the same in a search from the end, but for a last LF
_COMMENTS = re.compile(rb"(?::[^\r\n]*+(?>\r\n|\r|\n))*+")
_ID = re.compile(rb"\nid(?::\x20?([^\n]*))?(?=\n)")
_RETRY = re.compile(rb"\nretry(?::\x20?([^\n]*))?(?=\n)")
_BOM = b"\xef\xbb\xbf"
_PRELUDE = 12  # bytes: length, length of the headers, checksum
_CHECKSUM = 4
# Header values of a frame by their type, with as many bytes as they have; bytes and strings (6, 7)
# say their own length.
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
_BATCH = 16_384  # bytes of events that are searched for their ids at once
_MOST_IDS = 1_000  # that are remembered of a stream


class ErrorEvent(Judged):
    """The first event reports a failure. Stands for what broke the body; never raised.

    Attributes:
        failure: With the status that the vendor gives this error, and its hint.
    """

    def __init__(self, status: int, hint: Hint) -> None:
        super().__init__()
        kind, phase, name = FailureKind.STATUS, Phase.ANSWERED, type(self).__name__
        self.failure = Failure(kind, phase, status, hint, name, flagged=True)


class EventStream:
    """A response that streams events, and how it is requested again. One per call.

    Has the shape of ``Download``: before its first byte the whole of it is requested again, and
    after that what follows the last event, if that has an id.

    Attributes:
        media: Its media type.
        is_coded: It has a content coding, so its bytes say nothing of its events.
        last_id: Of the events handed over; empty: the stream cannot be resumed.
        retry: Seconds before which the server wants no further request; None: it did not say.
        has_new_id: An id came since the stream was requested last that was not known before.
        is_over: The server has said that nothing follows.
    """

    __slots__ = (
        "_ids", "_known", "coding", "has_new_id", "is_coded", "is_over", "last_id", "media",
        "retry",
    )  # fmt: skip
    first = 0
    complete = None
    is_stream: Literal[True] = True

    def __init__(self, media: str, coding: str) -> None:
        self.media, self.coding = media, coding
        self.is_coded = coding not in ("", "identity")
        self.last_id = ""
        self.retry: float | None = None
        self.has_new_id = self.is_over = False
        # Hashes, since an id may be as long as an event: of the first events and of the last ones.
        self._ids: list[int] = []
        self._known: frozenset[int] = frozenset()  # those of earlier responses

    @property
    def is_resumed(self) -> bool:
        """Will the request be for what follows an event? Else it is for the whole stream."""
        return self.last_id != "" and not self.is_over

    def missing(self, received: int) -> None:
        """No length is known."""

    def fields(self, received: int) -> tuple[tuple[str, str], ...]:
        """Return the lines that request what follows; they replace any of the same names."""
        return (("Last-Event-ID", self.last_id),) if self.last_id else ()

    def check_part(self, received: int, status: int, lines: Iterable[Line]) -> Part:
        """Judge the response to these fields: does its body go on where the stream broke?"""
        if status == 204 and self.last_id:  # 9.2.1: tells a client to stop reconnecting
            self.is_over = True
            return Part.COMPLETE
        found = event_stream(status, lines)
        is_same = found is not None and (found.media, found.coding) == (self.media, self.coding)
        return Part.CONTINUES if is_same else Part.OTHER

    def note(self, events: bytes) -> bool:
        """Remember what whole events say about resuming; the last of each field counts.

        Returns:
            False: one of them has the id of an event in an earlier response.
        """
        self.note_retry(events)
        values = [value for value in values_of(_ID, events) if b"\0" not in value]  # as 9.2.6 says
        if not values:
            return True
        ids, found = self._ids, dict.fromkeys(map(hash, filter(None, values)))
        if not self._known.isdisjoint(found) and has_event(events, self._known):
            return False
        for one in found:
            if one not in self._known and ids[-1:] != [one]:
                ids.append(one)
                self.has_new_id = True
        if len(ids) > _MOST_IDS:
            del ids[_MOST_IDS // 2 : -_MOST_IDS // 2]
        last_id = values[-1].decode("latin-1")
        # What no header can carry unchanged cannot be asked for.
        is_plain = last_id.isascii() and last_id.isprintable() and last_id == last_id.strip()
        self.last_id = last_id if is_plain else ""
        return True

    def begin_anew(self) -> None:
        """Another response follows, in which no event of the earlier ones may come again."""
        self._known = frozenset(self._ids)

    def note_retry(self, lines: bytes | bytearray) -> None:
        """Remember the last delay that they ask for, which counts before its event is whole."""
        for value in reversed(values_of(_RETRY, lines)):
            digits = value.decode("latin-1")
            if is_digits(digits):
                self.retry = min((number(digits) or 0.0) / 1000, FOREVER)
                break

    def __repr__(self) -> str:
        return f"<EventStream {self.media}>"


def event_stream(status: int, lines: Iterable[Line]) -> EventStream | None:
    """Return the stream of events that a response begins; None: it is none."""
    known = list(lines)
    if not begins_events(status, known):
        return None
    codings = collect(known, _CODING).get("content-encoding", ())
    return EventStream(media_type(known), ", ".join(codings).lower())


class FirstEvent:
    """Finds the first event at the beginning of a stream.

    Attributes:
        is_there: Wait no longer: it has come, or nothing can be said of this stream.
        error: What it reports, if it is an error event.

    Args:
        media: The media type of the stream.
        most: Bytes that are waited for.
        vendors: Whose error events are known.
    """

    is_there = False
    error: ErrorEvent | None = None

    def __init__(self, media: str, most: int, vendors: Iterable[str]) -> None:
        self._media, self._most, self._vendors = media, most, tuple(vendors)
        self._left = most
        self._found = bytearray()  # from the end of the last event that does not count
        self._seen = 0  # of these, so many were searched
        self._is_first = True

    def feed(self, piece: bytes) -> bool:
        """Take the next bytes; return ``is_there``."""
        self._found += piece
        self._left -= len(piece)  # of what precedes the first event too, since that is kept
        for name, data in self._events():
            if self._counts(name, data):
                break
        else:
            self.is_there = self.is_there or self._left < 0
        return self.is_there

    def end(self) -> bool:
        """The stream has ended; return ``is_there``: its last line may have no end."""
        if not self.is_there and self._media in JSON_LINES:
            self._counts("", bytes(self._found))
        return self.is_there

    def _counts(self, name: str, data: bytes | None) -> bool:
        """Is it an event? Then note what it reports."""
        if data is None or name == "ping" or (self._media in JSON_LINES and not data.strip()):
            return False
        self.is_there = True
        if self._vendors:
            from .headers.vendors import vendor_event

            reported = vendor_event(self._vendors, name, data)
            self.error = None if reported is None else ErrorEvent(*reported)
        return True

    def _events(self) -> Iterator[tuple[str, bytes | None]]:
        found = self._found
        if self._media == FRAMES:
            yield from self._frames()
            return
        end_of_event = _EVENT_END if self._media == SSE else _LINE_FEED
        while (end := end_of_event.search(found, self._seen)) is not None:
            block = bytes(found[: end.start()])
            del found[: end.end()]
            self._seen = 0
            if self._is_first:
                block, self._is_first = block.removeprefix(_BOM), False
            yield sse_event(block) if self._media == SSE else ("", block)
        self._seen = max(0, len(found) - 3)  # an end may have begun

    def _frames(self) -> Iterator[tuple[str, bytes | None]]:
        found = self._found
        while len(found) >= _PRELUDE:
            size = int.from_bytes(found[:4])
            end = _PRELUDE + int.from_bytes(found[4:8])
            if end + _CHECKSUM > size or size > self._most:
                self.is_there = True  # no frame, or too long a one
                return
            if len(found) < size:
                return
            frame = bytes(found[:size])
            del found[:size]
            headers = frame_headers(frame[_PRELUDE:end])
            name = headers.get(":exception-type") or headers.get(":error-code") or ""
            yield name, frame[end:-_CHECKSUM]


def sse_event(block: bytes) -> tuple[str, bytes | None]:
    """Return the name and the data of an event; None: it has no data, so there is no event."""
    name, data = "", []
    for line in _LINE_END.split(block):
        field, _, value = line.partition(b":")
        if field == b"data":
            data.append(value.removeprefix(b" "))
        elif field == b"event":
            name = value.removeprefix(b" ").decode("utf-8", "replace")
    return name, b"\n".join(data) if data else None


def frame_headers(block: bytes) -> dict[str, str]:
    """Return the headers of an AWS frame that are text, as far as they can be read."""
    found: dict[str, str] = {}
    at = 0
    while at < len(block):
        start = at + 1 + block[at]
        name, kind = block[at + 1 : start], block[start : start + 1]
        start += 1
        size = _SIZES.get(kind[0]) if kind else None
        if size is None:
            if kind not in (b"\6", b"\7"):
                break
            size = int.from_bytes(block[start : start + 2])
            start += 2
        at = start + size
        if kind == b"\7":
            found[name.decode("latin-1")] = block[start:at].decode("utf-8", "replace")
    return found


class WholeEvents:
    """Lets only whole events of a stream through, and remembers how to resume it.

    A server that ignores ``Last-Event-ID`` begins anew each time, for ever if it breaks each time.
    So an event that has the id of one in an earlier response ends the stream. In one response
    several may have the same id.

    Attributes:
        fault: Why nothing more is let through; empty: it is.
    """

    fault = ""

    def __init__(self, stream: EventStream, most: int) -> None:
        self._stream, self._most = stream, most
        self._rest = bytearray()  # of an event whose end has not come
        self._passed: list[bytes] = []  # events that are not noted yet
        self._size = 0  # bytes of them
        self._is_first, self._is_resumed = True, False
        self._ends_in_cr = False  # of which the line feed may follow

    @property
    def stream(self) -> EventStream:
        """The stream, which knows the last id of what was let through."""
        self._note_passed()
        self._stream.note_retry(self._rest)
        return self._stream

    def _note_passed(self) -> bool:
        """Return what ``EventStream.note`` says of the events that it has not seen yet."""
        passed, self._passed, self._size = self._passed, [], 0
        return self._stream.note(b"".join(passed))

    def take(self, chunk: bytes) -> bytes:
        """Take the next bytes; return the events that are whole by now, as they came."""
        if self.fault:
            return b""
        if self._rest or len(chunk) > self._most or not chunk.endswith(b"\n\n"):
            chunk = self._whole_in(chunk)
        if not chunk:
            return b""
        events = chunk.removeprefix(_BOM) if self._is_first else chunk
        self._passed.append(events)
        self._size += len(events)
        if (self._is_resumed or self._size > _BATCH) and not self._note_passed():
            self.fault = "the server repeats events, as if it ignored Last-Event-ID"
            return b""
        if self._is_resumed:  # a mark inside a stream would spoil the field behind it
            chunk = events
        self._is_first, self._ends_in_cr = False, chunk.endswith(b"\r")
        return chunk

    def _whole_in(self, chunk: bytes) -> bytes:
        if self._ends_in_cr and not self._rest and chunk.startswith(b"\n"):
            self._ends_in_cr = False
            return b"\n" + self._whole_in(chunk[1:])
        found, seen = self._rest, len(self._rest)
        found += chunk  # not a new object: that would copy an event once for each of its chunks
        if len(found) > self._most:
            end = self._bounded_end(found)
        else:
            end = last_end(found, max(0, seen - 3), len(found))
        whole = bytes(found[:end])
        del found[: None if self.fault else end]
        return whole

    def _bounded_end(self, found: bytearray) -> int:
        """Return where the whole events end, or the first that is too long begins."""
        end, most = 0, self._most
        while len(found) - end > most:
            # A quiet server may send comments alone for days.
            next_end = last_end(found, end, end + most) or after_comments(found, end)
            if next_end == end:
                self.fault = "an event is longer than max_event_bytes of EventStreams"
                return end
            end = next_end
        return last_end(found, end, len(found)) or end

    def left(self) -> bytes:
        """Return what came after the last whole event, once."""
        rest, self._rest = self._rest, bytearray()
        return bytes(rest)

    def begin_anew(self) -> None:
        """Another response follows: forget what came of an event."""
        self.stream.begin_anew()
        self._is_resumed = self._is_resumed or not self._is_first
        self._rest, self._is_first, self._ends_in_cr = bytearray(), True, False


def after_comments(found: bytearray, start: int) -> int:
    """Return where the whole comment lines that begin here end: they belong to no event."""
    match = _COMMENTS.match(found, start)
    return start if match is None else match.end()


def last_end(found: bytearray, start: int, stop: int) -> int:
    """Return where the last whole event between two places ends, 0 if none does."""
    ends = _ENDS if found.find(b"\r", start, stop) >= 0 else _ENDS[:1]
    end = max(found.rfind(each, start, stop) for each in ends) + 2
    if end < 2:
        return 0
    return end + 1 if end < stop and found[end - 1 : end + 1] == b"\r\n" else end


def values_of(field: re.Pattern[bytes], lines: bytes | bytearray) -> list[bytes]:
    """Return the values of a field of server-sent events."""
    if b"\r" in lines:
        lines = lines.replace(b"\r", b"\n")
    return field.findall(b"\n" + lines)


def has_event(events: bytes, known: frozenset[int]) -> bool:
    """Has one of them an id whose hash is known? A block without data is no event."""
    blocks = events.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n\n")
    return any(
        hash(value) in known
        for block in blocks
        if sse_event(block)[1] is not None
        for value in values_of(_ID, block + b"\n")[-1:]
    )
