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

from typing import NamedTuple

from .fields import OWS, Clock, Names, collect, members, number
from .structured import bare_item, key, parameters, run, skip_spaces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from .fields import Found, Line
    from .structured import Kind, Value

_STATUSES = frozenset({403, 429, 503})


def read_quota(status: int, fields: Found, clock: Clock) -> tuple[float, str] | None:
    """Return the seconds until an exhausted quota is filled again, and the header that says so."""
    if status not in _STATUSES or fields.keys().isdisjoint(_RESETS) or clock.age() > 0:
        return None
    if _RATE_LIMIT in fields:
        _, delay = _rate_limit(", ".join(fields[_RATE_LIMIT]), status)
        if delay is not None:
            return delay, _RATE_LIMIT
    for family in _FAMILIES:
        longest: tuple[float, str] | None = None
        for reset in family:
            if reset.name in fields and _is_exhausted(_left(reset, fields), status):
                delay = _longest(reset, fields, clock)
                if delay is not None and (longest is None or delay > longest[0]):
                    longest = delay, reset.name
        if longest is not None:
            return longest
    return None


def remaining_of(name: str) -> tuple[str, ...]:
    """Return the headers of which the first that is present gates the reset header ``name``."""
    resets = (reset for family in _FAMILIES for reset in family)
    return next((reset.remaining for reset in resets if reset.name == name), ())


def is_rate_limit(text: str) -> bool:
    """Whether ``text`` is a RateLimit field in one of its forms, whatever remains of the quota."""
    return _rate_limit(text, 429)[0]


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
    fields = collect(lines, _SHOWN)
    if not fields:
        return ()
    clock = Clock(lines, now)
    if clock.age() > 0:
        return ()
    found: list[Quota] = []
    if _RATE_LIMIT in fields:
        try:
            found = _list_quotas(fields)
        except ValueError:
            found = _dictionary_quotas(fields)
    for family in _FAMILIES:
        if found:
            break
        for reset in family:
            left = _left(reset, fields)
            seconds = None
            if left is not None and reset.name in fields:
                seconds = _longest(reset, fields, clock)
            if left is not None and seconds is not None:
                limits = (least(fields[one]) for one in reset.limits if one in fields)
                exact = reset.read is _number_or_duration and not seconds.is_integer()
                found.append(Quota(reset.name, left, seconds, next(limits, None), None, exact))
    return tuple(
        one if one.seconds >= 0 else one._replace(seconds=0.0)
        for one in found
        if -1 < one.seconds <= _YEAR and one.left < _MOST
    )


def _list_quotas(fields: Found) -> list[Quota]:
    policies: dict[str, tuple[float | None, float | None]] = {}
    try:
        for name, given in _members(", ".join(fields.get(_POLICY, ()))):
            policies[name] = _optional(given, "q"), _optional(given, "w")
    except ValueError:
        policies = {}
    found = []
    for name, given in _members(", ".join(fields[_RATE_LIMIT])):
        left, seconds = _optional(given, "r"), _optional(given, "t")
        if left is not None and seconds is not None:
            found.append(Quota(name, left, seconds, *policies.get(name, (None, None))))
    return found


def _dictionary_quotas(fields: Found) -> list[Quota]:
    try:
        given = _dictionary(", ".join(fields[_RATE_LIMIT]))
    except ValueError:
        return []
    lefts, resets, limits = (_counts(given, name) for name in ("remaining", "reset", "limit"))
    if not lefts or not resets:
        return []
    return [Quota(_RATE_LIMIT, min(lefts), max(resets), min(limits, default=None), None)]


def _optional(given: Mapping[str, tuple[Kind | None, Value]], name: str) -> float | None:
    try:
        return _count(given[name])
    except (KeyError, ValueError):
        return None


class _Reset(NamedTuple):
    """A reset header, the headers of which the first present gates it, and how it is read."""

    name: str
    remaining: tuple[str, ...]
    read: Callable[[str, Clock], float | None]
    limits: tuple[str, ...] = ()  # headers of which the first present says how much it is in all


def _left(reset: _Reset, fields: Found) -> float | None:
    gates = (name for name in reset.remaining if name in fields)
    return next((least(fields[name]) for name in gates), None)


def least(lines: Sequence[str]) -> float | None:
    """Return the smallest number in lines, each of which may be a list; None: there is none."""
    found = map(number, members(", ".join(lines)))
    return min((one for one in found if one is not None), default=None)


def _longest(reset: _Reset, fields: Found, clock: Clock) -> float | None:
    delays = (reset.read(one, clock) for one in members(", ".join(fields[reset.name])))
    return max((one for one in delays if one is not None), default=None)


