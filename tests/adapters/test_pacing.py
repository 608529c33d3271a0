"""Pacing through every client: the quotas of good responses hold calls before the server has to."""

import pytest

import forbear
from forbear import Pacing, record_of

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
