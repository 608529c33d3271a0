"""Awaiting: what asynchronous ports do alike, whatever their library. Floor: acts."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from ..core.headers.ranges import Part
from ..sending.errors import Interrupted

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
    discard: Any
    expired: Any
    finish: Any  # (call, response): what of a hand-over needs no I/O
    hook_raised: Any
    rest_of: Any  # (call, response): what an answer is to the download that is being resumed
    status_error: Any  # (call, response, body)
    wants_status_error: Any

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

    async def hand_over(self, call: Call, response: Any) -> Any:
        if call.resumption is not None:
            part = self.rest_of(call, response)
            if part is Part.CONTINUES:
                return response
            await self.discard(call, response)
            if part is Part.COMPLETE:
                return None
            raise Interrupted
        self.finish(call, response)
        if call.stop is not None and self.wants_status_error(call):
            body = await self.discard(call, response)
            # No name for the error here: its traceback would hold the frame that holds it.
            raise self.status_error(call, response, body)
        return response
