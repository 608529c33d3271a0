"""Wrap: how a transport is set up, and retrying ones around those a built client has, and back.

``Library`` has the classes of httpx or httpx2, and ours made of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

from ...core.checks import shown
from ...core.policy import RetryPolicy
from ...engine.frames import warn
from ...engine.settings import PREFETCH, Settings, options_of_client

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Never

    from .port import Library
    from .types import Retrying


# A client looks these up first, and fails here if it got the transport of the other flavour.
OF_CLIENTS = frozenset(
    ("handle_request", "handle_async_request", "__enter__", "__aenter__", "close", "aclose")
)


class Flavour(NamedTuple):
    """The names that the library has for the things of one flavour."""

    base: str  # the class of transports
    default: str  # the one that is made if none is given
    method: str


SYNC = Flavour("BaseTransport", "HTTPTransport", "handle_request")
ASYNC = Flavour("AsyncBaseTransport", "AsyncHTTPTransport", "handle_async_request")


def set_up(
    transport: Retrying,
    library: Library,
    flavour: Flavour,
    inner: object,
    policy: RetryPolicy,
    options: Mapping[str, object],
) -> tuple[Settings, Any]:
    """Check the arguments of a transport and set what both flavours have.

    Returns:
        The settings, and the inner transport.
    """
    wrapper = type(transport).__name__
    if inner is None:
        warn_of_lost_proxy(wrapper, library.name)
        inner = getattr(library.module, flavour.default)()
    check_inner(inner, library.name, flavour.base, flavour.method, wrapper)
    is_async = flavour is ASYNC
    settings = Settings(
        wrapper, policy, options, awaits=is_async, hedges=is_async, prefetch=PREFETCH
    )
    transport.inner = inner
    transport.inner_retries = take_over_retries(inner, wrapper)
    awaits_events = settings.event_streams is not None
    transport.prefetches = settings.prefetch > 0 or settings.resume or awaits_events
    transport.special = settings.special
    transport.is_plain = settings.is_plain
    # What looks like a success may be flagged, or be a stream whose first event is an error.
    transport.asks = settings.retry_if is not None or awaits_events
    transport.policy = settings.policy
    transport.limits = settings.limits
    transport.shared = settings.limits.shared
    return settings, inner


def missing_attribute(transport: object, library: str, flavour: Flavour, name: str) -> Never:
    # An AttributeError, so that hasattr() still shows which flavour a transport has.
    message = f"{type(transport).__name__!r} object has no attribute {name!r}"
    if name in OF_CLIENTS:
        message += of_other_flavour(library, flavour.method)
    raise AttributeError(message, name=name, obj=transport)


def described(transport: Retrying) -> str:
    name = f"{type(transport).__module__}.{type(transport).__name__}"
    return f"<{name} {transport.limits!r} over {type(transport.inner).__name__}>"


def check_inner(inner: object, name: str, base: str, method: str, wrapper: str) -> None:
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


def of_other_flavour(name: str, method: str) -> str:
    """Return which client this transport is for, and which transport the other client takes."""
    ours, theirs = ("", "Async") if method == "handle_request" else ("Async", "")
    return (
        f": it is for {name}.{ours}Client; write"
        f" {name}.{theirs}Client(transport=forbear.{name}.{theirs}RetryTransport())"
    )


def take_over_retries(inner: object, wrapper: str) -> int:
    """Switch off the connect retries of the library's own pool, since two loops would multiply."""
    pool: Any = getattr(inner, "_pool", None)
    retries = getattr(pool, "_retries", 0)
    if not isinstance(retries, int) or retries < 1:
        return 0
    pool._retries = 0
    warn(
        f"{type(inner).__name__}(retries={retries}) under {wrapper} was set to retries=0: attempts"
        " would multiply. forbear retries failed connections by itself, with a delay and under its"
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
    options: Mapping[str, object],
    classes: tuple[type[Retrying], ...],
) -> None:
    """Put a retrying transport around each of a built client's own."""
    check_client(library, client)
    transport_class = classes[isinstance(client, library.module.AsyncClient)]
    if any(is_ours(transport) for transport in transports_of(client)):
        raise ValueError(
            "this client is wrapped already; call unwrap(client) first to change its policy"
        )
    named = options_of_client(policy, options)
    wrappers: dict[int, Retrying] = {}

    def wrapped(inner: object) -> Retrying | None:
        if inner is None:  # a mount that means "no proxy here"
            return None
        if id(inner) not in wrappers:
            wrapper = wrappers[id(inner)] = transport_class(inner, **named)
            wrapper.port.client = ref(client)
        return wrappers[id(inner)]

    replace_transports(client, wrapped)


def unwrap_client(library: Library, client: Any) -> None:
    """Put a wrapped client's own transports back, with their own retries."""
    check_client(library, client)
    found = [transport for transport in transports_of(client) if is_ours(transport)]
    if not found:
        raise ValueError("this client is not wrapped; wrap(client) does that")
    for transport in found:
        if transport.inner_retries:
            transport.inner._pool._retries = transport.inner_retries
    replace_transports(client, lambda one: one.inner if is_ours(one) else one)


def is_wrapped_client(library: Library, client: object) -> bool:
    """Does every transport of the client retry? None among its mounts stands for the main one."""
    check_client(library, client)
    return all(one is None or is_ours(one) for one in transports_of(client))


def check_client(library: Library, client: object) -> None:
    if not isinstance(client, (library.module.Client, library.module.AsyncClient)):
        from ..names import wrong_client

        raise TypeError(wrong_client(f"forbear.{library.name}.wrap", client))


def replace_transports(client: Any, replace: Callable[[Any], object]) -> None:
    client._transport = replace(client._transport)
    client._mounts = {pattern: replace(inner) for pattern, inner in client._mounts.items()}


def is_ours(transport: object) -> bool:
    return hasattr(transport, "inner_retries")


def transports_of(client: Any) -> list[Any]:
    try:
        return [client._transport, *client._mounts.values()]
    except AttributeError as error:
        raise TypeError(
            f"this version of {type(client).__module__} keeps its transports elsewhere ({error});"
            " pass transport=RetryTransport(…) when the client is made instead"
        ) from None
