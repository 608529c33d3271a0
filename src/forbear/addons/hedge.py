"""Hedge: when a second attempt may start while the first one is slow.

For each origin and method a sketch keeps the times to first byte of good responses: counts in
buckets of 5 %, halved again and again, so that old times fade. The idea is Dean and Barroso's ("The
Tail at Scale", CACM 2013): ask a second server once the first one is slower than nearly all are.

Hedging adds work where queues are the reason for the tail, and then it makes the tail longer. So a
token bucket bounds it, and there is none where an origin's tail is no longer apart from its usual
responses (``STRAINED``), or where these themselves have become slow (``SLOWER``). All durations are
seconds.

``Hedging`` is the layer around first attempts. The first attempt runs in the caller's task; an
alarm starts the hedge, in a task of its own. It is a child of the call: its attempt counts there,
and what it takes is its own. The first good response wins: it cancels the other attempt, and the
call waits until that one's connection is released. If both fail, the later one decides. Good is a
status below 400 that ``retry_if`` does not flag, because a replica that lags behind returns 404,
and one that is set up wrongly 401.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from contextvars import copy_context
from copy import copy
from math import ceil, exp, floor, inf, log
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.call import FINDINGS, IN_FLIGHT, INSPECTED, NUMBER, ORDER, STORY, Attempt
from ..core.checks import (
    check_bool,
    check_duration,
    check_number,
    check_positive_int,
    rebuilt,
    shown,
    suggesting,
)
from ..core.decide import is_failure
from ..core.feature_checks import check_is, texts
from ..core.outcome import IDEMPOTENT_METHODS, FailureKind, Phase
from ..core.request import KEY_LINES
from ..engine.alarms import Alarms, PerThread
from ..engine.calls import end_attempt
from ..engine.driver import classify, close, inspected
from ..engine.errors import classify_response, drop_frames, sends_once
from ..engine.prepare import aimed, outgoing_of
from ..engine.tasks import asyncio_loop
from ..limits import Locked

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from types import ModuleType

    from ..core.call import Call
    from ..core.outcome import Failure
    from ..engine.clock import Clock
    from ..limits.limits import Limits
    from ..telemetry.rows import Row

    Inner = Callable[[Call, Any], Awaitable[Any]]

METHODS = frozenset({"GET", "HEAD", "OPTIONS"})  # safe: RFC 9110 section 9.2.1
DEBUG = 10  # of logging, which is not needed to decide
FINENESS = 20  # buckets for each factor of e: neighbours differ by 5 %
LEAST = 1e-6  # seconds; shorter ones are in the lowest bucket
LOWEST = floor(log(LEAST) * FINENESS)
MOST_RESPONSES = 1024  # that a sketch counts before it halves all counts
FADE = 300.0  # seconds after which it does so too
EVERY = 64  # responses after which the quantile is computed anew
# The tail is no longer that of single stragglers if it is so many times the median: waiting in
# queues, or requests that differ, make all times spread. A second attempt would wait as long.
STRAINED = 4.0
TAIL = 0.95  # the share of responses before it, whatever the quantile is that starts an attempt
# Where all responses wait their times spread no more: then the median is so many times its best.
SLOWER = 2.0
FORGETS = 1.002  # the best grows by this each time: a factor of 2 in 22,000 responses
MOST_TIMES = 1024  # pairs of origin and method; least recently made first out

REFUSED = (
    "only AsyncRetryTransport does, of forbear.httpx and forbear.httpx2. On a synchronous client"
    " every call that could be hedged would need a thread"
)
STOPS = frozenset({429, 503})  # the origin is overloaded already
FINAL = frozenset({"attempts-exhausted", "deadline", "origin-strained"})  # nothing changes these


class Hedge(Locked):
    """Sends a second attempt while the first one is slow; the first good response wins.

    An option of ``AsyncRetryTransport``, off unless given. The second attempt starts when the first
    one has taken longer than ``delay``, or than the ``quantile`` of this origin's good responses to
    this method. A failure of one attempt does not end the other. The loser is cancelled and
    closed. There is no second attempt while the server is unhealthy, its circuit is not closed,
    a cooldown holds, no connection of the pool is free, or the origin's responses spread so widely
    that more requests would only make its queues longer. Thread-safe; one Hedge may serve several
    transports.

    Args:
        quantile: Share of good responses that come before a second attempt starts, from 0.5 to
            below 1.
        delay: Seconds after which it starts, in place of the quantile. None: the quantile.
        at_least: Seconds before which it never starts.
        ratio: Second attempts for each good response, above 0, at most 1. 0.05 adds at most 5 % to
            the origin's work.
        burst: Second attempts that may be sent at once, at least 1.
        learn_from: Good responses after which the quantile counts; before, there is no hedge.
        methods: Of requests that may be sent a second time at once.
        keyed: Whether a request that carries an idempotency key may be, too, whatever its method.
            Both attempts carry the same key. A server that returns 409 while a key is in use makes
            it pointless.

    Raises:
        ValueError: A number is out of its range, or a method is not idempotent.
        TypeError: A value is of the wrong type.
    """

    @suggesting
    def __init__(
        self,
        *,
        quantile: float = 0.95,
        delay: float | None = None,
        at_least: float = 0.02,
        ratio: float = 0.05,
        burst: float = 2,
        learn_from: int = 50,
        methods: Iterable[str] = METHODS,
        keyed: bool = False,
    ) -> None:
        check_number("quantile", quantile, 0.5)
        if quantile >= 1:
            raise ValueError(f"quantile must be below 1, got {shown(quantile)}; 0.95 is usual")
        check_duration("delay", delay, none="the quantile", zero=False)
        check_duration("at_least", at_least)
        check_number("ratio", ratio)
        if not 0 < ratio <= 1:
            raise ValueError(
                f"ratio must be above 0 and at most 1, got {shown(ratio)}; hedge=None sends none"
            )
        check_number("burst", burst, 1)
        check_positive_int("learn_from", learn_from)
        check_bool("keyed", keyed)
        self.methods = frozenset(m.upper() for m in texts("methods", methods, '{"GET"}'))
        unsafe = sorted(self.methods - IDEMPOTENT_METHODS)
        if unsafe:
            raise ValueError(
                f"methods must be idempotent, got {unsafe[0]}, which would be executed twice; write"
                " keyed=True to hedge requests that carry an idempotency key"
            )
        self.quantile = quantile
        self.delay = delay
        self.at_least = at_least
        self.ratio = ratio
        self.burst = burst
        self.learn_from = learn_from
        self.keyed = keyed
        self._times: OrderedDict[tuple[str, str], Times] = OrderedDict()
        super().__init__()

    def times(self, origin: str, method: str) -> Times:
        """Return the times of an origin's responses to a method."""
        try:
            return self._times[origin, method]
        except KeyError:
            made = Times(self)  # outside the lock, which is held for assignments only
            with self._lock:
                times = self._times.setdefault((origin, method), made)
                if len(self._times) > MOST_TIMES:
                    self._times.popitem(last=False)
            return times

    def __repr__(self) -> str:
        known = f"{len(self._times)} origins and methods known"
        return f"<Hedge {self.ratio:.3g} of responses, {known}>"

    def __reduce__(self) -> tuple[object, ...]:
        # A copy in another process begins to learn anew. Its public attributes are its options.
        options = {name: value for name, value in vars(self).items() if name[0] != "_"}
        return rebuilt, (Hedge, options)


