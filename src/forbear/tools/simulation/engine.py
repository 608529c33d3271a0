"""Engine: the loop over virtual time. Floor: acts.

Does for each call what a transport does, in the same order: the door, ``Call``, the verdict, the
wait (_httpx_family/transports.py and drive.py). At one instant answers come before further
attempts, and these before new calls, each in the order in which they were made: a seed gives one
result.
"""

from __future__ import annotations

import gc
from collections import deque
from heapq import heappop, heappush
from math import inf
from random import Random

from ...core.call import Call
from ...core.outcome import Failure
from ...core.request import Request
from ...core.verdict import Renew, RetryAfter
from ...errors import RetryRefused
from .arrivals import arrival_times
from .backend import TIMED_OUT, Backend, utc
from .figures import Figures
from .tally import BIN, ROUNDING, WINDOW, Tally

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...core.strategy import RetryStrategy, RetryToken
    from .backend import Bad
    from .contenders import Contender
    from .scenario import Scenario

__all__ = ["simulate"]

ORIGIN = "https://backend:443"
FACTS = Request("GET", ORIGIN)


def simulate(scenario: Scenario, contender: Contender, *, seed: int = 0) -> Figures:
    """Let the calls of a scenario be made by clients with this policy; return what came of it.

    Args:
        scenario: The world.
        contender: The policy, and what strategy a client process makes of it.
        seed: The same seed gives the same figures; and the same arrivals for every contender.
    """
    world = World(scenario, contender, seed)
    collecting = gc.isenabled()
    gc.disable()  # nothing here is cyclic, and looking for cycles among waiting calls takes a quarter of the time
    try:
        world.run()
    finally:
        if collecting:
            gc.enable()
    return Figures.of(world.tally, scenario, contender.name)


class Caller:
    """A call that did not simply succeed at once."""

    __slots__ = ("answer", "began_at", "call", "is_answered", "strategy", "token")

    def __init__(self, strategy: RetryStrategy, token: RetryToken | None, began_at: float) -> None:
        self.strategy = strategy
        self.token = token
        self.began_at = began_at
        self.call: Call | None = None
        self.answer: Bad | None = None
        self.is_answered = False  # what comes next is the answer, not another attempt


