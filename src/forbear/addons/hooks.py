"""Hooks: ``before_attempt``, called before each retry; loaded where that option is given."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ..core.feature_checks import check_takes
from ..core.outcome import GiveUp, Reason
from ..engine.calls import with_story
from ..engine.refusals import expired

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.call import Call
    from ..engine.port import Port, Req, Resp


def check(function: Callable[..., object]) -> Callable[..., object]:
    """Check the option."""
    check_takes("before_attempt", function, "request", "attempt")
    return function


async def rewrite(
    hook: Callable[[object, int], object], port: Port[Req, Resp], call: Call, request: object
) -> None:
    """Call ``before_attempt`` with the request that is to be sent; await it, if the port does.

    Raises:
        Whatever it raises, and the library's DeadlineExceeded: nothing is sent.
    """
    now = port.settings.clock.monotonic
    try:
        result = hook(request, call.attempts + 1)
        if port.backstop is None or not isinstance(result, Awaitable):
            return
        with port.backstop(call.deadline_at - now()):
            await result  # may be cancelled; then nothing was sent
            return
    except Exception as error:  # an unsigned request must not go out
        call.stop = GiveUp(Reason.HOOK_FAILED)
        port.settings.events.emit("gave_up", call, now())
        with_story(port, call, error)
        raise
    raise expired(port, call)
