"""Race: a first attempt over the httpx family, and the second one beside it. Floor: acts.

The first attempt runs in the caller's task. An alarm starts the second one in a task of its own.
The first good answer wins: it cancels the other attempt, and the call waits until that one's
connection is given back. If both fail, the later one decides.
"""

from __future__ import annotations

from asyncio import Task
from contextlib import suppress
from contextvars import copy_context
from math import inf
from typing import TYPE_CHECKING, Any

from ..core.call import Attempt
from ..core.decide import is_failure
from ..core.record import HedgeNotes
from ..sending.backstop import spawn_on_trio
from ..sending.errors import Raced, bare
from .httpx_errors import close_lost, free_lost_slots
from .httpx_request import LEAST

if TYPE_CHECKING:
    from ..core.call import Call
    from ..core.outcome import Failure
    from ..shared.hedge import Times

__all__ = ["TASKS_HIDE_CONTEXT", "Race"]

CANCEL = 8  # RFC 9113 section 7
STOPS = frozenset({429, 503})  # the origin has too much already
# Refusals that no later moment changes.
FINAL = frozenset({"attempts-exhausted", "cancelled", "deadline", "origin-strained"})
TASKS_HIDE_CONTEXT = not hasattr(Task, "get_context")  # in Python 3.11


class Race:
    """A first attempt that may be hedged, and its second one. An alarm at ``at``.

    Attributes:
        task: The caller's, on asyncio; None on trio.
        scope: Around the first attempt, on trio.
        context: The variables of the caller, for the second attempt.
        call: The questions that a decision asks; made when the alarm rings first.
        second: The second attempt; None: it was refused.
        refusal: Why it was refused when it was wanted last.
        has_won: The second attempt has answered well, and cancels the first one.
        first_ended: The first attempt is over.
    """

    __slots__ = (
        "at", "call", "context", "first_ended", "has_won", "hedging", "refusal", "request", "scope",
        "second", "started_at", "task", "times",
    )  # fmt: skip
    at: float
    call: Call
    context: Any
    first_ended: bool
    has_won: bool
    hedging: Any
    refusal: str | None
    request: Any
    scope: Any
    second: Second | None
    started_at: float
    task: Any
    times: Times

    async def send_in_scope(self) -> Any:
        """Send the first attempt on trio; None: the second one has cancelled it."""
        import anyio

        self.context = copy_context()
        with anyio.CancelScope() as self.scope:
            return await self.hedging.inner.handle_async_request(self.request)
        return None

    def ring(self) -> None:
        """Start the second attempt, or ask again half a delay later."""
        hedging = self.hedging
        if not hasattr(self, "call"):
            self._begin()
        if self.task is not None and self.task.cancelling():
            self.refusal = "cancelled"  # by its caller: the cancellation is on its way
        else:
            self.refusal = hedging.refuses(self.call, self.times)
        if self.refusal is not None:
            self.at = inf if self.refusal in FINAL else self.at + self.times.delay / 2
            return
        self.at, self.second = inf, Second(self)
        if self.task is not None:
            self.second.start_on(self.task.get_loop(), self.context)
        else:
            spawn_on_trio(self.second.run, self.context)

    def _begin(self) -> None:
        self.second, self.has_won, self.first_ended = None, False, False
        if self.task is not None and not TASKS_HIDE_CONTEXT:
            self.context = self.task.get_context().copy()
        self.call = self.hedging.call_of(self)

    def failure_of(self, outcome: Any) -> Failure | None:
        """Judge an answer or an error; None: it is good."""
        port, call = self.hedging.port, self.call
        if isinstance(outcome, Exception):
            return port.meaning(call, outcome)  # type: ignore[no-any-return]
        failure: Failure | None = port.judge(call, outcome)
        if failure is not None and not is_failure(call.policy, call.request, failure):
            return None
        return failure

    def win(self) -> None:
        """Let the good answer of the second attempt cancel the first one."""
        if self.task is None:
            self.has_won = True
            self.scope.cancel()
        elif not self.task.cancelling():  # else another cancellation would break into that one
            self.has_won = True
            self.task.cancel()

    async def end(self, first: Any) -> None:
        """End the race when the first attempt is over.

        Args:
            first: An answer or error, which is all that came, unless Raced is raised.

        Raises:
            Raced: The outcome of both attempts.
        """
        # A task holds what it has raised, and that the frames which hold the race.
        task, second, self.task, self.second = self.task, self.second, None, None
        clock = self.hedging.clock
        elapsed = clock.monotonic() - self.started_at
        if second is None:
            self.tell("refused", None)
            if not isinstance(first, BaseException) and first.status_code < 400:
                self.times.learn(elapsed, clock.monotonic())
            return
        self.first_ended = True
        try:
            settled = await self._settle(first, second, task)
        except BaseException:  # the call is cancelled
            try:
                await second.stop()
            finally:
                await self.let_go(first)
            self.tell("cancelled", second, second.note(), "hedge")
            raise
        finally:
            if second.sent_at is None:
                self.hedging.give_back(self.call, self.times)
        if settled is None:
            self.tell("cancelled", second, second.note(), "hedge")
            return
        failure, second_decides = settled
        status = getattr(first, "status_code", None)
        if self.has_won or (failure is None and first.status_code < 400):
            # Of a first attempt that was cancelled, ``elapsed`` is a lower bound.
            self.times.learn(elapsed, clock.monotonic())
        if second.sent_at is None:  # ``before_attempt`` has raised, or it was too late
            self.tell("failed" if second.has_raised else "cancelled", second)
            return
        loser = second.note()
        if second_decides:
            loser = Attempt(status, failure, elapsed, None, None, self.call.sent_to)
            if isinstance(first, Exception):
                bare(first)
        outcome = "cancelled" if second.failure is None else "failed"
        if second_decides and second.failure is None:
            outcome = "won"
        self.tell(outcome, second, loser, "first" if second_decides else "hedge")
        notes = HedgeNotes(second.sent_at - self.started_at, second_decides, loser)
        raise Raced(
            notes, second.take() if second_decides else first, second, self.call.number
        ) from None

    async def _settle(
        self, first: Any, second: Second, task: Any
    ) -> tuple[Failure | None, bool] | None:
        """Return why the first attempt failed, and whether the second one decides the call.

        None: the call is cancelled.
        """
        is_cancelled = isinstance(first, BaseException) and not isinstance(first, Exception)
        # As asyncio.timeout does; a scope of trio takes its own cancellation back.
        is_ours = self.has_won and task is not None and task.uncancel() == 0
        if is_cancelled and not is_ours:
            await second.stop()
            return None
        if self.has_won:
            await self.let_go(first)
            reset_lost(self.hedging.inner)
            if is_ours:
                await close_lost(self.hedging.inner)
            return None, True
        failure = self.failure_of(first)
        has_time = self.hedging.clock.monotonic() < self.call.deadline_at - LEAST
        if failure is not None and has_time and not stops(failure) and await second.goes_on():
            await self.let_go(first)
            return failure, True
        await second.stop()
        return failure, False

    async def let_go(self, outcome: Any) -> None:
        """Close an answer that nobody gets. How its closing fails is no outcome of the call."""
        if not isinstance(outcome, BaseException):
            with suppress(Exception):
                await self.hedging.port.let_go(outcome)

    def tell(
        self,
        outcome: str,
        second: Second | None,
        loser: Attempt | None = None,
        kind: str | None = None,
    ) -> None:
        """Tell how the second attempt ended; ``loser`` is the attempt that did not decide."""
        sent_at = None if second is None else second.sent_at
        kind = None if sent_at is None else kind
        after = (sent_at or self.hedging.clock.monotonic()) - self.started_at
        self.hedging.port.tell.hedged(self.call, outcome, after, loser, kind, self.refusal)


