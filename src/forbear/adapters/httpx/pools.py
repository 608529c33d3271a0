"""Pools of httpcore: connections that are stale, and slots and streams that httpcore loses.

*Stale connections.* httpcore hands out the connection that has been idle for longest, so where one
was forgotten by its peer (a NAT table, a failover, a restart), the retry would get the next one
that was forgotten.

Loaded with the first connection that breaks or times out, or attempt that is cancelled.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ...engine.frames import let_signals_through

if TYPE_CHECKING:
    from collections.abc import Iterator

CANCEL = 8  # RFC 9113 section 7
# Versions of httpcore, and of httpcore2, which began as a copy.
LOSES_SLOTS = frozenset({*(f"1.0.{number}" for number in range(10)), "2.0.0"})


def is_reused(pool: Any, origin: object) -> bool:
    """May an attempt have broken on a connection that was stale?

    The connection has left its pool by now. But httpcore opens a new one only where none is idle,
    so one that is idle still shows that the attempt went over another that was. Of a connection
    that was alone nothing is known.
    """
    with suppress(AttributeError):
        return next(idle_of(pool, origin), None) is not None
    return False


def idle_of(pool: Any, origin: object) -> Iterator[Any]:
    """Connections to an origin that are assigned to no request."""
    wanted = {id(request.connection) for request in pool._requests}
    for connection in pool.connections:
        is_free = id(connection) not in wanted and connection.is_idle()
        if is_free and connection.can_handle_request(origin):
            yield connection


async def close_idle(pool: Any, origin: object) -> None:
    """Close the idle connections to an origin; the pool drops what is closed by itself.

    An interruption leaves some of them idle, but none half closed.
    """
    # Under the pool's lock, which is none for tasks: without it another thread's request could be
    # assigned a connection between the check that it is idle and its closing, and would break.
    with suppress(AttributeError), pool._optional_thread_lock:
        for _ in pool.connections:  # one by one: during each await another may be assigned
            connection = next(idle_of(pool, origin), None)
            if connection is None:
                return
            try:
                if hasattr(connection, "aclose"):
                    await connection.aclose()
                else:
                    connection.close()
            except Exception as error:  # the connection may be broken anyway
                let_signals_through(error)


def free_lost_slots(inner: object) -> None:
    """Let a pool of httpcore 1.0.9 drop the connections that were never opened.

    When a request stops queueing in the moment in which the pool makes a connection for it, the
    connection stays in the pool for good, neither idle nor closed. After a few rounds of calls that
    end together, at a shared deadline, every slot of the pool would be lost. httpcore2 drops such
    connections itself, but for its first version.
    """
    pool: Any = getattr(inner, "_pool", None)
    core = sys.modules.get(type(pool).__module__.partition(".")[0])
    if getattr(core, "__version__", None) not in LOSES_SLOTS:
        return
    try:
        with pool._optional_thread_lock:
            wanted = {id(request.connection) for request in pool._requests}
            for connection in pool.connections:
                if id(connection) not in wanted:
                    innermost = connection  # of a tunnel through a proxy
                    while getattr(innermost, "_connection", None) is not None:
                        innermost = innermost._connection
                    if getattr(innermost, "_connect_failed", None) is False:
                        innermost._connect_failed = True
    except AttributeError:
        return


def free_lost_request(stream: Any) -> bool:
    """Let the pool drop the request of a body whose closing was interrupted; False: it was not.

    httpcore does that last, and does not close a body twice.
    """
    while hasattr(stream, "stream"):  # one of ours around the library's
        stream = stream.stream
    try:
        below = stream._httpcore_stream
        requests = below._pool._requests
        is_lost = below._closed and below._pool_request in requests
    except AttributeError:
        return False
    if is_lost:
        requests.remove(below._pool_request)
    return bool(is_lost)


async def close_lost(inner: Any) -> None:
    """Close what httpcore loses when a task of asyncio is cancelled other than by anyio.

    That cancellation gets into the shielded blocks in which the pool takes connections up and back.
    """
    free_lost_slots(inner)
    try:
        pool = inner._pool
        wanted = {id(request.connection) for request in pool._requests}
        lost = [one for one in pool.connections if id(one) not in wanted and not is_usable(one)]
    except AttributeError:
        return
    for connection in lost:
        with suppress(Exception):
            await connection.aclose()


def is_usable(connection: Any) -> bool:
    return bool(connection.is_idle() or connection.is_available() or connection.is_closed())


def reset_lost(inner: object) -> None:
    """Reset streams of HTTP/2 that were cancelled or closed early, since httpcore does not.

    A server allows a hundred or so at a time, so a connection would soon take no more requests. The
    frames go out with those of the next request.
    """
    for connection in getattr(getattr(inner, "_pool", None), "connections", ()):
        innermost = connection
        while getattr(innermost, "_connection", None) is not None:
            innermost = innermost._connection
        state, under_way = getattr(innermost, "_h2_state", None), getattr(innermost, "_events", ())
        with suppress(Exception):  # GOAWAY has closed the connection, and its streams with it
            for number, stream in list(getattr(state, "streams", {}).items()):
                if number not in under_way and not stream.closed:
                    state.reset_stream(number, CANCEL)  # type: ignore[union-attr]


def is_full(inner: object) -> bool:
    """Would a second attempt wait for a connection of the pool?

    ``_max_connections`` and ``_requests`` of httpcore's pool are read, so that none queues.
    """
    pool: Any = getattr(inner, "_pool", None)
    try:
        if any(request.is_queued() for request in pool._requests):
            return True
        connections = pool.connections
        return len(connections) >= pool._max_connections and not any(
            connection.is_available() for connection in connections
        )
    except AttributeError:  # a transport without such a pool
        return False
