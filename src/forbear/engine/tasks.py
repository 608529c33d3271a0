"""Tasks: how an asynchronous call waits, on asyncio or trio."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from functools import partial
from math import inf
from types import MethodType
from typing import TYPE_CHECKING

from ..limits import Locked
from .clock import SYSTEM_CLOCK, Waiter

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future
    from contextlib import AbstractContextManager

    from .clock import Clock, Queued


class Tasks(Waiter, Locked):
    """Waits of tasks, of any loop and thread."""

    async def _wait(self, seconds: float, since: float, queued: Queued | None) -> None:
        loop = asyncio_loop()
        if loop is None:
            await self._wait_on_trio(seconds, since, queued)
            return
        sleep = loop.create_future()
        timer = loop.call_later(seconds, end, sleep, SYSTEM_CLOCK.monotonic() + seconds)
        wake = MethodType(end_soon, sleep)  # 200 bytes less for each wait than a partial
        try:
            self._add(wake, since, queued)
            await sleep
        finally:
            timer.cancel()
            self._asleep.discard(wake)

    async def _wait_on_trio(self, seconds: float, since: float, queued: Queued | None) -> None:
        import anyio

        event, token = anyio.Event(), sys.modules["trio"].lowlevel.current_trio_token()
        wake = partial(token.run_sync_soon, event.set, idempotent=True)
        try:
            self._add(wake, since, queued)
            with anyio.move_on_after(seconds):
                await event.wait()
        finally:
            self._asleep.discard(wake)

    async def _pass(self, clock: Clock, seconds: float) -> None:
        await clock.asleep(seconds)


def end_soon(sleep: Future[None]) -> None:
    """End a wait, from any thread."""
    sleep.get_loop().call_soon_threadsafe(end, sleep)


def end(sleep: Future[None], ends_at: float = -inf) -> None:
    """End a wait, unless its timer fired early: uvloop's may, by up to half a millisecond."""
    left = ends_at - SYSTEM_CLOCK.monotonic()
    if sleep.done():
        return
    if left > 0:
        sleep.get_loop().call_later(left, end, sleep, ends_at)
    else:
        sleep.set_result(None)


def cut_after(seconds: float) -> AbstractContextManager[object, bool]:
    """Limit an attempt: after so long the block ends silently, without its last statement.

    The library's own timeouts end it in time, unless the peer keeps dripping bytes.
    """
    if seconds == inf:
        return nullcontext()  # type: ignore[return-value]
    import anyio  # loaded with the first limit

    return anyio.move_on_after(seconds)


def asyncio_loop() -> AbstractEventLoop | None:
    """The running asyncio loop, None under trio (also where trio is a guest on an asyncio loop)."""
    # Another thread may be importing trio: it has no ``lowlevel`` yet, and nothing runs under it.
    lowlevel = getattr(sys.modules.get("trio"), "lowlevel", None)
    if lowlevel is not None and lowlevel.in_trio_run():
        return None
    import asyncio

    return asyncio.get_running_loop()
