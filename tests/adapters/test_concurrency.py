"""Slots: taken right before an attempt is sent, given back when it is over, and lost nowhere."""

import asyncio
import gc
import threading
import time
from contextlib import nullcontext

import anyio
import httpx
import pytest

import forbear
from forbear import Exponential, Fixed, Hedge, Pacing, Reason, RetryPolicy, record_of
from forbear.httpx import AsyncRetryTransport, RetryTransport
from forbear.testing.steps import parse_step

from ..lanes.lane import run_at_once
from ..sockets import Listening, head_from
from .test_hedging import eventually

QUICK = RetryPolicy(backoff=Exponential(base=0.01, cap=0.02, fast_first=0.01))


class Counting(Listening):
    """A server that counts what is in flight; if it stalls, most of a body waits for ``pause``."""

    def __init__(self, seconds=0.0, *, stalls=False, lines=b""):
        self.seconds, self.lines = seconds, lines
        self.in_flight = self.most = self.requests = 0
        self.body, self.pause = b"x" * 100_000 if stalls else b"ok", threading.Event()
        if not stalls:
            self.pause.set()
        super().__init__()

    def stop(self):
        self.pause.set()
        super().stop()

    def serve(self, sock, number):
        while head_from(sock):
            with self.lock:
                self.requests += 1
                self.in_flight += 1
                self.most = max(self.most, self.in_flight)
            try:
                time.sleep(self.seconds)
                length = b"Content-Length: %d\r\n\r\n" % len(self.body)
                rest = b"HTTP/1.1 200 Some\r\n" + self.lines + length + self.body
                if not self.pause.is_set():
                    sock.sendall(rest[: 1 - len(self.body)])
                    self.pause.wait(30)
                    rest = self.body[1:]
            finally:
                with self.lock:  # before the last bytes, at which a client sends the next one
                    self.in_flight -= 1
            sock.sendall(rest)


def bulkhead(most=1, **options):
    return forbear.ConcurrencyLimit(most, adaptive=False, **options)


def is_free(limit):
    return (limit.in_flight(), limit.waiting()) == (0, 0)


async def test_a_bulkhead_is_never_exceeded(adapter):
    limit, events = bulkhead(4), []
    with Counting(0.02) as server:
        options = {"policy": QUICK, "concurrency": limit, "on_event": [events.append]}
        async with adapter.client(**options) as client:

            async def one(n):
                response = await adapter.call(client, "GET", f"{server.url}/{n}")
                assert adapter.status(response) == 200

            await adapter.together(30, one)
    assert server.most == 4
    assert is_free(limit)
    delayed = [event for event in events if event.name == "attempt_delayed"]
    assert {event.limit for event in delayed} == {"concurrency"}
    assert sum(event.attempt == 1 for event in delayed) <= 26, "the first four never wait"


@pytest.mark.parametrize("way", ["closed", "dropped"])
async def test_a_body_that_is_not_read_gives_its_slot_back(adapter, way):
    limit = bulkhead()
    with Counting(stalls=True) as server:
        async with adapter.client(concurrency=limit) as client:
            response = await adapter.open(client, "GET", server.url)
            assert limit.in_flight() == 1
            if way == "closed":
                await adapter.close(response)
            elif adapter.name == "aiohttp":
                server.pause.set()  # its connection keeps it until the body has come
            del response
            assert await eventually(lambda: gc.collect() >= 0 and is_free(limit))


@pytest.mark.smoke
@pytest.mark.parametrize(("releases", "kind", "in_flight"), [
    (None, "text/event-stream; charset=utf-8", 0), (None, "application/octet-stream", 1),
    ("headers", "application/octet-stream", 0), ("body", "text/event-stream", 1),
])  # fmt: skip
async def test_which_bodies_keep_their_slot_until_they_are_read(adapter, releases, kind, in_flight):
    limit = bulkhead(releases=releases)
    with Counting(stalls=True, lines=b"Content-Type: " + kind.encode() + b"\r\n") as server:
        async with adapter.client(concurrency=limit) as client:
            response = await adapter.open(client, "GET", server.url)
            assert limit.in_flight() == in_flight
            server.pause.set()
            await adapter.read(response)
            assert is_free(limit)
            await adapter.close(response)


async def test_a_body_that_breaks_has_no_slot_while_the_rest_is_requested(adapter, server):
    server.script("/file", "cut:100000;body=200000;etag=a", "200;body=200000;etag=a")
    limit = bulkhead()
    async with adapter.client(policy=QUICK, concurrency=limit) as client:
        with anyio.fail_after(60):
            response = await adapter.download(client, server.url + "/file")
        await adapter.close(response)
    assert response.content == parse_step("200;body=200000").content
    assert len(server.requests("/file")) == 2
    assert is_free(limit)


@pytest.mark.smoke
@pytest.mark.timeout(60)
@pytest.mark.parametrize("takes", ["slot", "permit"])
async def test_before_attempt_may_send_by_its_own_client(adapter, server, quick, takes):
    server.script("/x", 503, 200)
    server.script("/login", 200)
    limit = bulkhead()
    options = {"concurrency": limit} if takes == "slot" else {"breaker": forbear.CircuitBreaker(1)}

    async def log_in(request, attempt):
        response = await adapter.call(client, "GET", server.url + "/login")
        assert adapter.status(response) == 200
        request.headers["X-Token"] = "fresh"

    hook = log_in if adapter.is_async else lambda *given: run_at_once(log_in(*given))
    options["before_attempt"] = hook
    policy = RetryPolicy(backoff=Fixed(2))  # the circuit is open for less
    async with adapter.client(policy=policy, **options, **quick) as client:
        response = await adapter.call(client, "GET", server.url + "/x")
    assert adapter.status(response) == 200
    assert [dict(each.headers).get("X-Token") for each in server.requests("/x")] == [None, "fresh"]
    assert is_free(limit)


