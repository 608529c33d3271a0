"""Request: what a decision may ask of a request. Floor: decides.

Adapters state these facts; nothing here knows an HTTP library.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

__all__ = ["Request"]


class Request:
    """What a decision may ask of the request, the same for every library; looked up only when asked
    for.

    Made only for a call that does not simply succeed at once. Its URL and header values are secret:
    a scope or a strategy compares them, nobody tells them, and the repr shows neither.

    An adapter whose library keeps headers or URLs in another form overrides ``header_lines`` and
    ``path_and_query``.

    Attributes:
        method: As sent, upper case.
        origin: ``scheme://host:port``, the port always there.
        headers: The request's headers, in the library's own form; ``header`` is the same for all.
        key_names: Lower-case names of further headers that carry an idempotency key.
        target: Where on the origin it goes, in the library's own form; ``url`` is the same for all.
    """

    __slots__ = ("_keyed", "headers", "key_names", "method", "origin", "target")

    def __init__(
        self,
        method: str,
        origin: str,
        headers: Any = (),
        key_names: frozenset[str] = frozenset(),
        target: Any = "",
    ) -> None:
        self.method = method
        self.origin = origin
        self.headers = headers
        self.key_names = key_names
        self.target = target
        self._keyed: bool | None = None

    def header_lines(self) -> Iterable[tuple[str, str] | tuple[bytes, bytes]]:
        """The request's field lines."""
        return self.headers  # type: ignore[no-any-return]

    def path_and_query(self) -> str:
        """``/path?query``, as sent."""
        return self.target  # type: ignore[no-any-return]

    @property
    def url(self) -> str:
        """``scheme://host:port/path?query``, without userinfo and fragment: equal where the
        requests' are.
        """
        return f"{self.origin}{self.path_and_query()}"

    def header(self, name: str) -> str | None:
        """Return the first value of a header, without regard to case; None if the request has
        none.
        """
        wanted = name.lower()
        for found, value in self.header_lines():
            if (found.decode("latin-1") if isinstance(found, bytes) else found).lower() == wanted:
                return value.decode("latin-1") if isinstance(value, bytes) else value
        return None

    @property
    def keyed(self) -> bool:
        """The request carries exactly one usable idempotency key (rule S1)."""
        keyed = self._keyed
        if keyed is None:
            from .headers.keys import (
                carries_key,
            )  # loaded with the failure path, not with the first import

            keyed = self._keyed = carries_key(self.header_lines(), self.key_names)
        return keyed

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.method} {self.origin}>"
