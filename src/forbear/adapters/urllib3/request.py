"""Requests of requests and urllib3: what a decision sees of them."""

from __future__ import annotations

from functools import lru_cache
from socket import getdefaulttimeout
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from urllib3.util import Timeout, parse_url

from ...core.headers.fields import as_text
from ...core.request import Request, known_origin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.call import Call

PLAIN = frozenset({type(None), bytes, str})  # can be replayed as they are


class Urllib3Request(Request):
    """A request of requests or urllib3: what a decision reads of it, and what is sent for it.

    Attributes:
        original: The request as the caller made it.
        streams: The caller reads the body of the response.
        arguments: Of ``RetryAdapter.send``: timeout, verify, cert and proxies.
    """

    __slots__ = ("arguments", "streams")

    streams: bool
    arguments: Sequence[Any]

    def header_lines(self) -> list[tuple[str, str]]:
        return [(as_text(name), as_text(value)) for name, value in self.headers.items()]

    def path_and_query(self) -> str:
        return path_of(self.target or "")


def viewed(call: Call) -> Urllib3Request:
    """The view of a call's request."""
    view = call.request
    assert isinstance(view, Urllib3Request)
    return view


def path_of(url: str) -> str:
    """Path and query of a URL, or of what a pool gets in its place."""
    return url.partition("#")[0] if url.startswith("/") else parse_url(url).request_uri


def origin_at(url: str | None, pool: Any = None) -> str:
    """``scheme://host:port``, never userinfo, path or query; empty if unknown.

    A forward proxy's pool gets absolute URLs, and is not the origin.
    """
    if url and not url.startswith("/"):
        found = origin_in(url)
        if found:
            return found
    return "" if pool is None else known_origin(pool.scheme, pool.host, pool.port)


@lru_cache(maxsize=128)  # as many as ``urlsplit`` keeps
def origin_in(url: str) -> str:
    try:
        parts = urlsplit(url)
        if parts.scheme and parts.hostname:
            return known_origin(parts.scheme, parts.hostname, parts.port)
    except ValueError:  # the library raises its own error for it
        pass
    return ""


def phases_of(configured: Any) -> tuple[Any, Any, Any]:
    """Seconds in all, for connecting and for each read, of any form of timeout; None: no limit."""
    if not isinstance(configured, Timeout):
        return (None, *(configured if isinstance(configured, tuple) else (configured,) * 2))
    own = configured.clone()
    own.start_connect()  # before that it has no read timeout
    return own.total, own.connect_timeout, own.read_timeout


def least(configured: Any, other: float | None) -> float | None:
    """The smaller of two timeouts; None means none, urllib3's default is the socket module's."""
    own: float | None = configured
    if configured is Timeout.DEFAULT_TIMEOUT:
        own = getdefaulttimeout()
    if own is None or other is None:
        return other if own is None else own
    return min(own, other)
