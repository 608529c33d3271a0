"""Conversion: a urllib3 Retry as a policy; the oracle is urllib3's own counting."""

from __future__ import annotations

import enum
import inspect
from fractions import Fraction

import pytest
import urllib3
from hypothesis import given
from hypothesis import strategies as st
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NewConnectionError,
    ProtocolError,
    ProxyError,
    ReadTimeoutError,
    SSLError,
)
from urllib3.response import HTTPResponse

import forbear.urllib3
from forbear import Exponential, FailureKind, RetryPolicy
from forbear.core.outcome import RETRYABLE_KINDS
from forbear.policy_tools import conversion

K = FailureKind
POOL = urllib3.HTTPConnectionPool("origin.example")
CONNECT = {K.DNS, K.REFUSED, K.CONNECT_TIMEOUT, K.UNPROCESSED, K.PROXY}
READ = {K.READ_TIMEOUT, K.WRITE_TIMEOUT, K.TIMEOUT, K.RESET, K.PROTOCOL}
OTHER = {K.TLS, K.PROXY}
IDEMPOTENT = {"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"}


converted = RetryPolicy.from_urllib3


# --- the table of research/ecosystem.md section 4.3 --------------------------------------------


def test_attempts_are_retries_and_the_first_sending():
    """``total=3`` is four sendings; the smallest of the counts limits them."""
    cases = [
        (urllib3.Retry(3), 4), (urllib3.Retry(), 11), (urllib3.Retry(0), 1),
        (urllib3.Retry(False), 1), (urllib3.Retry(True), 2), (urllib3.Retry(-1), 1),
        (urllib3.Retry(10, connect=5, read=2, status=3), 3),
        (urllib3.Retry(1, connect=5, read=2, status=3), 2), (urllib3.Retry(10, other=1), 2),
        (urllib3.Retry(None, connect=3), 4), (urllib3.Retry(None, connect=0, read=2), 3),
        (urllib3.Retry(3, redirect=1), 4), (urllib3.Retry(3, redirect=False), 4),
        (urllib3.Retry(3, read=0), 4), (urllib3.Retry(3, connect=False), 4),
        (urllib3.Retry(5, read=-1), 1), (urllib3.Retry(5, redirect=-1), 1),
        (urllib3.Retry(5, read=-0.5), 1), (urllib3.Retry(2.5), 3),
        (urllib3.Retry(float("inf"), read=2), 3), (urllib3.Retry(5, read=float("-inf")), 1), (3, 4),
        (0, 1), (-1, 1), (True, 2), (False, 1),
    ]  # fmt: skip
    for retry, attempts in cases:
        assert converted(retry).max_attempts == attempts


def test_a_count_of_zero_takes_out_its_kind_of_failure():
    """``Retry(3, read=0)`` goes on retrying refused connections."""
    cases = [
        ({}, set()), ({"connect": 0}, CONNECT), ({"read": 0}, READ), ({"read": False}, READ),
        ({"other": 0}, OTHER), ({"connect": 0, "read": 0, "other": 0}, RETRYABLE_KINDS),
        ({"connect": 1, "read": 1, "other": 1, "status": 0}, set()), ({"redirect": 0}, set()),
    ]  # fmt: skip
    for counts, without in cases:
        assert converted(urllib3.Retry(3, **counts)).failures == RETRYABLE_KINDS - without


def test_statuses():
    """Without status_forcelist urllib3 still retries 413, 429 and 503 if they name a time."""
    cases = [
        ({}, set(), {413, 429, 503}, "obey", "return"),
        ({"status_forcelist": [502, 503]}, {502, 503}, {413, 429, 503}, "obey", "raise"),
        ({"status_forcelist": range(500, 600)}, set(range(500, 600)), {413, 429, 503}, "obey",
            "raise"),
        ({"status_forcelist": [503], "raise_on_status": False}, {503}, {413, 429, 503}, "obey",
            "return"),
        ({"status_forcelist": [503], "respect_retry_after_header": False}, {503}, set(), "ignore",
            "raise"),
        ({"respect_retry_after_header": False}, set(), set(), "ignore", "return"),
        ({"status_forcelist": [503], "status": 0}, set(), set(), "obey", "return"),
        ({"status_forcelist": [503], "status": False}, set(), set(), "obey", "return"),
        ({"status_forcelist": [503], "total": None, "status": 2}, {503}, set(), "obey", "raise"),
        ({"status_forcelist": [503], "total": 0}, {503}, set(), "obey", "raise"),
    ]  # fmt: skip
    for options, statuses, hinted, hints, on_exhausted in cases:
        policy = converted(urllib3.Retry(**{"total": 3, **options}))
        assert policy.statuses == statuses
        assert policy.hinted_statuses == hinted
        assert (policy.hints, policy.on_exhausted) == (hints, on_exhausted)


