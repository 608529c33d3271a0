"""Idempotency: keys for your own requests, and where and how a transport generates them.

The form of a key and its header in a request are defined in core/headers/keys.py. A key that you
put on a request is used for every attempt of that call:

    key = generate()
    client.post(url, json=order, headers={"Idempotency-Key": serialize(key)})

Source: draft-ietf-httpapi-idempotency-key-header (§1, §2.5).
"""

from __future__ import annotations

from .core.checks import Frozen, check_bool, check_choice, shown, texts
from .core.headers.keys import PROFILES, STYLES, check_profile, parse, serialize
from .core.request import origin_from

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal


__all__ = ["generate", "parse", "serialize"]


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


# A token of RFC 9110 §5.6.2.
_TOKEN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_`|~")


class IdempotencyKeys(Frozen):
    """Say how a transport recognises and generates idempotency keys.

    Giving one to a transport turns generation on for POST and PATCH: each call gets one new key,
    sent with every attempt of that call to that origin. Do so only for servers that are known to
    honour the header: one that ignores it makes a repeated POST a second order (draft §2.5).
    A key the caller has put on the request is always used as it is. Immutable, so safe to share
    between threads and transports; equal if all fields are; pickles.

    Args:
        header: Name of the header a generated key is sent in, as it is to be spelled on the wire.
        style: ``"raw"``: the bare value, as the vendors document it; ``"sf-string"``: in double
            quotes, as the draft has it (§2.1).
        profile: Whose form a generated key takes, one of ``forbear.core.headers.keys.PROFILES``.
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

    header: str
    style: Literal["raw", "sf-string"]
    profile: str
    generate: bool
    recognise: tuple[str, ...]
    lifetime: float
    origins: frozenset[str] | None

    FIELDS = tuple(__annotations__)
    __slots__ = (*FIELDS, "recognised")

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
        check_choice("style", style, STYLES)
        check_choice("profile", profile, PROFILES)
        check_bool("generate", generate)
        names = texts("recognise", recognise, '("X-Order-Key",)')
        for name in names:
            _check_field_name("recognise", name)
        seconds = _lifetime(lifetime)
        where = None
        if origins is not None:
            named = texts("origins", origins, '{"https://api.example.com"}')
            where = frozenset(map(origin_from, named))

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
