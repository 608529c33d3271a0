"""Streams of events of aiohttp, read up to their first event before the hand-over.

Loaded with the option ``event_streams=``.
"""

from __future__ import annotations

from contextlib import nullcontext
from math import inf
from typing import TYPE_CHECKING

from ...engine.frames import let_signals_through
from ...engine.reading import LATE, WHOLE, aread_pieces
from ...engine.streams import stream_start
from .bodies import ContentBody, Pulled

if TYPE_CHECKING:
    from aiohttp import ClientResponse

    from ...core.policy import RetryPolicy
    from ...engine.reading import Ending, PrefetchResult
    from ...engine.streams import StreamStart
    from .types import AiohttpPort


def begin_stream(
    port: AiohttpPort, response: ClientResponse, policy: RetryPolicy
) -> StreamStart | None:
    """Begin to wait for the first event of a stream; None: it is none, or is not waited for."""
    if response.method == "HEAD":
        return None
    lines = response.raw_headers  # of the deadline the backstop takes care
    return stream_start(port.settings, policy, response.status, lines, inf)


async def await_first_event(
    port: AiohttpPort, response: ClientResponse, start: StreamStart
) -> PrefetchResult:
    """Read a stream of events up to its first event, and put back what was read."""
    content = response.content
    body = StreamBody(content, lambda: response)
    ending: Ending = LATE  # unless the backstop lets the reading end
    try:
        with port.backstop.after(start.seconds) if start.seconds < inf else nullcontext():
            ending = await aread_pieces(body, lambda _: start.wants_more(body.pieces[-1]))
        failure = start.failure(ending, port)
    except Exception as error:
        let_signals_through(error)
        failure = error
        content.set_exception(error)  # so that the caller's read fails at once too
    response.content = Begun(None if ending is WHOLE else content, b"".join(body.pieces))
    return LATE if failure is None else failure


class StreamBody(ContentBody):
    """The body of a stream of events, of which the first one is waited for."""

    async def read_piece(self) -> bytes | Ending:
        return await self._content.readany() or WHOLE


class Begun(Pulled):
    """A stream of events whose beginning was read before the hand-over."""

    def exception(self) -> BaseException | None:
        own = super().exception()
        return own if own is not None or self._inner is None else self._inner.exception()

    def end(self) -> None:
        if self._inner is not None:
            self._inner.set_exception(super().exception())
