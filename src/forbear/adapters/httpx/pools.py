"""Pools of httpcore: connections that are stale, and slots and streams that httpcore loses.

*Stale connections.* httpcore hands out the connection that has been idle for longest, so where one
was forgotten by its peer (a NAT table, a failover, a restart), the retry would get the next one
that was forgotten.

Loaded with the first connection that breaks or times out, or attempt that is cancelled.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

from ...engine import bodies

CANCEL = 8  # RFC 9113 section 7
# Versions of httpcore, and of httpcore2, which began as a copy.
LOSES_SLOTS = frozenset({*(f"1.0.{number}" for number in range(10)), "2.0.0"})


def unassigned(pool: Any) -> list[Any]:
    """Connections that are assigned to no request."""
    wanted = {id(request.connection) for request in pool._requests}
    return [one for one in pool.connections if id(one) not in wanted]


def innermost(connection: Any) -> Any:
    """The connection in a tunnel through a proxy."""
    while getattr(connection, "_connection", None) is not None:
        connection = connection._connection
    return connection


async def close_idle(inner: Any, origin: object) -> bool:
    """Close the idle connections to an origin; the pool drops what is closed by itself.

    An attempt that broke may have done so on a connection that was stale, which has left the pool
    by now. But httpcore opens a new one only where none is idle, so one that is idle still shows
    that the attempt went over another that was. Of a connection that was alone nothing is known.

    Returns:
        There was one. An interruption leaves some of them idle, but none half closed.
    """
    was_idle = False
    # Under the pool's lock, which is none for tasks: without it another thread's request could be
    # assigned a connection between the check that it is idle and its closing, and would break.
    with suppress(AttributeError), inner._pool._optional_thread_lock:
        for _ in inner._pool.connections:  # one by one: during each await another may be assigned
            idle = [one for one in unassigned(inner._pool) if one.is_idle()]
            connection = next((one for one in idle if one.can_handle_request(origin)), None)
            if connection is None:
                break
            was_idle = True
            with suppress(Exception):  # the connection may be broken anyway
                if hasattr(connection, "close"):
                    connection.close()
                else:
                    import anyio

                    with anyio.CancelScope(shield=True):
                        await connection.aclose()
    return was_idle


def free_lost_slots(inner: object) -> None:
    """Let a pool of httpcore 1.0.9 drop the connections that were never opened.

    When a request stops queueing in the moment in which the pool makes a connection for it, the
    connection stays in the pool for good, neither idle nor closed. After a few rounds of calls that
    end together, at a shared deadline, every slot of the pool would be lost. httpcore2 drops such
    connections itself, but for its first version.
    """
    pool: Any = getattr(inner, "_pool", None)
    core = sys.modules.get(type(pool).__module__.partition(".")[0])
    if getattr(core, "__version__", None) in LOSES_SLOTS:
        with suppress(AttributeError), pool._optional_thread_lock:
            for connection in map(innermost, unassigned(pool)):
                if getattr(connection, "_connect_failed", None) is False:
                    connection._connect_failed = True


def free_lost_request(inner: Any, stream: object) -> None:
    """Let the pool drop the request of a body whose closing was interrupted.

    httpcore does that last, and does not close a body twice.
    """
    found = bodies.innermost(stream)
    with suppress(AttributeError, ValueError):  # it was dropped
        below = getattr(found, "_stream", found)._httpcore_stream
        inner._pool._requests.remove(below._pool_request)


async def close_lost(inner: Any) -> None:
    """Close what httpcore loses when a task of asyncio is cancelled other than by anyio.

    That cancellation gets into the shielded blocks in which the pool takes connections up and back.
    """
    free_lost_slots(inner)
    with suppress(AttributeError):
        for one in unassigned(inner._pool):
            if not (one.is_idle() or one.is_available() or one.is_closed()):
                with suppress(Exception):
                    await one.aclose()


def reset_lost(inner: object) -> None:
    """Reset streams of HTTP/2 that were cancelled or closed early, since httpcore does not.

    A server allows a hundred or so at a time, so a connection would soon take no more requests. The
    frames go out with those of the next request.
    """
    for connection in map(innermost, getattr(getattr(inner, "_pool", None), "connections", ())):
        state, under_way = (
            getattr(connection, "_h2_state", None),
            getattr(connection, "_events", ()),
        )
        with suppress(Exception):  # GOAWAY has closed the connection, and its streams with it
            for number, stream in list(getattr(state, "streams", {}).items()):
                if number not in under_way and not stream.closed:
                    state.reset_stream(number, CANCEL)  # type: ignore[union-attr]
