"""Looking, in aiohttp: the copy of an answer for ``retry_if``. Floor: acts.

The caller's response is never touched but for its content, which holds what was read and the rest.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import aiohttp

from ..sending.looking import MOST_BYTES, seconds_to_look, too_late

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["Peek", "Pulled"]


class Nobody:
    """The protocol of a reader that is not fed by a connection."""

    connected = True
    _reading_paused = False

    def pause_reading(self, **_: Any) -> None:
        """Go on."""

    resume_reading = pause_reading


class Pulled(aiohttp.StreamReader):
    """A body that asks for its next bytes when it is read, and knows some of them.

    Args:
        pull: Returns the next bytes, or none at the end.
        known: The bytes that come first.
        loop: The event loop.
    """

    def __init__(self, pull: Callable[[], Awaitable[bytes]], known: bytes, loop: Any) -> None:
        super().__init__(Nobody(), 2**16, loop=loop)  # type: ignore[arg-type]
        self._pull = pull
        self.feed_data(known)

    async def _wait(self, func_name: str) -> None:
        chunk = await self._pull()
        if chunk:
            self.feed_data(chunk)
        else:
            self.feed_eof()


class Peek:
    """The body under a copy: it reads the caller's when it is read itself.

    Attributes:
        error: What broke the body.
    """

    error: Exception | None = None

    def __init__(self, port: Any, response: Any, deadline_at: float, patience: float = inf) -> None:
        self._port = port
        self._response = response
        self._deadline_at = deadline_at
        self._patience = patience
        self._is_read = False

    def shown(self) -> Any:
        """Make a copy that reads from here."""
        response = self._response
        copy = object.__new__(type(response))
        copy.__dict__ = vars(response).copy()
        copy.content = Pulled(self._pull, b"", response._loop)
        copy._connection = copy._writer = None  # the caller's
        copy._released = False
        return copy

    async def _pull(self) -> bytes:
        if self._is_read:
            return b""
        self._is_read = True
        port, response = self._port, self._response
        content, kind = response.content, response.headers.get("Content-Type", "")
        if content.exception() is not None:
            self.error = content.exception()
            raise content.exception()
        if content.is_eof():
            seconds, length = inf, 0
        else:
            length = response.content_length
            seconds = seconds_to_look(response.method, response.status, kind, length)
        left = self._deadline_at - port.clock.monotonic()
        found = bytearray()
        try:
            with port.backstop.after(min(seconds, self._patience, left, 1e6)):
                while len(found) <= MOST_BYTES:
                    chunk = await content.readany()
                    if not chunk:
                        break
                    found += chunk
        except Exception as error:
            self.error = error
            raise
        finally:
            rest = content.readany
            response.content = Pulled(rest, bytes(found), response._loop)
        if not content.at_eof() or len(found) > MOST_BYTES:
            raise too_late()
        response.content.feed_eof()
        return bytes(found)
