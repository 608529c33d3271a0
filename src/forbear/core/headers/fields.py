"""Header fields: the header lines of a response, the grammars that they share, and dates.

Lines, list members and numbers come first, then the bare items, keys and parameters of structured
fields (RFC 9651), then HTTP-dates, RFC 3339 timestamps and the server's clock. The meaning of a
field belongs to hints.py, quota.py and ranges.py. Python's own parsers accept more than the grammar
(``int`` takes ``1_000`` and ``١٢٠``, ``float`` ``1e3`` and ``nan``, ``str.strip`` removes NBSP), so
text is checked here before it is converted.

Each scanner of a structured field takes the text and the position to start at, follows the
algorithm of RFC 9651 §4.2 step by step, and returns the thing read with the position after it. It
raises ValueError for text that the RFC says fails to parse, and nothing else for any text; every
character is read a bounded number of times. Messages name the position, never the value.

Dates are read more strictly than by ``email.utils``, which guesses at zones and layouts and pivots
two-digit years at 1969, and more widely than by ``datetime``, which rejects second 60; that one
only counts days.

Sources: RFC 9110 §5.1 (names), §5.3 (several lines), §5.5 and §5.6.3 (OWS), §5.6.1.2 (empty
members), §5.6.7 (the three HTTP-dates) and §6.6.1 (Date); RFC 9111 §5.1, §4.2.3 and §1.2.2 (Age);
RFC 9651 §4.2; RFC 3339 §5.6.
"""

from __future__ import annotations

from datetime import date as civil_date

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


class Names:
    """Lower-case header names, for either type that a library may hand over.

    Two dicts, because a look-up of text among bytes is a BytesWarning under ``python -bb``.
    """

    __slots__ = ("lengths", "raw_bytes", "text")

    def __init__(self, names: Iterable[str]) -> None:
        self.text = {name: name for name in names}
        self.raw_bytes = {name.encode(): name for name in self.text}
        self.lengths = frozenset(map(len, self.text))


def collect(lines: Iterable[Line], names: Names) -> Found:
    """Return the trimmed values of the lines called one of ``names``, in wire order, by name."""
    text, raw_bytes, lengths = names.text, names.raw_bytes, names.lengths
    found: Found = {}
    for name, value in lines:
        if len(name) not in lengths:  # most lines end here
            continue
        known = raw_bytes.get(name.lower()) if isinstance(name, bytes) else text.get(name.lower())
        # The Kelvin sign lowers to "k", and is no letter of a header name.
        if known is None or not name.isascii():
            continue
        shown = value.decode("latin-1") if isinstance(value, bytes) else value
        found.setdefault(known, []).append(shown.strip(OWS))
    return found


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


if TYPE_CHECKING:
    from typing import TypeAlias

    Kind: TypeAlias = str  # as §3.3 names it: a Token is no String and a Date no Integer
    Value: TypeAlias = str | int | float | bool | bytes

# Sets, because `"" in "0123"` is true.
_DIGIT = frozenset("0123456789")
_LOWER = frozenset("abcdefghijklmnopqrstuvwxyz")
_LETTERS = _LOWER | frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_KEY_START = _LOWER | {"*"}
_KEY = _LOWER | _DIGIT | frozenset("_-.*")
_TOKEN_START = _LETTERS | {"*"}
_TOKEN = _LETTERS | _DIGIT | frozenset("!#$%&'*+-.^_`|~:/")
_BASE64 = _LETTERS | _DIGIT | frozenset("+/")
_LOWER_HEX = _DIGIT | frozenset("abcdef")


