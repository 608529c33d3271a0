"""Policy: the defaults, what is refused and with which words, and that it is a value."""

import inspect
import pickle

import pytest

from forbear import Exponential, FailureKind, Fixed, IdempotencyKeys, RetryPolicy
from forbear.core.outcome import RETRYABLE_KINDS
from forbear.core.policy import FIELDS
from forbear.strategies import PolicyFields

KINDS = {
    "dns", "refused", "connect-timeout", "tls", "proxy", "read-timeout", "write-timeout",
    "timeout", "reset", "protocol", "unprocessed",
}  # fmt: skip


def test_the_defaults() -> None:
    """DESIGN section 2, the table of fields. Waits are 0 to 0.05 s, 0.5 to 1 s, 1 to 2 s, 2 to 4 s."""
    defaults = {
        "max_attempts": 5, "backoff": Exponential(0.75, 30.0, 2.0, 1 / 3, 0.05), "patience": 10.0,
        "throttle_backoff": None, "statuses": {408, 425, 429, 500, 502, 503, 504},
        "hinted_statuses": set(), "unexecuted_statuses": set(), "vendors": (),
        "conflict_with_key": True, "failures": KINDS,
        "methods": {"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "QUERY"},
        "attempt_timeout": None, "total_timeout": None, "max_retry_after": 60.0, "hints": "obey",
        "hint_spread": 0.25, "on_exhausted": "return",
    }  # fmt: skip
    assert {name: getattr(RetryPolicy(), name) for name in FIELDS} == defaults
    assert list(inspect.signature(RetryPolicy).parameters) == list(FIELDS)


# attempts, base, cap, factor, jitter: DESIGN section 2; seconds of patience
PRESETS = {
    "latency_sensitive": (3, Exponential(0.010, 0.1, 2.0, "full"), 0.0),
    "high_availability": (6, Exponential(0.1, 30.0, 2.0, "full"), 20.0),
    "batch": (11, Exponential(0.1, 60.0, 2.0, "full"), 3600.0),
    "gateway": (6, Exponential(0.05, 30.0, 1.5, 0.2), 2.0),
}


def test_a_preset_sets_attempts_schedule_and_patience_and_argues_for_them() -> None:
    for name, (attempts, backoff, patience) in PRESETS.items():
        maker = getattr(RetryPolicy, name)
        assert maker() == RetryPolicy(max_attempts=attempts, backoff=backoff, patience=patience)
        assert len(maker.__doc__.strip().splitlines()) >= 3


def test_the_fields_for_type_checkers_are_those_of_the_policy() -> None:
    """Each with the annotation of its argument."""
    taken = inspect.signature(RetryPolicy.__init__).parameters
    assert PolicyFields.__annotations__.keys() == set(FIELDS)
    for name, kind in PolicyFields.__annotations__.items():
        assert kind.__forward_arg__ == taken[name].annotation


def test_an_empty_set_means_none_not_the_default() -> None:
    """``statuses=[]`` must mean none (pitfall 9)."""
    for empty in [(), [], set(), frozenset()]:
        for field in ("statuses", "hinted_statuses", "unexecuted_statuses", "failures", "methods"):
            assert getattr(RetryPolicy(**{field: empty}), field) == frozenset()


def test_every_kind_is_either_retryable_or_never_retried() -> None:
    never = {"status", "pool", "certificate", "decoding", "permanent", "unknown"}
    assert {kind.value for kind in RETRYABLE_KINDS} == KINDS
    assert {kind.value for kind in FailureKind} == KINDS | never


def test_a_policy_is_frozen() -> None:
    policy = RetryPolicy()
    with pytest.raises(AttributeError, match="'max_attempts'"):
        policy.max_attempts = 9  # type: ignore[misc]
    with pytest.raises(AttributeError):
        policy.retries = 9  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="'statuses'"):
        del policy.statuses
    assert policy == RetryPolicy()


def test_the_repr_names_what_differs_from_the_default_and_makes_the_policy() -> None:
    """In the same order whatever the process, so that two reprs can be compared."""
    shown = [
        (RetryPolicy(), ""), (RetryPolicy(max_attempts=3), "max_attempts=3"),
        (RetryPolicy(max_attempts=5, hints="obey"), ""), (RetryPolicy(patience=None), "patience=None"),
        (RetryPolicy(statuses={503, 429}, failures=()), "statuses={429, 503}, failures=set()"),
        (RetryPolicy(failures={FailureKind.RESET}), "failures={'reset'}"),
        (RetryPolicy(backoff=Exponential(), throttle_backoff=Fixed(5.0)),
            "backoff=Exponential(), throttle_backoff=Fixed(seconds=5.0)"),
        (Exponential(base=0.75, jitter="equal"), "base=0.75, jitter='equal'"),
        (Exponential(fast_first=0.0), "fast_first=0.0"),
        (IdempotencyKeys(recognise=["X-Order"]), "recognise=('X-Order',)"),
    ]  # fmt: skip
    for value, arguments in shown:
        text = f"{type(value).__name__}({arguments})"
        assert repr(value) == repr(pickle.loads(pickle.dumps(value))) == text
        assert eval(text) == value
