"""Contact: the address that the option ``contact`` gives; loaded where it is given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.checks import shown, to_install

if TYPE_CHECKING:
    from ..core.request import Request


def check(contact: str) -> str:
    """Check the option; return the ``From`` value of RFC 9110 section 10.1.2: one address."""
    try:
        from email_validator import EmailNotValidError, validate_email
    except ImportError:
        raise ImportError(f"contact= needs email-validator: {to_install('contact')}") from None
    try:
        found = validate_email(
            contact, check_deliverability=False, allow_smtputf8=False, strict=True
        )
    except EmailNotValidError as error:
        raise ValueError(
            f"contact must be one e-mail address such as 'ops@example.com', got {shown(contact)}:"
            f" {error}"
        ) from None
    address: str | None = found.ascii_email
    assert address is not None
    return address


def first_lines(address: str, request: Request, utc_now: float) -> list[tuple[str, str]]:
    """Return the header line of a call, unless the caller has written one."""
    written = any(name.lower() in ("from", b"from") for name, _ in request.header_lines())
    return [] if written else [("From", address)]
