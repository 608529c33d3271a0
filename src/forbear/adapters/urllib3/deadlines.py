"""Deadlines of urllib3: how long a response is read, and how a failed one is closed.

urllib3's read timeout bounds each receive. Here one instant bounds all of them, also those that
http.client makes while it searches for the end of a chunk's size line: else a peer that sends a
byte now and then could hold a call for ever.
"""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from errno import EAGAIN
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Any
from weakref import ref

from urllib3 import HTTPResponse, poolmanager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.util import Timeout, wait_for_read

from ...engine.calls import free_slot
from ...engine.clock import SYSTEM_CLOCK
from ...engine.errors import DeadlineCut
from ...engine.frames import let_signals_through
from ...engine.reading import DRAIN_BYTES, DRAIN_SECONDS, is_readable
from .errors import mark_unsent
from .request import least

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from urllib3.connection import HTTPConnection as Connection
    from urllib3.connectionpool import HTTPConnectionPool as Pool
    from urllib3.response import HTTPResponse as Response

else:
    Pool = Connection = Response = object  # what the parts below are combined with


PIECE = 65_536  # bytes asked for at once


class Slotted(Response):
    """The part of a response that gives back the slot of its attempt when its body ends.

    The class of the response is changed, as above. One that is dropped unread is closed by io.
    """

    notes: dict[object, Any]

    def release_conn(self) -> None:
        super().release_conn()
        if is_over(self):
            free_slot(self.notes)

    def close(self) -> None:
        try:
            super().close()
        finally:
            free_slot(self.notes)


@lru_cache(maxsize=64)
def slotted(kind: type) -> type:
    return type(kind.__name__, (Slotted, kind), {})


def keep_slot(raw: HTTPResponse, notes: dict[object, Any]) -> None:
    """Let this response give back a slot at its end; one of an unknown kind does so at once."""
    try:
        raw.notes = notes  # type: ignore[attr-defined]  # first: it may be closed after the next
        raw.__class__ = slotted(type(raw))
    except (TypeError, AttributeError):
        free_slot(notes)


class Here(threading.local):
    """What this thread is sending. Neither library takes a deadline as an argument."""

    ends_at = inf  # instant on the system's clock at which the attempt's deadline is over
    pool: Any = None  # of the last attempt, weak
    is_reused = False  # its connection had carried a request before


HERE = Here()


def left_here() -> float:
    return HERE.ends_at - SYSTEM_CLOCK.true_monotonic()


class TimedSocket:
    """A socket whose receives all end by one instant, and each within the socket's own timeout.

    ``late`` makes the error for a receive that this instant ends.
    """

    def __init__(self, sock: Any, until: float, late: Callable[[], Exception]) -> None:
        self._sock = sock
        self._until = until
        self._late = late
        # pyOpenSSL's sockets have no gettimeout, but the one that they wrap has.
        self.configured = (sock if hasattr(sock, "gettimeout") else sock.socket).gettimeout()
        self._is_inspecting = self._is_late = False
        self._error: OSError | None = None  # that broke the connection while it was inspected

    def has_more(self, raw: HTTPResponse) -> bool:
        """Wait until the body can be read on; False: the time is over, and the body is intact.

        The buffer is inspected with an error that SocketIO understands as "nothing yet", because
        after a receive that times out the caller could not read the rest of the body.
        """
        body: Any = raw._fp
        self._is_inspecting, self._is_late = True, False
        try:
            found = body.fp.peek(1)
        finally:
            self._is_inspecting = False
        if not found:
            return not self._is_late  # it ends here, or has broken
        is_between = getattr(body, "chunked", False) and not getattr(body, "chunk_left", True)
        if is_readable(found, is_chunked=is_between):
            return True
        left = max(0.0, self._until - SYSTEM_CLOCK.true_monotonic())
        pending = getattr(self._sock, "pending", None)
        return (pending is not None and pending() > 0) or bool(wait_for_read(self._sock, left))

    def late(self) -> Exception:
        """Make the error for a receive that cannot end in time."""
        if self._is_inspecting:
            self._is_late = True
            return nothing_yet()
        return self._late()

    def recv_into(self, buffer: memoryview) -> int:
        error, self._error = self._error, None
        if error is not None:
            raise error
        left = self._until - SYSTEM_CLOCK.true_monotonic()
        if left <= 0:
            raise self.late()
        configured = self.configured
        is_own = configured is not None and configured <= left
        self._sock.settimeout(configured if is_own else left)
        try:
            return int(self._sock.recv_into(buffer))
        except OSError as error:
            if not is_own and isinstance(error, TimeoutError):
                raise self.late() from error
            if not self._is_inspecting:
                raise
            # For the next receive: urllib3 makes its own error only of one that it meets itself.
            self._error = error
            raise nothing_yet() from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


