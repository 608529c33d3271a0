"""Sockets: how long an answer of urllib3 is read, and how a failed one is let go of. Floor: acts.

urllib3's read timeout bounds each receive. Here one instant bounds all of them, also those that
http.client makes while it looks for the end of a chunk's size line: else a peer that sends a byte
now and then could hold a call for ever.

Private attributes that are read, checked by tests/adapters/test_private_attributes.py: ``_fp`` of
urllib3's HTTPResponse, ``_get_conn`` and ``_validate_conn`` of its pools, ``fp`` of http.client's
HTTPResponse. The only
one that is written is ``_sock`` of socket.SocketIO. Where one is missing, the library's own
timeouts are all there is, and a failed answer is closed unread.
"""

from __future__ import annotations

import socket
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from urllib3 import poolmanager
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from ..sending.clock import SYSTEM_CLOCK
from ..sending.errors import CutOff, let_signals_through
from ..sending.looking import DRAIN_BYTES, DRAIN_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "ENDS_AT",
    "Punctual",
    "discard",
    "is_over",
    "keep_deadlines",
    "read_briefly",
    "read_freely",
    "read_within",
]

# When the deadline of the attempt is over, on the system's clock; neither library can be told. A
# pool with ``pool_block=True`` would let a request of requests wait for ever.
ENDS_AT: ContextVar[float | None] = ContextVar("forbear_ends_at", default=None)


class TimedSocket:
    """A socket whose receives all end by one instant, and each within the socket's own timeout.

    ``late`` makes the error for the end at that instant.
    """

    def __init__(self, sock: Any, until: float, late: Callable[[], Exception]) -> None:
        self._sock = sock
        self._until = until
        self._late = late
        # pyOpenSSL's sockets do not tell it, but the one that they wrap does.
        self.configured = (sock if hasattr(sock, "gettimeout") else sock.socket).gettimeout()

    def recv_into(self, buffer: Any) -> int:
        left = self._until - SYSTEM_CLOCK.true_monotonic()
        if left <= 0:
            raise self._late()
        configured = self.configured
        is_own = configured is not None and configured <= left
        self._sock.settimeout(configured if is_own else left)
        try:
            return int(self._sock.recv_into(buffer))
        except TimeoutError as error:
            if is_own:
                raise
            raise self._late() from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


def time_is_over() -> Exception:
    return TimeoutError("the time for reading is over")


def read_within(raw: Any, seconds: float, late: Callable[[], Exception] = time_is_over) -> None:
    """Let whatever is read from this urllib3 response end that many seconds from now."""
    file = file_of(raw)
    if file is not None and not isinstance(file._sock, TimedSocket):
        file._sock = TimedSocket(file._sock, SYSTEM_CLOCK.true_monotonic() + seconds, late)


def read_freely(raw: Any, configured: Any) -> None:
    """Let the caller read this response with the client's own Timeout, not the last attempt's."""
    file = file_of(raw)
    if file is not None:
        fresh = configured.clone()
        fresh.start_connect()  # before that it does not tell
        with suppress(OSError):
            file._sock.settimeout(fresh.read_timeout)


def discard(raw: Any, seconds: float = DRAIN_SECONDS) -> None:
    """Let go of a failed answer: its connection is back in its pool, ready or closed.

    Args:
        raw: A urllib3 response that nobody has read from, or that was read to its end.
        seconds: Longest time for it; never more than a quarter of a second.
    """
    if is_over(raw):
        with suppress(Exception):
            raw.release_conn()  # it was read, but its connection kept: release_conn=False
        return
    file = file_of(raw)
    sock = None if file is None else file._sock
    is_drained = False
    try:
        if file is not None and is_worth_draining(raw):
            is_drained = drain(raw, min(seconds, DRAIN_SECONDS))
    finally:
        if not is_drained:
            # The answer failed before: how its body ends no longer matters.
            with suppress(Exception):
                if sock is not None and raw.connection is None:
                    # With release_conn=True the pool has the connection back already: with the rest
                    # of this answer still to come, it must not serve another request.
                    sock.shutdown(socket.SHUT_RDWR)
                raw.close()
                raw.release_conn()  # a closed one too: a pool with block=True counts them


def is_over(raw: Any) -> bool:
    """Was the answer read to its end, or closed?"""
    return getattr(raw, "_fp", None) is None or bool(getattr(raw, "closed", True))


def file_of(raw: Any) -> Any:
    """The SocketIO that the answer is read from; None if it is over, or of an unknown kind."""
    below = getattr(raw, "_fp", None)
    file = getattr(getattr(below, "fp", None), "raw", None)
    if isinstance(file, socket.SocketIO) and getattr(file, "_sock", None) is not None:
        return file
    return None


def is_worth_draining(raw: Any) -> bool:
    if getattr(raw._fp, "will_close", True):
        return False  # nothing comes after it on this connection
    length = raw.length_remaining
    return length is None or length <= DRAIN_BYTES


def drain(raw: Any, seconds: float) -> bool:
    """Read to the end, and say whether it was reached."""
    try:
        with read_briefly(raw, seconds):
            raw.read(DRAIN_BYTES + 1, decode_content=False)
        return is_over(raw)
    except Exception as error:
        let_signals_through(error)
        return False


@contextmanager
def read_briefly(raw: Any, seconds: float) -> Iterator[None]:
    """Let whatever is read inside the block end that many seconds from now, and no more after."""
    file = file_of(raw)
    if file is None:
        yield
        return
    sock = file._sock
    until = SYSTEM_CLOCK.true_monotonic() + seconds
    timed = file._sock = TimedSocket(sock, until, time_is_over)
    try:
        yield
    finally:
        if file._sock is timed:  # else it was closed at the end of the body
            file._sock = sock
        with suppress(OSError):  # closed
            sock.settimeout(timed.configured)


# Before the request is written.


class Punctual:
    """The part of a pool that lets nothing of a call begin after its deadline."""

    def _get_conn(self, timeout: float | None = None) -> Any:
        ends_at = ENDS_AT.get()
        if ends_at is not None:
            left = max(ends_at - SYSTEM_CLOCK.true_monotonic(), 0.0)
            timeout = left if timeout is None else min(left, timeout)
        return super()._get_conn(timeout)  # type: ignore[misc]

    def _validate_conn(self, conn: Any) -> None:
        super()._validate_conn(conn)  # type: ignore[misc]
        ends_at = ENDS_AT.get()
        if ends_at is not None:
            if conn.sock is None:
                conn.connect()  # now: finding the name may take any time
            left = ends_at - SYSTEM_CLOCK.true_monotonic()
            if left <= 0:
                raise CutOff
            if conn.timeout is None or left < conn.timeout:
                conn.timeout = left  # for the writing


class PunctualHTTPPool(Punctual, HTTPConnectionPool):
    """A pool of connections to one http host."""


class PunctualHTTPSPool(Punctual, HTTPSConnectionPool):
    """A pool of connections to one https host."""


PUNCTUAL = {"http": PunctualHTTPPool, "https": PunctualHTTPSPool}
for kind in PUNCTUAL.values():
    kind.__name__ = kind.__bases__[1].__name__  # which messages of urllib3's errors begin with


def keep_deadlines(manager: Any) -> None:
    """Let nothing of a call begin after its deadline in pools that a manager makes from now on."""
    if getattr(manager, "pool_classes_by_scheme", None) is poolmanager.pool_classes_by_scheme:
        manager.pool_classes_by_scheme = PUNCTUAL
