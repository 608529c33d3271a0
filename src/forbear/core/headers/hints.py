"""Server hints: when to retry, and whether, as the headers of a response say.

Extraction only. Whether the request may be retried and how long the client is willing to wait
are decided elsewhere: a delay here is the one that the server asked for, uncut. Whatever header
lines hold, reading them raises nothing and takes time in proportion to their length. What vendors
say in the bodies of their errors is read in vendors.py.

Sources: RFC 9110 §10.2.3 (Retry-After) and §15.3.3 (a 202's is for the application); openai's and
anthropic's Python clients (retry-after-ms, x-should-retry); azure-core (x-ms-retry-after-ms);
botocore, retries/standard.py (x-amz-retry-after); stripe-python (stripe-should-retry, and
idempotent-replayed); gRPC proposal A6 (pushback). Quota headers, which count only when nothing here
does, are read in quota.py.
"""

from __future__ import annotations

from itertools import pairwise

from ..outcome import NO_HINT, Hint
from .fields import FOREVER, OWS, Clock, Names, as_text, collect, is_digits, members, number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .fields import Found, Line


def joined(hint: Hint, body_hint: Hint | None) -> Hint:
    """Return the hint of the headers with that of the body added.

    A delay in the headers goes before one in the body; any no beats any yes.
    """
    if body_hint is None:
        return hint
    timed = body_hint if hint.delay is None else hint
    should_retry = False if body_hint.should_retry is False else hint.should_retry
    return Hint(timed.delay, should_retry, timed.source)


def read_hint(status: int, headers: Iterable[Line], *, now: float | Callable[[], float]) -> Hint:
    """Return what the header lines of a final response say about when, and whether, to retry.

    A status outside 100-599 is read like a 5xx (RFC 9110 §15), unless it is below 100.

    Args:
        status: The status code. Below 300 nothing is a hint; of a redirect only Retry-After is
            read.
        headers: Names and values in wire order, as text or as bytes.
        now: Unix seconds when the header section arrived, or a function that returns them; dates
            are compared with it where the server states no Date of its own.
    """
    return read_response(status, headers, now=now)[0]


def read_response(
    status: int, headers: Iterable[Line], *, now: float | Callable[[], float]
) -> tuple[Hint, bool]:
    """Return the hint of ``read_hint``, and whether the response is a stored one, which the same
    key would return again.
    """
    lines = headers if isinstance(headers, (list, tuple)) else list(headers)  # Clock reads again
    names = _FIELDS if status >= 400 else _REDIRECT_FIELDS if status >= 300 else _SUCCESS_FIELDS
    fields, clock = collect(lines, names), Clock(lines, now)
    replayed = "true" in map(str.lower, fields.get(_REPLAYED, ()))
    found = _first_delay(fields, clock)
    if found is None and status >= 400 and any(is_quota(name) for name, _ in lines):
        from .quota import read_quota  # loaded with the first failure that shows a quota

        found = read_quota(status, lines, clock)
    should_retry = _advice(fields, clock)
    if found is None:
        return NO_HINT if should_retry is None else Hint(None, should_retry, None), replayed
    delay, source = found
    if not 0 <= delay <= FOREVER:
        delay = 0.0 if delay < 0 else FOREVER
    return Hint(delay, should_retry, source), replayed


def is_quota(name: str | bytes) -> bool:
    """Is a quota read of a header, by quota.py?"""
    return as_text(name).lower().startswith(_QUOTAS)


def why_unused(lines: Iterable[Line], hint: Hint) -> str | None:
    """Return why the Retry-After of a response with this hint sets no delay.

    "unparsable", or "past" for a time that is over; None if the hint has a delay, if there is no
    Retry-After, or if it is 0, which means "at once".
    """
    values = None if hint.delay else collect(lines, _RETRY_AFTER).get("retry-after")
    if not values or (hint.delay is not None and values[0] == "0"):
        return None
    return "unparsable" if hint.delay is None else "past"


def _first_delay(fields: Found, clock: Clock) -> tuple[float, str] | None:
    for name, read in _SOURCES:
        if name in fields:
            # Several lines mean the same as one line with commas between (RFC 9110 §5.3).
            delay = read(", ".join(fields[name]), clock)
            if delay is not None:
                return delay, name
    return None


def _milliseconds(text: str, _: Clock) -> float | None:
    delays = [delay for member in members(text) if (delay := number(member)) is not None]
    return max(delays) / 1000 if delays else None


def _whole_milliseconds(text: str, _: Clock) -> float | None:  # botocore reads it with int()
    return _milliseconds(",".join(filter(is_digits, members(text))), _)


def _pushback(text: str, _: Clock) -> float | None:
    """A signed 32-bit integer without leading zeros; None, if negative or malformed, is a no."""
    if text in {"0", "-0"}:
        return 0.0
    is_plain = is_digits(text) and len(text) <= 10 and text[0] != "0"
    return int(text) / 1000 if is_plain and int(text) < 2**31 else None


def _retry_after(text: str, clock: Clock) -> float | None:
    """The longest of the members, so that each of the server's requests to wait is kept."""
    plain = number(text)
    if plain is not None:  # nearly always there is one number and no more
        return plain
    from .dates import parse_http_date  # loaded with the first that is no number

    parts = text.split(",")
    delays = [number(part.strip(OWS)) for part in parts]
    for part in (*parts, *map(",".join, pairwise(parts))):  # an HTTP-date may hold a comma
        date = parse_http_date(part.strip(OWS), now=clock.utc())
        delays.append(None if date is None else date - clock.utc())
    return max((delay for delay in delays if delay is not None), default=None)


def _advice(fields: Found, clock: Clock) -> bool | None:
    """The server's yes or no; any no beats any yes."""
    pushback = fields.get(_PUSHBACK)
    if pushback is not None and _pushback(", ".join(pushback), clock) is None:
        return False
    given = [fields[name] for name in _ADVICE if name in fields]
    values = {value for lines in given for line in lines for value in members(line.lower())}
    return False if "false" in values else True if "true" in values else None


_PUSHBACK = "grpc-retry-pushback-ms"

# The first header with a valid value gives the delay: the more exact unit before the general
# header, as in the clients named at the top. x-ms-retry-after (without -ms) is not among them,
# because no document defines its unit, and samples disagree.
_SOURCES: tuple[tuple[str, Callable[[str, Clock], float | None]], ...] = (
    ("retry-after-ms", _milliseconds),
    ("x-ms-retry-after-ms", _milliseconds),
    ("x-amz-retry-after", _whole_milliseconds),
    (_PUSHBACK, _pushback),
    ("retry-after", _retry_after),
)
_ADVICE = ("x-should-retry", "stripe-should-retry")

_REPLAYED = "idempotent-replayed"

# Of headers that are called so a quota is read, by quota.py.
_QUOTAS = ("ratelimit", "x-ratelimit-", "x-rate-limit-", "anthropic-ratelimit-")

# The lower-case names of all others that a decision reads, the first that counts first.
READ = (*(name for name, _ in _SOURCES), *_ADVICE, _REPLAYED)

_FIELDS = Names(READ)
_REDIRECT_FIELDS = Names(("retry-after", _REPLAYED))
_SUCCESS_FIELDS = Names((_REPLAYED,))
_RETRY_AFTER = Names(("retry-after",))
