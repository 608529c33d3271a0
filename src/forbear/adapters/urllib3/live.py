"""Live bodies of urllib3: what is still to come of a response, read in time.

In raw bytes, below the library's decoder. Loaded with the first body that is drained, or read
before the hand-over.
"""

from __future__ import annotations

from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any

from urllib3.exceptions import ProtocolError, ReadTimeoutError
from urllib3.util import wait_for_read

from ...engine.clock import SYSTEM_CLOCK
from ...engine.driver import DRAIN_SECONDS, is_readable
from ...engine.loop import drive
from .deadlines import least, read_timeout, received, socket_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from urllib3 import HTTPResponse

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
        self._has_broken = False
        self._is_ready = False  # was it found to be readable, in time?

    async def read(self) -> bytes:
        if self._has_broken:
            return b""  # as ``read`` of urllib3's, which requests calls after an error
        raw, configured = self.raw, None
        sock = None if self.ends_at == inf else socket_of(raw)
        if sock is not None:
            configured = self._bound(sock)
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
                sock.settimeout(configured)
        return piece

    def _bound(self, sock: Any) -> float | None:
        """Let the next receive end in time; return the timeout that the socket has had."""
        # pyOpenSSL's sockets have no gettimeout, but the one that they wrap has.
        own: float | None = (sock if hasattr(sock, "gettimeout") else sock.socket).gettimeout()
        left, is_ready = self.ends_at - SYSTEM_CLOCK.true_monotonic(), self._is_ready
        self._is_ready = False
        if left <= 0 and not is_ready:
            drive(self.close())  # as urllib3 does where its own read times out
            raise read_timeout() if self.late is None else self.late()
        sock.settimeout(least(own, max(left, LEAST)))
        return own

    async def has_more(self) -> bool:
        """Wait until the body can be read on; False: the time is over, and the body is intact.

        A receive that times out would break the body for its caller. So what was received is looked
        at first, with a socket that does not wait.
        """
        raw, body = self.raw, self.raw._fp
        if self.ends_at == inf or raw.length_remaining == 0:
            return True
        if SYSTEM_CLOCK.true_monotonic() >= self.ends_at:
            return False
        found = received(raw)
        if found is None:
            return True
        sock, left = socket_of(raw), max(0.0, self.ends_at - SYSTEM_CLOCK.true_monotonic())
        own = sock.gettimeout()
        if own is not None and own < left:
            return True  # the library's own timeout ends the read sooner
        is_between = getattr(body, "chunked", False) and not getattr(body, "chunk_left", True)
        self._is_ready = (
            (found != b"" and is_readable(found, is_chunked=is_between))
            or (hasattr(sock, "pending") and sock.pending() > 0)
            or wait_for_read(sock, left)
        )
        return self._is_ready

    async def close(self) -> None:
        self.raw.close()
        self.raw.release_conn()


def is_cut_off(raw: HTTPResponse) -> bool:
    """Does nothing follow the head of a response that should have a body?

    Then it may be half a head, which http.client takes for a shorter one.
    """
    if socket_of(raw) is None or raw.length_remaining == 0:
        return False
    live = Live(raw, SYSTEM_CLOCK.true_monotonic() + DRAIN_SECONDS)
    try:
        return drive(live.has_more()) and received(raw) == b""
    except (OSError, ProtocolError):
        return True
