"""Resume: continue a broken download from its first missing byte.

Two questions. Can the body of a response to a GET be requested in parts, and by which validator? Is
the response to such a request the rest of the very same bytes? Knows header lines and counts bytes
as they came over the wire, before any Content-Encoding is undone; reads no body, and sends nothing.

Stricter than a cache has to be, because bytes that have been handed over cannot be taken back: a
response that does not prove in full that it fits counts as another representation. Not even a 200
that repeats the validator is continued with.

Sources: RFC 9110 section 14 (ranges), 13.1.5 (If-Range), 8.8 (validators), 15.3.7.3 (combining
parts: "only if they all share the same strong validator"), 15.5.17 (416).
"""

from __future__ import annotations

from enum import Enum

from .dates import parse_http_date
from .fields import OWS, Names, collect, is_digits, members

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from .fields import Found, Line

_REQUEST_FIELDS = Names(("range",))
_ABOUT_RANGES = ("accept-ranges", "content-range", "date", "etag", "last-modified")
_ABOUT_BODY = ("content-encoding", "content-length", "content-type")
_RESPONSE_FIELDS = Names((*_ABOUT_RANGES, *_ABOUT_BODY, "transfer-encoding"))
# What a header section says of its body (RFC 9110 section 8), and of which part or page it is.
_PAGE = ("content-language", "content-location", "content-range", "link")
_DESCRIBED = Names((*_ABOUT_BODY, *_PAGE, "etag", "last-modified"))
_MOST_DIGITS = 18  # of a position; 10**18 bytes are beyond every file system
_IMF_FIXDATE = 29  # characters of the form that "a sender MUST generate" (section 5.6.7)


class Part(Enum):
    """How the response to a request for the rest fits the download."""

    CONTINUES = "continues"  # its body continues where the download broke off
    COMPLETE = "complete"  # only the end was missing, so the body is read no further
    OTHER = "other"  # anything else: the error that broke the download stands


class Download:
    """One representation, or the requested part of it, on its way to the caller.

    One per call, not shared between threads. ``received`` is everywhere the number of raw bytes of
    the body that the caller was given so far.

    Attributes:
        first: Position of the body's first byte in the representation.
        last: Position of its last byte; None as long as the server has not said.
        complete: Length of the whole representation; None as long as the server has not said.
        validator: The strong entity tag, or the date it was modified at, exactly as it came.
        coding: The content codings, as one list.
    """

    __slots__ = ("coding", "complete", "first", "last", "validator")
    is_resumed = True  # the request is for a rest

    def __init__(
        self, first: int, last: int | None, complete: int | None, validator: str, coding: str
    ) -> None:
        self.first = first
        self.last = last
        self.complete = complete
        self.validator = validator
        self.coding = coding

    def missing(self, received: int) -> int | None:
        """Return how many bytes are still to come, below 0: there were too many; None: unknown."""
        return None if self.last is None else self.last + 1 - self.first - received

    def fields(self, received: int) -> tuple[tuple[str, str], tuple[str, str]]:
        """Return the lines that request the missing rest; they replace any of the same names."""
        last = self.last
        ends_itself = last is None or (self.complete is not None and last == self.complete - 1)
        asked = f"bytes={self.first + received}-{'' if ends_itself else last}"
        return ("Range", asked), ("If-Range", self.validator)

    def check_part(self, received: int, status: int, lines: Iterable[Line]) -> Part:
        """Judge the response to these fields; learn from it what the server had not said before.

        Args:
            received: Raw bytes that the caller had been given when the rest was requested.
            status: Of the response; one that is retried is not judged here.
            lines: Its field lines, as text or bytes.
        """
        found = collect(lines, _RESPONSE_FIELDS) if status in (206, 416) else {}
        if status == 416:
            return self._judge_unsatisfied(received, found)
        part = _part_of(found)
        if part is None:
            return Part.OTHER
        first, last, complete = part
        if self.last is None and complete != last + 1:
            return Part.OTHER  # the rest was requested to its end, and this may not be all of it
        is_next = first == self.first + received and self.last in (None, last)
        is_same = self._is_same(found) and _coding(found) == self.coding
        if not is_next or not is_same or self.complete not in (None, complete):
            return Part.OTHER
        self.last, self.complete = last, complete
        return Part.CONTINUES

    def _judge_unsatisfied(self, received: int, found: Found) -> Part:
        """Judge a 416: nothing follows, so were the bytes that the caller has the whole of it?

        Few servers send a 416 with a validator, so without one the length decides. The length
        alone proves too little where no byte was received.
        """
        total = self.first + received
        is_whole = total > 0 and _content_range(found) == (None, None, total)
        is_same = "etag" not in found or self._is_same(found)
        is_complete = is_whole and is_same and self.complete in (None, total)
        return Part.COMPLETE if is_complete else Part.OTHER

    def _is_same(self, found: Found) -> bool:
        name = "etag" if self.validator.startswith('"') else "last-modified"
        return found.get(name) == [self.validator]

    def __repr__(self) -> str:
        last = "" if self.last is None else self.last
        return f"<Download {self.first}-{last} of {self.complete or 'unknown'}>"


