"""A faulting server in place of every server that the pages name, with a certificate for each."""

import logging
import re
import socket
import ssl

import aiohttp.connector
import pytest
import redis
import trustme

from forbear.testing import FaultServer, answer

HOSTS = (
    "api.example.com", "standby.example.com", "api.stripe.com", "checkout-test.adyen.com",
    "api-m.paypal.com",
)  # fmt: skip
FIRST = "reset"  # what each path does first; then it answers JSON
JSON = answer(json={})


@pytest.fixture(autouse=True)
def logging_as_before():
    """What a page sets up is gone afterwards: its handlers write to a stream that is closed."""
    loggers = [logging.getLogger(), logging.getLogger("forbear")]
    before = [(list(one.handlers), one.level, one.propagate) for one in loggers]
    yield
    for one, (handlers, level, propagate) in zip(loggers, before, strict=True):
        one.handlers[:] = handlers
        one.setLevel(level)
        one.propagate = propagate


@pytest.fixture(scope="session")
def authority():
    return trustme.CA()


@pytest.fixture
def internet(authority, monkeypatch, tmp_path_factory):
    """The server that answers for all HOSTS; each path fails once."""
    bundle = tmp_path_factory.mktemp("tls") / "ca.pem"
    authority.cert_pem.write_to_path(str(bundle))
    for variable in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
        monkeypatch.setenv(variable, str(bundle))
    for variable in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
        monkeypatch.delenv(variable.lower(), raising=False)
    # aiohttp has read the certificates that it trusts when it was imported.
    trusting = ssl.create_default_context(cafile=str(bundle))
    monkeypatch.setattr(aiohttp.connector, "_SSL_CONTEXT_VERIFIED", trusting)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*HOSTS).configure_cert(context)
    with FaultServer(tls=context) as server:
        port = int(server.url.rpartition(":")[2])
        resolve = socket.getaddrinfo

        def getaddrinfo(host, asked, *arguments, **named):
            name = host.decode() if isinstance(host, bytes) else host
            if name in HOSTS:
                return resolve("127.0.0.1", port, *arguments, **named)
            return resolve(host, asked, *arguments, **named)

        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
        # A Redis that lends eleven tokens, whatever it is told; tests/real asks a real one.
        monkeypatch.setattr(redis.Redis, "eval", lambda *arguments: [11, 1_800_000_000_000])
        yield server


@pytest.fixture
def fails_once(internet):
    """Let every path that a text names fail once; a path with a placeholder stands for 0 to 2."""

    def script(text):
        for host, path in re.findall(r"https://([\w.-]+)(/[\w./{}-]*)", text):
            if host in HOSTS:
                for number in range(3):
                    internet.script(re.sub(r"{\w+}", str(number), path), FIRST, JSON)

    return script
