"""Copies of what is shared have the options of the original and none of its state; and reprs."""

import copy
import inspect
import pickle

import pytest

from forbear import CircuitBreaker, ConcurrencyLimit, Hedge, Origins, Pacing, RetryBudget, RetryGate
from forbear.addons.concurrency import Slot
from forbear.addons.pacing import Turn
from forbear.core.headers.quota import Quota
from forbear.strategies import TokenBucket

A, B = "http://a:80", "http://b:80"
NOW = 1_000.0


def trip(breaker):
    for origin in (A, B):
        breaker.record(origin, failed=True, sent_at=NOW, now=NOW)
    breaker.admit(B, NOW + 3.0)


def hold(gate):
    gate.bad(A, NOW, NOW, 3.0)
    assert gate.hold(A, NOW, ready_at=NOW, until=NOW + 10) is not None


def pace(pacing):
    pacing.learn(A, [Quota("requests", 0, 10, 100, 10)], NOW, NOW)
    assert pacing.turn(Turn(NOW), A, 60.0, NOW) > 0


# Class, options, what changes its state; its repr when it is new, and after that.
SHARED = [
    (RetryBudget,
        {"ratio": 0.5, "floor_per_second": 3.0, "burst": 20, "hinted_cost": 0.5, "scope": "origin"},
        lambda budget: (budget.spend(A, 3.0, NOW), budget.spend(B, 0.25, NOW)),
        "<RetryBudget 20/20>", "<RetryBudget 17/20, 2 scopes below full>"),
    (TokenBucket,
        {"capacity": 30, "cost": 2, "throttling_cost": 3, "timeout_cost": 4, "success_gain": 5}
        | {"success_gain": 2},
        lambda bucket: bucket.spend(7), "<TokenBucket 30/30>", "<TokenBucket 23/30>"),
    (CircuitBreaker,
        {"consecutive_failures": 1, "failure_rate": 0.25, "window": 7.0, "minimum_calls": 9}
        | {"open_for": 3.0, "mode": "observe"},
        trip, "<CircuitBreaker closed, observing>",
        "<CircuitBreaker 1 open, 1 half-open, observing>"),
    (Hedge,
        {"quantile": 0.9, "delay": 0.3, "at_least": 0.01, "ratio": 0.2, "burst": 3.5}
        | {"learn_from": 7, "methods": frozenset({"GET", "PUT"}), "keyed": True},
        lambda hedge: hedge.times(A, "GET").learn(0.1),
        "0 origins and methods known", "1 origins and methods known"),
    (Origins, {"listed": (A, B), "choose": "first"},
        lambda origins: origins.rest(A, 10.0, NOW, longest_wait=60),
        f"<Origins {A}, {B}, first>", f"<Origins {A}, {B}, first>"),
    (ConcurrencyLimit,
        {"most": 9, "adaptive": True, "least": 2, "start": 4, "scope": "origin", "max_waiting": 7}
        | {"releases": "body"},
        lambda limit: limit.enter(Slot(limit, A, NOW), A, NOW),
        "<ConcurrencyLimit 4, 0 in flight, 0 waiting>",
        "<ConcurrencyLimit 4, 1 in flight, 0 waiting>"),
    (Pacing, {"reserve": 0.5, "scope": "origin"}, pace,
        "<Pacing 0 waiting>", "<Pacing 1 waiting>"),
    (RetryGate, {"max_held": 3}, hold,
        "<RetryGate healthy>", "<RetryGate 1 origin unhealthy, 1 held>"),
]  # fmt: skip
ASKED = ConcurrencyLimit, Pacing  # about each attempt, so they are never quiet
WAYS = [copy.copy, copy.deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))]
DEFAULTS = {  # as the documentation has them
    RetryBudget: {"ratio": 0.1, "floor_per_second": 1.0, "burst": 7, "hinted_cost": 0.25}
    | {"scope": "origin"},
    CircuitBreaker: {"consecutive_failures": None, "failure_rate": 0.5, "window": 5.0}
    | {"minimum_calls": 20, "open_for": 0.5, "mode": "enforce"},
    Hedge: {"quantile": 0.95, "delay": None, "at_least": 0.02, "ratio": 0.05, "burst": 2}
    | {"learn_from": 50, "methods": {"GET", "HEAD", "OPTIONS"}, "keyed": False},
    RetryGate: {"max_held": 1024, "scope": "origin"},
    ConcurrencyLimit: {"most": None, "adaptive": True, "least": 1, "start": 20}
    | {"scope": "credential", "max_waiting": None, "releases": None},
    Pacing: {"reserve": 0.1, "scope": "credential"},
    TokenBucket: {"capacity": 500, "cost": 14, "throttling_cost": 5, "timeout_cost": 14}
    | {"success_gain": 1},
}


def test_defaults():
    for cls, fields in DEFAULTS.items():
        assert set(fields) == set(inspect.signature(cls).parameters)
        made = cls()
        assert {name: getattr(made, name) for name in fields} == fields


@pytest.mark.parametrize("twin_of", WAYS, ids=["copy", "deepcopy", "pickle"])
@pytest.mark.parametrize(("cls", "options", "use", "new", "used"), SHARED)
def test_a_copy_has_the_same_options_and_begins_anew(cls, options, use, new, used, twin_of):
    """Its lock is its own too, and what it does is not the original's."""
    original = cls(options["listed"]) if cls is Origins else cls(**options)
    assert new in repr(original)
    use(original)
    assert used in repr(original)
    twin = twin_of(original)
    assert {name: getattr(twin, name) for name in options} == options
    assert new in repr(twin)
    assert cls in ASKED or getattr(twin, "quiet", True)
    assert twin._lock is not original._lock
    use(twin)
    assert used in repr(original)
    assert used in repr(twin)
