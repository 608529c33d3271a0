"""Idempotency: keys for your own requests, and where and how a transport generates them.

A key is never trimmed, cut, re-encoded or case-folded; one that cannot be sent as it is raises
ValueError before anything is sent. Messages contain a key's length and the character at fault,
never the key. A key that you put on a request is used for every attempt of that call:

    key = generate()
    client.post(url, json=order, headers={"Idempotency-Key": serialize(key)})

Sources: draft-ietf-httpapi-idempotency-key-header (§1, §2.1 syntax, §2.2 uniqueness, §2.5), RFC
9651 §3.3.3 and §4 (Strings and Items), RFC 9110 §5.5, OASIS Repeatable Requests 1.0, and the
vendors' documentation named next to each profile.
"""

from __future__ import annotations

from .core.checks import check_bool, check_choice, frozen, set_fields, shown
from .core.feature_checks import check_is, texts
from .core.headers.structured import parse_item
from .core.origins import origin_from
from .core.request import FIRST_SENT, key_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from typing import Literal

    from .core.headers.fields import Line
    from .core.request import Request


__all__ = ["generate", "parse", "serialize"]


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
    key = parse_item(field_value)
    if key is None:
        raise ValueError(
            "field value must be one structured-field String; write it in double quotes"
        )
    if not key:
        raise ValueError('field value is the empty String "", which parses but is no usable key')
    return key


def generate(*, profile: str = "generic") -> str:
    """Return a new random key that is acceptable to the vendor of ``profile``.

    A version 4 UUID in lower-case hyphenated form (draft-ietf-httpapi-idempotency-key-header §2.2
    recommends a UUID); for ``"amazon-pay"``, which allows 32 characters, its digits without
    hyphens. The randomness is the operating system's, so the children of a fork generate different
    keys.

    Args:
        profile: ``"generic"`` or the vendor's name, as for ``serialize``.

    Raises:
        ValueError: The profile is unknown.
    """
    from uuid import uuid4  # only here: importing it takes milliseconds

    key = uuid4().hex if profile == "amazon-pay" else str(uuid4())
    check_profile(key, profile)
    return key


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


# A token of RFC 9110 §5.6.2.
_TOKEN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_`|~")


@frozen(kw_only=True)
class IdempotencyKeys:
    """Say how a transport recognises and generates idempotency keys.

    Giving one to a transport turns generation on for POST and PATCH: each call gets one new key,
    sent with every attempt of that call to that origin. Do so only for servers that are known to
    honour the header: one that ignores it makes a retried POST a second order (draft §2.5).
    A key the caller has put on the request is always used as it is. Immutable, so safe to share
    between threads and transports; equal if all fields are; pickles.

    Args:
        header: Name of the header a generated key is sent in, as it is to be spelled on the wire.
        style: ``"raw"``: the bare value, as the vendors document it; ``"sf-string"``: in double
            quotes, as the draft has it (§2.1).
        profile: Whose form a generated key takes, one of ``forbear.idempotency.PROFILES``.
        generate: False: generate none, only recognise.
        recognise: Names of further headers that hold a key on a single line; ``header`` is one
            anyway, as are those known to every transport (``RECOGNISED``).
        lifetime: Seconds the server remembers a key, more than 0 and finite; no retry is sent later
            than that after the first attempt. Documented values lie between 300 (Azure
            Communication Services) and 2,678,400 (Adyen); the default is Stripe's 24 hours.
        origins: Where keys are generated for: ``"https://api.example.com"``, with a port if it is
            not the scheme's own. None: everywhere; an empty set: nowhere. Kept with the port filled
            in, in lower case.

    Raises:
        ValueError: A value is out of range; the message says what to write instead.
        TypeError: A value is of the wrong type.
    """

    header: str = "Idempotency-Key"
    style: Literal["raw", "sf-string"] = "raw"
    profile: str = "generic"
    generate: bool = True
    recognise: Collection[str] = ()
    lifetime: float = 86_400.0
    origins: Collection[str] | None = None

    def __post_init__(self) -> None:
        _check_field_name("header", self.header)
        check_choice("style", self.style, STYLES)
        check_choice("profile", self.profile, PROFILES)
        check_bool("generate", self.generate)
        names = texts("recognise", self.recognise, '("X-Order-Key",)')
        for name in names:
            _check_field_name("recognise", name)
        seconds = _lifetime(self.lifetime)
        where = None
        if self.origins is not None:
            named = texts("origins", self.origins, '{"https://api.example.com"}')
            where = frozenset(map(origin_from, named))

        set_fields(self, recognise=names, lifetime=seconds, origins=where)

    @property
    def recognised(self) -> frozenset[str]:
        """Lower-case names of ``header`` and ``recognise``: the ``extra`` of ``carries_key``."""
        return frozenset(name.lower() for name in (self.header, *self.recognise))

    def covers(self, origin: str) -> bool:
        """Return whether keys are generated for ``origin``, a ``scheme://host:port``."""
        return self.origins is None or origin in self.origins


def _check_field_name(what: str, name: str) -> None:
    if not isinstance(name, str):
        raise TypeError(
            f'{what} must be a str, got one {type(name).__name__}; write "Idempotency-Key"'
        )
    if name and _TOKEN.issuperset(name):
        return
    # Only the text before the fault is shown, because a header's value may follow a colon.
    at = next((i for i, character in enumerate(name) if character not in _TOKEN), None)
    fault = "an empty one" if at is None else f"{name[at]!a} after {shown(name[:at])}"
    raise ValueError(
        f"{what} must be a header name of letters, digits and !#$%&'*+-.^_`|~ (RFC 9110 §5.1),"
        f' got {fault}; write the name alone, as in "Idempotency-Key"'
    )


