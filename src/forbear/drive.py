"""Drive: carry out verdicts. Ask to send, send, judge, renew, discard, sleep. Floor: acts.

Two loops over the same decisions, one above the other; a change in one belongs in the other. Every
rule is in core/call.py. What the loops need of an HTTP library is an ``Exchange``, one per call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from .core.verdict import Renew, RetryAfter

if TYPE_CHECKING:
    from .core.call import Call
    from .core.verdict import Verdict
    from .sending.clock import Sleeper

__all__ = ["AsyncExchange", "Exchange", "adrive", "drive"]


class Judging(Protocol):
    """What both colours of an exchange share."""

    call: Call
    sleeper: Sleeper
    initial_delay: (
        float  # seconds that the strategy wants before the first attempt, nearly always 0
    )

    def admit(self) -> float:
        """Seconds to wait before sending after all, 0: send now; raise the library's refusal: do
        not.
        """
        ...

    def judge_response(self, response: Any) -> Verdict: ...
    def judge_error(self, error: Exception) -> Verdict: ...
    def needs_renewal(self) -> bool: ...
    def time_left(self) -> float:
        """Seconds until the deadline, infinite if there is none."""
        ...

    def renew(self) -> None:
        """Let the strategy borrow over the network; from any thread, never raises."""
        ...

    def judge_renewed(self, error: Exception | None) -> Verdict:
        """Go on judging what was answered with ``Renew``, an error or an answer."""
        ...

    def surrender(self, error: Exception) -> None:
        """Attach the story to the error that is about to be raised, or raise another one from
        it.
        """
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
                if isinstance(verdict, Renew):
                    verdict = renewed(exchange, error)
                if not isinstance(verdict, RetryAfter):
                    exchange.surrender(error)
                    raise
            else:
                verdict = exchange.judge_response(response)
                if isinstance(verdict, Renew):
                    verdict = renewed(exchange, None, response)
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
                if isinstance(verdict, Renew):
                    verdict = await arenewed(exchange, error)
                if not isinstance(verdict, RetryAfter):
                    exchange.surrender(error)
                    raise
            else:
                verdict = exchange.judge_response(response)
                if isinstance(verdict, Renew):
                    verdict = await arenewed(exchange, None, response)
                if not isinstance(verdict, RetryAfter):
                    return await exchange.hand_over(response)
                await exchange.discard(response)
                del response  # half of what a waiting call would hold
            delay = verdict.delay
    finally:
        exchange.release()


def renewed(exchange: Exchange, error: Exception | None, response: Any = None) -> Verdict:
    """Renew, then judge on."""
    try:
        exchange.renew()
    except BaseException:
        if response is not None:
            exchange.discard(response)
        raise
    return exchange.judge_renewed(error)


async def arenewed(
    exchange: AsyncExchange, error: Exception | None, response: Any = None
) -> Verdict:
    """Renew in a thread, one call after the other, since who comes later may find it done; then
    judge on.

    The threads are not those of the application, which may all be busy. A call that is cancelled,
    or whose deadline comes, does not wait for its thread.
    """
    import anyio.lowlevel
    import anyio.to_thread

    global turns  # noqa: PLW0603  # not made above, since this module loads anyio late
    if turns is None:
        turns = anyio.lowlevel.RunVar("forbear.renewals")
    turn, threads = turns.get(None) or (anyio.Lock(), anyio.CapacityLimiter(RENEWING))
    turns.set((turn, threads))
    try:
        with anyio.move_on_after(exchange.time_left()):
            async with turn:
                if exchange.needs_renewal():
                    await anyio.to_thread.run_sync(
                        exchange.renew, limiter=threads, abandon_on_cancel=True
                    )
    except BaseException:
        if response is not None:
            with anyio.CancelScope(shield=True):
                await exchange.discard(response)
        raise
    return exchange.judge_renewed(error)


RENEWING = (
    8  # threads per event loop: one at work, the others of calls that did not wait for its end
)
turns: Any = None  # per event loop: a lock and a limiter
