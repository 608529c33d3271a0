"""Through a proxy: until the tunnel is up the origin has seen nothing, so a 5xx or a reset is
retried for any method, and a 4xx never.
"""

import select
import socket

import pytest
import requests
import urllib3

from forbear import FailureKind, Fixed, Origins, Reason, RetryPolicy, record_of
from forbear.strategies import Phase
from forbear.testing import FaultServer
from forbear.urllib3 import RetryProxyManager

from ..sockets import Listening, end_by_reset, head_from
from .test_tls import calling

NOW = RetryPolicy(max_attempts=4, backoff=Fixed(0))
ESTABLISHED = "200 Connection established"


class Proxy(Listening):
    """Tunnels and answers, but for ``steps``: a status line, "reset" or "reset-tunnel"."""

    def __init__(self):
        self.steps, self.seen, self.hosts = [], [], []
        super().__init__()

    def serve(self, peer, number):
        while self._answer(peer):
            pass

    def _answer(self, peer):
        """Is there more to come on this connection?"""
        head, _, body = head_from(peer).partition(b"\r\n\r\n")
        if not head:
            return False
        request, *lines = head.decode().split("\r\n")
        fields = dict(line.lower().split(": ", 1) for line in lines)
        method, target, _ = request.split(" ")
        left = int(fields.get("content-length", 0)) - len(body)
        while left:
            left -= len(peer.recv(left))
        self.seen.append((method, target))
        self.hosts.append(fields.get("host"))
        step = self.steps.pop(0) if self.steps else None
        if step == "reset":
            end_by_reset(peer)
            return False
        if method != "CONNECT":
            peer.sendall(f"HTTP/1.1 {step or '200 OK'}\r\nContent-Length: 2\r\n\r\nok".encode())
            return True
        refusal = step not in (None, "reset-tunnel")
        peer.sendall(f"HTTP/1.1 {step if refusal else ESTABLISHED}\r\n\r\n".encode())
        if step == "reset-tunnel":
            peer.recv(1)  # the handshake has begun
            end_by_reset(peer)
        elif not refusal:
            self._tunnel(peer, target)
        return False

    def _tunnel(self, peer, target):
        host, _, port = target.rpartition(":")
        with socket.create_connection((host, int(port))) as origin:
            self.sockets.append(origin)
            other = {peer: origin, origin: peer}
            while True:
                for source in select.select([peer, origin], [], [])[0]:
                    read = source.recv(65_536)
                    if not read:
                        return
                    other[source].sendall(read)


@pytest.fixture
def proxy():
    with Proxy() as made:
        yield made


@pytest.fixture
def origin(context_of):
    """An https server that only the proxy connects to."""
    with FaultServer(tls=context_of()) as running:
        yield running


@pytest.fixture(params=["mount", "manager"])
def call(request, proxy, ca):
    """``call(method, url)`` by the proxy: status and response, or "error" and the library's."""
    with calling(request.param, ca, proxy.url) as ask:

        def call(method, url):
            try:
                response = ask(method, url)
            except (requests.ConnectionError, urllib3.exceptions.HTTPError) as error:
                return "error", error
            return getattr(response, "status_code", None) or response.status, response

        yield call


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_proxy_that_cannot_now_is_asked_again_for_any_method(proxy, origin, call, method):
    origin.script("/thing", 200)
    proxy.steps = ["503 Busy", "500 Oops"]
    found, response = call(method, origin.url + "/thing")
    assert found == 200
    attempts = record_of(response).attempts
    unsent = (FailureKind.PROXY, Phase.UNSENT)
    assert [(each.failure, each.phase) for each in attempts[:-1]] == [unsent] * 2
    assert [name for name, _ in proxy.seen] == ["CONNECT"] * 3
    assert origin.executed("/thing") == len(origin.requests()) == 1


@pytest.mark.parametrize("status", ["407 Proxy Authentication Required", "403 Forbidden"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_proxy_that_does_not_want_to_is_asked_once(proxy, origin, call, method, status):
    origin.script("/thing", 200)
    proxy.steps = [status] * 4
    found, error = call(method, origin.url + "/thing")
    assert (found, record_of(error).reason) == ("error", Reason.PERMANENT_ERROR)
    assert len(proxy.seen) == len(record_of(error).attempts) == 1
    assert origin.connections == 0


@pytest.mark.parametrize("step", ["reset", "reset-tunnel"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_reset_before_the_tunnel_is_secure_sent_nothing(proxy, origin, call, step, method):
    origin.script("/thing", 200)
    proxy.steps = [step]
    found, thing = call(method, origin.url + "/thing")
    assert found == 200
    assert record_of(thing).attempts[0].phase is Phase.UNSENT
    assert len(proxy.seen) == 2
    assert origin.executed("/thing") == len(origin.requests()) == 1


@pytest.mark.parametrize(("method", "sent"), [("GET", 2), ("POST", 1)])
def test_a_forwarding_proxy_that_resets_had_read_the_request(proxy, call, method, sent):
    proxy.steps = ["reset"]
    found, _ = call(method, "http://api.example.com/thing")
    assert found == (200 if sent == 2 else "error")
    assert len(proxy.seen) == sent


@pytest.mark.parametrize("own", [None, "api.example.com"], ids=["as the URL", "of the caller"])
def test_another_server_behind_a_proxy_is_asked_by_its_name(proxy, origin, ca, own):
    """urllib3 writes Host; after a failover it is the new URL's (RFC 9112 section 3.2)."""
    one, two = "http://one.example:8080", "http://two.example"
    proxy.steps = ["503 Busy", "503 Busy"]
    origin.script("/thing", 200)
    headers = {"Host": own} if own else {}
    origins = Origins([one, two, origin.url])
    options = {"proxy_url": proxy.url, "origins": origins, "ca_certs": ca, "timeout": 30}
    with RetryProxyManager(NOW, **options) as manager:
        assert manager.request("GET", one + "/thing", headers=headers).status == 200
    through = origin.url.removeprefix("https://")
    assert proxy.seen == [("GET", one + "/thing"), ("GET", two + "/thing"), ("CONNECT", through)]
    assert proxy.hosts[:2] == [own or "one.example:8080", own or "two.example"]
    (arrived,) = origin.requests()
    assert dict(arrived.headers)["Host"] == (own or through)
