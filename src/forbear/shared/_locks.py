"""Locks: what shared state is guarded with, renewed in every forked child. Floor: remembers."""

from __future__ import annotations

import os
from _thread import allocate_lock
from weakref import WeakSet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    class Locked(Protocol):
        _lock: Any


__all__ = ["allocate_lock", "renew_after_fork"]

_owners: WeakSet[Locked] = WeakSet()


def renew_after_fork(owner: Locked) -> None:
    """Give ``owner._lock`` anew in each child: one that another thread held at the fork would stay locked for ever."""
    _owners.add(owner)


def _renew() -> None:
    for owner in list(_owners):
        owner._lock = allocate_lock()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_renew)
