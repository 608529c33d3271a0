"""The client that docs/architecture.md begins with: engine and add-ons work with it as they are."""

import socket

import pytest

import forbear
from examples.smallest import CircuitOpenError, Client, DeadlineExceeded
from forbear import Reason, RetryPolicy, record_of

POLICY = RetryPolicy(backoff=forbear.Fixed(1.0), max_attempts=3, hint_spread=0.0)


@pytest.fixture
def client(quick):
    """Makes clients in fake time."""
    return lambda **options: Client(POLICY, **{"gate": None, **quick, **options})


@pytest.mark.parametrize(("method", "headers", "steps", "attempts", "waits"), [
    ("GET", {}, [200], 1, []),
    ("GET", {}, ["503;body=40", 200], 2, [1.0]),
    ("GET", {}, ["429;retry-after=7", "reset", 200], 3, [7.0, 1.0]),
    ("POST", {}, [503], 1, []),
    ("POST", {"Idempotency-Key": '"8e03978e"'}, [503, 200], 2, [1.0]),
    ("GET", {}, [503, 503, 503], 3, [1.0, 1.0]),
])  # fmt: skip
def test_retries(client, server, quick, method, headers, steps, attempts, waits):
    server.script("/a", *steps)
    response = client().request(method, server.url + "/a?b", headers, b"x" * (method == "POST"))
    assert (response.status, len(server.requests("/a"))) == (steps[-1], attempts)
    assert len(record_of(response).attempts) == attempts
    assert quick["clock"].sleeps == waits
    response.read()


def test_errors(client, quick):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/"
        with pytest.raises(ConnectionRefusedError) as caught:
            client().request("POST", url)
        assert record_of(caught.value).reason is Reason.ATTEMPTS_EXHAUSTED
        broken = client(breaker=forbear.CircuitBreaker(consecutive_failures=1))
        with pytest.raises(ConnectionRefusedError):
            broken.request("GET", url)
        with pytest.raises(CircuitOpenError):
            broken.request("GET", url)
        with forbear.deadline(0.0, clock=quick["clock"]), pytest.raises(DeadlineExceeded):
            client().request("GET", url)


def test_a_download_is_resumed(client, server):
    server.script("/big", "reset-body:100000;body=200000;etag=a", "200;body=200000;etag=a")
    response = client().request("GET", server.url + "/big")
    assert len(response.read()) == 200_000
    assert record_of(response).resumed == (100_000,)


def test_add_ons(client, server):
    """A hook that reads the body, a key, a header of ours, a slot, and a call that is held."""
    server.script("/all", "200;body=5", 503, 503, 200)
    looked = client(
        gate=forbear.RetryGate(),
        retry_if=lambda response: response.read() == b"x" or None,
        idempotency=forbear.IdempotencyKeys(),
        contact="ops@example.com",
        concurrency=forbear.ConcurrencyLimit(),
        budget=forbear.RetryBudget(),
    )
    for method, status in (("GET", 200), ("POST", 200)):
        response = looked.request(method, server.url + "/all")
        assert response.status == status
        response.read()
    arrived = server.requests("/all")
    (key,) = {dict(one.headers)["Idempotency-Key"] for one in arrived[1:]}
    assert key
    assert {dict(one.headers)["From"] for one in arrived} == {"ops@example.com"}
