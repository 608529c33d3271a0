"""Pacing through every client: the quotas of good responses hold calls before the server has to."""

from itertools import count

import anyio
import httpx
import pytest

import forbear
from forbear import Pacing, record_of
from forbear.httpx import AsyncRetryTransport
from forbear.testing import FakeClock

pytestmark = pytest.mark.anyio
URL = "http://api.example.com/"
SPENT = {"RateLimit": '"default";r=0;t=8', "RateLimit-Policy": '"default";q=100;w=10'}
PLENTY = {"RateLimit": '"default";r=90;t=8', "RateLimit-Policy": '"default";q=100;w=10'}


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
