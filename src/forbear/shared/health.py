"""Health: all that the gate knows of one origin, and who is held for it. Floor: remembers.

What follows from it, and the source of the rule and its numbers, stand in gate.py. All instants are
monotonic seconds. Not locked: the gate's lock is held around each change.
"""

from __future__ import annotations

from enum import StrEnum
from heapq import heappop
from itertools import count
from math import exp, inf
from typing import TYPE_CHECKING

from ..core.outcome import TIMEOUT_KINDS, FailureKind, Phase
from .breaker import TROUBLE_KINDS

if TYPE_CHECKING:
    from ..core.outcome import Failure

__all__ = ["Cause", "Health", "Place", "cost_of"]

TOKENS = 2.0  # of an origin that never failed: two failures in a row, and it is not well
WELL = 1.0  # tokens
TIMEOUT_COST = 2.0  # tokens
QUIET_SECOND = 1.0  # without a new call: this process sends nothing else
FIRST_PROBE = 0.5  # seconds; the first failure doubles it
NUMBERS = count()  # of places: of two that are ready at one instant the first that was held


class Cause(StrEnum):
    """Why a held call was let go. The value is the stable string of events and metrics."""

    WELL = "well"
    GOOD_RETRY = "good-retry"
    PROBE = "probe"
    PATIENCE_OVER = "patience-over"


class Place:
    """The place of one held call in the queue of its origin.

    Attributes:
        ready_at: When its backoff or the server's time is over; the queue is in this order.
        until: When its patience ends, or its deadline.
        held_at: Since when it is held.
        cause: Why it was let go; None while it is held.
    """

    __slots__ = ("cause", "health", "held_at", "number", "ready_at", "until")

    def __init__(self, health: Health, held_at: float, ready_at: float, until: float) -> None:
        self.health = health
        self.number = next(NUMBERS)
        self.held_at = held_at
        self.ready_at = ready_at
        self.until = until
        self.cause: Cause | None = None

    def __lt__(self, other: Place) -> bool:
        return (self.ready_at, self.number) < (other.ready_at, other.number)


class Health:
    """What the gate knows of one origin."""

    __slots__ = (
        "begun_at", "credit", "first_probe", "jitter", "patience", "probe", "queue", "rate",
        "sent_at", "stepped_at", "tokens", "waiting",
    )  # fmt: skip

    def __init__(self, sent_at: float) -> None:
        self.tokens = TOKENS
        self.credit = 0.0
        self.probe = self.first_probe = FIRST_PROBE
        self.jitter = 0.0  # share of ``probe`` until the next one goes; 0: not drawn yet
        self.sent_at = sent_at  # the last sending of any attempt
        self.stepped_at = -inf  # when the time between probes grew last
        self.begun_at = -inf  # the last new call
        self.rate = 0.0  # new calls in a second or so, at ``begun_at``
        self.patience = 0.0  # of the call that was held last
        self.queue: list[Place] = []  # a heap; places that were left are taken out at its head
        self.waiting: set[Place] = set()  # those of them that are held still

    @property
    def held(self) -> int:
        """Calls that are held."""
        return len(self.waiting)

    def head(self, now: float) -> Place | None:
        """The held call that was ready first, and whose patience is not over."""
        queue = self.queue
        while queue:
            first = queue[0]
            if first.cause is None and first.until > now:
                return first
            heappop(queue)
            if first.cause is None:  # it has not asked for long: nobody behind it must wait
                self.release(first, Cause.PATIENCE_OVER)
        return None

    def release(self, place: Place, cause: Cause) -> None:
        """Let a call go. Idempotent, so that an interruption leaves nobody counted for good."""
        self.waiting.discard(place)
        place.cause = cause

    def is_alone(self, now: float) -> bool:
        """Is there nothing to live on but retries: no new calls, or far more held than they feed?

        Then held calls are a gather's or a script's, and waiting for new calls would be in vain.
        """
        if now - self.begun_at > QUIET_SECOND:
            return True
        return self.held > 2 * self.patience * self.rate_at(now)

    def rate_at(self, now: float) -> float:
        """New calls in a second or so. ``now`` may be before: tests skip time in each thread."""
        return self.rate * exp(min(0.0, self.begun_at - now))

    def use_credit(self, now: float, cause: Cause) -> None:
        """Let go as many calls as were earned, of those that are ready."""
        while self.credit >= 1 and (head := self.head(now)) is not None and head.ready_at <= now:
            self.credit -= 1
            self.release(head, cause)


def cost_of(failure: Failure, is_retry: bool) -> float:
    """Tokens that an attempt cost its origin: an answer 1, a broken connection 0.5, a timeout 2.

    A timeout says that work piles up; a refused or reset connection costs the origin little. The
    first answer that is throttled for a time says nothing, since its time is obeyed; a second does.

    Returns:
        Below 0: the origin answered as it should. 0: the failure says nothing of the origin.
    """
    status = failure.status
    if status is None:
        if failure.kind not in TROUBLE_KINDS:
            return 0.0
        if failure.kind in TIMEOUT_KINDS:
            return TIMEOUT_COST
        broken = failure.kind is FailureKind.RESET or failure.phase is Phase.UNSENT
        return 0.5 if broken else 1.0
    if status >= 500 or status < 400:  # below 400: ``retry_if`` calls the answer a failure
        return 1.0
    if not failure.is_throttle:
        return -1.0
    return 1.0 if is_retry or not failure.hint.delay else 0.0