def check(value: object) -> Hedge:
    """Check the option ``hedge``."""
    return check_is("hedge", value, Hedge, "a Hedge, or None for none", "Hedge()")


class Times(Locked):
    """Times to first byte of the good responses of one origin to one method. Thread-safe.

    Attributes:
        delay: Seconds after which a second attempt is wanted; infinite as long as too few
            responses are known.
        is_strained: The times spread so widely, or are so long, that a second attempt would do
            harm.
    """

    __slots__ = (
        "_best", "_counts", "_earned_for", "_fades_at", "_fresh", "_hedge", "_room", "_tokens",
        "delay", "is_strained",
    )  # fmt: skip

    def __init__(self, hedge: Hedge) -> None:
        self._hedge = hedge
        self._best = inf  # the lowest median
        self._counts: dict[int, float] = {}  # responses in each bucket
        self._fresh: list[float] = []  # responses that are in no bucket yet
        self._room = min(hedge.learn_from, EVERY)  # for so many of them
        self._fades_at = -inf
        self._tokens: float = hedge.burst
        self._earned_for = 0  # so many of the fresh responses have earned their share of a token
        self.delay = inf if hedge.delay is None else max(hedge.delay, hedge.at_least)
        self.is_strained = False
        super().__init__()

    def learn(self, seconds: float, now: float) -> None:
        """Note a good response.

        Args:
            seconds: From sending to its first byte; of a first attempt that was cancelled because
                the second one won, the seconds that it had lasted. Without those the quantile would
                fall with each second attempt.
            now: The present instant.
        """
        # Without the lock, because each response passes here: an append is atomic, and if another
        # thread folds the list meanwhile, this one time is lost at worst.
        fresh = self._fresh
        fresh.append(seconds)
        if len(fresh) >= self._room:
            with self._lock:
                self._earn()
                self._fold(now)

    def _fold(self, now: float) -> None:
        """Put the fresh times into their buckets, and compute the quantile."""
        hedge, counts = self._hedge, self._counts
        fresh, self._fresh, self._earned_for = self._fresh, [], 0
        for seconds in fresh:
            bucket = floor(log(seconds) * FINENESS) if seconds > LEAST else LOWEST
            counts[bucket] = counts.get(bucket, 0) + 1
        total = sum(counts.values())
        missing = ceil(hedge.learn_from - total)
        self._room = EVERY if missing <= 0 else min(EVERY, missing)
        if missing <= 0:
            ranked = sorted(counts.items())
            median = rank(ranked, total * 0.5)
            self._best = best = min(self._best * FORGETS, median)
            tail = rank(ranked, total * TAIL)
            self.is_strained = tail > median * STRAINED or median > best * SLOWER
            if hedge.delay is None:
                self.delay = max(rank(ranked, total * hedge.quantile), hedge.at_least)
        elif hedge.delay is None:  # too few so far, or most have faded
            self.delay = inf
        if total >= max(MOST_RESPONSES, 4 * hedge.learn_from) or now >= self._fades_at:
            if self._fades_at != -inf:
                # Whole numbers would lose the tail, where a bucket holds one response.
                kept = ((bucket, number / 2) for bucket, number in counts.items() if number > 0.2)
                self._counts = dict(kept)
            self._fades_at = now + FADE

    def _earn(self) -> None:
        known = len(self._fresh)
        earned = self._hedge.ratio * (known - self._earned_for)
        self._tokens = min(self._tokens + earned, self._hedge.burst)
        self._earned_for = known

    def spend(self) -> bool:
        """Spend the token of a second attempt; False: too many were sent, ask again later."""
        with self._lock:
            self._earn()
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True

    def end_held(self) -> None:
        """The second attempt was not sent after all."""
        with self._lock:
            self._tokens = min(self._tokens + 1, self._hedge.burst)

    def __repr__(self) -> str:
        return f"<Times hedged after {self.delay:.3g} s, {self._tokens:.3g} tokens>"


