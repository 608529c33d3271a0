"""Streams of events: retried until the first byte, or until the first event with EventStreams().

Cancelled at each of their awaits they give back all that was taken.
"""

import asyncio
import gzip
import random
import time
from collections import deque
from contextlib import suppress
from itertools import count, islice, pairwise

import anyio
import pytest

import forbear
from forbear import CircuitBreaker, EventStreams, Fixed, Reason, RetryGate, RetryPolicy, record_of
from forbear.testing import FakeClock, FaultServer, answer

from ..sockets import Listening, head_from
from .foreign import Foreign, stream_of

SSE = {"Content-Type": "text/event-stream"}
HELLO = 'event: message\r\ndata: {"text": "h\u00e9llo"}\r\n\r\n'
GOOD = HELLO.encode() + b"data: two\n\ndata: [DONE]\n\n"
POLICY = RetryPolicy(max_attempts=4)
REPEATABLE = (("GET", {}), ("PATCH", {"content": b"{}"}))
KEYED = {"content": b"{}", "headers": {"Idempotency-Key": '"k-1"'}}
URL = "/v1/stream"
RESUMED = RetryPolicy(max_attempts=3, backoff=Fixed(0.0))
RESUMES = EventStreams(resume=True)
EVENTS = [f"id: {n}\r\ndata: h\u00e9llo {n}\n\n".encode() for n in range(1, 51)]


def stream(step="200;chunked=1", body=GOOD, headers=SSE):
    return answer(step, body=body, headers=headers)


LATE = EventStreams(first_event_timeout=60.0)
CUTS = ("cut:0;chunked=1", "cut:0", "reset-body:0;chunked=1", "reset-body:0")
BROKEN, EMPTY = [stream(step) for step in CUTS], [stream(body=b""), stream("200", b"")]


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("is_open", "streams"),
    [(False, None), (True, None), (True, EventStreams()), (False, LATE), (True, LATE)],
    ids=["read inside", "streamed", "option", "timeout read inside", "timeout"],
)
async def test_a_stream_that_fails_at_once_is_retried(adapter, server, quick, is_open, streams):
    """Before its first byte."""
    policy, events = POLICY.replace(methods={"GET", "PATCH"}), []
    options = {"event_streams": streams, "on_event": [events.append], **quick}
    async with adapter.client(policy=policy, **options) as client:
        # A client that reads it whole takes an empty one as it is.
        for number, step in enumerate(BROKEN + EMPTY * (is_open or streams is not None)):
            # No POST with a key: the server would return the same stream as its stored answer.
            for method, named in (*REPEATABLE, *([("POST", KEYED)] if step in BROKEN else [])):
                path = f"{URL}/{method}/{number}"
                server.script(path, step, stream())
                fetch = adapter.open if is_open else adapter.call
                response = await fetch(client, method, server.url + path, **named)
                assert await adapter.read(response) == GOOD, path
                assert len(server.requests(path)) == 2, path
                story = record_of(response)
                assert [attempt.status for attempt in story.attempts] == [None, 200], path
                assert (story.reason, story.resumed) == (None, ()), path
                assert events[-1].name == "succeeded_after_retry", path
                events.clear()
        assert adapter.is_idle(client)


ANTHROPIC = POLICY.replace(methods={"GET", "PATCH"}).for_vendors("anthropic")
ERROR = (
    'event: ping\r\ndata: {"type": "ping"}\r\n\r\n: comment\n\n'
    'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error",'
    ' "message": "caf\u00e9"}}\n\n'
).encode()


@pytest.mark.smoke
@pytest.mark.parametrize("is_open", [False, True], ids=["read inside", "streamed"])
async def test_an_error_event_is_a_failure_with_its_status(adapter, server, quick, is_open):
    options = {"policy": ANTHROPIC, "event_streams": EventStreams(), **quick}
    async with adapter.client(**options) as client:
        fetch = adapter.open if is_open else adapter.call
        for method, named in REPEATABLE:
            path = f"{URL}/{method}"
            server.script(path, stream(body=ERROR), stream())
            response = await fetch(client, method, server.url + path, **named)
            assert await adapter.read(response) == GOOD
            assert [attempt.status for attempt in record_of(response).attempts] == [529, 200]
            assert len(server.requests(path)) == 2
        assert adapter.is_idle(client)


