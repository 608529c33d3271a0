"""Gauges: what a transport shares, to be read at any moment. Floor: acts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..shared.budget import RetryBudget
from ..shared.limits import Limits

if TYPE_CHECKING:
    from ..core.call import Call
    from ..shared.strategy_limits import StrategyLimits
    from .clock import Clock, Sleeper

    Shared = Limits | StrategyLimits

__all__ = ["Gauges", "budget_in_force", "budget_of"]


class Gauges:
    """The shared state of one transport, for listeners with ``watch`` to read at any moment."""

    __slots__ = ("__weakref__", "client", "clock", "gate", "limits", "sleeper")

    def __init__(self, client: str, limits: Shared, sleeper: Sleeper | None, clock: Clock) -> None:
        self.client = client
        self.limits = limits
        self.gate = limits.gate
        self.sleeper = sleeper
        self.clock = clock

    def waiting(self) -> int:
        """Calls that are asleep before an attempt."""
        return 0 if self.sleeper is None else self.sleeper.waiting()


def budget_of(limits: Shared) -> Any:
    """Return the budget of a transport, or the bucket of an AwsStandard; None if not our own.

    Whatever a budget or a strategy of the user's has beside what its interface names is its own.
    """
    if isinstance(limits, Limits):
        from ..shared.lease import LeasedBudget

        budget = limits.budget
        return budget if isinstance(budget, (RetryBudget, LeasedBudget)) else None
    from ..shared.aws import AwsStandard

    return limits.strategy.bucket if isinstance(limits.strategy, AwsStandard) else None


def budget_in_force(call: Call, now: float) -> tuple[str, str, float | None]:
    """The budget that decides for a call: its name, "local" or "shared", its tokens if it tells."""
    budget = budget_of(call.limits)
    if isinstance(budget, RetryBudget):
        return "default", "local", budget.tokens(call.scope, now)
    if hasattr(budget, "is_lost"):
        scope = "local" if budget.falls_back(call.scope) else "shared"
        return budget.name, scope, budget.tokens(call.scope, now)
    return "default", "local", None if budget is None else budget.tokens
