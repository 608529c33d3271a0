"""Small bodies are read inside the loop: a broken one is a failure like any other."""

from contextlib import suppress

import pytest

import forbear
from forbear import FailureKind, Fixed, Reason, RetryPolicy
from forbear.strategies import Phase
from forbear.testing.steps import parse_step

from .foreign import Foreign, stream_of

pytestmark = pytest.mark.adapters("httpx-family")

URL = "http://a.example.com/thing"
POLICY = RetryPolicy(max_attempts=3, backoff=Fixed(1.0))
WHOLE = parse_step("200;body=60001").content
JSON = "chunked=1;header=Content-Type:application/json"


@pytest.fixture
def options(quick):
    return {**quick, "policy": POLICY, "budget": None}


def story(record):
    return [(attempt.status, attempt.phase) for attempt in record.attempts]


@pytest.mark.parametrize("fault", ["cut:0", "cut:30001", "cut:60000", "reset-body:30001"])
async def test_a_broken_small_body_is_asked_for_again(adapter, server, options, fault):
    server.script("/thing", f"{fault};body=60001", "200;body=60001")
    async with adapter.client(**options) as client:
        response = await adapter.call(client, "GET", server.url + "/thing")
        assert response.content == WHOLE
        assert response.num_bytes_downloaded == 60_001
        assert adapter.is_idle(client)
    record = forbear.record_of(response)
    assert story(record) == [(None, Phase.ANSWERED), (200, None)]
    assert record.attempts[0].failure in (FailureKind.PROTOCOL, FailureKind.RESET)
    assert [dict(each.headers).get("Range") for each in server.requests("/thing")] == [None, None]


