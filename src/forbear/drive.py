"""Drive: carry out verdicts. Ask to send, send, judge, discard, sleep. Floor: acts.

Two loops over the same decisions, one above the other; a change in one belongs in the other. Every rule
is in core/call.py. What the loops need of an HTTP library is an ``Exchange``, one per call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from .core.verdict import GiveUp, RetryAfter

if TYPE_CHECKING:
    from .clock import Sleeper
    from .core.call import Call

__all__ = ["AsyncExchange", "Exchange", "adrive", "drive"]

Verdict = RetryAfter | GiveUp | None


class Judging(Protocol):
    """What both colours of an exchange share."""

    call: Call
    sleeper: Sleeper
    initial_delay: float  # seconds that the strategy wants before the first attempt, nearly always 0

    def admit(self) -> float:
        """Seconds to wait before sending after all, 0: send now; raise the library's refusal: do not."""
        ...

    def judge_response(self, response: Any) -> Verdict: ...
    def judge_error(self, error: Exception) -> Verdict: ...
    def surrender(self, error: Exception) -> None:
        """Attach the story to the error that is about to be raised, or raise another one from it."""
        ...

    def release(self) -> None:
        """Give back what was taken for an attempt that will not be sent."""
        ...

    def woken(self) -> Any:
        """Return or raise what the call has: its transport was closed during a wait."""
        ...


class Exchange(Judging, Protocol):
    """One call's I/O with a synchronous library."""

    def send(self) -> Any: ...
    def discard(self, response: Any) -> None: ...
    def hand_over(self, response: Any) -> Any: ...


class AsyncExchange(Judging, Protocol):
    """One call's I/O with an asynchronous library."""

    async def send(self) -> Any: ...
    async def discard(self, response: Any) -> None: ...
    async def hand_over(self, response: Any) -> Any: ...


def drive(exchange: Exchange) -> Any:
    """Send until a verdict says not to; return the response or raise the library's error."""
    delay = exchange.initial_delay
    try:
        while True:
            # A sleep of 0 costs more than the rest of a retry.
            if delay > 0 and not exchange.sleeper.sleep(delay, since=exchange.call.started_at):
                return exchange.woken()
            delay = exchange.admit()
            if delay > 0:
                continue
            try:
                response = exchange.send()
            except Exception as error:  # never BaseException: cancellation passes through
                verdict = exchange.judge_error(error)
                if not isinstance(verdict, RetryAfter):
                    exchange.surrender(error)
                    raise
            else:
                verdict = exchange.judge_response(response)
                if not isinstance(verdict, RetryAfter):
                    return exchange.hand_over(response)
                exchange.discard(response)
                del response  # half of what a waiting call would hold
            delay = verdict.delay
    finally:
        exchange.release()


async def adrive(exchange: AsyncExchange) -> Any:
    """Send until a verdict says not to; return the response or raise the library's error."""
    delay = exchange.initial_delay
    try:
        while True:
            if delay > 0:  # a sleep of 0 costs more than the rest of a retry
                nap = exchange.sleeper.lie_down(delay, since=exchange.call.started_at)
                try:
                    if not await nap:
                        return exchange.woken()
                finally:
                    exchange.sleeper.get_up(nap)
                del nap
            delay = exchange.admit()
            if delay > 0:
                continue
            try:
                response = await exchange.send()
            except Exception as error:  # never BaseException: cancellation passes through
                verdict = exchange.judge_error(error)
                if not isinstance(verdict, RetryAfter):
                    exchange.surrender(error)
                    raise
            else:
                verdict = exchange.judge_response(response)
                if not isinstance(verdict, RetryAfter):
                    return await exchange.hand_over(response)
                await exchange.discard(response)
                del response  # half of what a waiting call would hold
            delay = verdict.delay
    finally:
        exchange.release()
