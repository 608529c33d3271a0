"""A body that breaks while its caller streams it, and stays broken.

The library's own error has the story as its record and its note, and listeners and the log hear of
it once, though the call had succeeded at the hand-over; not where forbear leaves such bodies alone.
"""

import logging

import pytest

import forbear
from forbear import Fixed, Reason, RetryPolicy
from forbear.strategies import Phase

pytestmark = pytest.mark.anyio

LEFT_ALONE = (
    "aiohttp",
    "httpx",
    "httpx2",
)  # clients whose bodies are their own, unless they can be resumed
POLICY = RetryPolicy(max_attempts=3, backoff=Fixed(0.0))
# What the server sends, and the last attempts of the story.
BROKEN = {
    "not resumable": (["cut:10;body=200000"], []),
    "of no told length": (["cut:10;body=200000;chunked=1"], []),
    "resumable, by POST": (["cut:10;body=200000;etag=v1"], []),
    "after a retry": (["503", "cut:10;body=200000"], ["503"]),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_body_that_stays_broken_is_told(adapter, server, caplog, name):
    steps, before = BROKEN[name]
    server.script("/thing", *steps)
    told, got = [], bytearray()
    caplog.set_level(logging.INFO, "forbear")
    method = "POST" if "POST" in name else "GET"
    async with adapter.client(policy=POLICY, on_event=[told.append]) as client:
        response = await adapter.open(client, method, server.url + "/thing")
        with pytest.raises(adapter.cut_error) as caught:
            await adapter.collect(response, got)
        await adapter.close(response)
    assert len(got) in (0, 10)  # what was in hand may be lost with the rest
    record = forbear.record_of(caught.value)
    if adapter.name in LEFT_ALONE:
        assert record is None
        assert [event.name for event in told if event.name == "gave_up"] == []
        return
    assert [*before, record.attempts[-1].error] == list(record.reasons)
    assert record.attempts[-1].phase is Phase.ANSWERED
    assert (record.method, record.reason) == (method, Reason.RESPONSE_DELIVERED)
    assert caught.value.__notes__ == [f"forbear: {record}"]
    count = len(before) + 1
    ends = [event for event in told if event.name == "gave_up"]
    assert [(event.reason, event.attempts) for event in ends] == [(record.reason, count)]
    lines = [line.getMessage() for line in caplog.records if "gave up" in line.getMessage()]
    assert [line.rpartition(": ")[2] for line in lines] == ["response-delivered"]


async def test_a_stream_that_its_caller_ends_is_not_broken(adapter, server, caplog):
    server.script("/thing", "200;body=200000;drip=5")
    caplog.set_level(logging.INFO, "forbear")
    async with adapter.client(policy=POLICY) as client:
        response = await adapter.open(client, "GET", server.url + "/thing")
        await adapter.close(response)
    assert caplog.records == []