def _is_exhausted(left: float | None, status: int) -> bool:
    # Without a usable remaining value, the status must say by itself that a limit was hit.
    return status == 429 if left is None else left == 0


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
    plain = number(text)
    if plain is not None:
        return plain
    total, at = 0.0, 0
    while at < len(text):
        start, at = at, run(text, at, _NUMERAL)
        amount = number(text[start:at])
        start, at = at, run(text, at, _UNIT)
        unit = _GO_UNITS.get(text[start:at])
        if amount is None or unit is None:
            return None
        total += amount * unit
    return total


_OWS = frozenset(OWS)
_NUMERAL = frozenset("0123456789.")
_UNIT = frozenset("hmsunµÂ")
_GO_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_GO_UNITS["Âµs"] = 1e-6  # the two bytes of µ in UTF-8, which is what Go writes, as latin-1


def _rate_limit(text: str, status: int) -> tuple[bool, float | None]:
    """Whether the RateLimit field is well-formed in either form, and the wait that it asks for."""
    for read in (_rate_limit_list, _rate_limit_dictionary):  # no text is both
        try:
            return True, read(text, status)
        except ValueError:
            continue
    return False, None


def _rate_limit_list(text: str, _status: int) -> float | None:
    """``"default";r=0;t=30``: quotas by name, r units remain, filled again in t seconds.

    The longest of the exhausted ones, since all of them must have been filled again.
    """
    longest: float | None = None
    for _, given in _members(text):
        left = _count(given.get("r", _ABSENT))
        seconds = _count(given["t"]) if "t" in given else None
        if left == 0 and seconds is not None and (longest is None or seconds > longest):
            longest = seconds
    return longest


def _members(text: str) -> Iterator[tuple[str, Mapping[str, tuple[Kind | None, Value]]]]:
    """The Strings of a List with their parameters."""
    at = 0
    while at < len(text):
        kind, name, at = bare_item(text, at)  # ValueError for an Inner List
        if kind != "String":
            raise ValueError("a quota is named by a String")
        given, at = parameters(text, at)
        at = _next_member(text, at)
        yield str(name), given


def _rate_limit_dictionary(text: str, status: int) -> float | None:
    """``limit=100, remaining=0, reset=50``, as -07 had it."""
    found = _dictionary(text)
    resets, lefts = _counts(found, "reset"), _counts(found, "remaining", "Decimal")
    if not resets:
        raise ValueError("no reset")
    return max(resets) if _is_exhausted(min(lefts, default=None), status) else None


def _dictionary(text: str) -> dict[str, list[tuple[Kind, Value]]]:
    """All values by name; RFC 9651 §4.2.2 keeps the last one only."""
    found: dict[str, list[tuple[Kind, Value]]] = {}
    at = 0
    while at < len(text):
        name, at = key(text, at)
        if text[at : at + 2] == "=(":
            at = _skip_inner_list(text, at + 1)
        elif text[at : at + 1] == "=":
            kind, value, at = bare_item(text, at + 1)
            found.setdefault(name, []).append((kind, value))
        _, at = parameters(text, at)
        at = _next_member(text, at)
    return found


def _counts(
    given: Mapping[str, list[tuple[Kind, Value]]], name: str, kind: str = "Integer"
) -> list[float]:
    """The values of a name that are non-negative Integers, or of the other kind."""
    return [
        float(value)
        for found, value in given.get(name, ())
        if found in ("Integer", kind) and isinstance(value, (int, float)) and value >= 0
    ]


def _count(given: tuple[Kind | None, Value]) -> float:
    kind, value = given
    if kind != "Integer" or not isinstance(value, int) or value < 0:
        raise ValueError("not a non-negative Integer")
    return float(value)


def _next_member(text: str, at: int) -> int:
    """The position after the comma and its whitespace, or the end (RFC 9651 §4.2.1, 2.2-2.6)."""
    at = run(text, at, _OWS)
    if at == len(text):
        return at
    if text[at] != ",":
        raise ValueError("no comma after a member")
    at = run(text, at + 1, _OWS)
    if at == len(text):
        raise ValueError("a comma after the last member")
    return at


def _skip_inner_list(text: str, at: int) -> int:
    """The position after the Inner List at ``at`` (RFC 9651 §4.2.1.2), before its parameters."""
    at = skip_spaces(text, at + 1)
    while text[at : at + 1] != ")":
        _, _, at = bare_item(text, at)
        _, at = parameters(text, at)
        if text[at : at + 1] not in {" ", ")"}:
            raise ValueError("an item of an Inner List ends with a space or the parenthesis")
        at = skip_spaces(text, at)
    return at + 1


_ABSENT: tuple[Kind | None, Value] = None, 0
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
_RESETS = {_RATE_LIMIT}.union(reset.name for family in _FAMILIES for reset in family)
_SHOWN = Names((
    *_RESETS, _POLICY,
    *(name for family in _FAMILIES for reset in family for name in reset.remaining + reset.limits),
))  # fmt: skip
