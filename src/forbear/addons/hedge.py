"""Hedge: when a second attempt may start while the first one is slow.

For each origin and method the times to first byte of the last good responses are kept. The idea is
Dean and Barroso's ("The Tail at Scale", CACM 2013): ask a second server once the first one is
slower than nearly all are.

Hedging adds work where queues are the reason for the tail, and then it makes the tail longer. So a
token bucket bounds it, and there is none where an origin's tail is no longer apart from its usual
responses (``STRAINED``), or where these themselves have become slow (``SLOWER``). All durations are
seconds.

``Hedging`` is the layer around first attempts. The first attempt runs in the caller's task; an
alarm starts the hedge, in a task of its own. It is a child of the call, and for the limits a retry
of it: its attempt counts there, and what it takes is its own. The first good response wins: it
cancels the other attempt, and the call waits until that one's connection is released. If both
fail, the hedge's response decides. Good is a status below 400 that ``retry_if`` does not flag,
because a replica that lags behind returns 404, and one that is set up wrongly 401.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict, deque
from contextvars import copy_context
from copy import copy
from dataclasses import KW_ONLY
from math import ceil, inf
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from ..core.call import IN_FLIGHT, INSPECTED, NUMBER, ORDER, PREPARED_FOR, STORY, Attempt, Call
from ..core.checks import check_bool, check_duration, check_number, check_positive_int
from ..core.decide import is_failure
from ..core.feature_checks import begins_anew, check_is, check_share, texts
from ..core.outcome import IDEMPOTENT_METHODS, Failure, FailureKind, Phase, Reason
from ..engine.driver import classify, close, inspected
from ..engine.errors import drop_frames, sends_once
from ..engine.prepare import next_request
from ..engine.tasks import asyncio_loop
from ..errors import RetryRefused
from ..limits import Locked

if TYPE_CHECKING:
    from asyncio import Task
    from collections.abc import Callable, Iterable

    from anyio import CancelScope

    from ..engine.clock import Clock
    from ..engine.port import Port, Sendable
    from ..engine.settings import Inner

Req = TypeVar("Req", bound="Sendable")
Resp = TypeVar("Resp")

METHODS = frozenset({"GET", "HEAD", "OPTIONS"})  # safe: RFC 9110 section 9.2.1
DEBUG = 10  # of logging, which is not needed to decide
MOST_RESPONSES = 512  # whose times are kept, unless ``learn_from`` is more
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
SLOW = Failure(FailureKind.READ_TIMEOUT, Phase.SENT)  # as which limits see a first attempt
SOON = 0.005  # seconds until a hedge that may not win for an instant tries again


@begins_anew
class Hedge(Locked):
    """Sends a second attempt while the first one is slow; the first good response wins.

    An option of ``AsyncRetryTransport``, off unless given. The second attempt starts when the first
    one has taken longer than ``delay``, or than the ``quantile`` of this origin's good responses to
    this method. A failure of one attempt does not end the other. The loser is cancelled and
    closed. There is no second attempt where a retry could not be sent at once, because the server
    is unhealthy, its circuit open, or a cooldown or another limit lets it wait, nor while the
    origin's responses spread so widely that more requests would only make its queues longer.
    Thread-safe; one Hedge may serve several transports.

    Args:
        quantile: Share of good responses that come before a second attempt starts, from 0.5 to 1.
        delay: Seconds after which it starts, in place of the quantile. None: the quantile.
        at_least: Seconds before which it never starts.
        ratio: Second attempts for each good response, from 0 to 1. 0.05 adds at most 5 % to
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

    _: KW_ONLY
    quantile: float = 0.95
    delay: float | None = None
    at_least: float = 0.02
    ratio: float = 0.05
    burst: float = 2
    learn_from: int = 50
    methods: Iterable[str] = METHODS
    keyed: bool = False

    def __post_init__(self) -> None:
        check_share("quantile", self.quantile, 0.5)
        check_duration("delay", self.delay, none="the quantile", zero=False)
        check_duration("at_least", self.at_least)
        check_share("ratio", self.ratio)
        check_number("burst", self.burst, 1)
        check_positive_int("learn_from", self.learn_from)
        check_bool("keyed", self.keyed)
        self.methods = frozenset(m.upper() for m in texts("methods", self.methods, '{"GET"}'))
        unsafe = sorted(self.methods - IDEMPOTENT_METHODS)
        if unsafe:
            raise ValueError(
                f"methods must be idempotent, got {unsafe[0]}, which would be executed twice; write"
                " keyed=True to hedge requests that carry an idempotency key"
            )
        self._times: OrderedDict[tuple[str, str], Times] = OrderedDict()
        super().__init__()

    def times(self, origin: str, method: str) -> Times:
        """Return the times of an origin's responses to a method."""
        times = self._times.get((origin, method))
        if times is None:
            made = Times(self)  # outside the lock, which is held for assignments only
            with self._lock:
                times = self._times.setdefault((origin, method), made)
                if len(self._times) > MOST_TIMES:
                    self._times.popitem(last=False)
        return times

    def __repr__(self) -> str:
        known = f"{len(self._times)} origins and methods known"
        return f"<Hedge {self.ratio:.3g} of responses, {known}>"


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
        tokens: Second attempts that may be sent.
    """

    def __init__(self, hedge: Hedge) -> None:
        self._hedge = hedge
        self._best = inf  # the lowest median
        self._known: deque[float] = deque(maxlen=max(MOST_RESPONSES, hedge.learn_from))
        self._missing = hedge.learn_from  # responses until the quantile is computed
        self.delay = inf if hedge.delay is None else max(hedge.delay, hedge.at_least)
        self.is_strained = False
        self.tokens: float = hedge.burst
        super().__init__()

    def learn(self, seconds: float) -> None:
        """Note a good response: the seconds from sending to its first byte."""
        with self._lock:
            self._known.append(seconds)
            self.tokens = min(self.tokens + self._hedge.ratio, self._hedge.burst)
            self._missing -= 1
            if self._missing <= 0:
                self._missing = EVERY
                self._compute()

    def _compute(self) -> None:
        known, hedge = sorted(self._known), self._hedge
        median, tail, delay = (
            known[ceil(len(known) * share) - 1] for share in (0.5, TAIL, hedge.quantile)
        )
        self._best = min(self._best * FORGETS, median)
        self.is_strained = tail > median * STRAINED or median > self._best * SLOWER
        if hedge.delay is None:
            self.delay = max(delay, hedge.at_least)

    def spend(self) -> bool:
        """Spend the token of a second attempt; False: too many were sent, ask again later."""
        with self._lock:
            may = self.tokens >= 1
            self.tokens -= may
        return may


def layer(hedge: Hedge, clock: Clock) -> Hedging:
    return Hedging(hedge, clock)


class Hedging:
    """The layer: hedges first attempts.

    Attributes:
        of_thread: The alarms of the calls under way.
    """

    def __init__(self, hedge: Hedge, clock: Clock) -> None:
        self.hedge, self.clock = hedge, clock
        self.of_thread = PerThread(self.now)

    def now(self) -> float:
        return self.clock.monotonic()  # a test may replace it

    async def send(
        self, port: Port[Req, Resp], inner: Inner[Req, Resp], call: Call, request: Req
    ) -> Resp:
        """Send an attempt, and a hedge if it is a first one that takes long."""
        hedge, asked = self.hedge, call.request
        if (
            call.history
            or call.rest is not None
            or call.guard is not None  # the body can be read once at a time
            or not (asked.method in hedge.methods or (hedge.keyed and asked.keyed))
        ):
            return await inner(call, request)
        response: Resp = await HedgedCall(self, port, inner, call).send(request)
        return response


class HedgedCall(Generic[Req, Resp]):
    """A call whose first attempt may be hedged. An alarm that rings at ``at``.

    The first attempt runs in the caller's task. Until the alarm rings nothing is made for a hedge,
    since most calls are over before.

    Attributes:
        scope: Around the first attempt.
        context: The variables of the caller, for the hedge.
        hedge: The child call of the hedge; once all is settled, that of the attempt which lost.
        has_rung: There is one.
        hedge_scope: Around the hedge; None: its task has not begun.
        refusal: Why it is not sent.
        failure: Why its response is not good.
        ended_at: When its task was over.
        has_won: It got a good response, and cancels the first attempt.
        first_ended: The first attempt is over, or the call is cancelled: no hedge is sent any more.
        is_settled: It is known which attempt decides.
        is_over: Set when the task of the hedge has nothing more to do.
    """

    hedge: Call
    hedge_scope: CancelScope | None = None
    refusal: str | None = None
    failure: Failure | None = None
    ended_at = 0.0
    has_rung = has_won = first_ended = is_settled = False

    def __init__(
        self, hedging: Hedging, port: Port[Req, Resp], inner: Inner[Req, Resp], call: Call
    ) -> None:
        self.hedging, self.port, self.inner, self.call = hedging, port, inner, call
        self.now = hedging.now
        self.times = hedging.hedge.times(call.sent_to, call.request.method)
        self.at = call.sent_at + self.times.delay
        self.context = copy_context()
        self.loop = asyncio_loop()
        self.alarms = hedging.of_thread.of(
            self.loop or sys.modules["trio"].lowlevel.current_trio_token()
        )
        if self.loop is None:
            self.scope: Any = sys.modules["trio"].CancelScope()
        else:
            self.scope = TaskScope(sys.modules["asyncio"].current_task(self.loop))

    async def send(self, request: Req) -> Any:
        """Send the first attempt; return the response that decides, or raise its error."""
        call, alarms = self.call, self.alarms
        if self.at < alarms.rings_at:
            alarms.prepare(self.at)
        try:
            alarms.pending[self] = None
            with self.scope:
                await self.inner(call, request)
        except Exception as error:
            if not (self.has_rung and await self.settle(error)):
                raise
        else:  # without a response the hedge has cancelled it
            if call.live is None or self.port.status_of(call.live) < 400:
                # Of one that was cancelled, for how long it has lasted: without those the quantile
                # would fall with each hedge.
                self.times.learn(self.now() - call.sent_at)
            if self.has_rung:
                await self.settle(call.live)
        finally:
            alarms.pending.pop(self, None)
            if self.has_rung:
                if not self.is_settled:  # the call is cancelled or interrupted
                    await self.stop()
                    loser = lost_attempt(self.hedge, self.failure, self.ended_at)
                    self.emit("cancelled", loser, "hedge")
                self.hedge.limits.leave(self.hedge, self.now())
            self.scope = None  # a task holds what is raised in it, and that this frame
        return call.live

    def ring(self) -> None:
        """Start what sends the hedge, in a task of its own."""
        self.at, self.hedge, self.has_rung = inf, self.child(), True
        if self.loop is None:
            trio = sys.modules["trio"]
            self.is_over: Any = trio.Event()
            trio.lowlevel.spawn_system_task(self.run, context=self.context)
        else:
            self.is_over = sys.modules["asyncio"].Event()
            # A strong reference: the loop's is weak, and the task could vanish.
            self._task = self.loop.create_task(self.run(), context=self.context)
            # Also if it is cancelled before it begins.
            self._task.add_done_callback(lambda _: self.is_over.set())

    async def run(self) -> None:
        """Send the hedge as soon as it may be; let it win while the first attempt is in flight."""
        import anyio

        try:
            with anyio.CancelScope() as self.hedge_scope:
                while not self.first_ended:
                    self.refusal = await self.send_hedge(self.hedge)
                    if self.refusal is None:
                        break
                    self.hedge.limits.leave(self.hedge, self.now())
                    await anyio.sleep(self.times.delay / 2)
                    self.hedge = self.child()
                # A second cancellation would interrupt what the first one does: anyio cancels a
                # task for an instant to connect.
                while not self.first_ended and self.loop and self.scope.task.cancelling():
                    await anyio.sleep(SOON)
                if self.failure is None and not self.first_ended:
                    self.has_won = True
                    self.scope.cancel()
        except Exception as error:  # of the user's
            name = "before_attempt" if self.hedge.awaits_hook else "budget"
            self.refusal = Reason.HOOK_FAILED.value
            self.port.settings.events.log().hook_failed(name, error)
        finally:
            self.ended_at = self.now()
            self.is_over.set()

    async def send_hedge(self, hedge: Call) -> str | None:
        """Send the hedge and judge its outcome, or return why it is not sent now.

        The limits are asked as for a retry that is sent at once.
        """
        port, limits, times = self.port, hedge.limits, self.times
        if hedge.attempts >= hedge.most_attempts or sends_once(hedge):
            return "attempts-exhausted"
        if times.is_strained:
            return "origin-strained"
        if times.tokens < 1:
            return "hedge-budget"
        try:
            if limits.can_fail_over(hedge) and limits.fail_over(hedge, self.now()):
                return "delayed"
            stop = limits.take(hedge, SLOW, 0.0, self.now(), hedge.deadline_at)
            if stop is not None or hedge.hold is not None:
                return (Reason.ORIGIN_UNHEALTHY if stop is None else stop.reason).value
            while True:
                if limits.admit(hedge, self.now()):
                    return "delayed"
                request = next_request(port, hedge)
                if not hedge.awaits_hook:
                    break
                result = port.settings.options["before_attempt"](request, hedge.attempts + 1)
                if hasattr(result, "__await__"):
                    await result
                hedge.notes[PREPARED_FOR] = hedge.origin
        except RetryRefused as refused:
            return refused.reason.value
        if self.now() >= hedge.deadline_at:
            return "deadline"
        if not times.spend():
            return "hedge-budget"
        if self.hedging.of_thread.alarms.loop is not self.alarms.loop:
            # Another loop has sent since the first attempt: the pool would hand out its idle
            # connection, from which this one can only send.
            await port.close_idle(hedge)
        hedge.sending(self.now())
        try:
            await self.inner(hedge, request)
            self.failure = await failure_of(port, hedge, hedge.live)
        except Exception as error:
            self.failure = await failure_of(port, hedge, error)
            drop_frames(error)
        return None

    async def stop(self) -> None:
        """Cancel the hedge, and wait until its connection is released."""
        import anyio

        self.first_ended = True
        if self.hedge_scope is not None:
            self.hedge_scope.cancel()
        with anyio.CancelScope(shield=True):
            await self.is_over.wait()
            await close(self.port, self.hedge.live)

    async def settle(self, first: Any) -> bool:
        """Choose between the attempts when the first one is over; True: the hedge decides.

        ``first`` is its response or error; None: the hedge has cancelled it.
        """
        port, call, failure, decides = self.port, self.call, None, self.has_won
        self.first_ended, ended_at = True, self.now()
        if not decides:
            failure = await failure_of(port, call, first)
            if (
                failure is not None
                and is_failure(call.policy, call.request, failure)
                and not stops(failure)
                and self.hedge.is_under_way
            ):
                await self.is_over.wait()
                decides = self.hedge.live is not None
        if decides:
            await close(port, first)
        else:
            await self.stop()
        self.is_settled, hedge = True, self.hedge
        if not hedge.is_under_way:
            self.emit("cancelled")
            return False
        lost, kind, outcome = (call, "first", "won") if decides else (hedge, "hedge", "cancelled")
        if self.failure is not None:
            outcome = "failed"
        if not decides:
            failure, ended_at = self.failure, self.ended_at
        loser = lost_attempt(lost, failure, ended_at)
        self.emit(outcome, loser, kind)
        after = hedge.sent_at - call.sent_at
        call.attempts, hedge.notes[NUMBER] = hedge.attempts, call.notes.get(NUMBER)
        if decides:
            if isinstance(first, Exception):
                drop_frames(first)
            self.hedge = lost = copy(call)
            hedge.history = []
            for name in Call.__slots__:  # the call goes on as its hedge
                setattr(call, name, getattr(hedge, name))
        noted = loser if decides else loser._replace(sent_after=after)
        call.notes.setdefault(STORY, {})[ORDER] = noted, after
        if failure is not None:
            call.limits.observe(lost, failure, self.now())
        return decides

    def child(self) -> Call:
        """A call for another attempt of this one, as a retry: what that takes is its own."""
        call, settings = self.call, self.port.settings
        child = copy(call)
        child.request, child.outgoing = copy(call.request), copy(call.outgoing)
        child.notes = {
            key: kept
            for key, kept in call.notes.items()
            if key != IN_FLIGHT and key not in settings.limits.listed
        }
        if settings.rewrites:
            child.notes[PREPARED_FOR] = ""
        child.history = [lost_attempt(call, SLOW, self.now())]
        child.live, child.is_under_way = None, False
        return child

    def emit(self, outcome: str, loser: Attempt | None = None, kind: str | None = None) -> None:
        """Emit how the hedge ended; ``loser`` is the attempt that does not decide."""
        call, hedge, is_sent = self.call, self.hedge, self.hedge.is_under_way
        self.port.settings.events.emit(
            Hedged, call, origin=hedge.origin, last=loser, reason=self.refusal,
            outcome=outcome if self.refusal is None else "refused",
            after=(hedge.sent_at if is_sent else self.now()) - call.sent_at,
            kind=kind if is_sent else None,
        )  # fmt: skip


def lost_attempt(call: Call, failure: Failure | None, ended_at: float) -> Attempt:
    """The notes of an attempt that does not decide."""
    elapsed = max(0.0, ended_at - call.sent_at)
    return Attempt(failure and failure.status, failure, elapsed, None, None, call.sent_to)


async def failure_of(
    port: Port[Req, Resp], call: Call, outcome: Resp | Exception
) -> Failure | None:
    """Return why an outcome is not good; it is not inspected again."""
    found = await inspected(port, call, outcome)
    call.notes[INSPECTED] = found is outcome
    failure = await classify(port, call, found)
    call.last_error = None
    return failure


def stops(failure: Failure) -> bool:
    """Does the origin throttle? Then nothing is sent in addition to the first attempt."""
    hint = failure.hint
    return failure.status in STOPS or hint.delay is not None or hint.should_retry is False


class TaskScope:
    """A scope of an asyncio task that is cancelled once; one of anyio's takes 10 us, this 1.4."""

    def __init__(self, task: Task[object]) -> None:
        self.task, self.is_cancelled = task, False

    def cancel(self) -> None:
        self.is_cancelled = self.task.cancel()

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        # As asyncio.timeout does: a cancellation from outside, at the same time, must propagate.
        is_ours = self.is_cancelled and not self.task.uncancel()
        return is_ours and kind is sys.modules["asyncio"].CancelledError


