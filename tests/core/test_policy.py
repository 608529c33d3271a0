"""Policy: the defaults, what is refused and with which words, and that it is a value."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import pytest

from forbear import Exponential, FailureKind, Fixed, IdempotencyKeys, PolicyFields, RetryPolicy
from forbear.core.outcome import RETRYABLE_KINDS

EVERY_RETRYABLE_KIND = {
    "dns", "refused", "connect-timeout", "tls", "proxy", "read-timeout", "write-timeout", "timeout", "reset",
    "protocol", "unprocessed",
}  # fmt: skip

# DESIGN section 2, the table of fields.
DEFAULTS: dict[str, Any] = {
    "max_attempts": 4,
    # 0.5 to 1 s, 1 to 2 s, 2 to 4 s
    "backoff": Exponential(base=0.75, cap=30.0, factor=2.0, jitter=1 / 3, fast_first=0.2),
    "patience": 10.0,
    "throttle_backoff": None,
    "statuses": {408, 425, 429, 500, 502, 503, 504},
    "hinted_statuses": set(),
    "vendors": (),
    "conflict_with_key": True,
    "failures": EVERY_RETRYABLE_KIND,
    "methods": {"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "QUERY"},
    "attempt_timeout": None,
    "total_timeout": None,
    "max_retry_after": 60.0,
    "hints": "obey",
    "hint_spread": 0.25,
    "on_exhausted": "return",
}


# --- defaults ---------------------------------------------------------------------------------


def test_default() -> None:
    """What is retried and how long without any setting is part of the promise."""
    for field in sorted(DEFAULTS):
        assert getattr(RetryPolicy(), field) == DEFAULTS[field]


def test_every_field_has_its_default_checked() -> None:
    assert set(inspect.signature(RetryPolicy).parameters) == set(DEFAULTS)


def test_the_fields_for_type_checkers_are_those_of_the_policy() -> None:
    """Each with the annotation of its argument."""
    taken = inspect.signature(RetryPolicy.__init__).parameters
    assert PolicyFields.__annotations__.keys() == set(RetryPolicy.FIELDS)
    for name, kind in PolicyFields.__annotations__.items():
        assert kind.__forward_arg__ == taken[name].annotation


# --- what is refused --------------------------------------------------------------------------

BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"max_attempts": 0}, ValueError,
        "max_attempts must be at least 1, got 0; use max_attempts=1 to send once and never retry"),
    ({"max_attempts": -3}, ValueError, "max_attempts must be at least 1, got -3"),
    ({"max_attempts": 2.0}, TypeError, "max_attempts must be a whole number, got 2.0"),
    ({"max_attempts": True}, TypeError, "max_attempts must be a whole number, got True"),
    ({"max_attempts": None}, TypeError, "max_attempts must be a whole number, got None"),
    ({"max_attempts": "3"}, TypeError, "max_attempts must be a whole number, got '3'"),
    ({"backoff": 0.5}, TypeError,
        "backoff must be Exponential(…), Fixed(…) or an object with delay(attempt, previous, random), got 0.5"),
    ({"backoff": None}, TypeError, "backoff must be Exponential(…)"),
    ({"patience": -1}, ValueError, "patience must be at least 0 and finite, got -1"),
    ({"patience": None}, TypeError, "patience must be a number of seconds, got None"),
    ({"throttle_backoff": 5}, TypeError, "throttle_backoff must be Exponential(…), Fixed(…)"),
    ({"statuses": 503}, TypeError, "statuses must be a set such as {429, 503}, got 503"),
    ({"statuses": None}, TypeError, "statuses must be a set such as {429, 503}, got None"),
    ({"statuses": "503"}, TypeError, "statuses must be a set such as {429, 503}, got '503'"),
    ({"statuses": {"503"}}, ValueError,
        "statuses must hold whole numbers from 400 to 599, got '503'"),
    ({"statuses": {200}}, ValueError, "statuses must hold whole numbers from 400 to 599, got 200"),
    ({"statuses": {600}}, ValueError, "statuses must hold whole numbers from 400 to 599, got 600"),
    ({"statuses": {True}}, ValueError,
        "statuses must hold whole numbers from 400 to 599, got True"),
    ({"hinted_statuses": {302}}, ValueError,
        "hinted_statuses must hold whole numbers from 400 to 599, got 302"),
    ({"vendors": ["github"]}, ValueError,
        "vendor must be one of anthropic, google, openai, got 'github'"),
    ({"vendors": "google"}, TypeError,
        "vendors must be an iterable of str, got a single str; write ['google']"),
    ({"conflict_with_key": 1}, TypeError, "conflict_with_key must be True or False, got 1"),
    ({"conflict_with_key": None}, TypeError, "conflict_with_key must be True or False, got None"),
    ({"failures": "reset"}, TypeError,
        "failures must be a set such as {FailureKind.REFUSED}, got 'reset'"),
    ({"failures": {FailureKind.CERTIFICATE}}, ValueError,
        "failures must hold retryable FailureKind members"),
    ({"failures": {FailureKind.POOL}}, ValueError, "got <FailureKind.POOL: 'pool'>"),
    ({"failures": {FailureKind.STATUS}}, ValueError, "got <FailureKind.STATUS: 'status'>"),
    ({"failures": {ConnectionError}}, ValueError, "got <class 'ConnectionError'>"),
    ({"methods": "GET"}, TypeError, "methods must be a set such as {'GET', 'PUT'}, got 'GET'"),
    ({"methods": {"get"}}, ValueError,
        "methods must hold upper-case names such as 'GET', got 'get'"),
    ({"methods": {""}}, ValueError, "methods must hold upper-case names such as 'GET', got ''"),
    ({"methods": {b"GET"}}, ValueError,
        "methods must hold upper-case names such as 'GET', got b'GET'"),
    ({"attempt_timeout": 0}, ValueError,
        "attempt_timeout must be more than 0 seconds, got 0; use None for the client's own timeouts"),
    ({"attempt_timeout": -1}, ValueError, "attempt_timeout must be at least 0 and finite, got -1"),
    ({"attempt_timeout": "5"}, TypeError, "attempt_timeout must be a number of seconds, got '5'"),
    ({"total_timeout": float("inf")}, ValueError,
        "total_timeout must be at least 0 and finite, got inf; use None for no limit"),
    ({"total_timeout": float("nan")}, ValueError,
        "total_timeout must be at least 0 and finite, got nan"),
    ({"total_timeout": -0.1}, ValueError, "total_timeout must be at least 0 and finite, got -0.1"),
    ({"total_timeout": True}, TypeError, "total_timeout must be a number of seconds, got True"),
    ({"max_retry_after": None}, TypeError, "max_retry_after must be a number of seconds, got None"),
    ({"max_retry_after": -1}, ValueError, "max_retry_after must be at least 0 and finite, got -1"),
    ({"max_retry_after": float("inf")}, ValueError,
        "max_retry_after must be at least 0 and finite, got inf"),
    ({"hints": "respect"}, ValueError, "hints must be one of 'obey', 'ignore', got 'respect'"),
    ({"hints": False}, ValueError, "hints must be one of 'obey', 'ignore', got False"),
    ({"hint_spread": -0.1}, ValueError,
        "hint_spread must be at least 0, got -0.1; 0.1 adds up to 10 %"),
    ({"hint_spread": float("nan")}, ValueError, "hint_spread must be finite, got nan"),
    ({"hint_spread": None}, TypeError, "hint_spread must be a number, got None"),
    ({"on_exhausted": "throw"}, ValueError,
        "on_exhausted must be one of 'return', 'raise', got 'throw'"),
    ({"backoff": Exponential}, TypeError,
        "backoff was given the class Exponential: write backoff=Exponential()"),
    ({"throttle_backoff": Fixed}, TypeError, "write throttle_backoff=Fixed(…)"),
    ({"wood": 503}, TypeError,
        "RetryPolicy has no field 'wood'; its fields are max_attempts, backoff,"),
]  # fmt: skip


def test_a_wrong_field_is_told_what_was_given_and_what_to_write() -> None:
    """A policy that makes no sense fails where it is written, not at the first outage."""
    for fields, error, message in BAD:
        for make in (RetryPolicy, RetryPolicy().replace):
            with pytest.raises(error) as caught:
                make(**fields)
            assert message in str(caught.value)


def test_every_field_has_a_value_that_is_refused() -> None:
    refused = {name for fields, _, _ in BAD for name in fields}
    assert set(DEFAULTS) <= refused


def test_fields_are_keyword_only() -> None:
    with pytest.raises(TypeError):
        RetryPolicy(3)  # type: ignore[misc]


def test_a_long_value_does_not_drown_the_message() -> None:
    with pytest.raises(TypeError) as caught:
        RetryPolicy(statuses="5" * 10_000)  # type: ignore[arg-type]
    assert len(str(caught.value)) < 200


# --- what is taken ----------------------------------------------------------------------------


def test_an_empty_set_means_none_not_the_default() -> None:
    """``statuses=[]`` must mean none (pitfall 9)."""
    for empty in [(), [], set(), frozenset()]:
        for field in ["statuses", "hinted_statuses", "failures", "methods"]:
            assert getattr(RetryPolicy(**{field: empty}), field) == frozenset()


def test_lists_and_tuples_become_sets() -> None:
    policy = RetryPolicy(statuses=[503, 503, 429], methods=("GET",), failures=["refused"])  # type: ignore[arg-type]
    assert policy.statuses == frozenset({429, 503})
    assert policy.methods == frozenset({"GET"})
    assert policy.failures == frozenset({FailureKind.REFUSED})
    assert all(isinstance(kind, FailureKind) for kind in policy.failures)


def test_a_generator_of_statuses_is_used_up_once() -> None:
    assert RetryPolicy(statuses=(status for status in (500, 503))).statuses == {500, 503}  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["total_timeout", "max_retry_after", "hint_spread"])
def test_zero_means_zero(field: str) -> None:
    """0 is no spelling of "no limit" or "default" (pitfall 53)."""
    assert getattr(RetryPolicy(**{field: 0}), field) == 0


def test_the_bounds_of_statuses_are_taken() -> None:
    assert RetryPolicy(statuses={400, 599}).statuses == {400, 599}


def test_every_kind_is_either_retryable_or_never_retried() -> None:
    never = {"status", "pool", "certificate", "decoding", "permanent", "unknown"}
    assert {kind.value for kind in RETRYABLE_KINDS} == EVERY_RETRYABLE_KIND
    assert {kind.value for kind in FailureKind} == EVERY_RETRYABLE_KIND | never


# --- replace ----------------------------------------------------------------------------------


def test_replace_changes_what_is_named_and_nothing_else() -> None:
    policy = RetryPolicy(max_attempts=7, statuses={503}, total_timeout=9.0)
    other = policy.replace(max_attempts=2, total_timeout=None)
    assert (other.max_attempts, other.total_timeout) == (2, None)
    assert other.statuses == {503}
    assert (policy.max_attempts, policy.total_timeout) == (7, 9.0)
    assert policy.replace() == policy


# --- a value ----------------------------------------------------------------------------------


def test_a_policy_is_frozen() -> None:
    policy = RetryPolicy()
    with pytest.raises(AttributeError, match="'max_attempts' was not set; make a new one"):
        policy.max_attempts = 9  # type: ignore[misc]
    with pytest.raises(AttributeError):
        policy.retries = 9  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="'statuses' was not deleted"):
        del policy.statuses
    assert policy == RetryPolicy()


def test_copies_are_equal() -> None:
    """Policies travel to worker processes in configuration objects."""
    twin_ofs = [
        copy.copy, copy.deepcopy,
        *(lambda policy, n=n: pickle.loads(pickle.dumps(policy, n)) for n in range(2, pickle.HIGHEST_PROTOCOL + 1) ),
    ]  # fmt: skip
    for twin_of in twin_ofs:
        policys = [
            RetryPolicy(), RetryPolicy.gateway(),
            RetryPolicy(statuses=(), throttle_backoff=Fixed(5.0), total_timeout=1),
        ]  # fmt: skip
        for policy in policys:
            twin = twin_of(policy)
            assert twin == policy
            assert hash(twin) == hash(policy)
            assert twin.statuses == policy.statuses


def test_equality_is_by_value() -> None:
    assert RetryPolicy(statuses=[503, 429]) == RetryPolicy(statuses={429, 503})  # type: ignore[arg-type]
    assert RetryPolicy() != RetryPolicy(max_attempts=5)
    assert len({RetryPolicy(), RetryPolicy(), RetryPolicy(max_attempts=5)}) == 2


def test_the_repr_names_what_differs_from_the_default_and_makes_the_policy() -> None:
    """In the same order whatever the process, so that two reprs can be compared."""
    shown = [
        (RetryPolicy(), "RetryPolicy()"),
        (RetryPolicy(max_attempts=5), "RetryPolicy(max_attempts=5)"),
        (RetryPolicy(max_attempts=4, hints="obey"), "RetryPolicy()"),
        (
            RetryPolicy(statuses={503, 429}, failures=()),
            "RetryPolicy(statuses={429, 503}, failures=set())",
        ),
        (RetryPolicy(failures={FailureKind.RESET}), "RetryPolicy(failures={'reset'})"),
        (
            RetryPolicy(backoff=Exponential(), throttle_backoff=Fixed(5.0)),
            "RetryPolicy(backoff=Exponential(), throttle_backoff=Fixed(seconds=5.0))",
        ),
        (Exponential(base=0.75, jitter="equal"), "Exponential(base=0.75, jitter='equal')"),
        (Exponential(fast_first=0.0), "Exponential(fast_first=0.0)"),
        (IdempotencyKeys(recognise=["X-Order"]), "IdempotencyKeys(recognise=('X-Order',))"),
    ]
    for value, text in shown:
        assert repr(value) == repr(pickle.loads(pickle.dumps(value))) == text
        assert eval(text) == value
