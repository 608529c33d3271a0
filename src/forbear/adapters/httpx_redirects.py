"""Redirects: what the hops of one redirected call share. Floor: acts.

The client follows a redirect with a new request to the transport, and copies the extensions of the
old one into it. One object in there keeps the retries used, the deadline and the generated key
together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import ref

if TYPE_CHECKING:
    from .httpx_exchange import Exchange

__all__ = ["HOP", "Hop", "redirect_target"]

HOP = "forbear.call"  # extensions key


class Hop:
    """What a redirected call carries from hop to hop, in the request's extensions."""

    __slots__ = ("body", "deadline_at", "key", "key_origin", "made_for", "retries_used", "target")

    def __init__(self, exchange: Exchange, target: Any) -> None:
        call = exchange.call
        self.retries_used = max(0, call.attempts - 1)
        self.deadline_at = call.deadline_at
        self.key = exchange.generated_key
        self.key_origin = call.facts.origin
        self.body = exchange.body
        self.made_for = ref(exchange.request)
        self.target = target

    def continues_in(self, request: Any) -> bool:
        """Is this request the next hop, not one of its own that only carries our mark?"""
        return self.made_for() is not request and same_place(request.url, self.target)


def same_place(one: Any, other: Any) -> bool:
    """Do two URLs ask the same server for the same thing? A fragment is never sent."""
    return bool(
        one.raw_scheme == other.raw_scheme
        and one.raw_host == other.raw_host
        and one.port == other.port
        and one.raw_path == other.raw_path
    )


def redirect_target(response: Any, request: Any) -> Any:
    """Where the client will go next, worked out as the client does; None if this is no redirect."""
    location = response.headers.get("location")
    if location is None:
        return None
    try:
        target = request.url.join(location)
        if target.scheme and not target.host:
            target = target.copy_with(host=request.url.host)
    except Exception:  # the client will say what is wrong with it
        return None
    return target
