"""Locks: what shared state is guarded with, renewed in every forked child."""

from __future__ import annotations

import os
from _thread import allocate_lock
from weakref import WeakSet


class Locked:
    """Something that many calls share, under ``_lock``.

    A child gets a new lock: one that another thread held at the fork would stay locked there.

    Inside ``with self._lock`` a generator takes the place of a comprehension with a condition,
    because an interruption at its jump back would leave the lock locked in Python 3.12.
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