def rank(ranked: list[tuple[int, float]], place: float) -> float:
    """Return the upper end of the bucket in which the response of that rank is."""
    seen, bucket = 0.0, 0
    for bucket, number in ranked:  # noqa: B007  # the last one if the place is beyond all
        seen += number
        if seen >= place:
            break
    return exp((bucket + 1) / FINENESS)


def refusal_of_hedge(limits: Limits, call: Call, now: float) -> str | None:
    """Choose ``call.origin`` for a hedge; say why there is none, None: there is. Takes nothing.

    A limit that has a say has a method ``refuse_extra``, one of other origins ``for_extra``.
    """
    origins = [call.sent_to]
    for listed in having(limits, "for_extra"):
        origins = listed(call.sent_to, now)
    why = "origin-unhealthy"
    refuses = having(limits, "refuse_extra")[::-1]
    for origin in origins:
        call.origin = origin
        refusals = (refuse(call, now) for refuse in refuses)
        found: str | None = next(filter(None, refusals), None)
        if found is None:
            return None
        why = found
    return why


def take_for_hedge(limits: Limits, call: Call, now: float) -> str | None:
    """Take what a hedge needs, such as a slot, and tokens as for a retry; say why there is none."""
    for take in having(limits, "take_extra"):
        refusal: str | None = take(call, now)
        if refusal is not None:
            limits.leave(call, now)
            return refusal
    return None


