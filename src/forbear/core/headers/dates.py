"""Dates in headers: the three HTTP-dates and RFC 3339 timestamps.

Read more strictly than by ``email.utils``, which guesses at zones and layouts and pivots two-digit
years at 1969, and more widely than by ``datetime``, which rejects second 60; that one only counts
days. Loaded with the first header that may be a date.

Sources: RFC 9110 §5.6.7; RFC 3339 §5.6.
"""

from __future__ import annotations

from datetime import date as civil_date

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
    if point and not (fraction.isdigit() and len(time) == 8):
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
    return int(text) if len(text) == width and text.isdigit() else _BAD


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
