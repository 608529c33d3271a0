"""Pools of the httpx family: slots that httpcore 1.0.9 has lost. Floor: acts.

When a request gives up queueing in the moment in which the pool makes a connection for it, the
connection is never begun and stays in the pool for good, neither idle nor closed: after a few
rounds of calls that end together, at a shared deadline, every slot is dead. httpcore2 drops such
connections by itself.

Private attributes relied on, each checked by tests/adapters/test_private_attributes.py; without
them the library's behaviour is left as it is.
"""

from __future__ import annotations

from typing import Any

__all__ = ["free_lost_slots"]


def free_lost_slots(inner: Any) -> None:
    """Let the pool drop the connections that no request waits for and that were never begun."""
    pool: Any = getattr(inner, "_pool", None)
    try:
        with pool._optional_thread_lock:
            wanted = {id(request.connection) for request in pool._requests}
            for connection in pool._connections:
                if id(connection) not in wanted:
                    innermost = connection  # of a tunnel through a proxy
                    while getattr(innermost, "_connection", None) is not None:
                        innermost = innermost._connection
                    if getattr(innermost, "_connect_failed", None) is False:
                        innermost._connect_failed = True
    except AttributeError:
        return
