"""Bodies of aiohttp's responses: what forbear reads of them, and puts back.

What was read is put back by a reader that fetches more when it is read (``Pulled``), such as the
one under the copy of a response that ``retry_if`` is given. Loaded with the first body that is not
the library's own.
"""

from __future__ import annotations

from asyncio import get_running_loop
from typing import TYPE_CHECKING, Any

import aiohttp

from ...engine.calls import body_is_late
from ...engine.inspection import MOST_BYTES
from ...engine.reading import WHOLE, Ending

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import ClientResponse

    from ...core.call import Call
    from .types import AiohttpPort

    Begin = Callable[[], Call]


class NoConnection:
    """The protocol of a reader that no connection feeds."""

    connected = True
    _reading_paused = False

    def pause_reading(self, **_: object) -> None:
        """Do nothing."""

    resume_reading = pause_reading


class Pulled(aiohttp.StreamReader):
    """A body that fetches its next bytes when it is read.

    Args:
        inner: Where they come from; None: there are no more.
        known: The bytes that come first.
    """

    def __init__(self, inner: aiohttp.StreamReader | None, known: bytes = b"") -> None:
        super().__init__(NoConnection(), 2**16, loop=get_running_loop())  # type: ignore[arg-type]
        self._inner: Any = inner
        self.feed_data(known)
        if inner is None:
            self.feed_eof()

    async def pull(self) -> bytes:
        """Return the next bytes, none at the end."""
        return await self._inner.readany()  # type: ignore[no-any-return]

    async def readany(self) -> bytes:
        """Return what comes next, without putting it into the buffer first."""
        found = self.read_nowait()
        if found or self.is_eof():
            return found
        found = await self.pull()
        self.total_bytes += len(found)
        if not found:
            self.feed_eof()
        return found

    async def _wait(self, func_name: str) -> None:
        chunk = await self.pull()
        if chunk:
            self.feed_data(chunk)
        else:
            self.feed_eof()

    def set_exception(self, exc: BaseException, exc_cause: object = None) -> None:
        """The response is closed."""
        super().set_exception(exc)
        self.end()

    def end(self) -> None:
        """Fetch no more."""


class ContentBody:
    """The body of a response, as its reader gives it: decoded, if aiohttp does that.

    Attributes:
        pieces, received: What was read before the hand-over, and how many bytes.

    Args:
        content: The reader. A read that is cancelled takes nothing out of it.
        response_of: Returns the response, whose connection is closed with the body; None if it is
            gone.
    """

    received = 0

    def __init__(
        self, content: aiohttp.StreamReader, response_of: Callable[[], ClientResponse | None]
    ) -> None:
        self._content, self._response_of = content, response_of
        self.pieces: list[bytes] = []

    async def read_piece(self) -> bytes | Ending:
        # Bounded, since aiohttp decodes as it receives: a few bytes may be many by now.
        return await self._content.read(MOST_BYTES + 1 - self.received) or WHOLE

    async def read(self) -> bytes:
        return await self._content.readany()

    async def close(self) -> None:
        response = self._response_of()
        if response is not None and response.connection is not None:
            response.connection.close()


class Bounded(Pulled):
    """A body under ``forbear.deadline``, after the hand-over."""

    def __init__(
        self, port: AiohttpPort, response: ClientResponse, begin: Begin, until: float
    ) -> None:
        super().__init__(response.content)
        self._port, self._begin_call, self._until = port, begin, until

    async def pull(self) -> bytes:
        port = self._port
        with port.backstop.after(self._until - port.clock.monotonic()):
            return await self._inner.readany()  # type: ignore[no-any-return]
        raise body_is_late(port, self._begin_call())

    def end(self) -> None:
        self._inner.set_exception(self.exception())
