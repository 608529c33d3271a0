"""Engine: the loop over virtual time. Floor: acts.

A call asks its client's strategy in the order of a transport: ``acquire_initial_token`` before the
first attempt (after its failure, if the strategy was quiet), ``refresh_token`` after each failure,
``record_success`` or ``release`` at the end. At one instant answers come before further attempts,
and these before new calls, each in the order in which they were made: a seed gives one result.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from math import inf
from random import Random
from typing import TYPE_CHECKING

from ...core.headers.hints import read_hint
from ...core.outcome import Failure, FailureKind, Phase
from ...core.verdict import Reason
from ...errors import RetryRefused
from .arrivals import arrival_times
from .backend import TIMED_OUT, Backend, utc
from .figures import Figures
from .tally import BIN, ROUNDING, WINDOW, Tally

if TYPE_CHECKING:
    from typing import Any

    from ...core.policy import RetryPolicy
    from ...core.strategy import RetryToken
    from .backend import Bad
    from .contenders import Contender
    from .scenario import Scenario

__all__ = ["simulate"]

ORIGIN = "https://backend:443"


def simulate(scenario: Scenario, contender: Contender, *, seed: int = 0) -> Figures:
    """Let the calls of a scenario be made by clients with this policy; return the figures.

    Args:
        scenario: The world.
        contender: The policy, and the strategy that each client process makes of it.
        seed: The same seed gives the same figures, and the same arrivals for every contender.
    """
    world = World(scenario, contender, seed)
    world.run()
    return Figures.of(world.tally, scenario, contender.name)


class Caller:
    """A call whose first attempt failed, or that had to ask before it."""

    __slots__ = (
        "answer", "attempts", "began_at", "client", "is_answered", "permit", "refused", "sent_at",
        "token",
    )  # fmt: skip

    def __init__(self, client: Client, began_at: float) -> None:
        self.client = client
        self.began_at = self.sent_at = began_at
        self.attempts = 0
        self.token: RetryToken | None = None
        self.permit = 0  # of the breaker
        self.refused: Reason | None = None  # why this call may be sent once only
        self.answer: Bad | None = None
        self.is_answered = False  # the next event is the answer, not another attempt


class Client:
    """One client process: its strategy, and its breaker, which is asked about each attempt."""

    __slots__ = ("breaker", "strategy")

    def __init__(self, contender: Contender, random: Any) -> None:
        self.strategy = contender.strategy(contender.policy, random)
        self.breaker = None if contender.breaker is None else contender.breaker()

    @property
    def is_quiet(self) -> bool:
        """A first attempt may be sent without a question."""
        return self.strategy.quiet and (self.breaker is None or self.breaker.quiet)

    # The breaker hears of attempts here and nowhere else: a transport's own rules are in shared/.

    def admits(self, caller: Caller, now: float) -> bool:
        """May the attempt be sent now? Take the permit of a probe."""
        if self.breaker is None:
            return True
        admission = self.breaker.admit(ORIGIN, now)
        caller.permit = admission.permit
        return not admission.refused_for

    def observe(self, caller: Caller, failure: Failure | None, now: float) -> None:
        """Tell the breaker how an attempt ended. "Too much" says nothing about its health."""
        if self.breaker is None:
            return
        permit, caller.permit = caller.permit, 0
        status = None if failure is None else failure.status
        if failure is not None and failure.is_throttle and status is not None and status < 500:
            self.breaker.release(ORIGIN, permit)
            return
        failed = failure is not None and (status is None or status >= 500)
        hint = None if failure is None else failure.retry_after
        self.breaker.record(
            ORIGIN, failed=failed, sent_at=caller.sent_at, now=now, permit=permit, hint=hint
        )

    def refuses(self, now: float, delay: float) -> bool:
        """Is the circuit still open after so many seconds?"""
        return self.breaker is not None and self.breaker.refused_for(ORIGIN, now) > delay


class World:
    """One run."""

    def __init__(self, scenario: Scenario, contender: Contender, seed: int) -> None:
        self.tally = Tally()
        self._policy = contender.policy
        self._backend = Backend(scenario)
        random = Random(f"{seed} decisions").random
        self._clients = [Client(contender, random) for _ in range(scenario.clients)]
        self._arrivals = arrival_times(scenario, Random(f"{seed} arrivals").random)
        self._timeout = inf if scenario.timeout is None else scenario.timeout
        # Nearly all answers take equally long: those in the order of sending need no heap.
        self._answers: deque[tuple[float, Caller]] = deque()
        # A heap of those who wait for their next attempt, or for a late answer.
        self._waiting: list[tuple[float, int, Caller]] = []
        self._pushed = 0

    def run(self) -> None:
        """Until the last call has ended."""
        waiting, answers, tally, arrivals = self._waiting, self._answers, self.tally, self._arrivals
        receive, timeout, clients = self._backend.receive, self._timeout, self._clients
        turn, sampled = 0, 0
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
                    self._send(caller, now)
                continue
            now = arrives_at
            arrives_at = next(arrivals, inf)
            client = clients[turn]
            turn = (turn + 1) % len(clients)
            tally.requests += 1
            tally.arrived[int(now / WINDOW + ROUNDING)] += 1
            number = int(now / BIN + ROUNDING)
            if number >= sampled:
                self._sample(number, now)
                sampled = number + 1
            if not client.is_quiet:
                self._begin(Caller(client, now), now)
                continue
            tally.attempts += 1
            tally.sent[number] += 1
            at, answer = receive(now)
            if answer is None and at - now <= timeout:
                tally.succeed(now, at)
            else:
                caller = Caller(client, now)
                caller.attempts = 1
                self._await(caller, now, at, answer)

    def _begin(self, caller: Caller, now: float) -> None:
        """Ask the strategy before the first attempt."""
        try:
            caller.token = caller.client.strategy.acquire_initial_token(ORIGIN, now)
        except RetryRefused as refused:
            if not refused.send:
                self._end(caller, refused.reason, now)
                return
            caller.refused = refused.reason
        if caller.token is not None and caller.token.delay > 0:
            self._wait(caller, now + caller.token.delay)
        else:
            self._send(caller, now)

    def _send(self, caller: Caller, now: float) -> None:
        if not caller.client.admits(caller, now):
            self._end(caller, Reason.CIRCUIT_OPEN, now)
            return
        caller.attempts += 1
        caller.sent_at = now
        if caller.token is not None:
            caller.token.attempts = caller.attempts
        self.tally.attempts += 1
        self.tally.sent[int(now / BIN + ROUNDING)] += 1
        self._await(caller, now, *self._backend.receive(now))

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
        failure = failure_of(caller.answer, now)
        caller.is_answered = False
        if caller.attempts > 1:
            self.tally.last_retry_at = now
        caller.client.observe(caller, failure, now)
        if failure is None:
            if caller.token is not None:
                caller.client.strategy.record_success(caller.token, now)
            self.tally.succeed(caller.began_at, now)
            return
        reason = self._retry(caller, failure, now)
        if reason is not None:
            self._end(caller, reason, now)

    def _retry(self, caller: Caller, failure: Failure, now: float) -> str | None:
        """Have the call sent again after a wait; return the reason if it is not."""
        if not is_retried(self._policy, failure):
            return "not-retried"
        if caller.refused is not None:
            return caller.refused
        strategy, asked = caller.client.strategy, failure.retry_after
        try:
            if caller.token is None:
                caller.token = strategy.acquire_initial_token(ORIGIN, now)
                caller.token.attempts = caller.attempts
            caller.token = strategy.refresh_token(caller.token, failure, now, latest=inf)
        except RetryRefused as refused:
            return refused.reason
        delay = caller.token.delay
        if asked is not None and asked > self._policy.max_retry_after:
            return Reason.RETRY_AFTER_TOO_LONG
        if caller.client.refuses(now, delay):
            return Reason.CIRCUIT_OPEN
        self._wait(caller, now + delay)
        return None

    def _end(self, caller: Caller, reason: str, now: float) -> None:
        if caller.token is not None:
            caller.client.strategy.release(caller.token, now)
        self.tally.refusals[str(reason)] += 1

    def _sample(self, number: int, now: float) -> None:
        """Note how full the budgets are."""
        budgets: list[Any] = [
            limits.budget
            for one in self._clients
            if (limits := getattr(one.strategy, "limits", None)) and limits.budget
        ]
        if budgets:
            left = sum(budget.tokens(ORIGIN, now) / budget.burst for budget in budgets)
            self.tally.levels[number] = left / len(budgets)


def failure_of(answer: Bad | None, now: float) -> Failure | None:
    """The failure that an adapter would report."""
    if answer is None or isinstance(answer, Failure):
        return answer
    status, lines = answer
    hint = read_hint(status, lines, now=utc(now))
    return Failure(FailureKind.STATUS, Phase.ANSWERED, status, hint)


def is_retried(policy: RetryPolicy, failure: Failure) -> bool:
    """Does the policy retry such a failure of a GET?"""
    if failure.status is None:
        return failure.kind in policy.failures
    hinted = failure.retry_after is not None and failure.status in policy.hinted_statuses
    return hinted or failure.status in policy.statuses
