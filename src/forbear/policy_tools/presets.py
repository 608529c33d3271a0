"""Presets: the numbers behind the named policies and vendors. Floor: decides.

The argument for each stands in the docstring of its method on ``RetryPolicy``.
"""

from __future__ import annotations

from typing import Any

from ..core.backoff import Exponential

__all__ = ["PRESETS", "VENDOR_STATUSES"]

PRESETS: dict[str, dict[str, Any]] = {
    "latency_sensitive": {"max_attempts": 3, "backoff": Exponential(base=0.01, cap=0.1)},
    "high_availability": {"max_attempts": 4, "backoff": Exponential(base=0.1, cap=30.0)},
    "batch": {"max_attempts": 11, "backoff": Exponential(base=0.1, cap=60.0)},
    "gateway": {
        "max_attempts": 6,
        "backoff": Exponential(base=0.05, cap=30.0, factor=1.5, jitter=0.2),
    },
    "disabled": {"max_attempts": 1},
}

# vendor -> (statuses, statuses only with a hint)
VENDOR_STATUSES: dict[str, tuple[frozenset[int], frozenset[int]]] = {
    # docs.github.com, "Rate limits for the REST API": 403 or 429, with retry-after or an exhausted
    # quota.
    "github": (frozenset(), frozenset({403})),
    # docs.anthropic.com, "Errors": 529 overloaded_error.
    "anthropic": (frozenset({529}), frozenset()),
    # developers.cloudflare.com, "Cloudflare 5xx errors". 524 may have been applied at the origin:
    # it is retried only for what is safe to repeat, like every status.
    "cloudflare": (frozenset({520, 521, 522, 523, 524}), frozenset()),
}
