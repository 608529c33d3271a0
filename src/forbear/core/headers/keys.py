"""Idempotency keys: acceptable ones, their form, their place in a request.

Knows nothing of methods, bodies or responses and generates no key: that takes randomness (see
forbear/idempotency.py). A key is never trimmed, cut, re-encoded or case-folded; one that cannot be
sent as it is raises ValueError before anything is sent. Messages contain a key's length and the
character at fault, never the key.

Sources: draft-ietf-httpapi-idempotency-key-header (§2.1 syntax, §2.2 uniqueness), RFC 9651 §3.3.3
and §4 (Strings and Items), RFC 9110 §5.5, OASIS Repeatable Requests 1.0, and the vendors'
documentation named next to each profile.
"""

from __future__ import annotations

from functools import cache

from ..checks import check_choice
from .fields import Names, bare_item, collect, parameters, skip_spaces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from .fields import Found, Line

# The methods a key is generated for, those that the draft names (§1). Most others are idempotent.
GENERATED_FOR = frozenset({"POST", "PATCH"})

# "raw" is what every deployed vendor documents, "sf-string" what the draft asks for (§2.1).
STYLES = ("raw", "sf-string")

MAX_LENGTH = 255  # characters, before quoting: Stripe's documented maximum, used as the general one
# Profile -> the most characters of a key.
_MAX_LENGTHS = {
    "generic": MAX_LENGTH,
    "stripe": MAX_LENGTH,
    "adyen": 64,  # docs.adyen.com, API idempotency
    "amazon-pay": 32,  # developer.amazon.com, amazon-pay-api-v2/idempotency
    "worldline-direct": 40,  # docs.direct.worldline-solutions.com, idempotent requests
    "aws-client-token": 64,  # EC2 RunInstances, ClientToken
    "google-request-id": MAX_LENGTH,  # AIP-155: a UUID; the Compute API refuses the one of zeros
    "repeatability": MAX_LENGTH,  # OASIS, as Azure Communication Services implements it: a GUID
}
PROFILES = tuple(_MAX_LENGTHS)

_ZERO_UUID = "00000000-0000-0000-0000-000000000000"
_HEX = frozenset("0123456789abcdefABCDEF")
_AMAZON_PAY = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def serialize(key: str, *, style: str = "raw", profile: str = "generic") -> str:
    r"""Return the field value that carries ``key``.

    Args:
        key: 1 to 255 characters. Raw: visible ASCII, sent verbatim. Sf-string: visible ASCII and
            spaces, sent between double quotes with ``"`` and ``\`` escaped.
        style: ``"raw"`` or ``"sf-string"``.
        profile: The vendor whose limits the key must also meet, one of ``PROFILES``. Every profile
            but ``"generic"``, which leaves the characters to the style, asks for visible ASCII.

    Raises:
        ValueError: The key cannot be sent as it is, or the style or profile is unknown.
        TypeError: The key is not a str.
    """
    check_choice("style", style, STYLES)
    check_choice("profile", profile, PROFILES)
    _check_characters(key, spaces=style == "sf-string")
    if profile != "generic":
        check_profile(key, profile)
    if style == "raw":
        return key
    return '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'


def parse(field_value: str) -> str:
    """Return the key that an ``Idempotency-Key`` field value of the draft's form carries.

    Strict, as RFC 9651 §4.2 is: an Item whose bare item is a String. Parameters are read and
    ignored, a value without quotes is refused.

    Raises:
        ValueError: The value is malformed, or is the empty String, which is no usable key.
        TypeError: The value is not a str.
    """
    key = _string_item(field_value)
    if not key:
        raise ValueError('field value is the empty String "", which parses but is no usable key')
    return key


def parse_item(field_value: str) -> str | None:
    """Return the String of an Item field value, which may be empty; None for a malformed one."""
    try:
        return _string_item(field_value)
    except ValueError:
        return None


