"""Credentials: whose call it is, by a salted hash of ``Authorization`` or ``x-api-key``.

One tenant's limit must not delay another, so cooldown, concurrency and pacing keep apart what they
know of each. The hash is Python's own, SipHash with a key that is drawn anew for each process: a
thousand credentials share one of its 64 bits with a chance of 1 in 10**13, and all that such two
would share is a limit. Neither the hash nor a header is shown, and no header is kept.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from ..core.call import Call

NAMES = frozenset({"authorization", "x-api-key"})
RAW_NAMES = frozenset(name.encode() for name in NAMES)  # of their own: "a" == b"a" is a warning
EVERYBODY = b""  # in place of a hash; calls without a credential have one too


def credential_of(lines: Iterable[tuple[str, str] | tuple[bytes, bytes]]) -> int:
    """Return a salted hash of a request's credentials; never 0."""
    found: object = None
    for name, value in lines:
        length = len(name)
        if length == 13 or length == 9:  # noqa: PLR1714  # in half the time of a set
            lower = name.lower()
            if isinstance(lower, bytes):
                if lower in RAW_NAMES:
                    found = found, length, value
            elif lower in NAMES:
                found = found, length, str(value).encode("utf-8", "surrogateescape")
    return hash(found) or 1


def credential_of_call(call: Call) -> Hashable:
    """Return the hash of a call's credentials, which is computed once per call."""
    credential = call.extras.credential
    if not credential:
        credential = call.own_extras().credential = credential_of(call.request.header_lines())
    return credential
