"""Latency: servers that respond well but not always soon, and calls that are hedged.

Calls begin at random. A balancer sends each attempt to any of some servers, and each server has a
few workers and one queue. Most responses take about as long as the median, a few are stragglers.
The ``Hedge`` and the ``RetryGate`` that forbear ships decide when a hedged request is sent, called
as its transports call them. There are no retries. The figures are percentiles, as in Dean and
Barroso, "The Tail at Scale" (CACM 2013). All durations are seconds.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from math import exp, inf
from random import Random
from statistics import mean, median
from typing import TYPE_CHECKING, NamedTuple

from forbear.core.checks import check_bool, check_number, check_positive_int, shown
from forbear.core.outcome import Failure, FailureKind, Phase
from forbear.limits.gate import RetryGate
from forbear.limits.health import cost_of

from .backend import TIMED_OUT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from forbear.addons.hedge import Hedge

LOADS = tuple(tenths / 10 for tenths in range(1, 10))
ORIGIN = "https://backend:443"
REFUSED = Failure(FailureKind.STATUS, Phase.ANSWERED, status=503)
REFUSED_IN = 0.001  # seconds in which a dead server sends it
SLOW_AT = 20.0  # seconds; from then on at half speed


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyWorld:
    """One world. Immutable; ``dataclasses.replace`` makes variants.

    Raises:
        ValueError: A value is out of its range.
        TypeError: A value is of the wrong type.
    """

    load: float = 0.3
    """Share of all workers' time that first attempts take."""

    calls: int = 20_000

    clients: int = 1
    """Processes that make them, each with a ``Hedge`` of its own."""

    servers: int = 10
    workers: int = 4
    """Attempts that one server works on at a time; others queue there."""

    median: float = 0.02
    """Seconds of work for a response; the logarithm is normal with deviation ``sigma``."""

    sigma: float = 0.5

    stragglers: float = 0.01
    """Share of the attempts that take ``slowness`` times as long."""

    slowness: float = 20.0

    timeout: float = 2.0
    """Seconds after which a call has failed."""

    stops: bool = False
    """Whether a server stops work for an attempt that was cancelled; else it continues."""

    dead: int = 0
    """Servers that respond 503 at once."""

    slow_for: float = 0.0
    """Seconds for which all work takes twice as long, from 20 s on."""

    def __post_init__(self) -> None:
        for name in ("calls", "clients", "servers", "workers"):
            check_positive_int(name, getattr(self, name))
        for name in ("median", "slowness", "timeout", "sigma", "stragglers", "slow_for", "dead"):
            check_number(name, getattr(self, name), 0)
        for name in ("load", "median", "slowness", "timeout"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be more than 0, got {shown(getattr(self, name))}")
        check_bool("stops", self.stops)

    @property
    def rate(self) -> float:
        """Calls per second."""
        usual = self.median * exp(self.sigma**2 / 2)
        work = usual * (1 + self.stragglers * (self.slowness - 1))
        return self.load * self.servers * self.workers / work

    def described(self) -> str:
        """Describe the world in three short lines."""
        who = f"{self.clients:,} process{'es' if self.clients > 1 else ''}"
        ending = "stops" if self.stops else "does not stop"
        text = (
            f"Callers: {self.calls:,} calls at random from {who}, with {self.timeout:g} s each.\n"
            f"Servers: {self.servers} with {self.workers} workers;"
            f" {self.median * 1000:g} ms of work (median),"
            f" {self.stragglers:.3g} of it {self.slowness:g} times as long.\n"
            f"Fault: a server {ending} work for a client that has left"
        )
        if self.dead:
            text += f"; 503 in 1 ms from {self.dead} of {self.servers} servers"
        if self.slow_for:
            text += f"; half speed from {SLOW_AT:g} s to {SLOW_AT + self.slow_for:g} s"
        return f"{text}."


LATENCIES = {
    "stragglers": (LatencyWorld(), "one response of a hundred takes twenty times as long"),
    "stragglers-one-dead": (
        LatencyWorld(dead=1),
        "stragglers, and one server of ten answers 503 in 1 ms",
    ),
    "stragglers-half-20s": (
        LatencyWorld(load=0.6, calls=60_000, slow_for=20.0),
        "stragglers, and 20 s at half speed under 60 % load",
    ),
}


class Latencies(NamedTuple):
    """What came of one load. Percentiles are of good responses; all times are seconds.

    Attributes:
        load: Of first attempts.
        hedged: Whether a Hedge had part.
        success: Share of the calls that succeeded in time.
        extra: Second attempts per call.
        won: Share of the second attempts whose response was the call's.
        busy: Share of the workers' time, second attempts included.
    """

    load: float
    hedged: bool
    success: float
    p50: float
    p95: float
    p99: float
    p999: float
    mean: float
    extra: float
    won: float
    busy: float


def run_latencies(
    world: LatencyWorld, hedge: Callable[[], Hedge] | None = None, *, seed: int = 0
) -> Latencies:
    """Let the calls of a world be made, hedged or not.

    Args:
        world: The world.
        hedge: Makes the Hedge of each process. None: no call is hedged.
        seed: The same seed gives the same figures, and the same calls with and without hedging.
    """
    run = Run(world, hedge, seed)
    run.run()
    return run.figures()


def median_latencies(runs: Sequence[Latencies]) -> Latencies:
    """The median of each number over several runs."""
    middle = Latencies._make(median(values) for values in zip(*runs, strict=True))
    return middle._replace(hedged=runs[0].hedged)


class Client:
    """A process that hedges: what its calls share."""

    def __init__(self, hedge: Hedge) -> None:
        self.times = hedge.times(ORIGIN, "GET")
        self.gate = RetryGate()


class Call:
    """A call. ``first`` and ``second`` are its attempts."""

    __slots__ = ("client", "first", "is_over", "second", "started_at")

    def __init__(self, started_at: float, client: Client | None) -> None:
        self.started_at = started_at
        self.client = client
        self.first: Attempt | None = None
        self.second: Attempt | None = None
        self.is_over = False


class Attempt:
    """An attempt at a server."""

    __slots__ = ("began_at", "call", "is_over", "server", "takes")

    def __init__(self, call: Call, server: int, takes: float) -> None:
        self.call = call
        self.server = server
        self.takes = takes
        self.began_at = inf  # it queues
        self.is_over = False


class Run:
    """One run."""

    def __init__(self, world: LatencyWorld, hedge: Callable[[], Hedge] | None, seed: int) -> None:
        self._world = world
        self._clients = [Client(hedge()) for _ in range(world.clients)] if hedge else []
        self._random = Random(f"{seed} calls")
        self._random_of_second = Random(f"{seed} second attempts")
        self._idle = [world.workers] * world.servers
        self._queues: list[deque[Attempt]] = [deque() for _ in range(world.servers)]
        # What happens: a response comes, or a first attempt has taken long.
        self._events: list[tuple[float, int, Attempt | Call]] = []
        self._pushed = 0
        self._waiting: deque[Call] = deque()  # in the order in which their patience ends
        self._good: list[float] = []  # seconds of good responses
        self._second = self._won = 0
        self._worked = self._ended_at = 0.0

    def run(self) -> None:
        """Run until the last response has come."""
        world, random = self._world, self._random
        now, rate = 0.0, world.rate
        for _ in range(world.calls):
            now += random.expovariate(rate)
            self._advance(now)
            self._begin(now)
        self._ended_at = now
        self._advance(inf)

    def _advance(self, until: float) -> None:
        """Process the events before the next call."""
        events, waiting, timeout = self._events, self._waiting, self._world.timeout
        while events and events[0][0] <= until:
            now, _, what = heappop(events)
            while waiting and waiting[0].started_at + timeout < now:
                late = waiting.popleft()
                if not late.is_over:
                    self._fail(late, TIMED_OUT, late.started_at + timeout)
            if isinstance(what, Call):
                self._ask(what, now)
            elif not what.is_over:
                self._respond(what, now)

    def _push(self, at: float, what: Attempt | Call) -> None:
        self._pushed += 1
        heappush(self._events, (at, self._pushed, what))

    def _begin(self, now: float) -> None:
        client = None
        if self._clients:
            client = self._clients[int(self._random_of_second.random() * len(self._clients))]
        call = Call(now, client)
        self._waiting.append(call)
        call.first = self._send(call, self._random, now)
        if client is not None and client.times.delay != inf:
            self._push(now + client.times.delay, call)

    def _send(self, call: Call, random: Random, now: float) -> Attempt:
        world = self._world
        takes = world.median * random.lognormvariate(0.0, world.sigma)
        if random.random() < world.stragglers:
            takes *= world.slowness
        attempt = Attempt(call, int(random.random() * world.servers), takes)
        if attempt.server < world.dead:
            self._push(now + REFUSED_IN, attempt)
        elif self._idle[attempt.server]:
            self._work(attempt, now)
        else:
            self._queues[attempt.server].append(attempt)
        return attempt

    def _work(self, attempt: Attempt, now: float) -> None:
        if SLOW_AT <= now < SLOW_AT + self._world.slow_for:
            attempt.takes *= 2
        self._idle[attempt.server] -= 1
        attempt.began_at = now
        self._push(now + attempt.takes, attempt)

    def _ask(self, call: Call, now: float) -> None:
        """Send a hedged request, or check again in half a delay: as addons/hedge.py."""
        client = call.client
        if call.is_over or client is None:
            return
        times = client.times
        if not times.is_strained and client.gate.is_healthy(ORIGIN) and times.spend():
            self._second += 1
            call.second = self._send(call, self._random_of_second, now)
        elif times.delay != inf:
            self._push(now + times.delay / 2, call)

    def _respond(self, attempt: Attempt, now: float) -> None:
        call, client = attempt.call, attempt.call.client
        attempt.is_over = True
        is_good = attempt.server >= self._world.dead
        if is_good:
            self._leave(attempt, now)
        if call.is_over:
            return
        if is_good:
            seconds = now - call.started_at
            self._good.append(seconds)
            self._won += attempt is call.second
            self._end(call, now)
            if client is not None:
                client.times.learn(seconds)  # as long has a first attempt that loses lasted
                client.gate.good(ORIGIN, now, retry=False)
        elif attempt is call.first:
            self._fail(call, REFUSED, now)

    def _fail(self, call: Call, failure: Failure, now: float) -> None:
        self._end(call, now)
        if call.client is not None:
            weight = cost_of(failure, False)
            call.client.gate.bad(
                ORIGIN, now, call.started_at, weight, is_timeout=failure.is_timeout
            )

    def _end(self, call: Call, now: float) -> None:
        """End the call; servers that stop what is cancelled stop its attempts."""
        call.is_over = True
        if self._world.stops:
            for attempt in (call.first, call.second):
                if attempt is not None and not attempt.is_over:
                    attempt.is_over = True
                    if attempt.began_at != inf:
                        self._leave(attempt, now)

    def _leave(self, attempt: Attempt, now: float) -> None:
        """Let the worker take the next attempt of the queue."""
        queue = self._queues[attempt.server]
        self._worked += now - attempt.began_at
        self._idle[attempt.server] += 1
        while queue and self._idle[attempt.server]:
            following = queue.popleft()
            if not following.is_over:
                self._work(following, now)

    def figures(self) -> Latencies:
        world, good = self._world, sorted(self._good)

        def percentile(share: float) -> float:
            return good[min(int(share * len(good)), len(good) - 1)] if good else inf

        return Latencies(
            load=world.load,
            hedged=bool(self._clients),
            success=len(good) / world.calls,
            p50=percentile(0.5),
            p95=percentile(0.95),
            p99=percentile(0.99),
            p999=percentile(0.999),
            mean=mean(good) if good else inf,
            extra=self._second / world.calls,
            won=self._won / max(1, self._second),
            busy=self._worked / (self._ended_at * world.servers * world.workers),
        )
