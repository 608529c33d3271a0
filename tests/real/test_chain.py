"""A → B → C: three real services, each with retries, and the last one down. 4 × 4 × 4 is 64."""

import asyncio
import threading
from contextlib import ExitStack, contextmanager
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import fastapi
import flask
import httpx
import pytest
import requests
import uvicorn

import forbear.asgi
import forbear.wsgi
from forbear import RetryPolicy
from forbear.httpx import AsyncRetryTransport, RetryTransport
from forbear.requests import mount
from forbear.testing import FakeClock

pytestmark = [pytest.mark.real, pytest.mark.slow]

ATTEMPTS = 4
POLICY = RetryPolicy(max_attempts=ATTEMPTS)


def quick(**options):
    """Waits take no time, and no gate helps: it would stop the multiplying in the end too."""
    return {"policy": POLICY, "clock": FakeClock(), "random": lambda: 0.5, "gate": None, **options}


class Quiet(WSGIRequestHandler):
    def log_message(self, *arguments):
        pass


class ThreadingServer(ThreadingMixIn, WSGIServer):
    daemon_threads = True


@contextmanager
def serving_wsgi(app):
    server = make_server("127.0.0.1", 0, app, ThreadingServer, Quiet)
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    )
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def serving_asgi(app):
    """uvicorn on an event loop of its own."""
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, log_level="error", lifespan="off", interface="asgi3"
    )
    server = uvicorn.Server(config)
    started = threading.Event()
    own_startup = server.startup

    async def startup(sockets=None):
        await own_startup(sockets)
        started.set()

    server.startup = startup
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    try:
        assert started.wait(20)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


class Last:
    """C: counts what arrives, and is down for as long as its script says."""

    def __init__(self, *answers):
        self.answers = list(answers) or [503]
        self.arrived = []

    def next(self, retry_attempt):
        self.arrived.append(retry_attempt)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def wsgi(self, environ, start_response):
        status = self.next(environ.get("HTTP_RETRY_ATTEMPT"))
        start_response(f"{status} Scripted", [("Content-Length", "0")])
        return []

    async def asgi(self, scope, receive, send):
        status = self.next(dict(scope["headers"]).get(b"retry-attempt", b"").decode() or None)
        start = {"type": "http.response.start", "headers": [(b"content-length", b"0")]}
        await send({**start, "status": status})
        await send({"type": "http.response.body", "body": b""})


def relaying_wsgi(below, **options):
    """A service that asks another one, with retries, and answers as that did, or 502."""
    app = flask.Flask(__name__)
    session = mount(requests.Session(), **quick(**options))
    session.trust_env = False

    @app.get("/")
    def relay():
        try:
            return "", session.get(below, timeout=30).status_code
        except requests.RequestException:
            return "", 502

    return app, session.close


def relaying_asgi(below, **options):
    app = fastapi.FastAPI()
    client = httpx.AsyncClient(
        transport=AsyncRetryTransport(**quick(**options)), timeout=30, trust_env=False
    )

    @app.get("/")
    async def relay():
        try:
            return fastapi.Response(status_code=(await client.get(below)).status_code)
        except httpx.TransportError:
            return fastapi.Response(status_code=502)

    return app, lambda: None


KINDS = {
    "asgi": (relaying_asgi, serving_asgi, forbear.asgi.RetryContextMiddleware),
    "wsgi": (relaying_wsgi, serving_wsgi, forbear.wsgi.RetryContextMiddleware),
}


@contextmanager
def chain(kind, last, *, announce=False, stop=True):
    """A client that asks A, which asks B, which asks C: three loops of 4 attempts each.

    Yields a function that makes a call and returns its status.
    """
    relaying, serving, around = KINDS[kind]
    with ExitStack() as opened:
        url = opened.enter_context(serving(getattr(last, kind)))
        for _ in ("B", "A"):
            app, close = relaying(url, announce_attempts=announce)
            opened.callback(close)
            url = opened.enter_context(serving(around(app, stop_outer_retries=stop)))
        transport = RetryTransport(**quick(announce_attempts=announce))
        client = httpx.Client(transport=transport, timeout=60, trust_env=False)
        opened.enter_context(client)
        yield lambda **named: client.get(url, **named).status_code


@pytest.fixture(params=list(KINDS))
def kind(request):
    return request.param


def test_with_it_one_layer_retries(kind):
    """B, which is next to C, tries 4 times; its answer and A's say that it was tried."""
    last = Last(503)
    with chain(kind, last) as get:
        assert get() == 503
        assert len(last.arrived) == 4
        get()  # and so for each call
    assert len(last.arrived) == 8


def test_by_announcements_alone(kind):
    """Where nobody marks answers, sums instead of products: 4 + 3 + 3.

    B tries 4 times for a first sending, once for each of A's and the client's 3 retries.
    """
    last = Last(503)
    with chain(kind, last, announce=True, stop=False) as get:
        assert get() == 503
    assert last.arrived == [None, "2", "3", "4", *["2", "3", "4"] * 2]


def test_resilience_is_kept(kind):
    """C is down for three requests: the layer next to C saves the client's call all the same."""
    last = Last(503, 503, 503, 200)
    with chain(kind, last, announce=True) as get:
        assert get() == 200
    assert last.arrived == [None, "2", "3", "4"]


def test_a_client_that_retries_by_itself_is_heard(kind):
    """An SDK's or Envoy's second sending: every layer sends once."""
    last = Last(503)
    with chain(kind, last, announce=True) as get:
        for headers in ({"x-stainless-retry-count": "1"}, {"x-envoy-attempt-count": "2"}):
            assert get(headers=headers, extensions={"forbear": False}) == 503
    assert last.arrived == ["2", "2"]
