"""Added headers: what forbear itself puts on a request, always on a copy. Floor: acts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core._checks import shown

if TYPE_CHECKING:
    from ..core.keys import IdempotencyKeys

__all__ = ["checked_contact", "new_key", "wants_key"]


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


def checked_contact(contact: str) -> str:
    """The ``From`` value of RFC 9110 section 10.1.2: one machine-usable address."""
    try:
        from email_validator import EmailNotValidError, validate_email
    except ImportError:
        raise ImportError("contact= needs email-validator: pip install 'forbear[contact]'") from None
    try:
        found = validate_email(contact, check_deliverability=False, allow_smtputf8=False, strict=True)
    except EmailNotValidError as error:
        raise ValueError(
            f"contact must be one e-mail address such as 'ops@example.com', got {shown(contact)}: {error}"
        ) from None
    address = found.ascii_email
    assert address is not None
    assert address.isascii()
    return address
