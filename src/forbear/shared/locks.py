"""Locks: what shared state is guarded with, renewed in every forked child. Floor: remembers."""

from __future__ import annotations

import os
from _thread import allocate_lock
from weakref import WeakSet

__all__ = ["Locked"]


class Locked:
    """Something that many calls share, under ``_lock``.

    A child gets a new lock: one that another thread held at the fork would stay locked there.

    No comprehension with a condition stands inside ``with self._lock``, but a generator: an
    interruption at its jump back would leave the lock locked, in Python 3.12.
    """

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = allocate_lock()
        _all.add(self)

    def after_fork(self) -> None:
        """Begin anew in a child."""
        self._lock = allocate_lock()


_all: WeakSet[Locked] = WeakSet()


def renew() -> None:
    for one in list(_all):
        one.after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=renew)
