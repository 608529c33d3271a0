"""Wrap: retrying transports around those that a built client has, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import ref

from ...engine.settings import options_of_client

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ...core.policy import RetryPolicy
    from .port import Library


def wrap_client(
    library: Library,
    client: object,
    policy: RetryPolicy | None,
    options: Mapping[str, object],
    classes: tuple[Any, ...],
) -> None:
    """Put a retrying transport around each of a built client's own."""
    check_client(library, client)
    transport_class = classes[isinstance(client, library.module.AsyncClient)]
    if any(is_ours(transport) for transport in transports_of(client)):
        raise ValueError(
            "this client is wrapped already; call unwrap(client) first to change its policy"
        )
    named = options_of_client(policy, options)
    inner_ones = {id(one): one for one in transports_of(client)}
    inner_ones.pop(id(None), None)  # a mount that means "no proxy here"
    wrappers = {key: transport_class(one, **named) for key, one in inner_ones.items()}
    for wrapper in wrappers.values():
        wrapper.port.client = ref(client)
    replace_transports(client, lambda inner: wrappers.get(id(inner)))


def unwrap_client(library: Library, client: object) -> None:
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
