"""Conversion: a Retry of httpx-retries as a policy; the oracle is its own transport."""

import contextlib
import random
import time
from http import HTTPMethod, HTTPStatus
from itertools import cycle, islice

import httpx
import httpx_retries
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forbear import FailureKind, RetryPolicy
from forbear.core.outcome import RETRYABLE_KINDS
from forbear.httpx import RetryTransport, classify
from forbear.testing import FakeClock, ScriptedTransport

K = FailureKind
Retry = httpx_retries.Retry
converted = RetryPolicy.from_httpx_retries
DEFAULT_FAILURES = RETRYABLE_KINDS - {K.PROXY}  # httpx.ProxyError is none of the three classes


# --- fields ------------------------------------------------------------------------------------


def test_the_default_retries_ten_times_without_a_wait():
    policy = converted(Retry())
    assert policy.max_attempts == 11
    assert waits(policy) == ([0.0] * 3, [0.0] * 3)
    assert policy.statuses == {429, 502, 503, 504}
    assert policy.methods == {"HEAD", "GET", "PUT", "DELETE", "OPTIONS", "TRACE"}
    assert policy.failures == DEFAULT_FAILURES
    assert (policy.max_retry_after, policy.hints, policy.on_exhausted) == (120.0, "obey", "return")
    assert policy.conflict_with_key is False
    assert policy.total_timeout is None


@pytest.mark.parametrize(("retry", "attempts"), [
    (Retry(0), 1), (Retry(3), 4), (Retry(3, attempts_made=1), 3),
    (Retry(3, attempts_made=3), 1), (Retry(3, attempts_made=9), 1),
    (Retry(3, total_timeout=2.0, elapsed_sleep=2.0), 1), (Retry(3, total_timeout=2.0), 4),
    # 2 × 0.5, 1 and 2 s at the longest: the third sleep is cut to what is left of 3.5 s, and is
    # the last.
    (Retry(9, backoff_factor=0.25, total_timeout=3.5), 4),
    (Retry(9, backoff_factor=0.25, total_timeout=3.6), 5),
    # 1 s, then 2 s each: 1 + 2 + 2 + 2 + 1
    (Retry(9, backoff_factor=0.5, max_backoff_wait=2.0, total_timeout=8.0), 6),
    (Retry(2, backoff_factor=0.5, max_backoff_wait=2.0, total_timeout=8.0), 3),
])  # fmt: skip
def test_attempts_are_retries_and_the_first_sending(retry, attempts):
    assert converted(retry).max_attempts == attempts


def test_the_time_that_is_left_to_sleep_bounds_the_call():
    assert converted(Retry(3, total_timeout=5.0, elapsed_sleep=2.0)).total_timeout == 3.0
    assert (
        converted(Retry(3, total_timeout=5.0, elapsed_sleep=6.0)).total_timeout is None
    )  # it sends once


def waits(policy):
    """Shortest and longest, before the first three retries."""
    return tuple(
        [policy.backoff.delay(n, 0.0, lambda d=drawn: d) for n in (1, 2, 3)] for drawn in (0.0, 1.0)
    )


def test_a_million_attempts_that_were_made_are_no_overflow():
    retry = Retry(3, backoff_factor=5.0, attempts_made=10**6)
    assert waits(converted(retry)) == ([0] * 3, [120] * 3)


def test_lists_are_taken_over_and_what_is_no_error_is_left_out():
    retry = Retry(
        3,
        allowed_methods=[HTTPMethod.GET, "post"],
        status_forcelist=[HTTPStatus.TOO_MANY_REQUESTS, 500, 202, 600],
        respect_retry_after_header=False,
    )
    policy = converted(retry)
    assert policy.methods == {"GET", "POST"}
    assert policy.statuses == {429, 500}
    assert policy.hints == "ignore"
    assert all(type(one) is int for one in policy.statuses)


@pytest.mark.parametrize(("exceptions", "kinds"), [
    ([httpx.HTTPError], RETRYABLE_KINDS), ([Exception], RETRYABLE_KINDS),
    ([httpx.TransportError], RETRYABLE_KINDS), ([], set()),
    ([httpx.ConnectError], {K.DNS, K.REFUSED, K.TLS}),
    ([httpx.ConnectTimeout], {K.CONNECT_TIMEOUT}),
    ([httpx.TimeoutException], {K.CONNECT_TIMEOUT, K.READ_TIMEOUT, K.WRITE_TIMEOUT, K.TIMEOUT}),
    ([httpx.ProxyError], {K.PROXY}),
    ([httpx.ReadError], set()),  # a reset may come as another of its classes
    ([httpx.NetworkError], {K.DNS, K.REFUSED, K.TLS}),
    ([httpx.NetworkError, httpx.ProtocolError], {K.DNS, K.REFUSED, K.TLS, K.RESET, K.PROTOCOL,
        K.UNPROCESSED}),
    ([ValueError], set()),
])  # fmt: skip
def test_a_kind_stays_if_all_that_means_it_is_retried(exceptions, kinds):
    assert converted(Retry(3, retry_on_exceptions=exceptions)).failures == kinds


def test_anything_else_is_refused_with_what_to_pass():
    for value in [None, 3, "Retry(3)", object(), Retry, RetryPolicy()]:
        with pytest.raises(TypeError, match=r"takes an httpx_retries\.Retry, got "):
            converted(value)


# --- its own transport -------------------------------------------------------------------------

