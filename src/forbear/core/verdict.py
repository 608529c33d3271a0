"""Verdict: what to do after an outcome. Floor: decides.

A verdict is ``Retry``, ``GiveUp``, or None, which means "accept what came". ``RENEW`` puts the
verdict off: the budget has spent what it had borrowed, and only the loop may fetch more.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

__all__ = ["RENEW", "GiveUp", "Reason", "Retry", "Verdict"]


class Reason(StrEnum):
    """Why there was no further attempt. The value is the stable string of logs and metrics."""

    SERVER_SAID_NO = "server-said-no"
    CALLER_SAID_NO = "caller-said-no"
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
    ORIGIN_UNWELL = "origin-unwell"
    BUDGET_EXHAUSTED = "budget-exhausted"
    STRATEGY_FAILED = "strategy-failed"
    HOOK_FAILED = "hook-failed"


class Retry(NamedTuple):
    """Send again ``delay`` seconds from now.

    ``source`` says who chose the delay: "backoff", the name of a header, "cooldown" or "failover".
    """

    delay: float
    source: str


class GiveUp(NamedTuple):
    """Hand over what came, because of ``reason``.

    ``delay`` is the uncut wait in seconds that was refused, None if no wait was.
    """

    reason: Reason
    delay: float | None = None


class Renewal:
    """The type of ``RENEW``."""

    __slots__ = ()


RENEW = Renewal()
Verdict = Retry | GiveUp | Renewal | None
