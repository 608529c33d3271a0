"""Redirects in the httpx family: what the hops of one call share. Loaded with the first."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import ref

from ...core.call import SETTING
from ...engine import outgoing
from .reading import HOP

if TYPE_CHECKING:
    import httpx

    from ...core.call import Call


class Hop(outgoing.Hop):
    """The part of a redirected call that hops pass on, in the request's extensions.

    The client follows a redirect with a new request, and copies the extensions of the old one.
    """

    __slots__ = ("made_for", "target")

    def __init__(self, call: Call, original: httpx.Request, target: httpx.URL) -> None:
        super().__init__(call)
        self.made_for = ref(original)
        self.target = target

    def continues_in(self, request: httpx.Request) -> bool:
        """Is this request the next hop? The caller may have made another with our mark in it."""
        if self.made_for() is request:
            return False
        # A fragment is never sent.
        return bool(request.url.copy_with(fragment=None) == self.target.copy_with(fragment=None))


def hop_before(request: httpx.Request) -> Hop | None:
    """What the hop before this request has left; None: it is no further hop."""
    hop = request.extensions[HOP]
    return hop if isinstance(hop, Hop) and hop.continues_in(request) else None


def mark_redirect(call: Call, response: httpx.Response) -> None:
    """Let the next hop of a redirect know what this one has used."""
    original = call.request.original
    target = redirect_target(response, original)
    if target is not None:
        original.extensions[HOP] = Hop(call, original, target)
        original.extensions.setdefault(SETTING, None)  # the fast path checks for this one only


def redirect_target(response: httpx.Response, request: httpx.Request) -> httpx.URL | None:
    """The URL that the client will request next, found as it does; None if this is no redirect."""
    location = response.headers.get("location")
    if location is None:
        return None
    try:
        target = request.url.join(location)
        if target.scheme and not target.host:
            target = target.copy_with(host=request.url.host)
    except Exception:  # the client raises its own error for it
        return None
    return target