def bare_item(text: str, at: int) -> tuple[Kind, Value, int]:
    """Scan one bare item (§4.2.3.1).

    Returns:
        Its kind, its value and the position after it. A Date is its Unix seconds; a Decimal is a
        float, which holds its 15 digits exactly enough to compare.
    """
    first = text[at : at + 1]
    if first == '"':
        string, at = _string(text, at + 1)
        return "String", string, at
    if first in _DIGIT or first == "-":
        number, at = _number(text, at)
        return ("Integer" if isinstance(number, int) else "Decimal"), number, at
    if first in _TOKEN_START:
        end = run(text, at + 1, _TOKEN)
        return "Token", text[at:end], end
    if first == "?":
        if text[at + 1 : at + 2] not in {"0", "1"}:
            raise ValueError(f"a Boolean is ?0 or ?1, and there is neither at position {at}")
        return "Boolean", text[at + 1] == "1", at + 2
    if first == ":":
        raw_bytes, at = _byte_sequence(text, at + 1)
        return "Byte Sequence", raw_bytes, at
    if first == "@":
        seconds, end = _number(text, at + 1)
        if not isinstance(seconds, int):
            raise ValueError(f"a Date is whole seconds, unlike the Decimal at position {at + 1}")
        return "Date", seconds, end
    if first == "%":
        shown, at = _display_string(text, at + 1)
        return "Display String", shown, at
    found = ascii(first) if first else "nothing"
    raise ValueError(f"no structured-field item begins with {found}, at position {at}")


def parameters(text: str, at: int) -> tuple[dict[str, tuple[Kind, Value]], int]:
    """Scan the parameters that follow an item (§4.2.3.2); there may be none.

    Of equal names the last one counts; a name without a value is Boolean true.
    """
    found: dict[str, tuple[Kind, Value]] = {}
    while text[at : at + 1] == ";":
        name, at = key(text, skip_spaces(text, at + 1))
        found[name] = "Boolean", True
        if text[at : at + 1] == "=":
            kind, value, at = bare_item(text, at + 1)
            found[name] = kind, value
    return found, at


def key(text: str, at: int) -> tuple[str, int]:
    """Scan the name of a parameter or Dictionary member (§4.2.3.3)."""
    if text[at : at + 1] not in _KEY_START:
        raise ValueError(f"a name begins with a-z or *, and there is none at position {at}")
    end = run(text, at + 1, _KEY)
    return text[at:end], end


def skip_spaces(text: str, at: int) -> int:
    """Return the position of the next character that is not SP (a tab is not SP)."""
    return run(text, at, frozenset(" "))


def run(text: str, at: int, allowed: frozenset[str], most: int | None = None) -> int:
    """Return the position of the next character that is not ``allowed``, at most ``most`` on."""
    end = len(text) if most is None else min(len(text), at + most)
    while at < end and text[at] in allowed:
        at += 1
    return at


def _string(text: str, at: int) -> tuple[str, int]:  # §4.2.5; `at` is after the opening quote
    opened = at - 1
    characters: list[str] = []
    while at < len(text):
        character = text[at]
        if character == '"':
            return "".join(characters), at + 1
        if character == "\\":
            at += 1
            character = text[at : at + 1]
            if character not in {'"', "\\"}:
                raise ValueError(f'only " and \\ may follow a backslash, unlike at position {at}')
        elif not " " <= character <= "~":
            raise ValueError(f"a String holds only %x20-7E, got {character!a} at position {at}")
        characters.append(character)
        at += 1
    raise ValueError(f"the String that begins at position {opened} is not closed")


def _number(text: str, at: int) -> tuple[int | float, int]:  # §4.2.4
    start = at
    digits = at + 1 if text[at : at + 1] == "-" else at
    at = run(text, digits, _DIGIT, most=16)  # one more than is legal, to see that it is too long
    whole = at - digits
    if whole == 0:
        raise ValueError(f"a number needs a digit at position {at}")
    if text[at : at + 1] != ".":
        if whole > 15:
            raise ValueError(f"an Integer has at most 15 digits, unlike that at position {start}")
        return int(text[start:at]), at
    fraction = at + 1
    at = run(text, fraction, _DIGIT, most=4)
    if whole > 12 or not 1 <= at - fraction <= 3:
        raise ValueError(
            "a Decimal has 1 to 12 digits before and 1 to 3 after its point,"
            f" unlike that at position {start}"
        )
    return float(text[start:at]), at


def _byte_sequence(text: str, at: int) -> tuple[bytes, int]:  # §4.2.7; `at` is after the colon
    end_of_data = run(text, at, _BASE64)
    end = run(text, end_of_data, frozenset("="))
    length, padding = end_of_data - at, end - end_of_data
    # Missing padding is no fault there (a SHOULD); one lone base64 character encodes nothing.
    is_base64 = length % 4 != 1 and padding <= 2 and (length or not padding)
    if text[end : end + 1] != ":" or not is_base64:
        raise ValueError(f"the Byte Sequence at position {at - 1} is not base64 between colons")
    from binascii import a2b_base64  # only here: hardly any field that we read has one

    return a2b_base64(text[at:end_of_data] + "=" * (-length % 4)), end + 1


