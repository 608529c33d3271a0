"""Request: what a decision sees of a request of the httpx family, and its header lines."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from ...core.request import Request, known_origin, origin_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    import httpx


HOP, BODY = "forbear.call", "forbear.body"  # extensions keys
NAME = itemgetter(1)  # of a header line, in lower case
LEAST = 0.001  # seconds; 0 would make a socket non-blocking instead of timing it out


class HttpxRequest(Request):
    """The view that a decision has of an httpx request."""

    __slots__ = ()

    def header_lines(self) -> Iterable[tuple[bytes, bytes]]:
        return self.headers.raw  # type: ignore[no-any-return]

    def header(self, name: str) -> str | None:
        return self.headers.get(name)  # type: ignore[no-any-return]

    def path_and_query(self) -> str:
        return self.target.raw_path.decode("ascii")  # type: ignore[no-any-return]


def triples(headers: httpx.Headers) -> list[tuple[bytes, bytes, bytes]]:
    """Header lines: the name as written, in lower case, and the value."""
    try:
        return headers._list
    except AttributeError:
        return [(name, name.lower(), value) for name, value in headers.raw]


def with_lines(headers: httpx.Headers, lines: Iterable[tuple[str, str]]) -> httpx.Headers:
    """Copy headers, with these lines in place of those of the same names."""
    made = type(headers)(headers)
    own = getattr(made, "_list", None)
    written = () if own is None else set(map(NAME, own))
    for name, value in lines:
        key = name.lower().encode("ascii")
        if own is None or key in written:
            made[name] = value
        else:  # in a fifth of the time
            own.append((name.encode("ascii"), key, value.encode("ascii")))
    return made


def origin_of_url(url: httpx.URL) -> str:
    """``scheme://host:port``, never userinfo, path or query."""
    try:
        parts = url._uri_reference
    except AttributeError:
        return origin_of(url.scheme, url.raw_host.decode("ascii"), url.port)
    return known_origin(parts.scheme, parts.host, parts.port)
