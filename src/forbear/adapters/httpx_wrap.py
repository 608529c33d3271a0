"""Wrapping: retrying transports around a built client's own, and back. Floor: acts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.checks import shown
from ..core.policy import RetryPolicy
from ..sending.errors import warn
from .wrong_client import options_of_client, wrong_client

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .httpx_library import Library

__all__ = [
    "check_inner",
    "of_other_colour",
    "take_over_retries",
    "unwrap_client",
    "warn_of_lost_proxy",
    "wrap_client",
]


def check_inner(inner: Any, name: str, base: str, method: str, wrapper: str) -> None:
    roots = {cls.__module__.partition(".")[0] for cls in type(inner).__mro__}
    other = "httpx2" if name == "httpx" else "httpx"
    if other in roots and name not in roots:
        raise TypeError(
            f"{wrapper} of forbear.{name} takes a transport of {name}, got {type(inner).__name__}"
            f" of {other}; use forbear.{other}.{wrapper}"
        )
    if not callable(getattr(inner, method, None)):
        hint = ""
        if callable(getattr(inner, "handle_request", None)):
            hint = f"; it is a synchronous one: use forbear.{name}.RetryTransport"
        elif callable(getattr(inner, "handle_async_request", None)):
            hint = f"; it is an asynchronous one: use forbear.{name}.AsyncRetryTransport"
        elif hasattr(inner, "_transport"):
            hint = f"; to keep a client's own settings use forbear.{name}.wrap(client)"
        elif isinstance(inner, RetryPolicy):
            hint = f": write {wrapper}(policy={inner!r})"
        raise TypeError(f"{wrapper} takes an {name}.{base}, got {shown(inner)}{hint}")


def of_other_colour(name: str, method: str) -> str:
    """Say whose transport this one is, and which one the other client takes."""
    ours, theirs = ("", "Async") if method == "handle_request" else ("Async", "")
    return (
        f": it is for {name}.{ours}Client; write"
        f" {name}.{theirs}Client(transport=forbear.{name}.{theirs}RetryTransport())"
    )


def take_over_retries(inner: Any, wrapper: str) -> int:
    """Switch off the connect retries of the library's own pool: two loops multiply."""
    pool = getattr(inner, "_pool", None)
    retries = getattr(pool, "_retries", 0)
    if not isinstance(retries, int) or retries < 1:
        return 0
    pool._retries = 0  # type: ignore[union-attr]
    warn(
        f"{type(inner).__name__}(retries={retries}) under {wrapper} was set to retries=0: attempts"
        " would multiply. forbear retries failed connections by itself, with a wait and under its"
        " limits."
    )
    return retries


def warn_of_lost_proxy(wrapper: str, library: str) -> None:
    """Httpx ignores HTTP_PROXY and relatives as soon as a transport is given."""
    import os

    lower = ("http_proxy", "https_proxy", "all_proxy")
    for name in (*lower, *map(str.upper, lower)):
        if os.environ.get(name):
            warn(
                f"{name} is set, but {library} ignores it when transport= is given; to keep"
                f" proxies, TLS and limits use forbear.{library}.wrap({library}.Client())"
            )
            return


def wrap_client(
    library: Library,
    client: Any,
    policy: RetryPolicy | None,
    options: Mapping[str, Any],
    classes: tuple[type[Any], type[Any]],
) -> None:
    """Put a retrying transport around each of a built client's own."""
    module = library.module
    if isinstance(client, module.Client):
        transport_class = classes[0]
    elif isinstance(client, module.AsyncClient):
        transport_class = classes[1]
    else:
        raise TypeError(wrong_client(f"forbear.{library.name}.wrap", client))
    if any(is_ours(transport) for transport in transports_of(client)):
        raise ValueError(
            "this client is wrapped already; call unwrap(client) first to change its policy"
        )
    named = options_of_client(policy, options)
    wrappers: dict[int, Any] = {}

    def wrapped(inner: Any) -> Any:
        if inner is None:  # a mount that means "no proxy here"
            return None
        if id(inner) not in wrappers:
            wrappers[id(inner)] = transport_class(inner, **named)
        return wrappers[id(inner)]

    client._transport = wrapped(client._transport)
    client._mounts = {pattern: wrapped(inner) for pattern, inner in client._mounts.items()}


def unwrap_client(library: Library, client: Any) -> None:
    """Put a wrapped client's own transports back, with their own retries."""
    module = library.module
    if not isinstance(client, (module.Client, module.AsyncClient)):
        raise TypeError(wrong_client(f"forbear.{library.name}.wrap", client))
    found = [transport for transport in transports_of(client) if is_ours(transport)]
    if not found:
        raise ValueError("this client is not wrapped; wrap(client) does that")
    for transport in found:
        if transport.inner_retries:
            transport.inner._pool._retries = transport.inner_retries

    def bare_of(transport: Any) -> Any:
        return transport.inner if is_ours(transport) else transport

    client._transport = bare_of(client._transport)
    client._mounts = {pattern: bare_of(transport) for pattern, transport in client._mounts.items()}


def is_ours(transport: Any) -> bool:
    return hasattr(transport, "inner_retries")


def transports_of(client: Any) -> list[Any]:
    try:
        return [client._transport, *client._mounts.values()]
    except AttributeError as error:
        raise TypeError(
            f"this version of {type(client).__module__} keeps its transports elsewhere ({error});"
            " pass transport=RetryTransport(…) when the client is made instead"
        ) from None