def _lifetime(given: float) -> float:
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        raise TypeError(
            f"lifetime must be a number of seconds, got {shown(given)}; write 86_400.0 for a day"
        )
    if not 0 < given < 1e308:  # so written that NaN fails too, and an int no float can hold
        raise ValueError(
            f"lifetime must be more than 0 seconds and finite, got {shown(given)};"
            " write how long the server remembers a key, 86_400.0 for a day"
        )
    return float(given)


def check(value: object) -> IdempotencyKeys:
    """Check the option ``idempotency``."""
    code = 'IdempotencyKeys(origins=["https://api.example.com"])'
    return check_is("idempotency", value, IdempotencyKeys, "IdempotencyKeys(), or None", code)


# The methods a key is generated for, those that the draft names (§1). Most others are idempotent.
GENERATED_FOR = frozenset({"POST", "PATCH"})


def first_lines(keys: IdempotencyKeys, request: Request, utc_now: float) -> list[tuple[str, str]]:
    """Return the header lines of a fresh key, if the request gets one. (K7)"""
    if (
        not keys.generate
        or request.method not in GENERATED_FOR
        or not keys.covers(request.origin)
        or names_a_key(request.header_lines(), keys.recognised)
    ):
        return []
    key = serialize(generate(profile=keys.profile), style=keys.style, profile=keys.profile)
    if keys.header.lower() != "repeatability-request-id":
        return [(keys.header, key)]
    # OASIS Repeatable Requests 1.0 section 4: both are mandatory, and retries keep the date of the
    # first attempt.
    from email.utils import formatdate

    return [(keys.header, key), ("Repeatability-First-Sent", formatdate(utc_now, usegmt=True))]


def names_a_key(headers: Iterable[Line], extra: frozenset[str] = frozenset()) -> bool:
    """Return whether any header is meant as a key, so that none may be generated.

    Wider than ``carries_key``: two lines, or half of an OASIS pair, are no key to rely on, but they
    are the caller's, and a further key would only add an ambiguity. Empty lines count as absent.
    """
    lines = key_lines(headers, extra)
    return bool(lines) and any(name != FIRST_SENT and any(values) for name, values in lines.items())