def having(limits: Limits, method: str) -> list[Callable[..., Any]]:
    """Return this method of each limit that has it."""
    return [getattr(one, method) for one in limits.listed if hasattr(one, method)]


class HedgeNotes(NamedTuple):
    """The hedge of a call: the second attempt that was sent while the first one was slow."""

    after: float  # seconds from the first attempt to the hedge
    decides: bool  # the hedge's outcome is the call's
    loser: Attempt  # the one that does not decide

    @property
    def first_kind(self) -> str:
        """What the first attempt of the call's history is."""
        return "hedge" if self.decides else "first"

    def attempts(self, history: list[Attempt]) -> list[Attempt]:
        """Return the call's history in the order in which its attempts were sent."""
        if not history:
            return history
        first, second = (self.loser, history[0]) if self.decides else (history[0], self.loser)
        return [first, second._replace(sent_after=self.after), *history[1:]]


def layer(hedge: Hedge, clock: Clock) -> Hedging:
    return Hedging(hedge, clock)


class Hedging:
    """The layer: hedges first attempts.

    Attributes:
        of_thread, of_trio_thread: The alarms of the calls under way.
    """

    def __init__(self, hedge: Hedge, clock: Clock) -> None:
        self.hedge, self.clock = hedge, clock
        self.of_thread = PerThread(Alarms, self.now)
        self.of_trio_thread = PerThread(TrioAlarms, self.now)

    def now(self) -> float:
        return self.clock.monotonic()  # a test may replace it

    async def send(self, port: Any, inner: Inner, call: Call, request: Any) -> Any:
        """Send an attempt, and a hedge if it is a first one that takes long."""
        hedge, asked = self.hedge, call.request
        if (
            call.history
            or call.rest is not None
            or call.guard is not None  # the body can be read once at a time
            or not (asked.method in hedge.methods or (hedge.keyed and asked.keyed))
        ):
            return await inner(call, request)
        return await HedgedCall(self, port, inner, call, request).send()

    def refuses(self, port: Any, call: Call, times: Times) -> str | None:
        """Return why no hedge may be sent now; None: it may, and its tokens are spent."""
        now, limits = self.now(), port.settings.limits
        if call.attempts >= call.most_attempts or sends_once(call):
            return "attempts-exhausted"
        if now >= call.deadline_at:
            return "deadline"
        if times.is_strained:
            return "origin-strained"
        if refusal := refusal_of_hedge(limits, call, now):
            return refusal
        if not times.spend():
            return "hedge-budget"
        if refusal := take_for_hedge(limits, call, now):
            times.end_held()
        return refusal


