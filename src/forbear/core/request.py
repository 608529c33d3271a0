"""Request: the facts about a request that a decision reads: its origin, its idempotency key, whose
it is.

Adapters state these facts; nothing here knows an HTTP library. The form of an origin is that of
RFC 6454 §4, with the port always there. What a key may be is in forbear/idempotency.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache

from .headers.fields import Names, collect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Literal

    from .headers.fields import Found, Line

    # Which share of a limit a call uses.
    Scope = Literal["origin", "transport"] | Callable[["Request"], str]


DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


@dataclass(eq=False, repr=False, slots=True)
class Request:
    """The facts about a request that a decision reads, the same for every library.

    Made only for a call that does not succeed at once. URL and header values are secret: a scope or
    a strategy compares them, but nothing logs them, and the repr shows neither.

    An adapter whose library keeps headers or URLs in another form overrides ``header_lines`` and
    ``path_and_query``.

    Attributes:
        method: As sent, upper case.
        origin: ``scheme://host:port``, the port always there.
        headers: The request's headers, in the library's own form; ``header`` is the same for all.
        key_names: Lower-case names of further headers that carry an idempotency key.
        original: The request as the library made it, for the adapter.
        target: Where on the origin it goes, in the library's own form; ``url`` is the same for all.
    """

    method: str
    origin: str
    headers: Any = ()
    key_names: frozenset[str] = frozenset()
    target: Any = ""
    original: Any = None
    # The body, if it is no plain bytes: it knows whether it can be replayed (``ready``).
    guard: object = None
    _keyed: bool | None = None

    # The caller reads the body of the response; else the client does by itself, as Urllib3Port.run.
    streams = True

    def header_lines(self) -> Iterable[tuple[str, str] | tuple[bytes, bytes]]:
        """The request's field lines."""
        return self.headers  # type: ignore[no-any-return]

    def path_and_query(self) -> str:
        """``/path?query``, as sent."""
        return self.target  # type: ignore[no-any-return]

    @property
    def url(self) -> str:
        """``scheme://host:port/path?query``, without userinfo and fragment."""
        return f"{self.origin}{self.path_and_query()}"

    def header(self, name: str) -> str | None:
        """Return the first value of a header, without regard to case; None if there is none."""
        wanted = name.lower()
        for found, value in self.header_lines():
            if (found.decode("latin-1") if isinstance(found, bytes) else found).lower() == wanted:
                return value.decode("latin-1") if isinstance(value, bytes) else value
        return None

    @property
    def keyed(self) -> bool:
        """The request carries exactly one usable idempotency key."""
        keyed = self._keyed
        if keyed is None:
            keyed = self._keyed = carries_key(self.header_lines(), self.key_names)
        return keyed


def origin_of(scheme: str, host: str, port: int | None) -> str:
    """Return ``scheme://host:port`` of a URL that a library has taken apart.

    Args:
        scheme: In lower case.
        host: IPv6 with or without brackets.
        port: None: the scheme's own; 0 for a scheme that has none.
    """
    if port is None:
        port = DEFAULT_PORTS.get(scheme, 0)
    host = host.lower()
    if ":" in host and host[0] != "[":
        host = f"[{host}]"
    return f"{scheme}://{host}:{port}"


known_origin = lru_cache(maxsize=1024)(origin_of)


def scope_of(scope: Scope, request: Request) -> str:
    """Say which share of a limit a request uses. TypeError: the function returns no text."""
    if not callable(scope):
        return request.origin if scope == "origin" else ""
    found = scope(request)
    if not isinstance(found, str):
        raise TypeError(f"scope must return text, got {type(found).__name__}")
    return str.__str__(found)  # a subclass's own __eq__ would run while a lock is held


_DRAFT = "idempotency-key"
_REPEATABILITY = "repeatability-request-id"
FIRST_SENT = "repeatability-first-sent"  # accompanies a key, is none itself

# Header names, in lower case, whose value is a key. Trace ids (X-Request-Id, traceparent) are
# none: no server promises that a second request with the same id is not executed again.
RECOGNISED = frozenset({_DRAFT, _REPEATABILITY, "x-idempotency-key", "paypal-request-id"})
KEY_LINES = RECOGNISED | {FIRST_SENT}


def carries_key(headers: Iterable[Line], extra: frozenset[str] = frozenset()) -> bool:
    """Return whether the request carries an idempotency key that a server can rely on.

    One line of ``Idempotency-Key``, of ``X-Idempotency-Key``, of ``PayPal-Request-Id`` or of a name
    in ``extra``, or one line each of ``Repeatability-Request-ID`` and ``Repeatability-First-Sent``
    (OASIS asks for both), and not empty. Two lines of one name do not count: which of them the
    server takes is unknown (RFC 9651 §4.2 lets an Item have one line), and True here lets a POST be
    sent twice.

    Args:
        headers: The request's header lines in any order.
        extra: Lower-case names of further headers that hold a key on a single line. A name that has
            a rule of its own above keeps that rule.
    """
    lines = key_lines(headers, extra)
    single = {name for name, values in lines.items() if len(values) == 1 and values[0]}
    if FIRST_SENT in single:
        single.remove(FIRST_SENT)
    else:
        single.discard(_REPEATABILITY)
    return bool(single)


def key_lines(headers: Iterable[Line], extra: frozenset[str]) -> Found:
    """The trimmed values of the headers that may hold a key; "" for one that is empty."""
    found = collect(headers, _names(extra))
    if _DRAFT in found:  # its syntax writes the empty String as "", with or without parameters
        found[_DRAFT] = ["" if is_empty_item(value) else value for value in found[_DRAFT]]
    return found


def is_empty_item(field_value: str) -> bool:
    if not field_value.startswith('""'):
        return False
    from .headers.structured import parse_item

    return parse_item(field_value) == ""


@cache
def _names(extra: frozenset[str]) -> Names:
    return Names(RECOGNISED | {FIRST_SENT} | extra)
