"""Idempotency keys: which are acceptable, how they are written, where a request carries one. Floor: decides.

Knows nothing of methods, bodies or answers (see safety.py) and invents no key: that takes
randomness (see forbear/idempotency.py). A key is never trimmed, cut, re-encoded or case-folded; one
that cannot be sent as it is raises ValueError before anything is sent. Messages tell a key's length
and the character at fault, never the key.

Sources: draft-ietf-httpapi-idempotency-key-header (§2.1 syntax, §2.2 uniqueness), RFC 9651 §3.3.3
and §4 (Strings and Items), RFC 9110 §5.5, OASIS Repeatable Requests 1.0, and the vendors'
documentation named beside each profile.
"""

from __future__ import annotations

from ._checks import a_choice, shown
from ._frozen import Frozen
from .structured import bare_item, parameters, skip_spaces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

__all__ = [
    "GENERATED_FOR",
    "PROFILES",
    "RECOGNISED",
    "STYLES",
    "IdempotencyKeys",
    "carries_key",
    "check_profile",
    "names_a_key",
    "parse",
    "parse_item",
    "serialize",
]

# The methods a key is invented for: the two that the draft names (§1). Nearly all others are idempotent.
GENERATED_FOR = frozenset({"POST", "PATCH"})

# "raw" is what every deployed vendor documents, "sf-string" what the draft asks for (§2.1).
STYLES = ("raw", "sf-string")

PROFILES = (
    "generic",
    "stripe",
    "adyen",
    "amazon-pay",
    "worldline-direct",
    "aws-client-token",
    "google-request-id",
    "repeatability",
)

MAX_LENGTH = 255  # characters, before quoting: Stripe's documented maximum, used as the general one

_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_MAX_LENGTH_OF = {
    "adyen": 64,  # docs.adyen.com, API idempotency
    "amazon-pay": 32,  # developer.amazon.com, amazon-pay-api-v2/idempotency
    "worldline-direct": 40,  # docs.direct.worldline-solutions.com, idempotent requests
    "aws-client-token": 64,  # EC2 RunInstances, ClientToken
}
_UUID_ONLY = (
    "google-request-id",  # AIP-155; the Compute API refuses the zero UUID
    "repeatability",  # OASIS Repeatable Requests as Azure Communication Services implements it: a GUID
)
_ZERO_UUID = "00000000-0000-0000-0000-000000000000"
_HEX = frozenset("0123456789abcdefABCDEF")
_AMAZON_PAY = frozenset(_ALPHABET + "-_")
_TOKEN = frozenset(_ALPHABET + "!#$%&'*+-.^_`|~")  # RFC 9110 §5.6.2
_HOST = frozenset(_ALPHABET + "-._~")


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
    a_choice("style", style, STYLES)
    a_choice("profile", profile, PROFILES)
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
        raise ValueError('field value is the empty String "", which parses but is no usable key; name one inside it')
    return key


def parse_item(field_value: str) -> str | None:
    """Return the String of an Item field value, which may be empty, or None for a malformed one."""
    try:
        return _string_item(field_value)
    except ValueError:
        return None


def check_profile(key: str, profile: str) -> None:
    """Raise ValueError unless ``key`` is acceptable to the vendor of ``profile``.

    Lengths are counted in characters, which are octets here: every profile asks for visible ASCII.
    UUIDs may be of any version and case, in the 8-4-4-4-12 form.
    """
    a_choice("profile", profile, PROFILES)
    _check_characters(key, spaces=False)
    if len(key) > (most := _MAX_LENGTH_OF.get(profile, MAX_LENGTH)):
        raise ValueError(
            f"profile {profile!r} allows at most {most} characters, got {len(key)};"
            f" use forbear.idempotency.generate(profile={profile!r})"
        )
    if profile == "amazon-pay":
        at = next((i for i, character in enumerate(key) if character not in _AMAZON_PAY), None)
        if at is not None:
            raise ValueError(
                f"profile 'amazon-pay' allows A-Z a-z 0-9 - and _, got {key[at]!a} at position {at};"
                " use forbear.idempotency.generate(profile='amazon-pay')"
            )
    elif profile in _UUID_ONLY:
        groups = key.split("-")
        if [len(group) for group in groups] != [8, 4, 4, 4, 12] or not _HEX.issuperset("".join(groups)):
            raise ValueError(
                f"profile {profile!r} asks for a UUID in the 8-4-4-4-12 form,"
                f" got {len(key)} characters of another form; use forbear.idempotency.generate()"
            )
        if profile == "google-request-id" and key == _ZERO_UUID:
            raise ValueError(
                "profile 'google-request-id' refuses the UUID of zeros; use forbear.idempotency.generate()"
            )


