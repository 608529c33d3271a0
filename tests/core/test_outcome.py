"""Outcome: what a failure says of itself to a strategy, in words that no HTTP library owns."""

from typing import Any

import pytest

from forbear import FailureKind
from forbear.core.outcome import NO_HINT, RetrySafety
from forbear.core.request import Request, origin_of
from forbear.strategies import Failure, Fault, Phase

from ..failures import answer

K = FailureKind


@pytest.mark.parametrize(("failure", "safety"), [
    (Failure(K.REFUSED, Phase.UNSENT), "yes"),
    (Failure(K.CONNECT_TIMEOUT, Phase.UNSENT), "yes"),
    (Failure(K.UNPROCESSED, Phase.UNSENT), "yes"), (Failure(K.REFUSED, Phase.SENT), "maybe"),
    (Failure(K.READ_TIMEOUT, Phase.SENT), "maybe"), (Failure(K.RESET, Phase.SENT), "maybe"),
    (answer(503), "maybe"), (answer(400), "maybe"), (Failure(K.POOL, Phase.UNSENT), "no"),
    (Failure(K.CERTIFICATE, Phase.UNSENT), "no"), (Failure(K.DECODING, Phase.ANSWERED), "no"),
    (Failure(K.PERMANENT, Phase.UNSENT), "no"), (Failure(K.UNKNOWN, Phase.SENT), "no"),
])  # fmt: skip
def test_retry_safety(failure, safety):
    """YES: nothing was sent. NO: another attempt cannot succeed. MAYBE: the request decides."""
    assert failure.retry_safety is RetrySafety(safety)


def test_is_timeout() -> None:
    for kind in sorted(K):
        timeouts = {"connect-timeout", "read-timeout", "write-timeout", "timeout", "pool"}
        assert Failure(kind, Phase.SENT).is_timeout is (kind.value in timeouts)


@pytest.mark.parametrize(("failure", "fault"), [
    (answer(400), "client"), (answer(429), "client"), (answer(499), "client"),
    (answer(500), "server"), (answer(599), "server"), (Failure(K.RESET, Phase.SENT), "other"),
    (Failure(K.REFUSED, Phase.UNSENT), "other"), (Failure(K.PERMANENT, Phase.UNSENT), "client"),
    (Failure(K.POOL, Phase.UNSENT), "client"),
])  # fmt: skip
def test_fault(failure, fault):
    """4xx and local mistakes are the client's, 5xx the server's, the network is nobody's."""
    assert failure.fault is Fault(fault)


def test_retry_after_is_the_servers_word() -> None:
    assert answer(503, 2.5, "retry-after").retry_after == 2.5
    assert answer(503, 0.0, "retry-after").retry_after == 0.0
    assert answer(503).retry_after is None
    assert Failure(K.RESET, Phase.SENT).retry_after is None
    assert Failure(K.RESET, Phase.SENT).hint == NO_HINT


def test_repr_is_one_line_of_state() -> None:
    assert repr(answer(503)) == "<Failure status 503, answered>"
    assert (
        repr(Failure(K.RESET, Phase.SENT, error="ReadError")) == "<Failure reset ReadError, sent>"
    )


# --- facts of the request ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [[("X-Tenant", "blue"), ("x-tenant", "red")], [(b"X-Tenant", b"blue"), (b"x-tenant", b"red")]],
    ids=["text", "bytes"],
)
def test_a_header_of_the_request(headers: Any) -> None:
    """The first value, whatever the case of its name."""
    facts = Request("GET", "http://a:80", headers)
    assert facts.header("x-TENANT") == "blue"
    assert facts.header("x-tenan") is None


def test_the_url_is_origin_path_and_query() -> None:
    """Without userinfo and fragment, so that it is equal where the requests are."""
    assert Request("GET", "http://a:80", target="/b?c=d").url == "http://a:80/b?c=d"
    assert Request("GET", "http://a:80").url == "http://a:80"


@pytest.mark.parametrize(("scheme", "host", "port", "origin"), [
    ("https", "API.example.com", None, "https://api.example.com:443"),
    ("http", "a", None, "http://a:80"), ("http", "a", 443, "http://a:443"),
    ("https", "::1", 8443, "https://[::1]:8443"), ("http", "[2001:DB8::A]", None,
        "http://[2001:db8::a]:80"),
    ("ws", "a", None, "ws://a:80"), ("wss", "a", None, "wss://a:443"),
    ("gopher", "a", None, "gopher://a:0"),
])  # fmt: skip
def test_an_origin_has_its_port_and_its_host_in_lower_case(scheme, host, port, origin):
    assert origin_of(scheme, host, port) == origin


def test_what_is_told_of_a_request_is_method_and_origin() -> None:
    """Never its URL or headers (P10)."""
    facts = Request("GET", "http://a:80", [("X-Tenant", "SECRET")], target="/SECRET")
    assert repr(facts) == str(facts) == "<Request GET http://a:80>"


def test_a_failure_holds_no_exception() -> None:
    """What a strategy is shown has no text, body or header in it that could be logged (P10)."""
    failure = Failure(K.RESET, Phase.SENT, error="ReadError")
    values = [getattr(failure, name) for name in type(failure).__slots__]
    assert not any(isinstance(value, BaseException) for value in values)
    assert not hasattr(failure, "__dict__")
