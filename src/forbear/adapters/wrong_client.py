"""Client: what ``wrap`` and ``mount`` check and share, whatever the library. Floor: acts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.checks import shown
from ..core.policy import RetryPolicy
from ..shared.gate import RetryGate

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["options_of_client", "wrong_client"]

TAKES = {
    "forbear.httpx.wrap": "an httpx.Client or AsyncClient",
    "forbear.httpx2.wrap": "an httpx2.Client or AsyncClient",
    "forbear.aiohttp.wrap": "an aiohttp.ClientSession",
    "forbear.requests.mount": "a requests.Session",
}
# By library and class. None of them is imported: an object of theirs has been made already.
RIGHT = {
    **{
        (name, cls): f"forbear.{name}.wrap(client)"
        for name in ("httpx", "httpx2")
        for cls in ("Client", "AsyncClient")
    },
    ("aiohttp", "ClientSession"): "forbear.aiohttp.wrap(session)",
    ("requests", "Session"): "forbear.requests.mount(session)",
    ("urllib3", "PoolManager"): "forbear.urllib3.RetryPoolManager(policy) in its place",
}


def wrong_client(function: str, client: Any) -> str:
    """Say what a function takes, and which one takes this client."""
    name = function.rpartition(".")[2]
    text = f"{name} takes {TAKES[function]}, got {shown(client)}"
    if isinstance(client, RetryPolicy):
        return f"{text}: write {name}({'client' if 'httpx' in function else 'session'}, {client!r})"
    right = right_for(client)
    if right:
        return f"{text}: use {right}"
    # openai, anthropic and other SDKs made by Stainless keep theirs there.
    right = right_for(getattr(client, "_client", None))
    if right:
        return f"{text}: pass the one inside, {right.replace('(client)', '(client._client)')}"
    return text


def options_of_client(policy: RetryPolicy | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options for each transport of one client: they share a gate."""
    named = dict(options)
    if policy is not None:
        named["policy"] = policy
    if "gate" not in named and named.get("strategy") is None:
        named["gate"] = RetryGate()
    return named


def right_for(client: Any) -> str:
    for cls in type(client).__mro__:
        right = RIGHT.get((cls.__module__.partition(".")[0], cls.__name__))
        if right:
            return right
    return ""
