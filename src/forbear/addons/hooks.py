"""Hooks: ``before_attempt``, called before each retry; loaded where that option is given."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from ..core.feature_checks import check_takes
from ..core.outcome import GiveUp, Reason
from ..engine.calls import with_story
from ..engine.refusals import expired

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.call import Call
    from ..engine.port import Classifier, Port, Response


def check(function: object) -> object:
    """Check the option."""
    check_takes("before_attempt", function, "request", "attempt")
    return function


def hook_raised(port: Classifier, call: Call, error: Exception) -> None:
    """End the call by what ``before_attempt`` raised: an unsigned request must not go out."""
    call.stop = GiveUp(Reason.HOOK_FAILED)
    port.settings.events.emit("gave_up", call, port.settings.clock.monotonic())
    with_story(port, call, error)


async def rewrite(
    hook: Callable[[object, int], object], port: Port[Response], call: Call, request: object
) -> None:
    """Call ``before_attempt`` with the request that is to be sent; await it, if the port does.

    Raises:
        Whatever it raises, and the library's DeadlineExceeded: nothing is sent.
    """
    settings = port.settings
    try:
        result: Any = hook(request, call.attempts + 1)
        if port.backstop is None or not hasattr(result, "__await__"):
            return
        if call.deadline_at == inf:
            await result  # may be cancelled; then nothing was sent
            return
        with port.backstop(call.deadline_at - settings.clock.monotonic()):
            await result
            return
    except Exception as error:
        hook_raised(port, call, error)
        raise
    raise expired(port, call)
