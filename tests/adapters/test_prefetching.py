"""Small bodies are read inside the loop: a broken one is a failure like any other."""

from contextlib import suppress

import pytest

import forbear
from forbear import FailureKind, Fixed, RetryPolicy
from forbear.strategies import Phase
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


@pytest.mark.slow
@pytest.mark.timeout(60)
async def test_the_timeout_of_a_body_that_came_late_ends_with_it(adapter, server):
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
