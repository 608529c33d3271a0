"""Streams of events of requests and urllib3: their first event, and what gives them promptly."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from urllib3 import HTTPResponse
from urllib3.exceptions import HTTPError

from ...engine.frames import let_signals_through
from ...engine.reading import LATE, note_prefetch, read_pieces
from ...engine.resume import SyncResumable
from ...engine.streams import stream_start, whole_events
from .bodies import Kept, RawBody, same_head
from .deadlines import PIECE, read_briefly
from .resume import RawOriginal, ResumedFile, ResumedResponse, WatchedResponse, watch_body

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from ...core.call import Call
    from ...core.event_streams import WholeEvents
    from ...engine.streams import StreamStart
    from .bodies import PieceFile
    from .types import AnyPort, AnyResponse, Urllib3Port


class StreamBody(RawBody):
    """The body of a stream of events, which is not decoded.

    A chunked one is read as urllib3's ``stream`` reads it, for a fifth of what ``read1`` costs.
    """

    _chunks: Iterator[bytes] | None = None

    def __init__(self, raw: HTTPResponse) -> None:
        super().__init__(raw)
        if isinstance(raw, Begun):
            self._chunks = iter(raw.file)
        elif raw.chunked and raw.supports_chunked_reads():
            self._chunks = raw.read_chunked(PIECE, decode_content=False)

    def _receive(self) -> bytes:
        return super()._receive() if self._chunks is None else next(self._chunks, b"")

    def __iter__(self) -> Iterator[bytes]:
        return self if self._chunks is None else self._chunks


class Prompt(HTTPResponse):
    """The part of a response that gives each piece of a stream when it comes, as it is in its file.

    urllib3 does so for chunked bodies alone, and reads others until it has so many bytes.
    """

    file: PieceFile

    def stream(
        self, amt: int | None = PIECE, decode_content: bool | None = None
    ) -> Generator[bytes, None, None]:
        while piece := self._next(amt):
            yield piece

    read_chunked = stream

    def _next(self, amt: int | None) -> bytes:
        piece = b""
        try:
            piece = self.file.read1(amt)
        finally:
            if not piece:  # it has ended, or broken
                self.file.close()
                self.release_conn()
        return piece


class Begun(Prompt, WatchedResponse, Kept):
    """A stream of events whose beginning was read before the hand-over."""

    def _next(self, amt: int | None) -> bytes:
        try:
            return super()._next(amt)
        except HTTPError as error:
            self._broke(error)
            raise

    def drop_rest(self) -> None:
        """Close the connection, and give only what was read."""
        self.file.rest = None
        self.raw.close()
        self.raw.release_conn()


def begin_stream(port: Urllib3Port[AnyResponse], call: Call, response: AnyResponse) -> AnyResponse:
    """Read a stream of events up to its first event, and put back what was read."""
    raw, left = port.raw_of(response), port.left(call)
    if call.request.method == "HEAD" or not isinstance(raw, HTTPResponse):
        return response
    lines, left = list(raw.headers.items()), inf if left is None else left
    start = stream_start(port.settings, call.policy, raw.status, lines, left)
    if start is None:
        return response
    begun, failure = await_first_event(raw, start, port)
    note_prefetch(call, failure)
    return port.stand_in(response, begun)


def await_first_event(
    raw: HTTPResponse, start: StreamStart, port: AnyPort
) -> tuple[Begun, Exception | None]:
    """Read a stream up to its first event.

    Returns:
        The response that gives the caller all of it; and why the attempt failed.
    """
    body, failure = StreamBody(raw), None
    rest: Iterator[bytes] | Exception | None = None
    try:
        with read_briefly(raw, start.seconds) as body.timed:
            ending = read_pieces(body, lambda _: start.wants_more(body))
        failure = start.failure(ending, port)
        if ending is LATE:
            body.timed, rest = None, iter(body)
    except Exception as error:
        let_signals_through(error)
        body.close()
        rest = failure = error
    return Begun(raw, body, rest), failure


class Again:
    """A stream of events that the caller has, and nothing of which has come.

    Attributes:
        original: Its response; without the response itself, which holds this.
    """

    def __init__(self, port: AnyPort, raw: HTTPResponse, begin: Callable[[], Call]) -> None:
        self.original = RawOriginal(raw)
        self.original.live = None
        self._body = SyncResumable(port, (), begin, self.original)

    def request(self, error: Exception | None) -> HTTPResponse | None:
        """Request the stream again; return the response that follows; None: none does."""
        return self.original.live if self._body.begin_anew(error) else None


class ResumedEvents(Prompt, ResumedResponse):  # type: ignore[misc]
    """A stream of events of which whole events are given, and which is resumed when it ends."""

    def __init__(
        self, port: AnyPort, raw: HTTPResponse, begin: Callable[[], Call], events: WholeEvents
    ) -> None:
        original = RawOriginal(raw, StreamBody)
        body = SyncResumable(port, StreamBody(raw), begin, original, events=events)
        self.file = EventsFile(body, original)
        # Its length is that of the first response alone.
        head = {**same_head(raw, self.file), "enforce_content_length": False}
        HTTPResponse.__init__(self, **head)


class EventsFile(ResumedFile):
    """The file that a ``ResumedEvents`` reads from: the end of one response is not its end."""

    @property
    def closed(self) -> bool:  # type: ignore[override]
        return not self._pieces and self.body.is_closed


def watch_stream(
    port: Urllib3Port[AnyResponse],
    response: AnyResponse,
    raw: HTTPResponse,
    begin: Callable[[], Call],
) -> AnyResponse:
    """Resume a stream of events; else request it again if it fails before its first byte."""
    events = whole_events(port.settings, raw.status, list(raw.headers.items()))
    if events is not None:
        return port.stand_in(response, ResumedEvents(port, raw, begin, events))
    response = watch_body(port, response, raw, begin)
    if isinstance(raw, WatchedResponse) and not isinstance(raw, Begun):
        raw.again = Again(port, raw, begin)
    return response