def nothing_yet() -> Exception:
    return BlockingIOError(EAGAIN, "nothing has come yet")  # for SocketIO, None


def time_is_over() -> Exception:
    return TimeoutError("the time for reading is over")


def read_within(raw: Any, seconds: float, late: Callable[[], Exception] = time_is_over) -> None:
    """Let each read from this urllib3 response end at the latest that many seconds from now."""
    file = file_of(live(raw))
    if file is not None and not isinstance(file._sock, TimedSocket):
        file._sock = TimedSocket(file._sock, SYSTEM_CLOCK.true_monotonic() + seconds, late)


def read_freely(raw: HTTPResponse, configured: Timeout) -> None:
    """Let the caller read this response with the client's own Timeout, not the last attempt's."""
    file = file_of(live(raw))
    if file is not None:
        fresh = configured.clone()
        fresh.start_connect()  # before that it has no read timeout
        with suppress(OSError):
            file._sock.settimeout(fresh.read_timeout)


def discard(raw: HTTPResponse, seconds: float = DRAIN_SECONDS) -> None:
    """Drain or close a failed response, so that its connection is back in its pool.

    Args:
        raw: A urllib3 response that was not read from, or was read to its end.
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
            # The response has failed: how its body ends does not matter.
            with suppress(Exception):
                if sock is not None and raw.connection is None:
                    # With release_conn=True the pool has the connection back already. The rest of
                    # this response is still to come on it, and would be read as the next one's.
                    sock.shutdown(socket.SHUT_RDWR)
                raw.close()
                raw.release_conn()  # a closed one too, since a pool with block=True counts them


def is_over(raw: HTTPResponse) -> bool:
    """Was the response read to its end, or closed?"""
    return getattr(raw, "_fp", None) is None or bool(getattr(raw, "closed", True))


def live(raw: HTTPResponse) -> HTTPResponse:
    """The response that brings the rest, behind those that give what was read of it before."""
    while (rest := getattr(raw, "raw", None)) is not None:
        raw = rest
    return raw


def file_of(raw: HTTPResponse) -> Any:
    """The SocketIO that the response is read from; None if it is over, or of an unknown kind."""
    below = getattr(raw, "_fp", None)
    file = getattr(getattr(below, "fp", None), "raw", None)
    if isinstance(file, socket.SocketIO) and getattr(file, "_sock", None) is not None:
        return file
    return None


def is_worth_draining(raw: HTTPResponse) -> bool:
    if getattr(raw._fp, "will_close", True):
        return False  # the connection is not reused after it
    length = raw.length_remaining
    return length is None or length <= DRAIN_BYTES


def drain(raw: HTTPResponse, seconds: float) -> bool:
    """Read to the end, and say whether it was reached."""
    try:
        with read_briefly(raw, seconds):
            raw.read(DRAIN_BYTES + 1, decode_content=False)
        return is_over(raw)
    except Exception as error:
        let_signals_through(error)
        return False


def is_cut_off(raw: HTTPResponse) -> bool:
    """Does nothing follow the head of a response that should have a body?

    Then it may be half a head, which http.client takes for a shorter one.
    """
    with read_briefly(raw, DRAIN_SECONDS) as timed:
        if timed is None or raw.length_remaining == 0 or not timed.has_more(raw):
            return False
        try:
            return not raw._fp.fp.peek(1)  # type: ignore[union-attr]
        except OSError:
            return True


@contextmanager
def read_briefly(raw: HTTPResponse, seconds: float) -> Iterator[TimedSocket | None]:
    """Let each read inside the block end that many seconds from now, and restore the socket."""
    file = file_of(raw)
    if file is None or seconds == inf:
        yield None
        return
    sock = file._sock
    until = SYSTEM_CLOCK.true_monotonic() + seconds
    timed = file._sock = TimedSocket(sock, until, time_is_over)
    try:
        yield timed
    finally:
        if file._sock is timed:  # else it was closed at the end of the body
            file._sock = sock
        with suppress(OSError):  # closed
            sock.settimeout(timed.configured)


# Before the request is written.


class DeadlinePool(Pool):
    """The part of a pool that waits for a connection in time, and makes those that count."""

    @property
    def ConnectionCls(self) -> Any:  # type: ignore[override]  # noqa: N802
        kind: Any = super().ConnectionCls
        return COUNTING.get(kind, kind)  # another one, of a mock or a recorder, is left as it is

    def urlopen(self, *arguments: Any, **named: Any) -> Any:
        HERE.pool, HERE.is_reused = ref(self), False
        if HERE.ends_at != inf:  # else a pool with block=True would wait for ever
            named["pool_timeout"] = least(named.get("pool_timeout"), max(left_here(), 0.0))
        response = super().urlopen(*arguments, **named)
        HERE.is_reused = False  # whatever becomes of the body, its connection was not stale
        return response


class Counting(Connection):
    """The part of a connection that counts its requests, and begins no step after the deadline.

    What fails while it connects is marked: urllib3 has the same errors for a TLS handshake and a
    tunnel that are cut off as for a request.
    """

    uses = 0

    def connect(self) -> None:
        self.uses, HERE.is_reused = 0, False
        try:
            super().connect()
        except Exception as error:
            mark_unsent(error)
            raise
        self._end_in_time()  # no timeout bounds name resolution

    def request(self, *arguments: Any, **named: Any) -> None:
        if self.sock is not None:  # else it connects
            self._end_in_time()
            HERE.is_reused = self.uses > 0
        super().request(*arguments, **named)
        self.uses += 1

    def _end_in_time(self) -> None:
        if HERE.ends_at == inf:
            return
        left = left_here()
        if left <= 0:
            raise DeadlineCut
        self.timeout = least(self.timeout, left)  # for the writing
        self.sock.settimeout(self.timeout)


# By the class that each stands for.
COUNTING = {
    kind: type(kind.__name__, (Counting, kind), {}) for kind in (HTTPConnection, HTTPSConnection)
}


def close_idle() -> None:
    """Close the idle connections of the pool used last, which connects them when it needs them.

    Under the pool's lock, so that none is given to a request between the check and its closing.
    They stay in the queue, so that none is missing if this is interrupted.
    """
    pool = HERE.pool and HERE.pool()
    with suppress(AttributeError), pool.pool.mutex:
        for connection in pool.pool.queue:
            # With release_conn=True it is in the queue while its response is still being read.
            response = getattr(connection, "_HTTPConnection__response", None)
            if connection is not None and (response is None or response.isclosed()):
                try:
                    connection.close()
                except Exception as error:  # the connection may be broken anyway
                    let_signals_through(error)


class DeadlineHTTPPool(DeadlinePool, HTTPConnectionPool):
    """A pool of connections to one http host."""


class DeadlineHTTPSPool(DeadlinePool, HTTPSConnectionPool):  # type: ignore[override]
    """A pool of connections to one https host."""


DEADLINE_POOLS = {"http": DeadlineHTTPPool, "https": DeadlineHTTPSPool}
for kind in DEADLINE_POOLS.values():
    kind.__name__ = kind.__bases__[1].__name__  # which messages of urllib3's errors begin with


def keep_deadlines(manager: Any) -> None:
    """Begin no step of a call after its deadline, in pools that a manager makes from now on."""
    if getattr(manager, "pool_classes_by_scheme", None) is poolmanager.pool_classes_by_scheme:
        manager.pool_classes_by_scheme = DEADLINE_POOLS


LARGE = 65_536  # bytes; a smaller body is requested anew


def is_resumable(raw: HTTPResponse) -> bool:
    """May this urllib3 response be resumable? Whether it is, is decided when it breaks."""
    return (
        isinstance(raw, HTTPResponse)
        and raw.status in (200, 206)
        and ("etag" in raw.headers or "last-modified" in raw.headers)
        and not raw.chunked
        and not hasattr(raw, "forbear_resumes")
        and not raw.closed
    )


def is_large(raw: HTTPResponse) -> bool:
    """Is it worth keeping the beginning, should the body break?"""
    length = getattr(raw, "length_remaining", None)
    return length is not None and length > LARGE and is_resumable(raw)