@pytest.mark.smoke
@pytest.mark.parametrize("is_full", [False, True], ids=["deadline", "full"])
async def test_what_ends_in_the_queue_or_before_sends_nothing(adapter, is_full):
    limit = bulkhead(max_waiting=0) if is_full else bulkhead()
    expected = adapter.CircuitOpenError if is_full else adapter.DeadlineExceeded
    with Counting(stalls=True) as server:
        async with adapter.client(concurrency=limit) as client:
            first = await adapter.open(client, "GET", server.url)
            with forbear.deadline(60 if is_full else 0.1), pytest.raises(expected) as caught:
                await adapter.call(client, "GET", server.url)
            assert caught.value.reason is Reason.CONCURRENCY_LIMIT
            assert record_of(caught.value).attempts == ()
            assert (server.requests, limit.waiting(), limit.in_flight()) == (1, 0, 1)
            await adapter.close(first)
    assert is_free(limit)


@pytest.mark.smoke("async")
async def test_a_cancelled_call_leaves_the_queue_and_its_slot(adapter):
    limit = bulkhead()
    with Counting(0.2) as server:
        async with adapter.client(concurrency=limit) as client:
            async with anyio.create_task_group() as group:

                async def call():
                    await adapter.call(client, "GET", server.url)

                for _ in range(5):
                    group.start_soon(call)
                assert await eventually(lambda: (limit.in_flight(), limit.waiting()) == (1, 4))
                group.cancel_scope.cancel()
            assert is_free(limit)
            assert adapter.status(await adapter.call(client, "GET", server.url)) == 200


@pytest.mark.lanes("httpx-asyncio")
async def test_a_hedge_takes_a_slot_and_is_not_sent_without_one(adapter):
    for most in (1, 2):
        limit, peak, requests = bulkhead(most), [], []

        async def slow(request, limit=limit, peak=peak, requests=requests):
            requests.append(request)
            await anyio.sleep(0.1 if len(requests) == 1 else 0.02)
            peak.append(limit.in_flight())
            return adapter.library.Response(200)

        options = {"hedge": Hedge(delay=0.02, at_least=0.0, burst=5), "concurrency": limit}
        response = await adapter.once(adapter.library.MockTransport(slow), **options)
        assert response.is_success
        assert (len(requests), max(peak)) == (most, most)
        assert is_free(limit)


def broken_scope(request):
    raise OSError("a table of tenants is gone")


@pytest.mark.parametrize(
    ("scope", "in_flight"),
    [(lambda request: request.header("X-Tenant"), 2), (lambda _: "all", 1), (broken_scope, 1)],
    ids=["tenant", "all", "broken"],
)
async def test_a_function_says_who_shares_slots_and_quotas(adapter, caplog, scope, in_flight):
    limit = bulkhead(scope=scope, max_waiting=0)
    with Counting(stalls=True) as server:
        async with adapter.client(concurrency=limit, pacing=Pacing(scope=scope)) as client:
            first = await adapter.open(client, "GET", server.url, headers={"X-Tenant": "blue"})
            with nullcontext() if in_flight == 2 else pytest.raises(adapter.CircuitOpenError):
                headers = {"X-Tenant": "red"}
                other = await adapter.open(client, "GET", server.url, headers=headers)
                await adapter.close(other)
            await adapter.close(first)
    assert is_free(limit)
    assert sum("scope" in line for line in caplog.messages) == (scope is broken_scope)


@pytest.mark.lanes("httpx-asyncio")
@pytest.mark.parametrize("options", [{}, {"pacing": Pacing()}], ids=["alone", "paced"])
async def test_the_wait_of_a_retry_for_its_slot_is_no_part_of_its_waits(options):
    limit, sent = bulkhead(), []

    async def answer(request):
        sent.append(request.url.path)
        if request.url.path == "/slow":
            with anyio.fail_after(5):
                while not limit.waiting():
                    await anyio.sleep(0.001)
        return httpx.Response(503 if sent == ["/"] else 200)

    policy = RetryPolicy(backoff=Fixed(0.01), total_timeout=10)
    inner = httpx.MockTransport(answer)
    transport = AsyncRetryTransport(inner, policy=policy, concurrency=limit, **options)
    async with httpx.AsyncClient(transport=transport, base_url="http://a") as client:
        call = asyncio.create_task(client.get("/"))
        while limit.in_flight() or not sent:  # until it waits for its retry
            await anyio.sleep(0)
        await client.get("/slow")
        record = record_of(await call)
    assert sent == ["/", "/slow", "/"]
    assert record.waits == (0.01,)
    assert record.waited_for_slot > 0
    assert is_free(limit)


@pytest.mark.lanes("httpx-asyncio")
async def test_several_loops_and_threads_share_one_limit(adapter):
    limit = bulkhead(3)
    with Counting(0.005) as server:

        def in_loop():
            async def calls():
                transport = AsyncRetryTransport(concurrency=limit)
                async with httpx.AsyncClient(transport=transport) as client:
                    found = await asyncio.gather(*(client.get(server.url) for _ in range(20)))
                assert {response.status_code for response in found} == {200}

            asyncio.run(calls())

        def in_thread():
            with httpx.Client(transport=RetryTransport(concurrency=limit)) as client:
                assert {client.get(server.url).status_code for _ in range(10)} == {200}

        async with anyio.create_task_group() as group:
            for function in (in_loop, in_thread, in_loop, in_thread):
                group.start_soon(anyio.to_thread.run_sync, function)
    assert server.most <= 3
    assert is_free(limit)
