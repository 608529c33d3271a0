"""Bodies of responses of requests and urllib3: what forbear reads of them, puts back, and resumes.

All of it reads raw bytes, below the library's decoder, through the public methods of urllib3's
response: a ``RawBody`` is the body while it is read, and a ``PieceFile`` gives to another response
what was read, and what is still to come.

- A response of up to 64 KiB is read within a quarter of a second, so that its connection is free
  while the call is held. ``retry_if`` and vendors' hints get a copy, which reads when it is read. A
  longer body is handed over with the live response behind what was read.
- A large body that is read inside the loop is kept as far as it came (``PartialBody``), and the
  next attempt requests the rest. One that the caller streams was partly handed over, so
  ``ResumedResponse`` takes the place of the library's response and requests the rest itself.
  core/headers/ranges.py says what may be resumed and what fits. Chunked bodies are not resumed.

Private attribute that is read, checked by tests/adapters/test_private_attributes.py:
``_original_response`` of urllib3's HTTPResponse, from which requests takes cookies.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any, NoReturn

from urllib3 import HTTPResponse
from urllib3.exceptions import ProtocolError

from ...core.headers.fields import begins_events
from ...core.headers.ranges import Download, Part, download_of
from ...engine.errors import let_signals_through
from ...engine.inspection import (
    DRAIN_BYTES,
    LATE,
    WHOLE,
    check_decoded,
    read_pieces,
    seconds_to_look,
    too_late,
)
from ...engine.resume import Resumable, SyncResumable, note_progress
from .deadlines import PIECE, TimedSocket, is_over, read_briefly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from urllib3.connection import HTTPConnection

    from ...core.call import Call
    from ...core.event_streams import EventStream
    from ...core.record import Story
    from ...engine.inspection import Ending, PrefetchResult
    from .port import AnyPort

LARGE = 65_536  # bytes; a smaller body is requested anew
HEAD = (
    "headers", "status", "version", "version_string", "reason", "decode_content", "msg", "retries",
    "enforce_content_length", "auto_close",
)  # fmt: skip


def same_head(raw: HTTPResponse, body: PieceFile) -> dict[str, Any]:
    """Arguments for a response with another body under the same head."""
    head = {name: getattr(raw, name) for name in HEAD if hasattr(raw, name)}
    return {
        **head,
        "body": body,
        "preload_content": False,
        "original_response": getattr(raw, "_original_response", None),
        "request_url": raw.url,
    }


class RawBody:
    """The body of a urllib3 response, as it arrives: each piece is what one receive brings.

    No generator: after an error that would look like a body at its end.

    Attributes:
        pieces, received: What was read before the hand-over, and how many bytes.
        timed: The socket that knows whether more comes in time; None: that is not asked.
    """

    timed: TimedSocket | None = None
    received = 0

    def __init__(self, raw: HTTPResponse) -> None:
        self._raw = raw
        self.pieces: list[bytes] = []

    def read_piece(self) -> bytes | Ending:
        raw, timed = self._raw, self.timed
        is_whole = is_over(raw) or raw.length_remaining == 0  # an empty one is not over yet
        if timed is not None and not is_whole and not timed.has_more(raw):
            return LATE
        return self._receive() or WHOLE

    def _receive(self) -> bytes:
        # Old urllib3 has no read1, and reads until it has so many bytes.
        read = getattr(self._raw, "read1", None) or self._raw.read
        return read(PIECE, decode_content=False)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        piece = self.read_piece()
        if isinstance(piece, str):
            raise StopIteration
        return piece

    def close(self) -> None:
        self._raw.close()
        self._raw.release_conn()


class PieceFile:
    """The file that a urllib3 response reads its body from. Keeps nothing of what it gave.

    Args:
        pieces: What comes first; they are taken out when they are read.
        rest: More of them, or the error that broke the body; None: they are all.
    """

    closed = False

    def __init__(self, pieces: deque[bytes], rest: Iterator[bytes] | Exception | None) -> None:
        self._pieces, self.rest = pieces, rest

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.read1, b"")

    def read(self, amt: int | None = None) -> bytes:
        pieces, wanted = [], -1 if amt is None else amt
        while wanted:
            piece = self.read1(wanted)
            if not piece:
                break
            pieces.append(piece)
            if wanted > 0:
                wanted -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def read1(self, amt: int | None = -1) -> bytes:
        piece = self._pieces.popleft() if self._pieces else self._next_piece()
        if not piece:
            self.close()  # at its end, as http.client's: urllib3 repeats ``read(None)`` until then
        if amt is None or amt < 0 or len(piece) <= amt:
            return piece
        self._pieces.appendleft(piece[amt:])
        return piece[:amt]

    def _next_piece(self) -> bytes:
        rest = self.rest
        if not isinstance(rest, Exception):
            return b"" if rest is None else next(rest, b"")
        self.rest = ProtocolError("Connection broken: the body has broken before")
        try:
            raise rest
        finally:
            del rest  # its traceback holds this frame, which would hold it: a cycle

    def close(self) -> None:
        self.closed = True


# A body that is read before the hand-over, and put back.


class Kept(HTTPResponse):
    """A response that gives what was read of another one, then the rest that is still to come.

    ``pieces`` are what was read and is not given yet, ``received`` is how many bytes were read.
    """

    def __init__(
        self, raw: HTTPResponse, body: RawBody, rest: Iterator[bytes] | Exception | None
    ) -> None:
        self.raw, self.received, self.pieces = raw, body.received, deque(body.pieces)
        self.file = PieceFile(self.pieces, rest)
        super().__init__(**same_head(raw, self.file))

    @property
    def connection(self) -> HTTPConnection | None:
        return self.raw.connection

    def release_conn(self) -> None:
        self.raw.release_conn()

    def close(self) -> None:
        super().close()
        self.raw.close()


def read_and_put_back(
    raw: HTTPResponse, seconds: float, wants_more: Callable[[int], bool]
) -> tuple[Kept, PrefetchResult]:
    """Read a body within its limits; return what gives the caller all of it, and how that ended."""
    body = RawBody(raw)
    try:
        with read_briefly(raw, seconds) as body.timed:
            ending = read_pieces(body, wants_more)
    except Exception as error:
        body.close()
        return Kept(raw, body, error), error
    if ending is LATE:
        return Kept(raw, body, RawBody(raw)), LATE  # read as long as the library waits
    raw.release_conn()
    return Kept(raw, body, None), WHOLE


def read_kept(raw: HTTPResponse, seconds: float) -> tuple[HTTPResponse | None, bool]:
    """Read the response of a held call, for so many seconds at most.

    Returns:
        A response with the whole body, None if the body stalls or breaks; and whether nothing of it
        is still to come.
    """
    length = getattr(raw, "length_remaining", None) or 0
    if is_over(raw) or length > DRAIN_BYTES:
        return raw, length <= DRAIN_BYTES
    kept, ending = read_and_put_back(raw, seconds, lambda received: received <= DRAIN_BYTES)
    if isinstance(ending, Exception):  # the response has failed: how its body ends does not matter
        let_signals_through(ending)
        return None, True
    if ending is LATE and kept.received <= DRAIN_BYTES:
        kept.close()
        kept.release_conn()
        return None, True
    return kept, ending is WHOLE


class Inspection(PieceFile):
    """The file under the copy: it reads the caller's body when it is read itself.

    Attributes:
        kept: The urllib3 response that gives the caller the whole body; None: nothing was read.
        error: What broke the body.
        patience: Seconds for which the body is read at most.
    """

    kept: Kept | None = None
    error: Exception | None = None
    patience = inf
    _is_read = False

    def __init__(self, port: AnyPort, method: str, raw: HTTPResponse, deadline_at: float) -> None:
        super().__init__(deque(), None)
        self._port, self._deadline_at = port, deadline_at
        self._method, self._raw = method, raw

    def shown(self) -> Shown:
        """Make a urllib3 response that reads from here."""
        copy = Shown.__new__(Shown)
        copy.original = self._raw, self
        copy.status, copy.headers = self._raw.status, self._raw.headers
        return copy

    def _next_piece(self) -> bytes:
        if not self._is_read:
            self._pieces.extend(self._take())
            self._is_read = True
        return self._pieces.popleft() if self._pieces else b""

    def _take(self) -> list[bytes]:
        if self.kept is not None:  # what a second reading took nobody would put back
            raise self.error or too_late()
        raw, clock = self._raw, self._port.clock
        kind = raw.headers.get("content-type", "")
        seconds = seconds_to_look(self._method, raw.status, kind, raw.length_remaining)
        now = clock.monotonic()
        until = min(now + min(seconds, self.patience), self._deadline_at)
        self.kept, ending = read_and_put_back(
            raw,
            max(until - now, 0.0),
            lambda received: received <= DRAIN_BYTES and clock.monotonic() < until,
        )
        self.error = ending if isinstance(ending, Exception) else None
        if ending is not WHOLE:
            raise self.error or too_late()
        pieces = list(self.kept.pieces)
        check_decoded(raw.headers.get("content-encoding", ""), b"".join(pieces))
        return pieces


class Shown(HTTPResponse):
    """The copy. Most predicates read the status alone, so the rest is made when it is read."""

    original: tuple[HTTPResponse, PieceFile]

    def __getattr__(self, name: str) -> Any:
        original = vars(self).pop("original", None)
        if original is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        head = {**same_head(*original), "original_response": None}  # the caller's, to close
        super().__init__(**head)
        return getattr(self, name)

    @property
    def closed(self) -> bool:
        return False

    def close(self) -> None:
        """Leave the body to its caller."""


# A body that breaks, and is resumed.


def is_resumable(raw: HTTPResponse) -> bool:
    """May this urllib3 response be resumable? Whether it is, is decided when it breaks."""
    return (
        isinstance(raw, HTTPResponse)
        and raw.status in (200, 206)
        and ("etag" in raw.headers or "last-modified" in raw.headers)
        and not raw.chunked
        and type(raw) is not ResumedResponse
        and not raw.closed
    )


def is_large(raw: HTTPResponse) -> bool:
    """Is it worth keeping the beginning, should the body break?"""
    length = getattr(raw, "length_remaining", None)
    return length is not None and length > LARGE and is_resumable(raw)


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
