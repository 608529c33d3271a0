"""Locks: what shared state is guarded with, renewed in every forked child. Floor: remembers."""

from __future__ import annotations

import os
from _thread import allocate_lock
from weakref import WeakSet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _thread import LockType
    from typing import Any

__all__ = ["lock_of"]

_owners: WeakSet[Any] = WeakSet()


def lock_of(owner: Any) -> LockType:
    """Make the lock that ``owner`` keeps as ``_lock``.

    A child process gets a new one, since a lock that another thread held at the fork would stay
    locked in it for ever; then ``owner._forked`` is called, if there is one.
    """
    _owners.add(owner)
    return allocate_lock()


def _renew() -> None:
    for owner in list(_owners):
        owner._lock = allocate_lock()
        forked = getattr(owner, "_forked", None)
        if forked is not None:
            forked()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_renew)
