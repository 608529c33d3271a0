"""StandardStrategy: policy and budget behind the RetryStrategy interface. Floor: remembers.

Steps 6 to 10 of a decision (core/call.py tells all of them). Holds no state of a call: that is in the
token.
"""

from __future__ import annotations

from ..core.outcome import MOMENTARY_KINDS
from ..core.strategy import RetryToken
from ..core.verdict import Reason
from ..errors import RetryRefused
from .budget import RetryBudget

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.outcome import Failure, RequestFacts
    from ..core.policy import RetryPolicy

__all__ = ["StandardStrategy"]


class StandardToken(RetryToken):
    __slots__ = ("ended", "immediate_used", "paid", "paid_for", "scope")

    def __init__(self, scope: str) -> None:
        self.delay = 0.0
        self.attempts = 0
        self.source = "backoff"
        self.state = None
        self.scope = scope
        self.paid = 0.0  # tokens
        self.paid_for = 0  # number of the attempt they bought
        self.immediate_used = False
        self.ended = False


class Unlimited:
    """What stands in for a budget when there is none."""

    __slots__ = ("quiet",)
    hinted_cost = 0.0

    def __init__(self) -> None:
        self.quiet = True  # in a slot, as a budget's: a first attempt reads it as fast

    def deposit(self, scope: str, now: float) -> None:
        return None

    def spend(self, scope: str, cost: float, now: float) -> bool:
        return True

    def refund(self, scope: str, cost: float) -> None:
        return None

    def __repr__(self) -> str:
        return "<no budget>"


class StandardStrategy:
    """The default strategy: waits as the policy says, under a budget. Thread-safe.

    Args:
        policy: Schedules, attempts and limits.
        budget: Shared allowance for retries; None: no limit.
        random: Like ``random.random``; drawn once or twice per retry.
    """

    __slots__ = ("_budget", "gauge", "policy", "random", "scope_of")

    def __init__(
        self,
        policy: RetryPolicy,
        *,
        budget: RetryBudget | None = None,
        random: Callable[[], float] | None = None,
    ) -> None:
        if random is None:
            from random import random as system_random

            random = system_random
        self.policy = policy
        self._budget: RetryBudget | Unlimited = Unlimited() if budget is None else budget
        # Where ``quiet`` is a plain attribute: a first attempt asks there, and saves a property's call.
        self.gauge: RetryBudget | Unlimited = self._budget
        self.random: Callable[[], float] = random
        # None where it is not needed: with it the facts of a request are made also for those that succeed at
        # once beside one that failed.
        self.scope_of: Callable[[RequestFacts], str] | None = (
            budget.scope_of if budget is not None and callable(budget.scope) else None
        )

    @property
    def quiet(self) -> bool:
        """Every bucket is full: nothing needs to be recorded."""
        return self.gauge.quiet

    @property
    def budget(self) -> RetryBudget | None:
        return self._budget if isinstance(self._budget, RetryBudget) else None

    def with_policy(self, policy: RetryPolicy) -> StandardStrategy:
        """Return a strategy with other rules and the same shared state."""
        return StandardStrategy(policy, budget=self.budget, random=self.random)

    def acquire_initial_token(self, scope: str, now: float) -> RetryToken:
        self._budget.deposit(scope, now)
        return StandardToken(scope)

    def refresh_token(self, token: RetryToken, failure: Failure, now: float, *, latest: float) -> RetryToken:
        assert isinstance(token, StandardToken)
        policy = self.policy
        attempts = token.attempts
        if attempts >= policy.max_attempts:
            raise RetryRefused(Reason.ATTEMPTS_EXHAUSTED)
        asked = failure.hint.delay
        if asked is not None and asked > policy.max_retry_after:
            raise RetryRefused(Reason.RETRY_AFTER_TOO_LONG, retry_after=asked)

        backoff = policy.backoff
        if policy.throttle_backoff is not None and failure.is_throttle:
            backoff = policy.throttle_backoff
        source = "backoff"
        if failure.kind in MOMENTARY_KINDS and not token.immediate_used and getattr(backoff, "immediate_first", False):
            token.immediate_used = True
            delay = 0.0
        else:
            delay = backoff.delay(attempts, token.delay, self.random)
            if not delay >= 0:  # a custom schedule; NaN too
                raise ValueError(f"the backoff answered {delay!r} s")
        if asked is not None:
            # Never below the hint; the spread on top is cut to what the deadline leaves.
            spread = self.random() * policy.hint_spread * (asked if asked > 1.0 else 1.0)
            hinted = asked + spread if asked + spread <= latest or asked > latest else latest
            if hinted >= delay:
                delay, source = hinted, failure.hint.source or source
        if delay > latest:
            raise RetryRefused(Reason.DEADLINE, retry_after=delay)

        budget = self._budget
        cost = 1.0 if asked is None else budget.hinted_cost
        if not budget.spend(token.scope, cost, now):
            raise RetryRefused(Reason.BUDGET_EXHAUSTED, retry_after=delay)
        token.paid = cost
        token.paid_for = attempts + 1
        token.delay = delay
        token.source = source
        return token

    def record_success(self, token: RetryToken, now: float) -> None:
        self._end(token)

    def release(self, token: RetryToken, now: float) -> None:
        self._end(token)

    def _end(self, token: RetryToken) -> None:
        assert isinstance(token, StandardToken)
        if not token.ended:
            token.ended = True
            if token.paid_for > token.attempts:  # bought, but never sent
                self._budget.refund(token.scope, token.paid)

    def __repr__(self) -> str:
        return f"<StandardStrategy max_attempts={self.policy.max_attempts} {self._budget!r}>"