class Repeat:
    """A small body without a validator: the same request asks for the whole of it again.

    Its reader checks that it begins with the bytes that the caller has, because nothing else shows
    that it is the same body. Attributes as of ``Download``.
    """

    __slots__ = ("_described", "_status")
    first = 0
    complete = None
    is_resumed = True

    def __init__(self, status: int, lines: Iterable[Line]) -> None:
        self._status = status
        self._described = collect(lines, _DESCRIBED)

    def missing(self, received: int) -> None:
        """No length is relied on."""

    def fields(self, received: int) -> tuple[()]:
        """Nothing is added to the request."""
        return ()

    def check_part(self, received: int, status: int, lines: Iterable[Line]) -> Part:
        """Does the second response describe its body as the first one did?"""
        is_same = status == self._status and collect(lines, _DESCRIBED) == self._described
        return Part.CONTINUES if is_same else Part.OTHER


def download_of(
    method: str, asked: Iterable[Line], status: int, lines: Iterable[Line]
) -> Download | None:
    """Return the part of a response that can be resumed; None: nothing.

    Args:
        method: As sent. "This specification only defines GET" for ranges (RFC 9110 section 14.2).
        asked: The field lines of the request, as text or bytes.
        status: Of the response.
        lines: The field lines of the response.
    """
    if method != "GET" or status not in (200, 206):
        return None
    found = collect(lines, _RESPONSE_FIELDS)
    validator = _strong_validator(found)
    if validator is None or _is_multipart(found):
        return None
    if "none" in members(", ".join(found.get("accept-ranges", ())).lower()):
        return None
    if status == 200:
        length = _length(found)
        if length is not None and length < 0:
            return None
        last = None if length is None else length - 1
        return Download(0, last, length, validator, _coding(found))
    part = _part_of(found)
    if part is None or not _is_asked_for(*part, collect(asked, _REQUEST_FIELDS)):
        return None
    return Download(*part, validator, _coding(found))


def _part_of(found: Found) -> tuple[int, int, int | None] | None:
    """First and last position and complete length of the one part that a response contains."""
    first, last, complete = _content_range(found) or (None, None, None)
    if first is None or last is None or _is_multipart(found):
        return None
    return (first, last, complete) if _length(found) in (None, last - first + 1) else None


def _strong_validator(found: Found) -> str | None:
    """The value for If-Range, None if none may be used for it (RFC 9110 section 13.1.5).

    A date counts only where there is no entity tag, not even a weak one. It is strong when the
    response was made at least a second later (8.8.2.2): a body may change twice in one second.
    """
    if "etag" in found:
        tag = _single(found, "etag")
        return tag if _is_strong_tag(tag) else None
    date, made = _single(found, "last-modified"), _single(found, "date")
    if len(date) != _IMF_FIXDATE or len(made) != _IMF_FIXDATE:
        return None
    modified_at, made_at = parse_http_date(date, now=0.0), parse_http_date(made, now=0.0)
    is_strong = modified_at is not None and made_at is not None and made_at >= modified_at + 1
    return date if is_strong else None


def _is_strong_tag(tag: str) -> bool:
    """DQUOTE *etagc DQUOTE, without obs-text, which not every library sends back as it came."""
    inside = tag[1:-1]
    is_quoted = len(tag) >= 2 and tag[0] == tag[-1] == '"' and '"' not in inside
    return is_quoted and all("!" <= char <= "~" for char in inside)


def _is_asked_for(first: int, last: int, complete: int | None, asked: Found) -> bool:
    """Is this part the one that the caller's own single range asked for?"""
    unit, equals, rest = _single(asked, "range").partition("=")
    begin, dash, end = rest.strip(OWS).partition("-")
    if unit.lower() != "bytes" or not equals or not dash:
        return False
    is_to_the_end = complete is not None and last == complete - 1
    if begin == "":  # the last so many bytes, or all if there are fewer
        count = _position(end)
        return count is not None and is_to_the_end and first == max(0, last + 1 - count)
    if _position(begin) != first:
        return False
    if end == "":
        return complete is None or is_to_the_end
    wanted = _position(end)
    return wanted is not None and (last == wanted or (last < wanted and is_to_the_end))


def _content_range(found: Found) -> tuple[int | None, int | None, int | None] | None:
    """First, last and complete of Content-Range (section 14.4); complete alone in a 416."""
    unit, space, rest = _single(found, "content-range").partition(" ")
    places, slash, length = rest.partition("/")
    complete = _position(length)
    if unit.lower() != "bytes" or not space or not slash or (complete is None and length != "*"):
        return None
    if places == "*":
        return None if complete is None else (None, None, complete)
    first, _, last = places.partition("-")
    begin, end = _position(first), _position(last)
    if begin is None or end is None or end < begin or (complete is not None and complete <= end):
        return None
    return begin, end, complete


def _length(found: Found) -> int | None:
    """Content-Length, -1 if it cannot be relied on; None if the framing is another one."""
    if "transfer-encoding" in found:
        return None
    lines = found.get("content-length", ())
    values = {member.strip(OWS) for line in lines for member in line.split(",")}
    if not values:
        return None
    length = _position(values.pop())
    return -1 if length is None or values else length


def _coding(found: Found) -> str:
    codings = members(", ".join(found.get("content-encoding", ())).lower())
    return ", ".join(coding for coding in codings if coding != "identity")


def _is_multipart(found: Found) -> bool:
    types = found.get("content-type", ())
    return any(value.lower().startswith("multipart/byteranges") for value in types)


def _single(found: Found, name: str) -> str:
    values = found.get(name, ())
    return values[0] if len(values) == 1 else ""


def _position(text: str) -> int | None:
    return int(text) if is_digits(text) and len(text) <= _MOST_DIGITS else None
