"""Added headers: what forbear itself puts on a request, always on a copy. Floor: acts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..core.keys import IdempotencyKeys

__all__ = ["new_key", "wants_key"]


def wants_key(keys: IdempotencyKeys, request: Any, origin: str) -> bool:
    from ..core.keys import GENERATED_FOR, names_a_key

    return (
        keys.generate
        and request.method in GENERATED_FOR
        and keys.covers(origin)
        and not names_a_key(request.headers.raw, keys.recognised)
    )


def new_key(keys: IdempotencyKeys, utc_now: float) -> tuple[tuple[str, str], ...]:
    """The header lines of a fresh key, the same for all attempts of a call."""
    from ..idempotency import generate, serialize

    line = keys.header, serialize(generate(profile=keys.profile), style=keys.style, profile=keys.profile)
    if keys.header.lower() != "repeatability-request-id":
        return (line,)
    # OASIS Repeatable Requests 1.0 section 4: both are mandatory, and this stays that of the first attempt.
    from email.utils import formatdate

    return line, ("Repeatability-First-Sent", formatdate(utc_now, usegmt=True))