class HedgedCall:
    """A call whose first attempt may be hedged. An alarm that rings at ``at``.

    Attributes:
        context: The variables of the caller, for the hedge.
        scope: Around the first attempt.
        hedge: The child call of the hedge; None: there is none.
        hedge_scope: Around the hedge.
        refused: The child call of the hedge that was due and refused last.
        refusal: Why it was.
        failure: Why its response is not good.
        error: What it raised after the first attempt had ended.
        ended_at: When its response came, or its error.
        has_won: It got a good response, and cancels the first attempt.
        has_raised: ``before_attempt`` has raised.
        is_over: Set when its task has nothing more to do.
        first_ended: The first attempt is over.
    """

    hedge: Call | None = None
    refused: Call | None = None
    refusal: str | None = None
    failure: Failure | None = None
    error: Exception | None = None
    ended_at = 0.0
    has_won = has_raised = first_ended = False

    def __init__(self, hedging: Hedging, port: Any, inner: Inner, call: Call, request: Any) -> None:
        import anyio

        self.hedging, self.port, self.inner = hedging, port, inner
        self.call, self.request, self.now = call, request, hedging.now
        self.times = hedging.hedge.times(call.sent_to, call.request.method)
        self.at = call.sent_at + self.times.delay
        self.context, self.is_over = copy_context(), anyio.Event()
        self.scope, self.hedge_scope = anyio.CancelScope(), anyio.CancelScope()

    async def send(self) -> Any:
        """Send the first attempt; return what decides of the two."""
        hedging, loop = self.hedging, asyncio_loop()
        alarms = hedging.of_thread.of(loop) if loop else hedging.of_trio_thread.of(current_run())
        if self.at < alarms.rings_at:
            alarms.prepare(self.at)
        outcome: Any = None
        try:
            try:
                alarms.pending[self] = None
                with self.scope:
                    outcome = await self.inner(self.call, self.request)
            except Exception as error:
                outcome = error
            finally:
                alarms.pending.pop(self, None)
            now = self.now()
            elapsed = now - self.call.sent_at
            if self.hedge is not None:
                outcome = await self.settle(outcome, elapsed, self.hedge)
            else:
                if self.refused is not None:
                    self.emit("refused", self.refused)
                if not isinstance(outcome, Exception) and self.port.head_of(outcome)[0] < 400:
                    self.times.learn(elapsed, now)
        except BaseException:  # the call is cancelled or interrupted
            if self.hedge is not None:
                await self.stop(self.hedge)
                self.emit("cancelled", self.hedge, self.note_of(self.hedge), "hedge")
            raise
        finally:
            if self.hedge is not None:
                if not self.hedge.is_under_way:
                    self.times.end_held()
                self.hedge.limits.leave(self.hedge, self.now())
        if isinstance(outcome, Exception):
            try:
                raise outcome
            finally:
                outcome = None  # its traceback holds this frame: together they would be a cycle
        return outcome

    def ring(self) -> None:
        """Start the hedge, or try again half a delay later."""
        at, self.at = self.at, inf
        try:
            # Before anything is taken for it, since that is given back where the call ends: Ctrl-C
            # or a lack of memory may come here, in the event loop, which knows no call and runs on.
            hedge = self.hedge = child_of(self.call)
            self.refusal = self.hedging.refuses(self.port, hedge, self.times)
            if self.refusal is not None:
                self.hedge, self.refused = None, hedge
                self.at = inf if self.refusal in FINAL else at + self.times.delay / 2
                return
            loop = asyncio_loop()
            if loop is None:
                sys.modules["trio"].lowlevel.spawn_system_task(
                    self.send_hedge, hedge, context=self.context
                )
            else:
                # A strong reference: the loop's is weak, and the task could vanish.
                self._task = loop.create_task(self.send_hedge(hedge), context=self.context)
                self._task.add_done_callback(self.end_hedge)  # if it is cancelled before it begins
        except BaseException:
            self.is_over.set()  # without a task nobody else says so to the call that waits
            raise

    async def send_hedge(self, hedge: Call) -> None:
        """Send the hedge, judge it, and win if the first attempt is still in flight."""
        try:
            with self.hedge_scope:
                request = await self.request_of(hedge)
                loop = asyncio_loop()
                if loop is not None and self.hedging.of_thread.alarms.loop is not loop:
                    # Another loop has sent since the first attempt: the pool would hand out its
                    # idle connection, from which this one can only send.
                    await self.port.close_idle(hedge)
                if request is not None and self.now() < hedge.deadline_at:
                    hedge.sending(self.now())
                    await self.inner(hedge, request)
                    self.ended_at = self.now()
                    self.failure = await failure_of(self.port, hedge, hedge.live)
            if hedge.live is not None and not self.first_ended:
                if self.failure is None:
                    self.has_won = True
                    self.scope.cancel()
                elif not (is_accepted(hedge, self.failure) or stops(self.failure)):
                    await self.discard(hedge)  # else it decides, if the first one fails too
        except Exception as error:
            if not hedge.is_under_way:
                self.has_raised = True
                self.port.settings.events.log().hook_failed("before_attempt", error)
            else:
                self.failure, hedge.last_error = await classify(self.port, hedge, error), None
                if self.first_ended:
                    self.error = error
                else:
                    drop_frames(error)
        finally:
            self.end_hedge()

    def end_hedge(self, _: object = None) -> None:
        self.ended_at = self.ended_at or self.now()
        self.is_over.set()

    async def stop(self, hedge: Call) -> None:
        """Cancel the hedge, and wait until its connection is released."""
        import anyio

        self.hedge_scope.cancel()
        with anyio.CancelScope(shield=True):
            await self.is_over.wait()
            await self.discard(hedge)

    async def discard(self, hedge: Call) -> None:
        if self.error is not None:
            drop_frames(self.error)
        response, hedge.live, self.error = hedge.live, None, None
        await close(self.port, response)

    async def request_of(self, hedge: Call) -> Any:
        """Make the copy that is sent as the hedge; None: its slot is gone."""
        port, settings = self.port, self.port.settings
        request = port.copied(self.request, ())
        if not self.hedging.hedge.keyed:
            for name in KEY_LINES | settings.key_names:
                request.headers.pop(name, None)
        if hedge.origin != hedge.sent_to:
            request = aimed(port, request, hedge.origin)
        hedge.outgoing = copy(outgoing_of(port, hedge))
        hedge.outgoing.request = request
        hook = settings.options.get("before_attempt")
        if hook is not None:
            if IN_FLIGHT in hedge.notes:  # what the hook sends may need it
                end_attempt(hedge)
            result = hook(request, hedge.attempts + 1)
            if hasattr(result, "__await__"):
                await result
            for take_slot in having(settings.limits, "take_slot"):
                if not take_slot(hedge, self.now()):
                    self.refusal = "concurrency-limit"
                    return None
        return request

    async def settle(self, first: Any, elapsed: float, hedge: Call) -> Any:
        """Choose between the attempts when the first one is over, after ``elapsed`` seconds.

        ``first`` is its response or error; None: the hedge has cancelled it.

        Returns:
            The response or error that decides the call.
        """
        port, call = self.port, self.call
        self.first_ended, decides = True, self.has_won
        failure, judged = None, child_of(call)
        if not self.has_won:
            failure = await failure_of(port, judged, first)
            if not isinstance(first, Exception) and is_accepted(judged, failure):
                failure = None
            elif failure and self.now() < call.deadline_at and not stops(failure):
                await self.is_over.wait()
                decides = hedge.live is not None or self.error is not None
        if decides:
            await close(port, first)
        else:
            keep_findings(call, judged)
            await self.stop(hedge)
        status = None if first is None or isinstance(first, Exception) else port.head_of(first)[0]
        if self.has_won or (failure is None and (status or 0) < 400):
            # Of a first attempt that was cancelled, ``elapsed`` is a lower bound.
            self.times.learn(elapsed, self.now())
        if not hedge.is_under_way:  # ``before_attempt`` has raised, or it was too late
            self.emit("failed" if self.has_raised else "cancelled", hedge)
            return first
        call.attempts = hedge.attempts
        loser, lost = self.note_of(hedge), hedge
        if decides:
            loser, lost = Attempt(status, failure, elapsed, None, None, call.sent_to), call
        outcome = "cancelled" if self.failure is None else "failed"
        if decides and self.failure is None:
            outcome = "won"
        self.emit(outcome, hedge, loser, "first" if decides else "hedge")
        notes = HedgeNotes(hedge.sent_at - call.sent_at, decides, loser)
        call.notes.setdefault(STORY, {})[ORDER] = notes
        if loser.failure is not None:
            hedge.notes[NUMBER] = call.notes.get(NUMBER)  # for events about it
            call.limits.observe(lost, loser.failure, self.now())
        if decides:
            if isinstance(first, Exception):
                drop_frames(first)
            first = self.adopt(hedge)
        return first

    def adopt(self, hedge: Call) -> Any:
        """Let the call go on with the outcome of its hedge; return that."""
        port, call = self.port, self.call
        if IN_FLIGHT in call.notes:
            end_attempt(call)
        if IN_FLIGHT in hedge.notes:
            call.notes[IN_FLIGHT] = hedge.notes.pop(IN_FLIGHT)
        keep_findings(call, hedge)
        if hedge.origin != call.origin:
            outgoing = outgoing_of(port, call)
            outgoing.request = outgoing.pristine = aimed(port, outgoing.pristine, hedge.origin)
            for note_tried in having(port.settings.limits, "note_tried"):
                note_tried(call, call.origin)
            call.origin = hedge.origin
        call.sent_at, call.sent_to = hedge.sent_at, hedge.sent_to
        call.live, hedge.live = hedge.live, None
        # An error's traceback holds what sent the hedge, and that this.
        error, self.error = self.error, None
        return call.live if error is None else error

    def note_of(self, hedge: Call) -> Attempt:
        """The notes of the hedge, as the attempt that lost."""
        status = None if self.failure is None else self.failure.status
        elapsed = max(0.0, self.ended_at - hedge.sent_at)
        return Attempt(status, self.failure, elapsed, None, None, hedge.origin)

    def emit(
        self, outcome: str, hedge: Call, loser: Attempt | None = None, kind: str | None = None
    ) -> None:
        """Emit how the hedge ended; ``loser`` is the attempt that did not decide."""
        call, is_sent = self.call, hedge.is_under_way
        after = (hedge.sent_at if is_sent else self.now()) - call.sent_at
        self.port.settings.events.emit(
            "hedged", call, outcome=outcome, origin=hedge.origin, after=after, last=loser,
            kind=kind if is_sent else None, reason=self.refusal,
        )  # fmt: skip


