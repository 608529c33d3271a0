"""P4: a deadline reaches the library as its own timeouts, and is taken back at hand-over."""

import asyncio
import socket
import time
from contextlib import closing

import aiohttp
import anyio.lowlevel
import httpx
import pytest
import urllib3

import forbear
from forbear import Fixed, Hedge, Reason, RetryGate, RetryPolicy, record_of
from forbear.aiohttp import RetryMiddleware
from forbear.events import RetryScheduled
from forbear.httpx import AsyncRetryTransport

from ..lanes import ORIGIN, URL
from .test_bodies import agenerator

family = pytest.mark.adapters("httpx-family")
PHASES = ("pool", "connect", "write", "read")


async def send(adapter, transport, timeout):
    extensions = {"timeout": timeout} if timeout is not None else {}
    request = adapter.library.Request("GET", URL, extensions=extensions)
    await adapter.send(transport, request)


FIVE = dict.fromkeys(PHASES, 5.0)
OWN = {"pool": 0.5, "connect": 2.0, "write": 3.0, "read": 4.0}
CLAMPED = [  # the least of the client's own, of attempt_timeout and of what is left of 3 s
    ({"total_timeout": 3}, FIVE, [3, 3, 3, 3], [1, 1, 1, 1]),
    ({"total_timeout": 3}, OWN, [0.5, 2, 3, 3], [0.5, 1, 1, 1]),
    ({"total_timeout": 3}, None, [3, 3, 3, 3], [1, 1, 1, 1]),
    ({"attempt_timeout": 0.7}, FIVE, [0.7] * 4, [0.7] * 4),
    ({"attempt_timeout": 2, "total_timeout": 3}, FIVE, [2] * 4, [1] * 4),
]


@family
@pytest.mark.parametrize("case", CLAMPED)
async def test_every_phase_asks_for_the_time_left(adapter, clock, case):
    policy, configured, *expected = case
    seen = []

    def look(request):
        for _ in range(2):  # 2 s apart
            seen.append([request.extensions["timeout"].get(phase) for phase in PHASES])
            clock.advance(2)
        return 200

    transport = adapter.transport([look], clock=clock, policy=RetryPolicy(**policy))
    await send(adapter, transport, configured)
    assert seen == [pytest.approx(each) for each in expected]


@family
@pytest.mark.parametrize("phase", ["pool", "read"])
@pytest.mark.parametrize("own", [30.0, 1.0], ids=["deadline", "own"])
async def test_the_timeout_that_fires_has_the_name_of_its_owner(adapter, clock, phase, own):
    name = f"{phase.title()}Timeout"
    theirs = getattr(adapter.library, name)

    def stuck(request):
        clock.advance(request.extensions["timeout"].get(phase))
        raise theirs("too slow")

    policy = RetryPolicy(total_timeout=3, max_attempts=1)
    transport = adapter.transport([stuck], clock=clock, policy=policy)
    expected = theirs if own < 3 else adapter.DeadlineExceeded
    with pytest.raises(expected) as caught:
        await send(adapter, transport, dict.fromkeys(PHASES, own))
    assert type(caught.value) is expected
    if own > 3:
        assert type(caught.value.__cause__) is theirs
        assert isinstance(caught.value, adapter.library.TimeoutException)
        record = record_of(caught.value)
        assert (record.reason, record.reasons) == (Reason.DEADLINE, (name,))


@pytest.mark.smoke
async def test_attempt_timeout_ends_an_attempt_and_the_next_one_succeeds(adapter, server, elapsed):
    server.script("/thing", "hang", 200)
    policy = RetryPolicy(attempt_timeout=0.6, backoff=Fixed(0))
    options = {"settings": adapter.reading_for(60), "policy": policy}
    response = await adapter.once(url=server.url + "/thing", **options)
    assert elapsed() < 30
    assert response.status_code == 200
    assert record_of(response).reasons == (adapter.read_timeout.__name__,)


