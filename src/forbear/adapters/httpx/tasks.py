"""Tasks: what the asynchronous flavour of the httpx family does in a way of its own."""

from __future__ import annotations

from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING

from ...engine.clock import BACKSTOP
from ...engine.errors import DeadlineCut
from ...engine.tasks import cut_after
from .port import HttpxPort
from .reading import LiveBody

if TYPE_CHECKING:
    from httpx import Request, Response

    from ...core.call import Call
    from ...engine.port import Backstop


class AsyncLive(LiveBody):
    """The source of an asynchronous response."""

    async def _next(self) -> bytes:
        with cut_after(self.left() + BACKSTOP):
            return await self._next_piece()
        raise self._cut()

    async def _next_piece(self) -> bytes:
        if self._chunks is None:
            self._chunks = aiter(self._stream)
        async for found in self._chunks:
            if found:
                return found  # type: ignore[no-any-return]
        return b""

    async def close(self) -> None:
        """Close the stream; let its generators end by reading on: trio warns of unfinished ones.

        Only over HTTP/1: a body whose generators have not ended closed its connection there, so
        reading on is an error at once. Over HTTP/2 it would wait for the other streams' parts.
        """
        await self._stream.aclose()
        with suppress(Exception):
            while self.can_wait and self._chunks is not None and await self._next_piece():
                pass  # it had arrived


class AsyncHttpxPort(HttpxPort):
    """The port of ``AsyncRetryTransport``, on asyncio and trio."""

    is_async, live_kind = True, AsyncLive
    backstop: Backstop | None = staticmethod(cut_after)

    async def transmit(self, call: Call, request: Request) -> Response:
        seconds = call.deadline_at - call.sent_at
        call.live = response = await self.send_within(seconds, request)
        return response

    async def send_within(self, seconds: float, request: Request) -> Response:
        """Send one attempt before the deadline.

        Raises:
            DeadlineCut: The deadline is over, and the library has not noticed.
        """
        if seconds == inf:
            return await self.inner.handle_async_request(request)  # type: ignore[no-any-return]
        with cut_after(seconds + BACKSTOP):
            return await self.inner.handle_async_request(request)  # type: ignore[no-any-return]
        await self.close_unused(None)  # that cancellation loses slots of the pool
        raise DeadlineCut

    async def close_unused(self, response: Response | Exception | None) -> None:
        if isinstance(response, Exception):
            return
        from .pools import free_lost_request, free_lost_slots

        try:
            if response is not None:
                import anyio

                with anyio.CancelScope(shield=True):
                    await response.stream.aclose()  # type: ignore[union-attr]
        finally:  # also if asyncio cancels the task once more
            free_lost_request(self.inner, response)
            free_lost_slots(self.inner)