def _display_string(text: str, at: int) -> tuple[str, int]:  # §4.2.10; `at` is after the percent
    end = text.find('"', at + 1)
    inside = text[at + 1 : end]
    if text[at : at + 1] != '"' or end < 0 or not all(" " <= char <= "~" for char in inside):
        raise ValueError(f'a Display String is %x20-7E between %" and ", unlike at {at - 1}')
    plain, *escaped = inside.split("%")
    if not all(part[:1] in _LOWER_HEX and part[1:2] in _LOWER_HEX for part in escaped):
        raise ValueError(f"two lower-case hexadecimal digits follow each % after position {at}")
    raw_bytes = plain.encode() + b"".join(bytes.fromhex(p[:2]) + p[2:].encode() for p in escaped)
    try:
        return raw_bytes.decode(), end + 1
    except UnicodeDecodeError:
        raise ValueError(f"the Display String at position {at - 1} is not UTF-8") from None


FOREVER = 2147483648.0  # seconds; what a duration too long to represent becomes (RFC 9111 §1.2.2)

_CLOCK_FIELDS = Names(("date", "age"))
_FAR = 1e12  # seconds either side of 1970; beyond every date that can be written with four digits

_DAY = 86400
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_IMF_DAY_NAMES = frozenset(f"{day[:3]}," for day in _WEEKDAYS)
_RFC850_DAY_NAMES = frozenset(f"{day}," for day in _WEEKDAYS)
_ASCTIME_DAY_NAMES = frozenset(day[:3] for day in _WEEKDAYS)
_SHORT_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTHS = {name: month for month, name in enumerate(_SHORT_NAMES, 1)}
_EPOCH = civil_date(1970, 1, 1).toordinal()
_ERA = 146097  # days of 400 years, after which the calendar repeats
_BAD = -1  # a malformed part: outside every range that the part is then checked against


class Clock:
    """The server's time when its response arrived, worked out on first use.

    It is the server's own Date plus the Age that the response spent in caches, so a wrong clock on
    either side does not stretch or void a wait; the client's ``now``, in Unix seconds or as a
    function that returns them, where there is no single good Date.
    """

    __slots__ = ("_lines", "_now", "_times")

    def __init__(self, lines: Sequence[Line], now: float | Callable[[], float]) -> None:
        self._lines = lines
        self._now = now
        self._times: tuple[float, float] | None = None

    def utc(self) -> float:
        """Unix seconds on the clock that the server's absolute times refer to."""
        return (self._times or self._read())[0]

    def age(self) -> float:
        """Seconds the response has been in caches; 0 if it does not say, or not validly."""
        return (self._times or self._read())[1]

    def _read(self) -> tuple[float, float]:
        fields = collect(self._lines, _CLOCK_FIELDS)
        age = _age(", ".join(fields.get("age", ())))
        now = self._now() if callable(self._now) else self._now
        utc = max(-_FAR, min(_FAR, now))  # finite whatever came in
        dates = set(fields.get("date", ()))
        if len(dates) == 1:
            sent_at = parse_http_date(dates.pop(), now=utc)
            if sent_at is not None:
                utc = sent_at + age
        self._times = utc, age
        return self._times


def _age(text: str) -> float:
    """Delta-seconds; of a list the first member, as RFC 9111 §5.1 advises caches."""
    first = members(text)[:1]
    return min(number(first[0]) or 0.0, FOREVER) if first and is_digits(first[0]) else 0.0


