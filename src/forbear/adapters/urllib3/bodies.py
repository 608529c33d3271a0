"""Bodies of responses of requests and urllib3: what forbear reads of them, and puts back.

All of it reads raw bytes, below the library's decoder, through the public methods of urllib3's
response: a ``RawBody`` is the body while it is read, and a ``PieceFile`` gives to another response
what was read, and what is still to come. A response of up to 64 KiB is read within a quarter of a
second, so that its connection is free while the call is held. A longer body is handed over with the
live response behind what was read. Loaded with the first that is held, inspected or resumed.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from urllib3 import HTTPResponse
from urllib3.exceptions import ProtocolError

from ...engine.frames import let_signals_through
from ...engine.reading import DRAIN_BYTES, LATE, WHOLE, read_pieces
from .deadlines import PIECE, TimedSocket, is_over, read_briefly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from urllib3.connection import HTTPConnection

    from ...engine.reading import Ending, PrefetchResult

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
