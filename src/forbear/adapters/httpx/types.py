"""Types: the ports of the httpx family, as the parts see them that a port loads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from httpx import ByteStream, Response

from ...engine.port import Port

if TYPE_CHECKING:
    from types import ModuleType

    from ...core.call import Call


class Library(Protocol):
    """One library of the family (port.py)."""

    module: ModuleType

    def made(self, kind: type, base: str) -> type: ...


class Kinds(Protocol):
    """A flavour (port.py)."""

    @property
    def is_async(self) -> bool: ...


class HttpxPort(Port[Response], Protocol):
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
    def stream_of(self, kind: type) -> Any: ...
    def idle_at(self, call: Call) -> tuple[Any, object]: ...
