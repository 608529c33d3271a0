"""Small bodies are read inside the loop: a broken one is a failure like any other."""

import gc
import select
import time
from contextlib import suppress

import anyio
import httpcore
import pytest
from httpcore._backends.sync import SyncStream

import forbear
from forbear import FailureKind, Fixed, RetryPolicy
from forbear.strategies import Phase
from forbear.testing import FaultServer
from forbear.testing.steps import parse_step

from .foreign import Foreign, stream_of

pytestmark = [pytest.mark.anyio, pytest.mark.adapters("httpx-family")]

URL = "http://a.example.com/thing"
POLICY = RetryPolicy(max_attempts=3, backoff=Fixed(1.0))
WHOLE = parse_step("200;body=60001").content
JSON = "chunked=1;header=Content-Type:application/json"


@pytest.fixture
def options(quick):
    return {**quick, "policy": POLICY, "budget": None}


@pytest.mark.parametrize("fault", ["cut:0", "cut:30001", "cut:60000", "reset-body:30001"])
async def test_a_broken_small_body_is_asked_for_again(adapter, server, options, fault):
    """As a whole: it was not handed over, so nobody knows that it began."""
    server.script("/thing", f"{fault};body=60001", "200;body=60001")
    async with adapter.client(**options) as client:
        response = await adapter.call(client, "GET", server.url + "/thing")
        assert response.content == WHOLE
        assert response.num_bytes_downloaded == 60_001
        assert adapter.is_idle(client)
    record = forbear.record_of(response)
    assert [(attempt.status, attempt.phase) for attempt in record.attempts] == [
        (None, Phase.ANSWERED),
        (200, None),
    ]
    assert record.attempts[0].failure in (FailureKind.PROTOCOL, FailureKind.RESET)
    assert [dict(each.headers).get("Range") for each in server.requests("/thing")] == [None, None]


async def test_of_whatever_status_that_is_accepted(adapter, options):
    """A truncated 404 is no answer either."""
    library, length = adapter.library, {"Content-Length": "6"}
    for count, status in enumerate((200, 404, 302, 501), start=1):
        broken = Once(library, length, [b"abc"], library.ReadError("reset"), status=status)
        whole = Once(library, length, [b"abc", b"def"], status=status)
        async with adapter.client(in_turn(broken, whole), **options) as client:
            response = await adapter.call(client, "GET", URL)
        assert (response.status_code, response.content) == (status, b"abcdef")
        assert options["clock"].sleeps == [1.0] * count
        assert broken.stream.closed
        assert whole.stream.closed == 1


async def test_a_failing_answer_keeps_its_hint_though_its_body_is_broken(adapter, options):
    """P3: never sooner than the server asked, whatever becomes of the body."""
    library, headers = adapter.library, {"Content-Length": "6", "Retry-After": "7"}
    broken = Once(library, headers, [b"abc"], library.ReadError("reset"), status=503)
    inner = in_turn(broken, Once(library, {}, [b"abc"]))
    async with adapter.client(inner, **options) as client:
        response = await adapter.call(client, "GET", URL)
    assert response.content == b"abc"
    # 7 s, and half of a quarter of that on top.
    assert options["clock"].sleeps == [pytest.approx(7.875)]


CUT = "cut:30001;body=60001"
FEEDS = ["application/x-ndjson", "application/jsonl", "application/json-seq"]
FEEDS += ["application/stream+json", "multipart/mixed", "text/event-stream"]
NOT_AHEAD = {
    "off": (CUT, {"prefetch": 0}),
    "longer": (CUT, {"prefetch": 60_000}),
    "length-unknown": (f"{CUT};chunked=1", {}),
    **{kind: (f"{CUT};chunked=1;header=Content-Type:{kind}", {}) for kind in FEEDS},
    "json-off": (f"{CUT};{JSON}", {"prefetch": 0}),
    "json-longer": (f"{CUT};{JSON}", {"prefetch": 30_000}),
    "json-at-any-time": (f"{CUT};{JSON}", {"settings": {"timeout": None}}),
    # In chunks whatever else stands there (RFC 9112 section 6.3).
    "length-void": (f"{CUT};chunked=1;header=Content-Length:60001", {}),
    "events": (f"{CUT};header=Content-Type:text/event-stream", {}),
    "parts": (f"{CUT};header=Content-Type:Multipart/X-Mixed-Replace%3B boundary=x", {}),
}


async def test_what_is_not_read_ahead(adapter, server, options):
    for number, (name, (script, more)) in enumerate(NOT_AHEAD.items()):
        server.script(f"/{number}", script, "200;body=60001")
        async with adapter.client(**options, **more) as client:
            response = await adapter.open(client, "GET", f"{server.url}/{number}")
            with pytest.raises(adapter.library.RemoteProtocolError):
                await adapter.read(response)
            await adapter.close(response)
        assert len(server.requests(f"/{number}")) == 1, name


