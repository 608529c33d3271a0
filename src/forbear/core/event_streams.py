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
from .outcome import Failure, FailureKind, Hint, Judged, Phase

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .headers.fields import Line

_CODING = Names(("content-encoding",))
_LINE_END = re.compile(rb"\r\n|\r|\n")
_LINE_FEED = re.compile(rb"\n")
# Atomic, so that CR LF is never taken for two ends.
_EVENT_END = re.compile(rb"(?>\r\n|\r|\n)(?>\r\n|\r|\n)")
_COMMENTS = re.compile(rb"(?::[^\r\n]*+(?>\r\n|\r|\n))*+")
_BOM = b"\xef\xbb\xbf"
_PRELUDE = 12  # bytes: length, length of the headers, checksum
_CHECKSUM = 4
# A header of a frame that is text (7): its name, and the length of its value.
_EXCEPTION = re.compile(rb":(?:exception-type|error-code)\x07(..)", re.DOTALL)
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

    first = 0
    complete = None

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

    def fits(self, received: int, status: int, lines: Iterable[Line]) -> bool:
        """Does the body of a response to these fields go on where the stream broke?"""
        if status == 204 and self.last_id:  # 9.2.1: tells a client to stop reconnecting
            self.is_over = True
            return True
        found = event_stream(status, lines)
        return found is not None and (found.media, found.coding) == (self.media, self.coding)

    def note(self, events: bytes) -> bool:
        """Remember what whole events say about resuming; the last of each field counts.

        Returns:
            False: one of them has the id of an event in an earlier response.
        """
        for block in _EVENT_END.split(events):
            fields = fields_of(_LINE_END.split(block.removeprefix(_BOM)))
            self.note_retry(fields)
            ids = [value for value in fields.get(b"id", ()) if b"\0" not in value]  # as 9.2.6 says
            if not ids:
                continue
            one = hash(ids[-1])
            if one in self._known:
                if b"data" in fields:  # else it is no event
                    return False
            elif ids[-1] and self._ids[-1:] != [one]:
                self._ids.append(one)
                self.has_new_id = True
            last_id = ids[-1].decode("latin-1")
            # What no header can carry unchanged cannot be asked for.
            is_plain = last_id.isascii() and last_id.isprintable() and last_id == last_id.strip()
            self.last_id = last_id if is_plain else ""
        if len(self._ids) > _MOST_IDS:
            del self._ids[_MOST_IDS // 2 : -_MOST_IDS // 2]
        return True

    def note_retry(self, fields: Mapping[bytes, list[bytes]]) -> None:
        """Remember the last delay that they ask for, which counts before its event is whole."""
        for value in fields.get(b"retry", ()):
            digits = value.decode("latin-1")
            if is_digits(digits):
                self.retry = min((number(digits) or 0.0) / 1000, FOREVER)

    def begin_anew(self) -> None:
        """Another response follows, in which no event of the earlier ones may come again."""
        self._known = frozenset(self._ids)


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

    def feed(self, piece: bytes) -> bool:
        """Take the next bytes; return ``is_there``."""
        self._found += piece
        self._left -= len(piece)  # of what precedes the first event too, since that is kept
        read = self._next_frame if self._media == FRAMES else self._next_block
        while not self.is_there and (event := read()) is not None:
            name, data = event
            if data is None or name == "ping":
                continue
            self.is_there = True
            if self._vendors:
                from .headers.vendors import vendor_event

                reported = vendor_event(self._vendors, name, data)
                self.error = None if reported is None else ErrorEvent(*reported)
        self.is_there = self.is_there or self._left < 0
        return self.is_there

    def end(self) -> bool:
        """The stream has ended; return ``is_there``: its last line may have no end."""
        return self.feed(b"\n") if self._media in JSON_LINES else self.is_there

    def _next_block(self) -> tuple[str, bytes | None] | None:
        """Take a whole event: its name, and its data; without data it is none."""
        found = self._found
        end = (_EVENT_END if self._media == SSE else _LINE_FEED).search(found, self._seen)
        if end is None:
            self._seen = max(0, len(found) - 3)  # an end may have begun
            return None
        block = bytes(found[: end.start()]).removeprefix(_BOM)
        del found[: end.end()]
        self._seen = 0
        if self._media != SSE:
            return "", block.strip() or None
        fields = fields_of(_LINE_END.split(block))
        name = fields.get(b"event", [b""])[-1].decode("utf-8", "replace")
        return name, b"\n".join(fields[b"data"]) if b"data" in fields else None

    def _next_frame(self) -> tuple[str, bytes] | None:
        """Take a whole frame: the type of the exception that it reports, and its payload."""
        found = self._found
        if len(found) < _PRELUDE:
            return None
        size = int.from_bytes(found[:4])
        end = _PRELUDE + int.from_bytes(found[4:8])
        if end + _CHECKSUM > size or size > self._most:
            self.is_there = True  # no frame, or too long a one
            return None
        if len(found) < size:
            return None
        frame = bytes(found[:size])
        del found[:size]
        name, header = b"", _EXCEPTION.search(frame, _PRELUDE, end)
        if header is not None:
            name = frame[header.end() : header.end() + int.from_bytes(header[1])]
        return name.decode("utf-8", "replace"), frame[end:-_CHECKSUM]


def fields_of(lines: Iterable[bytes]) -> dict[bytes, list[bytes]]:
    """Return the values of the fields in lines of server-sent events, by name."""
    found: dict[bytes, list[bytes]] = {}
    for line in lines:
        field, _, value = line.partition(b":")
        found.setdefault(field, []).append(value.removeprefix(b" "))
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
        self._is_resumed = False

    @property
    def stream(self) -> EventStream:
        """The stream, which knows the last id of what was let through."""
        lines = _LINE_END.split(self._rest)[:-1]
        self._stream.note_retry(fields_of(map(bytes, lines)))
        return self._stream

    def take(self, chunk: bytes) -> bytes:
        """Take the next bytes; return the events that are whole by now, as they came."""
        if self.fault:
            return b""
        found, seen = self._rest, len(self._rest)
        found += chunk  # not a new object: that would copy an event once for each of its chunks
        end = 0
        for match in _EVENT_END.finditer(found, max(0, seen - 3)):
            end = match.end()
        if len(found) - end > self._most:
            # A quiet server may send comments alone for days: they belong to no event.
            comments = _COMMENTS.match(found, end)
            end = end if comments is None else comments.end()
        events = bytes(found[:end])
        del found[:end]
        if len(found) > self._most:
            self.fault = "an event is longer than max_event_bytes of EventStreams"
        if not self._stream.note(events):
            self.fault = "the server repeats events, as if it ignored Last-Event-ID"
            return b""
        # A mark inside a stream would spoil the field behind it.
        return events.removeprefix(_BOM) if self._is_resumed else events

    def left(self) -> bytes:
        """Return what came after the last whole event, once."""
        rest, self._rest = self._rest, bytearray()
        return bytes(rest)

    def begin_anew(self) -> None:
        """Another response follows: forget what came of an event."""
        self.stream.begin_anew()
        self._is_resumed, self._rest = True, bytearray()
