"""Resumption: asking for the rest of a body, the same for every library. Floor: acts."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from ..core.headers.ranges import Part
from ..core.verdict import GiveUp, Reason

if TYPE_CHECKING:
    from ..core.call import Call
    from .port import Port

__all__ = ["begin", "distrust", "fail", "take_up"]


def begin(port: Port, call: Call, error: Exception, received: int, *, progressed: bool) -> None:
    """Get ready to ask for the rest of a body; then run the loop again with ``error``.

    The limits of the call until its answer was handed over hold no longer; ``forbear.deadline``
    does.

    Args:
        port: Of the transport.
        call: Its ``resumption`` knows the download.
        error: What broke the body.
        received: Raw octets of the body that the caller has.
        progressed: Some of them came since the body was resumed last.
    """
    resumption, context = call.resumption, call.context
    assert resumption is not None
    if progressed:
        call.patient_until = inf
        call.attempts = 1  # only the rest will be asked for: this counts as a first attempt
    now = port.clock.monotonic()
    call.deadline_at = inf if context is None else context.deadline_on(port.clock, now)
    resumption.received, resumption.progressed = received, progressed
    call.body_error = error


def take_up(port: Port, call: Call, status: int, lines: Any) -> Part:
    """Say what an accepted answer is to the download, and note it."""
    resumption = call.resumption
    assert resumption is not None
    part = resumption.download.judge(resumption.received, status, lines)
    if part is Part.OTHER:
        distrust(call)
    else:
        call.resumed += (resumption.download.first + resumption.received,)
        tell(port, call, "resumed")
    return part


def distrust(call: Call) -> None:
    """The rest belongs to another body, and the caller has the beginning of the first."""
    if call.stop is None:
        call.stop = GiveUp(Reason.RESPONSE_DELIVERED)


def fail(port: Port, call: Call, error: Exception) -> bool:
    """The rest will not come: attach the story to the error that broke the body.

    Returns:
        ``before_attempt`` has ended the call: its error is the caller's.
    """
    assert call.resumption is not None
    place = call.resumption.broke_at
    if len(call.history) > place and call.history[place].delay is not None:
        tell(port, call, "failed")
    port.with_story(call, error)
    return call.stop is not None and call.stop.reason is Reason.HOOK_FAILED


def tell(port: Port, call: Call, result: str) -> None:
    assert call.resumption is not None
    download, received = call.resumption.download, call.resumption.received
    offset = download.first + received
    port.settings.tell.resumed(call, offset, download.complete, result, call.listeners)
