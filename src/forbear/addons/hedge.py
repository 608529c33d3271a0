"""Hedge: when a second attempt may start while the first one is slow.

For each origin and method a sketch keeps the times to first byte of good responses: counts in
buckets of 5 %, halved again and again, so that old times fade. The idea is Dean and Barroso's ("The
Tail at Scale", CACM 2013): ask a second server once the first one is slower than nearly all are.

Hedging adds work where queues are the reason for the tail, and then it makes the tail longer. So a
token bucket bounds it, and there is none where an origin's tail is no longer apart from its usual
responses (``STRAINED``), or where these themselves have become slow (``SLOWER``). All durations are
seconds.
"""

from __future__ import annotations

from collections import OrderedDict
from math import ceil, exp, floor, inf, log
from typing import TYPE_CHECKING, NamedTuple

from ..core.checks import (
    check_bool,
    check_duration,
    check_number,
    check_positive_int,
    rebuilt,
    shown,
    suggesting,
    texts,
)
from ..core.feature_checks import check_is
from ..core.outcome import IDEMPOTENT_METHODS, FailureKind, Phase
from ..limits import Locked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from ..core.call import Attempt, Call
    from ..engine.events import Row
    from ..limits.limits import Limits

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
    # "local-saturation" (no connection is free), "budget-exhausted", "concurrency-limit" (no slot
    # is free), "attempts-exhausted", "deadline" or "cancelled". Of several refusals the last.
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


def rows() -> list[Row[..., Any]]:
    """The row of its event."""
    from ..core.record import in_seconds
    from ..engine.events import Row, number_of, result_of

    def build(
        client: str, call: Call, outcome: str, after: float, loser: Attempt | None,
        kind: str | None, reason: str | None,
    ) -> Hedged:  # fmt: skip
        """``loser`` is the one of two attempts that did not decide."""
        failure = loser and loser.failure
        return Hedged(
            client=client, method=call.request.method, origin=call.origin, outcome=outcome,
            reason=reason, after=after, kind=kind, status=loser and loser.status,
            error=failure and failure.error, failure=failure and failure.kind,
            phase=failure and failure.phase, request_id=number_of(call),
        )  # fmt: skip

    def sentence(event: Hedged) -> str:
        why = "" if event.reason is None else f" ({event.reason})"
        after = f"a second attempt after {in_seconds(event.after)}, {event.outcome}"
        return f"{event.method} {event.origin}: {after}{why}"

    def result(event: Hedged) -> str | None:
        return None if event.reason else result_of(event.status, event.failure, event.phase)

    return [
        Row(
            "hedged", DEBUG, build, sentence,
            counts={  # as refused, or as sent
                "forbear.hedges.refused": {},
                "forbear.hedges": {"result": lambda e: e.outcome if e.reason is None else None},
                "forbear.attempts": {"result": result},
            },
            span=("", lambda e: {
                "forbear.hedge": e.outcome,
                "forbear.hedged_after": None if e.reason else e.after,
            }),
        ),
    ]  # fmt: skip
