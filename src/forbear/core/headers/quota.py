"""Quotas: when an exhausted allowance is filled again.

Servers send quota headers on good responses too, and for limits other than the one that was hit, so
a reset counts only on a status that means throttling, only when its own remaining value is 0, and
not on a response from a cache. hints.py reads it only after every header that is a request to wait.
Of a header that is there twice, or holds a list, the longest valid reset and the smallest valid
remaining value count: a gateway may add its own to the server's.

Sources: draft-ietf-httpapi-ratelimit-headers-10 (List), -07 (Dictionary) and -03 to -06 (a header
for each number); RFC 9651 §4.2.1 and §4.2.2; the documentation of GitHub, Okta and GitLab (epoch),
Atlassian (timestamp), Discord (reset-after), OpenAI (Go durations) and Anthropic (RFC 3339).
"""

from __future__ import annotations

import re
from math import inf
from typing import NamedTuple

from .fields import Clock, Names, collect, members, number
from .structured import parse_dictionary, parse_list

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from .fields import Found, Line

_STATUSES = frozenset({403, 429, 503})


def read_quota(status: int, lines: Iterable[Line], clock: Clock) -> tuple[float, str] | None:
    """Return the seconds until an exhausted quota is filled again, and the header that says so."""
    if status not in _STATUSES or clock.age() > 0:
        return None
    fields = collect(lines, QUOTA_FIELDS)
    # Without a usable remaining value, the status must say by itself that a limit was hit.
    for quotas in _spellings(fields, clock, unknown=0.0 if status == 429 else inf):
        exhausted = [one for one in quotas if one.left == 0]
        if exhausted:  # the longest, since all of them must have been filled again
            last = max(exhausted, key=lambda one: one.seconds)
            return last.seconds, last.name if last.name in fields else _RATE_LIMIT
    return None


def is_rate_limit(text: str) -> bool:
    """Whether ``text`` is a RateLimit field in one of its forms, whatever remains of the quota."""
    return _rate_limit({_RATE_LIMIT: [text]}, 0.0) is not None


class Quota(NamedTuple):
    """The state of one quota by a response, whatever its status."""

    name: str
    left: float
    seconds: float  # until it is filled again, to a year; 0: less than one
    limit: float | None  # all of it; None: not said
    window: float | None  # seconds for which it counts; None: not said
    is_exact: bool = False  # the time has a fraction, so it was not rounded to whole seconds


def read_quotas(lines: Sequence[Line], now: Callable[[], float]) -> tuple[Quota, ...]:
    """Return all quotas that the head of a response shows; never raises.

    Of the spellings only the first that is there counts, as above. A value that cannot be used, or
    a time that is over for a second, or more than a year away, is as none.

    Args:
        lines: The header lines.
        now: Unix seconds.
    """
    fields, clock = collect(lines, _SHOWN), Clock(lines, now)
    if not fields or clock.age() > 0:
        return ()
    for quotas in _spellings(fields, clock, unknown=inf):
        found = tuple(
            one._replace(seconds=max(0.0, one.seconds))
            for one in quotas
            if -1 < one.seconds <= _YEAR and one.left < _MOST
        )
        if found:
            return found
    return ()


def _spellings(fields: Found, clock: Clock, unknown: float) -> Iterator[list[Quota]]:
    """Yield the quotas of each family; what remains is ``unknown`` where no header says it."""
    if _RATE_LIMIT in fields:
        yield _rate_limit(fields, unknown) or []
    for family in _FAMILIES:
        found = (_of_header(reset, fields, clock, unknown) for reset in family)
        yield [quota for quota in found if quota is not None]


def _rate_limit(fields: Found, unknown: float) -> list[Quota] | None:
    """The quotas of the RateLimit field; None: it is malformed. No text has both forms."""
    for read in (_of_list, _of_dictionary):
        try:
            return read(fields, unknown)
        except ValueError:
            continue
    return None


def _of_list(fields: Found, _: float) -> list[Quota]:
    """``"default";r=0;t=30``: quotas by name, r units remain, filled again in t seconds."""
    try:
        policies = dict(parse_list(", ".join(fields.get(_POLICY, ()))))
    except ValueError:
        policies = {}
    found = []
    for name, given in parse_list(", ".join(fields[_RATE_LIMIT])):
        left, seconds = _count(given, "r"), _count(given, "t")
        if left is None or (seconds is None and "t" in given):
            raise ValueError("not a non-negative Integer")
        if seconds is not None:
            of = policies.get(name, {})
            found.append(Quota(name, left, seconds, _count(of, "q"), _count(of, "w")))
    return found


def _of_dictionary(fields: Found, unknown: float) -> list[Quota]:
    """``limit=100, remaining=0, reset=50``, as -07 had it.

    All values of a name count, whereas RFC 9651 §4.2.2 keeps the last one only.
    """
    given: dict[str, list[str]] = {}
    for name, value in parse_dictionary(", ".join(fields[_RATE_LIMIT])):
        given.setdefault(name, []).append(value)
    resets, limits = _counts(given.get("reset", ())), _counts(given.get("limit", ()))
    left = min(_counts(given.get("remaining", ()), _NUMBER), default=unknown)
    if not resets:
        raise ValueError("no reset")
    return [Quota(_RATE_LIMIT, left, max(resets), min(limits, default=None), None)]


_INTEGER, _NUMBER = re.compile("-?[0-9]+"), re.compile("-?[0-9.]+")


