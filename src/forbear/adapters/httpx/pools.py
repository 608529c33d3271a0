"""Pools of httpcore: connections that are stale, and those that httpcore loses.

*Stale connections.* httpcore hands out the connection that has been idle for longest, so where one
was forgotten by its peer (a NAT table, a failover, a restart), the retry would get the next one
that was forgotten.

Loaded with the first connection that breaks or times out, or attempt that is cancelled.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any

from ...engine import bodies


def is_unassigned(pool: Any, connection: object) -> bool:
    """Does no request have this connection?"""
    return all(request.connection is not connection for request in list(pool._requests))


def close_idle(inner: Any, core: str, to: str, *, is_full: bool = False) -> bool:
    """Let the pool close the idle connections to an origin, by the module of its httpcore.

    An attempt that broke may have done so on a connection that was stale, which has left the pool
    by now. But httpcore opens a new one only where none is idle, so one that is idle still shows
    that the attempt went over another that was. Of a connection that was alone nothing is known.

    The pool asks again under its own lock, before it assigns the next request. Closed here, a
    connection could be another thread's by then.

    ``is_full``: one has as many streams of HTTP/2 as it may, most of which were given up, since
    httpcore resets none. So those in use get no further request, and are closed when they are free.

    Returns:
        There was one.
    """
    was_idle, origin = False, import_module(core).URL(to).origin
    with suppress(AttributeError):
        for one in inner._pool.connections:
            expired = partial(is_unassigned, inner._pool, one)
            if one.can_handle_request(origin) and (is_full or (one.is_idle() and expired())):
                was_idle, one.has_expired = True, expired
                if is_full:
                    one.is_available = lambda: False
    return was_idle


def free_lost_slots(inner: Any) -> None:
    """Let the pool drop the connections that no request has, and that can take none.

    When a request stops queueing in the moment in which httpcore 1.0.9 makes a connection for it,
    the connection stays in the pool for good, and was never opened. After a few rounds of calls
    that end together, at a shared deadline, every slot of the pool would be lost. And a task of
    asyncio that is cancelled other than by anyio gets into the shielded blocks in which the pool
    takes connections up and back.
    """
    with suppress(AttributeError):
        for one in inner._pool.connections:
            expired = partial(is_unassigned, inner._pool, one)
            if expired() and not (one.is_idle() or one.is_available() or one.is_closed()):
                one.has_expired = expired


def free_lost_request(inner: Any, response: Any) -> None:
    """Let the pool drop the request of a response whose closing was interrupted.

    httpcore does that last, and does not close a body twice.
    """
    with suppress(AttributeError, ValueError):  # it was dropped
        found = bodies.innermost(response.stream)
        below = getattr(found, "_stream", found)._httpcore_stream
        inner._pool._requests.remove(below._pool_request)
