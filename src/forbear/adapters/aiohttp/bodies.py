"""Bodies of aiohttp's responses: what is still to come of one, and the reader that stands for it.

``Live`` is what is still to come of a response, and its only reader: decoded, if aiohttp does that.
``Replaced`` is the reader under a response that gives what a source reads: what was put back, what
goes on where it breaks, or what ``retry_if`` is shown.
"""

from __future__ import annotations

from asyncio import get_running_loop
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import payload as payloads
from aiohttp.base_protocol import BaseProtocol
from aiohttp.streams import EMPTY_PAYLOAD

from ...engine.clock import SYSTEM_CLOCK
from ...engine.loop import drive
from ...engine.tasks import cut_after

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import ClientResponse

    from ...engine.port import Source

# Types of bodies that can be replayed as they are; without a body that is b"".
TEXTS = payloads.StringPayload, payloads.StringIOPayload, payloads.JsonPayload
PLAIN: frozenset[type] = frozenset((bytes, payloads.BytesPayload, *TEXTS))
LIMIT = 65_536  # aiohttp's own, of a reader


class Live:
    """The source of a response: the bytes that are still to come.

    Attributes:
        ends_at: Each read ends by this instant of the system's clock.
        late: Makes the error for a read that this instant ends.
        response: Held only if nobody else holds it, since it holds this.
    """

    can_wait = True
    late: Callable[[], Exception] = TimeoutError
    response: ClientResponse | None = None

    def __init__(self, response: ClientResponse, ends_at: float) -> None:
        self.ends_at = ends_at
        self._content, self._connection = response.content, response.connection
        self._ahead: bytes | None = None

    async def has_more(self) -> bool:
        """Read ahead; False: the time is over. A read that is cancelled takes nothing."""
        if self._ahead is None:
            with cut_after(self.ends_at - SYSTEM_CLOCK.true_monotonic()):
                self._ahead = await self._content.readany()
        return self._ahead is not None

    async def read(self) -> bytes:
        if not await self.has_more():
            raise self.late()
        piece, self._ahead = self._ahead, None
        return piece or b""

    async def close(self) -> None:
        content = self._content
        if not content.is_eof():
            content.set_exception(aiohttp.ClientConnectionError("Connection closed"))
            if self._connection is not None:
                self._connection.close()


class NoConnection(BaseProtocol):
    """The protocol of a reader that no connection feeds."""

    def pause_reading(self) -> None:
        """Do nothing."""


class Replaced(aiohttp.StreamReader):
    """A reader in place of another one that gives what a source reads."""

    def __init__(self, content: aiohttp.StreamReader, source: Source) -> None:
        # No line that it reads may be longer than twice this.
        limit = LIMIT if content is EMPTY_PAYLOAD else content.get_read_buffer_limits()[0]
        loop = get_running_loop()
        super().__init__(NoConnection(loop), limit, loop=loop)
        self.source = source

    async def _wait(self, func_name: str) -> None:
        piece = await self.source.read()
        if piece:
            self.feed_data(piece)
        else:
            self.feed_eof()

    def set_exception(self, exc: BaseException, exc_cause: object = None) -> None:
        """The response is closed."""
        super().set_exception(exc)
        if not self.is_eof():
            drive(self.source.close())
