"""Types: aiohttp's port, as the parts see it that it loads when they are needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from aiohttp import ClientResponse

from ...engine.port import AsyncPort, StreamPort

if TYPE_CHECKING:
    from ...core.outcome import FailureKind
    from ...engine.clock import Clock


class AiohttpPort(AsyncPort[ClientResponse], StreamPort, Protocol):
    """The port of one middleware (port.py)."""

    clock: Clock
    awaits_events: bool
    watches_bodies: bool

    def kind_of(self, error: Exception) -> FailureKind: ...
