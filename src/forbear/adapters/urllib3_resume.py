"""Resume: an answer's body that goes on on another connection when its own breaks. Floor: acts.

Two cases. A body that the caller streams has begun to be handed over: ``ResumedResponse`` stands in
for the library's response, and asks for the rest itself. A large body that is read inside the loop
is kept as far as it came (``Begun``), and the next attempt asks for the rest. Both count raw
octets, below the decoder, and read the library's response through its public methods;
core/headers/ranges.py says what may be resumed and what fits. Chunked bodies are not resumed.

Private attribute that is read, checked by tests/adapters/test_private_attributes.py:
``_original_response`` of urllib3's HTTPResponse, from which requests takes cookies.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import urllib3
from urllib3 import exceptions

from ..core.headers.ranges import Part, download_of
from ..core.outcome import RETRYABLE_KINDS
from ..sending import resumption
from ..sending.loop import run
from .urllib3_errors import classify

if TYPE_CHECKING:
    from ..core.call import Call
    from ..core.headers.ranges import Download
    from ..core.record import Story

__all__ = [
    "LARGE",
    "PIECE",
    "Begun",
    "Replay",
    "ResumedResponse",
    "is_cut_off",
    "is_large",
    "is_resumable",
    "read_piece",
    "same_head",
]

PIECE = 65_536  # octets asked for at once
LARGE = 65_536  # octets; a smaller body is begun again
HEAD = (
    "headers", "status", "version", "version_string", "reason", "decode_content", "msg", "retries",
    "enforce_content_length", "auto_close",
)  # fmt: skip


def is_resumable(raw: Any) -> bool:
    """May this urllib3 response be one that can be resumed? That is seen when it breaks."""
    return (
        isinstance(raw, urllib3.HTTPResponse)
        and raw.status in (200, 206)
        and ("etag" in raw.headers or "last-modified" in raw.headers)
        and not raw.chunked
        and type(raw) is not ResumedResponse
        and not raw.closed
    )


def is_large(raw: Any) -> bool:
    """Is it worth keeping the beginning, should the body break?"""
    length = getattr(raw, "length_remaining", None)
    return length is not None and length > LARGE and is_resumable(raw)


def read_piece(raw: Any, size: int) -> bytes:
    """Read what one receive brings, up to so many octets; with old urllib3 all of them."""
    read = getattr(raw, "read1", None) or raw.read
    piece: bytes = read(size, decode_content=False)
    return piece


def same_head(raw: Any, body: Any) -> dict[str, Any]:
    """Arguments for a response with another body under the same head."""
    head = {name: getattr(raw, name) for name in HEAD if hasattr(raw, name)}
    return {
        **head,
        "body": body,
        "preload_content": False,
        "original_response": getattr(raw, "_original_response", None),
        "request_url": raw.url,
    }


def is_cut_off(raw: Any) -> bool:
    """Is this a 206 without its place? http.client takes half a head for a shorter one."""
    headers = raw.headers
    return raw.status == 206 and not (
        "content-range" in headers and (raw.chunked or "content-length" in headers)
    )


class Begun:
    """A large body that is read inside the loop, as far as it has come.

    Attributes:
        response: The library's, whose head counts.
        raw: The urllib3 response in it.
        is_broken: It broke in the last attempt, and that is not judged yet.
        download: What can be resumed, once the body has broken; None: nothing.
    """

    def __init__(self, response: Any, raw: Any) -> None:
        self.response = response
        self.raw = raw
        self.is_broken = False
        self.download: Download | None = None
        self._pieces: deque[bytes] = deque()
        self._received = self._asked_at = 0

    def read_on(self, raw: Any) -> Exception | None:
        """Read the body, or the rest of it, to its end; return what broke it."""
        try:
            while piece := read_piece(raw, PIECE):
                self._pieces.append(piece)
                self._received += len(piece)
        except Exception as error:
            self.is_broken = True
            return error
        if self.download is None or self.download.missing(self._received) == 0:
            return None
        self.download, self.is_broken = None, True  # nothing of this can be trusted
        return exceptions.ProtocolError("Connection broken: the rest has another length")

    def has_progressed(self, request: Any) -> bool:
        """Can the rest be asked for, and did some of the body come since that was done last?"""
        self.is_broken = False
        if not self._asked_at:
            lines = list(self.raw.headers.items())
            asked = request.header_lines()
            self.download = download_of(request.method, asked, self.raw.status, lines)
        progressed, self._asked_at = self._received > self._asked_at, self._received
        return progressed and self.download is not None

    def fields(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """The header lines that ask for the rest."""
        return self.download.fields(self._received)  # type: ignore[union-attr]

    def continues_in(self, raw: Any) -> int | None:
        """Where in the representation this answer goes on; None: it is not the rest."""
        assert self.download is not None
        part = self.download.judge(self._received, raw.status, list(raw.headers.items()))
        if part is not Part.CONTINUES or is_cut_off(raw):
            return None
        return self.download.first + self._received

    def replayed(self, error: Exception | None) -> urllib3.HTTPResponse:
        """Make a response that gives what was read, or raises the error that broke it."""
        return urllib3.HTTPResponse(**same_head(self.raw, Replay(self._pieces, error)))


class Replay:
    """A file that gives what was read before, and keeps nothing of what it has given."""

    def __init__(self, pieces: deque[bytes], error: Exception | None, rest: Any = None) -> None:
        self._pieces = pieces
        self._error = error
        self._rest = rest  # a response with more to come
        self.closed = False

    def read(self, amt: int | None = None) -> bytes:
        error, self._error = self._error, None
        if error is not None:
            raise error
        pieces = self._pieces
        if amt is None or amt < 0:
            everything = b"".join(pieces)
            pieces.clear()
            return everything + self._read_rest(None)
        if not pieces:
            return self._read_rest(amt)
        piece = pieces.popleft()
        if len(piece) > amt:
            pieces.appendleft(piece[amt:])
        return piece[:amt]

    read1 = read

    def _read_rest(self, amt: int | None) -> bytes:
        rest: bytes = b"" if self._rest is None else self._rest.read(amt, decode_content=False)
        return rest

    def close(self) -> None:
        self.closed = True


# A body that the caller streams.


class ResumedResponse(urllib3.HTTPResponse):
    """A streamed response whose body goes on when it breaks. For one thread, as urllib3's own."""

    def __init__(self, port: Any, raw: Any, source: Any) -> None:
        """Stand in for a response.

        Args:
            port: Of the adapter or the pool.
            raw: The urllib3 response; nobody has read from it.
            source: The call that got the response; or the request, the context and the instant at
                which the call began, for a response that went through the fast path.
        """
        self.resumable = Resumable(port, raw, source)
        super().__init__(**same_head(raw, self.resumable))

    @property
    def _forbear_record(self) -> Story | None:
        return self.resumable.story

    @_forbear_record.setter
    def _forbear_record(self, story: Story) -> None:
        self.resumable.story = story

    @property
    def connection(self) -> Any:
        return self.resumable.live.connection

    def release_conn(self) -> None:
        resumable = self.resumable
        if resumable.is_first or resumable.closed:  # else the rest is still to come on it
            resumable.live.release_conn()

    def drain_conn(self) -> None:
        self.resumable.is_over = True  # these octets are wanted by nobody
        super().drain_conn()

    def shutdown(self) -> None:
        self.resumable.is_over = True  # the caller ends the reading: that is no break
        self.resumable.live.shutdown()


