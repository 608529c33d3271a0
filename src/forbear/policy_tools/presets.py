"""Presets: the numbers behind the named policies and vendors. Floor: decides.

The argument for each stands in the docstring of its method on ``RetryPolicy``.
"""

from __future__ import annotations

from ..core.backoff import Exponential
from ..core.checks import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["PRESETS", "VENDOR_STATUSES", "statuses_of"]

PRESETS: dict[str, dict[str, Any]] = {
    "latency_sensitive": {"max_attempts": 3, "backoff": Exponential(base=0.01, cap=0.1)},
    "high_availability": {"max_attempts": 4, "backoff": Exponential(base=0.1, cap=30.0)},
    "batch": {"max_attempts": 11, "backoff": Exponential(base=0.1, cap=60.0)},
    "gateway": {"max_attempts": 6, "backoff": Exponential(0.05, cap=30.0, factor=1.5, jitter=0.2)},
    "disabled": {"max_attempts": 1},
}

# vendor -> (statuses, statuses only with a hint)
VENDOR_STATUSES: dict[str, tuple[frozenset[int], frozenset[int]]] = {
    # docs.github.com, "Rate limits for the REST API": 403 or 429, with retry-after or an exhausted
    # quota.
    "github": (frozenset(), frozenset({403})),
    # docs.anthropic.com, "Errors": 529 overloaded_error.
    "anthropic": (frozenset({529}), frozenset()),
    # developers.cloudflare.com, "Cloudflare 5xx errors". The origin may have acted before a 524.
    "cloudflare": (frozenset({520, 521, 522, 523, 524}), frozenset()),
}


def statuses_of(vendors: tuple[str, ...]) -> tuple[frozenset[int], frozenset[int]]:
    """Return the statuses of these vendors, and those that count only with a hint."""
    statuses: set[int] = set()
    hinted: set[int] = set()
    for vendor in vendors:
        if vendor not in VENDOR_STATUSES:
            known = ", ".join(sorted(VENDOR_STATUSES))
            raise ValueError(f"vendor must be one of {known}, got {shown(vendor)}")
        statuses |= VENDOR_STATUSES[vendor][0]
        hinted |= VENDOR_STATUSES[vendor][1]
    return frozenset(statuses), frozenset(hinted)