@pytest.mark.smoke
async def test_json_of_unknown_length_is_continued_by_a_copy_that_begins_alike(
    adapter, server, options
):
    """The usual answer behind nginx with gzip: its head is handed over at once."""
    kinds = ("application/json", "Application/JSON%3B charset=utf-8", "application/problem+json")
    for kind in kinds:
        path, kind = f"/{kinds.index(kind)}", f"chunked=1;header=Content-Type:{kind}"
        server.script(path, f"{CUT};{kind}", f"200;body=60001;{kind}")
        async with adapter.client(**options) as client:
            response = await adapter.open(client, "GET", server.url + path)
            assert len(server.requests(path)) == 1
            assert await adapter.read(response) == WHOLE
            await adapter.close(response)
            assert adapter.is_idle(client)
        record = forbear.record_of(response)
        assert [(each.status, each.phase) for each in record.attempts] == [
            (None, Phase.ANSWERED),
            (200, None),
        ]
        assert record.resumed == (30_001,)


async def test_a_small_body_that_comes_slowly_is_read_whole(adapter, server, elapsed):
    """16 pieces, one every 45 ms: they come with the head, and the connection is free by then."""
    server.script("/thing", "200;body=1001;drip=45")
    async with adapter.client(policy=POLICY) as client:
        elapsed()
        response = await adapter.open(client, "GET", server.url + "/thing")
        assert elapsed() > 0.6
        assert adapter.is_idle(client)
        assert await adapter.read(response) == parse_step("200;body=1001").content
        await adapter.close(response)
    assert len(server.requests("/thing")) == 1


@pytest.mark.lanes("httpx-sync")
async def test_a_socket_that_times_out_a_little_early_breaks_no_body(adapter, server, monkeypatch):
    """As those of PyPy do: what retry_if has seen too little of is handed over live."""

    def read(stream, max_bytes, timeout=None):
        ends_at = time.monotonic() + timeout - 0.0005
        while not select.select([stream._sock], [], [], 0)[0]:
            if time.monotonic() >= ends_at:
                raise httpcore.ReadTimeout
        return stream._sock.recv(max_bytes)

    monkeypatch.setattr(SyncStream, "read", read)
    server.script("/thing", f"200;body=1001;drip=400;{JSON}")
    async with adapter.client(policy=POLICY, retry_if=look) as client:
        response = await adapter.open(client, "GET", server.url + "/thing")
        assert response.status_code == 200
        await adapter.close(response)
    assert len(server.requests("/thing")) == 1


def look(response):
    """Reads the body, and has no say."""
    response.read()


async def alook(response):
    await response.aread()


@pytest.mark.smoke
async def test_what_came_with_its_head_stays_in_the_librarys_buffer(adapter, server):
    """It cannot break any more. Who leaves it unread gets what the bare client does."""
    server.script("/thing", "200;body=1001", "404;body=1001", "200;body=1001")
    async with adapter.client() as client:
        for _ in range(2):
            response = await adapter.open(client, "GET", server.url + "/thing")
            kind = type(response.stream._stream)
            assert kind.__module__ == f"{adapter.library.__name__}._transports.default"
            assert len(forbear.record_of(response).attempts) == 1
            assert await adapter.read(response) == parse_step("200;body=1001").content
            assert adapter.is_idle(client)
        await adapter.close(await adapter.open(client, "GET", server.url + "/thing"))
        assert adapter.is_idle(client)
        await adapter.call(client, "GET", server.url + "/thing")
    assert server.connections == 2  # that of the unread body was closed


@pytest.mark.lanes("httpx-trio", "httpx2-trio")
async def test_a_slow_body_may_be_closed_unread(adapter, server):
    """Whoever closes it has begun no generator of the library's, so trio warns of none."""
    server.script("/thing", f"200;body=60;drip=30;{JSON}")
    async with adapter.client(retry_if=alook) as client:
        response = await adapter.open(client, "GET", server.url + "/thing")
        await adapter.close(response)
    del response
    gc.collect()


async def test_a_read_timeout_below_that_is_a_failure(adapter, server, options):
    """The client's own limit stays: a body that stalls for longer is requested again."""
    server.script("/thing", "200;body=16;drip=700", "200;body=16")
    async with adapter.client(settings=adapter.reading_for(0.2), **options) as client:
        response = await adapter.call(client, "GET", server.url + "/thing")
    assert response.content == b"0123456789abcdef"
    # More than one if the machine is so busy that a response takes 0.2 s.
    assert set(forbear.record_of(response).reasons) == {"ReadTimeout"}


