"""Laws of the budget: over any calls, retries and refunds, retries stay a bounded share."""

from collections import Counter, defaultdict

import hypothesis.strategies as st
from hypothesis import given, settings

from forbear import RetryBudget

SCOPES = ("http://a:80", "http://b:80")
SLACK = 1e-6
numbers = st.fixed_dictionaries({
    "ratio": st.floats(0, 1), "floor_per_second": st.floats(0, 10), "burst": st.floats(1, 50),
    "scope": st.sampled_from(["origin", "transport"]),
})  # fmt: skip
scopes, costs = st.sampled_from(SCOPES), st.sampled_from([0.25, 1.0])
# A call (also of a thread that read the clock before it got the lock), retries, one that is
# cancelled, a pause.
steps = st.one_of(
    st.tuples(st.just("call"), scopes, st.just(0.0) | st.floats(0, 5)),
    st.tuples(st.sampled_from(["retry", "storm"]), scopes, costs),
    st.tuples(st.just("cancel"), scopes, st.just(0.0)),
    st.tuples(st.just("wait"), scopes, st.floats(0, 30)),
)


@settings(max_examples=100)
@given(numbers, st.lists(steps, max_size=40))
def test_retries_are_a_bounded_share(fields, steps):
    """Retries ≤ ratio × calls + floor × seconds + burst; no bucket below zero or above its burst."""
    budget, now = RetryBudget(**fields), 100.0
    calls, spent, paid = Counter(), Counter(), defaultdict(list)
    for what, scope, number in steps:
        bucket = scope = scope if budget.scope == "origin" else ""
        if what == "call":
            budget.deposit(scope, now - number)
            calls[bucket] += 1
        elif what in ("retry", "storm"):
            for _ in range(30 if what == "storm" else 1):
                there = budget.tokens(scope, now)
                if budget.spend(scope, number, now):
                    assert there >= number - SLACK
                    spent[bucket] += number
                    paid[bucket].append(number)
                else:
                    assert there < number + SLACK
        elif what == "cancel" and paid[bucket]:  # each payment comes back at most once
            cost = paid[bucket].pop()
            budget.refund(scope, cost)
            spent[bucket] -= cost
        elif what == "wait":
            now += number
        for one, cost in spent.items():
            added = budget.ratio * calls[one] + budget.floor_per_second * (now - 100.0)
            assert cost <= added + budget.burst + SLACK
        for one in (*SCOPES, ""):
            assert -SLACK <= budget.tokens(one, now) <= budget.burst
            # Nothing is missing; the other way round it may lag: lost updates make it stricter.
            assert not budget.quiet or budget.tokens(one, now) == budget.burst
