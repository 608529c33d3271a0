"""Resuming in aiohttp: a body that is handed over while it is still to come.

Loaded with the first of them. core/headers/ranges.py says what may be resumed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import ref

from ...core.call import RECORD
from ...core.headers.ranges import download_of
from ...engine.resume import Resumable
from .bodies import Bounded, ContentBody, Pulled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aiohttp import ClientRequest, ClientResponse

    from ...core.call import Call, Story
    from ...core.event_streams import EventStream, WholeEvents
    from ...core.headers.fields import Line
    from ...core.headers.ranges import Download
    from ...engine.context import CallContext
    from .types import AiohttpPort

    Begin = Callable[[], Call]


def watch_body(
    port: AiohttpPort,
    response: ClientResponse,
    begin: Begin,
    request: ClientRequest,
    context: CallContext | None,
    stream: EventStream | None,
) -> None:
    """Resume a body where it breaks, if that is possible; it ends at a deadline."""
    download = events = None
    if port.watches_bodies:
        download = resumable(port, request, response)
        if port.awaits_events and stream is not None:
            from ...engine.streams import whole_events

            events = whole_events(port.settings, response.status, response.raw_headers)
        if download is not None or stream is not None:
            original = AiohttpOriginal(response, download, stream)
            response.content = Resuming(port, response, begin, original, events)
    if context is not None and context.has_deadline():
        until = context.deadline_on(port.clock, port.clock.monotonic())
        response.content = Bounded(port, response, begin, until)


class Resuming(Pulled):
    """A body that was handed over, and is resumed where it breaks."""

    def __init__(
        self, port: AiohttpPort, response: ClientResponse, begin: Begin,
        original: AiohttpOriginal, events: WholeEvents | None,
    ) -> None:  # fmt: skip
        super().__init__(response.content)
        self._original = original
        stream = ContentBody(response.content, original.response_of)
        self._body = Resumable(port, stream, begin, original, events=events)

    async def pull(self) -> bytes:
        return await self._body.read()

    def end(self) -> None:
        self._body.is_closed = True
        self._original.close_rest()


class AiohttpOriginal:
    """The response whose body may be resumed.

    Args:
        response: Not held, since it holds the body.
        download: The part of its body that can be requested; None: nothing.
        stream: If it streams events.

    Attributes:
        rest: The response that continues it.
    """

    rest: ClientResponse | None = None

    def __init__(
        self, response: ClientResponse, download: Download | None, stream: EventStream | None
    ) -> None:
        self.response_of, self._download, self._stream = ref(response), download, stream

    def close_rest(self) -> None:
        if self.rest is not None:
            self.rest.close()

    def begins_events(self) -> bool:
        return self._stream is not None

    def download(self, call: Call, received: int) -> Download | EventStream | None:
        return self._download if received or self._stream is None else self._stream

    def head_of(self, response: ClientResponse) -> tuple[int, Sequence[Line]]:
        return response.status, response.raw_headers

    def stream_of(self, response: ClientResponse) -> ContentBody:
        self.rest = response
        return ContentBody(response.content, lambda: response)

    def attach(self, story: Story) -> None:
        response = self.response_of()
        if response is not None:
            setattr(response, RECORD, story)


def resumable(port: AiohttpPort, sent: ClientRequest, response: ClientResponse) -> Download | None:
    """Return what can be requested of a body that is still to come; None: nothing.

    Not of an encoded body: aiohttp decodes while it reads, so the raw bytes that a range counts are
    not known.
    """
    if not port.settings.resume or "Content-Encoding" in response.headers:
        return None
    asked = sent.headers.items()
    return download_of(sent.method, asked, response.status, response.raw_headers)