def test_backoff():
    cases = [
        ({}, Exponential(0.0, 120, jitter="none", fast_first=0.0)),
        ({"backoff_factor": 0.5}, Exponential(0.5, 120, jitter="none", fast_first=0.0)),
        ({"backoff_factor": 0.5, "backoff_max": 10}, Exponential(0.5, 10, jitter="none",
            fast_first=0.0)),
        ({"backoff_factor": 5, "backoff_max": 2}, Exponential(2, 2, jitter="none",
            fast_first=0.0)),
        ({"backoff_factor": -1, "backoff_max": -1}, Exponential(0, 0, jitter="none",
            fast_first=0.0)),
        ({"backoff_factor": 1, "backoff_max": float("inf")}, Exponential(1, 2**31, jitter="none",
            fast_first=0.0)),
        # [2f, 2f + j] = [1, 2] after the second failure: 1.5 ± a third
        ({"backoff_factor": 0.5, "backoff_jitter": 1}, Exponential(0.75, 120, jitter=1 / 3,
            fast_first=0.0)),
        ({"backoff_jitter": 1}, Exponential(1, 120, factor=1.0, jitter="full",
            fast_first=0.0)),
        ({"backoff_jitter": 9, "backoff_max": 3}, Exponential(3, 3, factor=1.0, jitter="full",
            fast_first=0.0)),
    ]  # fmt: skip
    for options, expected in cases:
        assert converted(urllib3.Retry(3, **options)).backoff == expected


def test_methods():
    cases = [
        ({}, IDEMPOTENT), ({"allowed_methods": {"GET", "POST"}}, {"GET", "POST"}),
        ({"allowed_methods": ["PATCH"]}, {"PATCH"}),
        ({"allowed_methods": {"get", "PUT"}}, {"PUT"}),
            # urllib3 asks for "GET", which is not in it
        ({"allowed_methods": "GET"}, {"GET"}),
    ]  # fmt: skip
    for options, methods in cases:
        assert converted(urllib3.Retry(3, **options)).methods == methods


def test_retry_after_max():
    """Longer ones end the call, where urllib3 comes back too soon."""
    assert converted(urllib3.Retry(3)).max_retry_after == 21_600
    retry = urllib3.Retry(3)
    retry.retry_after_max = 90  # an argument since urllib3 2.6
    assert converted(retry).max_retry_after == 90


def test_what_urllib3_has_no_word_for_keeps_its_default():
    policy, default = converted(urllib3.Retry(3, status_forcelist=[503])), RetryPolicy()
    for name in (
        "conflict_with_key",
        "attempt_timeout",
        "total_timeout",
        "hint_spread",
        "throttle_backoff",
    ):
        assert getattr(policy, name) == getattr(default, name)


# --- what has no counterpart -------------------------------------------------------------------


@pytest.mark.parametrize("methods", [None, False])
def test_any_method_becomes_the_default_methods(methods):
    """A POST that is repeated without a key may take effect twice: that must be asked for by
    name.
    """
    assert converted(urllib3.Retry(3, allowed_methods=methods)).methods == RetryPolicy().methods


def test_no_limit_at_all_becomes_urllib3s_default():
    assert (
        converted(urllib3.Retry(None)).max_attempts == converted(urllib3.Retry()).max_attempts == 11
    )


def test_a_limit_for_some_kinds_only_limits_all():
    """Retry(None, read=2) repeats refused connections for ever."""
    assert converted(urllib3.Retry(None, read=2)).max_attempts == 3
    policy = converted(urllib3.Retry(None, read=0))
    assert (policy.max_attempts, policy.failures) == (11, RETRYABLE_KINDS - READ)


def test_statuses_that_are_no_errors_are_left_out():
    assert converted(urllib3.Retry(3, status_forcelist=[202, 503, "504", None, 0])).statuses == {
        503
    }


def test_a_subclass_is_read_by_its_attributes():
    class Patient(urllib3.Retry):
        RETRY_AFTER_STATUS_CODES = frozenset({202, 420, 429})

    assert converted(Patient(3)).hinted_statuses == {420, 429}


def test_our_own_retry_gives_its_policy():
    """forbear.urllib3.Retry is a urllib3.Retry too."""
    policy = RetryPolicy.batch()
    assert converted(forbear.urllib3.Retry(policy)) is policy


# --- refused -----------------------------------------------------------------------------------


def test_anything_else_is_refused_with_what_to_pass():
    cases = [
        None, "3", 3.0, {}, RetryPolicy, object(), urllib3.Timeout(3), urllib3.Retry, Fraction(3),
    ]  # fmt: skip
    for value in cases:
        with pytest.raises(
            TypeError, match=r"takes a urllib3\.Retry or a whole number of retries, got "
        ):
            converted(value)


def test_a_count_that_is_no_number_is_named():
    for name in ["total", "connect", "read", "redirect", "status", "other"]:
        with pytest.raises(TypeError, match=f"{name} of a Retry must be a number or None, got '3'"):
            converted(urllib3.Retry(**{name: "3"}))


# --- laws --------------------------------------------------------------------------------------


def test_the_assumed_defaults_are_those_of_the_installed_version():
    parameters = inspect.signature(urllib3.Retry).parameters
    plain = urllib3.Retry(10)
    for name, default in conversion.DEFAULTS.items():
        if name in parameters or name.isupper():
            assert getattr(plain, name) == default
        else:
            assert name == "retry_after_max"  # since urllib3 2.6


