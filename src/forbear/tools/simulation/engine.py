"""Engine: the loop over virtual time. Floor: acts.

What a transport does for a call is done here with virtual time: the limits of its process are asked
to ``enter`` and ``admit`` it, ``observe`` every attempt, and core/decide.py says what follows. Who
is held asks for its turn as often as the gate says. At one instant answers come before further
attempts, and these before new calls, each in the order in which they were made: a seed gives one
result.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from math import inf
from random import Random
from typing import TYPE_CHECKING

from ...core.call import Call
from ...core.decide import answered, decide
from ...core.outcome import Failure
from ...core.policy import RetryPolicy
from ...core.request import Request
from ...core.verdict import Reason, Retry
from ...errors import RetryRefused
from .arrivals import arrival_times
from .backend import TIMED_OUT, Backend, utc
from .figures import Figures
from .tally import BIN, ROUNDING, WINDOW, Tally

if TYPE_CHECKING:
    from ...shared.limits import Limits
    from ...shared.strategy_limits import StrategyLimits
    from .backend import Bad
    from .contenders import Contender
    from .scenario import Scenario

__all__ = ["simulate"]

REQUEST = Request("GET", "https://backend:443")
POLICY = RetryPolicy()  # of which only ``hints`` is looked at
NOT_RETRIED = "not-retried"  # the policy calls it no failure


def simulate(scenario: Scenario, contender: Contender, *, seed: int = 0) -> Figures:
    """Let the calls of a scenario be made by processes with this policy; return the figures.

    Args:
        scenario: The world.
        contender: The policy, and the strategy that each client process makes of it.
        seed: The same seed gives the same figures, and the same arrivals for every contender.
    """
    world = World(scenario, contender, seed)
    world.run()
    return Figures.of(world.tally, scenario, contender.name)


class Caller(Call):
    """A call whose first attempt failed, or that had to ask before it."""

    answer: Bad | None = None
    is_answered = False  # the next event is the answer, not another attempt

    def __init__(self, client: Client, now: float, in_loop: bool) -> None:
        super().__init__(client.policy, REQUEST, client.limits, now, client.most_attempts)
        self.client = client
        self.in_loop = in_loop  # its end begins another one


class Client:
    """One client process: what its calls share."""

    __slots__ = ("held", "limits", "most_attempts", "number", "policy", "shared")

    def __init__(self, number: int, contender: Contender, limits: Limits | StrategyLimits) -> None:
        self.number = number
        self.policy = contender.policy
        self.limits = limits
        self.shared = limits.shared  # its ``quiet``: a first attempt may be sent without a question
        self.most_attempts = inf if contender.counts_attempts else contender.policy.max_attempts
        self.held = 0  # calls


class World:
    """One run."""

    def __init__(self, scenario: Scenario, contender: Contender, seed: int) -> None:
        self.tally = Tally()
        self._backend = Backend(scenario, Random(f"{seed} backend").random)
        random = Random(f"{seed} decisions").random
        self._clients = [
            Client(number, contender, contender.limits(random))
            for number in range(scenario.clients)
        ]
        self._arrivals = arrival_times(scenario, Random(f"{seed} arrivals").random)
        self._lots = None if scenario.arrivals == "even" else Random(f"{seed} lots").random
        self._turn = 0  # whose it is to make a call, if not drawn by lot
        self._timeout = inf if scenario.timeout is None else scenario.timeout
        self._service_time = scenario.service_time
        self._pause, self._ends_at = scenario.pause, scenario.duration
        # Nearly all answers take equally long: those in the order of sending need no heap.
        self._answers: deque[tuple[float, Caller]] = deque()
        # A heap of those who wait for their next attempt, or for a late answer; None: a worker that
        # pauses.
        self._waiting: list[tuple[float, int, Caller | None]] = []
        self._pushed = 0
        self._held = 0  # calls
        self._sampled = 0  # the next bin of time
        for _ in range(scenario.workers):
            self._wait(None, 0.0)

    def run(self) -> None:
        """Until the last call has ended."""
        waiting, answers, arrivals = self._waiting, self._answers, self._arrivals
        arrives_at = next(arrivals, inf)
        while True:
            answered_at = answers[0][0] if answers else inf
            woken_at = waiting[0][0] if waiting else inf
            if answered_at <= arrives_at and answered_at <= woken_at:
                if answered_at == inf:
                    break
                now, caller = answers.popleft()
                self._judge(caller, now)
            elif woken_at <= arrives_at:
                now, _, woken = heappop(waiting)
                if woken is None:
                    self._arrive(now, in_loop=True)
                elif woken.is_answered:
                    self._judge(woken, now)
                else:
                    self._send(woken, now)
            else:
                now, arrives_at = arrives_at, next(arrivals, inf)
                self._arrive(now, in_loop=False)

    def _arrive(self, now: float, *, in_loop: bool) -> None:
        """Begin a call, in a process whose turn it is."""
        tally, clients = self.tally, self._clients
        if self._lots is None:
            client = clients[self._turn]
            self._turn = (self._turn + 1) % len(clients)
        else:
            client = clients[int(self._lots() * len(clients))]
        tally.requests += 1
        tally.arrived[int(now / WINDOW + ROUNDING)] += 1
        number = int(now / BIN + ROUNDING)
        if number >= self._sampled:
            tally.held[number] = self._held
            self._sampled = number + 1
        if not client.shared.quiet:
            self._begin(Caller(client, now, in_loop), now)
            return
        tally.attempts += 1
        tally.sent[number] += 1
        at, answer = self._backend.receive(now, client.number)
        if answer is None and at - now <= self._service_time and not in_loop:
            tally.succeed(now, at)
        else:
            caller = Caller(client, now, in_loop)
            caller.attempts = 1
            caller.is_under_way = True
            client.limits.deposit(caller, now)
            self._await(caller, now, at, answer)

    def _begin(self, caller: Caller, now: float) -> None:
        """Ask the limits before the first attempt."""
        try:
            wait = caller.limits.enter(caller, now)
        except RetryRefused as refused:
            self._end(caller, refused.reason, now)
            return
        if wait > 0:
            self._wait(caller, now + wait)
        else:
            self._send(caller, now)

    def _send(self, caller: Caller, now: float) -> None:
        """Send the next attempt, if the limits admit it now."""
        limits, place = caller.limits, caller.place
        if place is not None or limits.follows:
            try:
                wait = limits.admit(caller, now)
            except RetryRefused as refused:
                self._end(caller, refused.reason, now)
                return
            if wait:
                self._wait(caller, now + wait)
                return
            if place is not None:
                self._note_release(caller, now)
            if wait is None:
                self._end(caller, Reason.ORIGIN_UNWELL, now)
                return
        caller.sending(now)
        self.tally.attempts += 1
        self.tally.sent[int(now / BIN + ROUNDING)] += 1
        self._await(caller, now, *self._backend.receive(now, caller.client.number))

    def _note_held(self, caller: Caller) -> None:
        client = caller.client
        client.held += 1
        self._held += 1
        self.tally.peak_held = max(self.tally.peak_held, client.held)

    def _note_release(self, caller: Caller, now: float) -> None:
        """Note for how long a call was held."""
        place, caller.place = caller.place, None
        caller.held += max(0.0, now - place.ready_at)
        caller.client.held -= 1
        self._held -= 1
        self.tally.held_seconds += now - place.held_at

    def _await(self, caller: Caller, now: float, at: float, answer: Bad | None) -> None:
        if at - now > self._timeout:
            at, answer = now + self._timeout, TIMED_OUT
        caller.answer = answer
        answers = self._answers
        if not answers or at >= answers[-1][0]:
            answers.append((at, caller))
        else:
            caller.is_answered = True
            self._wait(caller, at)

    def _wait(self, caller: Caller | None, until: float) -> None:
        self._pushed += 1
        heappush(self._waiting, (until, self._pushed, caller))

    def _judge(self, caller: Caller, now: float) -> None:
        """Do what follows from an answer: as sending/loop.py."""
        limits, failure = caller.limits, failure_of(caller.answer, now)
        caller.is_answered = False
        if caller.attempts > 1:
            self.tally.last_retry_at = now
        limits.observe(caller, failure, now)
        if failure is None:
            caller.accept(now)
            if caller.token is not None:
                limits.accept(caller, now)
            self.tally.succeed(caller.started_at, now)
            self._go_on(caller, now)
            return
        verdict = decide(caller, failure, now)
        if type(verdict) is Retry:
            caller.note(failure, verdict, now)
            if caller.place is not None:
                self._note_held(caller)
            self._wait(caller, now + verdict.delay)
        else:
            reason = NOT_RETRIED if verdict is None else getattr(verdict, "reason", NOT_RETRIED)
            self._end(caller, reason, now)

    def _end(self, caller: Caller, reason: str, now: float) -> None:
        caller.limits.leave(caller, now)
        self.tally.refusals[str(reason)] += 1
        self._go_on(caller, now)

    def _go_on(self, caller: Caller, now: float) -> None:
        """Let a worker make its next call."""
        if caller.in_loop and now + self._pause < self._ends_at:
            self._wait(None, now + self._pause)


def failure_of(answer: Bad | None, now: float) -> Failure | None:
    """The failure that an adapter would report."""
    if answer is None or isinstance(answer, Failure):
        return answer
    status, lines = answer
    return answered(POLICY, status, lines, lambda: utc(now))
