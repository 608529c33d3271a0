"""Types: the port of requests and urllib3, as the parts see it that are loaded late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from urllib3 import HTTPResponse

from ...engine.port import Port

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from ...core.call import Call
    from ...core.policy import RetryPolicy

    AnyPort: TypeAlias = "Urllib3Port[Any]"


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


AnyResponse = TypeVar("AnyResponse", bound=EitherResponse)


class Limited(Protocol):
    """A call, or what is sent before there is one: what bounds an attempt in time."""

    @property
    def deadline_at(self) -> float: ...
    @property
    def policy(self) -> RetryPolicy: ...


class Urllib3Port(Port[AnyResponse], Protocol[AnyResponse]):
    """The port that requests and urllib3 share (port.py)."""

    @property
    def status_of(self) -> Callable[[AnyResponse], int]: ...
    @property
    def raw_of(self) -> Callable[[AnyResponse], HTTPResponse]: ...
    def load(self, request: Any, response: AnyResponse) -> None: ...
    def loads(self, call: Call, response: AnyResponse) -> bool: ...
    def left(self, limits: Limited) -> float | None: ...
    def stand_in(self, response: AnyResponse, raw: HTTPResponse) -> AnyResponse: ...
    def in_time(self, limits: Limited, response: AnyResponse) -> AnyResponse: ...
