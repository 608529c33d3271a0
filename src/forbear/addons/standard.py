"""StandardStrategy: the default strategy as an object of its own, for who wraps or shares it."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import TYPE_CHECKING

from ..core.call import REFUND, SILENCE, Call, Limit
from ..core.decide import plan_retry
from ..core.feature_checks import begins_anew
from ..core.outcome import GiveUp
from ..core.request import Request
from ..engine.settings import limits_of
from ..errors import RetryRefused
from .strategy import RetryToken

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from ..core.outcome import Failure
    from ..core.policy import RetryPolicy
    from .breaker import CircuitBreaker
    from .budget import Budget
    from .origins import Origins


@begins_anew
class StandardStrategy(Limit):
    """The default strategy: waits as the policy says, under a budget, a breaker and cooldowns.

    A transport that is given one uses its ``limits`` and the schedule of its policy. Thread-safe.

    Args:
        policy: Schedules, attempts and limits.
        budget: Shared allowance for retries, a RetryBudget or RedisBudget; None: no limit.
        breaker: Shared breaker; None: none.
        cooldown: Pause for an origin as long as it asked one call to wait: "off", "retries"
            (retries of other calls wait too), or "all" (first attempts wait too; those that would
            have to wait longer than ``policy.max_retry_after`` or their deadline are refused).
        origins: Servers that can stand in for each other; None: a call is sent to its own origin.
        random: Like ``random.random``; called a few times per retry.

    Raises:
        ValueError: ``cooldown`` is none of the three.
    """

    shared = SILENCE  # a transport asks its limits themselves

    policy: RetryPolicy
    _: KW_ONLY
    budget: Budget | None = None
    breaker: CircuitBreaker | None = None
    cooldown: Literal["off", "retries", "all"] = "off"
    origins: Origins | None = None
    random: Callable[[], float] | None = None

    def __post_init__(self) -> None:
        self.limits = limits_of(
            self.random, budget=self.budget, breaker=self.breaker, cooldown=self.cooldown,
            origins=self.origins, gate=None,
        )  # fmt: skip
        self.own_random = self.limits.random

    @property
    def quiet(self) -> bool:
        """Every bucket is full and every circuit healthy: nothing needs to be recorded."""
        return self.limits.quiet

    def merged(self, policy: RetryPolicy) -> RetryPolicy:
        """Return a transport's policy with what this strategy decides in its place."""
        return policy.replace(**{name: getattr(self.policy, name) for name in DECIDED})

    def acquire_initial_token(self, scope: str, now: float) -> RetryToken:
        """Begin a call to ``scope``; the first attempt's permit is taken.

        Raises:
            RetryRefused: With ``send=False``: breaker or cooldown do not allow it.
        """
        request = Request("GET", scope)
        call = Call(self.policy, request, self.limits, now, self.policy.max_attempts)
        return RetryToken(self.limits.begin(call, 0.0, now), call)

    def refresh_token(
        self, token: RetryToken, failure: Failure, now: float, *, latest: float
    ) -> RetryToken:
        """Buy another attempt after ``failure``.

        Raises:
            RetryRefused: There is none; nothing was taken.
        """
        call: Call = token.state
        call.attempts = token.attempts
        call.deadline_at = now + latest
        call.notes.pop(REFUND, None)  # the attempt that has failed was sent
        self.limits.observe(call, failure, now)
        verdict = plan_retry(call, failure, now)
        if isinstance(verdict, GiveUp):
            raise RetryRefused(verdict.reason, retry_after=verdict.delay)
        call.note(failure, now, *verdict)
        token.delay, token.source = verdict
        call.sent_at = now + token.delay  # the next attempt, at the earliest
        return token

    def record_success(self, token: RetryToken, now: float) -> None:
        """End the call: its last response was accepted. Idempotent."""
        call: Call = token.state
        call.notes.pop(REFUND, None)
        self.limits.observe(call, None, now)

    def release(self, token: RetryToken, now: float) -> None:
        """End the call otherwise; refund an attempt that was not sent. Idempotent."""
        call: Call = token.state
        if token.attempts > call.attempts:
            call.notes.pop(REFUND, None)  # it was sent
        self.limits.leave(call, now)

    def __repr__(self) -> str:
        return f"<StandardStrategy max_attempts={self.policy.max_attempts} {self.limits!r}>"


DECIDED = (
    "max_attempts", "backoff", "throttle_backoff", "max_retry_after", "hint_spread",
)  # fmt: skip
