"""Conversion: a Retry of urllib3 or httpx-retries as a policy."""

import httpx
import httpx_retries
import pytest
import urllib3

import forbear.urllib3
from forbear import FailureKind, RetryPolicy
from forbear.core.outcome import RETRYABLE_KINDS

K = FailureKind
CONNECT = {K.DNS, K.REFUSED, K.CONNECT_TIMEOUT, K.UNPROCESSED, K.PROXY}
READ = {K.READ_TIMEOUT, K.WRITE_TIMEOUT, K.TIMEOUT, K.RESET, K.PROTOCOL}
OTHER = {K.TLS, K.PROXY}
IDEMPOTENT = {"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"}
converted = RetryPolicy.from_urllib3

NAMED = {413, 429, 503}  # of which urllib3 retries those that name a time
INF = float("inf")
ATTEMPTS = [  # of a urllib3.Retry; and how many
    *(({"total": total}, attempts) for total, attempts in (
        (3, 4), (10, 11), (0, 1), (False, 1), (True, 2), (-1, 1), (None, 11))),
    ({"total": 10, "connect": 5, "read": 2, "status": 3}, 3), ({"total": 10, "other": 1}, 2),
    ({"total": 1, "connect": 5, "read": 2, "status": 3}, 2), ({"total": 3, "redirect": 1}, 4),
    ({"total": None, "connect": 0, "read": 2}, 3), ({"total": 3, "redirect": False}, 4),
]  # fmt: skip
FIELDS = [  # of a urllib3.Retry; and of the policy
    *((fields, {"max_attempts": attempts}) for fields, attempts in ATTEMPTS),
    *(({"total": 3, **counts}, {"failures": RETRYABLE_KINDS - without, "max_attempts": 4})
        for counts, without in (
            ({}, set()), ({"connect": 0}, CONNECT), ({"read": 0}, READ), ({"read": False}, READ),
            ({"other": 0}, OTHER), ({"connect": 0, "read": 0, "other": 0}, RETRYABLE_KINDS))),
    ({}, {"statuses": set(), "hinted_statuses": NAMED, "hints": "obey", "on_exhausted": "return",
        "methods": IDEMPOTENT, "max_retry_after": 21_600}),
    ({"status_forcelist": [202, 503, "504", None, 0]},
        {"statuses": {503}, "hinted_statuses": NAMED, "on_exhausted": "raise"}),
    ({"status_forcelist": range(400, 600)}, {"statuses": set(range(400, 600))}),
    ({"status_forcelist": [503], "raise_on_status": False}, {"on_exhausted": "return"}),
    ({"status_forcelist": [503], "respect_retry_after_header": False},
        {"statuses": {503}, "hinted_statuses": set(), "hints": "ignore"}),
    *(({"total": 3, "status_forcelist": [503], "status": status},
        {"statuses": set(), "hinted_statuses": set(), "hints": "obey", "on_exhausted": "return"})
        for status in (0, False)),
    ({"status_forcelist": [503], "total": None, "status": 2},
        {"statuses": {503}, "hinted_statuses": set(), "on_exhausted": "raise"}),
    ({"status_forcelist": [503], "total": 0}, {"statuses": {503}, "hinted_statuses": set()}),
    ({"allowed_methods": {"GET", "POST"}}, {"methods": {"GET", "POST"}}),
    ({"allowed_methods": {"get", "PUT"}}, {"methods": {"PUT"}}),  # it asks for "GET"
    # A POST that is repeated without a key may take effect twice: it must be asked for by name.
    *(({"allowed_methods": any_}, {"methods": RetryPolicy().methods}) for any_ in (None, False)),
]  # fmt: skip


def test_what_a_retry_of_urllib3_means_for_each_field() -> None:
    """``total=3`` is four sendings; the smallest count limits them, and 0 takes out its kind."""
    for given_, expected in FIELDS:
        policy = converted(urllib3.Retry(**given_))
        assert {name: getattr(policy, name) for name in expected} == expected, given_
    assert [converted(number).max_attempts for number in (3, 0, -1, True)] == [4, 1, 1, 2]


