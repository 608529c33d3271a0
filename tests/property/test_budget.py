"""Laws of the budget: over any calls, retries and refunds, retries stay a bounded share."""

from __future__ import annotations

from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from forbear import RetryBudget

SCOPES = st.sampled_from(["http://a:80", "http://b:80"])
COSTS = st.sampled_from([0.25, 1.0])
SLACK = 1e-6

numbers = st.fixed_dictionaries(
    {
        "ratio": st.floats(0, 2),
        "floor_per_second": st.floats(0, 10),
        "burst": st.floats(1, 50),
        "scope": st.sampled_from(["origin", "transport"]),
    }
)


@dataclass
class Counted:
    """What one bucket saw."""

    calls: int = 0
    spent: float = 0.0
    first_at: float | None = None
    paid: list[float] = field(default_factory=list)


class BudgetLaws(RuleBasedStateMachine):
    """Any order of calls, retries, refunds and pauses."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.buckets: dict[str, Counted] = {}
        self.budget = RetryBudget()
        self.started = False

    def bucket(self, scope: str) -> Counted:
        return self.buckets.setdefault(scope if self.budget.scope == "origin" else "", Counted())

    @rule(fields=numbers)
    def begin(self, fields: dict[str, float]) -> None:
        if not self.started:
            self.budget = RetryBudget(**fields)  # type: ignore[arg-type]
            self.started = True

    @rule(scope=SCOPES)
    def call(self, scope: str) -> None:
        self.started = True
        self.budget.deposit(scope, self.now)
        self.bucket(scope).calls += 1

    @rule(scope=SCOPES, cost=COSTS, many=st.integers(1, 30))
    def retry(self, scope: str, cost: float, many: int) -> None:
        self.started = True
        seen = self.bucket(scope)
        for _ in range(many):
            there = self.budget.tokens(scope, self.now)
            if self.budget.spend(scope, cost, self.now):
                assert there >= cost - SLACK
                seen.spent += cost
                seen.paid.append(cost)
            else:
                assert there < cost + SLACK

    @rule(scope=SCOPES)
    def cancel(self, scope: str) -> None:
        """Each payment is given back at most once, as the strategy does it."""
        seen = self.bucket(scope)
        if seen.paid:
            cost = seen.paid.pop()
            self.budget.refund(scope, cost)
            seen.spent -= cost

    @rule(seconds=st.floats(0, 30))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(scope=SCOPES, seconds=st.floats(0, 5))
    def a_late_thread(self, scope: str, seconds: float) -> None:
        """It read the clock before it got the lock."""
        self.budget.deposit(scope, self.now - seconds)
        self.bucket(scope).calls += 1

    @invariant()
    def retries_are_a_bounded_share(self) -> None:
        """Retries ≤ ratio × calls + floor × seconds + burst."""
        budget = self.budget
        for seen in self.buckets.values():
            allowed = (
                budget.ratio * seen.calls
                + budget.floor_per_second * (self.now - 100.0)
                + budget.burst
            )
            assert seen.spent <= allowed + SLACK

    @invariant()
    def tokens_are_never_below_zero_or_above_the_burst(self) -> None:
        for scope in ("http://a:80", "http://b:80"):
            assert -SLACK <= self.budget.tokens(scope, self.now) <= self.budget.burst

    @invariant()
    def quiet_means_full(self) -> None:
        """The other way round it may lag: lost updates only make it stricter."""
        if self.budget.quiet:
            for scope in ("http://a:80", "http://b:80"):
                assert self.budget.tokens(scope, self.now) == self.budget.burst


TestBudgetLaws = BudgetLaws.TestCase
TestBudgetLaws.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
