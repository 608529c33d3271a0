"""Renewal: let a fleet's budget borrow more without holding up an event loop. Floor: acts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import anyio.to_thread

if TYPE_CHECKING:
    from ..core.call import Call
    from ..sending.clock import Clock

__all__ = ["renew_in_thread"]

THREADS = 8  # per event loop: one at work, the others for calls that did not wait for its end
per_loop: anyio.lowlevel.RunVar[Any] = anyio.lowlevel.RunVar("forbear.renewals")


async def renew_in_thread(call: Call, clock: Clock) -> None:
    """Renew one call after the other, since a later call may find the budget renewed.

    The threads are not the application's, which may all be busy. A call that is cancelled, or whose
    deadline comes, does not wait for its thread.
    """
    lock, threads = per_loop.get(None) or (anyio.Lock(), anyio.CapacityLimiter(THREADS))
    per_loop.set((lock, threads))
    with anyio.move_on_after(call.deadline_at - clock.monotonic()):
        async with lock:
            if call.limits.is_dry(call, clock.monotonic()):
                await anyio.to_thread.run_sync(
                    call.limits.renew, call, limiter=threads, abandon_on_cancel=True
                )