class Alarm(Protocol):
    """What ``Alarms`` rings."""

    at: float

    def ring(self) -> None: ...


class Alarms:
    """The alarms of one transport on one loop: one timer for all its calls, since few of them ring.

    Whoever puts an alarm into ``pending`` also removes it.

    Attributes:
        loop: Asyncio's, or the token of a run of trio; None: none yet.
        rings_at: When the timer checks the alarms next.
        pending: Those that were not removed.
    """

    def __init__(self, now: Callable[[], float], loop: Any = None) -> None:
        self._now, self.loop = now, loop
        self.rings_at = inf
        self.pending: dict[Alarm, None] = {}

    def prepare(self, at: float) -> None:
        """Set the timer early enough for an alarm that is put into ``pending`` now."""
        self.rings_at, seconds = at, max(0.0, at - self._now())
        if hasattr(self.loop, "call_later"):
            self.loop.call_later(seconds, self.ring_due, at)
        else:
            sys.modules["trio"].lowlevel.spawn_system_task(self._sleep, seconds, at)

    async def _sleep(self, seconds: float, at: float) -> None:
        await sys.modules["trio"].sleep(seconds)
        self.ring_due(at)

    def ring_due(self, at: float) -> None:
        """Ring the alarms that are due, and set the timer for the next one."""
        if at != self.rings_at:  # an earlier timer has taken its place
            return
        self.rings_at, now = inf, self._now()
        # A list first, since ringing may remove alarms while the dict is iterated.
        for alarm in [alarm for alarm in self.pending if alarm.at <= now]:
            alarm.ring()
        at = min((alarm.at for alarm in self.pending), default=inf)
        if at < inf:
            self.prepare(at)


