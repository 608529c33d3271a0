"""Transports of others: httpx-aiohttp, ASGI and WSGI applications, hishel's cache both ways.

httpx-aiohttp reports a request that the server had read as ConnectTimeout, and a refused connection
with a cause that nobody can vouch for. So its errors prove nothing.
"""

import anyio
import httpx2
import pytest

import forbear
import forbear.httpx
from forbear.httpx2 import AsyncRetryTransport
from forbear.testing import FakeClock

from ..lanes import lane_of
from .conftest import free_port, package

pytestmark = pytest.mark.real
PAYLOAD = b"0123456789" * 20_000


@pytest.fixture(params=["httpx", "httpx2"])
def aiohttp(request):
    """Sends one request after the other over aiohttp; returns responses or exceptions."""
    lane = lane_of(f"{request.param}-asyncio")
    foreign = package("httpx_aiohttp" + ".httpx2" * (request.param == "httpx2"))

    def send(*requests, **options):
        return lane.calls(*requests, inner=foreign.AiohttpTransport(verify=False), **options)

    send.library, send.ours = lane.library, lane.forbear
    return send


def test_a_post_that_the_server_read_and_dropped_is_not_sent_again(aiohttp, server):
    """aiohttp's "server disconnected" arrives as ConnectTimeout, which proves nothing here."""
    server.script("/orders", "close", 200)
    (error,) = aiohttp(("POST", server.url + "/orders", {"content": PAYLOAD}))
    assert type(error) is aiohttp.library.ConnectTimeout  # as the bare transport has it
    assert (len(server.requests()), server.executed()) == (1, 1)
    record = forbear.record_of(error)
    assert (record.reason, record.attempts[0].phase) == ("method-not-replayable", "sent")


def test_a_refused_connection_is_no_proof_here(aiohttp):
    """The cause is aiohttp's own class: POST comes back after one attempt, GET after five."""
    url = f"http://127.0.0.1:{free_port()}/"
    posted, got = aiohttp(("POST", url, {"content": b"x"}), ("GET", url))
    assert isinstance(posted, (aiohttp.library.ConnectError, aiohttp.library.ConnectTimeout))
    assert type(got) is type(posted)
    posted, got = forbear.record_of(posted), forbear.record_of(got)
    assert (posted.attempts[0].phase, posted.reason) == ("sent", "method-not-replayable")
    assert (len(got.attempts), got.reason) == (5, "attempts-exhausted")


def test_a_deadline_reaches_aiohttp(aiohttp, server):
    """A server that never answers: DeadlineExceeded of the right family, at the deadline."""
    server.script("/slow", "hang")
    for _ in range(100):  # a busy machine is quick now and then
        with forbear.deadline(0.15):
            (error,) = aiohttp(("GET", server.url + "/slow"), clock=None)
        assert isinstance(error, aiohttp.ours.DeadlineExceeded)
        assert isinstance(error, aiohttp.library.TimeoutException)
        if forbear.record_of(error).elapsed < 0.25:
            return
    raise AssertionError("it always took longer than the deadline")


@pytest.mark.lanes("httpx-sync", "httpx-asyncio", "httpx2-trio")
def test_an_asgi_application_is_an_inner_transport(adapter):
    """Tests of one's own service: the application fails twice, and is asked a third time."""
    seen = []

    def wsgi(environ, start_response):
        seen.append(environ["wsgi.input"].read())
        start_response("503 Busy" if len(seen) < 3 else "200 OK", [("Content-Type", "text/plain")])
        return [b"done"]

    async def asgi(scope, receive, send):
        body = b""
        while (message := await receive()).get("more_body"):
            body += message["body"]
        seen.append(body + message["body"])
        status = 503 if len(seen) < 3 else 200
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    library = adapter.library
    inner = library.ASGITransport(asgi) if adapter.is_async else library.WSGITransport(wsgi)
    (response,) = adapter.calls(("PUT", "http://service/", {"content": b"body"}), inner=inner)
    assert (response.status_code, response.text) == (200, "done")
    assert seen == [b"body"] * 3


CACHED = "200;header=Cache-Control:max-age=60;header=ETag:%22v1%22"


@pytest.mark.parametrize("order", ["cache above", "cache below"])
def test_a_cache_and_retries_do_both_their_work(order, server):
    """503, 200: the first call is retried, the second comes from the cache; two requests in all."""
    server.script("/page", 503, CACHED)
    hishel, adapter = package("hishel"), package("hishel.httpx2")

    async def run():
        import anysqlite

        storage = hishel.AsyncSqliteStorage(connection=await anysqlite.connect(":memory:"))
        sending, named = httpx2.AsyncHTTPTransport(verify=False), {"clock": FakeClock()}
        if order == "cache above":
            below = AsyncRetryTransport(sending, **named)
            transport = adapter.AsyncCacheTransport(below, storage)
        else:
            below = adapter.AsyncCacheTransport(sending, storage)
            transport = AsyncRetryTransport(below, **named)
        async with httpx2.AsyncClient(transport=transport, trust_env=False) as client:
            return [await client.get(f"{server.url}/page") for _ in range(2)]

    first, second = anyio.run(run)
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.text == second.text
    assert len(server.requests()) == 2
    if order == "cache below":
        assert forbear.record_of(first).reasons == ("503",)
