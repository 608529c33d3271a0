"""Backstop: cuts asynchronous attempts from outside that outlive their deadline. Floor: acts.

The library's own timeouts end an attempt in time, but for a peer that keeps dripping bytes. A
cancel scope or timer for each attempt costs up to 8 µs; on asyncio one timer per transport looks
at all attempts under way. On trio a cancel scope is the only way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .clock import asyncio_loop

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import TracebackType

__all__ = ["Backstop"]


class Backstop:
    """The attempts of one transport, on one event loop at a time."""

    def __init__(self) -> None:
        self._loop: Any = None
        self._timer: Any = None
        self._cuts: dict[Cut, None] = {}

    def after(self, seconds: float) -> AbstractContextManager[Any, bool]:
        """Around an attempt: the block ends silently, without its last statement, after so long."""
        loop = asyncio_loop()
        if loop is None:
            import anyio

            return anyio.CancelScope(deadline=anyio.current_time() + seconds)
        if loop is not self._loop:
            self._loop, self._timer, self._cuts = loop, None, {}
        at = loop.time() + seconds
        if self._timer is None or at < self._timer.when():
            self._watch(at)
        return Cut(self._cuts, at)

    def _watch(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._loop.time()
        for cut in [cut for cut in self._cuts if cut.at <= now]:
            cut.fire()
        if self._cuts:
            self._watch(min(cut.at for cut in self._cuts))


class Cut:
    """One attempt that is to be cut, unless it ends before."""

    __slots__ = ("_cancelling", "_cuts", "_fired", "_task", "at")

    def __init__(self, cuts: dict[Cut, None], at: float) -> None:
        import asyncio

        task = asyncio.current_task()
        assert task is not None
        self.at = at  # on the loop's clock
        self._cuts = cuts
        self._task = task
        self._cancelling = task.cancelling()
        self._fired = False

    def fire(self) -> None:
        """Cancel the task; ``__exit__`` takes that back."""
        self._fired = True
        self._task.cancel()
        self._cuts.pop(self, None)

    def __enter__(self) -> None:
        self._cuts[self] = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> bool:
        self._cuts.pop(self, None)
        if not self._fired:
            return False
        import asyncio

        # As asyncio.timeout does: another cancellation, from outside, goes on.
        is_ours = self._task.uncancel() <= self._cancelling
        return is_ours and kind is asyncio.CancelledError
