"""Origins that a user writes: ``https://api.example.com``, and nothing that is not part of one."""

from __future__ import annotations

from .checks import shown
from .request import origin_of

_HOST = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def origin_from(given: str) -> str:
    """Return ``scheme://host:port`` of an origin that a user wrote.

    Raises:
        ValueError: It is no origin; the message does not repeat it, since a URL may hold a password
            or a token.
    """
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

    digits = port[1:].lstrip("0")
    if scheme not in {"http", "https"}:
        fault = "another scheme, or none"
    elif "@" in authority:
        fault = "a user name"
    elif any(mark in authority for mark in "/?#"):
        fault = "a path, a query or a fragment (a last slash, too)"
    elif not is_host:
        fault = f"{shown(host)} for a host (no patterns; IPv6 in brackets; other scripts as xn--)"
    elif not port:
        return origin_of(scheme, host, None)
    elif port[0] == ":" and digits.isascii() and digits.isdigit() and int(digits[:6]) <= 65535:
        return origin_of(scheme, host, int(digits))
    else:
        fault = "something after the host that is no port (: and 1 to 65535)"
    raise ValueError(
        f"origins must be http or https, a host and perhaps a port, got one with {fault};"
        ' write "https://api.example.com" or "http://localhost:8080"'
    )


def _is_ipv6(host: str) -> bool:
    if "%" in host:  # a zone (RFC 6874) names an interface of this machine, not an origin
        return False
    from ipaddress import IPv6Address  # only here: importing it takes 2 ms

    try:
        IPv6Address(host)
    except ValueError:
        return False
    return True
