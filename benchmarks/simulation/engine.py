"""Engine: the loop over virtual time.

What a transport does for a call is done here with virtual time: the limits of its process are asked
to ``enter`` and ``admit`` it, ``observe`` every attempt, and core/decide.py says what follows. A
call that is held checks for its release as often as the gate says. At one instant responses come
before further attempts, and these before new calls, each in the order in which they were made, so
that a seed always gives the same result.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from heapq import heappop, heappush
from math import inf
from random import Random
from typing import TYPE_CHECKING

from forbear.core.call import IN_FLIGHT, QUOTAS, Call
from forbear.core.decide import answered, decide
from forbear.core.headers.quota import read_quotas
from forbear.core.outcome import Failure, Reason, SendAgain
from forbear.core.policy import RetryPolicy
from forbear.core.request import Request
from forbear.errors import RetryRefused

from .backend import TIMED_OUT, Backend, utc
from .figures import Figures
from .tally import BIN, ROUNDING, WINDOW, Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from forbear.limits.limits import Limits

    from .backend import Bad
    from .contenders import Contender
    from .scenario import Scenario

REQUEST = Request("GET", "https://backend:443")
POLICY = RetryPolicy()  # of which only ``hints`` is used
NOT_RETRIED = "not-retried"  # the policy does not list it
NO_THREAD = "no-thread"
MOST_WAIT = 10.0  # seconds for a thread, after which a call is lost


def simulate(scenario: Scenario, contender: Contender, *, seed: int = 0) -> Figures:
    """Let the calls of a scenario be made by processes with this policy; return the figures.

    Args:
        scenario: The world.
        contender: The policy, and the strategy that each client process makes of it.
        seed: The same seed gives the same figures, and the same arrivals for every contender.
    """
    world = World(scenario, contender, seed)
    world.run()
    return Figures.of(world.tally, scenario, contender.name, world.routes)


class Caller(Call):
    """A call whose first attempt failed, or that had to check the limits before it."""

    response: Bad | None = None
    has_response = False  # the next event is the response, not another attempt
    due = 0  # the number of its entry in the heap that counts; it may be woken before another one

    def __init__(self, client: Client, due_at: float, now: float, in_loop: bool, is_broken: bool):
        super().__init__(client.policy, REQUEST, client.limits, now, client.most_attempts)
        self.client = client
        self.due_at = due_at  # before it began, if it had to wait for a thread
        self.in_loop = in_loop  # its end begins another one
        self.is_broken = is_broken  # it goes to the broken route
        client.busy += 1


class Client:
    """One client process: what its calls share."""

    __slots__ = (
        "busy", "due", "ends_at", "held", "limits", "most_attempts", "number", "policy", "shared",
    )  # fmt: skip

    def __init__(self, number: int, contender: Contender, limits: Limits) -> None:
        self.number = number
        self.policy = contender.policy
        self.limits = limits
        self.shared = limits.shared  # its ``quiet``: a first attempt may be sent without a check
        self.most_attempts = inf if contender.counts_attempts else contender.policy.max_attempts
        self.held = 0  # calls
        self.busy = 0  # calls under way, except those that succeed at once
        self.ends_at: deque[float] = deque()  # when these do
        self.due: deque[tuple[float, bool]] = deque()  # calls that wait for a thread


class World:
    """One run."""

    def __init__(self, scenario: Scenario, contender: Contender, seed: int) -> None:
        self.tally = Tally()
        # Healthy and broken calls, counted apart where a route is broken.
        self.routes = (Tally(), Tally()) if scenario.broken_share else None
        self._broken_share = scenario.broken_share
        self._routes_drawn = Random(f"{seed} routes").random
        self._backend = Backend(scenario, Random(f"{seed} backend").random)
        random = Random(f"{seed} decisions").random
        self._clients = [
            Client(number, contender, contender.limits(random))
            for number in range(scenario.clients)
        ]
        self._arrivals = arrival_times(scenario, Random(f"{seed} arrivals").random)
        self._lots = None if scenario.arrivals == "even" else Random(f"{seed} lots").random
        self._turn = 0  # the process that makes the next call, if not at random
        self._timeout = inf if scenario.timeout is None else scenario.timeout
        self._service_time = scenario.service_time
        self._pause, self._ends_at = scenario.pause, scenario.duration
        self._threads = scenario.threads
        self._frozen_at = scenario.frozen_at
        self._thaws_at = scenario.frozen_at + scenario.frozen_for
        # Nearly all responses take equally long: those in the order of sending need no heap.
        self._responses: deque[tuple[float, Caller]] = deque()
        # A heap of calls that wait for their next attempt, or for a late response; None: a worker
        # that pauses.
        self._waiting: list[tuple[float, int, Caller | None]] = []
        self._pushed = 0
        self._held = 0  # calls
        self._now = 0.0
        self._sampled = 0  # the next bin of time
        self._calls_left = scenario.worker_calls  # of the workers; None: no limit
        for _ in range(scenario.workers):
            self._begin_next(0.0)

    def run(self) -> None:
        """Until the last call has ended."""
        waiting, responses, arrivals = self._waiting, self._responses, self._arrivals
        arrives_at = next(arrivals, inf)
        while True:
            responds_at = responses[0][0] if responses else inf
            woken_at = waiting[0][0] if waiting else inf
            if responds_at <= arrives_at and responds_at <= woken_at:
                if responds_at == inf:
                    break
                now, caller = responses.popleft()
                self._now = now = self._runs_at(now)
                self._judge(caller, now)
            elif woken_at <= arrives_at:
                now, number, woken = heappop(waiting)
                self._now = now = self._runs_at(now)
                if woken is None:
                    self._arrive(now, in_loop=True)
                elif woken.due != number:
                    continue
                elif woken.has_response:
                    self._judge(woken, now)
                else:
                    self._send(woken, now)
            else:
                now, arrives_at = arrives_at, next(arrivals, inf)
                self._now = now = self._runs_at(now)
                self._arrive(now, in_loop=False)

    def _runs_at(self, at: float) -> float:
        """When the processes notice what happens at an instant: later if they are frozen."""
        return self._thaws_at if self._frozen_at <= at < self._thaws_at else at

    def _arrive(self, now: float, *, in_loop: bool) -> None:
        """Begin a call, in the process whose turn it is."""
        tally, clients = self.tally, self._clients
        if self._lots is None:
            client = clients[self._turn]
            self._turn = (self._turn + 1) % len(clients)
        else:
            client = clients[int(self._lots() * len(clients))]
        is_broken = self.routes is not None and self._routes_drawn() < self._broken_share
        tally.requests += 1
        tally.arrived[int(now / WINDOW + ROUNDING)] += 1
        number = int(now / BIN + ROUNDING)
        if number >= self._sampled:
            tally.held[number] = self._held
            self._sampled = number + 1
        ends_at = client.ends_at
        while ends_at and ends_at[0] <= now:
            ends_at.popleft()
        if self._threads is not None and client.busy >= self._threads:
            client.due.append((now, is_broken))
            return
        tally.peak_busy = max(tally.peak_busy, client.busy + len(ends_at) + 1)
        self._start(client, now, now, in_loop=in_loop, is_broken=is_broken)

    def _start(
        self, client: Client, due_at: float, now: float, *, in_loop: bool, is_broken: bool
    ) -> None:
        """Send the first attempt of a call."""
        if not client.shared.quiet:
            self._begin(Caller(client, due_at, now, in_loop, is_broken), now)
            return
        self.tally.attempts += 1
        self.tally.sent[int(now / BIN + ROUNDING)] += 1
        at, response = self._backend.receive(now, client.number, is_broken=is_broken)
        is_soon = response is None and at - now <= self._service_time
        if is_soon and not in_loop and self._threads is None:
            client.ends_at.append(at)
            self._count(now, at, is_broken, is_success=True)
        else:
            caller = Caller(client, due_at, now, in_loop, is_broken)
            caller.attempts = 1
            caller.is_under_way = True
            client.limits.begin(caller, 0.0, now)
            self._await(caller, now, at, response)

    def _begin(self, caller: Caller, now: float) -> None:
        """Check the limits before the first attempt."""
        try:
            wait = caller.limits.begin(caller, 0.0, now)
        except RetryRefused as refused:
            self._end(caller, refused.reason, now)
            return
        if wait > 0:
            self._queue(caller, now + wait)
        else:
            self._send(caller, now)

    def _send(self, caller: Caller, now: float) -> None:
        """Send the next attempt, if the limits admit it now."""
        hold = caller.hold
        try:
            wait = caller.limits.admit(caller, now)
        except RetryRefused as refused:
            self._end(caller, refused.reason, now)
            return
        if wait:
            self._queue(caller, now + wait)
            return
        if hold is not None:
            self._note_release(caller, now)
        if wait is None:
            self._end(caller, Reason.ORIGIN_UNHEALTHY, now)
            return
        caller.sending(now)
        self.tally.attempts += 1
        self.tally.sent[int(now / BIN + ROUNDING)] += 1
        received = self._backend.receive(now, caller.client.number, is_broken=caller.is_broken)
        if caller.client.limits.reads_quotas and (shown := self._backend.quota_lines(now)):
            caller.notes[QUOTAS] = read_quotas(shown, lambda: utc(now))
        self._await(caller, now, *received)

    def _note_held(self, caller: Caller) -> None:
        client = caller.client
        client.held += 1
        self._held += 1
        self.tally.peak_held = max(self.tally.peak_held, client.held)

    def _note_release(self, caller: Caller, now: float) -> None:
        """Note for how long a call was held."""
        assert caller.hold is not None
        hold, caller.hold = caller.hold, None
        caller.add_to_story("held", max(0.0, now - hold.ready_at))
        caller.client.held -= 1
        self._held -= 1
        self.tally.held_seconds += now - hold.held_at

    def _await(self, caller: Caller, now: float, at: float, response: Bad | None) -> None:
        if at - now > self._timeout:
            at, response = now + self._timeout, TIMED_OUT
            self.tally.timeouts += 1
        caller.response = response
        responses = self._responses
        if not responses or at >= responses[-1][0]:
            responses.append((at, caller))
        else:
            caller.has_response = True
            self._wait(caller, at)

    def _wait(self, caller: Caller | None, until: float) -> None:
        self._pushed += 1
        heappush(self._waiting, (until, self._pushed, caller))
        if caller is not None:
            caller.due = self._pushed

    def _queue(self, caller: Caller, until: float) -> None:
        """Let a caller ask again at an instant, or once a slot is its own."""
        if IN_FLIGHT in caller.notes:
            caller.notes[IN_FLIGHT].wake = partial(self._wake, caller)
        self._wait(caller, until)

    def _wake(self, caller: Caller) -> None:
        """Let a caller go whose turn it is in the queue of a concurrency limit."""
        self._wait(caller, self._now)

    def _judge(self, caller: Caller, now: float) -> None:
        """Do what follows from a response: as engine/loop.py."""
        limits, failure = caller.limits, failure_of(caller.response, now)
        caller.has_response = False
        if caller.attempts > 1:
            self.tally.last_retry_at = now
        limits.observe(caller, failure, now)
        if failure is None:
            caller.end(None, None, now)
            limits.leave(caller, now)
            self._go_on(caller, now, is_success=True)
            return
        verdict = decide(caller, failure, now)
        if type(verdict) is SendAgain:
            caller.note(failure, now, *verdict)
            if IN_FLIGHT in caller.notes:
                caller.notes.pop(IN_FLIGHT).free()
            if caller.hold is not None:
                self._note_held(caller)
            self._wait(caller, now + verdict.delay)
        else:
            reason = NOT_RETRIED if verdict is None else getattr(verdict, "reason", NOT_RETRIED)
            self._end(caller, reason, now)

    def _end(self, caller: Caller, reason: str, now: float) -> None:
        caller.limits.leave(caller, now)
        self.tally.refusals[str(reason)] += 1
        self._go_on(caller, now, is_success=False)

    def _count(self, began_at: float, now: float, is_broken: bool, *, is_success: bool) -> None:
        """Count a call that has ended, and apart by its route."""
        tallies = [self.tally]
        if self.routes is not None:
            tallies.append(self.routes[is_broken])
            tallies[1].requests += 1
        for tally in tallies:
            if is_success:
                tally.succeed(began_at, now)
            else:
                tally.fail(began_at, now)

    def _go_on(self, caller: Caller, now: float, *, is_success: bool) -> None:
        """Count a call that has ended, and let its worker or its thread make the next one."""
        client = caller.client
        client.busy -= 1
        self._count(caller.due_at, now, caller.is_broken, is_success=is_success)
        if caller.in_loop and now + self._pause < self._ends_at:
            self._begin_next(now + self._pause)
        while client.due:
            due_at, is_broken = client.due.popleft()
            if now - due_at <= MOST_WAIT:
                self._start(client, due_at, now, in_loop=False, is_broken=is_broken)
                break
            self.tally.refusals[NO_THREAD] += 1
            self._count(due_at, now, is_broken, is_success=False)

    def _begin_next(self, at: float) -> None:
        """Let a worker make its next call, if there is one left."""
        if self._calls_left is not None:
            if not self._calls_left:
                return
            self._calls_left -= 1
        self._wait(None, at)


def failure_of(response: Bad | None, now: float) -> Failure | None:
    """The failure that an adapter would report."""
    if response is None or isinstance(response, Failure):
        return response
    status, lines = response
    return answered(POLICY, status, lines, lambda: utc(now))


# When calls begin: one instant at a time, so that a million callers need no more memory than one.


def arrival_times(scenario: Scenario, random: Callable[[], float]) -> Iterator[float]:
    """Yield the instants at which calls begin, in order."""
    fleet, at = scenario.fleet, scenario.fleet_at
    times = evenly(scenario) if scenario.arrivals == "even" else at_random(scenario, random)
    for time in times:
        if fleet and time >= at:
            for _ in range(fleet):
                yield at
            fleet = 0
        yield time
    for _ in range(fleet):
        yield at


def evenly(scenario: Scenario) -> Iterator[float]:
    rate = scenario.rate
    for number in range(scenario.open_callers):
        yield number / rate  # not summed up: each instant is as exact as a float can be


def at_random(scenario: Scenario, random: Callable[[], float]) -> Iterator[float]:
    """A Poisson process with a given number of arrivals: uniform draws in their order.

    All of n draws from [t, end) are above x with probability ((end - x) / (end - t))**n.
    """
    time, end = 0.0, scenario.duration
    for left in range(scenario.open_callers, 0, -1):
        time += (end - time) * (1.0 - (1.0 - random()) ** (1.0 / left))
        yield time