@pytest.mark.slow
@pytest.mark.timeout(60)
async def test_the_timeout_of_a_body_that_came_late_ends_with_it(adapter, server):
    """Its connection serves the next request, whose own timeout is in force: in attempts too."""
    server.script("/late", "200;body=16;drip=60")
    server.script("/next", "200;delay=3000")
    policy = RetryPolicy(max_attempts=1, total_timeout=30.0)
    async with adapter.client(policy=policy) as client:
        response = await adapter.open(client, "GET", server.url + "/late")
        assert await adapter.read(response) == b"0123456789abcdef"
        await adapter.close(response)
        with pytest.raises(adapter.library.ReadTimeout):
            timeout = adapter.library.Timeout(30, read=0.3)
            await adapter.call(client, "GET", server.url + "/next", timeout=timeout)
    assert server.connections == 1


@pytest.mark.adapters("async")
async def test_cancelling_while_a_body_is_awaited_gives_the_connection_back(adapter, server):
    server.script("/thing", "200;body=16;drip=1000")
    async with adapter.client(policy=POLICY) as client:
        with anyio.move_on_after(0.1) as scope:
            await adapter.open(client, "GET", server.url + "/thing")
        assert scope.cancelled_caught
        assert adapter.is_idle(client)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["cut", "reset-body"])
async def test_under_tls_too(adapter, options, context_of, fault):
    """A broken small body, a slow one, and a large one that goes on, through the library's TLS."""
    large = parse_step("200;body=200000").content
    with FaultServer(tls=context_of()) as server:
        server.script("/small", f"{fault}:30001;body=60001", "200;body=60001")
        server.script("/slow", "200;body=5;drip=120")
        server.script("/large", f"{fault}:70001;body=200000;etag=v1", "200;body=200000;etag=v1")
        async with adapter.client(**options) as client:
            assert (await adapter.call(client, "GET", server.url + "/small")).content == WHOLE
            assert (await adapter.call(client, "GET", server.url + "/slow")).content == b"01234"
            assert (await adapter.call(client, "GET", server.url + "/large")).content == large
            assert adapter.is_idle(client)
        assert [len(server.requests(path)) for path in ("/small", "/slow", "/large")] == [2, 1, 2]


@pytest.mark.parametrize("method", ["HEAD", "GET"])
async def test_answers_without_a_body(adapter, server, options, method):
    """HEAD has a length and no body; 204 has neither."""
    server.script("/thing", 200 if method == "HEAD" else "204;header=Content-Length:5", 200)
    async with adapter.client(**options) as client:
        response = await adapter.call(client, method, server.url + "/thing")
    assert response.content == b""


class Once(Foreign):
    """Answers with these chunks, then perhaps an error; the same body each time."""

    def __init__(self, library, headers, chunks, error=None, *, status=200, **named):
        self.stream = stream_of(library, chunks, error, **named)
        super().__init__(
            lambda request: library.Response(status, headers=headers, stream=self.stream)
        )


def in_turn(*inner):
    """Transports, one request each."""
    left = iter(inner)
    return Foreign(lambda request: next(left).handle_request(request))


async def test_a_failed_body_that_goes_on_coming_is_read_until_the_deadline(adapter, quick):
    """A piece each 0.1 s: three until the deadline, four in the quarter of a second at most."""
    clock, pieces = quick["clock"], iter([b"x"] * 9)
    body = stream_of(adapter.library, pieces, pause=lambda: clock.sleep(0.1))
    inner = Foreign(
        lambda _: adapter.library.Response(503, headers={"Content-Length": "9"}, stream=body)
    )
    policy = POLICY.replace(total_timeout=0.15, backoff=Fixed(0.0))
    async with adapter.client(inner, policy=policy, budget=None, **quick) as client:
        with suppress(adapter.DeadlineExceeded):
            await adapter.close(await adapter.open(client, "GET", URL))
    assert len([*pieces]) == 6


async def test_a_length_that_is_none_is_not_relied_on(adapter, options):
    for length in ("-5", "1e3", "", "9999999999", "5, 5"):
        error = adapter.library.ReadError("reset")
        inner = Once(adapter.library, {"Content-Length": length}, [b"abc"], error)
        async with adapter.client(inner, **options) as client:
            with pytest.raises(adapter.library.ReadError):
                await adapter.call(client, "GET", URL)
        assert inner.sent == 1, length


async def test_mocked_answers_are_left_alone(adapter, options):
    """A body that is there already is not handed over anew."""
    async with adapter.client([200], **options) as client:
        request = client.build_request("GET", "http://a.example.com/thing")
        response = await adapter.send(client._transport, request)
    assert type(response.stream) is adapter.library.ByteStream
