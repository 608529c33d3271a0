"""Resuming in requests and urllib3: a large body, and one that the caller streams.

A large body that is read inside the loop is kept as far as it came (``PartialBody``), and the next
attempt requests the rest. One that the caller streams was partly handed over, so a
``ResumedResponse`` takes the place of the library's response and requests the rest itself.
core/headers/ranges.py says what may be resumed and what fits. Chunked bodies are not resumed.
Loaded with the first body that is large, or handed over open.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NoReturn

from urllib3 import HTTPResponse, exceptions
from urllib3.exceptions import ProtocolError

from ...core.call import RECORD, SLOT
from ...core.headers.fields import begins_events
from ...core.headers.ranges import Download, Part, download_of
from ...core.outcome import RETRYABLE_KINDS
from ...engine.calls import body_broke
from ...engine.errors import Interrupted
from ...engine.resume import (
    Resumable,
    SyncResumable,
    accept_part,
    note_progress,
    note_resumed,
)
from .bodies import PieceFile, RawBody, same_head
from .deadlines import PIECE, is_cut_off, is_over, is_resumable
from .errors import classify

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from urllib3.connection import HTTPConnection

    from ...core.call import Call, Story
    from ...core.event_streams import EventStream
    from .request import Urllib3Request
    from .types import Again, AnyPort, AnyResponse, Urllib3Port


def watch_body(
    port: Urllib3Port[AnyResponse],
    response: AnyResponse,
    raw: HTTPResponse,
    begin: Callable[[], Call],
) -> AnyResponse:
    """Resume a body that the caller streams where it breaks, or attach the story to its error."""
    if port.settings.resume and is_resumable(raw):
        return port.stand_in(response, ResumedResponse(port, raw, begin))
    if type(raw) is HTTPResponse:  # a subclass may read in its own way
        raw.__class__ = WatchedResponse
    if isinstance(raw, WatchedResponse):
        raw.watch = port, begin
    return response


def read_large(
    port: Urllib3Port[AnyResponse],
    view: Urllib3Request,
    partial: PartialBody,
    error: Exception | None = None,
) -> AnyResponse:
    """Let the library read what came, and so raise its own error for what broke the body."""
    if error is None:
        error = partial.read()
        view.partial = None if error is None else partial
    response = port.stand_in(partial.response, partial.replayed(error))
    port.load(view.request, response)
    return response


def join(
    port: Urllib3Port[AnyResponse], call: Call, view: Urllib3Request, response: AnyResponse
) -> AnyResponse:
    """Join the rest to the beginning; a rest that does not fit fails like a broken body.

    Then the next attempt requests the whole body anew.
    """
    partial, raw = view.partial, port.raw_of(response)
    assert isinstance(partial, PartialBody)
    at = partial.continue_in(raw)
    if at is None:
        if not is_cut_off(raw):  # else it may have been the rest
            view.partial = None
        port.drain(call, response)
        error = ProtocolError("Connection broken: the rest of the body is another one's")
        return read_large(port, view, partial, error)
    note_resumed(call, at)
    total = partial.rest.complete  # type: ignore[union-attr]
    port.settings.events.emit("resume", call, at, total, "resumed")
    port.bound_reading(call, raw)
    return read_large(port, view, partial)


def rest_of(
    port: Urllib3Port[AnyResponse], call: Call, response: AnyResponse
) -> HTTPResponse | None:
    """Return the urllib3 response that brings the rest; None if nothing was missing.

    Raises:
        Interrupted: It is not the rest.
    """
    raw = port.raw_of(response)
    part = accept_part(port.settings, call, raw.status, list(raw.headers.items()))
    if part is Part.CONTINUES:
        if SLOT in call.notes:
            port.keep_slot(call, raw)
        port.free_to_caller(call, raw)
        return raw
    port.drain(call, response)
    if part is Part.COMPLETE:
        return None
    raise Interrupted


class RawOriginal:
    """The response whose body may be resumed.

    Attributes:
        body_of: Reads the body of a response.
        live: The urllib3 response that brings the body now.
        is_first: It is still the first one.
        story: Of the call, once there is something to record.
    """

    # DeadlineExceeded of requests is an OSError too, of which urllib3 makes an error of its own.
    shows_deadline = False
    is_first = True
    story: Story | None = None

    def __init__(self, raw: HTTPResponse, body_of: type[RawBody] = RawBody) -> None:
        self.live: Any = raw
        self.body_of = body_of
        self._head = raw.status, raw.headers

    def begins_events(self) -> bool:
        status, headers = self._head
        return begins_events(status, list(headers.items()))

    def download(self, call: Call, received: int) -> Download | EventStream | None:
        request, (status, headers) = call.request, self._head
        if not received and begins_events(status, list(headers.items())):
            from ...core.event_streams import event_stream  # loaded with the first that breaks

            return event_stream(status, list(headers.items()))
        return download_of(request.method, request.header_lines(), status, list(headers.items()))

    def stream_of(self, response: HTTPResponse | None) -> RawBody | tuple[()]:
        if response is None:
            return ()
        self.live, self.is_first = response, False
        return self.body_of(response)

    def attach(self, story: Story) -> None:
        self.story = story


class PartialBody(Resumable):
    """A large body that is read inside the loop, as far as it came.

    Nothing of it was handed over, so the next attempt requests the rest, and a part that does not
    fit costs no more than the bytes that came: the attempt after that requests all of them anew.

    Attributes:
        response: The library's, whose head counts.
        is_broken: It broke in the last attempt, which is not classified yet.
        rest: What can be requested, once the body has broken; None: nothing.
    """

    is_broken = False
    rest: Download | None = None

    def __init__(self, port: AnyPort, response: Any, raw: HTTPResponse) -> None:
        super().__init__(port, RawBody(raw), None, RawOriginal(raw))
        self.response, self._raw = response, raw
        self._pieces: deque[bytes] = deque()

    def read(self) -> Exception | None:
        """Read the body, or the rest of it, to its end; return what broke it."""
        try:
            for piece in self._stream:
                self._pieces.append(self._take(piece))
            if self.is_short():
                self._distrust()
        except Exception as error:
            self.is_broken = True
            return error
        return None

    def _distrust(self) -> NoReturn:
        """Trust nothing that came: this part does not belong to the same body."""
        self.rest = None
        raise ProtocolError("Connection broken: the rest has another length")

    def note_break(self, call: Call) -> bool:
        """Note that it broke; did anything come that the call had not had before?"""
        view: Any = call.request
        self.is_broken = False
        if not self._requested_at:
            self.rest = self._original.download(call, self._received)  # type: ignore[assignment]
        new_bytes = self._note_request()
        if self.rest is None or new_bytes <= 0 or view.bodies > 1:  # begun anew, at byte 0
            return False
        note_progress(call, new_bytes, self._received)
        return True

    def fields(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """The header lines that request the rest."""
        assert self.rest is not None
        return self.rest.fields(self._received)

    def continue_in(self, raw: HTTPResponse) -> int | None:
        """Go on with a response; return where in the representation. None: it is not the rest."""
        assert self.rest is not None
        part = self.rest.check_part(self._received, raw.status, list(raw.headers.items()))
        if part is not Part.CONTINUES:
            return None
        self._expect(self.rest)
        self._stream = self._original.stream_of(raw)
        return self.rest.first + self._received

    def replayed(self, error: Exception | None) -> HTTPResponse:
        """Make a response that gives what was read, or raises the error that broke it."""
        if error is not None:
            self._stream.close()
        file = PieceFile(self._pieces if error is None else deque(), error)
        return HTTPResponse(**same_head(self._raw, file))


class ResumedResponse(HTTPResponse):
    """A streamed response that is resumed when it breaks. For one thread, as urllib3's own."""

    forbear_resumes = True

    def __init__(self, port: AnyPort, raw: HTTPResponse, begin: Callable[[], Call]) -> None:
        """Stand in for a response.

        Args:
            port: Of the adapter or the pool.
            raw: The urllib3 response, which was not read from.
            begin: As of ``Resumable``.
        """
        original = RawOriginal(raw)
        self.file = ResumedFile(SyncResumable(port, RawBody(raw), begin, original), original)
        super().__init__(**same_head(raw, self.file))

    @property
    def _forbear_record(self) -> Story | None:
        return self.file.original.story

    @_forbear_record.setter
    def _forbear_record(self, story: Story) -> None:
        self.file.original.story = story

    @property
    def connection(self) -> HTTPConnection | None:
        live: HTTPResponse = self.file.original.live
        return live.connection

    def release_conn(self) -> None:
        # After each read urllib3 releases the connection if the first response is over. By then the
        # rest of the body may be on its way on another connection, which must not be reused yet.
        original = self.file.original
        if original.is_first or self.file.closed:
            original.live.release_conn()

    def drain_conn(self) -> None:
        self.file.body.is_closed = True  # the caller does not want these bytes
        super().drain_conn()

    def shutdown(self) -> None:
        self.file.body.is_closed = True  # the caller ends the reading, so that is no failure
        self.file.original.live.shutdown()


