"""Health: what the gate knows of one origin, and which calls are held for it.

What follows from it, and the source of the rule and its numbers, are in gate.py. All instants are
monotonic seconds. Not locked: the gate's lock is held around each change.
"""

from __future__ import annotations

from enum import StrEnum
from heapq import heappop
from itertools import count
from math import exp, inf
from typing import TYPE_CHECKING

from ..core.outcome import ORIGIN_FAILURE_KINDS, FailureKind, Phase

if TYPE_CHECKING:
    from ..core.outcome import Failure

# Of an origin that never failed: after three failures in a row it is unhealthy, and before the
# fourth there is room for a good response or two. With 3 tokens, and 0.6 for a good response, it
# was 95.8 % of the calls of the first 15 s that succeed behind one bad replica of three (50 calls a
# second), and so it is 97.5 %; fleets in an outage lose no more.
TOKENS = 3.9
HEALTHY = 1.0  # tokens; with fewer an origin is unhealthy
QUIET_SECOND = 1.0  # without a new call this process sends nothing else
FIRST_PROBE = 0.5  # seconds; the first failure doubles it
TRUST_FOR = 15.0  # seconds over which trust is a mean of the results of retries
MOST_WEIGHT = 0.25  # of one retry in that mean, however long ago the one before it was
# The mean begins as if so many retries had failed, and the first ones count for more than time
# would give them: at 50 calls a second one bad replica of three is known after two seconds in place
# of ten. While calls are held time alone counts, because those that are released after an outage
# succeed too, and would make the failures of an overload that follows look cheap.
FAILED_BEFORE = 20
LEAST_COST = 0.3  # of a failure, however often retries have succeeded
RELEASES_OVER = 3.0  # seconds over which the rate of releases is averaged
NUMBERS = count()  # of holds: of two that are ready at one instant the first one is released


class Cause(StrEnum):
    """Why a held call was released. The value is the stable string of events and metrics."""

    HEALTHY = "healthy"
    GOOD_RETRY = "good-retry"
    PROBE = "probe"
    PATIENCE_OVER = "patience-over"


class Hold:
    """One held call in the queue of its origin.

    Attributes:
        ready_at: When its backoff or the server's time is over; the queue is in this order.
        until: When its patience ends, or its deadline.
        latest_at: When its deadline or its key ends: a released call that wakes later is not sent.
        held_at: Since when it is held.
        cause: Why it was released; None while it is held.
    """

    __slots__ = ("cause", "health", "held_at", "latest_at", "number", "ready_at", "until")

    def __init__(
        self, health: Health, held_at: float, ready_at: float, until: float, latest_at: float
    ) -> None:
        self.health = health
        self.number = next(NUMBERS)
        self.held_at = held_at
        self.ready_at = ready_at
        self.until = until
        self.latest_at = latest_at
        self.cause: Cause | None = None

    def __lt__(self, other: Hold) -> bool:
        return (self.ready_at, self.number) < (other.ready_at, other.number)


