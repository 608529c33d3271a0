"""Idempotency: write, read and generate keys for your own requests.

The rules are those of core/headers/keys.py. A key that you put on a request is used for every
attempt of that call:

    key = generate()
    client.post(url, json=order, headers={"Idempotency-Key": serialize(key)})
"""

from __future__ import annotations

from .core.headers.keys import check_profile, parse, serialize

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
