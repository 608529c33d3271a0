"""Bodies of aiohttp's responses: what is still to come of one, and the reader that stands for it.

``Live`` is what is still to come of a response, and its only reader: decoded, if aiohttp does that.
``Replaced`` is the reader under a response that gives what a source reads: what was put back, what
goes on where it breaks, or what ``retry_if`` is shown. Loaded with the first body that is put back,
or handed over while it is still to come.
"""

from __future__ import annotations

from asyncio import get_running_loop
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Protocol
from weakref import ref

import aiohttp
from aiohttp import ClientResponse
from aiohttp.base_protocol import BaseProtocol
from aiohttp.streams import EMPTY_PAYLOAD

from ...addons.resume import Resumable
from ...core.call import RECORD
from ...core.headers.fields import begins_events
from ...core.headers.ranges import download_of
from ...engine.bodies import PutBack, rest_of
from ...engine.calls import body_is_late
from ...engine.clock import SYSTEM_CLOCK
from ...engine.loop import drive
from ...engine.port import AsyncPort, StreamPort
from ...engine.reading import LATE, Nothing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from aiohttp import ClientRequest

    from ...core.call import Call, Story
    from ...core.event_streams import EventStream
    from ...core.headers.fields import Line
    from ...core.headers.ranges import Download
    from ...core.outcome import FailureKind
    from ...core.policy import RetryPolicy
    from ...engine.alarms import Backstop
    from ...engine.context import CallContext
    from ...engine.reading import Ending, PrefetchResult, Source

    class AiohttpPort(AsyncPort[ClientResponse], StreamPort, Protocol):
        """The port of one middleware (port.py)."""

        def kind_of(self, error: Exception) -> FailureKind: ...


PIECE = 65_536  # bytes read ahead at once, since a few that were received may be many when decoded


class Live:
    """The source of a response: the bytes that are still to come.

    Attributes:
        ends_at: Each read ends by this instant of the system's clock.

    Args:
        late: Makes the error for a read that this instant ends.
        is_rest: Nobody else holds the response, whose finalizer would close the body. Else it is
            not held, since it holds this.
    """

    def __init__(
        self, backstop: Backstop, response: ClientResponse, ends_at: float = inf,
        late: Callable[[], Exception] = TimeoutError, *, is_rest: bool = False,
    ) -> None:  # fmt: skip
        self._backstop, self.ends_at, self._late = backstop, ends_at, late
        self._content, self._connection = response.content, response.connection
        self._rest = response if is_rest else None
        self._ahead: bytes | None = None

    async def has_more(self) -> bool:
        """Read ahead; False: the time is over. A read that is cancelled takes nothing."""
        if self._ahead is None:
            if self.ends_at == inf:
                self._ahead = await self._content.read(PIECE)
            else:
                with self._backstop.after(self.ends_at - SYSTEM_CLOCK.true_monotonic()):
                    self._ahead = await self._content.read(PIECE)
        return self._ahead is not None

    async def read(self) -> bytes:
        if self._ahead is None and self.ends_at == inf:
            return await self._content.readany()
        if not await self.has_more():
            raise self._late()
        piece, self._ahead = self._ahead, None
        return piece or b""

    async def close(self) -> None:
        content = self._content
        if self._rest is not None:
            self._rest.close()
        elif not content.is_eof():
            if content.exception() is None:
                content.set_exception(aiohttp.ClientConnectionError("Connection closed"))
            if self._connection is not None:
                self._connection.close()


class NoConnection(BaseProtocol):
    """The protocol of a reader that no connection feeds."""

    def pause_reading(self, resume_parser: bool = True) -> None:
        """Do nothing."""

    resume_reading = pause_reading


class Replaced(aiohttp.StreamReader):
    """A reader in place of another one that gives what a source reads."""

    def __init__(self, content: aiohttp.StreamReader, source: Source) -> None:
        # No line that it reads may be longer than twice this.
        limit = PIECE if content is EMPTY_PAYLOAD else content.get_read_buffer_limits()[0]
        loop = get_running_loop()
        super().__init__(NoConnection(loop), limit, loop=loop)
        if isinstance(source, PutBack):  # it is here at once, as what aiohttp has received
            for piece in source.pieces:
                self.feed_data(piece)
            source = source.stream
        if isinstance(source, Nothing):
            self.feed_eof()
        self._source = source

    async def readany(self) -> bytes:
        """Return what comes next, past the buffer: going through it costs as much as the rest."""
        found = self.read_nowait()
        if not found and not self.is_eof():
            found = await self._source.read()
            self.total_bytes += len(found)
            if not found:
                self.feed_eof()
        return found

    async def _wait(self, func_name: str) -> None:
        piece = await self._source.read()
        if piece:
            self.feed_data(piece)
        else:
            self.feed_eof()

    def set_exception(self, exc: BaseException, exc_cause: object = None) -> None:
        """The response is closed."""
        super().set_exception(exc)
        if not self.is_eof():
            drive(self._source.close())


