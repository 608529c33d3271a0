"""Credentials: whose call it is, by a salted hash of ``Authorization`` or ``x-api-key``.

One tenant's limit must not delay another, so cooldown, concurrency and pacing keep apart what they
know of each. The hash is Python's own, SipHash with a key that is drawn anew for each process: a
thousand credentials share one of its 64 bits with a chance of 1 in 10**13, and all that such two
would share is a limit. Neither the hash nor a header is shown, and no header is kept.
"""

from __future__ import annotations

from ..core.checks import shown
from ..core.request import scope_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable
    from typing import Literal

    from ..core.call import Call
    from ..core.request import Request

    # Whose calls share a limit.
    CallerScope = Literal["credential", "origin"] | Callable[[Request], str]

NAMES = frozenset({"authorization", "x-api-key"})
EVERYBODY = b""  # in place of a hash; calls without a credential have one too


def credential_of(lines: Iterable[tuple[str, str] | tuple[bytes, bytes]]) -> int:
    """Return a salted hash of a request's credentials; never 0."""
    found: object = None
    for name, value in lines:
        length = len(name)
        if length == 13 or length == 9:  # noqa: PLR1714  # in half the time of a set
            lower = name.lower()
            if type(lower) is bytes:  # no set, because it would hash a name that is new each time
                if lower == b"authorization" or lower == b"x-api-key":  # noqa: PLR1714
                    found = found, length, value
            elif lower in NAMES:
                found = found, length, str(value).encode("utf-8", "surrogateescape")
    return hash(found) or 1


def credential_of_call(call: Call) -> Hashable:
    """Return the hash of a call's credentials, which is computed once per call."""
    extras = call.own_extras()
    if extras.credential is None:
        extras.credential = credential_of(call.request.header_lines())
    return extras.credential


def check_scope(scope: object) -> None:
    """ValueError: it is neither "credential" nor "origin", nor a function of the request."""
    if not callable(scope) and scope not in ("credential", "origin"):
        allowed = "'credential', 'origin' or a function of the request"
        raise ValueError(f"scope must be {allowed}, got {shown(scope)}")


def key_of(call: Call, scope: CallerScope) -> Hashable:
    """Return the key of the scope that a call's next attempt is in."""
    if scope == "credential":
        return call.origin, credential_of_call(call)
    if callable(scope):
        try:
            return "", scope_of(scope, call.request)
        except Exception as error:  # of the user's: the call is on its origin
            call.own_extras().plugin_error = error
    return call.origin
