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

import re

from .core.checks import check_bool, check_choice, check_duration, frozen, set_fields
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
_UUID = "[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
_ANY = (".*", f"at most {MAX_LENGTH} characters")
# Profile -> the form of a key, of visible ASCII characters anyway, and what that asks for.
_FORMS = {
    "generic": _ANY,
    "stripe": _ANY,
    # docs.adyen.com, API idempotency
    "adyen": (".{1,64}", "at most 64 characters"),
    # developer.amazon.com, amazon-pay-api-v2/idempotency
    "amazon-pay": ("[A-Za-z0-9_-]{1,32}", "at most 32 characters of A-Z a-z 0-9 - and _"),
    # docs.direct.worldline-solutions.com, idempotent requests
    "worldline-direct": (".{1,40}", "at most 40 characters"),
    # EC2 RunInstances, ClientToken
    "aws-client-token": (".{1,64}", "at most 64 characters"),
    # AIP-155; the Compute API refuses the one of zeros
    "google-request-id": (f"(?![0-]+$){_UUID}", "a UUID in the 8-4-4-4-12 form, not all zeros"),
    # OASIS, as Azure Communication Services implements it: a GUID
    "repeatability": (_UUID, "a UUID in the 8-4-4-4-12 form"),
}
PROFILES = tuple(_FORMS)


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
    check_profile(key, profile, spaces=style == "sf-string")
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


def check_profile(key: str, profile: str, *, spaces: bool = False) -> None:
    """Raise ValueError unless ``key`` is acceptable to the vendor of ``profile``.

    Every profile asks for visible ASCII; ``spaces`` may be in a key of ``"generic"``. UUIDs may be
    of any version and case.
    """
    check_choice("profile", profile, PROFILES)
    if not isinstance(key, str):
        raise TypeError(f"key must be a str, got {type(key).__name__}; decode or format it first")
    if not 1 <= len(key) <= MAX_LENGTH:
        raise ValueError(
            f"key must have 1 to {MAX_LENGTH} characters, got {len(key)}; use a UUID or a digest"
        )
    lowest = " " if spaces and profile == "generic" else "!"
    for at, character in enumerate(key):
        if not lowest <= character <= "~":
            raise ValueError(
                f"key must consist of visible ASCII characters, got {character!a} at position {at};"
                ' replace it, or send spaces with style="sf-string"'
            )
    form, asked = _FORMS[profile]
    if not re.fullmatch(form, key):
        raise ValueError(
            f"profile {profile!r} asks for {asked}, got {len(key)} characters of another form;"
            f" use forbear.idempotency.generate(profile={profile!r})"
        )


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
        check_choice("style", self.style, STYLES)
        check_choice("profile", self.profile, PROFILES)
        check_bool("generate", self.generate)
        names = texts("recognise", self.recognise, '("X-Order-Key",)')
        for name in (*texts("header", (self.header,), '"Idempotency-Key"'), *names):
            _check_field_name(name)
        check_duration("lifetime", self.lifetime, zero=False)
        where = None
        if self.origins is not None:
            named = texts("origins", self.origins, '{"https://api.example.com"}')
            where = frozenset(map(origin_from, named))

        set_fields(self, recognise=names, lifetime=float(self.lifetime), origins=where)

    @property
    def recognised(self) -> frozenset[str]:
        """Lower-case names of ``header`` and ``recognise``: the ``extra`` of ``carries_key``."""
        return frozenset(name.lower() for name in (self.header, *self.recognise))

    def covers(self, origin: str) -> bool:
        """Return whether keys are generated for ``origin``, a ``scheme://host:port``."""
        return self.origins is None or origin in self.origins


def _check_field_name(name: str) -> None:
    if not re.fullmatch(r"[0-9A-Za-z!#$%&'*+.^_`|~-]+", name):  # a token of RFC 9110 §5.6.2
        # It is not shown, because a header's value may follow a colon.
        raise ValueError(
            "a header name must consist of letters, digits and !#$%&'*+-.^_`|~ (RFC 9110 §5.1);"
            ' write the name alone, as in "Idempotency-Key"'
        )


def check(value: object) -> IdempotencyKeys:
    """Check the option ``idempotency``."""
    code = 'IdempotencyKeys(origins=["https://api.example.com"])'
    return check_is("idempotency", value, IdempotencyKeys, "IdempotencyKeys(), or None", code)


def keys(keys: IdempotencyKeys) -> tuple[frozenset[str], float]:
    """Return the names of headers that hold a key besides the usual ones, and its lifetime."""
    return keys.recognised, keys.lifetime


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
