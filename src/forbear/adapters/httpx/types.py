"""Types: the ports of the httpx family, as the parts see them that a port loads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from httpx import ByteStream, Request, Response

from ...engine.port import Inspecting
from ...engine.reading import Live

if TYPE_CHECKING:
    from types import ModuleType

    from ...core.call import Call


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


class HttpxPort(Inspecting[Response], Protocol):
    """The port of one transport, of either flavour (port.py)."""

    inner: Any
    byte_stream: type[ByteStream]
    replaced: Any  # makes the stream of a response, of a port and a source
    prefetch: int
    length_line: int

    @property
    def kinds(self) -> Kinds: ...
    @property
    def library(self) -> Library: ...
    def live(self, request: Request, response: Response, ends_at: float = ...) -> LiveBody: ...
    def stream_of(self, kind: type) -> Any: ...
    def was_begun(self, stream: Any) -> bool: ...
    def idle_at(self, call: Call) -> tuple[Any, object]: ...
