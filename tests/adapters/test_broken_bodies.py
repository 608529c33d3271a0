"""A body that breaks after the hand-over: a small JSON document is requested again.

Its length is unknown, so it was not prefetched, and nothing but its bytes shows that it is the same.
"""

import pytest

import forbear
from forbear import Fixed, Reason, RetryPolicy
from forbear.strategies import Phase

from .foreign import Foreign, stream_of

pytestmark = [pytest.mark.anyio, pytest.mark.adapters("httpx-family")]

POLICY = RetryPolicy(max_attempts=3, backoff=Fixed(1.0))
URL = "http://a.example.com/thing"
KNOWN = {"Content-Length": "6"}
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def options(quick):
    return {**quick, "policy": POLICY, "budget": None}


class Bodies(Foreign):
    """Answers in turn, each with (chunks, error or None, more); the last one repeats.

    ``more`` may have status and headers, and ``pause``: seconds after each chunk.
    """

    def __init__(self, adapter, clock, *answers):
        super().__init__(self._response)
        self._library, self._clock = adapter.library, clock
        self._answers = list(answers)
        self.streams, self.asked = [], []

    def _response(self, request):
        self.asked.append(dict(request.headers))
        answers = self._answers
        chunks, error, more = answers.pop(0) if len(answers) > 1 else answers[0]
        seconds = more.get("pause", 0)
        stream = stream_of(self._library, chunks, error, lambda: self._clock.sleep(seconds))
        self.streams.append(stream)
        status, headers = more.get("status", 200), more.get("headers", KNOWN)
        return self._library.Response(status, headers=headers, stream=stream)


def reset(adapter):
    return adapter.library.ReadError("reset")


@pytest.mark.smoke
async def test_a_small_document_that_breaks_is_requested_again(adapter, options):
    later = {"Date": "now", "X-Request-Id": "2"}
    for headers, chunks, more in (
        (JSON, [b"abcdef"], {}),
        (JSON, [b"a", b"bcd", b"e", b"f"], {}),
        (JSON, [b"abcd", b"ef"], later),
        ({**JSON, "ETag": 'W/"1"'}, [b"abcdef"], {}),
    ):
        broken = ([b"ab", b"c", b"d"], reset(adapter), {"headers": headers})
        whole = (chunks, None, {"headers": {**headers, **more}})
        inner = Bodies(adapter, options["clock"], broken, whole)
        async with adapter.client(inner, **options) as client:
            response = await adapter.call(client, "GET", URL)
        assert response.content == b"abcdef", headers
        assert ["range" in asked for asked in inner.asked] == [False, False]
        record = forbear.record_of(response)
        found = [(attempt.status, attempt.phase) for attempt in record.attempts]
        assert found == [(None, Phase.ANSWERED), (200, None)]
        assert record.resumed == (4,)
        assert all(stream.closed for stream in inner.streams)


async def test_of_another_response_nothing_is_handed_out(adapter, options):
    same = {"headers": JSON}
    for chunks, more in (
        ([b"abcxef"], same),
        ([b"abcdef"], {**same, "status": 206}),
        ([b"abcdef"], {"headers": {}}),
        ([b"abcdef"], {"headers": {**KNOWN, **JSON}}),
        ([b"abcdef"], {"headers": {**JSON, "Content-Encoding": "br"}}),
        ([b"abcdef"], {"headers": {**JSON, "ETag": '"2"'}}),
        ([b"abcdef"], {"headers": {**JSON, "Link": "</2>"}}),
    ):
        broken = ([b"ab", b"c", b"d"], reset(adapter), same)
        inner = Bodies(adapter, options["clock"], broken, (chunks, None, more))
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


FEED = {"headers": {**KNOWN, "Content-Type": "text/event-stream"}}


@pytest.mark.smoke
async def test_what_is_not_requested_again_breaks_as_without_forbear(adapter, options):
    known, document = {"headers": KNOWN}, {"headers": JSON}
    for method, more, answer in (
        ("POST", {}, document),  # executed
        ("PUT", {}, document),
        ("GET", {"resume": False}, document),
        ("GET", {}, FEED),
        ("GET", {"prefetch": 0}, known),
        ("GET", {"prefetch": 3}, document),  # longer
        ("GET", {}, {"headers": {}}),  # of unknown length
        ("POST", {}, {"headers": {"Content-Length": "70000"}}),
    ):
        inner = Bodies(adapter, options["clock"], ([b"ab", b"c", b"d"], reset(adapter), answer))
        got, record = await broken_off(adapter, inner, {**options, **more}, method)
        assert (got, inner.sent, record) == (b"abcd", 1, None), (method, more)


@pytest.mark.smoke
async def test_a_small_body_of_a_post_that_breaks_is_handed_over_with_its_head(adapter, options):
    broken = ([b"ab", b"c", b"d"], reset(adapter), {"headers": KNOWN})
    inner = Bodies(adapter, options["clock"], broken)
    got, record = await broken_off(adapter, inner, options, "POST")
    assert (got, inner.sent) == (b"abcd", 1)
    assert record.reason is Reason.METHOD_NOT_REPLAYABLE