@pytest.mark.smoke
async def test_a_queue_for_the_pool_ends_at_the_deadline(adapter, server, quickest):
    # aiohttp gives a connection back with the last piece, whether that is read or not.
    slow = "body=160;drip=150;chunked=1" if adapter.name == "aiohttp" else "drip=15;chunked=1"
    server.script("/slow", f"200;delay=20;{slow}")
    server.script("/thing", 200)
    async with adapter.client(**adapter.pool_of(1)) as client:
        holding = await adapter.open(client, "GET", server.url + "/slow")

        async def run():
            with forbear.deadline(0.1), pytest.raises(adapter.DeadlineExceeded) as caught:
                await adapter.call(client, "GET", server.url + "/thing")
            errors.append(caught.value)

        errors = []
        # 0.13 s after its beginning an asynchronous call is cut, and no timeout is the cause.
        assert 0.09 <= await quickest(run, bound=0.125) <= 0.125
        cause = type(errors[-1].__cause__).__name__
        expected = ("NoneType",) if adapter.name == "aiohttp" else ("PoolTimeout", "EmptyPoolError")
        assert cause in expected
        await adapter.close(holding)
        assert (await adapter.call(client, "GET", server.url + "/thing")).status_code == 200


@pytest.mark.smoke
async def test_nothing_is_sent_after_a_hook_that_took_the_time(adapter, quick, budget):
    def dawdle(request, attempt):
        quick["clock"].advance(2)

    options = {"policy": RetryPolicy(total_timeout=3, backoff=Fixed(1)), "budget": budget, **quick}
    watched = adapter.watched(["read_timeout", 200])
    with pytest.raises(adapter.DeadlineExceeded) as caught:
        await adapter.once(watched, before_attempt=dawdle, **options)
    record = record_of(caught.value)
    assert len(watched.requests) == len(record.attempts) == 1
    assert record.reason is Reason.DEADLINE
    assert isinstance(caught.value.__cause__, adapter.transport_error)
    assert budget.tokens(ORIGIN, quick["clock"].monotonic()) == 20


@pytest.mark.smoke("sync")
async def test_nothing_is_sent_after_a_slow_search_for_a_name(adapter, server, monkeypatch):
    server.script("/thing", 200)
    find = socket.getaddrinfo

    def slowly(*arguments, **named):
        time.sleep(0.1)
        return find(*arguments, **named)

    monkeypatch.setattr(socket, "getaddrinfo", slowly)
    async with adapter.client() as client:
        with forbear.deadline(0.05), pytest.raises(adapter.DeadlineExceeded):
            await adapter.call(client, "POST", server.url + "/thing", content=b"x")
        time.sleep(0.02)
        assert server.requests() == []
        monkeypatch.undo()
        assert (await adapter.call(client, "GET", server.url + "/thing")).status_code == 200


@pytest.mark.parametrize("slow", ["chunk", "end"])
async def test_a_body_that_is_produced_slowly_is_cut_at_the_deadline(adapter, server, slow):
    server.script("/thing", 200)

    def body():
        yield b"first"
        time.sleep(0.12)
        if slow == "chunk":
            yield b"second"

    content = agenerator(body()) if adapter.is_async else body()
    async with adapter.client() as client:
        with forbear.deadline(0.08), pytest.raises(adapter.DeadlineExceeded):
            await adapter.call(client, "POST", server.url + "/thing", content=content)
        time.sleep(0.02)
    assert not any(arrival.body_complete for arrival in server.requests("/thing"))


@pytest.mark.slow
async def test_a_response_handed_over_near_the_deadline_streams_on(adapter, server, elapsed):
    # Longer than any timeout that the attempt had. A body that is read ahead is not handed over.
    server.script("/thing", "200;delay=180;body=1;drip=800")
    options = {"prefetch": 0} if "prefetches" in adapter.words else {}
    async with adapter.client(policy=RetryPolicy(total_timeout=0.6), **options) as client:
        elapsed()
        response = await adapter.download(client, server.url + "/thing")
        assert elapsed() > 0.6
    assert response.content == b"0"