class Health:
    """The health of one origin, as the gate knows it."""

    __slots__ = (
        "begun_at", "credit", "crowded_until", "first_probe", "good_at", "is_cheap", "jitter",
        "patience", "probe", "queue", "queued_since", "rate", "released", "released_at", "retries",
        "sent_at", "slow_until", "stepped_at", "tokens", "trust", "trust_at", "unhealthy_since",
        "waiting",
    )  # fmt: skip

    def __init__(self, sent_at: float) -> None:
        self.tokens = TOKENS
        self.trust = 0.0  # the share of retries that succeeded lately
        self.trust_at = -inf  # when the last of them ended
        self.retries = FAILED_BEFORE  # that trust is the mean of
        self.slow_until = -inf  # until then releases are slower, after a timeout
        self.good_at = -inf  # the last good response; not noted while the origin is at rest
        self.unhealthy_since = inf  # inf while it is healthy
        self.is_cheap = False  # the last failure cost half a token at most: nothing has piled up
        self.queue: list[Hold] = []  # a heap; holds that have ended are taken out at its head
        self.waiting: set[Hold] = set()  # those of them that are held still
        self.queued_since = -inf  # since when there has been no instant without a held call
        self.crowded_until = -inf  # until then no call is held if the origin responds to others
        self.released = 0.0  # held calls that were released, each with a weight that decays
        self.released_at = -inf
        self.patience = 0.0  # of the call that was held last
        self.sent_at = sent_at  # when any attempt was last sent
        self.rest()

    def rest(self) -> None:
        """Forget what belongs to an outage that is over; trust stays."""
        self.credit = 0.0
        self.probe = self.first_probe = FIRST_PROBE
        self.jitter = 0.0  # share of ``probe`` until the next one; 0: not chosen yet
        self.stepped_at = -inf  # when the time between probes grew last
        self.begun_at = -inf  # the last new call
        self.rate = 0.0  # new calls in a second or so, at ``begun_at``

    def learn(self, ok: float, now: float) -> None:
        """Note the result of a retry: 1 if it succeeded, 0 if not.

        The mean forgets with time, and one retry changes it by a quarter at most. An outage cannot
        earn trust, so a trusted origin that fails has a share of failures and no outage.
        """
        weight = (now - self.trust_at) / TRUST_FOR
        if weight < 0.0:  # tests skip time in each thread
            return
        self.trust_at = now
        self.retries = retries = self.retries + 1
        if weight > MOST_WEIGHT:
            weight = MOST_WEIGHT
        elif weight * retries < 1.0 and not self.waiting:
            weight = 1.0 / retries
        self.trust += weight * (ok - self.trust)

    def released_per_second(self, now: float) -> float:
        """Held calls that were released per second, in the mean of the last seconds."""
        since = min(0.0, self.released_at - now)
        return self.released * exp(since / RELEASES_OVER) / RELEASES_OVER

    @property
    def held(self) -> int:
        """Calls that are held."""
        return len(self.waiting)

    def head(self, now: float) -> Hold | None:
        """The held call that was ready first, and whose patience is not over."""
        queue = self.queue
        while queue:
            first = queue[0]
            if first.cause is None and first.until > now:
                return first
            heappop(queue)
            if first.cause is None:  # its call has not asked for long, and must not block the queue
                self.remove(first, Cause.PATIENCE_OVER)
        return None

    def remove(self, hold: Hold, cause: Cause) -> None:
        """Take a call out of the queue. Idempotent, so that an interruption leaves no call counted
        for good.
        """
        self.waiting.discard(hold)
        hold.cause = cause

    def release(self, hold: Hold, cause: Cause, now: float) -> None:
        """Let a held call be sent."""
        self.waiting.discard(hold)
        hold.cause = cause
        since, self.released_at = self.released_at, now
        self.released = 1.0 + self.released * exp(min(0.0, since - now) / RELEASES_OVER)

    def is_alone(self, now: float) -> bool:
        """Can only retries earn releases: are there no new calls, or too few for those held?

        Then held calls are a gather's or a script's, and waiting for new calls would be in vain.
        """
        if now - self.begun_at > QUIET_SECOND:
            return True
        return self.held > 2 * self.patience * self.rate_at(now)

    def rate_at(self, now: float) -> float:
        """New calls in a second or so. ``now`` may be before: tests skip time in each thread."""
        return self.rate * exp(min(0.0, self.begun_at - now))

    def use_credit(self, now: float, cause: Cause) -> None:
        """Release as many calls as were earned, of those that are ready."""
        # Below 1, because ten times 0.1 is not quite 1.
        while self.credit > 0.999 and (head := self.head(now)) is not None and head.ready_at <= now:
            self.credit -= 1
            self.release(head, cause, now)


def cost_of(failure: Failure, is_retry: bool) -> float:
    """Tokens that an attempt costs its origin: a failed response or a timeout 1, a broken
    connection 0.5.

    A refused or reset connection costs the server little. The first response that is throttled with
    a time says nothing, since its time is obeyed; a second one does.

    Returns:
        Below 0: the origin responded as it should. 0: the failure says nothing of the origin.
    """
    status = failure.status
    if status is None:
        if failure.kind not in ORIGIN_FAILURE_KINDS or failure.stale_connection:
            return 0.0
        broken = failure.kind is FailureKind.RESET or failure.phase is Phase.UNSENT
        return 0.5 if broken else 1.0
    if status >= 500:
        return 1.0
    if status < 400:  # ``retry_if`` polls a server that responds as it should
        return 0.0
    if not failure.is_throttle:
        return -1.0
    return 1.0 if is_retry or not failure.hint.delay else 0.0
