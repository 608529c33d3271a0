"""Gate: lets retries go while their origin is well, holds them while it is not. Floor: remembers.

Of each origin the gate keeps ``Health`` (health.py):

    well     2 tokens, not below 1: a failure costs 1 (``cost_of``), a good answer earns 0.25
    credit   releases that good answers have earned and nobody has used; a failure voids them
    probe    seconds without any sending after which one held call may go: 1, 2, 4, 8

A failed call is sent again after its backoff while the origin is well; else it is held: it takes a
``Place`` in the queue, sleeps, and asks ``turn`` again every 0.1 to 0.5 s. So nobody wakes another
thread or task. First attempts are never held. An origin that is well and holds nobody is forgotten.

The rule and its numbers come from a study of 44 simulated troubles (docs/why-these-defaults.md).
All instants are monotonic seconds.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heappush
from math import inf
from typing import TYPE_CHECKING

from ..core.checks import shown
from ..core.frozen import rebuilt
from .health import FIRST_PROBE, TIMEOUT_COST, TOKENS, WELL, Cause, Health, Place
from .locks import Locked

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["RetryGate"]

EARNED = 0.25  # by a good answer: four of them make up for a failure
SHARE = 0.2  # of a release, that a good first attempt earns: every fifth lets one go
GROWTH = 2.0  # releases that a good retry earns where this process sends nothing else
MOST_CREDIT = 10.0
LONGEST_PROBE = 8.0  # seconds
# The first probe after a timeout, which says that work piles up: a thousand processes of a call in
# two seconds would else keep a queue full that their clients do not wait for.
SLOW_PROBE = 2.0
SOONEST_ASK, LATEST_ASK = 0.1, 0.5  # seconds until a held call asks again
# Later, and many at one instant, for calls that are not among the first while the origin is unwell:
# nobody before them has gone yet, and an event loop that wakes for each takes most of the time.
FIRST_OF_QUEUE = 16
TICK = 0.05  # seconds
MOST_ORIGINS = 1024  # least recently used first out
FADE = 600.0  # seconds after which an origin that nobody calls any more is forgotten
MOST_THREADS, MOST_TASKS = 256, 1024  # held calls of one origin


class RetryGate(Locked):
    """Lets the retries of one or more transports go, or holds them. Thread-safe.

    A retry goes after its backoff while its origin is well. Else the call is held for at most
    ``RetryPolicy.patience``. While the origin is well again, every fifth good first answer lets one
    held call go; where this process has begun no new call for a second, or holds more than twice
    what its new calls could let go in time, every good retry lets two go. If nothing was sent for
    1, 2, 4, then 8 s (±25 %), one goes as a probe. So a dead origin sees at most one retry in eight
    seconds from each process. Each transport has a gate of its own unless one is given.

    Args:
        max_held: Most calls that are held for one origin; further ones end at once with
            ``origin-unwell``. None: 256 for threads, 1,024 for tasks. 0 holds nobody: retries go
            only while the origin is well.

    Raises:
        ValueError: ``max_held`` is negative.
        TypeError: It is no whole number.
    """

    def __init__(self, *, max_held: int | None = None) -> None:
        if max_held is not None:
            if isinstance(max_held, bool) or not isinstance(max_held, int):
                raise TypeError(f"max_held must be a whole number or None, got {shown(max_held)}")
            if max_held < 0:
                raise ValueError(
                    f"max_held must be at least 0, got {max_held}; 0 holds nobody,"
                    " None means 256 for threads and 1,024 for tasks"
                )
        self.max_held = max_held
        self.quiet = True  # every origin is well and nobody is held: nothing need be noted
        self._origins: OrderedDict[str, Health] = OrderedDict()
        self._fades_at = -inf
        super().__init__()

    def begin(self, origin: str, now: float) -> None:
        """A new call is sent. Needed only while the gate is not quiet."""
        with self._lock:
            if now >= self._fades_at:
                self._fade(now)
            health = self._origins.get(origin)
            if health is not None:
                health.rate = health.rate_at(now) + 1
                health.begun_at = health.sent_at = now

    def good(self, origin: str, now: float, *, retry: bool) -> None:
        """An attempt was answered as it should."""
        with self._lock:
            health = self._origins.get(origin)
            if health is None:
                return
            health.tokens = min(TOKENS, health.tokens + EARNED)
            if health.tokens >= WELL:
                health.probe = health.first_probe
            if not health.waiting:
                health.credit = 0.0
                if health.tokens == TOKENS:
                    del self._origins[origin]
                    self.quiet = not self._origins
                return
            if retry:
                if health.is_alone(now):
                    health.credit += GROWTH
            elif health.tokens >= WELL:
                health.credit += SHARE
            health.credit = min(health.credit, MOST_CREDIT)
            health.use_credit(now, Cause.GOOD_RETRY if retry else Cause.WELL)

    def bad(self, origin: str, now: float, *, sent_at: float, weight: float) -> None:
        """An attempt failed; ``weight`` as by ``cost_of``."""
        with self._lock:
            health = self._origins.get(origin)
            if health is None:
                self.quiet = False
                if len(self._origins) >= MOST_ORIGINS:
                    oldest = next(iter(self._origins))
                    idle = (at for at, one in self._origins.items() if not one.held)
                    del self._origins[next(idle, oldest)]
                health = self._origins[origin] = Health(sent_at)
            self._origins.move_to_end(origin)  # the most recently used
            health.sent_at = max(health.sent_at, sent_at)
            health.tokens = max(0.0, health.tokens - weight)
            health.credit = 0.0
            health.first_probe = SLOW_PROBE if weight >= TIMEOUT_COST else FIRST_PROBE
            # An attempt sent before knew nothing of the last step; nor is a retry that was on its
            # way beside a probe a second finding: such a pair would wait past 10 s of patience.
            if sent_at >= health.stepped_at + health.probe / 8:
                health.probe = min(LONGEST_PROBE, max(health.probe * 2, health.first_probe))
                health.stepped_at = now

    def is_well(self, origin: str) -> bool:
        """May a retry go after its backoff?"""
        health = self._origins.get(origin)
        return health is None or health.tokens >= WELL

    def hold(
        self, origin: str, now: float, *, ready_at: float, until: float, most: int = MOST_TASKS
    ) -> Place | None:
        """Give a failed call a place in the queue.

        Args:
            origin: Where its next attempt goes.
            now: The present instant.
            ready_at: When its backoff, or the time that the server named, is over.
            until: When its patience or its deadline ends.
            most: As ``max_held``, where that is None.

        Returns:
            None: it is not held, since too many are or it could not go in time.
        """
        if ready_at > until or until <= now:
            return None
        with self._lock:
            health = self._origins.get(origin)
            if health is None:  # all is well again
                health = self._origins[origin] = Health(now)
                self.quiet = False
            if health.held >= (most if self.max_held is None else self.max_held):
                return None
            health.patience = until - ready_at
            place = Place(health, now, ready_at, until)
            try:
                heappush(health.queue, place)
                health.waiting.add(place)
                return place
            except BaseException:  # interrupted: nobody has the place
                health.release(place, Cause.PATIENCE_OVER)
                raise

    def turn(
        self, place: Place, now: float, random: Callable[[], float], *, probe_is_due: bool = False
    ) -> float | None:
        """Ask whether a held call may be sent.

        Args:
            place: Its place.
            now: The present instant.
            random: Like ``random.random``.
            probe_is_due: Whoever is first may go: a half-open circuit wants a probe.

        Returns:
            0: it is sent now, and ``place.cause`` says why. Else seconds until it asks again.
            None: its patience is over.
        """
        draw = random()
        with self._lock:
            health = place.health
            if now >= place.until:  # also of a call that was let go and wakes too late
                if place.cause is None:
                    health.release(place, Cause.PATIENCE_OVER)
                place.cause = Cause.PATIENCE_OVER
            if place.cause is None:
                health.use_credit(now, Cause.WELL)
            if place.cause is None:
                wait = SOONEST_ASK + (LATEST_ASK - SOONEST_ASK) * draw
                if place.ready_at > now:
                    return place.ready_at - now
                head = health.head(now) or place
                if health.tokens < WELL and place.number - head.number >= FIRST_OF_QUEUE:
                    wait += LATEST_ASK
                    wait += TICK - (now + wait) % TICK
                if head is place:
                    health.jitter = health.jitter or 0.75 + 0.5 * draw
                    due = 0.0 if probe_is_due else health.sent_at + health.probe * health.jitter
                    if due > now:
                        wait = min(wait, due - now)
                    else:
                        health.jitter = 0.0
                        health.release(place, Cause.PROBE)
                if place.cause is None:
                    return min(wait, place.until - now)
            if place.cause is Cause.PATIENCE_OVER:
                return None
            health.sent_at = now
            return 0.0

    def drop(self, place: Place) -> None:
        """The call was cancelled, or its transport closed. Idempotent."""
        with self._lock:
            health = place.health
            health.release(place, place.cause or Cause.PATIENCE_OVER)
            if len(health.queue) > 2 * health.held + FIRST_OF_QUEUE:  # most of them have left
                health.queue = sorted(one for one in health.queue if one.cause is None)

    def put_back(self, place: Place) -> None:
        """A call that was let go could not be sent after all: hold it again."""
        with self._lock:
            place.cause = None
            heappush(place.health.queue, place)
            place.health.waiting.add(place)

    def held(self, origin: str | None = None) -> int:
        """Calls that are held now, for one origin or for all."""
        with self._lock:
            if origin is None:
                return sum(health.held for health in self._origins.values())
            return self._origins[origin].held if origin in self._origins else 0

    def unwell(self) -> int:
        """Origins that are not well, as far as their last answers tell."""
        with self._lock:
            return sum(health.tokens < WELL for health in self._origins.values())

    def _fade(self, now: float) -> None:
        since = now - FADE
        known = self._origins.items()
        kept = OrderedDict((at, one) for at, one in known if one.held or one.sent_at > since)
        self._origins = kept
        self.quiet = not kept
        self._fades_at = now + FADE

    def after_fork(self) -> None:
        """Begin anew in a child: the held calls are the parent's."""
        super().after_fork()
        self._origins = OrderedDict()
        self.quiet = True

    def __repr__(self) -> str:
        unwell, held = self.unwell(), self.held()
        state = f"{unwell} origin{'s' * (unwell != 1)} unwell" if unwell else "well"
        return f"<RetryGate {state}{f', {held} held' if held else ''}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuilt, (RetryGate, {"max_held": self.max_held})  # a copy elsewhere begins anew
