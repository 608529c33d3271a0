"""Streams of events with ``resume=True``: what follows the last whole event is requested."""

import random
from collections import deque
from itertools import count, islice, pairwise

import pytest

from forbear import CircuitBreaker, EventStreams, Fixed, Origins, Reason, RetryPolicy, record_of
from forbear.testing import FakeClock, FaultServer, answer

from .foreign import Foreign, stream_of
from .test_event_streams import record

pytestmark = pytest.mark.anyio  # no smoke: the oldest urllib3 has no read1(), which this needs

SSE = {"Content-Type": "text/event-stream"}
URL = "/events"
POLICY = RetryPolicy(max_attempts=3, backoff=Fixed(0.0))
RESUMES = EventStreams(resume=True)
EVENTS = [f"id: {n}\r\ndata: h\u00e9llo {n}\n\n".encode() for n in range(1, 51)]


def stream(step, *events, **headers):
    return answer(step, body=b"".join(events), headers=headers or SSE)


async def collected(adapter, response):
    got = bytearray()
    await adapter.collect(response, got)
    return bytes(got)


def asked(server):
    return [dict(request.headers).get("Last-Event-ID") for request in server.requests(URL)]


async def test_a_broken_stream_goes_on_after_its_last_whole_event(adapter, server, quick):
    inside = sum(map(len, EVENTS[:2])) + 5
    server.script(
        URL,
        stream(f"cut:{inside};chunked=1", *EVENTS[:5]),
        503,
        stream("reset-body:60;chunked=1", *EVENTS[2:5]),
        stream("200;chunked=1", *EVENTS[4:6]),
        204,
    )
    async with adapter.client(policy=POLICY, event_streams=RESUMES, **quick) as client:
        response = await adapter.open(client, "GET", server.url + URL)
        assert await collected(adapter, response) == b"".join(EVENTS[:6])
        assert adapter.is_idle(client)
        story = record(adapter, response)
    # None: the body broke, or ended.
    assert [attempt.status for attempt in story.attempts] == [None, 503, None, None, 204]
    assert len(story.resumed) == 3
    assert asked(server) == [None, "2", "2", "4", "6"]


async def test_a_server_may_end_a_feed_after_each_event(adapter, server, quick):
    breaker = CircuitBreaker()
    server.script(URL, *[stream("200;chunked=1", event) for event in EVENTS], 204)
    server.script("/once", stream("200;chunked=1", EVENTS[0], b"data: ha"))
    events = []
    options = {"policy": POLICY, "event_streams": RESUMES, "breaker": breaker, **quick}
    async with adapter.client(on_event=[events.append], **options) as client:
        response = await adapter.open(client, "GET", server.url + URL)
        assert await collected(adapter, response) == b"".join(EVENTS)
        assert asked(server) == [None, *map(str, range(1, len(EVENTS) + 1))]
        assert breaker.is_closed
        events.clear()
        response = await adapter.open(client, "POST", server.url + "/once", content=b"{}")
        assert await collected(adapter, response) == EVENTS[0]
        assert record(adapter, response).reason is None
        assert events == []


@pytest.mark.lanes("httpx-sync")
async def test_the_record_of_a_feed_that_is_resumed_for_months_is_bounded(adapter, quick):
    numbers = count(1)

    def respond(request):
        event = stream_of(adapter.library, [b"id: %d\ndata: x\n\n" % next(numbers)])
        return adapter.library.Response(200, headers=SSE, stream=event, request=request)

    options = {"policy": POLICY, "event_streams": RESUMES, **quick}
    async with adapter.client(Foreign(respond), **options) as client:
        response = await adapter.open(client, "GET", "http://feed.example.com/")
        deque(islice(response.iter_raw(), 1200), maxlen=0)
        story = record_of(response)
        await adapter.close(response)
    assert story.attempts[-1].number == 1200
    assert len(story.attempts) <= 1002
    assert len(story.resumed) == 1000