class Resumable:
    """The file that a ``ResumedResponse`` reads from.

    Attributes:
        live: The urllib3 response that brings the body now.
        is_first: It is still the first one.
        is_over: Closed, or given up on: nothing is asked for any more.
        story: Of the call, once there is something to tell.
    """

    def __init__(self, port: Any, raw: Any, source: Any) -> None:
        self.live = raw
        self.is_first = True
        self.is_over = False
        self.story: Story | None = None
        self._port = port
        self._source = source
        self._head = raw.status, raw.headers
        self._call: Any = None
        self._error: Exception | None = None  # what broke the body last
        self._received = self._asked_at = 0
        self._ends_at: int | None = None  # octets in all, once a part was asked for
        self._ahead = b""  # received and not given yet

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
        ahead = self._ahead or self._next_piece()
        if amt is None or amt < 0 or len(ahead) <= amt:
            self._ahead = b""
            return ahead
        self._ahead = ahead[amt:]
        return ahead[:amt]

    def _next_piece(self) -> bytes:
        while True:
            error: Any = self._error
            try:
                piece = read_piece(self.live, PIECE)
            except Exception as broke:
                error = broke
            else:
                self._received += len(piece)
                if piece and (self._ends_at is None or self._received <= self._ends_at):
                    return piece
                if piece:  # more than there is: nothing of this part can be trusted
                    resumption.distrust(self._call)
                    resumption.fail(self._port, self._call, error)
                    raise error
                if not self._is_short():
                    return b""
            if not self._goes_on(error):
                self._error = None  # its traceback will lead here
                raise error

    def _is_short(self) -> bool:
        return self._ends_at is not None and self._received < self._ends_at and not self.is_over

    def _goes_on(self, error: Exception) -> bool:
        """Ask for the rest; False if it does not come."""
        port = self._port
        if self.is_over or classify(error).kind not in RETRYABLE_KINDS:
            return False
        call = self._call or self._call_of_source()
        if call.guard is not None and not call.guard.ready:
            return False
        if call.resumption is None:
            request = call.request
            status, headers = self._head
            download = download_of(
                request.method, request.header_lines(), status, list(headers.items())
            )
            if download is None:
                return False
        else:
            download = call.resumption.download
        self._call, self._error = call, error
        call.begin_resuming(download)
        with suppress(Exception):
            self.live.close()
            self.live.release_conn()
        self.is_first = False
        if download.missing(self._received) == 0:
            self._ends_at = self._received
            return True  # nothing was missing but the end
        progressed, self._asked_at = self._received > self._asked_at, self._received
        resumption.begin(port, call, error, self._received, progressed=progressed)
        try:
            call.live = error
            # In one statement: between two an interruption would lose its connection.
            self.live = run(call, port) or self.live
        except Exception:  # the error that broke the body says more
            if resumption.fail(port, call, error):
                raise
            return False
        finally:
            self.story = call.story(port.clock.monotonic())
        missing = download.missing(self._received) or 0
        self._ends_at = self._received + missing
        return True

    def _call_of_source(self) -> Call:
        if type(self._source) is not tuple:
            return self._source  # type: ignore[no-any-return]
        request, context, started_at = self._source
        call: Call = self._port.new_call(self._port.request_of(request), started_at, context)
        return self._port.first_failed(call)  # type: ignore[no-any-return]

    @property
    def closed(self) -> bool:
        return not self._ahead and (
            self.is_over or (bool(self.live.closed) and not self._is_short())
        )

    def close(self) -> None:
        self.is_over = True
        self._ahead = b""
        self.live.close()

    def fileno(self) -> int:
        found: int = self.live.fileno()
        return found
