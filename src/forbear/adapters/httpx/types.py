"""Types: ports and transports of the httpx family, as the parts see them that are loaded late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from httpx import URL, ByteStream, Request, Response

from ...engine.port import AsyncPort, CommonPort, Copying

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from ...core.call import Call
    from ...core.policy import RetryPolicy
    from ...engine.clock import Clock
    from ...engine.outgoing import Outgoing
    from ...engine.port import Inspection
    from ...limits.limits import Limits

    Sent: TypeAlias = Outgoing | None  # in the place of the request


class Library(Protocol):
    """One library of the family (port.py)."""

    module: ModuleType


class Streams(Protocol):
    """Our classes of one flavour of one library (port.py)."""

    @property
    def inspection(self) -> Callable[..., Inspection]: ...
    @property
    def put_back(self) -> Any: ...
    @property
    def resuming(self) -> Any: ...
    @property
    def shown(self) -> Any: ...


class HttpxPort(CommonPort[Response], Protocol):
    """The port of one transport, of either flavour (port.py)."""

    clock: Clock
    inner: Any
    byte_stream: type[ByteStream]
    prefetch: int
    awaits_events: bool
    length_line: int

    @property
    def library(self) -> Library: ...
    @property
    def streams(self) -> Streams: ...
    def was_begun(self, stream: Any) -> bool: ...
    def stream_error(self, message: str) -> Exception: ...
    def stream_timeout(self, message: str) -> Exception: ...


class AsyncHttpxPort(HttpxPort, AsyncPort[Response], Copying[Request, Request, URL], Protocol):
    """The port of an asynchronous transport (transport.py)."""

    def should_prefetch(self, response: Response, policy: RetryPolicy) -> bool: ...
    def idle_at(self, call: Call) -> tuple[Any, object]: ...


class Retrying(Protocol):
    """A retrying transport, of either flavour (transport.py)."""

    inner: Any
    inner_retries: int
    port: Any
    prefetches: bool
    special: bool
    is_plain: bool
    asks: bool
    policy: RetryPolicy
    limits: Limits
    shared: Any

    def __init__(self, inner: Any = None, *, policy: RetryPolicy = ..., **options: Any) -> None: ...
