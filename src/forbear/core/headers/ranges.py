"""Resume: go on with a broken download from its first missing byte. Floor: decides.

From an answer to a GET: can what it brings be asked for in parts, and by which validator? From the
answer to such a part: is it the rest of the very same octets? Knows header lines and counts octets
as they came over the wire, before any Content-Encoding is undone; reads no body, and sends nothing.

Stricter than a cache has to be, because what has been handed over cannot be taken back: whatever
does not say in full that it fits is another representation. Not even a 200 that repeats the
validator is gone on with.

Sources: RFC 9110 section 14 (ranges), 13.1.5 (If-Range), 8.8 (validators), 15.3.7.3 (combining
parts: "only if they all share the same strong validator"), 15.5.17 (416).
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from .dates import parse_http_date
from .fields import OWS, Names, collect, is_digits, members

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from .fields import Line

__all__ = ["REPLACED", "Download", "Part", "download_of"]

# Lower-case names of the lines that ``Download.fields`` puts in place of the caller's.
REPLACED = frozenset({"range", "if-range"})

_ASKED = Names(("range",))
_ANSWERED = Names(
    (
        "accept-ranges",
        "content-encoding",
        "content-length",
        "content-range",
        "content-type",
        "date",
        "etag",
        "last-modified",
        "transfer-encoding",
    )
)
_MOST_DIGITS = 18  # of a position; 10**18 octets are beyond every file system
_IMF_FIXDATE = 29  # characters, and what "a sender MUST generate" (RFC 9110 section 5.6.7)


class Part(Enum):
    """What the answer to a resumption is."""

    CONTINUES = "continues"  # its body goes on where the download broke off
    COMPLETE = "complete"  # nothing was missing but the end: the body is to be read no further
    OTHER = "other"  # anything else: the error that broke the download stands


class ContentRange(NamedTuple):
    """``bytes first-last/complete``; both None in ``bytes */complete``."""

    first: int | None
    last: int | None
    complete: int | None


class Download:
    """One representation, or the part of it that was asked for, on its way to the caller.

    One per call, not shared between threads. ``received`` is everywhere the number of raw octets of
    the body that the caller was given so far.

    Attributes:
        first: Position of the body's first octet in the representation; 0 unless the caller asked
            for a range.
        last: Position of its last one; None as long as the server has not told.
        complete: Length of the whole representation; None as long as the server has not told.
        validator: The strong entity tag, or the date it was modified at, exactly as it came.
        coding: The content codings, as one list.
    """

    __slots__ = ("coding", "complete", "first", "last", "validator")

    def __init__(
        self, first: int, last: int | None, complete: int | None, validator: str, coding: str
    ) -> None:
        self.first = first
        self.last = last
        self.complete = complete
        self.validator = validator
        self.coding = coding

    def missing(self, received: int) -> int | None:
        """How many octets are still to come, below 0 if there were too many; None as long as that
        is unknown.
        """
        return None if self.last is None else self.last + 1 - self.first - received

    def fields(self, received: int) -> tuple[tuple[str, str], tuple[str, str]]:
        """The lines to ask with for what is missing; they replace any of the same names."""
        ends_itself = self.last is None or (
            self.complete is not None and self.last == self.complete - 1
        )
        last = "" if ends_itself else self.last
        return ("Range", f"bytes={self.first + received}-{last}"), ("If-Range", self.validator)

    def judge(self, received: int, status: int, lines: Iterable[Line]) -> Part:
        """Say what an answer to these fields is; learn from it what the server had not told before.

        Args:
            received: Raw octets that the caller was given when it was asked for.
            status: Of the answer; one that is worth another attempt does not come here.
            lines: Its field lines, as text or octets.
        """
        if status not in (206, 416):
            return Part.OTHER
        found = collect(lines, _ANSWERED)
        told = content_range(found.get("content-range", []))
        if told is None:
            return Part.OTHER
        if status == 416:
            return self._judge_unsatisfied(received, told, found)
        if told.first != self.first + received or told.last is None or told.first is None:
            return Part.OTHER
        last = told.last if self.last is None else self.last
        complete = told.complete if self.complete is None else self.complete
        if told.last != last or told.complete != complete:
            return Part.OTHER
        if self.last is None and complete != last + 1:
            return Part.OTHER  # the rest was asked for to its end, and this is not known to be it
        if is_multipart(found) or coding_of(found) != self.coding or not self._is_same(found):
            return Part.OTHER
        length = length_of(found)
        if length is not None and length != told.last - told.first + 1:
            return Part.OTHER
        self.last, self.complete = last, complete
        return Part.CONTINUES

    def _judge_unsatisfied(
        self, received: int, told: ContentRange, found: dict[str, list[str]]
    ) -> Part:
        """Nothing follows, the server says; is what was given the whole of it?

        If-Range asks for the whole of another version in place of a 416, which few send with a
        validator: without one the length is its word. Where nothing came yet that is too little.
        """
        is_whole = told.first is None and told.complete == self.first + received > 0
        if (
            is_whole
            and self.complete in (None, told.complete)
            and ("etag" not in found or self._is_same(found))
        ):
            return Part.COMPLETE
        return Part.OTHER

    def _is_same(self, found: dict[str, list[str]]) -> bool:
        name = "etag" if self.validator.startswith('"') else "last-modified"
        return found.get(name) == [self.validator]

    def __repr__(self) -> str:
        return f"<Download {self.first}-{'' if self.last is None else self.last} of {self.complete or 'unknown'}>"


def download_of(
    method: str, asked: Iterable[Line], status: int, lines: Iterable[Line]
) -> Download | None:
    """Say what can be resumed of an answer; None: nothing.

    Args:
        method: As sent. "This specification only defines GET" for ranges (RFC 9110 section 14.2).
        asked: The field lines of the request, as text or octets.
        status: Of the answer.
        lines: The field lines of the answer.
    """
    if method != "GET" or status not in (200, 206):
        return None
    found = collect(lines, _ANSWERED)
    validator = strong_validator(found)
    if validator is None or is_multipart(found):
        return None
    if "none" in (
        unit.lower() for line in found.get("accept-ranges", ()) for unit in members(line)
    ):
        return None
    length = length_of(found)
    if length is not None and length < 0:
        return None
    if status == 200:
        last = None if length is None else length - 1
        return Download(0, last, length, validator, coding_of(found))
    told = content_range(found.get("content-range", []))
    if told is None or told.first is None or told.last is None:
        return None
    if length is not None and length != told.last - told.first + 1:
        return None
    if not answers(collect(asked, _ASKED).get("range", []), told):
        return None
    return Download(told.first, told.last, told.complete, validator, coding_of(found))


def strong_validator(found: dict[str, list[str]]) -> str | None:
    """The value for If-Range, None if there is none that may be used for it (RFC 9110 section
    13.1.5).

    A date counts only where there is no entity tag, not even a weak one. It is strong by section
    8.8.2.2 when the answer was made at least one second later: within the second of a date a thing
    may change again.
    """
    tags, dates, made = found.get("etag", []), found.get("last-modified", []), found.get("date", [])
    if tags:
        return tags[0] if len(tags) == 1 and is_strong_tag(tags[0]) else None
    if (
        len(dates) != 1
        or len(made) != 1
        or len(dates[0]) != _IMF_FIXDATE
        or len(made[0]) != _IMF_FIXDATE
    ):
        return None
    modified_at, made_at = (parse_http_date(text, now=0.0) for text in (dates[0], made[0]))
    if modified_at is None or made_at is None or made_at < modified_at + 1:
        return None
    return dates[0]


def is_strong_tag(tag: str) -> bool:
    """DQUOTE *etagc DQUOTE, without obs-text, which not every library sends back as it came."""
    inside = tag[1:-1]
    return (
        len(tag) >= 2
        and tag[0] == tag[-1] == '"'
        and '"' not in inside
        and all("!" <= char <= "~" for char in inside)
    )


def answers(ranges: list[str], told: ContentRange) -> bool:
    """Is this part what the caller's own single range asked for?"""
    if len(ranges) != 1 or told.first is None or told.last is None:
        return False
    unit, equals, rest = ranges[0].partition("=")
    first, dash, last = rest.strip(OWS).partition("-")
    if unit.lower() != "bytes" or not equals or not dash:
        return False
    if first == "":  # the last so many octets, or all if there are fewer
        count, complete = position(last), told.complete
        if count is None or complete is None:
            return False
        return told.last == complete - 1 and told.first == max(0, complete - count)
    if position(first) != told.first:
        return False
    if last == "":
        return told.complete is None or told.last == told.complete - 1
    wanted = position(last)
    return wanted is not None and (
        told.last == wanted
        or (told.last < wanted and told.complete is not None and told.last == told.complete - 1)
    )


