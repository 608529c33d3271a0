"""A → B → C: real services of FastAPI on uvicorn, each with retries, and the last one down.

Each layer is reasonable, and without the middleware C gets 4 × 4 × 4 requests for one.
"""

import socket
import threading
from contextlib import ExitStack, contextmanager

import fastapi
import httpx
import pytest
import uvicorn

from forbear import RetryPolicy
from forbear.asgi import RetryContextMiddleware
from forbear.httpx import wrap
from forbear.testing import FakeClock

pytestmark = [pytest.mark.real, pytest.mark.slow]


@contextmanager
def serving(app):
    """uvicorn on an event loop of its own."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def patient(client, announce):
    """Waits take no time, and no gate helps: it would stop the multiplying in the end too."""
    quick = {"clock": FakeClock(), "random": lambda: 0.5, "gate": None}
    return wrap(client, RetryPolicy(max_attempts=4), announce_attempts=announce, **quick)


def relaying(below, announce):
    app = fastapi.FastAPI()
    client = patient(httpx.AsyncClient(timeout=30, trust_env=False), announce)

    @app.get("/")
    async def relay():
        try:
            return fastapi.Response(status_code=(await client.get(below)).status_code)
        except httpx.TransportError:
            return fastapi.Response(status_code=502)

    return app


@contextmanager
def chain(last, *, announce=False, stop=True):
    """Yield a function that makes a call through three loops of 4 attempts; it returns the status."""
    with ExitStack() as opened:
        url = last.url
        for _ in ("B", "A"):
            app = RetryContextMiddleware(relaying(url, announce), stop_outer_retries=stop)
            url = opened.enter_context(serving(app))
        client = opened.enter_context(patient(httpx.Client(timeout=60, trust_env=False), announce))
        yield lambda **named: client.get(url, **named).status_code


def arrived(server):
    """What each request said of its own number."""
    found = [{name.lower(): value for name, value in one.headers} for one in server.requests()]
    return [headers.get("retry-attempt") for headers in found]


def test_with_it_one_layer_retries(server):
    """B, which is next to C, tries 4 times; its answer and A's say that it was tried."""
    server.script("/", 503)
    with chain(server) as get:
        for requests in (4, 8):  # and so for each call
            assert get() == 503
            assert len(server.requests()) == requests


def test_by_announcements_alone(server):
    """Where nobody marks answers, sums: B tries 4 times, once for each retry of A's and the client's."""
    server.script("/", 503)
    with chain(server, announce=True, stop=False) as get:
        assert get() == 503
    assert arrived(server) == [None, "2", "3", "4", *["2", "3", "4"] * 2]


def test_resilience_is_kept(server):
    """C is down for three requests: the layer next to C saves the client's call all the same."""
    server.script("/", 503, 503, 503, 200)
    with chain(server, announce=True) as get:
        assert get() == 200
    assert arrived(server) == [None, "2", "3", "4"]


def test_a_client_that_retries_by_itself_is_heard(server):
    """An SDK's or Envoy's second sending: every layer sends once."""
    server.script("/", 503)
    with chain(server, announce=True) as get:
        for headers in ({"x-stainless-retry-count": "1"}, {"x-envoy-attempt-count": "2"}):
            assert get(headers=headers, extensions={"forbear": False}) == 503
    assert arrived(server) == ["2", "2"]