def parse_http_date(text: str, *, now: float) -> float | None:
    """Unix seconds of an IMF-fixdate, rfc850-date or asctime-date; None for anything else.

    Lenient in four things that cannot change the meaning: case, a day name that is not the date's,
    and ``UTC`` or a numeric offset in place of ``GMT`` in an IMF-fixdate.

    Args:
        text: The date without whitespace around it.
        now: Unix seconds that a two-digit year is near to.
    """
    # The shortest is an asctime-date, the longest a Wednesday in the form of RFC 850.
    if not 24 <= len(text) <= 33 or not text.isascii():
        return None
    month_of = _MONTHS.get
    match text.lower().split(" "):
        case [name, day, month, year, time, zone] if name in _IMF_DAY_NAMES:
            offset = 0 if zone in {"gmt", "utc"} else _offset(zone[:1], zone[1:3], zone[3:])
            return _instant(
                _digits(year, 4), month_of(month, _BAD), _digits(day, 2), _time(time), offset
            )
        case [name, date, time, "gmt"] if name in _RFC850_DAY_NAMES:
            day, _, month_and_year = date.partition("-")
            month, _, year = month_and_year.partition("-")
            when = month_of(month, _BAD), _digits(day, 2), _time(time)
            return _instant(_full_year(_digits(year, 2), when, now), *when)
        case [name, month, "", day, time, year] if name in _ASCTIME_DAY_NAMES:
            return _instant(_digits(year, 4), month_of(month, _BAD), _digits(day, 1), _time(time))
        case [name, month, day, time, year] if name in _ASCTIME_DAY_NAMES:
            return _instant(_digits(year, 4), month_of(month, _BAD), _digits(day, 2), _time(time))
    return None


def parse_timestamp(text: str) -> float | None:
    """Unix seconds of an RFC 3339 timestamp; None for anything else.

    One leniency: the seconds may be missing, as in Atlassian's ``2026-11-20T12:05Z``.
    """
    if not text.isascii():
        return None
    date, _, rest = text.upper().partition("T")  # RFC 3339 §5.6: T and Z may be lower case
    time, zone = (rest[:-1], "+00:00") if rest.endswith("Z") else (rest[:-6], rest[-6:])
    time, point, fraction = time.partition(".")
    if point and not (is_digits(fraction) and len(time) == 8):
        return None
    if len(time) == 5:
        time += ":00"
    if date[4:5] + date[7:8] + zone[3:4] != "--:":
        return None
    day = _digits(date[:4], 4), _digits(date[5:7], 2), _digits(date[8:], 2)
    instant = _instant(*day, _time(time), _offset(zone[:1], zone[1:3], zone[4:]))
    return instant if instant is None or not point else instant + float(f"0.{fraction[:9]}")


def _instant(year: int, month: int, day: int, seconds: int, offset: int | None = 0) -> float | None:
    """Unix seconds, or None if a part is out of range or there is no such day."""
    if year < 0 or seconds < 0 or offset is None:
        return None
    era, year_of_era = divmod(year, 400)
    try:  # in the era of 2000: datetime knows no year 0
        days = civil_date(2000 + year_of_era, month, day).toordinal() + (era - 5) * _ERA - _EPOCH
    except ValueError:
        return None
    return float(days * _DAY + seconds - offset)


def _time(text: str) -> int:
    """Seconds since midnight of ``hh:mm:ss``; second 60 is the first of the next minute."""
    if len(text) != 8 or text[2] + text[5] != "::":
        return _BAD
    hour, minute, second = _digits(text[:2], 2), _digits(text[3:5], 2), _digits(text[6:], 2)
    if not (0 <= hour <= 23 and 0 <= minute <= 59 and 0 <= second <= 60):
        return _BAD
    return hour * 3600 + minute * 60 + second


def _offset(sign: str, hours: str, minutes: str) -> int | None:
    """Seconds that local time is ahead of UTC."""
    hour, minute = _digits(hours, 2), _digits(minutes, 2)
    if sign not in {"+", "-"} or not (0 <= hour <= 23 and 0 <= minute <= 59):
        return None
    return (hour * 3600 + minute * 60) * (-1 if sign == "-" else 1)


def _digits(text: str, width: int) -> int:
    return int(text) if len(text) == width and is_digits(text) else _BAD


def _full_year(digits: int, when: tuple[int, int, int], now: float) -> int:
    """The last year with those two digits in which ``when`` is not more than 50 years ahead.

    ``when`` is month, day and seconds since midnight. The rule is RFC 9110 §5.6.7's, where 50 years
    to the second are not yet more than 50.
    """
    if digits < 0:
        return _BAD
    days, seconds = divmod(now, _DAY)
    eras, days_of_era = divmod(int(days), _ERA)  # 1970 begins the first one
    today = civil_date.fromordinal(_EPOCH + days_of_era)
    last = today.year + 400 * eras + 50
    year = last - (last - digits) % 100
    return year - 100 if year == last and when > (today.month, today.day, seconds) else year
