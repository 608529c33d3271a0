"""Verdict: what to do after an outcome. Floor: decides.

A verdict is ``RetryAfter``, ``GiveUp``, or None, which means "accept what came". ``Renew`` puts it
off: what the strategy works from has run out, and only a driver may go and fetch more.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

__all__ = ["GiveUp", "Reason", "Renew", "RetryAfter", "Verdict"]


class Reason(StrEnum):
    """Why there was no further attempt. The value is the stable string of logs and metrics."""

    SERVER_SAID_NO = "server-said-no"
    REPLAYED_RESPONSE = "replayed-response"
    PERMANENT_ERROR = "permanent-error"
    LOCAL_SATURATION = "local-saturation"
    UNKNOWN_ERROR = "unknown-error"
    METHOD_NOT_REPLAYABLE = "method-not-replayable"
    KEY_EXPIRED = "key-expired"
    BODY_CONSUMED = "body-consumed"
    RESPONSE_DELIVERED = "response-delivered"
    NESTED_CALL = "nested-call"
    ATTEMPTS_EXHAUSTED = "attempts-exhausted"
    RETRY_AFTER_TOO_LONG = "retry-after-too-long"
    DEADLINE = "deadline"
    CIRCUIT_OPEN = "circuit-open"
    BUDGET_EXHAUSTED = "budget-exhausted"
    STRATEGY_FAILED = "strategy-failed"


class RetryAfter(NamedTuple):
    """Send again ``delay`` seconds from now; ``source`` says who chose it: "backoff", a header's
    name, "cooldown".
    """

    delay: float
    source: str


class GiveUp(NamedTuple):
    """Hand over what came, because ``reason``; ``delay`` is the uncut wait that was refused, if one
    was.
    """

    reason: Reason
    delay: float | None = None


class Renew(NamedTuple):
    """Call the strategy's ``renew(scope)``, then ask again (``Call.after_renewal``)."""

    scope: str


Verdict = RetryAfter | GiveUp | Renew | None
