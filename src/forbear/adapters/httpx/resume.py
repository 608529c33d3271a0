"""Resuming in the httpx family: a body that is handed over while it is still to come.

Loaded with the first of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...addons.resume import Resumable
from ...core.call import SETTING
from ...core.headers.fields import begins_events
from ...core.headers.ranges import Repeat, download_of
from ...engine.calls import sent_request
from ...engine.loop import drive
from .bodies import UNKNOWN, length_to_prefetch
from .errors import own_error
from .reading import own_timeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence
    from typing import Self

    from httpx import AsyncByteStream, Response, SyncByteStream

    from ...addons.event_streams import EventStream
    from ...core.call import Call, Story
    from ...core.headers.fields import Line
    from ...core.headers.ranges import Download
    from ...engine.reading import Source
    from .types import HttpxPort


def watch_body(port: HttpxPort, response: Response, begin: Callable[[], Call]) -> None:
    """Resume a body where it breaks."""
    stream: Any = response.stream
    original, events = HttpxOriginal(port, response), None
    keeps = is_document(response) and length_to_prefetch(port, response) == UNKNOWN
    if port.awaits_events:
        from ...addons.event_streams import whole_events

        events = whole_events(port.settings, response.status_code, response.headers.raw)
    resuming = port.streams.resuming
    source = resuming.source(stream)
    body = Resumable(port, source, begin, original, keeps=keeps, events=events)
    response.stream = resuming(port, body)


def is_document(response: Response) -> bool:
    """Is a body one JSON document?"""
    kind = str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()
    return kind == "application/json" or (
        kind.endswith("+json") and kind != "application/stream+json"
    )


class HttpxOriginal:
    """The head of the response whose body may be resumed.

    A small JSON document of unknown length without a validator is requested again as a whole. It
    continues only if its bytes begin with those that the caller has, because then all that the
    caller gets is the second response, byte for byte. Not without a read timeout: such a caller
    expects silences, as in a feed of documents.
    """

    def __init__(self, port: HttpxPort, response: Response) -> None:
        self._port = port
        self._status, self._headers = response.status_code, response.headers
        self._extensions = response.extensions

    def begins_events(self) -> bool:
        return begins_events(self._status, self._headers.raw)

    def download(self, call: Call, received: int) -> Download | Repeat | EventStream | None:
        asked, status, lines = sent_request(call), self._status, self._headers.raw
        if not received and asked.method != "HEAD" and begins_events(status, lines):
            from ...addons.event_streams import event_stream  # loaded with the first that breaks

            return event_stream(status, lines)
        found = download_of(asked.method, asked.headers.raw, status, lines)
        is_repeated = asked.method == "GET" and status in (200, 206)
        if found is None and is_repeated and own_timeout(call.request.original) is not None:
            return Repeat(status, lines)
        return found

    def head_of(self, response: Response) -> tuple[int, Sequence[Line]]:
        return response.status_code, response.headers.raw

    def stream_of(self, response: Response) -> Source:
        if "network_stream" in response.extensions:
            self._extensions["network_stream"] = response.extensions["network_stream"]
        source: Source = self._port.streams.resuming.source(response.stream)
        return source

    def attach(self, story: Story) -> None:
        self._extensions[SETTING] = story


class Chunks:
    """The source of the bytes of a response's stream."""

    def __init__(self, stream: SyncByteStream) -> None:
        self._stream = stream
        self._chunks: Iterator[bytes] | None = None

    async def read(self) -> bytes:
        if self._chunks is None:
            self._chunks = iter(self._stream)
        while (chunk := next(self._chunks, None)) is not None:
            if chunk:
                return chunk
        return b""

    async def close(self) -> None:
        self._stream.close()


class AsyncChunks:
    """Its asynchronous counterpart."""

    def __init__(self, stream: AsyncByteStream) -> None:
        self._stream = stream
        self._chunks: AsyncIterator[bytes] | None = None

    async def read(self) -> bytes:
        if self._chunks is None:
            self._chunks = aiter(self._stream)
        while (chunk := await anext(self._chunks, None)) is not None:
            if chunk:
                return chunk
        return b""

    async def close(self) -> None:
        await self._stream.aclose()


class Resuming:
    """A stream of a source's bytes that the caller reads; its errors are the library's own."""

    _forbear_sends = True
    source = Chunks

    def __init__(self, port: HttpxPort, source: Source) -> None:
        self._module, self._source = port.library.module, source

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        try:
            chunk = drive(self._source.read())
        except Exception as error:
            raise own_error(error, self._module)  # noqa: B904  # mostly the same one
        if not chunk:
            raise StopIteration
        return chunk

    def close(self) -> None:
        drive(self._source.close())


class AsyncResuming:
    """Its asynchronous counterpart. No generator: trio complains of unfinished ones."""

    _forbear_sends = True
    source = AsyncChunks

    def __init__(self, port: HttpxPort, source: Source) -> None:
        self._module, self._source = port.library.module, source

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await self._source.read()
        except Exception as error:
            raise own_error(error, self._module)  # noqa: B904
        if not chunk:
            raise StopAsyncIteration
        return chunk

    async def aclose(self) -> None:
        await self._source.close()
