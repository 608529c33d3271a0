"""Header fields: the header lines of a response, the grammars that they share, the server's clock.

The meaning of a field belongs to hints.py, quota.py and ranges.py; dates are read in dates.py, and
structured fields in structured.py. Python's own parsers accept more than the grammar (``int`` takes
``1_000`` and ``١٢٠``, ``float`` ``1e3`` and ``nan``, ``str.strip`` removes NBSP), so text is
checked here before it is converted.

Sources: RFC 9110 §5.1 (names), §5.3 (several lines), §5.5 and §5.6.3 (OWS), §5.6.1.2 (empty
members) and §6.6.1 (Date); RFC 9111 §5.1, §4.2.3 and §1.2.2 (Age).
"""

from __future__ import annotations

from functools import cached_property

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import TypeAlias

    Line: TypeAlias = tuple[str, str] | tuple[bytes, bytes]
    Found: TypeAlias = dict[str, list[str]]


OWS = " \t"  # optional whitespace is nothing else (RFC 9110 §5.6.3)

_DIGITS = "0123456789"
# Digits that can matter: 10**30 nanoseconds exceed every limit; a fraction is cut after as many.
_LONGEST = 30


# Lower-case header names.
Names = frozenset[str]


def as_text(part: object) -> str:
    """A name or a value as text; libraries take and give both."""
    return part.decode("latin-1") if isinstance(part, bytes) else str(part)


def collect(lines: Iterable[Line], names: Names) -> Found:
    """Return the trimmed values of the lines called one of ``names``, in wire order, by name."""
    found: Found = {}
    for name, value in lines:
        known = as_text(name).lower()
        # The Kelvin sign lowers to "k", and is no letter of a header name.
        if known in names and name.isascii():
            found.setdefault(known, []).append(as_text(value).strip(OWS))
    return found


# As streams of events core/event_streams.py reads these.
SSE = "text/event-stream"
JSON_LINES = frozenset({"application/x-ndjson", "application/jsonl"})
FRAMES = "application/vnd.amazon.eventstream"
EVENT_TYPES = frozenset({SSE, FRAMES, *JSON_LINES})
_CONTENT_TYPE = Names(("content-type",))


def media_type(lines: Iterable[Line]) -> str:
    """Return the media type that header lines declare, in lower case; empty if there is none."""
    found = collect(lines, _CONTENT_TYPE).get("content-type", ())
    return ", ".join(found).partition(";")[0].strip().lower()


def begins_events(status: int, lines: Iterable[Line]) -> bool:
    """Does a response begin a stream of events?"""
    return status == 200 and media_type(lines) in EVENT_TYPES


def members(text: str) -> list[str]:
    """Return the comma-separated members, trimmed, without empty ones."""
    return [member for part in text.split(",") if (member := part.strip(OWS))]


def number(text: str) -> float | None:
    """Return the value of ``1*DIGIT [ "." 1*DIGIT ]``, infinite if beyond all use; None for any
    other text.
    """
    if is_digits(text) and len(text) <= _LONGEST:
        return float(text)
    whole, point, fraction = text.partition(".")
    if not is_digits(whole) or (point and not is_digits(fraction)):
        return None
    whole = whole.lstrip("0") or "0"
    return float(f"{whole}.{fraction[:_LONGEST]}") if len(whole) <= _LONGEST else float("inf")


def is_digits(text: str) -> bool:
    """Whether ``text`` is one or more of 0-9; ``str.isdigit`` also accepts digits like ²."""
    return text != "" and not text.strip(_DIGITS)


FOREVER = 2147483648.0  # seconds; what a duration too long to represent becomes (RFC 9111 §1.2.2)

_CLOCK_FIELDS = Names(("date", "age"))
_FIRST, _LAST = -62135596800.0, 253402300799.0  # of the years 1 to 9999


class Clock:
    """The server's time when its response arrived, worked out on first use.

    It is the server's own Date plus the Age that the response spent in caches, so a wrong clock on
    either side does not stretch or void a wait; the client's ``now``, in Unix seconds or as a
    function that returns them, where there is no single good Date.
    """

    def __init__(self, lines: Sequence[Line], now: float | Callable[[], float]) -> None:
        self._lines = lines
        self._now = now

    def utc(self) -> float:
        """Unix seconds on the clock that the server's absolute times refer to."""
        return self._times[0]

    def age(self) -> float:
        """Seconds the response has been in caches; 0 if it does not say, or not validly."""
        return self._times[1]

    @cached_property
    def _times(self) -> tuple[float, float]:
        fields = collect(self._lines, _CLOCK_FIELDS)
        age = _age(", ".join(fields.get("age", ())))
        now = self._now() if callable(self._now) else self._now
        utc = max(_FIRST, min(_LAST, now))  # finite whatever came in
        dates = set(fields.get("date", ()))
        if len(dates) == 1:
            from .dates import parse_http_date

            sent_at = parse_http_date(dates.pop(), now=utc)
            if sent_at is not None:
                utc = min(_LAST, sent_at + age)
        return utc, age


def _age(text: str) -> float:
    """Delta-seconds; of a list the first member, as RFC 9111 §5.1 advises caches."""
    first = members(text)[:1]
    return min(number(first[0]) or 0.0, FOREVER) if first and is_digits(first[0]) else 0.0
