"""Gate: sends retries while their origin is healthy, else holds or refuses them.

Of each origin the gate keeps ``Health`` (health.py):

    tokens   3.9, healthy from 1 on: a failure costs up to 1 (``cost_of``), a retry that succeeds
             gives 1 back, and a good first attempt earns 0.35. A retry that fails counts only if no
             response was good since the attempt before it.
    share    of the retries that are sent although the origin is unhealthy: 0 until a trial, then
             growing to 1 while attempts do not fail more often than before (``Health.note``)
    credit   releases that good responses have earned and no call has used; a failure voids them
    probe    seconds without any attempt after which one held call is released: 1, 2, 4, 8

The ``Hold`` of a held call waits in the queue, and the call asks ``turn`` again every 0.1 to 0.5 s,
so that no thread or task has to wake another one. First attempts are never held.

The rule and its numbers come from a study of simulated outages, bad replicas, broken routes and
flaky servers (docs/benchmarks.md). All instants are monotonic seconds.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heappush
from math import exp, inf
from typing import TYPE_CHECKING

from ..core.call import CUT_BY_SENDER, PLUGIN_ERROR, STORY, Hold, Limit
from ..core.checks import check_number, rebuilt, shown, suggesting
from ..core.outcome import TIMEOUT_KINDS, GiveUp, Reason
from ..core.policy import DEFAULT_PATIENCE
from ..core.request import scope_of
from ..errors import RetryRefused
from . import Locked
from .health import (
    ALIKE,
    BUSY,
    FIRST_PROBE,
    FROZEN,
    HEALTHY,
    TOKENS,
    Cause,
    Health,
    cost_of,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.call import Call
    from ..core.outcome import Failure, Refusal
    from ..core.request import Scope

# Tokens, by a good first attempt and by a good retry. So an origin of which a quarter of the
# attempts fail stays healthy, and where retries are sent and succeed, one of which two fifths do.
EARNED, GIVEN_BACK = 0.35, 1.0
# Of a release, by a good response while the origin is healthy: every fifth releases one call. After
# a timeout work may have piled up, so every fifteenth, for ten seconds; after a failure that cost
# half a token at most, such as a refused connection, none has, so each does. So it does while all
# retries are sent: then holding calls is in vain.
SHARE, SHARE_SLOW, SHARE_CHEAP = 0.2, 1 / 15, 1.0
SLOW_FOR = 10.0  # seconds after a timeout
CHEAP = 0.5  # tokens
GROWTH = 2.0  # releases that a good retry earns where this process sends nothing else
MOST_CREDIT = 10.0
LONGEST_PROBE = 8.0  # seconds
# The first probe after a timeout, which says that work piles up: a thousand processes of a call in
# two seconds would else keep a queue full that their clients do not wait for.
SLOW_PROBE = 4.0
# Many new calls find an outage out, and all threads of a pool may soon be held. In a busy process
# probes are no rarer than so many times the outage's age.
MOST_OF_AGE = 1.5
# A queue that stands for this long while other calls succeed, and in which more calls wait than are
# released in two seconds, is crowded: a call held there would wait for seconds and fail anyway.
CROWDED_AFTER, CROWDED_FOR = 1.0, 5.0  # seconds
UP_FOR = 10.0  # seconds since the last good response in which an origin may count as up
SOONEST_ASK, LATEST_ASK = 0.1, 0.5  # seconds until a held call asks again
# Calls behind the first of the queue ask later, and many at one instant, while the origin fails all
# calls: none before them was released, and an event loop that woke for each would do little else.
FIRST_OF_QUEUE = 16
TICK = 0.05  # seconds
MOST_ORIGINS = 1024  # least recently used first out
FADE = 600.0  # seconds after which an origin that has not failed again is forgotten
MOST_HELD = 1024  # calls of one origin


class RetryGate(Locked):
    """Sends the retries of one or more transports, holds them, or refuses them. Thread-safe.

    A retry is sent after its backoff while its server is healthy: until three attempts in a row
    have failed. Otherwise the call is held, for at most ``RetryPolicy.patience`` beyond the delays
    that were decided, and only while a probe could be sent before its deadline. While the server is
    healthy again, every fifth good response releases one held call; if this process has begun no
    new call for a second, or holds more than twice what its new calls could release in time, every
    good retry releases two. If nothing was sent for 1, 2, 4, then 8 s (±25 %), one is sent as a
    probe, so a dead server sees at most one retry in eight seconds from a process of few calls. If
    an unhealthy server goes on responding, a share of the retries is sent, and it grows to all of
    them unless more attempts fail than before.

    A call is refused, and ends immediately with its last response or error, when the outage has
    lasted longer than its patience, or when the server responds to other calls while held ones pile
    up: that is a partial failure, such as a bad replica, and waiting does not help. Each transport
    has a gate of its own unless one is given.

    Args:
        max_held: Most calls that are held for one server; further ones end at once with
            ``origin-unhealthy``. 0 holds none: retries are sent only while the server is healthy.
        scope: What one health is kept of. "origin": each scheme://host:port; "transport": all
            together; or a function of the request (``forbear.core.request.Request``: ``method``,
            ``origin``, ``url``, ``header(name)``) that returns any text, for a host that serves
            many services: ``lambda request: request.url.split("/")[3]`` keeps a broken one from
            delaying the others. The function is called from any thread, at most once per call,
            and not for calls that succeed at once while all is healthy. If it raises or returns no
            text, the call counts for its origin, which is logged once. A call that fails over to
            another server of ``Origins`` counts for that server alone.

    Raises:
        ValueError: ``max_held`` is negative, or ``scope`` is an unknown name.
        TypeError: ``max_held`` is no whole number.
    """

    @suggesting
    def __init__(self, *, max_held: int = MOST_HELD, scope: Scope = "origin") -> None:
        if isinstance(max_held, bool) or not isinstance(max_held, int):
            raise TypeError(f"max_held must be a whole number, got {shown(max_held)}")
        check_number("max_held", max_held, 0, "; 0 holds no call")
        if scope != "origin":
            from ..core.feature_checks import check_scope

            check_scope(scope, "origin", "transport")
        self.max_held = max_held
        self.scope: Scope = scope
        self.quiet = True  # every origin is healthy and no call is held: nothing need be noted
        self._origins: OrderedDict[str, Health] = OrderedDict()
        self._awake: dict[str, Health] = {}  # those of them that have failed and not recovered
        self._fades_at = -inf
        super().__init__()

    def begin(self, origin: str, now: float) -> None:
        """A new call is sent. Needed only while the gate is not quiet."""
        with self._lock:
            if now >= self._fades_at:
                self._fade(now)
            health = self._origins.get(origin)
            if health is not None:
                health.rate = health.rate * exp(min(0.0, health.begun_at - now)) + 1
                health.begun_at = health.sent_at = now

    def good(self, origin: str, now: float, *, retry: bool) -> None:
        """An attempt succeeded."""
        with self._lock:
            health = self._awake.get(origin)
            if health is None:
                return
            health.good_at = now
            tokens = health.tokens + (GIVEN_BACK if retry else EARNED)
            health.tokens = tokens = TOKENS if tokens > TOKENS else tokens
            health.note(True, now, is_retry=retry)
            is_healthy = tokens >= HEALTHY
            if is_healthy:
                health.unhealthy_since = inf
            if is_healthy or retry:
                half = health.probe / 2
                health.probe = half if half > health.first_probe else health.first_probe
            if not health.waiting:
                health.credit = 0.0
                if tokens == TOKENS and health.run >= ALIKE:
                    health.rest()
                    self._awake.pop(origin, None)
                    self.quiet = not self._awake
                return
            if retry and health.is_alone(now):
                health.credit += GROWTH
            elif health.share == 1.0:
                health.credit += SHARE_CHEAP
            elif is_healthy:
                share = SHARE_CHEAP if health.is_cheap else SHARE
                health.credit += SHARE_SLOW if now < health.slow_until else share
            health.credit = min(health.credit, MOST_CREDIT)
            health.use_credit(now, Cause.GOOD_RETRY if retry else Cause.HEALTHY)

    def bad(
        self,
        origin: str,
        now: float,
        sent_at: float,
        weight: float,
        sent_before: float | None = None,
        is_timeout: bool = False,
    ) -> None:
        """An attempt failed.

        Args:
            origin: Where it was sent.
            now: The present instant.
            sent_at: When it was sent.
            weight: As by ``cost_of``, more than 0.
            sent_before: Of a retry: when the call's attempt before it was sent. None: it was a
                first attempt.
            is_timeout: It ended with a timeout of the client.
        """
        with self._lock:
            health = self._awake.get(origin) or self._wake(origin, now, sent_at)
            health.note(False, now, is_retry=sent_before is not None)
            if sent_before is not None and health.good_at > sent_before:
                return  # others succeeded meanwhile: the failure is this call's own
            if is_timeout:
                health.slow_until = now + SLOW_FOR
            if sent_at > health.sent_at:
                health.sent_at = sent_at
            health.is_cheap = weight <= CHEAP
            tokens = health.tokens - weight
            health.tokens = tokens if tokens > 0.0 else 0.0
            if tokens < HEALTHY and health.unhealthy_since == inf:
                health.unhealthy_since = now
            health.credit = 0.0
            health.first_probe = SLOW_PROBE if is_timeout else FIRST_PROBE
            # An attempt sent before the last step says nothing about it, nor does a retry that was
            # sent together with a probe: such a pair would double the wait past 10 s of patience.
            if sent_at >= health.stepped_at + health.probe / 8:
                probe = min(LONGEST_PROBE, max(health.probe * 2, health.first_probe))
                if tokens < HEALTHY and health.rate_at(now) > BUSY:
                    age = MOST_OF_AGE * (now - health.unhealthy_since)
                    probe = min(probe, max(FIRST_PROBE * 2, health.first_probe, age))
                health.probe = probe
                health.stepped_at = now

    def is_healthy(self, origin: str) -> bool:
        """May a retry be sent after its backoff? ``origin`` is the scope, if that is a function."""
        health = self._origins.get(origin)
        return health is None or health.tokens >= HEALTHY

    def may_be_fast(self, origin: str) -> bool:
        """May the first retry be fast? While all retries are sent it may: it frees its thread."""
        health = self._origins.get(origin)
        return health is None or health.tokens >= HEALTHY or health.share == 1.0

    def is_in_share(self, origin: str, random: Callable[[], float]) -> bool:
        """Is a retry sent although the origin is unhealthy?"""
        health = self._awake.get(origin)
        return health is not None and health.share > 0 and random() < health.share

    def hold(
        self,
        origin: str,
        now: float,
        *,
        ready_at: float,
        until: float,
        patience: float = inf,
        began_at: float = inf,
        latest_at: float = inf,
    ) -> Hold | None:
        """Put a failed call into the queue.

        Args:
            origin: Where its next attempt is sent.
            now: The present instant.
            ready_at: When its backoff, or the time that the server named, is over.
            until: When its patience ends.
            patience: For how long the outage may have lasted, if the call began in it; seconds.
            began_at: When the call began. One that began before the outage has all its patience.
            latest_at: When its deadline or its key ends.

        Returns:
            None: it is refused, since the outage has lasted too long, the origin responds to others
            while held calls pile up, too many are held, or it could not be sent in time, as far as
            is known now.
        """
        if until > latest_at:
            until = latest_at
        if ready_at > until or until <= now:
            return None
        with self._lock:
            health = self._awake.get(origin) or self._wake(origin, now, now)  # healthy meanwhile
            if now - patience > health.unhealthy_since < began_at:
                return None
            if health.comes_too_late(latest_at, now):
                return None
            if not health.waiting:
                health.queued_since = now
            if now - health.good_at < UP_FOR and self._is_crowded(health, now):
                return None
            if health.held >= self.max_held:
                return None
            health.patience = until - ready_at
            hold = Hold(health, now, ready_at, until, latest_at, ready_at)
            try:
                heappush(health.queue, hold)
                health.waiting.add(hold)
                return hold
            except BaseException:  # interrupted: no call would ever take this hold out of the queue
                health.remove(hold, Cause.PATIENCE_OVER)
                raise

    def turn(
        self, hold: Hold, now: float, random: Callable[[], float], *, probe_is_due: bool = False
    ) -> float | None:
        """Ask whether a held call may be sent.

        Args:
            hold: As ``hold`` returned it.
            now: The present instant.
            random: Like ``random.random``.
            probe_is_due: The first of the queue is released: a half-open circuit wants a probe.

        Returns:
            0: it is sent now, and ``hold.cause`` says why. Else seconds until it asks again.
            None: its patience is over.
        """
        draw = random()
        with self._lock:
            health = hold.health
            if hold.cause is None:
                frozen = now - max(hold.ask_at, health.asked_at)
                if frozen > FROZEN:
                    for one in health.waiting:
                        one.until = min(one.until + frozen, one.latest_at)
                    health.unhealthy_since += frozen
                health.asked_at = now
                is_late = not probe_is_due and health.comes_too_late(hold.latest_at, now)
                if is_late or now >= hold.until:
                    health.remove(hold, Cause.PATIENCE_OVER)
                else:
                    health.use_credit(now, Cause.HEALTHY)
            elif now >= hold.latest_at:  # released, but it woke too late
                hold.cause = Cause.PATIENCE_OVER
            if hold.cause is None:
                wait = SOONEST_ASK + (LATEST_ASK - SOONEST_ASK) * draw
                if hold.ready_at > now:
                    return hold.ready_at - now
                head = health.head(now) or hold
                if health.is_down(now) and hold.number - head.number >= FIRST_OF_QUEUE:
                    wait += LATEST_ASK
                    wait += TICK - (now + wait) % TICK
                if head is hold:
                    health.jitter = health.jitter or 0.75 + 0.5 * draw
                    due = 0.0 if probe_is_due else health.sent_at + health.probe * health.jitter
                    if due > now:
                        wait = min(wait, due - now)
                    else:
                        health.jitter = 0.0
                        health.release(hold, Cause.PROBE, now)
                if hold.cause is None:
                    hold.ask_at = now + min(wait, hold.until - now)
                    return min(wait, hold.until - now)
            if hold.cause is Cause.PATIENCE_OVER:
                return None
            health.sent_at = now
            return 0.0

    def drop(self, hold: Hold) -> None:
        """The call was cancelled, or its transport closed. Idempotent."""
        with self._lock:
            health = hold.health
            health.remove(hold, hold.cause or Cause.PATIENCE_OVER)
            if len(health.queue) > 2 * health.held + FIRST_OF_QUEUE:  # most of them have left
                health.queue = sorted(one for one in health.queue if one.cause is None)

    def hold_again(self, hold: Hold) -> None:
        """A call that was released could not be sent after all: hold it again."""
        with self._lock:
            hold.cause = None
            heappush(hold.health.queue, hold)
            hold.health.waiting.add(hold)

    def held(self, origin: str | None = None) -> int:
        """Calls that are held now, for one origin or for all."""
        with self._lock:
            if origin is None:
                return sum(health.held for health in self._origins.values())
            return self._origins[origin].held if origin in self._origins else 0

    def unhealthy(self) -> int:
        """Origins that are unhealthy, as far as their last responses show."""
        with self._lock:
            return sum(health.tokens < HEALTHY for health in self._awake.values())

    def _wake(self, origin: str, now: float, sent_at: float) -> Health:
        """Take notes of an origin from now on, beginning with what is known of it."""
        if now >= self._fades_at:
            self._fade(now)
        self.quiet = False  # first: an interruption in between costs a few notes, and loses none
        health = self._origins.get(origin)
        if health is None:
            if len(self._origins) >= MOST_ORIGINS:
                idle = (at for at, one in self._origins.items() if not one.held)
                oldest = next(idle, next(iter(self._origins)))
                # In this order: an origin that an interruption left awake alone would not be found
                # by ``good`` and ``is_healthy``, and would keep the gate from ever being quiet.
                self._awake.pop(oldest, None)
                del self._origins[oldest]
            health = self._origins[origin] = Health(sent_at)
        self._awake[origin] = health
        self._origins.move_to_end(origin)  # the most recently used
        return health

    def _is_crowded(self, health: Health, now: float) -> bool:
        """Does the origin respond to others while the held calls pile up?"""
        if health.good_at <= health.queued_since and now - health.good_at >= 1.0:
            return False
        if (
            health.waiting
            and now >= health.crowded_until
            and now - health.queued_since > CROWDED_AFTER
            and health.held > 2.0 * health.released_per_second(now)
        ):
            health.crowded_until = now + CROWDED_FOR
        return now < health.crowded_until

    def _fade(self, now: float) -> None:
        since = now - FADE
        known = self._origins.items()
        kept = OrderedDict((at, one) for at, one in known if one.held or one.sent_at > since)
        self._awake = {at: one for at, one in self._awake.items() if at in kept}
        self._origins = kept
        self.quiet = not self._awake
        self._fades_at = now + FADE

    def after_fork(self) -> None:
        """Begin anew in a child: the held calls are the parent's."""
        super().after_fork()
        self._origins, self._awake = OrderedDict(), {}
        self.quiet = True

    def __repr__(self) -> str:
        unhealthy, held = self.unhealthy(), self.held()
        state = f"{unhealthy} origin{'s' * (unhealthy != 1)} unhealthy" if unhealthy else "healthy"
        return f"<RetryGate {state}{f', {held} held' if held else ''}>"

    def __reduce__(self) -> tuple[object, ...]:
        given = {"max_held": self.max_held, "scope": self.scope}
        return rebuilt, (RetryGate, given)  # a copy in another process begins anew