def child_of(call: Call) -> Call:
    """A call for another attempt of this one: what that takes and notes is its own."""
    child = copy(call)
    child.notes, child.live, child.is_under_way = {}, None, False
    child.prefetch_result = child.body_error = None
    return child


def keep_findings(call: Call, child: Call) -> None:
    """Let the call go on with what was found out about the response of its child."""
    call.prefetch_result, call.body_error = child.prefetch_result, child.body_error
    for key in FINDINGS:
        if key in child.notes:
            call.notes[key] = child.notes[key]


async def failure_of(port: Any, call: Call, outcome: Any) -> Failure | None:
    """Return why an outcome is not good."""
    outcome = await inspected(port, call, outcome)
    if isinstance(outcome, Exception):
        failure, call.last_error = await classify(port, call, outcome), None
        return failure
    call.notes[INSPECTED] = True
    return classify_response(port, call, outcome)


def is_accepted(call: Call, failure: Failure | None) -> bool:
    """Does a response end the call, good or not?"""
    return failure is None or not is_failure(call.policy, call.request, failure)


def stops(failure: Failure) -> bool:
    """Does the origin throttle? Then nothing is sent in addition to the first attempt."""
    hint = failure.hint
    return failure.status in STOPS or hint.delay is not None or hint.should_retry is False