class Kind(enum.Enum):
    """Errors as urllib3's loop sees them, and the kind forbear gives them."""

    REFUSED = (
        K.REFUSED,
        NewConnectionError(urllib3.connection.HTTPConnection("origin.example"), "refused"),
    )
    CONNECT_TIMEOUT = K.CONNECT_TIMEOUT, ConnectTimeoutError()
    READ_TIMEOUT = K.READ_TIMEOUT, ReadTimeoutError(POOL, "/", "")
    RESET = K.RESET, ProtocolError("", ConnectionResetError())
    TLS = K.TLS, SSLError("")
    PROXY_REFUSED = K.PROXY, ProxyError("", ConnectTimeoutError())
    PROXY_RESET = K.PROXY, ProxyError("", ConnectionResetError())


LONG = 30  # attempts after which urllib3 is taken to go on for ever


def attempts_of_urllib3(retry, method, **outcome):
    """How often urllib3's loop sends while every attempt ends so."""
    for attempts in range(1, LONG):
        response = outcome.get("response")
        if response is not None:
            named = "Retry-After" in response.headers
            if not retry.is_retry(method, response.status, named):
                return attempts
        try:
            retry = retry.increment(method, "/", **outcome)
        except HTTPError:  # MaxRetryError, or the error itself
            return attempts
    return LONG


METHODS = ["GET", "HEAD", "PUT", "DELETE", "POST", "PATCH"]
counts = st.none() | st.integers(-1, 12) | st.booleans()
retries = st.builds(
    urllib3.Retry,
    total=counts,
    connect=counts,
    read=counts,
    redirect=counts,
    status=counts,
    other=counts,
    allowed_methods=st.none() | st.just(False) | st.sets(st.sampled_from(METHODS), min_size=1),
    status_forcelist=st.none()
    | st.sets(st.integers(100, 599) | st.sampled_from([429, 500, 502, 503])),
    backoff_factor=st.floats(0, 1e6) | st.integers(-1, 100),
    backoff_max=st.floats(-1) | st.just(120),
    backoff_jitter=st.floats(0, 1e6),
    raise_on_status=st.booleans(),
    respect_retry_after_header=st.booleans(),
)


@given(retries, st.sampled_from(Kind))
def test_a_failing_call_is_sent_at_most_as_often_as_by_urllib3(retry, kind):
    """For every kind of error, with an idempotent method that both may repeat."""
    policy = converted(retry)
    failure, error = kind.value
    mine = policy.max_attempts if failure in policy.failures else 1
    for method in policy.methods & set(METHODS):
        assert mine <= attempts_of_urllib3(retry, method, error=error)


@given(
    retries,
    st.sampled_from([413, 429, 500, 502, 503, 504, 599]),
    st.booleans(),
    st.sampled_from(METHODS),
)
def test_a_failing_status_is_sent_at_most_as_often_as_by_urllib3(retry, status, named, method):
    policy = converted(retry)
    retried = status in policy.statuses or (named and status in policy.hinted_statuses)
    mine = policy.max_attempts if retried and method in policy.methods else 1
    response = HTTPResponse(b"", {"Retry-After": "1"} if named else {}, status)
    assert mine <= attempts_of_urllib3(retry, method, response=response)


@given(st.integers(0, 20), st.sampled_from(Kind), st.sampled_from(sorted(IDEMPOTENT)))
def test_with_only_a_total_it_is_sent_as_often(total, kind, method):
    policy = converted(urllib3.Retry(total, status_forcelist=[500]))
    failure, error = kind.value
    assert failure in policy.failures
    assert policy.max_attempts == attempts_of_urllib3(urllib3.Retry(total), method, error=error)
    for status, named in ((500, False), (503, True)):
        retry = urllib3.Retry(total, status_forcelist=[500])
        response = HTTPResponse(b"", {"Retry-After": "1"} if named else {}, status)
        assert policy.max_attempts == attempts_of_urllib3(retry, method, response=response)


@given(st.floats(0.001, 10), st.floats(0, 10), st.integers(1, 6), st.floats(0, 1, exclude_max=True))
def test_waits_are_urllib3s_from_the_second_on(factor, jitter, failed, drawn):
    """Drawn from the same range the second time, and never shorter than urllib3's shortest
    afterwards.
    """
    backoff = converted(
        urllib3.Retry(9, backoff_factor=factor, backoff_jitter=jitter, backoff_max=1e9)
    ).backoff
    wait = backoff.delay(failed, 0.0, lambda: drawn)
    if failed == 2:
        assert wait == pytest.approx(2 * factor + drawn * jitter)
    assert wait >= factor * 2 ** (failed - 1) * (1 - 1e-9)


@given(retries, st.integers(1, 40), st.floats(0, 1, exclude_max=True))
def test_no_wait_is_longer_than_backoff_max(retry, failed, drawn):
    backoff = converted(retry).backoff
    assert 0 <= backoff.delay(failed, 0.0, lambda: drawn) <= max(0.0, retry.backoff_max)