@pytest.mark.adapters("urllib3-family")
@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [(None, None), (7, 7), (urllib3.Timeout(connect=3, read=8), 8), (urllib3.Timeout(total=6), 6)],
)
async def test_a_socket_handed_over_has_the_callers_timeout(adapter, server, timeout, seconds):
    """Whatever form it came in; the attempt's was 0.2 s."""
    server.script("/thing", "200;body=100000")
    policy = RetryPolicy(attempt_timeout=0.2, total_timeout=60)
    async with adapter.client(policy=policy, settings={"timeout": timeout}) as client:
        response = await adapter.open(client, "GET", server.url + "/thing")
        assert response.raw._fp.fp.raw._sock.gettimeout() == pytest.approx(seconds, abs=0.1)
        await adapter.close(response)


@pytest.mark.smoke
@pytest.mark.parametrize("drip", [600, 30], ids=["stalls", "drips"])
async def test_a_deadline_bounds_the_body_that_is_streamed(adapter, server, quickest, drip):
    server.script("/thing", f"200;body=160;drip={drip}")
    async with adapter.client() as client:

        async def run():
            with forbear.deadline(0.12), pytest.raises(adapter.DeadlineExceeded):
                await adapter.call(client, "GET", server.url + "/thing")

        assert await quickest(run, bound=0.19) <= 0.19


async def test_the_deadline_of_a_streamed_body_ends_with_it(adapter, server, quick):
    server.script("/thing", "200;body=200000", "200;delay=300")
    async with adapter.client(policy=RetryPolicy(max_attempts=1), **quick) as client:
        with forbear.deadline(60.0):
            await adapter.close(await adapter.download(client, server.url + "/thing"))
        quick["clock"].advance(100.0)
        await adapter.call(client, "GET", server.url + "/thing")
    assert server.connections == 1


@family
@pytest.mark.parametrize("framing", ["chunked=1", ""], ids=["streamed", "prefetched"])
async def test_the_error_of_a_body_that_is_late_has_the_clients_as_cause(adapter, server, framing):
    server.script("/thing", f"200;body=160;drip=600;{framing}".rstrip(";"))
    async with adapter.client() as client:
        with forbear.deadline(0.15), pytest.raises(adapter.DeadlineExceeded) as caught:
            await adapter.read(await adapter.open(client, "GET", server.url + "/thing"))
    assert isinstance(caught.value.__cause__, adapter.read_timeout)


@family
@pytest.mark.parametrize("framing", ["chunked=1", ""], ids=["streamed", "prefetched"])
async def test_a_transport_that_passes_no_extensions_on_may_have_a_deadline(
    adapter, server, framing
):
    """One of a user's own, which makes responses anew: nobody knows where their bytes come from."""

    def without_extensions(response):
        head = {"status_code": response.status_code, "headers": response.headers}
        return adapter.library.Response(**head, stream=response.stream)

    class Own(adapter.inner_class):
        if adapter.is_async:

            async def handle_async_request(self, request):
                return without_extensions(await super().handle_async_request(request))
        else:

            def handle_request(self, request):
                return without_extensions(super().handle_request(request))

    server.script("/thing", f"200;body=160;drip=2;{framing}".rstrip(";"))
    async with adapter.client(inner=Own()) as client:
        with forbear.deadline(60):
            response = await adapter.call(client, "GET", server.url + "/thing")
    assert len(response.content) == 160


@family
@pytest.mark.parametrize("ended_by", ["deadline", "read timeout"])
async def test_a_streamed_body_that_is_late_gives_its_connection_back(adapter, server, ended_by):
    """Also if its caller does not close the response, as without a deadline."""
    server.script("/thing", "200;body=160;drip=600;chunked=1")
    settings = adapter.reading_for(0.1) if ended_by == "read timeout" else {}
    async with adapter.client(settings=settings) as client:
        with forbear.deadline(0.15 if ended_by == "deadline" else 60):
            response = await adapter.open(client, "GET", server.url + "/thing")
            with pytest.raises(adapter.library.TimeoutException):
                await adapter.read(response)
            assert adapter.is_idle(client)


