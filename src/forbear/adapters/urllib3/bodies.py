"""Bodies of responses of requests and urllib3: read in time, put back, and replaced.

All in raw bytes, below the library's decoder. ``Live`` is what is still to come of a response, and
its only reader; each of its reads is one receive, which ends by an instant. ``Replaced`` is a
response with the same head that gives what was read before, and then what a source reads. Loaded
with the first body that is bounded, held, inspected or resumed.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from urllib3 import HTTPResponse
from urllib3.exceptions import HTTPError, ProtocolError, ReadTimeoutError
from urllib3.util import wait_for_read

from ...core.headers.fields import begins_events
from ...engine import bodies
from ...engine.bodies import PutBack, rest_of
from ...engine.clock import SYSTEM_CLOCK
from ...engine.frames import let_signals_through
from ...engine.loop import drive
from ...engine.reading import (
    DRAIN_BYTES,
    DRAIN_SECONDS,
    LATE,
    WHOLE,
    Nothing,
    is_readable,
    note_prefetch,
)
from ...errors import ForbearError
from .deadlines import socket_of
from .request import least

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from ...core.call import Call
    from ...engine.reading import Ending, Source
    from .types import AnyResponse, Urllib3Port

PIECE = 65_536  # bytes asked for at once
HEAD = (
    "headers", "status", "version", "version_string", "reason", "decode_content", "msg", "retries",
    "auto_close",
)  # fmt: skip


class Live:
    """The source of a urllib3 response: the bytes that are still to come.

    A peer that drips is noticed after each byte, except inside the line that begins a chunk.

    Attributes:
        raw: The response.
        ends_at: Each read ends by this instant of the system's clock.
        late: Makes the error for a read that this instant ends; None: the library's read timeout.
    """

    def __init__(
        self, raw: HTTPResponse, ends_at: float = inf, late: Callable[[], Exception] | None = None
    ) -> None:
        self.raw, self.ends_at, self.late = raw, ends_at, late
        self.configured: float | None = None  # timeout of the socket
        self._has_broken = False
        self._error: OSError | None = None  # that broke the connection while it was looked at

    async def read(self) -> bytes:
        raw, error = self.raw, self._error
        if error is not None:
            self._error = None
            if isinstance(error, TimeoutError):
                raise read_timeout() from error
            raise ProtocolError(f"Connection broken: {error!r}", error)
        if self._has_broken:
            return b""  # as ``read`` of urllib3's, which requests calls after an error
        sock = self._bound_socket()
        self._has_broken = True
        try:
            piece: bytes = raw.read1(PIECE, decode_content=False)
        except ReadTimeoutError as timeout:
            if self.late is None or SYSTEM_CLOCK.true_monotonic() < self.ends_at:
                raise
            raise self.late() from timeout
        self._has_broken = False
        if not piece:
            raw.release_conn()
        elif sock is not None:
            with suppress(OSError):  # closed
                sock.settimeout(self.configured)
        return piece

    def _bound_socket(self) -> Any:
        """Let the next receive end in time; return its socket, if that is bounded."""
        sock = None if self.ends_at == inf else socket_of(self.raw)
        if sock is None:
            return None
        # pyOpenSSL's sockets have no gettimeout, but the one that they wrap has.
        self.configured = (sock if hasattr(sock, "gettimeout") else sock.socket).gettimeout()
        left = self.ends_at - SYSTEM_CLOCK.true_monotonic()
        if left <= 0:
            self._end()  # as urllib3 does where its own read times out
            raise read_timeout() if self.late is None else self.late()
        sock.settimeout(least(self.configured, left))
        return sock

    async def has_more(self) -> bool:
        """Wait until the body can be read on; False: the time is over, and the body is intact.

        A receive that times out would break the body for its caller. So what was received is looked
        at first, with a socket that does not wait.
        """
        if self.ends_at == inf:
            return True
        raw, sock = self.raw, socket_of(self.raw)
        # Not with pyOpenSSL's, which raise a timeout instead of saying that nothing has come.
        if raw.length_remaining == 0 or not hasattr(sock, "gettimeout"):
            return True
        body: Any = raw._fp
        configured = sock.gettimeout()
        sock.settimeout(0)
        try:
            found = body.fp.peek(1)
        except OSError as error:
            if type(error).__name__ != "SSLWantReadError":
                self._error = error
                return True
            found = b""
        finally:
            sock.settimeout(configured)
        is_between = getattr(body, "chunked", False) and not getattr(body, "chunk_left", True)
        if found and is_readable(found, is_chunked=is_between):
            return True
        left = max(0.0, self.ends_at - SYSTEM_CLOCK.true_monotonic())
        is_own = configured is not None and configured < left
        is_pending = hasattr(sock, "pending") and sock.pending() > 0
        if is_pending or wait_for_read(sock, configured if is_own else left):
            return True
        self._error = TimeoutError("the read timed out") if is_own else None
        return is_own

    async def close(self) -> None:
        self._end()

    def _end(self) -> None:
        self.raw.close()
        self.raw.release_conn()


def read_timeout() -> Exception:
    nothing: Any = None
    return ReadTimeoutError(nothing, nothing, "Read timed out.")


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

    def give_up(self) -> None:
        """The caller ends the reading, so that is no failure, and nothing is requested anew."""
        self.source.is_closed = True  # type: ignore[attr-defined]

    def close(self) -> None:
        self.closed, self._left = True, b""
        drive(self.source.close())


class Replaced(HTTPResponse):
    """A response under the head of another one that gives what a source reads.

    Attributes:
        forbear_resumes: It requests what is missing by itself.

    Args:
        raw: The other one.
        source: Of its body.
        is_copy: The caller keeps the other one.
    """

    forbear_resumes = False

    def __init__(self, raw: Any, source: Source, *, is_copy: bool = False) -> None:
        self.first, self.file = raw, File(source)
        named: Any = {name: getattr(raw, name) for name in HEAD if hasattr(raw, name)}
        self.is_prompt = is_prompt(raw)
        super().__init__(
            body=self.file,  # type: ignore[arg-type]
            preload_content=False,
            enforce_content_length=False,  # its sources do, each for its own part
            # requests takes cookies from it; a copy must not close it.
            original_response=None if is_copy else getattr(raw, "_original_response", None),
            request_url=raw.url,
            **named,
        )

    @property
    def live(self) -> HTTPResponse:
        """The response that is read from now."""
        raw = getattr(innermost(self.file.source), "raw", self.first)
        return raw.live if isinstance(raw, Replaced) else raw

    @property
    def connection(self) -> Any:
        return self.live.connection

    def release_conn(self) -> None:
        """Do nothing: a live source releases its own at its end."""

    def drain_conn(self) -> None:
        self.file.give_up()
        super().drain_conn()

    def shutdown(self) -> None:
        self.file.give_up()
        self.live.shutdown()

    def fileno(self) -> int:
        return int(self.live.fileno())

    def stream(
        self, amt: int | None = PIECE, decode_content: bool | None = None
    ) -> Generator[bytes, None, None]:
        try:
            if not self.is_prompt:
                yield from super().stream(amt, decode_content)
                return
            read: Any = self.file.read1
            if "content-encoding" in self.headers:
                read = partial(self.read1, decode_content=decode_content)
            while piece := read(amt):  # each when it comes, as urllib3 gives chunks
                yield piece
        except HTTPError as error:  # DeadlineExceeded of requests is an OSError to urllib3
            inner = error.args[-1] if error.args else None
            if isinstance(inner, ForbearError):
                raise inner from error
            raise

    read_chunked = stream


def is_prompt(raw: Any) -> bool:
    """Does its caller want each part when it arrives?"""
    return begins_events(raw.status, list(raw.headers.items())) or raw.status == 101


def innermost(source: Any) -> Any:
    """The source below all that go around it."""
    while (inner := getattr(source, "stream", None)) is not None:
        source = inner
    return source


def source_of(raw: HTTPResponse) -> Source:
    """The source of a response, as it is read now."""
    return raw.file.source if isinstance(raw, Replaced) else Live(raw)


def around(raw: HTTPResponse, make: Callable[[Source], Source]) -> Replaced:
    """Let the caller read a body through a source around its own."""
    source = make(source_of(raw))
    if not isinstance(raw, Replaced):
        return Replaced(raw, source)
    raw.file.source = source
    return raw


def read_briefly(
    raw: HTTPResponse, seconds: float, wants_more: Callable[[bytes, int], bool]
) -> tuple[list[bytes], Ending | Exception]:
    """Read a body for so many seconds at most; as that of the engine."""
    live = Live(raw, SYSTEM_CLOCK.true_monotonic() + seconds)
    return drive(bodies.read_briefly(live, wants_more))


def put_back(raw: HTTPResponse, pieces: list[bytes], ending: Ending | Exception) -> Replaced:
    """Make the response that gives what was read, and goes on as it ended."""
    return Replaced(raw, rest_of(pieces, ending, source_of(raw), broken_before()))


def broken_before() -> Exception:
    return ProtocolError("Connection broken: the body has broken before")


def await_first_event(
    port: Urllib3Port[AnyResponse], call: Call, response: AnyResponse
) -> AnyResponse:
    """Read a stream of events up to its first event, and put back what was read."""
    from ...addons import event_streams  # the option has loaded it

    raw, left = port.raw_of(response), port.left(call)
    if call.request.method == "HEAD" or not isinstance(raw, HTTPResponse):
        return response
    lines, left = list(raw.headers.items()), inf if left is None else left
    start = event_streams.stream_start(port.settings, call.policy, raw.status, lines, left)
    if start is None:
        return response
    live = Live(raw, start.ends_at)
    pieces, ending, failure = drive(event_streams.await_first_event(start, live, port))
    note_prefetch(call, failure)
    return port.stand_in(response, put_back(raw, pieces, ending))


def drop_rest(raw: HTTPResponse) -> HTTPResponse:
    """Close the connection, and give only what was read before."""
    source = source_of(raw)
    if isinstance(source, PutBack):
        drive(source.stream.close())
        source.stream = Nothing()
    return raw


def within(
    raw: HTTPResponse, seconds: float, late: Callable[[], Exception] | None = None
) -> HTTPResponse:
    """Let each read from a response end at the latest that many seconds from now."""
    found = around(raw, lambda source: source)
    source = innermost(found.file.source)
    if isinstance(source, Live):
        source.ends_at, source.late = SYSTEM_CLOCK.true_monotonic() + seconds, late
    return found


def is_cut_off(raw: HTTPResponse) -> bool:
    """Does nothing follow the head of a response that should have a body?

    Then it may be half a head, which http.client takes for a shorter one.
    """
    raw = raw.live if isinstance(raw, Replaced) else raw
    if socket_of(raw) is None or raw.length_remaining == 0:
        return False
    if not drive(Live(raw, SYSTEM_CLOCK.true_monotonic() + DRAIN_SECONDS).has_more()):
        return False
    try:
        return not raw._fp.fp.peek(1)  # type: ignore[union-attr]
    except OSError:
        return True


def read_kept(raw: HTTPResponse, seconds: float) -> tuple[HTTPResponse, bool]:
    """Read the response of a held call, for so many seconds at most.

    Returns:
        A response with the whole body, or with none if that stalls or breaks; and whether nothing
        of it is still to come.
    """
    length = getattr(raw, "length_remaining", None) or 0
    if getattr(raw, "closed", True) or length > DRAIN_BYTES:
        return raw, length <= DRAIN_BYTES
    pieces, ending = read_briefly(raw, seconds, lambda _, received: received <= DRAIN_BYTES)
    if ending is WHOLE or (ending is LATE and sum(map(len, pieces)) > DRAIN_BYTES):
        return put_back(raw, pieces, ending), ending is WHOLE
    if isinstance(ending, Exception):  # the response has failed: how its body ends does not matter
        let_signals_through(ending)
    raw.close()
    raw.release_conn()
    return Replaced(raw, Nothing()), True