def content_range(values: list[str]) -> ContentRange | None:
    """Read Content-Range (RFC 9110 section 14.4); None if there is no single valid one."""
    if len(values) != 1:
        return None
    unit, space, rest = values[0].partition(" ")
    places, slash, length = rest.partition("/")
    if unit.lower() != "bytes" or not space or not slash:
        return None
    complete = position(length)
    if complete is None and length != "*":
        return None
    if places == "*":
        return None if complete is None else ContentRange(None, None, complete)
    first, last = (position(text) for text in (places.partition("-")[0], places.partition("-")[2]))
    if first is None or last is None or last < first or (complete is not None and complete <= last):
        return None
    return ContentRange(first, last, complete)


def length_of(found: dict[str, list[str]]) -> int | None:
    """Content-Length, -1 if it is none that can be relied on; None if the framing is another
    one.
    """
    if "transfer-encoding" in found:
        return None
    values = {
        member.strip(OWS) for line in found.get("content-length", ()) for member in line.split(",")
    }
    if not values:
        return None
    length = position(values.pop()) if len(values) == 1 else None
    return -1 if length is None else length


def coding_of(found: dict[str, list[str]]) -> str:
    codings = [
        coding.lower() for line in found.get("content-encoding", ()) for coding in members(line)
    ]
    return ", ".join(coding for coding in codings if coding != "identity")


def is_multipart(found: dict[str, list[str]]) -> bool:
    return any(
        value.lower().startswith("multipart/byteranges") for value in found.get("content-type", ())
    )


def position(text: str) -> int | None:
    return int(text) if is_digits(text) and len(text) <= _MOST_DIGITS else None
