"""Hedging, in the httpx family: a first attempt, and a second one where the first takes long.

``Hedging`` takes the place of the inner transport for first attempts, where ``hedge`` is given. A
call that is not hedged needs no task of its own. ``Hedging.refuses`` decides, with ``Hedge``
(addons/hedge.py), whether a second attempt may be sent.

The first attempt runs in the caller's task. An alarm starts the second one in a task of its own.
The first good response wins: it cancels the other attempt, and the call waits until that one's
connection is released. If both fail, the later one decides. Good is a status below 400 that
``retry_if`` does not flag, because a replica that lags behind returns 404, and one that is set up
wrongly 401.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, CancelledError, Task, current_task, sleep
from contextlib import suppress
from contextvars import Context, copy_context
from math import inf
from typing import TYPE_CHECKING, Any

from ...addons.hedge import MOST_TIMES, HedgeNotes, having, refusal_of_hedge, take_for_hedge
from ...addons.inspection import INSPECTION, Inspection, ask
from ...core.call import FLAGGED, IN_FLIGHT, NUMBER, ORDER, SETTING, STORY, Attempt
from ...core.decide import is_failure
from ...core.request import KEY_LINES
from ...engine.alarms import Alarms, PerThread, TrioAlarms, current_trio_token, spawn_on_trio
from ...engine.calls import call_of, end_attempt, follow_policy
from ...engine.current import CURRENT
from ...engine.errors import HedgeFinished, classify_response
from ...engine.frames import drop_frames
from ...engine.prepare import aimed, outgoing_of, policy_and_deadline
from ...engine.tasks import asyncio_loop
from .pools import close_idle, close_lost, free_lost_slots, is_full, reset_lost
from .request import HOP, LEAST, origin_of_url

if TYPE_CHECKING:
    from anyio import CancelScope
    from httpx import Request, Response

    from ...addons.hedge import Hedge, Times
    from ...core.call import Call
    from ...core.outcome import Failure
    from .types import HttpxPort

STOPS = frozenset({429, 503})  # the origin is overloaded already
# No later moment changes these. "cancelled" ends: anyio cancels a task for an instant to connect.
FINAL = frozenset({"attempts-exhausted", "deadline", "origin-strained"})
SOON = 0.005  # seconds until a second attempt that met such an instant tries to win again
TASKS_HIDE_CONTEXT = not hasattr(Task, "get_context")  # in Python 3.11


class HedgedCall:
    """A first attempt that may be hedged, and its second one. An alarm that rings at ``at``.

    Attributes:
        task: The caller's, on asyncio; None on trio.
        scope: Around the first attempt, on trio.
        context: The variables of the caller, for the second attempt.
        call: What a decision reads; made when the alarm rings for the first time.
        second: The second attempt; None: it was refused.
        refusal: Why it was refused when it was last requested.
        has_won: The second attempt got a good response, and cancels the first one.
        first_ended: The first attempt is over.
    """

    __slots__ = (
        "at", "call", "context", "first_ended", "has_won", "hedging", "refusal", "request", "scope",
        "second", "started_at", "task", "times",
    )  # fmt: skip
    at: float
    call: Call
    context: Context
    first_ended: bool
    has_won: bool
    hedging: Hedging
    refusal: str | None
    request: Request
    scope: CancelScope
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
        """Start the second attempt, or try again half a delay later."""
        hedging = self.hedging
        if not hasattr(self, "call"):
            self._begin()
        try:
            if self.task is not None and self.task.cancelling():
                self.refusal = "cancelled"
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
        except BaseException:
            # Ctrl-C or a lack of memory in the event loop, which knows no call and runs on: without
            # a task nothing would end the second attempt, and the call would wait for it forever.
            if self.second is None:  # a token refunded twice is better than one lost
                hedging.end_held(self.call, self.times)
            else:
                self.second.is_over = True  # ``end`` gives its tokens back
            raise

    def _begin(self) -> None:
        self.second, self.has_won, self.first_ended = None, False, False
        if self.task is not None and not TASKS_HIDE_CONTEXT:
            self.context = self.task.get_context().copy()
        self.call = self.hedging.call_of(self)

    async def classify(
        self, request: Request, response: Any, *, inspects: bool = True
    ) -> tuple[Failure | None, Inspection | None]:
        """Return why a response is not good, and the inspection of it by ``retry_if``.

        ``inspects``: False if the response may be the call's without a HedgeFinished, since then
        the port lets ``retry_if`` inspect it.
        """
        port, call = self.hedging.port, self.call
        question = None
        if inspects and port.settings.retry_if is not None:
            question = Inspection(port, call, request, response)
            await ask(port, question)
            if isinstance(question.ending, Exception):
                return port.classify_exception(call, question.ending), question
            call.notes[FLAGGED] = question.answer
        failure: Failure | None = classify_response(port, call, response)
        call.notes.pop(FLAGGED, None)
        return failure, question

    def is_accepted(self, failure: Failure | None) -> bool:
        """Does a response end the call, good or not?"""
        return failure is None or not is_failure(self.call.policy, self.call.request, failure)

    async def win(self) -> None:
        """Let the good response of the second attempt cancel the first one."""
        # A second cancellation would interrupt what the first one does.
        while self.task is not None and self.task.cancelling():
            await sleep(SOON)
        if not self.first_ended:
            self.has_won = True
            (self.scope if self.task is None else self.task).cancel()

    async def end(self, first: Response | BaseException | None) -> None:
        """End the hedged call when the first attempt is over.

        Args:
            first: A response or error, which is the outcome unless HedgeFinished is raised.

        Raises:
            HedgeFinished: The outcome of both attempts.
        """
        second = self.second
        try:
            self.first_ended = True
            await self._end(first, second)
        except HedgeFinished:
            raise
        except BaseException:  # the call is cancelled or interrupted: its caller gets no response
            try:
                if second is not None:
                    await second.stop()
            finally:
                await self.close_unused(first)
            raise
        finally:
            if second is not None and not second.is_adopted:
                if second.sent_at is None:
                    self.hedging.end_held(self.call, self.times)
                elif IN_FLIGHT in self.call.notes:
                    end_attempt(self.call)

    async def _end(self, first: Any, second: Second | None) -> None:
        # A task holds what it has raised, and that the frames with this object. The cycle would
        # keep both responses until the garbage collector runs.
        task, self.task, self.second = self.task, None, None
        clock = self.hedging.clock
        elapsed = clock.monotonic() - self.started_at
        if second is None:
            self.emit("refused", None)
            if not isinstance(first, BaseException) and first.status_code < 400:
                self.times.learn(elapsed, clock.monotonic())
            return
        try:
            settled = await self._settle(first, second, task)
        except BaseException:  # the call is cancelled
            await second.stop()
            self.emit("cancelled", second, second.note(), "hedge")
            raise
        if settled is None:
            self.emit("cancelled", second, second.note(), "hedge")
            return
        failure, question, second_decides = settled
        status = getattr(first, "status_code", None)
        if self.has_won or (failure is None and first.status_code < 400):
            # Of a first attempt that was cancelled, ``elapsed`` is a lower bound.
            self.times.learn(elapsed, clock.monotonic())
        if second.sent_at is None:  # ``before_attempt`` has raised, or it was too late
            self.emit("failed" if second.has_raised else "cancelled", second)
            return
        loser = second.note()
        if second_decides:
            loser = Attempt(status, failure, elapsed, None, None, self.call.sent_to)
            if isinstance(first, Exception):
                drop_frames(first)
        outcome = "cancelled" if second.failure is None else "failed"
        if second_decides and second.failure is None:
            outcome = "won"
        self.emit(outcome, second, loser, "first" if second_decides else "hedge")
        notes = HedgeNotes(second.sent_at - self.started_at, second_decides, loser)
        outcome_of_call = second.outcome() if second_decides else first
        second.is_adopted = second_decides
        raise HedgeFinished(
            notes, outcome_of_call, second, self.call.notes.get(NUMBER), question
        ) from None

    async def _settle(
        self, first: Any, second: Second, task: Task[object] | None
    ) -> tuple[Failure | None, Inspection | None, bool] | None:
        """Return why the first attempt failed, and whether the second one decides the call.

        Between them, the inspection by ``retry_if`` of the response that decides. None: the call is
        cancelled.
        """
        is_cancelled = isinstance(first, BaseException) and not isinstance(first, Exception)
        # Take back our own cancellation, as asyncio.timeout does: if others have cancelled the task
        # too, theirs counts. A scope of trio does that by itself. A KeyboardInterrupt that came in
        # place of the cancellation has to end the program.
        is_lost = self.has_won and isinstance(first, CancelledError)
        is_ours = is_lost and task is not None and task.uncancel() == 0
        if is_cancelled and not is_ours:
            await second.stop()
            return None
        if self.has_won:
            await self.close_unused(first)
            reset_lost(self.hedging.inner)
            if is_ours:
                await close_lost(self.hedging.inner)
            return None, second.question, True
        failure, question = None, None
        if isinstance(first, Exception):
            failure = self.hedging.port.classify_exception(self.call, first)
        else:
            inspects = second.sent_at is not None
            failure, question = await self.classify(self.request, first, inspects=inspects)
            if self.is_accepted(failure):
                failure = None
        has_time = self.hedging.clock.monotonic() < self.call.deadline_at - LEAST
        if failure is not None and has_time and not stops(failure) and await second.decides():
            await self.close_unused(first)
            return failure, None if second.response is None else second.question, True
        await second.stop()
        return failure, question, False

    async def close_unused(self, outcome: Response | BaseException | None) -> None:
        """Close a response that is not handed over. That this fails must not change the outcome."""
        if not isinstance(outcome, BaseException):
            with suppress(Exception):
                await self.hedging.port.close_unused(outcome)

    def emit(
        self,
        outcome: str,
        second: Second | None,
        loser: Attempt | None = None,
        kind: str | None = None,
    ) -> None:
        """Emit how the second attempt ended; ``loser`` is the attempt that did not decide."""
        sent_at = None if second is None else second.sent_at
        kind = None if sent_at is None else kind
        after = (sent_at or self.hedging.clock.monotonic()) - self.started_at
        log = self.hedging.port.settings.events.log()
        log.emit_by_name("hedged", self.call, outcome, after, loser, kind, self.refusal)


class Second:
    """A second attempt, in a task of its own.

    Attributes:
        sent_at: When it was sent; None: it was not.
        response: Its response, unless that is closed or handed over.
        error: What it raised after the first attempt was over.
        failure: Why it did not succeed.
        question: The inspection of its response by ``retry_if``.
        has_raised: ``before_attempt`` did, so it was not sent.
        is_adopted: It decides, so the call goes on with its slot.
        is_over: Its task has nothing more to do.
    """

    def __init__(self, hedged: HedgedCall) -> None:
        self.hedged = hedged
        self.origin = hedged.call.origin
        self.request: Request | None = None
        self.sent_at: float | None = None
        self.ended_at = 0.0
        self.response: Response | None = None
        self.error: Exception | None = None
        self.failure: Failure | None = None
        self.question: Inspection | None = None
        self.is_over = self.has_raised = self.is_adopted = False
        self._scope: Any = None
        self._done: Any = None

    def start_on(self, loop: AbstractEventLoop, context: Context) -> None:
        task = loop.create_task(self.run(), context=context)
        self._task = task  # a strong reference: the loop's is weak, and the task could vanish
        task.add_done_callback(self._over)  # also if it was cancelled before it began

    def _prepare(self) -> None:
        if self._done is None:  # not made in an alarm, since anyio needs a task
            import anyio

            self._scope, self._done = anyio.CancelScope(), anyio.Event()

    async def run(self) -> None:
        """Send, classify, and win if the first attempt is still in flight."""
        if self.is_over:  # interrupted while it was started
            return
        hedged, hedging = self.hedged, self.hedged.hedging
        now, loop = hedging.clock.monotonic, asyncio_loop()
        self._prepare()
        try:
            with self._scope:
                self.request = await hedging.second_request(hedged)
                if hedged.task is not None and hedging.of_thread.alarms.loop is not loop:
                    # Another loop has sent since the first attempt: the pool would hand out its
                    # idle connection, from which this one can only send.
                    import anyio

                    with anyio.CancelScope(shield=True):
                        await close_idle(*hedging.port.idle_at(hedged.call))
                if self.request is not None and not self._scope.cancel_called:
                    self.sent_at = now()
                    self.response = await hedging.inner.handle_async_request(self.request)
                    self.ended_at = now()
                    self.failure, self.question = await hedged.classify(self.request, self.response)
        except Exception as error:
            if self.sent_at is None:
                self.has_raised = True
                hedging.port.settings.events.log().hook_failed("before_attempt", error)
            else:
                self.failure = hedging.port.classify_exception(hedged.call, error)
                if hedged.first_ended:
                    self.error = error
                else:
                    drop_frames(error)
        if self.response is None:
            self.ended_at = now()
        try:
            if self.response is not None and not hedged.first_ended:
                if self.failure is None:
                    await hedged.win()
                # Else it decides, if the first one fails too.
                elif not (hedged.is_accepted(self.failure) or stops(self.failure)):
                    await self._close()
        finally:
            self._over()

    def _over(self, _: object = None) -> None:
        self.is_over = True
        if self._done is not None:
            self._done.set()

    async def _wait(self) -> None:
        self._prepare()
        if not self.is_over:
            await self._done.wait()

    async def _close(self) -> None:
        if self.error is not None:
            drop_frames(self.error)
        response, self.response, self.error = self.response, None, None
        await self.hedged.close_unused(response)

    async def decides(self) -> bool:
        """Wait for its end after the first attempt has failed; True: it decides the call."""
        await self._wait()
        return self.response is not None or self.error is not None

    async def stop(self) -> None:
        """Cancel it, and wait until its connection is released."""
        import anyio

        self._prepare()
        if not self.is_over:
            self._scope.cancel()
            with anyio.CancelScope(shield=True):
                await self._wait()
            free_lost_slots(self.hedged.hedging.inner)
            reset_lost(self.hedged.hedging.inner)
        await self._close()

    def outcome(self) -> Response | Exception | None:
        """Return its response or error; the port that adopts it clears both here."""
        return self.error if self.response is None else self.response

    def note(self) -> Attempt:
        """Return the record of it as the attempt that lost."""
        status = None if self.failure is None else self.failure.status
        elapsed = max(0.0, self.ended_at - (self.sent_at or self.ended_at))
        return Attempt(status, self.failure, elapsed, None, None, self.origin)


def stops(failure: Failure) -> bool:
    """Does the origin throttle? Then nothing is sent in addition to the first attempt."""
    hint = failure.hint
    return failure.status in STOPS or hint.delay is not None or hint.should_retry is False


class Hedging:
    """Sends first attempts, and hedges them with second ones."""

    def __init__(self, port: HttpxPort, hedge: Hedge) -> None:
        self.port, self.hedge, self.inner, self.clock = port, hedge, port.inner, port.clock
        self.limits = port.settings.limits
        self.of_thread = PerThread(Alarms, self._now)
        self.of_trio_thread = PerThread(TrioAlarms, self._now)
        self._byte_stream, self._methods = port.byte_stream, hedge.methods
        self._known: dict[tuple[str, str], Times] = {}

    def _now(self) -> float:
        return self.clock.monotonic()  # a test may replace it

    async def handle_async_request(self, request: Request) -> Any:
        """Send a first attempt.

        Raises:
            HedgeFinished: A second attempt was sent too; the exception has the outcome of both.
        """
        method = request.method
        if type(request.stream) is not self._byte_stream or not (
            method in self._methods or (self.hedge.keyed and self.port.view_of(request).keyed)
        ):
            return await self.inner.handle_async_request(request)
        where = origin_of_url(request.url), method
        times = self._known.get(where) or self._times(where)
        now = self.clock.monotonic
        started_at = now()
        if times.delay == inf:
            response = await self.inner.handle_async_request(request)
            if response.status_code < 400:
                ended_at = now()
                times.learn(ended_at - started_at, ended_at)
            return response
        response = None
        hedged = HedgedCall()  # arguments to a constructor would take 0.1 µs more
        hedged.hedging, hedged.request, hedged.times = self, request, times
        hedged.started_at = started_at
        hedged.at = rings_at = started_at + times.delay
        loop: Any = asyncio_loop()
        hedged.task = None if loop is None else current_task(loop)
        if hedged.task is not None:
            alarms = self.of_thread.of(loop)
            attempt = self.inner.handle_async_request(request)
            if TASKS_HIDE_CONTEXT:
                hedged.context = copy_context()
        else:  # trio, perhaps as a guest of a loop
            alarms = self.of_trio_thread.of(current_trio_token())
            attempt = hedged.send_in_scope()
        if rings_at < alarms.rings_at:
            alarms.prepare(rings_at)
        pending = alarms.pending
        pending[hedged] = None
        try:
            try:
                response = await attempt
            except BaseException as error:
                pending.pop(hedged, None)
                if hedged.at != rings_at:  # it has rung
                    await hedged.end(error)
                raise
            pending.pop(hedged, None)
            if hedged.at != rings_at:
                await hedged.end(response)
            elif response.status_code < 400:
                ended_at = now()
                times.learn(ended_at - started_at, ended_at)
            return response
        except HedgeFinished:
            raise
        except BaseException as error:  # perhaps one that came after the response
            pending.pop(hedged, None)
            await hedged.close_unused(response)
            if hedged.at != rings_at and not hedged.first_ended:
                await hedged.end(error)
            hedged.task = None  # it holds what is raised in it, and that this frame
            raise

    def _times(self, where: tuple[str, str]) -> Times:
        if len(self._known) >= MOST_TIMES:
            self._known = {}
        times = self._known[where] = self.hedge.times(*where)
        return times

    def call_of(self, hedged: HedgedCall) -> Call:
        """Make the call that a decision reads, when its first attempt is in flight."""
        port, request, started_at = self.port, hedged.request, hedged.started_at
        call = call_of(port, request, None, started_at, hedged.context.get(CURRENT))
        context, settings = call.context, port.settings
        setting = request.extensions.get(SETTING)
        policy, call.deadline_at = policy_and_deadline(settings, context, setting, started_at)
        follow_policy(settings, call, policy)
        if context is not None:
            call.most_attempts = min(call.most_attempts, context.most_attempts)
            if context.sends_once():
                call.most_attempts = 1
        hop = request.extensions.get(HOP)
        call.attempts = 1 if hop is None else 1 + hop.retries_used
        return call

    def refuses(self, call: Call, times: Times) -> str | None:
        """Return why no second attempt may be sent now; None: it may, and its tokens are spent."""
        now, limits = self.clock.monotonic(), self.limits
        if call.attempts >= call.most_attempts:
            return "attempts-exhausted"
        if now >= call.deadline_at:
            return "deadline"
        if times.is_strained:
            return "origin-strained"
        if is_full(self.inner):
            return "local-saturation"
        refusal = refusal_of_hedge(limits, call, now)
        if refusal is not None:
            return refusal
        if not times.spend():
            return "hedge-budget"
        refusal = take_for_hedge(limits, call, now)
        if refusal is not None:
            times.end_held()
        return refusal

    async def adopt(self, call: Call, finished: HedgeFinished) -> Response | Exception:
        """Record the attempt that lost; return the winner's outcome, with its body prefetched."""
        port, notes = self.port, finished.notes
        call.notes.setdefault(STORY, {})[ORDER] = notes
        if finished.number is not None:
            call.notes[NUMBER] = finished.number
        call.attempts += 1
        second = finished.second
        outcome: Response | Exception = finished.outcome
        finished.__traceback__ = finished.__context__ = None  # they hold the other's error
        sent = (call.sent_at, call.sent_to), (call.sent_at + notes.after, second.origin)
        call.sent_at, call.sent_to = sent[not notes.decides]
        if notes.loser.failure is not None:
            call.limits.observe(call, notes.loser.failure, self.clock.monotonic())
        call.sent_at, call.sent_to = sent[notes.decides]
        if notes.decides and IN_FLIGHT in call.notes:
            end_attempt(call)
            call.notes[IN_FLIGHT] = second.hedged.call.notes[IN_FLIGHT]
        if notes.decides:
            outgoing = outgoing_of(port, call)
            outgoing.request = second.request
            if second.origin != call.origin:
                outgoing.pristine = aimed(port, outgoing.pristine, second.origin)
                for note_tried in having(self.limits, "note_tried"):
                    note_tried(call, call.origin)
                call.origin = second.origin
        call.live = outcome
        second.response = second.error = None  # an error's traceback holds the second attempt
        if isinstance(outcome, Exception):
            return outcome
        call.notes[INSPECTION] = finished.question
        return outcome

    def end_held(self, call: Call, times: Times) -> None:
        """Refund the tokens of a second attempt that was not sent after all."""
        times.end_held()
        self.limits.leave(call, self.clock.monotonic())

    async def second_request(self, hedged: HedgedCall) -> Request | None:
        """Make the copy that is sent as the second attempt; None: its slot is gone."""
        port, call = self.port, hedged.call
        request: Request = port.copied(hedged.request, ())
        if not self.hedge.keyed:
            for name in KEY_LINES | port.settings.key_names:
                request.headers.pop(name, None)
        if call.origin != call.sent_to:
            request = aimed(port, request, call.origin)
        if port.settings.before_attempt is not None:
            if IN_FLIGHT in call.notes:  # what the hook sends may need it
                call.notes[IN_FLIGHT].free()
                del call.notes[IN_FLIGHT]
            result = port.settings.before_attempt(request, call.attempts + 1)
            if hasattr(result, "__await__"):
                await result
            for take_slot in having(self.limits, "take_slot"):
                if not take_slot(call, self.clock.monotonic()):
                    hedged.refusal = "concurrency-limit"
                    return None
        return request
