"""Inner transports that are not the library's own: httpx-aiohttp, ASGI and WSGI applications.

httpx-aiohttp reports a request that the server had read as ConnectTimeout, and a refused connection
with a cause that nobody can vouch for. So its errors prove nothing.
"""

from __future__ import annotations

import hashlib

import anyio
import httpx
import httpx2
import pytest

import forbear
import forbear.httpx
import forbear.httpx2
from forbear.testing import FakeClock

pytestmark = pytest.mark.real
FAMILIES = [
    pytest.param(httpx, forbear.httpx, "httpx_aiohttp", id="httpx"),
    pytest.param(httpx2, forbear.httpx2, "httpx_aiohttp.httpx2", id="httpx2"),
]
PAYLOAD = b"0123456789" * 20_000


@pytest.fixture(
    params=[family.values for family in FAMILIES], ids=[family.id for family in FAMILIES]
)
def aiohttp(request, need_package):
    """Sends one request after the other over aiohttp; returns responses or exceptions."""
    library, ours, module = request.param
    need_package("httpx_aiohttp")
    foreign = need_package(module)

    def send(*requests, **options):
        async def run():
            inner = foreign.AiohttpTransport(verify=False)
            transport = ours.AsyncRetryTransport(
                inner, **{"clock": FakeClock(), "random": lambda: 0.5, "gate": None, **options}
            )
            outcomes = []
            async with library.AsyncClient(
                transport=transport, trust_env=False, timeout=2
            ) as client:
                for method, url, *keywords in requests:
                    try:
                        outcomes.append(await client.request(method, url, **dict(*keywords)))
                    except Exception as error:
                        outcomes.append(error)
            return outcomes

        return anyio.run(run)

    send.library = library

    send.ours = ours
    return send


def test_a_post_that_the_server_read_and_dropped_is_not_sent_again(aiohttp, server):
    """aiohttp's "server disconnected" arrives as ConnectTimeout, which proves nothing here."""
    server.script("/orders", "close", 200)
    (error,) = aiohttp(("POST", server.url + "/orders", {"content": PAYLOAD}))
    assert type(error) is aiohttp.library.ConnectTimeout  # as the bare transport has it
    assert (len(server.requests()), server.executed()) == (1, 1)
    record = forbear.record_of(error)
    assert (record.reason, record.attempts[0].phase) == ("method-not-replayable", "sent")


def test_a_refused_connection_is_no_proof_here(aiohttp, free_port):
    """The cause is aiohttp's own class: POST comes back after one attempt, GET after four."""
    url = f"http://127.0.0.1:{free_port()}/"
    posted, got = aiohttp(("POST", url, {"content": b"x"}), ("GET", url))
    assert isinstance(posted, (aiohttp.library.ConnectError, aiohttp.library.ConnectTimeout))
    assert type(got) is type(posted)
    assert forbear.record_of(posted).attempts[0].phase == "sent"
    assert forbear.record_of(posted).reason == "method-not-replayable"
    assert forbear.record_of(got).reason == "attempts-exhausted"
    assert len(forbear.record_of(got).attempts) == 4


def test_answers_are_retried_and_their_connection_used_again(aiohttp, server):
    """503, 429 with a hint, 200: the same bytes three times over one connection."""
    clock = FakeClock()
    server.script("/orders", 503, "429;retry-after=4", 200)
    (response,) = aiohttp(("PUT", server.url + "/orders", {"content": PAYLOAD}), clock=clock)
    assert response.status_code == 200
    assert [arrival.sha256 for arrival in server.requests()] == [
        hashlib.sha256(PAYLOAD).hexdigest()
    ] * 3
    assert {arrival.connection for arrival in server.requests()} == {1}
    # The hint, and half of the quarter that spreads a fleet.
    assert clock.sleeps[1] == pytest.approx(4.5)


def test_a_deadline_reaches_aiohttp(aiohttp, server):
    """A server that never answers: DeadlineExceeded of the right family, at the deadline."""
    server.script("/slow", "hang")
    with forbear.deadline(0.15):
        (error,) = aiohttp(("GET", server.url + "/slow"), clock=None)
    assert isinstance(error, aiohttp.ours.DeadlineExceeded)
    assert isinstance(error, aiohttp.library.TimeoutException)
    assert forbear.record_of(error).elapsed < 0.25


def test_an_asgi_application_is_an_inner_transport(lane):
    """Tests of one's own service: the application fails twice, and is asked a third time."""
    if lane.backend is None:
        seen = []

        def wsgi(environ, start_response):
            seen.append(environ["wsgi.input"].read())
            start_response(
                "503 Busy" if len(seen) < 3 else "200 OK", [("Content-Type", "text/plain")]
            )
            return [b"done"]

        inner = lane.library.WSGITransport(wsgi)
    else:
        seen = []

        async def asgi(scope, receive, send):
            body = b""
            while (message := await receive()).get("more_body"):
                body += message["body"]
            seen.append(body + message["body"])
            status = 503 if len(seen) < 3 else 200
            await send({"type": "http.response.start", "status": status, "headers": []})
            await send({"type": "http.response.body", "body": b"done"})

        inner = lane.library.ASGITransport(asgi)
    (response,) = lane.calls(("PUT", "http://service/", {"content": b"body"}), inner=inner)
    assert (response.status_code, response.text) == (200, "done")
    assert seen == [b"body"] * 3