@pytest.mark.adapters("httpx-family", "async")
async def test_a_cancelled_reading_under_a_deadline_gives_its_connection_back(adapter, server):
    server.script("/thing", "200;body=160;drip=600;chunked=1")
    async with adapter.client() as client:
        with forbear.deadline(60):
            response = await adapter.open(client, "GET", server.url + "/thing")
            with anyio.move_on_after(0.1):
                await adapter.read(response)
            assert adapter.is_idle(client)


@family
@pytest.mark.parametrize("setting", [None, {"max_attempts": 3}, False])
async def test_nothing_is_written_into_the_callers_objects(adapter, server, quick, setting):
    server.script("/thing", "503;body=10", "reset", 200)
    timeout = dict(OWN)
    extensions = {"timeout": timeout, "mine": object()}
    extensions |= {} if setting is None else {"forbear": setting}
    before, headers = dict(extensions), {"X-Mine": "1", "Host": server.url.partition("//")[2]}
    named = {"headers": headers, "extensions": extensions}
    request = adapter.library.Request("GET", server.url + "/thing", **named)
    lines = list(request.headers.raw)
    policy = RetryPolicy(total_timeout=60, attempt_timeout=1)
    transport = adapter.transport(policy=policy, **quick)
    with forbear.deadline(30, clock=quick["clock"]):
        response = await adapter.send(transport, request)
    assert len(server.requests()) == (1 if setting is False else 3)
    await adapter.close(response)
    await adapter.close(transport)
    assert request.extensions == before == extensions
    assert request.extensions["timeout"] is timeout
    assert timeout == OWN
    assert list(request.headers.raw) == lines


@pytest.mark.smoke
async def test_what_follows_a_decision_takes_its_share_of_the_wait(adapter, clock):
    def dawdle(event):
        if isinstance(event, RetryScheduled):
            clock.advance(0.4)

    options = {"clock": clock, "on_event": [dawdle], "random": lambda: 0.5}
    policy = RetryPolicy(backoff=Fixed(0.9), total_timeout=1.0)
    assert (await adapter.once([503, 200], policy=policy, **options)).status_code == 200
    assert clock.sleeps == pytest.approx([0.5])
    # Held: the first wait, and then the times until the probe is due.
    gate, began = RetryGate(), clock.monotonic()
    gate.bad(ORIGIN, began, sent_at=began, weight=2.0)
    policy = RetryPolicy(backoff=Fixed(0.9), total_timeout=1.2)
    assert (await adapter.once([503], policy=policy, gate=gate, **options)).status_code == 503
    assert clock.monotonic() - began <= 1.2


async def test_a_pool_survives_rounds_of_cut_offs(adapter, server):
    server.script("/hang", "hang")
    server.script("/thing", 200)
    ended = []

    async def cut_off(n):
        # One round by a timeout of each call's own, one by a deadline.
        is_own = len(ended) < 40
        with forbear.override(total_timeout=0.05) if is_own else forbear.deadline(0.05):
            with pytest.raises(adapter.DeadlineExceeded) as caught:
                await adapter.call(client, "GET", server.url + "/hang")
        ended.append(caught.value)

    async with adapter.client(**adapter.pool_of(10), budget=None) as client:
        for _ in range(2):
            await adapter.together(40, cut_off)
        assert len(ended) == 80
        assert (await adapter.call(client, "GET", server.url + "/thing")).status_code == 200
        assert adapter.is_idle(client)


@pytest.mark.smoke("async")
async def test_an_awaited_hook_is_inside_the_deadline(adapter, quickest):
    ended = []

    async def hook(request, attempt):
        try:
            await anyio.sleep(5)
        finally:
            ended.append(attempt)

    async def run():
        watched = adapter.watched([503, 200])
        options = {"policy": RetryPolicy(backoff=Fixed(0)), "before_attempt": hook}
        with forbear.deadline(0.05), pytest.raises(adapter.DeadlineExceeded) as caught:
            await adapter.once(watched, **options)
        # None where a busy machine needs all of it for the first attempt.
        assert (len(watched.requests), record_of(caught.value).reasons) in ((0, ()), (1, ("503",)))

    assert 0.045 <= await quickest(run, bound=0.1) <= 0.1
    assert set(ended) == {2}