def _check_characters(key: str, *, spaces: bool) -> None:
    if not isinstance(key, str):
        raise TypeError(f"key must be a str, got {type(key).__name__}; decode or format it first")
    if not key:
        raise ValueError("key must have at least 1 character, got none; use forbear.idempotency.generate()")
    if len(key) > MAX_LENGTH:
        raise ValueError(
            f"key must have at most {MAX_LENGTH} characters, got {len(key)}; use a UUID or a digest instead"
        )
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
        raise TypeError(f"field value must be a str, got {type(field_value).__name__}; decode bytes as latin-1")
    try:
        kind, value, at = bare_item(field_value, skip_spaces(field_value, 0))
        _, at = parameters(field_value, at)
    except ValueError as error:
        raise ValueError(
            f"field value is no structured-field Item: {error}; write the key as a quoted String"
        ) from None
    if not isinstance(value, str) or kind != "String":
        raise ValueError(f"field value must be a String, got a {kind}; write the key in double quotes")
    at = skip_spaces(field_value, at)
    if at < len(field_value):
        raise ValueError(f"field value must be one Item, got more text at position {at}; send one key on one line")
    return value


# --- where a request carries a key ------------------------------------------------------------

_DRAFT = "idempotency-key"
_SINGLE = frozenset({"x-idempotency-key", "paypal-request-id"})
_REPEATABILITY = "repeatability-request-id"
_FIRST_SENT = "repeatability-first-sent"  # belongs to a key, is none

# Header names, in lower case, whose value is a key. Trace ids (X-Request-Id, traceparent) are
# none: nobody promises to answer the second request that bears one as the first was answered.
RECOGNISED = frozenset({_DRAFT, _REPEATABILITY}) | _SINGLE

_LOOKED_AT = RECOGNISED | {_FIRST_SENT}
_LENGTHS = frozenset(map(len, _LOOKED_AT))
_NONE: frozenset[str] = frozenset()

if TYPE_CHECKING:
    Headers = Iterable[tuple[bytes | str, bytes | str]]


def carries_key(headers: Headers, extra: frozenset[str] = _NONE) -> bool:
    """Return whether the request carries an idempotency key that a server can rely on.

    One line of ``Idempotency-Key``, of ``X-Idempotency-Key``, of ``PayPal-Request-Id`` or of a name
    in ``extra``, or one line each of ``Repeatability-Request-ID`` and ``Repeatability-First-Sent``
    (OASIS asks for both), and not empty. Two lines of one name do not count: which of them the
    server takes is anyone's guess (RFC 9651 §4.2 lets an Item have one line), and an answer of True
    here lets a POST be sent twice.

    Args:
        headers: The request's header lines in any order.
        extra: Lower-case names of further headers that hold a key on a single line. A name that has
            a rule of its own above keeps that rule.
    """
    lines = _key_lines(headers, extra)
    if not lines:
        return False
    single = {name for name, values in lines.items() if len(values) == 1 and not _is_empty(name, values[0])}
    if _FIRST_SENT in single:
        single.remove(_FIRST_SENT)
    else:
        single.discard(_REPEATABILITY)
    return bool(single)


def names_a_key(headers: Headers, extra: frozenset[str] = _NONE) -> bool:
    """Return whether any header is meant as a key, so that none may be generated.

    Wider than ``carries_key``: two lines, or half of an OASIS pair, are no key to rely on, but they
    are the caller's, and a third key beside them would help nobody. Empty lines count as absent.
    """
    lines = _key_lines(headers, extra)
    if not lines:
        return False
    return any(
        name != _FIRST_SENT and any(not _is_empty(name, value) for value in values) for name, values in lines.items()
    )