@pytest.mark.smoke
@pytest.mark.parametrize("steps", [[stream()], []], ids=["recovers", "stays"])
async def test_a_held_call_keeps_the_error_event_and_no_connection(adapter, server, quick, steps):
    server.script(URL, *[stream(body=ERROR + GOOD * 9)] * 4, *steps)
    policy = ANTHROPIC.replace(max_attempts=9, patience=3.0)
    options = {"policy": policy, "event_streams": EventStreams(), "gate": RetryGate(), **quick}
    async with adapter.client(**options, **adapter.pool_of(1)) as client:
        response = await adapter.open(client, "GET", server.url + URL)
        got = await adapter.read(response)
        assert got == GOOD if steps else got.startswith(ERROR)
        assert len(server.requests(URL)) >= 3
        assert adapter.is_idle(client)


class Pausing(Listening):
    """Sends the beginning of each stream, and its rest after so many seconds; None: never."""

    def __init__(self, *answers):
        self.answers, self.asked = answers, 0
        super().__init__()

    def serve(self, sock, number):
        def chunk(data):
            return b"%x\r\n%b\r\n" % (len(data), data) if data else b""

        while head_from(sock):
            begin, seconds, rest = self.answers[min(self.asked, len(self.answers) - 1)]
            self.asked += 1
            head = "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            sock.sendall(f"HTTP/1.1 200 OK\r\n{head}".encode() + chunk(begin))
            if seconds is None:
                sock.recv(1)
                return
            time.sleep(seconds)
            sock.sendall(chunk(rest) + b"0\r\n\r\n")


@pytest.mark.smoke
@pytest.mark.parametrize(("is_open", "begin"), [(False, b""), (True, b": ping\n\n")])
async def test_silence_before_the_first_event_is_a_failure(adapter, quick, is_open, begin):
    for seconds, settings in (0.3, {}), (60.0, {"settings": adapter.reading_for(0.3)}):
        streams = EventStreams(first_event_timeout=seconds)
        options = {"policy": ANTHROPIC, "event_streams": streams, **settings, **quick}
        async with adapter.client(**options) as client:
            fetch = adapter.open if is_open else adapter.call
            with Pausing((begin, None, b""), (GOOD, 0, b"")) as server:
                response = await fetch(client, "PATCH", server.url, content=b"")
                assert await adapter.read(response) == GOOD
                assert server.asked == 2
            (first, second) = record_of(response).attempts
            assert (first.failure, second.status) == (forbear.FailureKind.READ_TIMEOUT, 200)
            assert adapter.is_idle(client)


@pytest.mark.smoke
@pytest.mark.parametrize(("resume", "begin"), [(False, b": ping\n\n"), (True, b"data: 1\n\n")])
async def test_a_silent_stream_ends_at_the_deadline(adapter, resume, begin):
    streams = EventStreams(resume=resume)
    with Pausing((begin, None, b"")) as server:
        async with adapter.client(policy=POLICY, event_streams=streams) as client:
            response = None
            with forbear.deadline(0.5), pytest.raises(adapter.DeadlineExceeded):
                response = await adapter.open(client, "GET", server.url)
                await adapter.collect(response, bytearray())
            if response is not None:
                await adapter.close(response)
            assert adapter.is_idle(client)
        assert server.asked <= 1  # 0: a busy machine has not come to accept it


# No smoke: the oldest urllib3 has no read1(), so it reads past the first event.
@pytest.mark.parametrize("streams", [None, EventStreams()], ids=["default", "option"])
async def test_what_follows_the_first_event_is_the_callers(adapter, server, quick, streams):
    server.script(URL, stream(f"cut:{len(GOOD) - 3};chunked=1"), stream())
    async with adapter.client(policy=POLICY, event_streams=streams, **quick) as client:
        response, got = await adapter.open(client, "GET", server.url + URL), bytearray()
        with pytest.raises(adapter.cut_error):
            await adapter.collect(response, got)
        assert GOOD.startswith(got)
        assert len(server.requests(URL)) == 1
        await adapter.close(response)


