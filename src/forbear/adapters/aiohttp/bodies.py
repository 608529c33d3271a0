"""Bodies of aiohttp's responses: what forbear reads of them, puts back, and resumes.

What was read is put back by a reader that fetches more when it is read (``Pulled``). One is under
the copy of a response that ``retry_if`` is given. Another resumes a download that broke after it
was handed over; core/headers/ranges.py says what may be resumed.
"""

from __future__ import annotations

from asyncio import get_running_loop
from math import inf
from typing import TYPE_CHECKING, Any
from weakref import ref

import aiohttp

from ...core.headers.ranges import download_of
from ...core.outcome import RETRYABLE_KINDS
from ...core.record import RECORD
from ...engine.calls import body_broke, body_is_late
from ...engine.inspection import (
    LATE,
    MOST_BYTES,
    WHOLE,
    Ending,
    aread_pieces,
    seconds_to_look,
    too_late,
)
from ...engine.resume import AsyncResumable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aiohttp import ClientRequest, ClientResponse

    from ...core.call import Call, Prefetched
    from ...core.event_streams import EventStream, WholeEvents
    from ...core.headers.ranges import Download
    from ...core.record import Story
    from .port import AiohttpPort

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

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._content.iter_any()

    async def aclose(self) -> None:
        response = self._response_of()
        if response is not None and response.connection is not None:
            response.connection.close()


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


class Inspection(Pulled):
    """The body under a copy: it reads the caller's, and puts that back, when it is read itself.

    Attributes:
        prefetch_result: How reading the body ended: the error that broke it.
        answer: What ``retry_if`` returned.
        error: What it raised.
        patience: Seconds for which the body is read at most.
    """

    answer: Any = None
    error: Exception | None = None
    is_wanted = False
    patience = inf

    def __init__(
        self,
        port: AiohttpPort,
        response: ClientResponse,
        deadline_at: float,
        found: Prefetched | None,
    ) -> None:
        self._port, self.response, self._deadline_at = port, response, deadline_at
        self.prefetch_result: Prefetched | Exception | None = found
        super().__init__(response.content)

    async def decoded(self) -> bytes:
        return await self.shown().read()

    def shown(self) -> ClientResponse:
        """Make a copy of the response that reads from here."""
        copy = object.__new__(type(self.response))
        copy.__dict__ = vars(self.response).copy()
        copy.content = self
        copy._connection = copy._writer = None  # the caller's
        return copy

    async def pull(self) -> bytes:
        content, port, response = self._inner, self._port, self.response
        if content is None or content.at_eof():
            return b""
        seconds = self.patience
        if not content.is_eof():
            kind, length = response.headers.get("Content-Type", ""), response.content_length
            seconds = min(seconds, seconds_to_look(response.method, response.status, kind, length))
        seconds = min(seconds, self._deadline_at - port.clock.monotonic(), 1e6)
        body = ContentBody(content, lambda: response)
        ending: Ending = LATE  # unless the backstop lets the reading end
        try:
            with port.backstop.after(seconds):
                ending = await aread_pieces(body, lambda received: received <= MOST_BYTES)
        except Exception as error:
            self.prefetch_result = error
            raise
        finally:
            found = b"".join(body.pieces)
            # From here on this reads what the caller will: a ``retry_if`` that reads again after an
            # error must not take bytes that nobody puts back.
            self._inner = response.content = Pulled(None if ending is WHOLE else content, found)
        if ending is not WHOLE:
            raise too_late()
        self._inner = None
        return found


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


def has_ended(content: aiohttp.StreamReader) -> bool:
    """Has all of a body come? An empty one may be a stream of events that ended too early."""
    return bool(content.is_eof()) and content.total_bytes > 0


def resumable(port: AiohttpPort, sent: ClientRequest, response: ClientResponse) -> Download | None:
    """Return what can be requested of a body that is still to come; None: nothing.

    Not of an encoded body: aiohttp decodes while it reads, so the raw bytes that a range counts are
    not known.
    """
    if not port.settings.resume or "Content-Encoding" in response.headers:
        return None
    asked = sent.headers.items()
    return download_of(sent.method, asked, response.status, response.raw_headers)
