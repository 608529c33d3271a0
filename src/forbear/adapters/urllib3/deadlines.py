"""Deadlines of urllib3: pools and connections that end in time, and how a response is closed.

One instant bounds every step of an attempt: waiting for a connection, connecting and writing here,
the reads of a body in bodies.py. A peer that drips header bytes, or the line that begins a chunk,
can exceed it, since http.client receives those by itself.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any
from weakref import ref

from urllib3 import HTTPResponse, poolmanager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from ...engine.clock import SYSTEM_CLOCK
from ...engine.errors import DeadlineCut
from ...engine.reading import DRAIN_BYTES
from .errors import mark_unsent
from .request import least

if TYPE_CHECKING:
    from urllib3.connection import HTTPConnection as Connection
    from urllib3.connectionpool import HTTPConnectionPool as Pool
    from urllib3.response import HTTPResponse as Response

else:
    Pool = Connection = Response = object  # what the parts below are combined with


class Here(threading.local):
    """The attempt that this thread sends. Neither library takes a deadline as an argument."""

    ends_at = inf  # instant on the system's clock at which the attempt's deadline is over
    pool: Any = None  # of the last attempt, weak
    is_reused = False  # its connection had carried a request before


HERE = Here()


def left_here() -> float:
    return HERE.ends_at - SYSTEM_CLOCK.true_monotonic()


def read_freely(raw: HTTPResponse, configured: float | None) -> None:
    """Let the caller read this response with the client's own timeout, not the last attempt's."""
    sock = socket_of(getattr(raw, "live", raw))
    if sock is not None:
        with suppress(OSError):
            sock.settimeout(least(configured, None))


def socket_of(raw: Any) -> Any:
    """The socket that a response is read from; None if it is over, or of an unknown kind.

    ``connection`` has it no longer once the server will close it, or the pool has it back.
    """
    below = getattr(raw, "_fp", None)
    return getattr(getattr(getattr(below, "fp", None), "raw", None), "_sock", None)


def close(raw: Any) -> None:
    """Close a response that nobody reads any more."""
    if raw.connection is None and not raw.closed:
        # With release_conn=True the pool has the connection back already. The rest of this response
        # is still to come, and would be read as the next one's.
        with suppress(Exception):
            socket_of(raw).shutdown(socket.SHUT_RDWR)
    raw.close()
    raw.release_conn()  # a closed one too, since a pool with block=True counts them


def is_quick(raw: HTTPResponse) -> bool:
    """May the rest of a failed response be worth reading?

    Not after the pool has its connection back: the next request may be under way there.
    """
    if raw.closed or (raw.length_remaining or 0) > DRAIN_BYTES:
        return False
    raw = getattr(raw, "live", raw)
    return raw.connection is not None or socket_of(raw) is None


def has_arrived(raw: HTTPResponse) -> bool:
    """Has all of a body of known length come with its head? Then no read of it can be late."""
    sock, length = socket_of(raw), raw.length_remaining
    if not length or not hasattr(sock, "gettimeout"):
        return False
    configured = sock.gettimeout()
    try:
        sock.settimeout(0)
        return len(raw._fp.fp.peek(1)) >= length  # type: ignore[union-attr]
    except OSError:  # nothing has come
        return False
    finally:
        sock.settimeout(configured)


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
        return super().urlopen(*arguments, **named)


class Counting(Connection):
    """The part of a connection that counts its requests, and begins no step after the deadline.

    What fails while it connects is marked: urllib3 has the same errors for a TLS handshake and a
    tunnel that are cut off as for a request.
    """

    uses = 0
    last: Any = None  # its last response, weak

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

    def getresponse(self) -> Any:
        response = super().getresponse()
        self.last = ref(response)
        HERE.is_reused = False  # whatever becomes of the body, its connection was not stale
        return response

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
            if not isinstance(connection, Counting):
                continue
            # With release_conn=True it is in the queue while its response is still being read.
            response = connection.last and connection.last()
            if response is None or response.closed:
                try:
                    connection.close()
                except Exception as error:  # the connection may be broken anyway
                    from ...engine.frames import let_signals_through

                    let_signals_through(error)


# Under their own names, with which messages of urllib3's errors begin.
DEADLINE_POOLS: dict[str, Any] = {
    scheme: type(kind.__name__, (DeadlinePool, kind), {})
    for scheme, kind in (("http", HTTPConnectionPool), ("https", HTTPSConnectionPool))
}


def keep_deadlines(manager: Any) -> None:
    """Begin no step of a call after its deadline, in pools that a manager makes from now on."""
    if getattr(manager, "pool_classes_by_scheme", None) is poolmanager.pool_classes_by_scheme:
        manager.pool_classes_by_scheme = DEADLINE_POOLS


LARGE = 65_536  # bytes; a smaller body is requested anew


def is_large(raw: Any) -> bool:
    """Is the beginning of a body worth keeping, should it break?"""
    return (getattr(raw, "length_remaining", None) or 0) > LARGE
