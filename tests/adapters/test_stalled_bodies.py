"""Bodies that stall while forbear reads them: a failed one is read for a quarter of a second.
What waited for more than forbear's own time would take the 60 s for which the client waits here.
"""

import functools
import gzip
import json
import sys
import threading
import time

import pytest

from forbear import Fixed, RetryGate, RetryPolicy, record_of
from forbear.addons.inspection import MOST_BYTES, BodyNotShown, inflated, undone

from ..sockets import Listening, head_from

JSON = "Content-Type: application/json\r\n"
CHUNKED = JSON + "Transfer-Encoding: chunked\r\n"
LONG = 30  # seconds; half of the client's own timeout
# How the head frames a body of 8 bytes, and where it stalls.
STALLS = {
    "length, before": (JSON + "Content-Length: 8\r\n", b"", b'{"a": 1}'),
    "length, inside": (JSON + "Content-Length: 8\r\n", b'{"a"', b": 1}"),
    "chunked, before": (CHUNKED, b"", b'8\r\n{"a": 1}\r\n0\r\n\r\n'),
    "chunked, inside": (CHUNKED, b'8\r\n{"a"', b": 1}\r\n0\r\n\r\n"),
    "chunked, between": (CHUNKED, b'4\r\n{"a"\r\n', b"4\r\n: 1}\r\n0\r\n\r\n"),
    "chunked, at the end": (CHUNKED, b'8\r\n{"a": 1}', b"\r\n0\r\n\r\n"),
}


class Stalling(Listening):
    """Answers with a part of a body, whose rest comes when ``go`` is set; later with 200."""

    def __init__(self, status, head, part, rest=b"", times=10**6):
        self.answer = f"HTTP/1.1 {status} Made\r\n{head}\r\n".encode() + part
        self.rest, self.times, self.go = rest, times, threading.Event()
        self.requests = 0
        super().__init__()

    def stop(self):
        self.go.set()
        super().stop()

    def serve(self, sock, number):
        while head_from(sock):
            self.requests += 1
            if self.requests > self.times:
                sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                continue
            sock.sendall(self.answer)
            if self.rest:
                self.go.wait(120)
                sock.sendall(self.rest)


@pytest.mark.smoke
async def test_a_failed_body_that_stalls_is_drained_no_longer(adapter, elapsed):
    for head, part, _ in (STALLS["chunked, inside"], STALLS["chunked, between"]):
        with Stalling(503, head, part, times=1) as server:
            settings, policy = adapter.reading_for(60), RetryPolicy(backoff=Fixed(0))
            elapsed()
            response = await adapter.once(url=server.url, settings=settings, policy=policy)
            assert elapsed() < LONG
            assert response.status_code == 200
            assert "urllib3-family" in adapter.words or server.wait_for_open(0)


@pytest.mark.smoke
async def test_a_held_call_keeps_the_head_of_a_body_that_stalls(adapter, elapsed):
    head, part, _ = STALLS["chunked, inside"]
    policy = RetryPolicy(backoff=Fixed(0), patience=0.3)
    with Stalling(503, head, part) as server:
        options = {"settings": adapter.reading_for(60), "policy": policy, "gate": RetryGate()}
        async with adapter.client(**options) as client:
            now = elapsed() and time.monotonic()
            options["gate"].bad(server.url, now, sent_at=now, weight=2.0)
            response = await adapter.call(client, "GET", server.url)
            assert elapsed() < LONG
            assert (response.status_code, response.content or b"") == (503, b"")
            assert record_of(response).held > 0
            assert server.wait_for_open(0)


ONCE = RetryPolicy(max_attempts=1)
VENDORS = {"policy": ONCE.for_vendors("openai")}
# For retry_if, a body of known length is waited for as long as the client waits.
LOOKERS = [
    *(("vendors", name) for name in STALLS),
    ("retry_if", "chunked, inside"), ("retry_if", "chunked, at the end"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.adapters("plain-bodies")
@pytest.mark.parametrize(("looker", "stall"), LOOKERS)
async def test_a_body_that_stalls_under_a_look_is_the_callers(adapter, elapsed, looker, stall):
    seen = []

    def look(response):
        seen.append(1)
        return response.json() and None

    options = VENDORS if looker == "vendors" else {"policy": ONCE, "retry_if": look}
    with Stalling(429, *STALLS[stall]) as server:
        async with adapter.client(settings=adapter.reading_for(60), **options) as client:
            elapsed()
            response = await adapter.open(client, "GET", server.url)
            assert elapsed() < LONG
            server.go.set()
            assert await adapter.read(response) == b'{"a": 1}'
            await adapter.close(response)
    assert len(seen) == (looker == "retry_if")


@functools.cache
def bomb_in(coding):
    large = json.dumps({"error": " " * 40_000_000}).encode()
    if coding == "gzip":
        return gzip.compress(large)
    if coding == "br":
        return pytest.importorskip("brotli").compress(large, quality=5)
    compress = pytest.importorskip("zstandard").compress
    return compress(b"  ") + compress(large)  # two frames, of which the first is small


@pytest.mark.slow
@pytest.mark.parametrize("case", ["retry_if gzip", "retry_if br", "retry_if zstd", "vendors gzip"])
async def test_no_more_is_decoded_than_is_shown(adapter, case):
    """40 KB of gzip would make 40 MB, less of others. The caller gets the body as it came."""
    tracemalloc, (looker, coding) = pytest.importorskip("tracemalloc"), case.split()
    bomb = bomb_in(coding)
    head = f"{JSON}Content-Encoding: {coding}\r\nContent-Length: {len(bomb)}\r\n"

    async def read(response):
        await (response.read() if adapter.name == "aiohttp" else response.aread())

    def look(response):
        if adapter.is_async:
            return read(response)
        return (getattr(response, "data", None) or response.content) and None

    options = VENDORS if looker == "vendors" else {"policy": ONCE, "retry_if": look}
    with Stalling(429, head, bomb) as server:
        async with adapter.client(**options) as client:
            tracemalloc.start()
            try:
                response = await adapter.open(client, "GET", server.url)
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            await adapter.close(response)
    assert adapter.status(response) == 429
    assert peak < 10_000_000, peak


def test_a_body_is_undone_by_whatever_the_client_has_loaded(monkeypatch):
    assert inflated(b"plain") == b"plain"
    assert inflated(gzip.compress(b"first") + b"junk") == b"first"
    zstd = pytest.importorskip("backports.zstd")
    two = zstd.compress(b"first") + zstd.compress(b"x" * 10_000_000)
    monkeypatch.delitem(sys.modules, "zstandard", raising=False)
    assert undone("zstd", two)[:5] == b"first"
    assert len(undone("zstd", two)) == MOST_BYTES + 1
    with pytest.raises(BodyNotShown):
        undone("zstd", b"junk")
    monkeypatch.delitem(sys.modules, "backports.zstd")
    assert undone("zstd", two) == two, "nobody can undo it"
