"""mcp against the faulting server: an answer that is a stream begins again."""

import anyio
import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCRequest

from forbear import EventStreams, RetryPolicy
from forbear.httpx2 import wrap
from forbear.testing import answer

from .stainless import events

ANSWER = ("message", {"jsonrpc": "2.0", "id": 1, "result": {"tools": []}})
EMPTY = answer("200;chunked=1", body=b"", headers={"Content-Type": "text/event-stream"})


def test_an_answer_that_ends_empty_is_requested_again(server, ungated):
    """One answer for the SDK, two requests."""
    server.script("/mcp", EMPTY, events(*ANSWER))
    policy = RetryPolicy(max_attempts=4, methods={"GET", "POST"})

    async def listed():
        http_client = wrap(httpx2.AsyncClient(), policy, event_streams=EventStreams(), **ungated)
        async with http_client:
            url = server.url + "/mcp"
            async with streamable_http_client(url, http_client=http_client) as (reads, writes, *_):
                request = JSONRPCRequest(jsonrpc="2.0", id=1, method="tools/list")
                await writes.send(SessionMessage(request))
                with anyio.fail_after(10):
                    return await reads.receive()

    found = anyio.run(listed)
    assert found.message.result == {"tools": []}
    assert len([one for one in server.requests() if one.method == "POST"]) == 2
