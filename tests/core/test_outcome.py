"""Outcome: what a failure says of itself to a strategy, in words that no HTTP library owns."""

import pytest

from forbear import FailureKind
from forbear.core.outcome import NO_HINT, RetrySafety
from forbear.core.request import Request, origin_of
from forbear.strategies import Failure, Fault, Phase

from ..failures import answer

K = FailureKind


UNSENT_AND_SENT = [
    (K.REFUSED, "yes", "maybe"), (K.CONNECT_TIMEOUT, "yes", "maybe"),
    (K.UNPROCESSED, "yes", "maybe"), (K.READ_TIMEOUT, "yes", "maybe"), (K.RESET, "yes", "maybe"),
    (K.STATUS, "yes", "maybe"),
    *((kind, "no", "no") for kind in (K.POOL, K.CERTIFICATE, K.DECODING, K.PERMANENT, K.UNKNOWN)),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "unsent", "sent"), UNSENT_AND_SENT)
def test_retry_safety(kind, unsent, sent):
    """YES: nothing was sent. NO: another attempt cannot succeed. MAYBE: the request decides."""
    assert Failure(kind, Phase.UNSENT).retry_safety is RetrySafety(unsent)
    for phase in (Phase.SENT, Phase.ANSWERED):
        assert Failure(kind, phase).retry_safety is RetrySafety(sent)


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


def test_a_failure_holds_no_exception() -> None:
    """The server's word and a line of state; no exception, body or header to be logged (P10)."""
    failure = Failure(K.RESET, Phase.SENT, error="ReadError")
    assert [answer(503, delay).retry_after for delay in (2.5, 0.0, None)] == [2.5, 0.0, None]
    assert (failure.retry_after, failure.hint) == (None, NO_HINT)
    assert not any(isinstance(value, BaseException) for value in failure)


@pytest.mark.parametrize("headers", [
    [("X-Tenant", "blue"), ("x-tenant", "red")], [(b"X-Tenant", b"blue"), (b"x-tenant", b"red")],
], ids=["text", "bytes"])  # fmt: skip
def test_a_header_of_the_request(headers):
    """The first value, whatever the case of its name."""
    facts = Request("GET", "http://a:80", headers)
    assert facts.header("x-TENANT") == "blue"
    assert facts.header("x-tenan") is None


@pytest.mark.parametrize(("scheme", "host", "port", "origin"), [
    ("https", "API.example.com", None, "https://api.example.com:443"),
    ("http", "a", None, "http://a:80"), ("http", "a", 443, "http://a:443"),
    ("https", "::1", 8443, "https://[::1]:8443"),
    ("http", "[2001:DB8::A]", None, "http://[2001:db8::a]:80"),
    ("ws", "a", None, "ws://a:80"), ("wss", "a", None, "wss://a:443"),
    ("gopher", "a", None, "gopher://a:0"),
])  # fmt: skip
def test_an_origin_has_its_port_and_its_host_in_lower_case(scheme, host, port, origin):
    assert origin_of(scheme, host, port) == origin


def test_what_is_told_of_a_request_is_method_and_origin() -> None:
    """Never its headers, and its URL only to who asks: origin, path and query. (P10)"""
    facts = Request("GET", "http://a:80", [("X-Tenant", "SECRET")], target="/b?c=d")
    assert "SECRET" not in repr(facts)
    assert "/b" not in str(facts)
    assert facts.url == "http://a:80/b?c=d"
    assert Request("GET", "http://a:80").url == "http://a:80"
