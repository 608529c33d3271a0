"""Race: a first attempt over the httpx family, and the second one beside it. Floor: acts.

The first attempt runs in the caller's task. An alarm starts the second one in a task of its own.
The first good answer wins: it cancels the other attempt, and the call waits until that one's
connection is given back. If both fail, the later one decides.
"""

from __future__ import annotations

from asyncio import Task
from contextvars import copy_context
from math import inf
from typing import TYPE_CHECKING, Any

from ..core.call import Attempt
from ..core.decide import is_failure
from ..core.record import HedgeNotes
from ..sending.backstop import spawn_on_trio
from ..sending.errors import Raced
from .httpx_errors import free_lost_slots

if TYPE_CHECKING:
    from ..core.call import Call
    from ..core.outcome import Failure
    from ..shared.hedge import Times

__all__ = ["TASKS_HIDE_CONTEXT", "Race"]

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
        self.has_won = True
        if self.task is not None:
            self.task.cancel()
        else:
            self.scope.cancel()

    async def end(self, first: Any) -> Any:
        """End the race when the first attempt is over; ``first`` is what came of it.

        Raises:
            Raced: The outcome of both attempts.
        """
        second, port, clock = self.second, self.hedging.port, self.hedging.clock
        if second is None:
            self.tell("refused")
            if isinstance(first, BaseException):
                raise first
            if first.status_code < 400:
                now = clock.monotonic()
                self.times.learn(now - self.started_at, now)
            return first
        self.first_ended = True
        elapsed = clock.monotonic() - self.started_at
        try:
            failure, second_decides = await self._settle(first, second)
        except BaseException:  # the call is cancelled
            await second.stop()
            await port.let_go(first)
            self.tell("cancelled", second.note(), "hedge")
            raise
        status = getattr(first, "status_code", None)
        if self.has_won or (failure is None and first.status_code < 400):
            # Of a first attempt that was cancelled, ``elapsed`` is a lower bound.
            self.times.learn(elapsed, clock.monotonic())
        if second.sent_at is None:  # ``before_attempt`` has raised
            self.tell("failed")
            if isinstance(first, Exception):
                raise first
            return first
        loser = second.note()
        if second_decides:
            loser = Attempt(status, failure, elapsed, None, None, self.call.sent_to)
        outcome = "cancelled" if second.failure is None else "failed"
        if second_decides and second.failure is None:
            outcome = "won"
        self.tell(outcome, loser, "first" if second_decides else "hedge")
        notes = HedgeNotes(second.sent_at - self.started_at, second_decides, loser)
        raise Raced(
            notes, second.take() if second_decides else first, second, self.call.number
        ) from None

    async def _settle(self, first: Any, second: Second) -> tuple[Failure | None, bool]:
        """Return why the first attempt failed, and whether the second one decides the call."""
        is_cancelled = isinstance(first, BaseException) and not isinstance(first, Exception)
        if self.has_won:
            # As asyncio.timeout does; a scope of trio takes its own cancellation back.
            is_ours = self.task is not None and self.task.uncancel() == 0
            if is_cancelled and not is_ours:
                raise first
            await self.hedging.port.let_go(None if is_cancelled else first)
            return None, True
        if is_cancelled:
            raise first
        failure = self.failure_of(first)
        if failure is not None and not stops(failure) and await second.goes_on():
            await self.hedging.port.let_go(first)
            return failure, True
        await second.stop()
        return failure, False

    def tell(self, outcome: str, loser: Attempt | None = None, kind: str | None = None) -> None:
        """Tell how the second attempt ended; ``loser`` is the attempt that did not decide."""
        sent_at = None if self.second is None else self.second.sent_at
        after = (sent_at or self.hedging.clock.monotonic()) - self.started_at
        self.hedging.port.tell.hedged(self.call, outcome, after, loser, kind, self.refusal)


class Second:
    """A second attempt, in a task of its own.

    Attributes:
        sent_at: When it was sent; None: it was not.
        response: Its answer, unless that is closed or handed over.
        failure: Why it did not succeed.
        was_late: The first attempt was over before it.
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
        self.is_over = self.was_late = False
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
                self.sent_at = now()
                self.response = await hedging.inner.handle_async_request(self.request)
        except Exception as error:
            if self.sent_at is None:
                hedging.port.tell.hook_failed("before_attempt", error)
            else:
                self.error, self.failure = error, race.failure_of(error)
        self.ended_at = now()
        self.was_late = race.first_ended
        try:
            if self.response is not None:
                self.failure = race.failure_of(self.response)
                if not self.was_late and self.failure is None:
                    race.win()
                elif not self.was_late:
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
        response, self.response = self.response, None
        await self.race.hedging.port.let_go(response)

    async def goes_on(self) -> bool:
        """Wait for its end after the first attempt has failed; True: it decides the call."""
        if self.is_over:
            return False
        await self._wait()
        return self.was_late and (self.response is not None or self.error is not None)

    async def stop(self) -> None:
        """Cancel it, and wait until its connection is given back."""
        import anyio

        self._prepare()
        if not self.is_over:
            self._scope.cancel()
            with anyio.CancelScope(shield=True):
                await self._wait()
            free_lost_slots(self.race.hedging.inner)
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


def stops(failure: Failure) -> bool:
    """Does the origin ask for less? Then nothing is sent beside the first attempt."""
    hint = failure.hint
    return failure.status in STOPS or hint.delay is not None or hint.should_retry is False
