"""Types: the ports of the httpx family, as the parts see them that a port loads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from httpx import URL, ByteStream, Request, Response

from ...engine.port import AsyncPort, CommonPort, Copying
from ...engine.reading import Live

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from ...core.call import Call
    from ...core.policy import RetryPolicy
    from ...engine.clock import Clock
    from ...engine.reading import Ending, Source


class LiveBody(Live, Protocol):
    """The source of a response (reading.py)."""

    def can_wait(self) -> bool: ...


class Library(Protocol):
    """One library of the family (port.py)."""

    module: ModuleType

    def made(self, kind: type, base: str) -> type: ...


class Kinds(Protocol):
    """A flavour (port.py)."""

    @property
    def is_async(self) -> bool: ...


class HttpxPort(CommonPort[Response], Protocol):
    """The port of one transport, of either flavour (port.py)."""

    clock: Clock
    inner: Any
    byte_stream: type[ByteStream]
    replaced: Any  # makes the stream of a response, of a port and a source
    prefetch: int
    awaits_events: bool
    length_line: int

    @property
    def kinds(self) -> Kinds: ...
    @property
    def library(self) -> Library: ...
    def live(self, request: Request, response: Response, ends_at: float = ...) -> LiveBody: ...
    def put_back(
        self, response: Response, live: Live, pieces: list[bytes], ending: Ending | Exception
    ) -> None: ...
    def surround(
        self, request: Request, response: Response, make: Callable[[Source], Source]
    ) -> None: ...
    def stream_of(self, kind: type) -> Any: ...
    def was_begun(self, stream: Any) -> bool: ...
    def stream_error(self, message: str) -> Exception: ...
    def stream_timeout(self, message: str) -> Exception: ...


class CopyingPort(HttpxPort, Copying[Request, Request, URL], Protocol):
    """The same, as far as it copies requests."""


class AsyncHttpxPort(CopyingPort, AsyncPort[Response], Protocol):
    """The port of an asynchronous transport (transport.py)."""

    def should_prefetch(self, response: Response, policy: RetryPolicy) -> bool: ...
    def idle_at(self, call: Call) -> tuple[Any, object]: ...