OUTCOMES = {
    "503": 503,
    "502": 502,
    "500": 500,
    "429 in a second": (429, {"Retry-After": "1"}),
    "503 in an hour": (503, {"Retry-After": "3600"}),
    "connect": "connect_error",
    "connect timeout": "connect_timeout",
    "read timeout": "read_timeout",
    "reset": "read_error",
    "disconnect": "disconnect",
    "200": 200,
}


class Known(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """httpx-retries takes only what derives from httpx's own classes."""

    def __init__(self, script):
        self.script = script

    def handle_request(self, request):
        return self.script.handle_request(request)

    async def handle_async_request(self, request):
        return await self.script.handle_async_request(request)


def scripted(names):
    return ScriptedTransport([*(OUTCOMES[name] for name in names), 200])


def sent_by_theirs(retry, names, method, drawn, sleeps=None):
    """How often httpx-retries sends; its sleeps take no time, its random numbers are given."""
    script = scripted(names)
    kept = time.sleep, random.uniform
    time.sleep = ([] if sleeps is None else sleeps).append
    random.uniform = lambda low, high: low + (high - low) * drawn
    try:
        send(httpx_retries.RetryTransport(Known(script), retry), method)
    finally:
        time.sleep, random.uniform = kept
    return len(script.requests)


def sent_by_ours(retry, names, method, drawn, sleeps=None):
    script, clock = scripted(names), FakeClock()
    policy = converted(retry).replace(hint_spread=0.0)
    send(
        RetryTransport(script, policy=policy, gate=None, clock=clock, random=lambda: drawn),
        method,
    )
    if sleeps is not None:
        sleeps += clock.sleeps
    return len(script.requests)


def send(transport, method):
    with httpx.Client(transport=transport) as client:
        with contextlib.suppress(httpx.TransportError):
            client.request(method, "https://origin.example/")


METHODS = ["GET", "HEAD", "PUT", "DELETE", "POST"]
EXCEPTIONS = [
    httpx.ConnectError, httpx.ReadError, httpx.NetworkError, httpx.TimeoutException, httpx.ReadTimeout,
    httpx.RemoteProtocolError, httpx.TransportError,
]  # fmt: skip
retries = st.builds(
    Retry,
    total=st.integers(0, 8),
    allowed_methods=st.none() | st.lists(st.sampled_from(METHODS), min_size=1),
    status_forcelist=st.none() | st.lists(st.sampled_from([429, 500, 502, 503]), min_size=1),
    retry_on_exceptions=st.none() | st.lists(st.sampled_from(EXCEPTIONS)),
    backoff_factor=st.sampled_from([0.0, 0.1, 0.5, 2.0]),
    respect_retry_after_header=st.booleans(),
    max_backoff_wait=st.sampled_from([0.3, 1.0, 4.0, 120.0]),
    backoff_jitter=st.sampled_from([0.0, 0.25, 0.5, 1.0]),
    attempts_made=st.integers(0, 2),
    total_timeout=st.none() | st.sampled_from([0.5, 2.0, 10.0]),
)


@settings(max_examples=100)
@given(
    retries,
    st.lists(st.sampled_from(sorted(OUTCOMES)), max_size=10),
    st.sampled_from(METHODS),
    st.floats(0, 1),
)
def test_it_never_sends_more_often(retry, names, method, drawn):
    """Whatever happens in whatever order, for a method that both may repeat, with the same random
    numbers.
    """
    if method not in retry.allowed_methods:
        assert method not in converted(retry).methods
        return
    assert sent_by_ours(retry, names, method, drawn) <= sent_by_theirs(retry, names, method, drawn)


def test_with_its_defaults_it_sends_as_often():
    for name in ["503", "502", "429 in a second", "connect", "read timeout", "reset", "disconnect"]:
        for total in (0, 1, 3):
            always = list(islice(cycle([name]), 9))
            assert sent_by_ours(Retry(total), always, "GET", 0.5) == sent_by_theirs(
                Retry(total), always, "GET", 0.5
            )


@pytest.mark.parametrize("names", [["connect"] * 20, ["503"] * 3])
@given(
    st.sampled_from([0.0, 0.1, 0.5, 3.0]), st.floats(0, 1), st.sampled_from([0.3, 5.0, 120.0]),
    st.integers(0, 2), st.floats(0, 1),
)  # fmt: skip
@settings(max_examples=25)
def test_without_a_gate_its_counts_and_waits_are_kept(names, factor, jitter, longest, made, drawn):
    """Against a dead server, and one that answers after three times 503."""
    retry = Retry(
        8, backoff_factor=factor, backoff_jitter=jitter, max_backoff_wait=longest,
        attempts_made=made,
    )  # fmt: skip
    theirs, ours = [], []
    sent = sent_by_theirs(retry, names, "GET", drawn, theirs)
    assert sent_by_ours(retry, names, "GET", drawn, ours) == sent
    assert [s for s in ours if s] == pytest.approx([s for s in theirs if s])


def test_what_means_a_kind_is_what_classify_says():
    """The table of exceptions behind it and the classification agree."""
    for error in (httpx.ConnectTimeout, httpx.ReadTimeout, httpx.WriteTimeout, httpx.ReadError, httpx.WriteError,
                  httpx.CloseError, httpx.ProxyError, httpx.TimeoutException, httpx.RemoteProtocolError):  # fmt: skip
        kind = classify(error("it failed")).kind
        others = [one for one in (httpx.TransportError,) if one is not error]
        assert kind in converted(Retry(3, retry_on_exceptions=others)).failures
        assert kind not in converted(Retry(3, retry_on_exceptions=[])).failures
