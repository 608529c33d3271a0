"""Nesting: what a request says about the loops and deadlines above us.

A loop that retries above us may count its attempts in a header of the request. Then attempts
multiply: 3 of theirs times 4 of ours are 12 at the server. Each loop counts in its own way:

| header                     | first  | first retry | source                                     |
| -------------------------- | ------ | ----------- | ------------------------------------------ |
| x-envoy-attempt-count      | 1      | 2           | Envoy, router filter, "HTTP headers (set)" |
| amz-sdk-request: attempt=  | 1      | 2           | botocore, handlers.py, add_retry_headers   |
| x-stainless-retry-count    | 0      | 1           | openai and anthropic, _base_client.py      |
| grpc-previous-rpc-attempts | absent | 1           | gRPC A6, "Exposed Retry Metadata"          |
| retry-attempt              | absent | 2           | forbear's announce_attempts                |

Two headers say how long the sender waits for the response, counted from when it sent the request,
so that the way here has taken its share already. Envoy's ``x-envoy-expected-rq-timeout-ms`` is "the
time in milliseconds the router expects the request to be completed" (router filter), where 0 means
no timeout; ``grpc-timeout`` is "a positive integer as ASCII string of at most 8 digits" and one
letter for the unit (PROTOCOL-HTTP2).

A value that cannot be read is as if it were absent.
"""

from __future__ import annotations

from math import inf

from ..outcome import Reason
from .fields import OWS, Names, collect, is_digits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from .fields import Line

EXPECTED = "x-envoy-expected-rq-timeout-ms"


def retries_above(lines: Iterable[Line]) -> int:
    """Return how often a request was sent before, by the highest count in it; 0: it is no retry."""
    found = collect(lines, _COUNTED)
    return max((COUNTERS[name](value) for name in found for value in found[name]), default=0)


def outer_loop(lines: Iterable[Line]) -> tuple[str, str] | None:
    """Return the header by which an SDK above announces a retry, and the SDK's off switch."""
    found = collect(lines, _SWITCHED)
    announced = (name for name in found if any(map(COUNTERS[name], found[name])))
    return next(((name, SWITCHES[name]) for name in announced), None)


def ends_outer_loops(attempts: int, reason: Reason) -> bool:
    """Return whether the loops above us should not retry after a call has ended so.

    Yes if we have retried ourselves, or must not for the sake of the server. Not after a single
    attempt that only we may not retry: a key of the caller's can make their request safe.
    """
    return attempts > 1 or reason in FOR_THE_SERVER


def seconds_for(lines: Iterable[Line]) -> float:
    """Return the seconds that a request's sender waits, the least that it names; else infinity."""
    found = collect(lines, _TIMED)
    return min((TIMEOUTS[name](value) for name in found for value in found[name]), default=inf)


def shrunk(seconds: float, margin: float) -> float:
    """Return the seconds left when ``margin`` is kept for the way back; never less than half."""
    return seconds - min(margin, seconds / 2)


def _count(value: str) -> int:
    return int(value) if len(value) <= 9 and is_digits(value) else 0  # a long one takes seconds


def _count_from_one(value: str) -> int:
    return max(0, _count(value) - 1)


def _count_of_aws(value: str) -> int:
    parts = (part.partition("=") for part in value.split(";"))
    counts = (number for name, _, number in parts if name.strip(OWS) == "attempt")
    return _count_from_one(next(counts, "").strip(OWS))


def _our_count(value: str) -> int:
    number = _count(value)
    return max(1, number - 1) if number else 0  # sent on retries only, so 1 is one too


def _grpc_timeout(value: str) -> float:
    unit = UNITS.get(value[-1:])
    return inf if unit is None else _positive(value[:-1], 8, unit)


def _positive(digits: str, most: int, unit: float) -> float:
    return int(digits) * unit or inf if len(digits) <= most and is_digits(digits) else inf


# header -> how many retries a value of it counts
COUNTERS = {
    "x-envoy-attempt-count": _count_from_one,
    "amz-sdk-request": _count_of_aws,
    "x-stainless-retry-count": _count,
    "grpc-previous-rpc-attempts": _count,
    "retry-attempt": _our_count,
}
# Loops that may be in this very process, with the switch of each.
SWITCHES = {
    "x-stainless-retry-count": "max_retries=0 for the SDK's client (openai, anthropic …)",
    "amz-sdk-request": 'Config(retries={"total_max_attempts": 1})',
}
# header -> the seconds that a value of it names
TIMEOUTS = {EXPECTED: lambda value: _positive(value, 15, 1e-3), "grpc-timeout": _grpc_timeout}
UNITS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
FOR_THE_SERVER = frozenset(
    {Reason.SERVER_SAID_NO, Reason.RETRY_AFTER_TOO_LONG}
    | {Reason.CIRCUIT_OPEN, Reason.BUDGET_EXHAUSTED}
)
_COUNTED, _SWITCHED, _TIMED = Names(COUNTERS), Names(SWITCHES), Names(TIMEOUTS)
