"""Pacing through every client: the quotas of good responses hold calls before the server has to."""

import math
import time
from datetime import UTC, datetime
from itertools import count

import anyio
import httpx
import pytest

import forbear
from forbear import Pacing, RetryPolicy, record_of
from forbear.httpx import AsyncRetryTransport
from forbear.testing import FakeClock

from ..sockets import Listening, head_from

pytestmark = pytest.mark.anyio
URL = "http://api.example.com/"
SPENT = {"RateLimit": '"default";r=0;t=8', "RateLimit-Policy": '"default";q=100;w=10'}
PLENTY = {"RateLimit": '"default";r=90;t=8', "RateLimit-Policy": '"default";q=100;w=10'}


class CountingDown(Listening):
    """A server with a quota for each window, which it shows as openai does.

    Attributes:
        sent, refused: How many requests came, and how many of them were one too many.
        since: When the window began.
    """

    def __init__(self, limit, seconds):
        self.limit, self.seconds = limit, seconds
        self.sent, self.refused, self.left, self.since = 0, 0, limit, None
        super().__init__()

    def serve(self, sock, number):
        while head_from(sock):
            with self.lock:
                now = time.monotonic()
                if self.since is None or now - self.since >= self.seconds:
                    self.since, self.left = now, self.limit
                self.sent += 1
                is_over = self.left == 0
                self.refused += is_over
                self.left -= not is_over
                head = (
                    f"HTTP/1.1 {429 if is_over else 200} Some\r\nContent-Length: 2\r\n"
                    f"x-ratelimit-limit-requests: {self.limit}\r\n"
                    f"x-ratelimit-remaining-requests: {self.left}\r\n"
                    f"x-ratelimit-reset-requests: {self.since + self.seconds - now:.4f}s\r\n\r\n"
                )
            sock.sendall(head.encode() + b"ok")


@pytest.mark.slow
@pytest.mark.lanes("httpx-sync", "aiohttp-asyncio")
async def test_a_quota_is_used_and_not_exceeded(adapter):
    """75 calls by 5 at a time, 30 per window: three windows, and hardly a 429."""
    policy, paced = RetryPolicy(max_attempts=10), []
    with CountingDown(30, seconds=0.5) as server:
        async with adapter.client(policy=policy, pacing=Pacing()) as client:

            async def some(n):
                for _ in range(15):
                    response = await adapter.call(client, "GET", server.url)
                    assert adapter.status(response) == 200
                    record = record_of(response)
                    paced.append(0.0 if record is None else record.paced)

            await adapter.together(5, some)
    assert server.refused <= 2
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


@pytest.mark.lanes("httpx-asyncio")
async def test_a_quota_that_is_nearly_used_up_ends_no_call_at_its_deadline(adapter):
    """All of them are sent before it: what the header says may be wrong."""
    clock = FakeClock()

    async def inner(request):
        await clock.asleep(0.05)
        lines = shown(5, 60, **{"RateLimit-Policy": '"default";q=100;w=60'})
        return httpx.Response(200, headers=lines, content=b"ok")

    policy = RetryPolicy(total_timeout=3.0)
    paced = await called(inner, clock, 40, policy=policy, pacing=Pacing())
    assert 2 < max(paced) < 3


async def test_a_retry_is_paced_too(adapter, quick):
    inner = [(500, SPENT), (200, PLENTY)]
    clock = quick["clock"]
    began = clock.monotonic()
    async with adapter.client(inner, pacing=Pacing(), **quick) as client:
        record = record_of(await adapter.call(client, "GET", URL))
    assert len(record.attempts) == 2
    assert 8 <= clock.monotonic() - began <= 11
    assert record.paced == pytest.approx(clock.monotonic() - began - sum(record.waits))


def of_the_draft(left, seconds, clock):
    """Whole seconds, of which a fraction is dropped, as most servers do."""
    return {
        "RateLimit": f'"default";r={left};t={int(seconds)}',
        "RateLimit-Policy": '"default";q=100;w=10',
    }


def of_the_draft_rounded_up(left, seconds, clock):
    return {"RateLimit": f'"default";r={left};t={math.ceil(seconds)}'}


def of_github(left, seconds, clock):
    reset = str(int(clock.time() + seconds))
    found = {"X-RateLimit-Limit": "100", "X-RateLimit-Remaining": str(left)}
    return found | {"X-RateLimit-Reset": reset}


def of_openai(left, seconds, clock):
    """Durations, and tokens of which a call takes few."""
    reset = f"{seconds:.3f}s" if seconds >= 1 else f"{int(seconds * 1000)}ms"
    found = {}
    for what, limit, rest in (("requests", 100, left), ("tokens", 40_000, 40_000 - left)):
        found[f"x-ratelimit-limit-{what}"] = str(limit)
        found[f"x-ratelimit-remaining-{what}"] = str(rest)
        found[f"x-ratelimit-reset-{what}"] = reset
    return found