def _counts(items: Iterable[str], kind: re.Pattern[str] = _INTEGER) -> list[float]:
    """The bare items that are a number of this kind and not negative."""
    return [value for item in items if kind.fullmatch(item) and (value := float(item)) >= 0]


def _count(given: Mapping[str, str], name: str) -> float | None:
    return next(iter(_counts([given.get(name, "")])), None)


class _Reset(NamedTuple):
    """A reset header, the headers of which the first present gates it, and how it is read."""

    name: str
    remaining: tuple[str, ...]
    read: Callable[[str, Clock], float | None]
    limits: tuple[str, ...] = ()  # headers of which the first present says how much it is in all


def _of_header(reset: _Reset, fields: Found, clock: Clock, unknown: float) -> Quota | None:
    delays = [reset.read(one, clock) for one in members(", ".join(fields.get(reset.name, ())))]
    seconds = max((delay for delay in delays if delay is not None), default=None)
    if seconds is None:
        return None
    left, limit = (
        next((least(fields[name]) for name in names if name in fields), None)
        for names in (reset.remaining, reset.limits)
    )
    is_exact = reset.read is _number_or_duration and not seconds.is_integer()
    return Quota(reset.name, unknown if left is None else left, seconds, limit, None, is_exact)


def least(lines: Sequence[str]) -> float | None:
    """Return the smallest number in lines, each of which may be a list; None: there is none."""
    found = map(number, members(", ".join(lines)))
    return min((one for one in found if one is not None), default=None)


def _seconds(text: str, _: Clock) -> float | None:
    return number(text)


def _seconds_or_epoch(text: str, clock: Clock) -> float | None:
    """A number that its size tells: seconds from now, epoch seconds or epoch milliseconds."""
    value = number(text)
    if value is None:
        return None
    digits = len(text.partition(".")[0].lstrip("0"))
    if digits <= 9:  # below 1e9: 32 years at most, whereas epoch seconds passed it in 2001
        return value
    if digits <= 11:  # below 1e11
        return value - clock.utc()
    return value / 1000 - clock.utc() if digits <= 14 else None  # below 1e14


def _date(text: str, clock: Clock) -> float | None:
    from .dates import parse_timestamp

    instant = parse_timestamp(text)
    return None if instant is None else instant - clock.utc()


def _number_or_date(text: str, clock: Clock) -> float | None:
    delay = _seconds_or_epoch(text, clock)
    return _date(text, clock) if delay is None else delay


def _number_or_duration(text: str, _: Clock) -> float | None:
    """A number of seconds, or ``1h2m3.5s`` and the like, each number with its unit."""
    seconds = number(text)
    if seconds is None and _DURATION.fullmatch(text):
        parts = _AMOUNT.findall(text)
        return sum((number(amount) or 0.0) * _GO_UNITS[unit] for amount, unit in parts)
    return seconds


_GO_UNITS = {"h": 3600.0, "ms": 1e-3, "m": 60.0, "s": 1.0, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_GO_UNITS["Âµs"] = 1e-6  # the two bytes of µ in UTF-8, which is what Go writes, as latin-1
_AMOUNT = re.compile(rf"([0-9]++(?:\.[0-9]++)?+)({'|'.join(_GO_UNITS)})")
_DURATION = re.compile(f"(?:{_AMOUNT.pattern})++")
_RATE_LIMIT = "ratelimit"
_POLICY = "ratelimit-policy"
_YEAR = 31_536_000.0  # seconds
_MOST = 1e15  # units; no quota has as many
_ALL = ("x-ratelimit-limit", "x-rate-limit-limit")
_LEFT, _LEFT_TOO = "x-ratelimit-remaining", "x-rate-limit-remaining"

# The first family with a counting reset wins; of one family, which reports several limits at once,
# the longest. Two spellings of one header are two families; each is gated by the remaining value in
# its own spelling, else in the other.
_FAMILIES: tuple[tuple[_Reset, ...], ...] = (
    (_Reset("ratelimit-reset", ("ratelimit-remaining",), _seconds_or_epoch, ("ratelimit-limit",)),),
    (_Reset("x-ratelimit-reset-after", (_LEFT,), _seconds, _ALL),),
    (_Reset("x-ratelimit-reset", (_LEFT, _LEFT_TOO), _number_or_date, _ALL),),
    (_Reset("x-rate-limit-reset", (_LEFT_TOO, _LEFT), _number_or_date, _ALL),),
    tuple(
        _Reset(
            f"x-ratelimit-reset-{of}",
            (f"x-ratelimit-remaining-{of}",),
            _number_or_duration,
            (f"x-ratelimit-limit-{of}",),
        )
        for of in ("requests", "tokens")
    ),
    tuple(
        _Reset(
            f"anthropic-ratelimit-{of}-reset",
            (f"anthropic-ratelimit-{of}-remaining",),
            _date,
            (f"anthropic-ratelimit-{of}-limit",),
        )
        for of in ("requests", "tokens", "input-tokens", "output-tokens")
    ),
)
_ALL_RESETS = [reset for family in _FAMILIES for reset in family]
QUOTA_FIELDS = Names([_RATE_LIMIT]).union(*((one.name, *one.remaining) for one in _ALL_RESETS))
_SHOWN = QUOTA_FIELDS.union([_POLICY], *(one.limits for one in _ALL_RESETS))
