"""Awaiting: what asynchronous ports do alike, whatever their library. Floor: acts."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..core.call import Call
    from ..sending.backstop import Backstop

__all__ = ["Awaiting"]


class Awaiting:
    """The part of an asynchronous port that waits: between attempts, and for hooks."""

    backstop: Backstop
    clock: Any
    sleeper: Any
    settings: Any
    before_attempt: Any
    expired: Any
    hook_raised: Any

    async def sleep(self, seconds: float, *, since: float) -> bool:
        sleep = self.sleeper.begin_sleep(seconds, since=since)
        try:
            return await sleep  # type: ignore[no-any-return]
        finally:
            self.sleeper.end_sleep(sleep)

    async def renew(self, call: Call) -> None:
        from .httpx_renewal import renew_in_thread

        try:
            await renew_in_thread(call, self.clock)
        except Exception as error:
            self.settings.tell.hook_failed(self.settings.plugin_name, error)

    async def call_hook(self, call: Call, request: Any) -> None:
        """Let ``before_attempt`` see the request that is to be sent.

        Raises:
            Whatever it raises, and the library's DeadlineExceeded: nothing is sent.
        """
        try:
            answer = self.before_attempt(request, call.attempts + 1)
            if not hasattr(answer, "__await__"):
                return
            if call.deadline_at == inf:
                await answer  # may be cancelled; then nothing was sent
                return
            with self.backstop.after(call.deadline_at - self.clock.monotonic()):
                await answer
                return
        except Exception as error:
            self.hook_raised(call, error)
            raise
        raise self.expired(call)
