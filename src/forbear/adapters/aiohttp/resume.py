"""Resuming in aiohttp: a body that is handed over while it is still to come.

Loaded with the first of them. core/headers/ranges.py says what may be resumed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import ref

import aiohttp

from ...core.call import RECORD
from ...core.headers.ranges import download_of
from ...core.outcome import RETRYABLE_KINDS
from ...engine.calls import body_broke
from ...engine.resume import AsyncResumable
from .bodies import Bounded, ContentBody, Pulled

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import ClientRequest, ClientResponse

    from ...core.call import Call, Story
    from ...core.event_streams import EventStream, WholeEvents
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
    """Resume a body where it breaks, or attach the story to its error; it ends at a deadline."""
    events = None
    if port.watches_bodies:
        if port.awaits_events and stream is not None:
            from ...engine.streams import whole_events

            events = whole_events(port.settings, response.status, response.raw_headers)
        download = resumable(port, request, response)
        original = AiohttpOriginal(response, download, stream)
        if download is not None or events is not None:
            response.content = Resuming(port, response, begin, original, events)
        else:
            known = None if stream is None else original
            response.content = Watched(port, response, begin, known)
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
        self._body = aiter(AsyncResumable(port, stream, begin, original, events=events))

    async def pull(self) -> bytes:
        return await anext(self._body, b"")

    def end(self) -> None:
        self._body.is_closed = True
        self._original.close_rest()


class Watched(aiohttp.StreamReader):
    """A body that was handed over and is not resumed: an error that breaks it gets the story.

    A stream of events that breaks or ends before its first byte is requested again when it is read.
    Not a ``Pulled``, which would lose where the chunks of the body end. What is not defined here is
    taken from the library's own reader, since this object has none of its attributes.

    Args:
        port: Of the middleware.
        inner: The library's own.
        begin: As of ``Resumable``.
        response: Its content is ``inner``.
        original: Of a stream of events; None: it is none.
    """

    _watch: tuple[AiohttpPort, Begin] | None
    _again: AsyncResumable | None = None  # until its first byte has come

    def __init__(
        self, port: AiohttpPort, response: ClientResponse, begin: Begin,
        original: AiohttpOriginal | None,
    ) -> None:  # fmt: skip
        self._inner, self._watch, self._original = response.content, (port, begin), original
        if original is not None:
            stream = ContentBody(response.content, original.response_of)
            self._again = AsyncResumable(port, stream, begin, original)

    async def _begin_anew(self) -> bool:
        """Did a stream of events fail before its first byte, and does another one follow it?"""
        again, inner = self._again, self._inner
        if again is None or inner.total_bytes:
            self._again = None
            return False
        error = inner.exception()
        if error is None and not inner.is_eof():
            return False
        if await again.begin_anew(error):  # type: ignore[arg-type]
            rest: Any = None if self._original is None else self._original.rest
            self._inner = rest.content
            return True
        self._watch = self._again = None
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _broke(self, error: Exception) -> None:
        if self._watch is None or error is not self._inner.exception():
            return  # closed, reported already, or a mistake of the caller's
        (port, begin), self._watch = self._watch, None
        kind = port.kind_of(error)
        if kind in RETRYABLE_KINDS:
            body_broke(port, begin(), error, kind)

    def set_exception(self, exc: BaseException, exc_cause: object = None) -> None:
        """The response is closed."""
        if self._again is not None:
            self._again.is_closed = True
        self._watch = None
        self._inner.set_exception(exc)
        if self._original is not None:
            self._original.close_rest()


def reading(name: str) -> Callable[..., object]:
    async def read(self: Watched, *arguments: object, **named: object) -> object:
        while True:
            try:
                found = await getattr(self._inner, name)(*arguments, **named)
                if self._again is None or not await self._begin_anew():
                    return found
            except Exception as error:
                if self._again is None or not await self._begin_anew():
                    self._broke(error)
                    raise

    read.__name__ = name
    return read


def passing(name: str) -> Callable[..., object]:
    def passed(self: Watched, *arguments: object, **named: object) -> object:
        return getattr(self._inner, name)(*arguments, **named)

    passed.__name__ = name
    return passed


READS = ("read", "readany", "readchunk", "readexactly", "readline", "readuntil", "wait_eof")
PASSES = (
    "at_eof", "begin_http_chunk_receiving", "end_http_chunk_receiving", "exception", "feed_data",
    "feed_eof", "get_read_buffer_limits", "is_eof", "on_eof", "read_nowait",
    "set_read_chunk_size", "unread_data",
)  # fmt: skip
for each in READS:
    setattr(Watched, each, reading(each))
for each in PASSES:
    if hasattr(aiohttp.StreamReader, each):
        setattr(Watched, each, passing(each))


class AiohttpOriginal:
    """The response whose body may be resumed.

    Args:
        response: Not held, since it holds the body.
        download: The part of its body that can be requested; None: nothing.
        stream: If it streams events.

    Attributes:
        rest: The response that continues it.
    """

    shows_deadline = True
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

    def stream_of(self, response: ClientResponse | None) -> ContentBody:
        if response is None:
            return ContentBody(Pulled(None), lambda: None)
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
