"""Vendors: the statuses that they use for "try again". Floor: decides."""

from __future__ import annotations

from ..core.checks import shown

__all__ = ["statuses_of"]

# vendor -> (statuses, statuses only with a hint)
STATUSES: dict[str, tuple[set[int], set[int]]] = {
    # docs.github.com, "Rate limits for the REST API": 403 or 429, with retry-after or an exhausted
    # quota.
    "github": (set(), {403}),
    # docs.anthropic.com, "Errors": 529 overloaded_error.
    "anthropic": ({529}, set()),
    # developers.cloudflare.com, "Cloudflare 5xx errors". The origin may have acted before a 524.
    "cloudflare": ({520, 521, 522, 523, 524}, set()),
}


def statuses_of(vendors: tuple[str, ...]) -> tuple[set[int], set[int]]:
    """Return the statuses of these vendors, and those that count only with a hint."""
    statuses: set[int] = set()
    hinted: set[int] = set()
    for vendor in vendors:
        if vendor not in STATUSES:
            known = ", ".join(sorted(STATUSES))
            raise ValueError(f"vendor must be one of {known}, got {shown(vendor)}")
        statuses |= STATUSES[vendor][0]
        hinted |= STATUSES[vendor][1]
    return statuses, hinted