class ResumedFile(PieceFile):
    """The file that a ``ResumedResponse`` reads from."""

    def __init__(self, body: SyncResumable, original: RawOriginal) -> None:
        super().__init__(deque(), iter(body))
        self.body, self.original = body, original

    @property
    def closed(self) -> bool:  # type: ignore[override]
        is_over = bool(self.original.live.closed) and not self.body.is_short()
        return not self._pieces and (is_over or self.body.is_closed)

    def close(self) -> None:
        self.body.is_closed = True
        self._pieces.clear()
        self.original.live.close()

    def fileno(self) -> int:
        return int(self.original.live.fileno())


class WatchedResponse(HTTPResponse):
    """A streamed response that is not resumed: an error that breaks its body gets the story.

    A stream of events that breaks or ends before its first byte is requested again when it is read.
    Nothing has been read of it then, so the response becomes the one that follows.

    The class of urllib3's own response is changed to this one, because urllib3 reads a chunked body
    from http.client's response directly, past anything that could stand in for it.
    """

    watch: tuple[AnyPort, Callable[[], Call]] | None = None  # None: done
    again: Again | None = None  # of a stream of events, until its first byte has come
    follows: HTTPResponse | None = None  # kept, since its finalizer would close the body

    def read(self, *arguments: Any, **named: Any) -> bytes:
        return self._read(super().read, arguments, named)

    if hasattr(HTTPResponse, "read1"):

        def read1(self, *arguments: Any, **named: Any) -> bytes:
            return self._read(super().read1, arguments, named)

    def _read(self, read: Callable[..., bytes], arguments: Any, named: Any) -> bytes:
        while True:
            try:
                found = read(*arguments, **named)
            except exceptions.HTTPError as error:
                if not self._begins_anew(error):
                    self._broke(error)
                    raise
            else:
                if found or not is_over(self) or not self._begins_anew(None):
                    return found

    def read_chunked(
        self, amt: int | None = None, decode_content: bool | None = None
    ) -> Generator[bytes, None, None]:
        try:
            for piece in super().read_chunked(amt, decode_content):
                self.again = None
                yield piece
            if not self._begins_anew(None):
                return
        except exceptions.HTTPError as error:
            if not self._begins_anew(error):
                self._broke(error)
                raise
        yield from self.stream(amt or PIECE, decode_content)

    def _begins_anew(self, error: Exception | None) -> bool:
        """Did a stream of events fail before its first byte, and does another one follow it?"""
        again = self.again
        if again is None or self.tell():
            self.again = None
            return False
        follows = again.request(error)
        if again.original.story is not None:
            setattr(self, RECORD, again.original.story)
        if follows is None:
            self.watch = self.again = None
            return False
        vars(self).update(vars(follows), follows=follows)
        return True

    def _broke(self, error: Exception) -> None:
        watch, self.watch = self.watch, None
        kind = classify(error).kind
        if watch is not None and kind in RETRYABLE_KINDS:
            port, begin = watch
            body_broke(port, begin(), error, kind)

    def drain_conn(self) -> None:
        self.watch = self.again = None  # the caller does not want these bytes
        super().drain_conn()

    def shutdown(self) -> None:
        self.watch = self.again = None  # the caller ends the reading, so that is no failure
        super().shutdown()
