"""Messages of the httpx family: what is wrong with a transport, and what to write instead.

Loaded with the first of them.
"""

from __future__ import annotations

import os

from ...core.checks import shown
from ...core.policy import RetryPolicy
from ...engine.frames import warn

# A client looks these up first, and fails here if it got the transport of the other flavour.
OF_CLIENTS = frozenset(
    ("handle_request", "handle_async_request", "__enter__", "__aenter__", "close", "aclose")
)
PROXIES = ("http_proxy", "https_proxy", "all_proxy")


def wrong_inner(inner: object, name: str, base: str, wrapper: str) -> str:
    """Say what a transport takes, and what to write; no ``base``: it is of the other library."""
    hint = ""
    if not base:
        hint = f"; use forbear.{'httpx2' if name == 'httpx' else 'httpx'}.{wrapper}"
    elif isinstance(inner, type):
        hint = f", the class: write {wrapper}({inner.__name__}(…))"
    elif callable(getattr(inner, "handle_request", None)):
        hint = f"; it is a synchronous one: use forbear.{name}.RetryTransport"
    elif callable(getattr(inner, "handle_async_request", None)):
        hint = f"; it is an asynchronous one: use forbear.{name}.AsyncRetryTransport"
    elif hasattr(inner, "_transport"):
        hint = f"; to keep a client's own settings use forbear.{name}.wrap(client)"
    elif isinstance(inner, RetryPolicy):
        hint = f": write {wrapper}(policy={inner!r})"
    return f"{wrapper} takes an {name}.{base or 'transport'}, got {shown(inner)}{hint}"


def missing_attribute(transport: object, library: str, method: str, name: str) -> AttributeError:
    """Say that it is missing, and where a client asks for it, which client the transport is for."""
    # An AttributeError, so that hasattr() still shows which flavour a transport has.
    message = f"{type(transport).__name__!r} object has no attribute {name!r}"
    if name in OF_CLIENTS:
        theirs = "Async" if method == "handle_request" else ""
        ours = f"forbear.{library}.{theirs}RetryTransport()"
        message += f": write {library}.{theirs}Client(transport={ours})"
    return AttributeError(message, name=name, obj=transport)


def warn_of_retries(inner: object, retries: int, wrapper: str) -> None:
    warn(
        f"{type(inner).__name__}(retries={retries}) under {wrapper} was set to retries=0, because"
        " attempts would multiply; forbear retries failed connections by itself"
    )


def ignored_tls(library: str) -> str:
    return (
        f"forbear: {library} ignores verify= and cert= of a client that is given transport=;"
        f" build the client without transport= and use forbear.{library}.wrap(client)"
    )


def warn_of_lost_proxy(library: str) -> None:
    """Httpx ignores HTTP_PROXY and relatives as soon as a transport is given."""
    set_ones = [name for name, value in os.environ.items() if value and name.lower() in PROXIES]
    if set_ones:
        warn(
            f"{set_ones[0]} is set, but {library} ignores it when transport= is given; to keep"
            f" proxies, TLS and limits use forbear.{library}.wrap({library}.Client())"
        )