class Second:
    """A second attempt, in a task of its own.

    Attributes:
        sent_at: When it was sent; None: it was not.
        response: Its answer, unless that is closed or handed over.
        error: What it raised after the first attempt was over.
        failure: Why it did not succeed.
        has_raised: ``before_attempt`` did, and it was not sent.
        is_over: Its task has nothing more to do.
    """

    def __init__(self, race: Race) -> None:
        self.race = race
        self.origin = race.call.origin
        self.request: Any = None
        self.sent_at: float | None = None
        self.ended_at = 0.0
        self.response: Any = None
        self.error: Exception | None = None
        self.failure: Failure | None = None
        self.is_over = self.has_raised = False
        self._scope: Any = None
        self._done: Any = None

    def start_on(self, loop: Any, context: Any) -> None:
        """Start on asyncio."""
        task = loop.create_task(self.run(), context=context)
        self._task = task  # the loop keeps no strong reference
        task.add_done_callback(self._over)  # also if it was cancelled before it began

    def _prepare(self) -> None:
        if self._done is None:  # not in an alarm: anyio wants a task
            import anyio

            self._scope, self._done = anyio.CancelScope(), anyio.Event()

    async def run(self) -> None:
        """Send, judge, and win if the first attempt is still under way."""
        race, hedging = self.race, self.race.hedging
        now = hedging.clock.monotonic
        self._prepare()
        try:
            with self._scope:
                self.request = await hedging.second_request(race)
                if not self._scope.cancel_called:
                    self.sent_at = now()
                    self.response = await hedging.inner.handle_async_request(self.request)
        except Exception as error:
            if self.sent_at is None:
                self.has_raised = True
                hedging.port.tell.hook_failed("before_attempt", error)
            else:
                self.failure = race.failure_of(error)
                if race.first_ended:
                    self.error = error
                else:
                    bare(error)
        self.ended_at = now()
        try:
            if self.response is not None:
                self.failure = race.failure_of(self.response)
                if not race.first_ended:
                    if self.failure is None:
                        race.win()
                    elif not stops(self.failure):  # else it decides, if the first one fails too
                        await self._close()
        finally:
            self._over()

    def _over(self, _: Any = None) -> None:
        self.is_over = True
        if self._done is not None:
            self._done.set()

    async def _wait(self) -> None:
        self._prepare()
        if not self.is_over:
            await self._done.wait()

    async def _close(self) -> None:
        response, self.response, self.error = self.response, None, None
        await self.race.let_go(response)

    async def goes_on(self) -> bool:
        """Wait for its end after the first attempt has failed; True: it decides the call."""
        await self._wait()
        return self.response is not None or self.error is not None

    async def stop(self) -> None:
        """Cancel it, and wait until its connection is given back."""
        import anyio

        self._prepare()
        if not self.is_over:
            self._scope.cancel()
            with anyio.CancelScope(shield=True):
                await self._wait()
            free_lost_slots(self.race.hedging.inner)
            reset_lost(self.race.hedging.inner)
        await self._close()

    def take(self) -> Any:
        """Return its answer or error, which is its owner's no more."""
        outcome = self.error if self.response is None else self.response
        self.response = self.error = None  # the error's traceback leads here
        return outcome

    def note(self) -> Attempt:
        """Tell it as an attempt that did not decide."""
        status = None if self.failure is None else self.failure.status
        elapsed = max(0.0, self.ended_at - (self.sent_at or self.ended_at))
        return Attempt(status, self.failure, elapsed, None, None, self.origin)


def reset_lost(inner: Any) -> None:
    """Reset streams of HTTP/2 whose requests were cancelled, as httpcore does not.

    A server allows a hundred or so at a time. The frames go out with those of the next request.
    """
    for connection in getattr(getattr(inner, "_pool", None), "_connections", ()):
        innermost = connection
        while getattr(innermost, "_connection", None) is not None:
            innermost = innermost._connection
        state, under_way = getattr(innermost, "_h2_state", None), getattr(innermost, "_events", ())
        for number, stream in list(getattr(state, "streams", {}).items()):
            if number not in under_way and not stream.closed:
                state.reset_stream(number, CANCEL)  # type: ignore[union-attr]


def stops(failure: Failure) -> bool:
    """Does the origin ask for less? Then nothing is sent beside the first attempt."""
    hint = failure.hint
    return failure.status in STOPS or hint.delay is not None or hint.should_retry is False