def of_anthropic(left, seconds, clock):
    at = datetime.fromtimestamp(int(clock.time() + seconds), UTC)
    return {
        "anthropic-ratelimit-requests-limit": "100",
        "anthropic-ratelimit-requests-remaining": str(left),
        "anthropic-ratelimit-requests-reset": f"{at:%Y-%m-%dT%H:%M:%SZ}",
    }


class Quota:
    """A server in virtual time that takes 100 requests in each 10 s and shows what is left."""

    def __init__(self, shows, began_before):
        self.clock, self.shows = FakeClock(), shows
        self.refused, self.left = 0, 100
        self.window_at = self.clock.monotonic() - began_before

    async def __call__(self, request):
        await self.clock.asleep(0.02)
        while self.clock.monotonic() >= self.window_at + 10:
            self.window_at, self.left = self.window_at + 10, 100
        is_over = self.left == 0
        self.refused += is_over
        self.left -= not is_over
        lines = self.shows(self.left, self.window_at + 10 - self.clock.monotonic(), self.clock)
        await self.clock.asleep(0.03)
        return httpx.Response(429 if is_over else 200, headers=lines, content=b"ok")


async def called(inner, clock, calls, *, tasks=20, **options):
    """Seconds for which each of some calls was paced, made by tasks that make the next at once."""
    transport = AsyncRetryTransport(httpx.MockTransport(inner), clock=clock, **options)
    numbers, paced = count(), []
    async with httpx.AsyncClient(transport=transport) as client:

        async def worker():
            while next(numbers) < calls:
                response = await client.get(URL)
                assert response.status_code == 200
                record = record_of(response)
                paced.append(0.0 if record is None else record.paced)

        async with anyio.create_task_group() as group:
            for _ in range(tasks):
                group.start_soon(worker)
    assert len(paced) == calls
    return paced


@pytest.mark.slow
@pytest.mark.lanes("httpx-asyncio")
@pytest.mark.parametrize(
    ("shows", "began_before"),
    [
        (of_the_draft, 0.0), (of_the_draft_rounded_up, 3.7), (of_github, 3.7), (of_openai, 0.0),
        (of_anthropic, 3.7),
    ],
)  # fmt: skip
async def test_three_hundred_calls_at_a_hundred_per_window_get_no_429(adapter, shows, began_before):
    """Three windows, of which the last one is not needed to its end."""
    server = Quota(shows, began_before)
    began = server.clock.monotonic()
    paced = await called(server, server.clock, 300, pacing=Pacing())
    assert server.refused == 0
    assert server.clock.monotonic() - began <= 25
    assert max(paced) <= 11.002


def shown(left, seconds, **more):
    return {"RateLimit": f'"default";r={left};t={seconds}'} | more


LYING = {
    "nothing is ever left": [shown(0, 10)],
    "the end is always far": [shown(0, 10), shown(1, 10), shown(0, 9)],
    "missing now and then": [shown(0, 8), {}, shown(0, 10), {}],
    "negative": [shown(-5, 10), shown(0, -10), shown(-1, -1)],
    "huge": [shown("9" * 15, "9" * 15), shown(0, "9" * 15), shown(0, 10**9), shown("9" * 400, 5)],
    "a year": [shown(0, 31_536_000), shown(1, 31_535_999)],
    "jumping": [shown(90, 10), shown(0, 10), shown(3, 1), shown(100, 1), shown(0, 2)],
    "growing": [shown(number, 10) for number in range(0, 100, 7)],
    "no numbers": [shown("x", "y"), {"RateLimit": "\x00(("}, shown(0.5, 1.5)],
    "two that differ": [{"RateLimit": '"a";r=0;t=10, "b";r=100;t=1'}, {"RateLimit": '"a";r=1;t=1'}],
    "a policy that does not fit": [shown(0, 10, **{"RateLimit-Policy": '"default";q=1;w=10'})],
    "GitHub's in the past": [{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1000000000"}],
    "openai's without an end": [
        {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "-"},
        {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "10s"},
    ],
}


@pytest.mark.lanes("httpx-asyncio")
@pytest.mark.parametrize("lines", LYING.values(), ids=LYING)
async def test_no_header_lets_a_call_wait_longer_than_a_window(adapter, lines):
    """Of 10 s, and the second to which its end may have been rounded; the server refuses none."""
    clock, responses = FakeClock(), count()

    async def inner(request):
        await clock.asleep(0.05)
        headers = [
            (name, value.encode("latin-1"))
            for name, value in lines[next(responses) % len(lines)].items()
        ]
        return httpx.Response(200, headers=headers, content=b"ok")

    assert max(await called(inner, clock, 30, tasks=5, pacing=Pacing())) <= 11.002
