"""Deadlines of urllib3: pools and connections that end in time, and how a response is closed.

One instant bounds every step of an attempt: waiting for a connection, connecting and writing here,
the reads of a body in live.py. A peer that drips header bytes, or the line that begins a chunk,
can exceed it, since http.client receives those by itself.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from math import inf
from typing import Any
from weakref import ref

from urllib3 import BaseHTTPResponse, HTTPResponse, poolmanager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ProtocolError, ReadTimeoutError
from urllib3.util import Timeout

from ...engine.clock import SYSTEM_CLOCK
from ...engine.errors import DeadlineCut
from .errors import CONNECTING


class Here(threading.local):
    """The attempt that this thread sends. Neither library takes a deadline as an argument."""

    ends_at = inf  # instant on the system's clock at which the attempt's deadline is over
    pool: Any = None  # of the last attempt, weak
    is_reused = False  # its connection had carried a request before


HERE = Here()


def left_here() -> float:
    return HERE.ends_at - SYSTEM_CLOCK.true_monotonic()


def read_timeout(message: str = "Read timed out.") -> Exception:
    return ReadTimeoutError(None, None, message)  # type: ignore[arg-type]


def socket_of(raw: object) -> Any:
    """The socket that a response is read from; None if it is over, or of an unknown kind.

    ``connection`` has it no longer once the server will close it, or the pool has it back.
    """
    below = getattr(raw, "_fp", None)
    return getattr(getattr(getattr(below, "fp", None), "raw", None), "_sock", None)


def received(raw: Any) -> bytes | None:
    """What has come of a body and was not read yet, without waiting; None if that is not shown.

    Raises:
        ProtocolError: The connection is broken.
    """
    sock = socket_of(raw)
    if not hasattr(sock, "gettimeout"):  # pyOpenSSL's raise a timeout if nothing has come
        return None
    configured = sock.gettimeout()
    try:
        sock.settimeout(0)
        return raw._fp.fp.peek(1)  # type: ignore[no-any-return]
    except OSError as error:
        if type(error).__name__ == "SSLWantReadError":
            return b""
        raise ProtocolError(f"Connection broken: {error!r}", error) from error
    finally:
        with suppress(OSError):  # closed
            sock.settimeout(configured)


def has_arrived(raw: HTTPResponse) -> bool:
    """Has all of a body of known length come with its head? Then no read of it can be late."""
    try:
        return 0 < (raw.length_remaining or 0) <= len(received(raw) or b"")
    except ProtocolError:  # reading it raises the error
        return False


# Before the request is written.


class DeadlinePool(HTTPConnectionPool):
    """The part of a pool that waits for a connection in time, and makes those that count."""

    @property
    def ConnectionCls(self) -> type:  # type: ignore[override]  # noqa: N802
        kind = super().ConnectionCls
        return COUNTING.get(kind, kind)  # another one, of a mock or a recorder, is left as it is

    def urlopen(self, *arguments: Any, **named: Any) -> BaseHTTPResponse:
        HERE.pool, HERE.is_reused = ref(self), False
        if HERE.ends_at != inf:  # else a pool with block=True would wait for ever
            named["pool_timeout"] = least(named.get("pool_timeout"), max(left_here(), 0.0))
        response = super().urlopen(*arguments, **named)
        HERE.is_reused = False  # whatever becomes of the body, its connection was not stale
        return response


class Counting(HTTPConnection):
    """The part of a connection that counts its requests, and begins none after the deadline.

    What fails while it connects is marked: urllib3 has the same errors for a TLS handshake and a
    tunnel that are cut off as for a request.
    """

    uses = 0

    def connect(self) -> None:
        self.uses = 0
        try:
            super().connect()
        except Exception as error:
            setattr(error, CONNECTING, True)
            raise

    def request(self, *arguments: Any, **named: Any) -> None:
        if self.sock is None:
            self.connect()
        HERE.is_reused = self.uses > 0
        if HERE.ends_at != inf and self.sock is not None:
            left = left_here()
            if left <= 0:  # no timeout bounds name resolution
                raise DeadlineCut
            self.timeout = least(self.timeout, left)  # for the writing
            self.sock.settimeout(self.timeout)
        super().request(*arguments, **named)
        self.uses += 1


# By the class that each stands for.
COUNTING: dict[type, type] = {
    kind: type(kind.__name__, (Counting, kind), {}) for kind in (HTTPConnection, HTTPSConnection)
}


def close_idle() -> bool:
    """If the last attempt was sent on a connection of before, close its pool's idle ones.

    Under the pool's lock, so that none is given to a request between the check and its closing.
    They stay in the queue, so that none is missing if this is interrupted.
    """
    pool: Any = HERE.is_reused and HERE.pool and HERE.pool()
    with suppress(AttributeError), pool.pool.mutex:
        for connection in pool.pool.queue:
            sock = getattr(connection, "sock", None)
            if sock is not None:
                # ``connection.close`` would end its response too, which with release_conn=True may
                # still be read.
                connection.sock = None
                with suppress(Exception):  # it may be broken anyway
                    sock.close()
    return HERE.is_reused


# Under their own names, with which messages of urllib3's errors begin.
DEADLINE_POOLS: dict[str, type] = {
    "http": type("HTTPConnectionPool", (DeadlinePool,), {}),
    "https": type("HTTPSConnectionPool", (DeadlinePool, HTTPSConnectionPool), {}),
}


def keep_deadlines(manager: Any) -> None:
    """Begin no step of a call after its deadline, in pools that a manager makes from now on."""
    if getattr(manager, "pool_classes_by_scheme", None) is poolmanager.pool_classes_by_scheme:
        manager.pool_classes_by_scheme = DEADLINE_POOLS


# Timeouts.


def phases_of(configured: object) -> tuple[object, object, object]:
    """Seconds in all, for connecting and for each read, of any form of timeout; None: no limit."""
    if not isinstance(configured, Timeout):
        if isinstance(configured, tuple) and len(configured) == 2:
            return None, *configured
        return None, configured, configured
    own = configured.clone()
    own.start_connect()  # before that it has no read timeout
    return own.total, own.connect_timeout, own.read_timeout


def least(configured: Any, other: float | None) -> float | None:
    """The smaller of two timeouts; None means none, urllib3's default is the socket module's."""
    own = Timeout.resolve_default_timeout(configured)
    if own is None or other is None:
        return other if own is None else own
    try:
        return min(own, other)
    except TypeError:  # it is no number, and urllib3 will refuse it in its own words
        return own
