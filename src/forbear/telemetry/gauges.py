"""Vitals: what can be read off a transport at any moment, for whoever shows gauges. Floor: acts.

Of forbear's own budgets and breakers alone: whatever a strategy or a budget of a user's own has
besides what its interface names is its own.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ..shared.budget import RetryBudget
from ..shared.standard import StandardStrategy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..sending.clock import Sleeper

__all__ = ["Vitals", "budget_in_force"]

NAMELESS = "default"  # a budget that has no name


class Vitals:
    """What one transport shares with others, seen now. Reading takes and changes nothing.
    Thread-safe.
    """

    __slots__ = ("__weakref__", "_now", "_sleeper", "_strategy", "client")

    def __init__(
        self, client: str, strategy: Any, sleeper: Sleeper | None, now: Callable[[], float]
    ) -> None:
        self.client = client
        self._strategy = strategy
        self._sleeper = sleeper
        self._now = now

    def waiting(self) -> int:
        """Calls that are asleep before an attempt."""
        return 0 if self._sleeper is None else self._sleeper.waiting()

    def budgets(self) -> list[tuple[str, str, float]]:
        """Name, scope ("local" or "shared") and tokens of each allowance; none for a budget of a
        user's own.
        """
        budget, now = budget_of(self._strategy), self._now()
        if is_shared(budget):
            return [
                (budget.name, "shared", budget.lowest(now)),
                (budget.name, "local", budget.fallback.lowest(now)),
            ]
        return [] if budget is None else [(NAMELESS, "local", budget.lowest(now))]

    def backend_errors(self) -> tuple[str, int] | None:
        """Name of a shared budget's store, and how many round trips to it failed; None if there is
        no store.
        """
        budget = budget_of(self._strategy)
        return (budget.backend, budget.errors) if is_shared(budget) else None

    def circuits(self) -> Mapping[str, str]:
        """The states of the circuits that are not closed, by origin."""
        strategy = self._strategy
        if not isinstance(strategy, StandardStrategy) or strategy.breaker is None:
            return {}
        return strategy.breaker.states(self._now())


def budget_in_force(strategy: Any, scope: str, now: float) -> tuple[str, str, float | None]:
    """Of the budget that decides for a scope: its name, "local" or "shared", its tokens if it
    tells.
    """
    budget = budget_of(strategy)
    if is_shared(budget):
        return budget.name, "local" if budget.is_lost else "shared", budget.tokens(scope, now)
    if isinstance(budget, RetryBudget):
        return NAMELESS, "local", budget.tokens(scope, now)
    return NAMELESS, "local", None if budget is None else budget.lowest(now)


def budget_of(strategy: Any) -> Any:
    """Its budget, of AwsStandard its bucket; None if it is not one of ours."""
    if isinstance(strategy, StandardStrategy):
        budget = strategy.budget
        return budget if isinstance(budget, RetryBudget) or is_shared(budget) else None
    aws = sys.modules.get(
        "forbear.shared.aws"
    )  # a strategy of it can only be there if it was loaded
    bucket = strategy.bucket if aws is not None and isinstance(strategy, aws.AwsStandard) else None
    return bucket if aws is not None and isinstance(bucket, aws.TokenBucket) else None


def is_shared(budget: Any) -> bool:
    """Is it a fleet's?"""
    redis = sys.modules.get("forbear.redis")
    return redis is not None and isinstance(budget, redis.RedisBudget)