class Observed:
    """The gate's notes of one call."""

    __slots__ = ("patience_used", "scope", "sent_at")

    def __init__(self, call: Call) -> None:
        self.scope: str | None = None  # what the health is kept of, if that is not the origin
        self.sent_at = call.started_at  # when the attempt was sent that was observed last
        # Decided delays that count as patience too: a probe that uses up no attempt ended them.
        self.patience_used = 0.0


class GateLimit(Limit):
    """Lets a gate observe the attempts of one transport, and hold its calls."""

    sees_untouched = True

    def __init__(self, gate: RetryGate) -> None:
        self.shared = self.gate = gate

    def begin(self, call: Call, wait: float, now: float) -> float:
        """Note that a call begins."""
        if self.gate.scope != "origin":
            try:
                observed(self.gate, call).scope = scope_of(self.gate.scope, call.request)
            except Exception as error:  # of the user's: the call is on its origin
                call.notes[PLUGIN_ERROR] = error
        if not (self.gate.quiet or call.is_under_way):
            self.gate.begin(gate_key(self.gate, call, call.origin), now)
        return wait

    def admit_held(
        self, call: Call, now: float, admit: Callable[[Call, float], float | None]
    ) -> float | None:
        """Ask whether a held call is released, and then ``admit`` whether it may be sent.

        Returns:
            As ``admit``.
        """
        hold = call.hold
        assert hold is not None
        wait = self._ask(call, hold, now)
        if wait != 0:
            return wait
        origin = call.origin
        try:
            wait = admit(call, now)
        except RetryRefused as refused:
            if refused.retry_after is None or refused.reason is Reason.RETRY_AFTER_TOO_LONG:
                raise
            if now >= hold.until:  # released in time, but another limit lets others go first
                hold.cause = Cause.PATIENCE_OVER
                return None
            self.gate.hold_again(hold)
            wait = min(LATEST_ASK, hold.until - now)
        if wait:  # it stays held, with its hold, its origin and its response
            call.origin = origin
            return min(wait, hold.latest_at - now)
        # A call that is more patient than by default waits for the origin, for which its attempts
        # would not suffice, so the patience alone bounds it and all of its wait counts there. Only
        # here, where the probe is sent: before, it may have been put back any number of times.
        patience = call.policy.patience or 0.0
        if wait == 0 and hold.cause is Cause.PROBE and patience > DEFAULT_PATIENCE:
            call.most_attempts += 1
            call.off_schedule += 1
            observed(self.gate, call).patience_used += hold.ready_at - hold.held_at
        return wait

    def _ask(self, call: Call, hold: Hold, now: float) -> float | None:
        """Ask whether a held call is released. While another limit would refuse it, it is not."""
        probe_is_due, limits = False, call.limits
        if hold.cause is None:
            if now < hold.until and not limits.can_fail_over(call):
                closed = limits.closed(call, call.origin, now)
                if closed:
                    hold.ask_at = now + min(closed, LATEST_ASK, hold.until - now)
                    return hold.ask_at - now
            probe_is_due = limits.wants_probe(call, now)
        return self.gate.turn(hold, now, call.random, probe_is_due=probe_is_due)

    def observe(self, call: Call, failure: Failure | None, now: float) -> None:
        """Pass on what the attempt says about the health of its origin."""
        if CUT_BY_SENDER in call.notes:
            return
        gate, sent_to, notes = self.gate, call.sent_to, observed(self.gate, call)
        key = gate_key(gate, call, sent_to)
        # The first attempt to another server is no retry for that server.
        is_retry = any(attempt.origin == sent_to for attempt in call.history)
        if failure is None or failure.progress or (cost := cost_of(failure, is_retry)) < 0:
            if not gate.quiet:
                gate.good(key, now, retry=is_retry)
        elif cost:
            sent_before = notes.sent_at if is_retry else None
            gate.bad(key, now, call.sent_at, cost, sent_before, failure.kind in TIMEOUT_KINDS)
        notes.sent_at = call.sent_at

    def take(self, call: Call, failure: Failure, delay: float, now: float, until: float) -> Refusal:
        """Hold a call whose origin is unhealthy, or refuse it."""
        gate = self.gate
        key = gate_key(self.gate, call, call.origin)
        if gate.is_healthy(key) or call.policy.patience is None:
            return None
        if gate.is_in_share(key, call.random):
            return None
        refusal = GiveUp(Reason.ORIGIN_UNHEALTHY, delay)
        patience = call.policy.patience
        # Beyond the delays that were decided, over all holds.
        left = patience - call.notes.get(STORY, {}).get("held", 0.0)
        left -= observed(gate, call).patience_used
        if left <= 0:
            return refusal
        ready_at = now + delay
        hold = call.hold = gate.hold(
            key, now, ready_at=ready_at, until=ready_at + left, patience=patience,
            began_at=call.started_at, latest_at=until,
        )  # fmt: skip
        if hold is None:
            return refusal
        hold.refusal = refusal
        return None

    def leave(self, call: Call, now: float) -> None:
        if call.hold is not None:
            self.gate.drop(call.hold)
            call.hold = None


def observed(gate: RetryGate, call: Call) -> Observed:
    """Return what a gate keeps of a call."""
    notes: Observed | None = call.notes.get(gate)
    if notes is None:
        notes = call.notes[gate] = Observed(call)
    return notes


def gate_key(gate: RetryGate, call: Call, origin: str) -> str:
    """Return the key under which the gate keeps the health for an attempt to this origin."""
    if gate.scope == "origin":
        return origin
    scope = observed(gate, call).scope
    return origin if scope is None or origin != call.request.origin else scope


def check(value: object) -> RetryGate:
    """Check the option ``gate``."""
    from ..core.feature_checks import check_is

    return check_is("gate", value, RetryGate, "a RetryGate, or None for none", "RetryGate()")


def limits(gate: RetryGate, random: Callable[[], float]) -> list[Limit]:
    return [GateLimit(gate)]