def _key_lines(headers: Headers, extra: frozenset[str]) -> dict[str, list[str]] | None:
    """The trimmed values of each looked-at header by lower-case name; None, as a rule, if there are none.

    The length is asked first because few headers have one of these lengths, and asking costs less
    than lower-casing: 0.5 µs for eight headers of which none matches.
    """
    lengths = _LENGTHS.union(map(len, extra)) if extra else _LENGTHS
    found: dict[str, list[str]] | None = None
    for name, value in headers:
        if len(name) not in lengths:
            continue
        lower = (name.decode("latin-1") if isinstance(name, bytes) else name).lower()
        # isascii: KELVIN SIGN lower-cases to "k", but a name that has one is not Idempotency-Key.
        if (lower in _LOOKED_AT or lower in extra) and name.isascii():
            if found is None:
                found = {}
            text = value.decode("latin-1") if isinstance(value, bytes) else value
            found.setdefault(lower, []).append(text.strip(" \t"))  # OWS, RFC 9110 §5.6.3
    return found


def _is_empty(name: str, value: str) -> bool:
    # The empty String, with or without parameters, says in the draft's syntax what no text says without it.
    return not value or (name == _DRAFT and value.startswith('""') and parse_item(value) == "")


# --- configuration ----------------------------------------------------------------------------


class IdempotencyKeys(Frozen):
    """Say how a transport recognises idempotency keys and invents them.

    Giving one to a transport turns generation on for POST and PATCH: each call gets one new key,
    sent with every attempt of that call to that origin. Do so only for servers that are known to
    honour the header: one that ignores it makes a repeated POST a second order (draft §2.5).
    A key the caller has put on the request is always used as it is. Immutable, so safe to share
    between threads and transports; equal if all fields are; pickles.

    Args:
        header: Name of the header a generated key is sent in, as it is to be spelled on the wire.
        style: ``"raw"``: the bare value, as the vendors document it; ``"sf-string"``: in double
            quotes, as the draft has it (§2.1).
        profile: Whose form a generated key takes, one of ``forbear.core.keys.PROFILES``.
        generate: False: invent none, only recognise.
        recognise: Names of further headers that hold a key on a single line; ``header`` is one
            anyway, besides those known to every transport (``RECOGNISED``).
        lifetime: Seconds the server remembers a key, more than 0 and finite; a call is not retried
            later than that after its first attempt. Documented values lie between 300 (Azure
            Communication Services) and 2,678,400 (Adyen); the default is Stripe's 24 hours.
        origins: Where keys are generated for: ``"https://api.example.com"``, with a port if it is
            not the scheme's own. None: everywhere; an empty set: nowhere. Kept with the port filled
            in, in lower case.

    Raises:
        ValueError: A value is out of range; the message says what to write instead.
        TypeError: A value is of the wrong type.
    """

    FIELDS = ("header", "style", "profile", "generate", "recognise", "lifetime", "origins")
    __slots__ = (*FIELDS, "recognised")

    header: str
    style: Literal["raw", "sf-string"]
    profile: str
    generate: bool
    recognise: tuple[str, ...]
    lifetime: float
    origins: frozenset[str] | None
    recognised: frozenset[str]
    """Lower-case names of ``header`` and ``recognise``: the ``extra`` of ``carries_key``."""

    def __init__(
        self,
        *,
        header: str = "Idempotency-Key",
        style: Literal["raw", "sf-string"] = "raw",
        profile: str = "generic",
        generate: bool = True,
        recognise: Iterable[str] = (),
        lifetime: float = 86_400.0,
        origins: Iterable[str] | None = None,
    ) -> None:
        _check_field_name("header", header)
        a_choice("style", style, STYLES)
        a_choice("profile", profile, PROFILES)
        if not isinstance(generate, bool):
            raise TypeError(f"generate must be True or False, got {shown(generate)}")
        names = _strings("recognise", recognise, '("X-Order-Key",)')
        for name in names:
            _check_field_name("recognise", name)
        seconds = _lifetime(lifetime)
        where = None
        if origins is not None:
            where = frozenset(map(_origin, _strings("origins", origins, '{"https://api.example.com"}')))

        self._set(
            header=header,
            style=style,
            profile=profile,
            generate=generate,
            recognise=names,
            lifetime=seconds,
            origins=where,
            recognised=frozenset(name.lower() for name in (header, *names)),
        )

    def covers(self, origin: str) -> bool:
        """Return whether keys are generated for ``origin``, a ``scheme://host:port`` in lower case."""
        return self.origins is None or origin in self.origins


