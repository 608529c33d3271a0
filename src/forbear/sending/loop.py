"""Loop: send, judge, discard, wait, until what came is what the caller gets. Floor: acts.

Two loops over the same decisions, one above the other; a change in one belongs in the other. Every
rule is in core/decide.py; all that differs between libraries is behind the ``Port``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.decide import decide
from ..core.verdict import RENEW, GiveUp, Retry
from .errors import bare
from .holding import admit, give_back

if TYPE_CHECKING:
    from ..core.call import Call
    from ..core.outcome import Failure
    from .port import Port

__all__ = ["arun", "run"]

RENEWAL = -1.0  # in place of seconds: the budget is to be renewed, then the same failure settled


def run(call: Call, port: Port) -> Any:
    """Send until a verdict says not to; return the response or raise the library's error.

    Args:
        call: What is sent, and its state; ``live`` is the response or exception of the first
            attempt, if that was sent already.
        port: The library.
    """
    try:
        outcome = call.live  # None: the next attempt is still to be sent
        wait = port.enter(call) if outcome is None else 0.0
        while True:
            if outcome is None:
                if wait > 0 and not port.sleep(wait, since=call.started_at):
                    return port.closed(call) if call.place is None else give_back(call, port)
                if call.place is not None or call.limits.follows:
                    longer = admit(call, port)
                    if longer is None:
                        return give_back(call, port)
                    if longer > 0:
                        wait = longer
                        continue
                try:
                    outcome = port.send(call)
                except Exception as error:  # never BaseException: cancellation passes through
                    if not call.is_under_way:  # not sent: by the deadline, or a hook that raised
                        raise
                    outcome = error
            if call.looks and not isinstance(outcome, Exception):
                outcome = port.look(call, outcome)
            failed = isinstance(outcome, Exception)
            failure = port.judge_error(call, outcome) if failed else port.judge(call, outcome)
            seconds = settle(call, port, failure)
            if seconds is RENEWAL:
                port.renew(call)
                seconds = settle(call, port, failure, renewed=True)
            if seconds is None:
                if failed:
                    raise port.last_error(call, outcome)
                return port.hand_over(call, outcome)
            if not failed:
                if call.place is None or call.resumption is not None:
                    port.discard(call, outcome)
                elif not port.keep(call, outcome):
                    return give_back(call, port)
            # The response would be half of the memory that a waiting call holds.
            wait, outcome, call.live = seconds, None, None
    except BaseException:  # interrupted, most likely in a listener or a hook of the user's
        if call.live is not None:
            port.let_go(call.live)
        raise
    finally:
        outcome = None  # an error's traceback leads here
        try:
            if call.paid or call.permit or call.place is not None or call.token is not None:
                call.limits.leave(call, port.clock.monotonic())
            if port.hears_ends or call.plugin_error is not None:
                port.ended(call)
            call.live = None
        except BaseException:  # interrupted at the last
            port.abandon(call)
            raise


async def arun(call: Call, port: Port) -> Any:
    """Send until a verdict says not to; return the response or raise the library's error."""
    try:
        outcome = call.live  # None: the next attempt is still to be sent
        wait = port.enter(call) if outcome is None else 0.0
        while True:
            if outcome is None:
                if wait > 0 and not await port.sleep(wait, since=call.started_at):
                    return port.closed(call) if call.place is None else await give_back(call, port)
                if call.place is not None or call.limits.follows:
                    longer = admit(call, port)
                    if longer is None:
                        return await give_back(call, port)
                    if longer > 0:
                        wait = longer
                        continue
                try:
                    outcome = await port.send(call)
                except Exception as error:  # never BaseException: cancellation passes through
                    if not call.is_under_way:  # not sent: by the deadline, or a hook that raised
                        raise
                    outcome = error
            if call.looks and not isinstance(outcome, Exception):
                outcome = await port.look(call, outcome)
            failed = isinstance(outcome, Exception)
            failure = port.judge_error(call, outcome) if failed else port.judge(call, outcome)
            seconds = settle(call, port, failure)
            if seconds is RENEWAL:
                await port.renew(call)
                seconds = settle(call, port, failure, renewed=True)
            if seconds is None:
                if failed:
                    raise port.last_error(call, outcome)
                return await port.hand_over(call, outcome)
            if not failed:
                if call.place is None or call.resumption is not None:
                    await port.discard(call, outcome)
                elif not await port.keep(call, outcome):
                    return await give_back(call, port)
            # The response would be half of the memory that a waiting call holds.
            wait, outcome, call.live = seconds, None, None
    except BaseException:  # interrupted, most likely in a listener or a hook of the user's
        if call.live is not None:
            await port.let_go(call.live)
        raise
    finally:
        outcome = None  # an error's traceback leads here
        try:
            if call.paid or call.permit or call.place is not None or call.token is not None:
                call.limits.leave(call, port.clock.monotonic())
            if port.hears_ends or call.plugin_error is not None:
                port.ended(call)
            call.live = None
        except BaseException:  # interrupted at the last
            await port.abandon(call)
            raise


def settle(
    call: Call, port: Port, failure: Failure | None, *, renewed: bool = False
) -> float | None:
    """Judge one outcome.

    Returns:
        Seconds until the next attempt; None: what came is what the caller gets; ``RENEWAL``.
    """
    now = port.clock.monotonic()
    if not renewed:
        call.limits.observe(call, failure, now)  # every attempt, whoever decides about it
    if failure is not None:
        verdict = decide(call, failure, now)
        if type(verdict) is Retry:
            call.note(failure, verdict, now)
            if call.last_error is not None:
                bare(call.last_error)
            port.tell.retried(call, failure, verdict, now)
            return verdict.delay
        if verdict is RENEW:
            return RENEWAL
        if verdict is not None or failure.status is None:
            call.note(failure, verdict, now)
            if type(verdict) is GiveUp:
                port.gave_up(call, failure, verdict, now)
            return None
        call.status = failure.status  # of an answer that nobody calls a failure
    call.accept(now)
    if call.token is not None:
        call.limits.accept(call, now)
    return None
