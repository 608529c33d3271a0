"""Loop: send, classify, discard, wait, until the outcome is what the caller gets.

Written once, as a coroutine; ``drive`` runs it over the port of a synchronous transport. Every rule
is in core/decide.py; all that differs between libraries is behind the ``Port``. While the gate
holds a call, because its origin is unhealthy, the call sleeps and checks again; its last outcome, a
response or an error, is kept meanwhile. A cooldown or a circuit breaker may hold it too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ..core.call import DELAYED_BY, IN_FLIGHT, IN_QUEUE, INSPECTED, KEPT, PREPARED_FOR
from ..core.decide import decide, relies_on_key
from ..core.outcome import GiveUp, Reason, SendAgain
from ..errors import RetryRefused
from .calls import end_attempt, ended, is_done, not_retried, notify_outer_loops
from .driver import classify, closed, hand_over, inspected, keep, last_error, run_hook, send, sleep
from .errors import drop_frames
from .settings import OFF

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ..core.call import Call, Hold
    from ..core.outcome import Failure
    from .port import CommonPort, Port, Req, Resp
    from .settings import Settings

T = TypeVar("T")


def enter(port: CommonPort, call: Call) -> float:
    """Check the limits before the first attempt; return seconds to wait, nearly always 0.

    Raises:
        The library's DeadlineExceeded or CircuitOpenError: nothing is sent.
    """
    now = call.started_at
    try:
        delay = call.limits.begin(call, 0.0, now)
        if delay > 0 and delay > call.deadline_at - now:
            raise RetryRefused(Reason.DEADLINE, send=False, retry_after=delay)
        return delay
    except RetryRefused as refused:
        from .refusals import refusal

        raise refusal(port, call, refused) from None


def admit(call: Call, port: CommonPort) -> float | None:
    """Return seconds until the next check, 0 if the attempt may be sent, None if it never may.

    Raises:
        The library's CircuitOpenError or DeadlineExceeded: the attempt must not be sent.
    """
    settings = port.settings
    planned, hold, now = call.origin, call.hold, settings.clock.monotonic()
    call.decided_at = now
    try:
        delay: float | None = call.limits.admit(call, now)
        is_in_queue = call.notes.pop(IN_QUEUE, False)
        if hold is not None:
            if delay:  # it is still held
                settings.sleeper.goes_on(call.sent_at)
                return delay
            released(call, settings, hold, now, may_go=delay is not None)
        elif delay and not is_in_queue:
            check_wait(call, settings, delay, now)
        elif delay:  # in a queue, whose limit knows how long it may wait; in parts
            settings.sleeper.goes_on(call.started_at)
    except RetryRefused as refused:
        if call.hold is not None:
            released(call, settings, call.hold, now, may_go=False)
        from .refusals import refusal

        raise refusal(port, call, refused) from call.last_error
    # Not emitted for first attempts: while a circuit is open, every call would emit one.
    if call.origin != planned and call.history:
        settings.events.emit("failover", call, origin=planned, last=None)
    if delay == 0 and DELAYED_BY in call.notes:
        for limit, seconds in call.notes.pop(DELAYED_BY):
            settings.events.emit("attempt_delayed", call, now, limit=limit, delay=seconds)
    return delay


def released(call: Call, settings: Settings, hold: Hold, now: float, *, may_go: bool) -> None:
    """Note for how long the call was held, and emit why it is released."""
    call.hold = None
    if not may_go:
        call.stop = hold.refusal
    seconds = max(0.0, now - hold.ready_at)
    call.add_to_story("held", seconds)
    call.add_wait(seconds)
    settings.events.emit("released", call, now, cause=str(hold.cause), held=seconds)


def check_wait(call: Call, settings: Settings, delay: float, now: float) -> None:
    """Refuse a further wait that does not fit; else note it in the history."""
    if delay > call.deadline_at - now:
        raise RetryRefused(Reason.DEADLINE, send=False, retry_after=delay)
    if call.history:
        if relies_on_key(call) and now + delay > call.key_until:
            raise RetryRefused(Reason.KEY_EXPIRED, send=False, retry_after=delay)
        call.add_wait(delay)
        settings.sleeper.goes_on(call.sent_at)


def end_held(call: Call, port: Port[Req, Resp]) -> Resp | None:
    """End a call that may be held no longer with its last outcome.

    Returns:
        The response, which was kept; None: an error ends the call.
    """
    settings = port.settings
    if call.hold is not None:  # its response is too long to keep, or the transport was closed
        call.stop = call.hold.refusal
        call.history[-1] = call.history[-1]._replace(delay=None, source=None)
    if call.stop is None:  # the transport was closed
        return None
    notify_outer_loops(settings, call, call.stop.reason)
    settings.events.emit("gave_up", call, settings.clock.monotonic())
    kept: Resp | None = call.notes.pop(KEPT, None)
    return kept


def drive(coroutine: Coroutine[object, None, T]) -> T:
    """Run a coroutine over a synchronous port: none of its methods suspends, so it ends at once."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    except RuntimeError as error:
        # Python puts it around a StopIteration that leaves a coroutine: of a hook of the user's.
        if isinstance(error.__cause__, StopIteration):
            raise error.__cause__ from None
        raise
    except BaseException:
        coroutine.close()  # interrupted before its first line: Python would warn
        raise
    coroutine.close()
    raise RuntimeError("something asynchronous was awaited on a synchronous client")