class TrioAlarms(Alarms):
    """Alarms on trio, where a system task sleeps in place of a timer."""

    __slots__ = ()

    def prepare(self, at: float) -> None:
        trio = sys.modules["trio"]
        self.rings_at = at
        deadline = trio.current_time() + max(0.0, at - self._now())
        if self._timer is not None:
            self._timer.deadline = deadline
        else:
            self._timer = trio.CancelScope(deadline=deadline)
            trio.lowlevel.spawn_system_task(self._sleep, trio)

    async def _sleep(self, trio: ModuleType) -> None:
        with self._timer:
            await trio.sleep_forever()
        self._timer = None
        self.ring_due()


def current_run() -> object:
    """Return a value that distinguishes one run of trio from another."""
    return sys.modules["trio"].lowlevel.current_trio_token()


class Hedged(NamedTuple):
    """A hedge was due, because the first attempt was slow (``Hedge``)."""

    client: str
    method: str
    origin: str  # of the hedge
    # "won" (its response is the call's), "failed", "cancelled" (the first attempt won, or the call
    # was cancelled) or "refused" (it was not sent).
    outcome: str
    # Of a refusal: "hedge-budget" (ratio and burst are used up), "origin-unhealthy",
    # "origin-strained" (its response times spread too widely), "circuit-open", "cooldown",
    # "budget-exhausted", "concurrency-limit" (no slot is free), "attempts-exhausted" or "deadline".
    # Of several refusals the last.
    reason: str | None
    after: float  # seconds from the first attempt to the hedge, or to the end of the call
    # The attempt that did not decide: "first" or "hedge"; None if there was only one.
    kind: str | None
    status: int | None  # of that attempt; like the next three None if it was cancelled
    error: str | None
    failure: FailureKind | None
    phase: Phase | None
    request_id: int = 0
    name: str = "hedged"


def rows() -> list[Row]:
    """The row of its event."""
    from ..core.record import in_seconds
    from ..telemetry.rows import Row

    def sentence(event: Hedged) -> str:
        why = "" if event.reason is None else f" ({event.reason})"
        return f"a second attempt after {in_seconds(event.after)}, {event.outcome}{why}"

    return [Row(Hedged, DEBUG, sentence)]