@pytest.mark.timeout(60)
@pytest.mark.parametrize("breaks", [False, True], ids=["ends", "breaks"])
async def test_a_server_that_begins_anew_each_time_ends_the_stream(adapter, server, quick, breaks):
    one, two = (len(b"".join(EVENTS[:n])) for n in (1, 2))
    if breaks:
        both = [stream(f"cut:{size};chunked=1", *EVENTS[:3]) for size in (one, two)]
    else:
        both = [stream("200;chunked=1", *EVENTS[:n]) for n in (1, 2)]
    server.script(URL, *both * 10, 204)
    async with adapter.client(policy=POLICY, event_streams=RESUMES, **quick) as client:
        response, got = await adapter.open(client, "GET", server.url + URL), bytearray()
        with pytest.raises(adapter.cut_error, match="the server repeats events") as raised:
            await adapter.collect(response, got)
        await adapter.close(response)
        assert adapter.is_idle(client)
    assert got == EVENTS[0]
    assert asked(server) == [None, "1"]
    assert record_of(raised.value).reason is Reason.RESPONSE_DELIVERED


@pytest.mark.parametrize("opens", [False, True], ids=["", "its circuit opens"])
@pytest.mark.parametrize("path", [URL, "/file"])
async def test_a_resumption_never_fails_over(adapter, server, quick, path, opens):
    first = stream(f"cut:{len(EVENTS[0])};chunked=1", *EVENTS[:2])
    server.script(path, first if path == URL else "cut:70001;body=200000;etag=v1", 503)
    with FaultServer() as other:
        options = {"origins": Origins([server.url, other.url]), "event_streams": RESUMES}
        breaker = CircuitBreaker(1) if opens else None
        async with adapter.client(policy=POLICY, breaker=breaker, **options, **quick) as client:
            response = await adapter.open(client, "GET", server.url + path)
            with pytest.raises(adapter.cut_error):
                await collected(adapter, response)
            await adapter.close(response)
        assert other.requests() == []


@pytest.mark.lanes("httpx-sync", "httpx-asyncio")
async def test_an_event_longer_than_the_bound_is_refused_before_it_is_whole(adapter, quick):
    chunks = iter([EVENTS[0], b"data: " + b"x" * 200, b"x", b"\n\n"])
    inner = Foreign(
        lambda _: adapter.library.Response(
            200, headers=SSE, stream=stream_of(adapter.library, chunks)
        )
    )
    streams = EventStreams(resume=True, max_event_bytes=100)
    async with adapter.client(inner, policy=POLICY, event_streams=streams, **quick) as client:
        response = await adapter.open(client, "GET", "http://a.example.com/events")
        with pytest.raises(adapter.cut_error, match="longer than max_event_bytes"):
            await adapter.collect(response, bytearray())
        await adapter.close(response)
    assert [*chunks] == [b"x", b"\n\n"]


class Feed(Foreign):
    """Sends the events after Last-Event-ID, in drawn pieces, up to a drawn byte."""

    def __init__(self, adapter, draw):
        super().__init__(self._respond)
        self.library, self.draw, self.asked, self.expected = adapter.library, draw, [], 0
        self.streams, self.ends = [], False

    def _respond(self, request):
        last = request.headers.get("last-event-id", "0")
        assert last == str(self.expected), "the last event that was handed over"
        self.asked.append(last)
        status = self.draw.choice([200] * 6 + [503, 502, 429])
        body = b"".join(EVENTS[int(last) :])
        if status != 200 or (not body and int(last) == len(EVENTS)):
            return self.library.Response(status if status != 200 else 204, request=request)
        most = min(len(body), 120)  # of about five events
        cut = min(len(body), self.draw.randrange(most + 60))
        head, places = body[:cut], sorted(self.draw.randrange(cut + 1) for _ in range(5))
        pieces = [head[a:b] for a, b in pairwise([0, *places, cut])]
        is_cut = self.draw.random() < 0.8
        error = self.library.ReadError("cut") if is_cut else None
        self.expected = int(last) + head.count(b"\n\n")
        stream = stream_of(self.library, [piece for piece in pieces if piece], error)
        self.streams.append(stream)
        return self.library.Response(200, headers=SSE, stream=stream, request=request)


@pytest.mark.lanes("httpx-sync", "httpx-asyncio")
async def test_a_thousand_drawn_cuts(adapter):
    draw, cuts = random.Random(27), 0
    policy = RetryPolicy(max_attempts=40, backoff=Fixed(0.0))
    while cuts < 1000:
        feed = Feed(adapter, draw)
        options = {"policy": policy, "event_streams": RESUMES, "clock": FakeClock()}
        async with adapter.client(feed, random=lambda: 0.5, **options) as client:
            response = await adapter.open(client, "GET", "http://feed.example.com/")
            got = await collected(adapter, response)
            assert got == b"".join(EVENTS), record_of(response)
        assert all(stream.closed for stream in feed.streams)
        cuts += len(feed.asked)
