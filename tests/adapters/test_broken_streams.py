"""A body that breaks while its caller streams it, and cannot be resumed, breaks as without forbear."""

import logging

import pytest

import forbear
from forbear import Fixed, RetryPolicy

pytestmark = pytest.mark.anyio

POLICY = RetryPolicy(max_attempts=3, backoff=Fixed(0.0))
BROKEN = {
    "not resumable": ["cut:10;body=200000"],
    "of no told length": ["cut:10;body=200000;chunked=1"],
    "resumable, by POST": ["cut:10;body=200000;etag=v1"],
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_body_that_cannot_be_resumed_is_left_alone(adapter, server, name):
    server.script("/thing", *BROKEN[name])
    told, got = [], bytearray()
    method = "POST" if "POST" in name else "GET"
    async with adapter.client(policy=POLICY, on_event=[told.append]) as client:
        response = await adapter.open(client, method, server.url + "/thing")
        with pytest.raises(adapter.cut_error) as caught:
            await adapter.collect(response, got)
        await adapter.close(response)
    assert len(got) in (0, 10)  # what was in hand may be lost with the rest
    assert forbear.record_of(caught.value) is None
    assert told == []


async def test_a_stream_that_its_caller_ends_is_not_broken(adapter, server, caplog):
    server.script("/thing", "200;body=200000;drip=5")
    caplog.set_level(logging.INFO, "forbear")
    async with adapter.client(policy=POLICY) as client:
        response = await adapter.open(client, "GET", server.url + "/thing")
        await adapter.close(response)
    assert caplog.records == []