@pytest.mark.smoke
@pytest.mark.parametrize("streams", [None, EventStreams()], ids=["default", "option"])
async def test_a_post_without_a_key_is_sent_once(adapter, server, quick, streams):
    async with adapter.client(policy=POLICY, event_streams=streams, **quick) as client:
        for is_open in (False, True)[streams is None :]:
            server.script(URL, stream(body=b""))
            fetch = adapter.open if is_open else adapter.call
            response = await fetch(client, "POST", server.url + URL, content=b"{}")
            assert await adapter.read(response) == b""
            assert record_of(response).reason is Reason.METHOD_NOT_REPLAYABLE
            for ending in ("return", "raise"):
                server.script(URL, stream("cut:0;chunked=1"))
                with pytest.raises(adapter.cut_error), forbear.override(on_exhausted=ending):
                    await adapter.read(await fetch(client, "POST", server.url + URL, content=b"{}"))
        assert len(server.requests(URL)) == (6 if streams else 3)


@pytest.mark.smoke
async def test_a_compressed_stream_follows_the_default_rule(adapter, server, quick):
    gzipped = {"headers": {**SSE, "Content-Encoding": "gzip"}, "body": gzip.compress(ERROR)}
    server.script(URL, stream("cut:0;chunked=1", **gzipped), stream(**gzipped))
    options = {"policy": ANTHROPIC, "event_streams": EventStreams(resume=True), **quick}
    async with adapter.client(**options) as client:
        assert (await adapter.download(client, server.url + URL)).content == ERROR
        assert len(server.requests(URL)) == 2


def feed(step, *events, **headers):
    return answer(step, body=b"".join(events), headers=headers or SSE)


async def collected(adapter, client, url, method="GET", **request):
    """Read a stream as a caller does, who closes it in any case; return it and its response."""
    response, got = await adapter.open(client, method, url, **request), bytearray()
    try:
        await adapter.collect(response, got)
    finally:
        await adapter.close(response)
    return bytes(got), response


def asked(server):
    return [dict(request.headers).get("Last-Event-ID") for request in server.requests(URL)]


async def test_a_broken_stream_goes_on_after_its_last_whole_event(adapter, server, quick):
    inside = sum(map(len, EVENTS[:2])) + 5
    broken = feed(f"cut:{inside};chunked=1", *EVENTS[:5])
    again = feed("reset-body:60;chunked=1", *EVENTS[2:5])
    server.script(URL, broken, 503, again, feed("200;chunked=1", *EVENTS[4:6]), 204)
    async with adapter.client(policy=RESUMED, event_streams=RESUMES, **quick) as client:
        got, response = await collected(adapter, client, server.url + URL)
        assert adapter.is_idle(client)
    assert got == b"".join(EVENTS[:6])
    story = record_of(response)
    # None: the body broke, or ended.
    assert [attempt.status for attempt in story.attempts] == [None, 503, None, None, 204]
    assert len(story.resumed) == 3
    assert asked(server) == [None, "2", "2", "4", "6"]


async def test_a_server_may_end_a_feed_after_each_event(adapter, server, quick):
    breaker = CircuitBreaker()
    server.script(URL, *[feed("200;chunked=1", event) for event in EVENTS], 204)
    server.script("/once", feed("200;chunked=1", EVENTS[0], b"data: ha"))
    events = []
    options = {"policy": RESUMED, "event_streams": RESUMES, "breaker": breaker, **quick}
    async with adapter.client(on_event=[events.append], **options) as client:
        got, _ = await collected(adapter, client, server.url + URL)
        assert got == b"".join(EVENTS)
        assert asked(server) == [None, *map(str, range(1, len(EVENTS) + 1))]
        assert breaker.quiet
        events.clear()
        got, response = await collected(adapter, client, server.url + "/once", "POST", content=b"")
        assert got == EVENTS[0]
        assert record_of(response).reason is None
        assert events == []


@pytest.mark.timeout(60)
@pytest.mark.parametrize("breaks", [False, True], ids=["ends", "breaks"])
async def test_a_server_that_begins_anew_each_time_ends_the_stream(adapter, server, quick, breaks):
    both = [feed("200;chunked=1", *EVENTS[:n]) for n in (1, 2)]
    if breaks:
        sizes = (len(b"".join(EVENTS[:n])) for n in (1, 2))
        both = [feed(f"cut:{size};chunked=1", *EVENTS[:3]) for size in sizes]
    server.script(URL, *both * 10, 204)
    async with adapter.client(policy=RESUMED, event_streams=RESUMES, **quick) as client:
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
    first = feed(f"cut:{len(EVENTS[0])};chunked=1", *EVENTS[:2])
    server.script(path, first if path == URL else "cut:70001;body=200000;etag=v1", 503)
    with FaultServer() as other:
        options = {"origins": forbear.Origins([server.url, other.url]), "event_streams": RESUMES}
        breaker = CircuitBreaker(1) if opens else None
        async with adapter.client(policy=RESUMED, breaker=breaker, **options, **quick) as client:
            with pytest.raises(adapter.cut_error):
                await collected(adapter, client, server.url + path)
        assert other.requests() == []