DRIPPING = [f"200;body=160;drip={more}" for more in ("50", "400", "50;etag=v1", "50;chunked=1")]
DRIPPING.append("503;body=160;drip=50")


@pytest.mark.slow
@pytest.mark.adapters("urllib3-family")
@pytest.mark.parametrize("is_read", [True, False], ids=["call", "open"])
@pytest.mark.parametrize("step", ["hang", *DRIPPING])
async def test_a_deadline_ends_a_call_whatever_drips(adapter, server, quickest, step, is_read):
    server.script("/thing", step)
    async with adapter.client(policy=RetryPolicy(max_attempts=1)) as client:

        async def run():
            with forbear.deadline(0.1), pytest.raises(adapter.DeadlineExceeded) as caught:
                fetch = adapter.call if is_read else adapter.download
                await fetch(client, method="GET", url=server.url + "/thing")
            assert type(caught.value) is adapter.DeadlineExceeded
            assert forbear.record_of(caught.value).reason is Reason.DEADLINE
            if is_read or step == "hang":
                assert isinstance(caught.value.__cause__, adapter.transport_error)

        assert 0.09 <= await quickest(run, bound=0.17) <= 0.4


@family
async def test_no_connection_is_written_to_after_the_deadline(adapter, server, clock, monkeypatch):
    """A process that stood still once the connection was chosen; the client's own trace is heard."""
    server.script("/thing", 200)
    heard = []

    def trace(event, info):
        heard.append(event)
        return anyio.lowlevel.checkpoint() if adapter.is_async else None

    named = {"extensions": {"trace": trace, "forbear": {"total_timeout": 3}}}
    async with adapter.client(clock=clock) as client:
        assert (await adapter.call(client, "POST", server.url + "/thing", **named)).is_success
        assert any(event.endswith("send_request_headers.complete") for event in heard)
        pool = client._transport.inner._pool
        choose = pool._assign_requests_to_connections

        def stand_still():
            clock.advance(2)
            return choose()

        monkeypatch.setattr(pool, "_assign_requests_to_connections", stand_still)
        clock.advance(2)
        with forbear.deadline(2, clock=clock), pytest.raises(adapter.DeadlineExceeded):
            await adapter.call(client, "POST", server.url + "/thing", **named)
        monkeypatch.undo()
        assert len(server.requests("/thing")) == 1
        assert (await adapter.call(client, "GET", server.url + "/thing")).is_success


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("library", ["httpx", "aiohttp"])
def test_loops_that_take_turns_in_one_thread_keep_their_deadlines(server, library):
    """And their hedges. The second loop comes in while a call of the first one waits."""
    server.script("/drip", "drip;interval=5")
    server.script("/slow", "hang", 200)
    # The first one leaves a connection in the pool, from which the other loop cannot read.
    server.script("/quick", 200, "200;close=1")
    if library == "httpx":
        transport = AsyncRetryTransport(hedge=Hedge(delay=0.2, methods={"GET"}))
    else:
        transport = RetryMiddleware()

    async def status_of(url):
        if library == "httpx":
            return (await httpx.AsyncClient(transport=transport, timeout=None).get(url)).status_code
        async with aiohttp.ClientSession(middlewares=[transport]) as session:
            return (await session.get(url)).status

    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()

    async def call(path, seconds):
        with forbear.deadline(seconds):
            return await asyncio.wait_for(status_of(server.url + path), 60)

    def alternated(path, seconds):
        task = first.create_task(call(path, seconds))
        first.run_until_complete(asyncio.sleep(0.05))
        second.run_until_complete(call("/quick", 50))
        return first.run_until_complete(task)

    with closing(first), closing(second):
        if library == "httpx":
            assert (alternated("/slow", 50), len(server.requests("/slow"))) == (200, 2)
        with pytest.raises(forbear.DeadlineExceeded):
            alternated("/drip", 0.3)
