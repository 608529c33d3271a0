"""Scopes: which calls share a part of a cooldown, a concurrency limit or a pacing.

One tenant's limit must not delay another, so these distinguish tenants by a salted hash of their
credentials. It is Python's own, SipHash with a key that is chosen anew for each process: of a
thousand credentials two are alike with a chance of 1 in 10**13, and all that such two would share
is a limit. Neither the hash nor a header is shown, and none is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.call import DELAYED_BY, PLUGIN_ERROR
from ..core.request import scope_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable
    from typing import Literal

    from ..core.call import Call
    from ..core.request import Request

    CallerScope = Literal["credential", "origin"] | Callable[[Request], str]

EVERYBODY = b""  # in place of a hash; calls without a credential have one too
CREDENTIAL_NAMES = frozenset({"authorization", "x-api-key"})
CREDENTIAL, DELAYED = "credential", "delayed"  # keys of a call's notes


def key_of(call: Call, scope: CallerScope) -> Hashable:
    """Return the key of the scope that a call's next attempt is in."""
    if scope == "credential":
        return call.origin, credential_of_call(call)
    if callable(scope):
        try:
            return "", scope_of(scope, call.request)
        except Exception as error:  # of the user's: the call is on its origin
            call.notes[PLUGIN_ERROR] = error
    return call.origin


def credential_of(lines: Iterable[tuple[str, str] | tuple[bytes, bytes]]) -> int:
    """Return a salted hash of a request's credentials; never 0."""
    found: object = None
    for name, value in lines:
        lower = (name if isinstance(name, str) else name.decode("latin-1")).lower()
        if lower in CREDENTIAL_NAMES:
            raw = value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")
            found = found, lower, raw
    return hash(found) or 1


def credential_of_call(call: Call) -> int:
    """Return the hash of a call's credentials, which is computed once per call."""
    found: int | None = call.notes.get(CREDENTIAL)
    if found is None:
        found = call.notes[CREDENTIAL] = credential_of(call.request.header_lines())
    return found


def delay_by(call: Call, limit: str, field: str, seconds: float) -> None:
    """Note, in a field of its record too, that a limit has delayed the call's next attempt."""
    call.add_to_story(field, seconds)
    call.notes.setdefault(DELAYED_BY, []).append((limit, seconds))


def delayed_so_far(call: Call) -> float:
    """Seconds for which cooldowns have delayed the call so far."""
    return float(call.notes.get(DELAYED, 0.0))


def note_delay(call: Call, seconds: float) -> None:
    """Note that a cooldown delays the call; one that is held is asked again and again."""
    if call.hold is None:
        call.notes[DELAYED] = delayed_so_far(call) + seconds
