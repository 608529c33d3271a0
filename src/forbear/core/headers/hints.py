"""Hints: when the server said to come back, and whether. Floor: decides.

Extraction only. Whether the request may be sent again is safety.py's question, and how long the
client is willing to wait is the policy's: a delay here is what the server asked for, uncut.
Whatever the header lines hold, reading them raises nothing and takes time in proportion to their
length.

Sources: RFC 9110 §10.2.3 (Retry-After) and §15.3.3 (a 202's is for the application); openai's and
anthropic's Python clients (retry-after-ms, x-should-retry); azure-core (x-ms-retry-after-ms);
botocore, retries/standard.py (x-amz-retry-after); stripe-python (stripe-should-retry); gRPC
proposal A6 (pushback). Quota headers, which only count when nothing here does, are quota.py's.
"""

from __future__ import annotations

from ..outcome import NO_HINT, Hint
from .dates import FOREVER, Clock, parse_http_date
from .fields import OWS, Names, collect, is_digits, members, number
from .quota import QUOTA_FIELDS, read_quota

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from .fields import Line

__all__ = ["NO_HINT", "Hint", "read_hint"]


def read_hint(status: int, headers: Iterable[Line], *, now: float) -> Hint:
    """Return what the header lines of a final response say about when, and whether, to send again.

    A status outside 100-599 is read like a 5xx (RFC 9110 §15), unless it is below 100.

    Args:
        status: The status code. Below 300 nothing is a hint; of a redirect only Retry-After is
            read.
        headers: Names and values in wire order, as text or as octets.
        now: Unix seconds when the header section arrived; dates are compared with it where the
            server states no Date of its own.
    """
    if status < 300:
        return NO_HINT
    lines = (
        headers if isinstance(headers, (list, tuple)) else list(headers)
    )  # Clock may go over them again
    fields = collect(lines, _REDIRECT_FIELDS if status < 400 else _FIELDS)
    if not fields:
        return NO_HINT
    clock = Clock(lines, now)
    found = _first_delay(fields, clock) or read_quota(status, fields, clock)
    should_retry = _advice(fields, clock)
    if found is None:
        return NO_HINT if should_retry is None else Hint(None, should_retry, None)
    delay, source = found
    if not 0 <= delay <= FOREVER:
        delay = 0.0 if delay < 0 else FOREVER
    return Hint(delay, should_retry, source)


def _first_delay(fields: Mapping[str, Sequence[str]], clock: Clock) -> tuple[float, str] | None:
    for name, read in _SOURCES:
        if name in fields:
            # Several lines mean what one line of their values with commas between means (RFC 9110
            # §5.3).
            delay = read(", ".join(fields[name]), clock)
            if delay is not None:
                return delay, name
    return None


def _milliseconds(text: str, _: Clock) -> float | None:
    delays = [delay for member in members(text) if (delay := number(member)) is not None]
    return max(delays) / 1000 if delays else None


def _whole_milliseconds(text: str, _: Clock) -> float | None:  # botocore reads it with int()
    delays = [
        delay
        for member in members(text)
        if is_digits(member) and (delay := number(member)) is not None
    ]
    return max(delays) / 1000 if delays else None


def _pushback(text: str, _: Clock) -> float | None:
    """A signed 32-bit integer without unnecessary leading zeros; None, if negative or malformed, is
    a no.
    """
    if text == "-0":
        return 0.0
    if (
        not is_digits(text)
        or len(text) > 10
        or (text[0] == "0" and text != "0")
        or int(text) >= 2**31
    ):
        return None
    return int(text) / 1000


def _retry_after(text: str, clock: Clock) -> float | None:
    """The longest of the members, so that none of the server's requests is broken."""
    longest = number(text)
    if longest is not None:  # nearly always there is one number and no more
        return longest
    parts = text.split(",")
    at = 0
    while at < len(parts):
        delay = number(parts[at].strip(OWS))
        used = 1
        if delay is None:
            for used in (2, 1):  # an HTTP-date may hold one of the commas that made the parts
                date = parse_http_date(",".join(parts[at : at + used]).strip(OWS), now=clock.utc())
                if date is not None:
                    delay = date - clock.utc()
                    break
        if delay is not None and (longest is None or delay > longest):
            longest = delay
        at += used
    return longest


def _advice(fields: Mapping[str, Sequence[str]], clock: Clock) -> bool | None:
    """The server's yes or no; any no beats any yes."""
    pushback = fields.get(_PUSHBACK)
    if pushback is not None and _pushback(", ".join(pushback), clock) is None:
        return False
    answer = None
    for name in _ADVICE:
        for line in fields.get(name, ()):
            said = {member.lower() for member in members(line)}
            if "false" in said:
                return False
            if "true" in said:
                answer = True
    return answer


_PUSHBACK = "grpc-retry-pushback-ms"

# In this order the first header with a valid value gives the delay: the more exact unit before the
# general header, as the clients named at the top do. x-ms-retry-after (without -ms) is not among
# them: nobody defines its unit, and samples disagree.
_SOURCES: tuple[tuple[str, Callable[[str, Clock], float | None]], ...] = (
    ("retry-after-ms", _milliseconds),
    ("x-ms-retry-after-ms", _milliseconds),
    ("x-amz-retry-after", _whole_milliseconds),
    (_PUSHBACK, _pushback),
    ("retry-after", _retry_after),
)
_ADVICE = ("x-should-retry", "stripe-should-retry")

_FIELDS = Names((*(name for name, _ in _SOURCES), *_ADVICE, *QUOTA_FIELDS))
_REDIRECT_FIELDS = Names(("retry-after",))