def _strings(what: str, given: Iterable[str], example: str) -> tuple[str, ...]:
    # Values of other types are named by their type only: octets of a URL may hold a password.
    if isinstance(given, (str, bytes)) or not hasattr(given, "__iter__"):
        raise TypeError(f"{what} must be an iterable of str, got a single {type(given).__name__}; write {example}")
    strings = tuple(given)
    for string in strings:
        if not isinstance(string, str):
            raise TypeError(f"{what} must hold only str, got one {type(string).__name__}; write {example}")
    return strings


def _check_field_name(what: str, name: str) -> None:
    if not isinstance(name, str):
        raise TypeError(f'{what} must be a str, got one {type(name).__name__}; write "Idempotency-Key"')
    if name and _TOKEN.issuperset(name):
        return
    # Only what stands before the fault is shown: after a colon there may be a header's value.
    at = next((i for i, character in enumerate(name) if character not in _TOKEN), None)
    fault = "an empty one" if at is None else f"{name[at]!a} after {shown(name[:at])}"
    raise ValueError(
        f"{what} must be a header name of letters, digits and !#$%&'*+-.^_`|~ (RFC 9110 §5.1), got {fault};"
        ' write the name alone, as in "Idempotency-Key"'
    )


def _lifetime(given: float) -> float:
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        raise TypeError(f"lifetime must be a number of seconds, got {shown(given)}; write 86_400.0 for a day")
    if not 0 < given < 1e308:  # so written that NaN fails too, and an int no float can hold
        raise ValueError(
            f"lifetime must be more than 0 seconds and finite, got {shown(given)};"
            " write how long the server remembers a key, 86_400.0 for a day"
        )
    return float(given)


def _origin(given: str) -> str:
    """Return ``scheme://host:port`` of an origin the user wrote (RFC 6454 §4; the port always there)."""
    scheme, _, authority = given.partition("://")
    scheme = scheme.lower()
    if authority.startswith("["):
        host, bracket, port = authority.partition("]")
        host += bracket
        is_host = bool(bracket) and _is_ipv6(host[1:-1])
    else:
        host, colon, port = authority.partition(":")
        port = colon + port
        is_host = bool(host) and _HOST.issuperset(host)

    if scheme not in _USUAL_PORT:
        fault = "another scheme, or none"
    elif "@" in authority:
        fault = "a user name"
    elif any(mark in authority for mark in "/?#"):
        fault = "a path, a query or a fragment (a last slash, too)"
    elif not is_host:
        fault = f"{shown(host)} for a host (no patterns; IPv6 in brackets; other scripts as xn--)"
    elif not port:
        return f"{scheme}://{host.lower()}:{_USUAL_PORT[scheme]}"
    else:
        digits = port[1:].lstrip("0")
        if port[0] == ":" and digits.isascii() and digits.isdigit() and len(digits) <= 5 and int(digits) <= 65535:
            return f"{scheme}://{host.lower()}:{digits}"
        fault = "something after the host that is no port (: and 1 to 65535)"
    # Not repeated as a whole: a URL pasted here may hold a password or a token.
    raise ValueError(
        f"origins must be http or https, a host and perhaps a port, got one with {fault};"
        ' write "https://api.example.com" or "http://localhost:8080"'
    )


_USUAL_PORT = {"http": 80, "https": 443}


def _is_ipv6(host: str) -> bool:
    if "%" in host:  # a zone (RFC 6874) names an interface of this machine, not an origin
        return False
    from ipaddress import IPv6Address  # only here: importing it takes 2 ms

    try:
        IPv6Address(host)
    except ValueError:
        return False
    return True
