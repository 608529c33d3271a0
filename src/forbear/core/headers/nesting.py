"""Nesting: does something above us retry too? Floor: decides.

Whoever retries above us may count its sendings in a header of the request. Then attempts multiply:
3 of theirs times 4 of ours are 12 at the server. Each of them counts in its own way:

| header                     | first sending | first retry | source                                              |
| -------------------------- | ------------- | ----------- | --------------------------------------------------- |
| x-envoy-attempt-count      | 1             | 2           | Envoy, router filter, "HTTP headers (set)"          |
| amz-sdk-request            | attempt=1     | attempt=2   | botocore, handlers.py, add_retry_headers            |
| x-stainless-retry-count    | 0             | 1           | openai and anthropic, _base_client.py               |
| grpc-previous-rpc-attempts | absent        | 1           | gRPC A6, "Exposed Retry Metadata"                   |
| retry-attempt              | absent        | 2           | forbear, the attempt's number: announce_attempts    |

What cannot be read is as if it were absent.
"""

from __future__ import annotations

from ..verdict import Reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["COUNTERS", "ends_outer_loops", "outer_loop", "retries_above", "text"]

DIGITS = 9  # of a count that is believed; an int of any length could be made to take seconds


def retries_above(lines: Iterable[tuple[str, str] | tuple[bytes, bytes]]) -> int:
    """How often a request was sent before, by the highest of the counts it carries; 0: it is no
    retry.
    """
    most = 0
    for name, value in lines:
        count = COUNTERS.get(text(name).lower())
        if count is not None:
            most = max(most, count(text(value)))
    return most


def outer_loop(lines: Iterable[tuple[str, str] | tuple[bytes, bytes]]) -> tuple[str, str] | None:
    """The header that tells of an SDK's retry above us, and the switch that turns it off; None if
    there is none.
    """
    for name, value in lines:
        header = text(name).lower()
        if header in SWITCHES and COUNTERS[header](text(value)) > 0:
            return header, SWITCHES[header]
    return None


def ends_outer_loops(attempts: int, reason: Reason) -> bool:
    """Should those who asked for this work not ask again, after a call made for it ended so?

    Yes if we have tried again ourselves, or may not for the sake of the server. Not if our only
    attempt failed and others may repeat what we may not: a caller's key can make safe what our POST
        is not.
    """
    return attempts > 1 or reason in FOR_THE_SERVER


def text(part: str | bytes) -> str:
    return part.decode("latin-1") if isinstance(part, bytes) else part


def _number(value: str) -> int:
    digits = value.strip(" \t")
    return int(digits) if len(digits) <= DIGITS and digits.isascii() and digits.isdigit() else 0


def _from_one(value: str) -> int:
    return max(0, _number(value) - 1)


def _of_aws(value: str) -> int:
    for part in value.split(";"):
        name, _, number = part.partition("=")
        if name.strip(" \t") == "attempt":
            return _from_one(number)
    return 0


def _ours(value: str) -> int:
    number = _number(value)
    return max(1, number - 1) if number else 0  # sent on retries only, so 1 is one too


# header -> how many retries a value of it tells of
COUNTERS = {
    "x-envoy-attempt-count": _from_one,
    "amz-sdk-request": _of_aws,
    "x-stainless-retry-count": _number,
    "grpc-previous-rpc-attempts": _number,
    "retry-attempt": _ours,
}
FOR_THE_SERVER = frozenset(
    {
        Reason.SERVER_SAID_NO,
        Reason.RETRY_AFTER_TOO_LONG,
        Reason.CIRCUIT_OPEN,
        Reason.BUDGET_EXHAUSTED,
    }
)
# Loops that may be in this very process, with what turns them off.
SWITCHES = {
    "x-stainless-retry-count": "max_retries=0 for the SDK's client (openai, anthropic …)",
    "amz-sdk-request": 'Config(retries={"total_max_attempts": 1})',
}
