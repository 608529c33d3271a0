"""Stop outer: ``stop_outer_retries`` keeps an outer SDK from retrying a call that gave up."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..core.call import Call

# Headers by which SDKs let the server stop their retries: those made by Stainless, and stripe.
STOPPING = ("x-should-retry", "stripe-should-retry")


def last_lines(option: bool, call: Call) -> dict[str, str]:
    """Return the header lines of the response that ends a call without success."""
    return dict.fromkeys(STOPPING, "false")
