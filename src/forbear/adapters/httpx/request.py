"""Request: what a decision sees of a request of the httpx family, and its header lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.request import Request

if TYPE_CHECKING:
    from collections.abc import Iterable


HOP, BODY = "forbear.call", "forbear.body"  # extensions keys
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
