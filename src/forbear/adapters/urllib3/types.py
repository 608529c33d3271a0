"""Types: what the port of requests and urllib3 asks of their objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from ...core.policy import RetryPolicy


class EitherRequest(Protocol):
    """A request to an adapter of requests, or to a pool of urllib3."""

    body: Any

    @property
    def headers(self) -> MutableMapping[str, Any]: ...
    @property
    def url(self) -> Any: ...


class EitherResponse(Protocol):
    """A response of requests or of urllib3."""

    @property
    def headers(self) -> MutableMapping[str, str]: ...
    def close(self) -> None: ...


class Limited(Protocol):
    """A call, or what is sent before there is one: what bounds an attempt in time."""

    @property
    def deadline_at(self) -> float: ...
    @property
    def policy(self) -> RetryPolicy: ...
