"""Outer: the header by which a loop that retries above us counts its attempts.

A loop that retries above us may count its attempts in a header of the request. Then attempts
multiply: 3 of theirs times 4 of ours are 12 at the server. Each loop counts in its own way:

| header                     | first  | first retry | source                                     |
| -------------------------- | ------ | ----------- | ------------------------------------------ |
| x-envoy-attempt-count      | 1      | 2           | Envoy, router filter, "HTTP headers (set)" |
| amz-sdk-request: attempt=  | 1      | 2           | botocore, handlers.py, add_retry_headers   |
| x-stainless-retry-count    | 0      | 1           | openai and anthropic, _base_client.py      |
| grpc-previous-rpc-attempts | absent | 1           | gRPC A6, "Exposed Retry Metadata"          |
| retry-attempt              | absent | 2           | forbear's announce_attempts                |

A value that cannot be read is as if it were absent. Loaded with the first call that gives up.
"""

from __future__ import annotations

from ..core.headers.fields import OWS, Names, collect, is_digits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..core.headers.fields import Line


# header -> the number that its first attempt has, or would have
COUNTERS = {
    "x-envoy-attempt-count": 1,
    "amz-sdk-request": 1,
    "x-stainless-retry-count": 0,
    "grpc-previous-rpc-attempts": 0,
    "retry-attempt": 1,
}
# Loops that may be in this very process, with the switch of each.
SWITCHES = {
    "x-stainless-retry-count": "max_retries=0 for the SDK's client (openai, anthropic …)",
    "amz-sdk-request": 'Config(retries={"total_max_attempts": 1})',
}

_COUNTED, _SWITCHED = Names(COUNTERS), Names(SWITCHES)


def retries_above(lines: Iterable[Line]) -> int:
    """Return how often a request was sent before, by the highest count in it; 0: it is no retry."""
    found = collect(lines, _COUNTED)
    return max((_retries(name, value) for name in found for value in found[name]), default=0)


def outer_loop(lines: Iterable[Line]) -> tuple[str, str] | None:
    """Return the header by which an SDK above announces a retry, and the SDK's off switch."""
    found = collect(lines, _SWITCHED)
    retried = (name for name in found if any(_retries(name, value) for value in found[name]))
    return next(((name, SWITCHES[name]) for name in retried), None)


def _retries(name: str, value: str) -> int:
    """Return how many retries a header counts."""
    if name == "amz-sdk-request":
        parts = (part.partition("=") for part in value.split(";"))
        counts = (number for word, _, number in parts if word.strip(OWS) == "attempt")
        value = next(counts, "").strip(OWS)
    number = int(value) if len(value) <= 9 and is_digits(value) else 0  # a long one takes seconds
    # Sent on retries only, so 1 is one too.
    least = 1 if name == "retry-attempt" and number else 0
    return max(least, number - COUNTERS[name])