class World:
    """One run."""

    def __init__(self, scenario: Scenario, contender: Contender, seed: int) -> None:
        self.tally = Tally()
        self._scenario = scenario
        self._policy = contender.policy
        self._backend = Backend(scenario)
        random = Random(f"{seed} decisions").random
        self._strategies = [
            contender.strategy(contender.policy, random) for _ in range(scenario.clients)
        ]
        self._arrivals = arrival_times(scenario, Random(f"{seed} arrivals").random)
        self._timeout = inf if scenario.timeout is None else scenario.timeout
        # Nearly all answers take equally long: those that come in the order of sending need no
        # heap.
        self._answers: deque[tuple[float, Caller]] = deque()
        self._waiting: list[
            tuple[float, int, Caller]
        ] = []  # a heap: for the next attempt, or a late answer
        self._pushed = 0

    def run(self) -> None:
        """Until the last call has ended."""
        waiting, answers, tally, arrivals = self._waiting, self._answers, self.tally, self._arrivals
        receive, timeout = self._backend.receive, self._timeout
        arrived, sent = tally.arrived, tally.sent
        strategies: list[Any] = self._strategies
        has_gauge = hasattr(
            strategies[0], "gauge"
        )  # which a transport's door asks; it may become another object
        turn, of = 0, len(strategies)
        sampled = 0
        arrives_at = next(arrivals, inf)
        while True:
            answered_at = answers[0][0] if answers else inf
            woken_at = waiting[0][0] if waiting else inf
            if answered_at <= arrives_at and answered_at <= woken_at:
                if answered_at == inf:
                    break
                now, caller = answers.popleft()
                self._judge(caller, now)
                continue
            if woken_at <= arrives_at:
                now, _, caller = heappop(waiting)
                if caller.is_answered:
                    self._judge(caller, now)
                else:
                    self._proceed(caller, now)
                continue
            now = arrives_at
            arrives_at = next(arrivals, inf)
            strategy = strategies[turn]
            turn = turn + 1 if turn + 1 < of else 0
            tally.requests += 1
            arrived[int(now / WINDOW + ROUNDING)] += 1
            number = int(now / BIN + ROUNDING)
            if number >= sampled:
                self._sample(number, now)
                sampled = number + 1
            if not (strategy.gauge.quiet if has_gauge else strategy.quiet):
                self._begin(strategy, now)
                continue
            tally.attempts += 1
            sent[number] += 1
            at, answer = receive(now)
            if answer is None and at - now <= timeout:
                tally.succeed(now, at)
            else:
                self._await(Caller(strategy, None, now), now, at, answer)

    def _begin(self, strategy: RetryStrategy, now: float) -> None:
        """A call while some origin is unwell: its strategy is asked first."""
        token: RetryToken | None = None
        try:
            token = strategy.acquire_initial_token(ORIGIN, now)
            if token.delay != 0:
                strategy.release(token, now)
                token = None
        except RetryRefused:
            pass  # Call meets it again and knows what to do
        caller = Caller(strategy, token, now)
        if token is not None:
            self._send(caller, now)
            return
        call = caller.call = self._call(strategy, now)
        try:
            delay = call.open(now)
        except RetryRefused as refused:
            self.tally.refusals[refused.reason.value] += 1
            return
        if delay > 0:
            self._wait(caller, now + delay)
        else:
            self._proceed(caller, now)

    def _proceed(self, caller: Caller, now: float) -> None:
        """Its wait is over."""
        call = caller.call
        assert call is not None
        try:
            delay = call.admit(now)
        except RetryRefused as refused:
            self.tally.refusals[refused.reason.value] += 1
            return
        if delay > 0:
            self._wait(caller, now + delay)
            return
        call.sending(now)
        self._send(caller, now)

    def _call(self, strategy: RetryStrategy, now: float) -> Call:
        return Call(self._policy, FACTS, strategy, now=now)

    def _send(self, caller: Caller, now: float) -> None:
        self.tally.attempts += 1
        self.tally.sent[int(now / BIN + ROUNDING)] += 1
        at, answer = self._backend.receive(now)
        self._await(caller, now, at, answer)

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

    def _wait(self, caller: Caller, until: float) -> None:
        self._pushed += 1
        heappush(self._waiting, (until, self._pushed, caller))

    def _judge(self, caller: Caller, now: float) -> None:
        call, answer, tally = caller.call, caller.answer, self.tally
        caller.is_answered = False
        if call is None:  # the first attempt went through the door
            if answer is None:
                assert caller.token is not None
                caller.strategy.record_success(caller.token, now)
                tally.succeed(caller.began_at, now)
                return
            call = caller.call = self._call(caller.strategy, caller.began_at)
            call.sent(caller.token)
        elif call.attempts > 1:
            tally.last_retry_at = now
        if answer is None:
            call.after_response(200, (), now, utc_now=utc(now))
            tally.succeed(caller.began_at, now)
            return
        if isinstance(answer, Failure):
            verdict = call.after_error(answer, now)
        else:
            verdict = call.after_response(answer[0], answer[1], now, utc_now=utc(now))
        if isinstance(verdict, RetryAfter):
            self._wait(caller, now + verdict.delay)
        else:  # and Call has ended its token
            assert not isinstance(verdict, Renew)  # nobody here borrows over a network
            tally.refusals["not-retried" if verdict is None else verdict.reason.value] += 1

    def _sample(self, number: int, now: float) -> None:
        """Note how full the budgets are."""
        budgets: list[Any] = [
            budget for one in self._strategies if (budget := getattr(one, "budget", None))
        ]
        if budgets:
            left = sum(budget.tokens(ORIGIN, now) / budget.burst for budget in budgets)
            self.tally.levels[number] = left / len(budgets)
