"""Tasks: how an asynchronous call waits, on asyncio or trio."""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ..limits import Locked
from .clock import SYSTEM_CLOCK, Waiter

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future
    from collections.abc import Awaitable
    from contextlib import AbstractContextManager

    from .clock import Queued


class Tasks(Waiter, Locked):
    """Waits of tasks, of any loop and thread."""

    async def sleep(
        self, seconds: float, *, since: float, after: float, queued: Queued | None = None
    ) -> bool:
        sleep = self._begin(seconds, since, after, queued)
        try:
            return await sleep
        finally:
            timer = self._asleep.pop(sleep, None)
            if timer is not None:
                timer.cancel()

    def _begin(
        self, seconds: float, since: float, after: float, queued: Queued | None
    ) -> Awaitable[bool]:
        # Not a coroutine function, and on asyncio a bare future: 250 bytes less per waiting call.
        seconds, is_staged = self._left(seconds, after, queued)
        if is_staged:
            return self._sleep_on_stand_in(seconds, since)
        if (loop := asyncio_loop()) is None:
            return self._sleep_on_trio(seconds, since, queued)
        sleep: Future[bool] = loop.create_future()
        ends_at = SYSTEM_CLOCK.monotonic() + seconds
        # Added first, checked second; close, in another thread, sets ``_closed_at`` first and reads
        # the waits second. So at least one of the two sees the other, and no wait is missed.
        self._asleep[sleep] = loop.call_later(seconds, self._end, loop, sleep, ends_at)
        if self._closed_at > since:
            wake(sleep, False)
        if queued is not None:  # set first, checked second: its giver does it in the other order
            queued.wake = partial(wake_from_anywhere, loop, sleep)
            if queued.is_taken:
                wake(sleep, True)
        return sleep

    def _end(self, loop: AbstractEventLoop, sleep: Future[bool], ends_at: float) -> None:
        """End a wait, unless the timer fired early: uvloop's may, by up to half a millisecond."""
        left = ends_at - SYSTEM_CLOCK.monotonic()
        if left > 0 and not sleep.done():
            self._asleep[sleep] = loop.call_later(left, self._end, loop, sleep, ends_at)
        else:
            wake(sleep, True)

    async def _sleep_on_stand_in(self, seconds: float, since: float) -> bool:
        if seconds > 0 and self._closed_at <= since:
            await self._clock.asleep(seconds)
        return self._closed_at <= since

    async def _sleep_on_trio(self, seconds: float, since: float, queued: Queued | None) -> bool:
        import anyio

        event = anyio.Event()
        # A token, since another thread may call close.
        token = self._asleep[event] = sys.modules["trio"].lowlevel.current_trio_token()
        try:
            if queued is not None:
                queued.wake = partial(token.run_sync_soon, event.set, idempotent=True)
            if self._closed_at <= since and not (queued is not None and queued.is_taken):
                with anyio.move_on_after(seconds):
                    await event.wait()
        finally:
            self._asleep.pop(event, None)
        return self._closed_at <= since

    def _wake(self, asleep: Any, ending: Any) -> None:
        if hasattr(asleep, "get_loop"):
            asleep.get_loop().call_soon_threadsafe(wake, asleep, False)
        else:
            ending.run_sync_soon(asleep.set)


def cut_after(seconds: float) -> AbstractContextManager[object, bool]:
    """Limit an attempt: after so long the block ends silently, without its last statement.

    The library's own timeouts end it in time, unless the peer keeps dripping bytes.
    """
    import anyio  # loaded with the first limit

    return anyio.move_on_after(seconds)


def wake_from_anywhere(loop: AbstractEventLoop, sleep: Future[bool]) -> None:
    """End a sleep from any thread. RuntimeError: its loop is closed."""
    from asyncio import get_running_loop

    running = None
    with suppress(RuntimeError):  # none runs here
        running = get_running_loop()
    if running is loop:
        wake(sleep, True)
    else:
        loop.call_soon_threadsafe(wake, sleep, True)


def wake(sleep: Future[bool], slept: bool) -> None:
    if not sleep.done():
        sleep.set_result(slept)


def asyncio_loop() -> AbstractEventLoop | None:
    """The running asyncio loop, None under trio (also where trio is a guest on an asyncio loop)."""
    # Another thread may be importing trio: it has no ``lowlevel`` yet, and nothing runs under it.
    lowlevel = getattr(sys.modules.get("trio"), "lowlevel", None)
    if lowlevel is not None and lowlevel.in_trio_run():
        return None
    import asyncio

    return asyncio.get_running_loop()