@pytest.mark.lanes("httpx-sync", "httpx-asyncio")
async def test_an_event_longer_than_the_bound_is_refused_before_it_is_whole(adapter, quick):
    chunks = iter([EVENTS[0], b"data: " + b"x" * 200, b"x", b"\n\n"])
    body = stream_of(adapter.library, chunks)
    inner = Foreign(lambda _: adapter.library.Response(200, headers=SSE, stream=body))
    streams = EventStreams(resume=True, max_event_bytes=100)
    async with adapter.client(inner, policy=RESUMED, event_streams=streams, **quick) as client:
        with pytest.raises(adapter.cut_error, match="longer than max_event_bytes"):
            await collected(adapter, client, "http://a.example.com/events")
    assert [*chunks] == [b"x", b"\n\n"]


class Feed(Foreign):
    """Sends the events after Last-Event-ID, in drawn pieces, up to a drawn byte."""

    def __init__(self, adapter, draw):
        super().__init__(self._respond)
        self.library, self.draw, self.expected = adapter.library, draw, 0
        self.asked, self.streams = [], []

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
        error = self.library.ReadError("cut") if self.draw.random() < 0.8 else None
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
            got, response = await collected(adapter, client, "http://feed.example.com/")
            assert got == b"".join(EVENTS), record_of(response)
        assert all(stream.closed for stream in feed.streams)
        cuts += len(feed.asked)


async def test_a_delay_that_is_asked_for_counts_at_once_and_however_long(adapter, server):
    """In half an event too; beyond ``max_retry_after`` nothing is requested."""
    clock = FakeClock()
    options = {"policy": RESUMED, "event_streams": RESUMES, "clock": clock}
    async with adapter.client(random=lambda: 0.0, **options) as client:
        half = EVENTS[0] + b"retry: 700\ndata: ha"
        broken = feed(f"cut:{len(half)};chunked=1", half, EVENTS[1])
        server.script(URL, broken, feed("200", EVENTS[1]), 204)
        got, _ = await collected(adapter, client, server.url + URL)
        assert (got, clock.sleeps) == (b"".join(EVENTS[:2]), [0.7, 0.7])
        server.script("/late", feed("200", b"retry: 99999999999\n\n", EVENTS[0]), 204)
        _, response = await collected(adapter, client, server.url + "/late")
        assert record_of(response).reason is Reason.RETRY_AFTER_TOO_LONG
        assert len(server.requests("/late")) == 1


async def test_a_server_that_ends_without_progress_is_asked_only_so_often(adapter, server, quick):
    server.script(URL, feed("200;chunked=1", EVENTS[0]), feed("200;chunked=1", b": none\n\n"))
    async with adapter.client(policy=RESUMED, event_streams=RESUMES, **quick) as client:
        got, _ = await collected(adapter, client, server.url + URL)
        assert got == EVENTS[0] + b": none\n\n" * 2
        assert adapter.is_idle(client)
    assert asked(server) == [None, "1", "1"]


@pytest.mark.slow
async def test_the_time_between_two_events_is_the_callers(adapter):
    policy = POLICY.replace(total_timeout=0.5, attempt_timeout=0.5)
    with Pausing((b"data: 1\n\n", 0.8, b"data: 2\n\n")) as server:
        async with adapter.client(policy=policy, event_streams=EventStreams()) as client:
            response = await adapter.download(client, server.url)
            assert response.content == b"data: 1\n\ndata: 2\n\n"
            assert adapter.is_idle(client)