def test_attributes_count_and_a_policy_comes_back() -> None:
    retry = type("Patient", (urllib3.Retry,), {"RETRY_AFTER_STATUS_CODES": {202, 420, 429}})(3)
    retry.retry_after_max = 90  # an argument since urllib3 2.6
    assert converted(retry).hinted_statuses == {420, 429}
    assert converted(retry).max_retry_after == 90
    policy = RetryPolicy.batch()
    assert converted(forbear.urllib3.Retry(policy)) == policy
    assert converted(3) == converted(urllib3.Retry(3))  # the defaults are the installed version's


def test_anything_else_is_refused_with_what_to_pass() -> None:
    for value in (None, "3", 3.0, {}, RetryPolicy, urllib3.Timeout(3), urllib3.Retry):
        with pytest.raises(TypeError, match=r"takes a urllib3\.Retry or a whole number of retries"):
            converted(value)
    for value in (None, 3, "Retry(3)", httpx_retries.Retry, RetryPolicy()):
        with pytest.raises(TypeError, match=r"takes an httpx_retries\.Retry, got "):
            RetryPolicy.from_httpx_retries(value)


def test_the_second_wait_is_urllib3s(monkeypatch):
    """Asked with the same random number; before the first retry urllib3 has none."""
    for factor, jitter in ((0.5, 0.0), (0.5, 2.0), (3.0, 0.25), (0, 1.5)):
        retry = urllib3.Retry(20, backoff_factor=factor, backoff_jitter=jitter)
        backoff = converted(retry).backoff
        retry = retry.increment("GET", "/").increment("GET", "/")
        for drawn in (0.0, 0.7):
            monkeypatch.setattr("random.random", lambda drawn=drawn: drawn)
            theirs = pytest.approx(retry.get_backoff_time())
            assert backoff.delay(2, 0.0, lambda drawn=drawn: drawn) == theirs
    assert converted(urllib3.Retry(3, backoff_factor=200)).backoff.delay(9, 0.0, float) == 120


FROM_CONNECT = {K.DNS, K.REFUSED, K.TLS}
OF_HTTPX = [  # fields of an httpx_retries.Retry; and of the policy
    ({"total": 10}, {"max_attempts": 11, "statuses": {429, 502, 503, 504}, "methods": IDEMPOTENT,
        "failures": RETRYABLE_KINDS - {K.PROXY},  # httpx.ProxyError is none of its three classes
        "max_retry_after": 120.0, "hints": "obey", "on_exhausted": "return",
        "conflict_with_key": False, "total_timeout": None}),
    ({"total": 0}, {"max_attempts": 1}),
    ({"total": 3, "total_timeout": 5.0}, {"max_attempts": 4, "total_timeout": 5.0}),
    ({"allowed_methods": ["GET", "post"], "status_forcelist": [429, 500, 202, 600],
        "respect_retry_after_header": False},
        {"methods": {"GET", "POST"}, "statuses": {429, 500}, "hints": "ignore"}),
    *(({"retry_on_exceptions": errors}, {"failures": kinds}) for errors, kinds in (
        ([httpx.HTTPError], RETRYABLE_KINDS), ([], set()), ([ValueError], set()),
        ([httpx.ConnectError], FROM_CONNECT), ([httpx.ConnectTimeout], {K.CONNECT_TIMEOUT}),
        ([httpx.TimeoutException],
            {K.CONNECT_TIMEOUT, K.READ_TIMEOUT, K.WRITE_TIMEOUT, K.TIMEOUT}),
        ([httpx.ProxyError], {K.PROXY}),
        ([httpx.ReadError], set()),  # a reset may come as another of its classes
        ([httpx.NetworkError, httpx.ProtocolError],
            {*FROM_CONNECT, K.RESET, K.PROTOCOL, K.UNPROCESSED}))),
]  # fmt: skip


def test_what_a_retry_of_httpx_retries_means_for_each_field() -> None:
    for fields, expected in OF_HTTPX:
        policy = RetryPolicy.from_httpx_retries(httpx_retries.Retry(**fields))
        assert {name: getattr(policy, name) for name in expected} == expected, fields
    for jitter, waits in ((1, [0, 10]), (0.25, [7.5, 10]), (0, [10, 10])):
        retry = httpx_retries.Retry(3, backoff_factor=5.0, backoff_jitter=jitter)
        backoff = RetryPolicy.from_httpx_retries(retry).backoff
        assert [backoff.delay(1, 0.0, lambda d=d: d) for d in (0.0, 1.0)] == pytest.approx(waits)
