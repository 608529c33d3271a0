"""Live bodies of urllib3: what is still to come of a response, read in time.

In raw bytes, below the library's decoder. Loaded with the first body that is drained, or read
before the hand-over.
"""

from __future__ import annotations

from contextlib import suppress
from io import BytesIO
from math import inf
from typing import TYPE_CHECKING, Any

from urllib3 import HTTPResponse
from urllib3.exceptions import ProtocolError, ReadTimeoutError
from urllib3.util import wait_for_read

from ...engine.bodies import innermost
from ...engine.clock import SYSTEM_CLOCK
from ...engine.reading import is_readable
from .deadlines import socket_of
from .request import least

if TYPE_CHECKING:
    from collections.abc import Callable

PIECE = 65_536  # bytes asked for at once
LEAST = 0.001  # seconds; a timeout of 0 would not wait at all


class Live:
    """The source of a urllib3 response: the bytes that are still to come.

    A peer that drips is noticed after each byte, except inside the line that begins a chunk.

    Attributes:
        raw: The response.
        ends_at: Each read ends by this instant of the system's clock.
        late: Makes the error for a read that this instant ends; None: the library's read timeout.
    """

    can_wait = True

    def __init__(
        self, raw: HTTPResponse, ends_at: float = inf, late: Callable[[], Exception] | None = None
    ) -> None:
        self.raw, self.ends_at, self.late = raw, ends_at, late
        self.configured: float | None = None  # timeout of the socket
        self._has_broken = False
        self._is_ready = False  # was it found to be readable, in time?
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
        left, is_ready = self.ends_at - SYSTEM_CLOCK.true_monotonic(), self._is_ready
        self._is_ready = False
        if left <= 0 and not is_ready:
            self._end()  # as urllib3 does where its own read times out
            raise read_timeout() if self.late is None else self.late()
        sock.settimeout(least(self.configured, max(left, LEAST)))
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
        if SYSTEM_CLOCK.true_monotonic() >= self.ends_at:
            return False
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
            self._is_ready = True
            return True
        left = max(0.0, self.ends_at - SYSTEM_CLOCK.true_monotonic())
        is_own = configured is not None and configured < left
        is_pending = hasattr(sock, "pending") and sock.pending() > 0
        if is_pending or wait_for_read(sock, configured if is_own else left):
            self._is_ready = True
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


def live_of(raw: Any, ends_at: float = inf) -> Live:
    """What reads a body on; over HTTP/2 urllib3 has read it by itself."""
    if not isinstance(raw, HTTPResponse):
        raw = HTTPResponse(BytesIO(raw.data), raw.headers, raw.status, preload_content=False)
    file = getattr(raw, "file", None)
    inner = None if file is None else innermost(file.source)
    if isinstance(inner, Live):
        inner.ends_at, inner.late = ends_at, None
    return Live(raw, ends_at)