@pytest.mark.lanes("httpx-sync")
async def test_the_record_of_a_feed_that_is_resumed_for_months_is_bounded(adapter, quick):
    numbers = count(1)

    def respond(request):
        event = stream_of(adapter.library, [b"id: %d\ndata: x\n\n" % next(numbers)])
        return adapter.library.Response(200, headers=SSE, stream=event, request=request)

    options = {"policy": RESUMED, "event_streams": RESUMES, **quick}
    async with adapter.client(Foreign(respond), **options) as client:
        response = await adapter.open(client, "GET", "http://feed.example.com/")
        deque(islice(response.iter_raw(), 1200), maxlen=0)
        story = record_of(response)
        await adapter.close(response)
    assert len(story.resumed) == 1000
    assert len(story.attempts) <= 1002


PATIENT, FIVE = ANTHROPIC.replace(max_attempts=9, patience=60.0), EVENTS[:5]
FED = feed("200;chunked=1", *FIVE)
CANCELLED = {
    "default": (None, [feed("cut:0;chunked=1", *FIVE), 503, feed("200", b""), FED]),
    "resumed": (
        EventStreams(resume=True),
        [
            feed("cut:25;chunked=1", *FIVE), 503, feed("200;chunked=1", *FIVE[1:4]),
            feed("reset-body:0;chunked=1", *FIVE), feed("200;chunked=1", *FIVE[4:]), 204,
        ],
    ),
}  # fmt: skip


class Cancelling:
    """Awaits a coroutine, and calls ``cancel`` when it suspends for the n-th time."""

    def __init__(self, coroutine, n, cancel):
        self._coroutine, self._n, self._cancel = coroutine, n, cancel
        self.suspended = 0

    def __await__(self):
        step, value = self._coroutine.send, None
        while True:
            try:
                awaited = step(value)
            except StopIteration as ended:
                return ended.value
            self.suspended += 1
            if self.suspended == self._n:
                self._cancel()
            try:
                step, value = self._coroutine.send, (yield awaited)
            except BaseException as error:
                step, value = self._coroutine.throw, error


async def cancelled_at(n, coroutine, *, natively):
    """Run a coroutine up to its n-th await; return its result, None if it was cancelled."""
    if not natively:
        with anyio.CancelScope() as scope:
            return await Cancelling(coroutine, n, scope.cancel)
        return None

    async def run():
        return await Cancelling(coroutine, n, asyncio.current_task().cancel)

    with suppress(asyncio.CancelledError):
        return await asyncio.create_task(run())
    return None


@pytest.mark.slow
@pytest.mark.lanes("httpx-asyncio", "httpx-trio", "aiohttp-asyncio")
@pytest.mark.parametrize("way", CANCELLED)
async def test_cancelled_at_any_await_nothing_is_left(adapter, server, quick, way):
    streams, steps = CANCELLED[way]

    def tasks():
        return asyncio.all_tasks() if adapter.flavour == "asyncio" else None

    before = tasks()
    for n in count(1):
        slots, gate, breaker = forbear.ConcurrencyLimit(1), RetryGate(), CircuitBreaker()
        shared = {"concurrency": slots, "gate": gate, "breaker": breaker}
        options = {"policy": PATIENT, "event_streams": streams, **shared, **adapter.pool_of(1)}
        path = f"/{n}"
        server.script(path, *steps)
        async with adapter.client(**options, **quick) as client:
            reading = collected(adapter, client, server.url + path)
            # httpcore itself loses connections to a task's own cancel().
            got = await cancelled_at(n, reading, natively=adapter.name == "aiohttp")
            assert adapter.is_idle(client), n
            assert (slots.in_flight(), slots.waiting(), gate.held()) == (0, 0, 0), n
            assert not any(circuit.probe for circuit in breaker._circuits.values()), n
            assert not adapter.retrying(client).port.settings.sleeper.waiting(), n
            assert tasks() == before, n
        if got is not None:
            break
    assert got[0] == b"".join(FIVE)
    assert n > 10
    assert len(server.requests(path)) == len(steps)


@pytest.mark.adapters("httpx", "sync")
async def test_an_empty_stream_after_a_body_that_is_used_up_is_the_callers(adapter, server):
    """Nothing is sent again, and the record says why."""
    server.script("/thing", "200;body=0;header=Content-Type:text/event-stream")
    async with adapter.client() as client:
        url, body = server.url + "/thing", (part for part in [b"a"])
        response = await adapter.open(client, "PUT", url, content=body)
        assert await adapter.read(response) == b""
    assert forbear.record_of(response).reason is Reason.BODY_CONSUMED
