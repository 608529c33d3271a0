"""Pacing through every client: the quotas of good responses hold calls before the server has to."""

import socket
import threading
import time
from contextlib import contextmanager, suppress

import pytest

import forbear
from forbear import Pacing, RetryPolicy, record_of

pytestmark = pytest.mark.anyio
URL = "http://api.example.com/"
SPENT = {"RateLimit": '"default";r=0;t=8', "RateLimit-Policy": '"default";q=100;w=10'}
PLENTY = {"RateLimit": '"default";r=90;t=8', "RateLimit-Policy": '"default";q=100;w=10'}


@contextmanager
def counting_down(limit, seconds):
    """A server with a quota for each window, which it shows as openai does; yields what it saw."""
    seen, lock = {"sent": 0, "refused": 0, "left": limit, "since": None}, threading.Lock()
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)

    def serve(client):
        with suppress(OSError), client, client.makefile("rb") as lines:
            while line := lines.readline():
                while line.strip():
                    line = lines.readline()
                with lock:
                    now = time.monotonic()
                    if seen["since"] is None or now - seen["since"] >= seconds:
                        seen["since"], seen["left"] = now, limit
                    seen["sent"] += 1
                    is_over = seen["left"] == 0
                    seen["refused"] += is_over
                    seen["left"] -= not is_over
                    head = (
                        f"HTTP/1.1 {429 if is_over else 200} Some\r\nContent-Length: 2\r\n"
                        f"x-ratelimit-limit-requests: {limit}\r\n"
                        f"x-ratelimit-remaining-requests: {seen['left']}\r\n"
                        f"x-ratelimit-reset-requests: {seen['since'] + seconds - now:.4f}s\r\n\r\n"
                    )
                client.sendall(head.encode() + b"ok")

    def accept():
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=serve, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    seen["url"] = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    try:
        yield seen
    finally:
        listener.close()


@pytest.mark.smoke
async def test_a_quota_is_used_and_not_exceeded(adapter):
    """75 calls by 5 at a time, 30 per window: three windows, and hardly a 429."""
    policy, paced = RetryPolicy(max_attempts=10), []
    with counting_down(30, seconds=0.5) as seen:
        async with adapter.client(policy=policy, pacing=Pacing()) as client:

            async def some(n):
                for _ in range(15):
                    response = await adapter.call(client, "GET", seen["url"])
                    assert adapter.status(response) == 200
                    record = record_of(response)
                    paced.append(0.0 if record is None else record.paced)

            await adapter.together(5, some)
    assert seen["refused"] <= 2
    assert 0 < max(paced) <= 1.0


@pytest.mark.smoke
async def test_where_nothing_is_left_the_next_call_waits_for_the_window(adapter, quick):
    inner = [(200, SPENT), (200, PLENTY), (200, PLENTY)]
    clock = quick["clock"]
    async with adapter.client(inner, pacing=Pacing(), **quick) as client:
        began = clock.monotonic()
        await adapter.call(client, "GET", URL)
        assert clock.monotonic() == began
        response = await adapter.call(client, "GET", URL)
        assert 8 <= clock.monotonic() - began <= 10
        assert 8 <= record_of(response).paced <= 10
        paced_until = clock.monotonic()
        await adapter.call(client, "GET", URL)
        assert clock.monotonic() == paced_until


async def test_a_call_is_not_paced_beyond_its_deadline_or_for_other_tenants(adapter, quick):
    """It is sent at once then: the server says what becomes of it."""
    inner = [(200, SPENT)] * 4
    clock = quick["clock"]
    mine, theirs = ({"Authorization": f"Bearer {name}"} for name in ("mine", "theirs"))
    async with adapter.client(inner, pacing=Pacing(), **quick) as client:
        await adapter.call(client, "GET", URL, headers=mine)
        began = clock.monotonic()
        await adapter.call(client, "GET", URL, headers=theirs)
        with forbear.deadline(3.0, clock=clock):
            await adapter.call(client, "GET", URL, headers=mine)
        with forbear.override(hints="ignore"):
            await adapter.call(client, "GET", URL, headers=mine)
        assert clock.monotonic() == began


async def test_a_retry_is_paced_too(adapter, quick):
    inner = [(500, SPENT), (200, PLENTY)]
    clock = quick["clock"]
    began = clock.monotonic()
    async with adapter.client(inner, pacing=Pacing(), **quick) as client:
        record = record_of(await adapter.call(client, "GET", URL))
    assert len(record.attempts) == 2
    assert 8 <= clock.monotonic() - began <= 11
    assert record.paced == pytest.approx(clock.monotonic() - began - sum(record.waits))
