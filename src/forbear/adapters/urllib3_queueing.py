"""Queueing: waiting for a connection of a full pool, no longer than the call has. Floor: acts.

requests never says how long a pool with ``pool_block=True`` may let a request wait, so that would
be for ever. Relies on ``_get_conn`` of urllib3's pools.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from urllib3 import poolmanager
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

__all__ = ["SECONDS_LEFT", "bound_queues"]

SECONDS_LEFT: ContextVar[float | None] = ContextVar("forbear_seconds_left", default=None)


class BoundedHTTPPool(HTTPConnectionPool):
    def _get_conn(self, timeout: float | None = None) -> Any:
        return super()._get_conn(shorter(timeout))


class BoundedHTTPSPool(HTTPSConnectionPool):
    def _get_conn(self, timeout: float | None = None) -> Any:
        return super()._get_conn(shorter(timeout))


BOUNDED = {"http": BoundedHTTPPool, "https": BoundedHTTPSPool}


def shorter(timeout: float | None) -> float | None:
    left = SECONDS_LEFT.get()
    return left if timeout is None or (left is not None and left < timeout) else timeout


def bound_queues(manager: Any) -> None:
    """Let the pools that a manager makes from now on wait that long at most, if they wait at
    all.
    """
    if getattr(manager, "pool_classes_by_scheme", None) is poolmanager.pool_classes_by_scheme and (
        manager.connection_pool_kw.get("block")
    ):
        manager.pool_classes_by_scheme = BOUNDED
