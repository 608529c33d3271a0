"""Real TLS: what a broken handshake proves, and a certificate that does not hold."""

import ssl
from contextlib import contextmanager
from functools import partial

import aiohttp
import pytest
import requests
import trustme
import urllib3

from forbear import FailureKind, Fixed, Reason, RetryPolicy, record_of
from forbear.requests import mount
from forbear.strategies import Phase
from forbear.testing import FaultServer
from forbear.urllib3 import RetryPoolManager, RetryProxyManager

from ..sockets import Listening, end_by_reset, head_from

NOW = RetryPolicy(max_attempts=4, backoff=Fixed(0))
REFUSED = (requests.exceptions.SSLError, urllib3.exceptions.MaxRetryError)


@contextmanager
def calling(kind, ca, proxy=None):
    """``call(method, url)`` of requests or urllib3 that trusts the authority."""
    if kind == "mount":
        with requests.Session() as session:
            session.trust_env, session.verify = False, ca
            session.proxies = dict.fromkeys(("http", "https"), proxy) if proxy else {}
            mount(session, NOW, gate=None)
            ask = partial(session.request, timeout=30)
            yield lambda method, url: ask(method, url, data=b"x" if method == "POST" else None)
        return
    make = partial(RetryProxyManager, proxy_url=proxy) if proxy else RetryPoolManager
    with make(NOW, ca_certs=ca, timeout=30, gate=None) as manager:
        ask = manager.request
        yield lambda method, url: ask(method, url, body=b"x" if method == "POST" else None)


@pytest.fixture(params=["mount", "manager"])
def client(request, ca):
    with calling(request.param, ca) as call:
        yield call


@pytest.mark.parametrize("wrong", ["unknown authority", "another host"])
def test_a_certificate_that_does_not_hold_is_asked_for_once(authority, context_of, client, wrong):
    unknown = trustme.CA(key_type=trustme.KeyType.ECDSA)
    names = {"another host": ("elsewhere.example", authority)}
    context = context_of(*names.get(wrong, ("127.0.0.1", unknown)))
    with FaultServer(tls=context) as server:
        server.script("/thing", 200)
        for number, method in enumerate(("GET", "POST"), start=1):
            with pytest.raises(REFUSED) as caught:
                client(method, server.url + "/thing")
            assert server.connections == number
            record = record_of(caught.value)
            assert record.reason is Reason.PERMANENT_ERROR
            found = [(each.failure, each.phase) for each in record.attempts]
            assert found == [(FailureKind.CERTIFICATE, Phase.UNSENT)]
        assert server.requests() == []


@pytest.mark.parametrize(("method", "connections"), [("GET", 4), ("POST", 1)])
def test_a_server_that_refuses_the_client_may_have_read(
    authority, context_of, client, method, connections
):
    """TLS 1.3 asks for the certificate after the client began to send: a POST is sent once."""
    context = context_of()
    context.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(context)
    with FaultServer(tls=context) as server:
        server.script("/thing", 200)
        with pytest.raises((requests.ConnectionError, urllib3.exceptions.HTTPError)) as caught:
            client(method, server.url + "/thing")
        assert server.connections == connections
        assert server.requests() == []
    assert {each.phase for each in record_of(caught.value).attempts} == {Phase.SENT}


class Breaking(Listening):
    """Breaks its first handshakes before its ServerHello, then answers every request."""

    def __init__(self, context, *ways):
        self._context, self._ways, self.requests = context, ways, []
        super().__init__()
        self.url = self.url.replace("http:", "https:")

    def serve(self, sock, number):
        if number >= len(self._ways):
            with self._context.wrap_socket(sock, server_side=True) as sock:
                while head := head_from(sock):
                    self.requests.append(head)
                    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            return
        sock.recv(65_536)  # what is left of it would make an end a reset
        if self._ways[number] == "stall":
            sock.recv(1)
        elif self._ways[number] == "reset":
            end_by_reset(sock)


@pytest.mark.smoke
@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
async def test_a_handshake_that_breaks_has_sent_nothing(adapter, context_of):
    policy = RetryPolicy(max_attempts=8, backoff=Fixed(0), attempt_timeout=0.8)
    settings = {"cert_reqs": "CERT_NONE"} if adapter.name == "urllib3" else {}
    unverified = {"requests": {"verify": False}, "aiohttp": {"ssl": False}}
    request = {"content": b"x", **unverified.get(adapter.name, {})}
    if adapter.name == "aiohttp":  # where attempt_timeout does not tell connecting from the rest
        settings = {"timeout": aiohttp.ClientTimeout(sock_connect=0.4)}
    with Breaking(context_of(), "end", "reset", "stall", "end") as server:
        options = {"policy": policy, "settings": settings, "request": request}
        response = await adapter.once(None, "POST", server.url + "/thing", **options)
        assert (adapter.status(response), len(server.requests)) == (200, 1)
    attempts = record_of(getattr(response, "response", response)).attempts
    assert {each.phase for each in attempts[:-1]} == {Phase.UNSENT}
    kinds = [each.failure for each in attempts]
    assert kinds[2] is FailureKind.CONNECT_TIMEOUT
    assert set(kinds[:-1]) <= {FailureKind.TLS, FailureKind.REFUSED, FailureKind.CONNECT_TIMEOUT}
