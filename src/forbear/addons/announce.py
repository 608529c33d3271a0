"""Announce: ``announce_attempts`` tells a server which attempt of a call it gets."""

from __future__ import annotations

from typing import Any

ATTEMPT = "Retry-Attempt"


def attempt_lines(option: bool, incoming: Any, attempt: int) -> list[tuple[str, str]]:
    """Return the header line of an attempt, if that is a retry.

    A first one is a retry too if ``incoming``, the request that is being answered, is one.
    """
    if attempt > 1:
        return [(ATTEMPT, str(attempt))]
    return [(ATTEMPT, str(incoming.retries + 1))] if incoming and incoming.retries else []
