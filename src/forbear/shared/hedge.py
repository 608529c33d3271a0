"""Hedge: when a second attempt may start beside a first one that takes long. Floor: remembers.

For each origin and method a sketch keeps the times to first byte of good answers: counts in buckets
of 5 %, halved again and again, so that old times fade. The idea is Dean and Barroso's ("The Tail at
Scale", CACM 2013): ask a second server once the first one is slower than nearly all answers are.

Hedging adds work where queues are the reason for the tail, and then it makes the tail longer. So a
token bucket bounds it, and there is none where an origin's tail is no longer apart from its usual
answers (``STRAINED``), or where these themselves have become slow (``SLOWER``). All durations are
seconds.
"""

from __future__ import annotations

from collections import OrderedDict
from math import ceil, exp, floor, inf, log
from typing import TYPE_CHECKING

from ..core.checks import a_count, a_duration, a_number, a_switch, shown, texts
from ..core.outcome import IDEMPOTENT_METHODS
from .locks import Locked

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Hedge", "Times"]

METHODS = frozenset({"GET", "HEAD", "OPTIONS"})  # safe: RFC 9110 section 9.2.1
FINENESS = 20  # buckets for each factor of e: neighbours differ by 5 %
LEAST = 1e-6  # seconds; shorter ones are in the lowest bucket
LOWEST = floor(log(LEAST) * FINENESS)
MOST_ANSWERS = 1024  # that a sketch counts before it halves all counts
FADE = 300.0  # seconds after which it does so too
EVERY = 64  # answers after which the quantile is worked out anew
# The tail is no longer that of single stragglers if it is so many times the median: waiting in
# queues, or requests that differ, make all answers spread. A second attempt would wait as long.
STRAINED = 4.0
TAIL = 0.95  # the share of answers before it, whatever the quantile is that starts an attempt
# Where all answers wait they spread no more: then the median is so many times its best.
SLOWER = 2.0
FORGETS = 1.002  # the best, by so much at each look: a factor of 2 in 22,000 answers
MOST_TIMES = 1024  # pairs of origin and method; least recently made first out


class Hedge:
    """Sends a second attempt where the first one takes long; the first good answer wins.

    An option of ``AsyncRetryTransport``, off unless given. The second attempt starts when the first
    one has taken longer than ``delay``, or than the ``quantile`` of this origin's good answers to
    this method. A failure of one attempt lets the other go on. The attempt that loses is cancelled
    and closed. There is no second attempt while the origin is unwell, its circuit is not closed, a
    cooldown holds, no connection of the pool is free, or the origin's answers spread so widely that
    more requests would only make its queues longer. Thread-safe; one Hedge may serve several
    transports.

    Args:
        quantile: Share of good answers that come before a second attempt starts, from 0.5 to below
            1.
        delay: Seconds after which it starts, in place of the quantile. None: the quantile.
        at_least: Seconds before which it never starts.
        ratio: Second attempts for each good answer, above 0, at most 1. 0.05 adds at most 5 % to
            the origin's work.
        burst: Second attempts that may be sent at once, at least 1.
        learn_from: Good answers after which the quantile counts; there is no second attempt before.
        methods: Of requests that may be sent a second time at once.
        keyed: Whether a request that carries an idempotency key may be, too, whatever its method.
            Both attempts carry the same key. A server that answers 409 while a key is in use makes
            it pointless.

    Raises:
        ValueError: A number is out of its range, or a method is not idempotent.
        TypeError: A value is of the wrong type.
    """

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
        a_number("quantile", quantile, 0.5)
        if quantile >= 1:
            raise ValueError(f"quantile must be below 1, got {shown(quantile)}; 0.95 is usual")
        a_duration("delay", delay, none="the quantile", zero=False)
        a_duration("at_least", at_least)
        a_number("ratio", ratio)
        if not 0 < ratio <= 1:
            raise ValueError(
                f"ratio must be above 0 and at most 1, got {shown(ratio)}; hedge=None sends none"
            )
        a_number("burst", burst, 1)
        a_count("learn_from", learn_from)
        a_switch("keyed", keyed)
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

    def times(self, origin: str, method: str) -> Times:
        """Return what is known of the answers of an origin to a method."""
        try:
            return self._times[origin, method]
        except KeyError:
            if len(self._times) >= MOST_TIMES:
                self._times.popitem(last=False)
            return self._times.setdefault((origin, method), Times(self))

    def __repr__(self) -> str:
        return f"<Hedge {self.ratio:.3g} of answers, {len(self._times)} origins and methods known>"


class Times(Locked):
    """Times to first byte of the good answers of one origin to one method. Thread-safe.

    Attributes:
        delay: Seconds after which a second attempt is wanted; infinite as long as too few answers
            are known.
        is_strained: The answers spread so widely, or are so slow, that a second attempt would do
            harm.
    """

    __slots__ = (
        "_best", "_counts", "_earned_for", "_fades_at", "_fresh", "_hedge", "_room", "_tokens",
        "delay", "is_strained",
    )  # fmt: skip

    def __init__(self, hedge: Hedge) -> None:
        self._hedge = hedge
        self._best = inf  # the lowest median
        self._counts: dict[int, float] = {}  # answers in each bucket
        self._fresh: list[float] = []  # answers that are in no bucket yet
        self._room = min(hedge.learn_from, EVERY)  # for so many of them
        self._fades_at = -inf
        self._tokens: float = hedge.burst
        self._earned_for = 0  # so many of the fresh answers have earned their share of a token
        self.delay = inf if hedge.delay is None else max(hedge.delay, hedge.at_least)
        self.is_strained = False
        super().__init__()

    def learn(self, seconds: float, now: float) -> None:
        """Note a good answer.

        Args:
            seconds: From sending to its first byte; of a first attempt that was cancelled because
                the second one won, the seconds that it had lasted. Without those the quantile would
                fall with each second attempt.
            now: The present instant.
        """
        fresh = self._fresh
        fresh.append(seconds)
        if len(fresh) >= self._room:
            with self._lock:
                self._earn()
                self._fold(now)

    def _fold(self, now: float) -> None:
        """Put the fresh answers into their buckets, and work out the quantile."""
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
        if total >= max(MOST_ANSWERS, 4 * hedge.learn_from) or now >= self._fades_at:
            if self._fades_at != -inf:
                # Whole numbers would lose the tail, where a bucket holds one answer.
                kept = ((bucket, number / 2) for bucket, number in counts.items() if number > 0.2)
                self._counts = dict(kept)
            self._fades_at = now + FADE

    def _earn(self) -> None:
        known = len(self._fresh)
        earned = self._hedge.ratio * (known - self._earned_for)
        self._tokens = min(self._tokens + earned, self._hedge.burst)
        self._earned_for = known

    def spend(self) -> bool:
        """Take what a second attempt costs; False: too many were sent, ask again later."""
        with self._lock:
            self._earn()
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True

    def give_back(self) -> None:
        """The second attempt was not sent after all."""
        with self._lock:
            self._tokens = min(self._tokens + 1, self._hedge.burst)

    def __repr__(self) -> str:
        return f"<Times hedged after {self.delay:.3g} s, {self._tokens:.3g} tokens>"


def rank(ranked: list[tuple[int, float]], place: float) -> float:
    """Return the upper end of the bucket in which the answer of that place is."""
    seen, bucket = 0.0, 0
    for bucket, number in ranked:  # noqa: B007  # the last one if the place is beyond all
        seen += number
        if seen >= place:
            break
    return exp((bucket + 1) / FINENESS)