def put_back(
    backstop: Backstop, response: ClientResponse, pieces: Iterable[bytes],
    ending: Ending | Exception,
) -> None:  # fmt: skip
    """Let a body give what was read of it, and then go on as that has ended."""
    again = aiohttp.ClientPayloadError("the body has broken before")
    source = rest_of(pieces, ending, Live(backstop, response), again)
    response.content = Replaced(response.content, source)


async def await_first_event(
    port: AiohttpPort, response: ClientResponse, policy: RetryPolicy
) -> PrefetchResult:
    """Read a stream of events up to its first event, and put it back; None: it is none."""
    from ...addons import event_streams  # the option has loaded it

    lines = response.raw_headers  # of the deadline the backstop takes care
    start = event_streams.stream_start(port.settings, policy, response.status, lines, inf)
    if start is None or response.method == "HEAD":
        return None
    live = Live(port.backstop, response, start.ends_at)
    pieces, ending, failure = await event_streams.await_first_event(start, live, port)
    put_back(port.backstop, response, pieces, ending)
    return LATE if failure is None else failure


def watch_body(
    port: AiohttpPort, response: ClientResponse, begin: Callable[[], Call], sent: ClientRequest,
    context: CallContext | None,
) -> None:  # fmt: skip
    """Resume a body that is handed over where it breaks, if possible; it ends at a deadline."""
    settings, live = port.settings, partial(Live, port.backstop)
    is_bounded = context is not None and context.has_deadline()
    if context is not None and is_bounded:
        now = settings.clock.monotonic()
        until = SYSTEM_CLOCK.true_monotonic() + context.deadline_on(settings.clock, now) - now
        live = partial(live, ends_at=until, late=lambda: body_is_late(port, begin()))
    source: Source = live(response)
    original = AiohttpOriginal(port, response, sent, live)
    if original.can_be_resumed():
        events = None
        if settings.event_streams is not None:
            from ...addons.event_streams import whole_events  # the option has loaded it

            events = whole_events(settings, response.status, response.raw_headers)
        source = Resumable(port, source, begin, original, events=events)
    elif not is_bounded:
        return
    response.content = Replaced(response.content, source)


class AiohttpOriginal:
    """The response whose body may be resumed. It is not held, since it holds the body.

    Args:
        live: Makes the source of a response.
    """

    _download: Download | None = None  # the part of its body that can be requested
    _stream: EventStream | None = None

    def __init__(
        self, port: AiohttpPort, response: ClientResponse, sent: ClientRequest,
        live: Callable[..., Source],
    ) -> None:  # fmt: skip
        self._response_of, self._live = ref(response), live
        settings, status, lines = port.settings, response.status, response.raw_headers
        # Not of an encoded body: aiohttp decodes while it reads, so the raw bytes that a range
        # counts are not known.
        if settings.resume and "Content-Encoding" not in response.headers:
            self._download = download_of(sent.method, sent.headers.items(), status, lines)
        if begins_events(status, lines):
            from ...core.event_streams import event_stream  # loaded with the first that is open

            self._stream = event_stream(status, lines)

    def can_be_resumed(self) -> bool:
        return self._download is not None or self._stream is not None

    def begins_events(self) -> bool:
        return self._stream is not None

    def download(self, call: Call, received: int) -> Download | EventStream | None:
        return self._download if received or self._stream is None else self._stream

    def head_of(self, response: ClientResponse) -> tuple[int, Sequence[Line]]:
        return response.status, response.raw_headers

    def stream_of(self, response: ClientResponse) -> Source:
        return self._live(response, is_rest=True)

    def attach(self, story: Story) -> None:
        response = self._response_of()
        if response is not None:
            setattr(response, RECORD, story)
