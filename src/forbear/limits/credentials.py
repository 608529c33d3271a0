"""Credentials: whose call it is, by a salted hash of ``Authorization`` or ``x-api-key``.

One tenant's limit must not delay another, so cooldown, concurrency and pacing keep apart what they
know of each. The hashes are never shown.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..core.call import Call

NAMES = frozenset({"authorization", "x-api-key"})
RAW_NAMES = frozenset(name.encode() for name in NAMES)  # of their own: "a" == b"a" is a warning
MOST_KNOWN = 1024
SALT = repr(hash("forbear")).encode()  # Python's own, drawn anew for each process
_known: dict[int, bytes] = {}  # by Python's own hash of what was hashed; no header value is kept


def credential_of(lines: Iterable[tuple[str, str] | tuple[bytes, bytes]]) -> bytes:
    """Return a salted hash of a request's credentials; never b""."""
    found: tuple[str | bytes, ...] = ()
    for name, value in lines:
        length = len(name)
        if length == 13 or length == 9:  # noqa: PLR1714  # in half the time of a set
            lower = name.lower()
            if lower in (RAW_NAMES if isinstance(lower, bytes) else NAMES):
                found += lower, value
    key = hash(found)
    known = _known.get(key)
    if known is None:
        from hashlib import blake2b

        digest = blake2b(key=SALT, digest_size=16)
        for part in found:
            digest.update(raw_bytes(part) + b"\n")
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        known = _known[key] = digest.digest()
    return known


def credential_of_call(call: Call) -> bytes:
    """Return the hash of a call's credentials, which is computed once per call."""
    credential = call.extras.credential
    if not credential:
        credential = call.own_extras().credential = credential_of(call.request.header_lines())
    return credential


def raw_bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else str(text).encode("utf-8", "surrogateescape")
