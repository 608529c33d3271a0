"""Nesting: does something above us retry too? Floor: decides.

Some SDKs count their own retries in a header of the request. Then attempts multiply: 3 of theirs times 4 of
ours are 12 at the server.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["outer_loop"]


def outer_loop(lines: Iterable[tuple[str, str] | tuple[bytes, bytes]]) -> tuple[str, str] | None:
    """The header that tells of a retry above us, and the switch that turns it off; None if there is none."""
    for name, value in lines:
        known = SWITCHES.get((name.decode("latin-1") if isinstance(name, bytes) else name).lower())
        if known is not None:
            header, is_retry, switch = known
            if is_retry(value.decode("latin-1") if isinstance(value, bytes) else value):
                return header, switch
    return None


def _counts(value: str) -> bool:
    return value.strip(" \t") not in ("", "0")


def _later_attempt(value: str) -> bool:
    for part in value.split(";"):
        name, _, number = part.partition("=")
        if name.strip(" \t") == "attempt":
            return number.strip(" \t") not in ("", "0", "1")
    return False


SWITCHES = {
    # openai and anthropic, _base_client.py
    "x-stainless-retry-count": (
        "x-stainless-retry-count",
        _counts,
        "max_retries=0 for the SDK's client (openai, anthropic …)",
    ),
    # botocore/handlers.py
    "amz-sdk-request": ("amz-sdk-request", _later_attempt, 'Config(retries={"total_max_attempts": 1})'),
}
