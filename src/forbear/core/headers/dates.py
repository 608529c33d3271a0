"""Dates in headers: the three HTTP-dates and RFC 3339 timestamps.

Read more strictly than by ``email.utils``, which guesses at zones and layouts and pivots two-digit
years at 1969, and more widely than by ``datetime``, which rejects second 60; that one only counts
days. Loaded with the first header that may be a date.

Sources: RFC 9110 §5.6.7; RFC 3339 §5.6.
"""

from __future__ import annotations

import re
from datetime import date as civil_date

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_DAY = 86400
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_EPOCH = civil_date(1970, 1, 1).toordinal()

_NAME, _SHORT_NAME = "|".join(_WEEKDAYS), "|".join(day[:3] for day in _WEEKDAYS)
_DATE, _MONTH, _YEAR = "(?P<day>[0-9]{2})", f"(?P<month>{'|'.join(_MONTHS)})", "(?P<year>[0-9]{4})"
_MINUTE = "(?P<hour>[01][0-9]|2[0-3]):(?P<minute>[0-5][0-9])"
_SECOND = "[0-5][0-9]|60"  # 60 is the first of the next minute
_TIME = f"{_MINUTE}:(?P<second>{_SECOND})"
_OFFSET = "(?P<sign>[+-])(?P<hours>[01][0-9]|2[0-3]){}(?P<minutes>[0-5][0-9])"
_HTTP_DATES = tuple(
    re.compile(form, re.IGNORECASE | re.ASCII)
    for form in (
        f"(?:{_SHORT_NAME}), {_DATE} {_MONTH} {_YEAR} {_TIME} (?:gmt|utc|{_OFFSET.format('')})",
        f"(?:{_NAME}), {_DATE}-{_MONTH}-(?P<digits>[0-9]{{2}}) {_TIME} gmt",
        f"(?:{_SHORT_NAME}) {_MONTH} (?P<day>[0-9]{{2}}| [0-9]) {_TIME} {_YEAR}",
    )
)
_TIMESTAMP = re.compile(
    rf"{_YEAR}-(?P<month>[0-9]{{2}})-{_DATE}T"
    rf"{_MINUTE}(?::(?P<second>(?:{_SECOND})(?:\.[0-9]+)?))?(?:Z|{_OFFSET.format(':')})",
    re.IGNORECASE | re.ASCII,
)


def parse_http_date(text: str, *, now: float) -> float | None:
    """Unix seconds of an IMF-fixdate, rfc850-date or asctime-date; None for anything else.

    Lenient in four things that cannot change the meaning: case, a day name that is not the date's,
    and ``UTC`` or a numeric offset in place of ``GMT`` in an IMF-fixdate.

    Args:
        text: The date without whitespace around it.
        now: Unix seconds that a two-digit year is near to, of the years 1 to 9999.
    """
    found = next(filter(None, (form.fullmatch(text) for form in _HTTP_DATES)), None)
    if found is None:
        return None
    parts = found.groupdict()
    month = _MONTHS.index(parts["month"].lower()) + 1
    if "year" in parts:
        return _instant(int(parts["year"]), month, parts)
    # The last year with those two digits in which the date is not more than 50 years ahead. 50
    # years to the second are not yet more than 50 (RFC 9110 §5.6.7).
    days, seconds = divmod(now, _DAY)
    today = civil_date.fromordinal(_EPOCH + int(days))
    last = today.year + 50
    year = last - (last - int(parts["digits"])) % 100
    is_late = (month, int(parts["day"]), _seconds(parts)) > (today.month, today.day, seconds)
    return _instant(year - 100 if year == last and is_late else year, month, parts)


def parse_timestamp(text: str) -> float | None:
    """Unix seconds of an RFC 3339 timestamp; None for anything else.

    One leniency: the seconds may be missing, as in Atlassian's ``2026-11-20T12:05Z``.
    """
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        return None
    parts = found.groupdict()
    return _instant(int(parts["year"]), int(parts["month"]), parts)


def _instant(year: int, month: int, parts: Mapping[str, str]) -> float | None:
    """Unix seconds; None if there is no such day."""
    try:  # datetime knows no year 0, which is as long ago as year 4, and a leap year too
        days = civil_date(year or 4, month, int(parts["day"])).toordinal() - _EPOCH
    except ValueError:
        return None
    seconds = days * _DAY + _seconds(parts)
    if parts.get("sign"):
        ahead = int(parts["hours"]) * 3600 + int(parts["minutes"]) * 60  # of UTC is local time
        return seconds + ahead if parts["sign"] == "-" else seconds - ahead
    return seconds


def _seconds(parts: Mapping[str, str]) -> float:
    """Seconds since midnight."""
    second = float((parts["second"] or "0")[:12])
    return int(parts["hour"]) * 3600 + int(parts["minute"]) * 60 + second
