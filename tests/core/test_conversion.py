"""Conversion: a urllib3 Retry as a policy; the oracle is urllib3's own counting."""

import enum
import inspect
import pickle
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
from forbear import FailureKind, RetryPolicy
from forbear.core import migration
from forbear.core.outcome import RETRYABLE_KINDS

K = FailureKind
POOL = urllib3.HTTPConnectionPool("origin.example")
CONNECT = {K.DNS, K.REFUSED, K.CONNECT_TIMEOUT, K.UNPROCESSED, K.PROXY}
READ = {K.READ_TIMEOUT, K.WRITE_TIMEOUT, K.TIMEOUT, K.RESET, K.PROTOCOL}
OTHER = {K.TLS, K.PROXY}
IDEMPOTENT = {"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"}


converted = RetryPolicy.from_urllib3


# --- the table of research/ecosystem.md section 4.3 --------------------------------------------


@pytest.mark.parametrize(("retry", "attempts"), [
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
])  # fmt: skip
def test_attempts_are_retries_and_the_first_sending(retry, attempts):
    """``total=3`` is four sendings; the smallest of the counts limits them."""
    assert converted(retry).max_attempts == attempts


@pytest.mark.parametrize(("counts", "without"), [
    ({}, set()), ({"connect": 0}, CONNECT), ({"read": 0}, READ), ({"read": False}, READ),
    ({"other": 0}, OTHER), ({"connect": 0, "read": 0, "other": 0}, RETRYABLE_KINDS),
    ({"connect": 1, "read": 1, "other": 1, "status": 0}, set()), ({"redirect": 0}, set()),
])  # fmt: skip
def test_a_count_of_zero_takes_out_its_kind_of_failure(counts, without):
    """``Retry(3, read=0)`` goes on retrying refused connections."""
    assert converted(urllib3.Retry(3, **counts)).failures == RETRYABLE_KINDS - without


@pytest.mark.parametrize(("options", "statuses", "hinted", "hints", "on_exhausted"), [
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
])  # fmt: skip
def test_statuses(options, statuses, hinted, hints, on_exhausted):
    """Without status_forcelist urllib3 still retries 413, 429 and 503 if they name a time."""
    policy = converted(urllib3.Retry(**{"total": 3, **options}))
    assert policy.statuses == statuses
    assert policy.hinted_statuses == hinted
    assert (policy.hints, policy.on_exhausted) == (hints, on_exhausted)


@pytest.mark.parametrize(("options", "methods"), [
    ({}, IDEMPOTENT), ({"allowed_methods": {"GET", "POST"}}, {"GET", "POST"}),
    ({"allowed_methods": ["PATCH"]}, {"PATCH"}),
    ({"allowed_methods": {"get", "PUT"}}, {"PUT"}),
        # urllib3 asks for "GET", which is not in it
    ({"allowed_methods": "GET"}, {"GET"}),
])  # fmt: skip
def test_methods(options, methods):
    assert converted(urllib3.Retry(3, **options)).methods == methods


def test_retry_after_max():
    """Longer ones end the call, where urllib3 comes back too soon."""
    assert converted(urllib3.Retry(3)).max_retry_after == 21_600
    retry = urllib3.Retry(3)
    retry.retry_after_max = 90  # an argument since urllib3 2.6
    assert converted(retry).max_retry_after == 90


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
    assert converted(forbear.urllib3.Retry(policy)) == policy


# --- refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [
    None, "3", 3.0, {}, RetryPolicy, object(), urllib3.Timeout(3), urllib3.Retry, Fraction(3),
])  # fmt: skip
def test_anything_else_is_refused_with_what_to_pass(value):
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
    for name, default in migration.DEFAULTS.items():
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


@given(
    st.floats(0, 10), st.floats(0, 10), st.floats(0, 200), st.integers(1, 9),
    st.floats(0, 1, exclude_max=True),
)  # fmt: skip
def test_each_wait_is_urllib3s(factor, jitter, longest, failed, drawn):
    """Asked with the same random number after the same number of failures."""
    retry = urllib3.Retry(20, backoff_factor=factor, backoff_jitter=jitter, backoff_max=longest)
    backoff = converted(retry).backoff
    for _ in range(failed):
        retry = retry.increment("GET", "/", error=ProtocolError(""))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("random.random", lambda: drawn)
        theirs = retry.get_backoff_time()
    assert backoff.delay(failed, 0.0, lambda: drawn) == pytest.approx(theirs)
    assert pickle.loads(pickle.dumps(backoff)) == backoff


def test_numbers_that_make_no_wait():
    """Below 0, and without an upper limit, as urllib3 takes them."""
    for factor, longest, waits in ((-1, -1, [0, 0, 0]), (1, float("inf"), [0, 2, 4])):
        backoff = converted(urllib3.Retry(3, backoff_factor=factor, backoff_max=longest)).backoff
        assert [backoff.delay(n, 0.0, lambda: 0.0) for n in (1, 2, 3)] == waits