def drive_call(call: Call, port: Port[Req, Resp]) -> Resp:
    """Run a call over a synchronous port."""
    handed: list[Resp] = []
    coroutine = run(call, port, handed)
    try:
        return drive(coroutine)
    except BaseException:
        for response in handed:  # interrupted after its last line: nobody else has the response
            drive(port.close_unused(response))
        raise


async def run(call: Call, port: Port[Req, Resp], handed: list[Resp] | None = None) -> Resp:
    """Send until a verdict ends the call; return the response or raise the library's error.

    ``call.live`` is the outcome of the first attempt, if that was sent already. ``handed`` gets
    what is returned too, before it is.

    Returns:
        What the caller gets.
    """
    settings = port.settings
    try:
        outcome: Resp | Exception | None = call.live  # None: the next attempt is yet to be sent
        wait = enter(port, call) if outcome is None else 0.0
        # A call from the first attempt on only because of a layer: as on the fast path, no limit
        # has to admit that, or to observe its success.
        is_plain = outcome is None and settings.shared_in_layers.quiet and wait == 0
        is_plain = is_plain and not (call.history or settings.wants_ends)
        while True:
            if outcome is None:
                if wait > 0 and not await sleep(port, wait, call):
                    break
                longer = 0.0 if is_plain else admit(call, port)
                if longer is None:
                    break
                if longer > 0:
                    wait = longer
                    continue
                if call.awaits_hook:
                    await run_hook(port, call)
                    wait, call.notes[PREPARED_FOR] = 0.0, call.origin
                    continue
                if KEPT in call.notes:
                    await port.close_unused(call.notes.pop(KEPT))
                try:
                    outcome = await send(port, call)
                except Exception as error:  # never BaseException: cancellation passes through
                    if not call.is_under_way:  # not sent: by the deadline, or a hook that raised
                        raise
                    outcome = error
            if is_plain and not isinstance(outcome, Exception) and is_done(port, call, outcome):
                return noted(handed, outcome)
            is_plain = False
            if not call.notes.pop(INSPECTED, False):
                outcome = await inspected(port, call, outcome)
            seconds = settle(call, settings, await classify(port, call, outcome))
            if seconds is None:
                if isinstance(outcome, Exception):
                    raise last_error(port, call, outcome)
                return noted(handed, await hand_over(port, call, outcome))
            if not await keep(port, call, outcome):
                break
            if IN_FLIGHT in call.notes:
                end_attempt(call)
            # Dropped, since the response would be half of the memory that a waiting call holds.
            wait, outcome, call.live = seconds, None, None
        kept = end_held(call, port)
        if kept is None:
            raise closed(port, call)
        return noted(handed, await hand_over(port, call, kept))
    except BaseException:  # interrupted, most likely in a listener or a hook of the user's
        if IN_FLIGHT in call.notes:  # also if it was to be the body's
            end_attempt(call)
        if call.live is not None:
            await port.close_unused(call.live)
        raise
    finally:
        # An error's traceback holds this frame, and ``outcome`` the error: without this the two
        # would keep each other, and the pool with its sockets, until the garbage collector runs.
        outcome = None
        try:
            call.limits.leave(call, settings.clock.monotonic())
            ended(settings, call)
            call.live = None
        except BaseException:  # interrupted here too: tokens and permits must still be returned,
            # and before the response is closed, because closing may be interrupted again
            call.limits.leave(call, settings.clock.monotonic())
            await port.close_unused(call.live)
            raise


def noted(handed: list[Resp] | None, response: Resp) -> Resp:
    if handed is not None:
        handed.append(response)
    return response


def settle(call: Call, settings: Settings, failure: Failure | None) -> float | None:
    """Decide on one outcome.

    Returns:
        Seconds until the next attempt; None: the caller gets this outcome.
    """
    now = settings.clock.monotonic()
    call.limits.observe(call, failure, now)
    if failure is not None:
        verdict = decide(call, failure, now)
        if isinstance(verdict, SendAgain):
            call.decided_at = now
            delay, source = verdict
            call.note(failure, now, delay, source)
            if settings.rewrites:
                call.notes[PREPARED_FOR] = ""
            if call.last_error is not None:
                drop_frames(call.last_error)
            settings.events.failed(call, now)
            return delay
        if verdict is not None or failure.status is None:
            call.end(failure, verdict, now)
            if type(verdict) is GiveUp:
                notify_outer_loops(settings, call, verdict.reason)
                if call.policy is not OFF:
                    settings.events.failed(call, now)
            return None
        call.status = failure.status  # of a response that the policy accepts
        not_retried(settings, call, failure.status)
    call.end(None, None, now)
    return None
