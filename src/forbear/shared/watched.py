"""Watched: shared state whose ``quiet`` decides how strategies let first attempts through. Floor:
remembers.
"""

from __future__ import annotations

from weakref import ref

from .locks import lock_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _thread import LockType
    from typing import Any

__all__ = ["Watched"]


class Watched:
    """What breaker, cooldown and origins have in common.

    Attributes:
        quiet: It concerns no first attempt. Set with the lock held; ``_adjust`` is called after
            that.
    """

    __slots__ = ("__weakref__", "_lock", "_watchers", "quiet")

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet
        self._watchers: tuple[ref[Any], ...] = ()
        self._lock: LockType = lock_of(self)

    def watch(self, watcher: Any) -> None:
        """Call ``watcher.adjust()`` whenever ``quiet`` changes; it is held weakly."""
        with self._lock:
            self._watchers = (
                *(found for found in self._watchers if found() is not None),
                ref(watcher),
            )

    def _adjust(self) -> None:
        for found in self._watchers:
            watcher = found()
            if watcher is not None:
                watcher.adjust()