CUT = "cut:30001;body=60001"
FEEDS = ["application/x-ndjson", "application/stream+json", "multipart/mixed", "text/event-stream"]
NOT_AHEAD = {
    "off": (CUT, {"prefetch": 0}),
    "longer": (CUT, {"prefetch": 60_000}),
    "length-unknown": (f"{CUT};chunked=1", {}),
    **{kind: (f"{CUT};chunked=1;header=Content-Type:{kind}", {}) for kind in FEEDS},
    "json-off": (f"{CUT};{JSON}", {"prefetch": 0}),
    # In chunks whatever else stands there (RFC 9112 section 6.3).
    "length-void": (f"{CUT};chunked=1;header=Content-Length:60001", {}),
    "events": (f"{CUT};header=Content-Type:text/event-stream", {}),
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
async def test_json_of_unknown_length_is_continued_by_a_copy(adapter, server, options):
    kinds = ("application/json", "Application/JSON%3B charset=utf-8", "application/problem+json")
    for number, kind in enumerate(kinds):
        path, more = f"/{number}", f"chunked=1;header=Content-Type:{kind}"
        server.script(path, f"{CUT};{more}", f"200;body=60001;{more}")
        async with adapter.client(**options) as client:
            response = await adapter.open(client, "GET", server.url + path)
            assert len(server.requests(path)) == 1
            assert await adapter.read(response) == WHOLE
            await adapter.close(response)
            assert adapter.is_idle(client)
        record = forbear.record_of(response)
        assert story(record) == [(None, Phase.ANSWERED), (200, None)]
        assert record.resumed == (30_001,)


async def test_a_failed_body_that_goes_on_coming_is_read_until_the_deadline(adapter, quick):
    """A piece each 0.1 s: three until the deadline, four in the quarter of a second at most."""
    clock, pieces = quick["clock"], iter([b"x"] * 9)
    named = {"headers": {"Content-Length": "9"}}
    named["stream"] = stream_of(adapter.library, pieces, pause=lambda: clock.sleep(0.1))
    inner = Foreign(lambda _: adapter.library.Response(503, **named))
    policy = POLICY.replace(total_timeout=0.15, backoff=Fixed(0.0))
    async with adapter.client(inner, policy=policy, budget=None, **quick) as client:
        with suppress(adapter.DeadlineExceeded):
            await adapter.close(await adapter.open(client, "GET", URL))
    assert len([*pieces]) == 6


KNOWN = {"Content-Length": "6"}
DOCUMENT = {"Content-Type": "application/json"}


class Bodies(Foreign):
    """Answers in turn, each with (chunks, error or None, status and headers); the last repeats."""

    def __init__(self, adapter, *answers):
        super().__init__(self._response)
        self._library, self._answers = adapter.library, list(answers)
        self.streams, self.asked = [], []

    def _response(self, request):
        self.asked.append(dict(request.headers))
        answers = self._answers
        chunks, error, more = answers.pop(0) if len(answers) > 1 else answers[0]
        self.streams.append(stream_of(self._library, chunks, error))
        named = {"status_code": 200, "headers": KNOWN, **more}
        return self._library.Response(**named, stream=self.streams[-1])


def broken_after(adapter, **more):
    """Answers with a body that is reset after four bytes."""
    return [b"ab", b"c", b"d"], adapter.library.ReadError("reset"), more


@pytest.mark.smoke
async def test_a_small_document_that_breaks_is_requested_again(adapter, options):
    later = {"Date": "now", "X-Request-Id": "2"}
    for headers, chunks, more in (
        (DOCUMENT, [b"abcdef"], {}),
        (DOCUMENT, [b"a", b"bcd", b"e", b"f"], {}),
        (DOCUMENT, [b"abcd", b"ef"], later),
        ({**DOCUMENT, "ETag": 'W/"1"'}, [b"abcdef"], {}),
    ):
        whole = (chunks, None, {"headers": {**headers, **more}})
        inner = Bodies(adapter, broken_after(adapter, headers=headers), whole)
        response = await adapter.once(inner, url=URL, **options)
        assert response.content == b"abcdef", headers
        assert ["range" in asked for asked in inner.asked] == [False, False]
        record = forbear.record_of(response)
        assert story(record) == [(None, Phase.ANSWERED), (200, None)]
        assert record.resumed == (4,)
        assert all(stream.closed for stream in inner.streams)


async def test_of_another_response_nothing_is_handed_out(adapter, options):
    others = (KNOWN, {"Content-Encoding": "br"}, {"ETag": '"2"'}, {"Link": "</2>"})
    for content, more in (
        (b"abcxef", {"headers": DOCUMENT}),
        (b"abcdef", {"headers": DOCUMENT, "status_code": 206}),
        (b"abcdef", {"headers": {}}),
        *((b"abcdef", {"headers": {**DOCUMENT, **other}}) for other in others),
    ):
        broken = broken_after(adapter, headers=DOCUMENT)
        inner = Bodies(adapter, broken, ([content], None, more))
        got, record = await broken_off(adapter, inner, options)
        assert got == b"abcd", more
        assert record.reason is Reason.RESPONSE_DELIVERED
        assert len(record.attempts) == inner.sent == 2
        assert all(stream.closed for stream in inner.streams)


async def broken_off(adapter, inner, options, method="GET"):
    """What the caller gets of a body that breaks for good, and the record of its one error."""
    got = bytearray()
    async with adapter.client(inner, **options) as client:
        response = await adapter.open(client, method, URL)
        with pytest.raises(adapter.library.ReadError) as caught:
            await adapter.collect(response, got)
        await adapter.close(response)
    record = forbear.record_of(caught.value)
    assert getattr(caught.value, "__notes__", []) == ([f"forbear: {record}"] if record else [])
    return bytes(got), record


@pytest.mark.smoke
async def test_what_is_not_requested_again_breaks_as_without_forbear(adapter, options):
    lengths = ({"Content-Length": given} for given in ("-5", "1e3", "", "9999999999", "5, 5"))
    for method, more, headers in (
        *(("GET", {}, none) for none in lengths),
        ("POST", {}, DOCUMENT),  # executed
        ("PUT", {}, DOCUMENT),
        ("GET", {"resume": False}, DOCUMENT),
        ("GET", {}, {**KNOWN, "Content-Type": "text/event-stream"}),
        ("GET", {"prefetch": 0}, KNOWN),
        ("GET", {"prefetch": 3}, DOCUMENT),  # longer
        ("GET", {}, {}),  # of unknown length
        ("POST", {}, {"Content-Length": "70000"}),
    ):
        inner = Bodies(adapter, broken_after(adapter, headers=headers))
        got, record = await broken_off(adapter, inner, {**options, **more}, method)
        assert (got, inner.sent, record) == (b"abcd", 1, None), (method, more)
    inner = Bodies(adapter, broken_after(adapter))  # small, of known length: with its head
    got, record = await broken_off(adapter, inner, options, "POST")
    assert (got, inner.sent, record.reason) == (b"abcd", 1, Reason.METHOD_NOT_REPLAYABLE)
