"""Announce: ``announce_attempts`` tells a server which attempt of a call it gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..engine.context import Sender

ATTEMPT = "Retry-Attempt"


def attempt_lines(option: bool, sender: Sender | None, attempt: int) -> list[tuple[str, str]]:
    """Return the header line of an attempt, if that is a retry.

    A first one is a retry too if the request that is being answered is one for its sender.
    """
    if attempt > 1:
        return [(ATTEMPT, str(attempt))]
    return [(ATTEMPT, str(sender.retries + 1))] if sender is not None and sender.retries else []
