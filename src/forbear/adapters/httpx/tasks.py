"""Tasks: what the asynchronous flavour of the httpx family does in a way of its own."""

from __future__ import annotations

from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any

from ...engine.alarms import Backstop
from ...engine.clock import BACKSTOP
from ...engine.errors import DeadlineCut
from ...engine.reading import DRAIN_BYTES
from .port import ASYNC, HttpxPort, Library
from .reading import PIECE, LiveBody

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from httpx import AsyncBaseTransport, Request, Response

    from ...core.call import Call
    from ...engine.settings import Settings


class AsyncLive(LiveBody):
    """The source of an asynchronous response."""

    _chunks: AsyncIterator[bytes] | None
    _is_lost = False  # a read was given up: the stream would seem to end here

    async def _next(self) -> bytes:
        if self._is_lost:
            raise self._port.stream_error("the reading of the body was given up")
        if self._chunks is None:
            self._chunks = aiter(self.stream)
        self._is_lost, found = True, b""
        async for found in self._chunks:
            if found:
                break
        self._is_lost = False
        return found

    async def _next_in_time(self, seconds: float) -> bytes:
        import anyio

        with anyio.CancelScope(deadline=anyio.current_time() + seconds + BACKSTOP):
            return await self._next()
        await self.close()
        raise self._late()

    async def _receive(self, seconds: float) -> bytes:
        try:
            return await self._wire.read(PIECE, seconds)  # type: ignore[no-any-return]
        except BaseException as error:
            if not isinstance(error, Exception):  # cancelled outside of the stream's generators
                import anyio

                with anyio.CancelScope(shield=True):
                    await self.close()
            raise

    async def _give(self, most: int, timeout: float | None = None) -> Any:
        """Stand in for the ``read`` of the network stream."""
        if self._found is not None:
            return self._taken()
        return await self._read(most, self._bounded(timeout))

    async def close(self) -> None:
        """Close the stream; let its generators end by reading on: trio warns of unfinished ones.

        Only over HTTP/1: a body whose generators have not ended closed its connection there, so
        reading on is an error at once. Over HTTP/2 it would wait for the other streams' parts.
        """
        if self._is_closed:
            return
        await self.stream.aclose()
        self._is_closed = True
        room = 0 if self._wire is None or self._chunks is None else DRAIN_BYTES
        with suppress(Exception):
            while room > 0 and (piece := await self._next()):  # it had arrived
                room -= len(piece)


class AsyncHttpxPort(HttpxPort):
    """The port of ``AsyncRetryTransport``, on asyncio and trio."""

    kinds, live_kind = ASYNC, AsyncLive
    backstop: Backstop  # pyright: ignore[reportIncompatibleMethodOverride]

    def __init__(self, settings: Settings, library: Library, inner: AsyncBaseTransport) -> None:
        super().__init__(settings, library, inner)
        self.backstop = Backstop()  # pyright: ignore

    async def close_idle(self, call: Call) -> None:
        import anyio

        from .pools import close_idle

        with anyio.CancelScope(shield=True):
            await close_idle(*self.idle_at(call))

    async def transmit(self, call: Call, request: Request) -> Response:
        response: Response
        if call.deadline_at == inf:
            response = call.live = await self.inner.handle_async_request(request)
        else:
            seconds = call.deadline_at - call.sent_at
            response = call.live = await self.send_within(seconds, request)
        return response

    async def send_within(self, seconds: float, request: Request) -> Response:
        """Send one attempt before the deadline.

        Raises:
            DeadlineCut: The deadline is over, and the library has not noticed.
        """
        with self.backstop.after(seconds + BACKSTOP):
            return await self.inner.handle_async_request(request)  # type: ignore[no-any-return]
        from .pools import close_lost

        await close_lost(self.inner)  # the backstop's cancellation loses slots of the pool
        raise DeadlineCut

    def is_full(self) -> bool:
        from .pools import is_full

        return is_full(self.inner)

    async def close_unused(self, response: Response | Exception | None) -> None:
        if isinstance(response, Exception):
            return
        from .pools import close_lost, free_lost_request, free_lost_slots, reset_lost

        if response is not None:
            import anyio

            with anyio.CancelScope(shield=True):
                try:
                    await response.stream.aclose()  # type: ignore[union-attr]
                finally:  # the backstop's cancellation may arrive in the middle of it
                    if free_lost_request(response.stream):
                        await close_lost(self.inner)
        free_lost_slots(self.inner)
        reset_lost(self.inner)
