"""Bodies of responses of requests and urllib3: put back, replaced, and read in time.

``Replaced`` is a response with the same head that gives what was read before, and then what a
source reads; ``Live`` (live.py) is the one below all of them. Loaded with the first body that is
bounded, held, inspected or resumed.
"""

from __future__ import annotations

from functools import partial
from math import inf
from operator import attrgetter
from types import SimpleNamespace
from typing import TYPE_CHECKING

from urllib3 import HTTPResponse
from urllib3.exceptions import HTTPError, ProtocolError

from ...core.call import RECORD
from ...core.headers.fields import begins_events
from ...engine.bodies import Nothing, innermost, layers, rest_of
from ...engine.loop import drive
from ...errors import ForbearError
from .live import PIECE, Live

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from ...engine.port import Ending, Source

HEAD = "headers", "status", "version", "version_string", "reason", "decode_content", "retries"


class File:
    """The file that urllib3 reads a replaced body from."""

    closed = False

    def __init__(self, source: Source) -> None:
        self.source = source
        self._left = b""  # of a piece that was longer than what was asked for

    def read(self, amt: int | None = None) -> bytes:
        pieces, wanted = [], -1 if amt is None else amt
        while wanted and (piece := self.read1(wanted)):
            pieces.append(piece)
            if wanted > 0:
                wanted -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def read1(self, amt: int | None = -1) -> bytes:
        piece, self._left = self._left or drive(self.source.read()), b""
        if not piece:
            self.closed = True  # at its end, as http.client's: urllib3 repeats ``read(None)`` until
        if amt is not None and 0 <= amt < len(piece):
            piece, self._left = piece[:amt], piece[amt:]
        return piece

    def close(self) -> None:
        self.closed, self._left = True, b""
        drive(self.source.close())


class Replaced(HTTPResponse):
    """A response under the head of another one that gives what a source reads.

    Args:
        raw: The other one.
        source: Of its body.
    """

    def __init__(self, raw: HTTPResponse, source: Source) -> None:
        self.first, self.file = raw, File(source)
        named = {name: getattr(raw, name) for name in HEAD if hasattr(raw, name)}
        # In place of http.client's: requests takes cookies from it, an error closes it.
        named["original_response"] = SimpleNamespace(
            msg=raw.headers, close=self.file.close, isclosed=lambda: False
        )
        # Does its caller want each part when it arrives? urllib3 gives each chunk of a chunked one.
        self.is_prompt = (
            begins_events(raw.status, list(raw.headers.items()))
            or raw.status == 101
            or "chunked" in raw.headers.get("Transfer-Encoding", "").lower()
        )
        setattr(self, RECORD, getattr(raw, RECORD, None))
        super().__init__(
            body=self.file,  # type: ignore[arg-type]
            preload_content=False,
            enforce_content_length=False,  # its sources do, each for its own part
            request_url=raw.url,
            **named,
        )

    connection = property(attrgetter("live.connection"))  # pyright: ignore  # one like urllib3's

    @property
    def continues(self) -> bool:
        """Does it request what is missing by itself?"""
        return any(getattr(one, "continues", False) for one in layers(self.file.source))

    @property
    def live(self) -> HTTPResponse:
        """The response that is read from now."""
        return getattr(innermost(self.file.source), "raw", self.first)

    def bound(self, ends_at: float, late: Callable[[], Exception] | None = None) -> None:
        """Let each read end by an instant of the system's clock; ``late`` is as of ``Live``."""
        inner = innermost(self.file.source)
        if isinstance(inner, Live):
            inner.ends_at, inner.late = ends_at, late

    def drain_conn(self) -> None:
        self.file.source.is_closed = True  # type: ignore[attr-defined]  # nothing is requested anew
        super().drain_conn()

    def shutdown(self) -> None:
        self.file.source.is_closed = True  # type: ignore[attr-defined]
        self.live.shutdown()

    def fileno(self) -> int:
        return int(self.live.fileno())

    def stream(
        self, amt: int | None = PIECE, decode_content: bool | None = None
    ) -> Generator[bytes, None, None]:
        try:
            if self.is_prompt:
                # Below urllib3's own, which closes a body of known length before its source ends.
                read: Callable[[int | None], bytes] = self.file.read1
                if "content-encoding" in self.headers:
                    read = partial(self.read1, decode_content=decode_content)
                while piece := read(amt):
                    yield piece
            else:
                yield from super().stream(amt, decode_content)
        except HTTPError as error:  # DeadlineExceeded of requests is an OSError to urllib3
            inner = error.args[-1] if error.args else None
            if isinstance(inner, ForbearError):
                raise inner from error
            raise

    read_chunked = stream


def source_of(raw: HTTPResponse) -> Source:
    """The source of a response, as it is read now."""
    return raw.file.source if isinstance(raw, Replaced) else Live(raw)


def taken(raw: HTTPResponse) -> Source:
    """The source of a response that is dropped, whose finalizer would close the body."""
    source = source_of(raw)
    if isinstance(raw, Replaced):
        raw.file.source = Nothing()
    return source


def around(raw: HTTPResponse, make: Callable[[Source], Source]) -> Replaced:
    """Let the caller read a body through a source around its own."""
    source = make(source_of(raw))
    if not isinstance(raw, Replaced):
        return Replaced(raw, source)
    raw.file.source = source
    return raw


def put_back(raw: HTTPResponse, pieces: list[bytes], ending: Ending | Exception) -> Replaced:
    """Make the response that gives what was read, and goes on as it ended."""
    again = ProtocolError("Connection broken: the body has broken before")
    made = Replaced(raw, rest_of(pieces, ending, source_of(raw), again))
    made.bound(inf)  # the reading was, and it is over
    return made