def check_profile(key: str, profile: str) -> None:
    """Raise ValueError unless ``key`` is acceptable to the vendor of ``profile``.

    Every profile asks for visible ASCII. UUIDs may be of any version and case.
    """
    check_choice("profile", profile, PROFILES)
    _check_characters(key, spaces=False)
    advice = f"use forbear.idempotency.generate(profile={profile!r})"
    if len(key) > (most := _MAX_LENGTHS[profile]):
        raise ValueError(
            f"profile {profile!r} allows at most {most} characters, got {len(key)}; {advice}"
        )
    if profile == "amazon-pay":
        at = next((i for i, character in enumerate(key) if character not in _AMAZON_PAY), None)
        if at is not None:
            fault = f"{key[at]!a} at position {at}"
            raise ValueError(
                f"profile {profile!r} allows A-Z a-z 0-9 - and _, got {fault}; {advice}"
            )
    elif profile in {"google-request-id", "repeatability"}:
        groups = key.split("-")
        is_hex = _HEX.issuperset("".join(groups))
        if [len(group) for group in groups] != [8, 4, 4, 4, 12] or not is_hex:
            raise ValueError(
                f"profile {profile!r} asks for a UUID in the 8-4-4-4-12 form,"
                f" got {len(key)} characters of another form; {advice}"
            )
        if profile == "google-request-id" and key == _ZERO_UUID:
            raise ValueError(f"profile {profile!r} refuses the UUID of zeros; {advice}")


def _check_characters(key: str, *, spaces: bool) -> None:
    if not isinstance(key, str):
        raise TypeError(f"key must be a str, got {type(key).__name__}; decode or format it first")
    if not 1 <= len(key) <= MAX_LENGTH:
        bound = "at least 1 character" if not key else f"at most {MAX_LENGTH} characters"
        raise ValueError(f"key must have {bound}, got {len(key)}; use a UUID or a digest instead")
    # In ASCII "printable" means exactly %x20-7E.
    if key.isascii() and key.isprintable() and (spaces or " " not in key):
        return
    lowest = " " if spaces else "!"
    at = next(i for i, character in enumerate(key) if not lowest <= character <= "~")
    allowed = "visible ASCII characters and spaces" if spaces else "visible ASCII characters"
    advice = 'remove it or use style="sf-string"' if key[at] == " " else "replace it, or use a UUID"
    raise ValueError(f"key must consist of {allowed}, got {key[at]!a} at position {at}; {advice}")


def _string_item(field_value: str) -> str:
    if not isinstance(field_value, str):
        raise TypeError(f"field value must be a str, got {type(field_value).__name__}; decode it")
    try:
        kind, value, at = bare_item(field_value, skip_spaces(field_value, 0))
        at = skip_spaces(field_value, parameters(field_value, at)[1])
    except ValueError as error:
        raise ValueError(
            f"field value is no structured-field Item: {error}; write the key in double quotes"
        ) from None
    if not isinstance(value, str) or kind != "String":
        raise ValueError(f"field value must be a String, got a {kind}; write it in double quotes")
    if at < len(field_value):
        raise ValueError(
            f"field value must be one Item, got more text at position {at}; send one key, one line"
        )
    return value


_DRAFT = "idempotency-key"
_REPEATABILITY = "repeatability-request-id"
_FIRST_SENT = "repeatability-first-sent"  # accompanies a key, is none itself

# Header names, in lower case, whose value is a key. Trace ids (X-Request-Id, traceparent) are
# none: no server promises that a second request with the same id is not executed again.
RECOGNISED = frozenset({_DRAFT, _REPEATABILITY, "x-idempotency-key", "paypal-request-id"})
KEY_LINES = RECOGNISED | {_FIRST_SENT}


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
    lines = _key_lines(headers, extra)
    single = {name for name, values in lines.items() if len(values) == 1 and values[0]}
    if _FIRST_SENT in single:
        single.remove(_FIRST_SENT)
    else:
        single.discard(_REPEATABILITY)
    return bool(single)


def names_a_key(headers: Iterable[Line], extra: frozenset[str] = frozenset()) -> bool:
    """Return whether any header is meant as a key, so that none may be generated.

    Wider than ``carries_key``: two lines, or half of an OASIS pair, are no key to rely on, but they
    are the caller's, and a further key would only add an ambiguity. Empty lines count as absent.
    """
    lines = _key_lines(headers, extra)
    return bool(lines) and any(
        name != _FIRST_SENT and any(values) for name, values in lines.items()
    )


def _key_lines(headers: Iterable[Line], extra: frozenset[str]) -> Found:
    """The trimmed values of the headers that may hold a key; "" for one that is empty."""
    found = collect(headers, _names(extra))
    if _DRAFT in found:  # its syntax writes the empty String as "", with or without parameters
        values = found[_DRAFT]
        found[_DRAFT] = ["" if v.startswith('""') and parse_item(v) == "" else v for v in values]
    return found


@cache
def _names(extra: frozenset[str]) -> Names:
    return Names(RECOGNISED | {_FIRST_SENT} | extra)
