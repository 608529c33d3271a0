"""Origins that a user writes: ``https://api.example.com``, and nothing that is not part of one."""

from __future__ import annotations

import re

from .request import origin_of

# No patterns, no zones of IPv6 (RFC 6874), and names in other scripts as ``xn--``.
ORIGIN = re.compile(
    r"(?P<scheme>https?)://(?P<host>[\w.~-]+|\[(?P<ipv6>[0-9a-f:.]+)\])(:0*(?P<port>\d{1,5}))?",
    re.ASCII | re.IGNORECASE,
)


def origin_from(given: str) -> str:
    """Return ``scheme://host:port`` of an origin that a user wrote.

    Raises:
        ValueError: It is no origin; the message does not repeat it, since a URL may hold a password
            or a token.
    """
    found = ORIGIN.fullmatch(given)
    port = int((found and found["port"]) or 1)
    if found is None or not 0 < port < 65_536 or not is_ipv6(found["ipv6"] or "::"):
        raise ValueError(
            "origins must be http or https, a host and perhaps a port, got one with something else,"
            ' such as a path (a last slash, too); write "https://api.example.com" or'
            ' "http://localhost:8080"'
        )
    return origin_of(found["scheme"].lower(), found["host"], port if found["port"] else None)


def is_ipv6(text: str) -> bool:
    from ipaddress import IPv6Address  # only here: importing it takes 2 ms

    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True