class PerThread(threading.local):
    """The alarms of one transport, by thread: the loops of several may share it.

    Attributes:
        alarms: Those of the loop that asked last in this thread.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now, self.alarms = now, Alarms(now)

    def of(self, loop: object) -> Alarms:
        """Return the alarms of a loop of this thread. Reading them takes 0.07 us: once an attempt.

        Loops may take turns in a thread. Each timer holds the alarms of its loop, so those of the
        others stay, and go with a loop that has ended.
        """
        if loop is not self.alarms.loop:
            self.alarms = Alarms(self._now, loop)
        return self.alarms


class Hedged(NamedTuple):
    """A hedge was due, because the first attempt was slow (``Hedge``)."""

    client: str
    method: str
    origin: str  # of the hedge
    # "won" (its response is the call's), "failed", "cancelled" (the first attempt won, or the call
    # was cancelled) or "refused" (it was not sent).
    outcome: str
    # Of a refusal: "hedge-budget" (ratio and burst are used up), "origin-strained" (its response
    # times spread too widely), "delayed" (a cooldown, a quota or a limit lets it wait), or the
    # ``Reason`` for which a retry would be refused. Of several refusals the last.
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

    def level(self) -> int:
        return DEBUG

    def sentence(self) -> str:
        from ..records import in_seconds

        why = "" if self.reason is None else f" ({self.reason})"
        return f"a second attempt after {in_seconds(self.after)}, {self.outcome}{why}"
