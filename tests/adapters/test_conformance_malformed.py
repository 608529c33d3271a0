"""P8: nothing a server sends can crash the client, stall it, or be injected through it."""

import contextlib

import pytest

from forbear import Fixed, IdempotencyKeys, RetryPolicy

from ..lanes import URL

NOW = RetryPolicy(backoff=Fixed(0))


async def test_odd_statuses_are_final(adapter, quick):
    statuses = [600, 999, 499, 100, 0]
    async with adapter.client(statuses, **quick) as client:
        assert [(await adapter.call(client, "GET", URL)).status_code for _ in statuses] == statuses
    assert quick["clock"].sleeps == []


MAD = [
    "garbage",
    "503;header=Retry-After:%FF%FE",
    "429;header=Retry-After:9999999999999999999999",
    "503;header=Retry-After:-1;header=Retry-After:zero",
    "503;header=X-Long:" + "x" * 20000,
    "503;header=Transfer-Encoding:chunked",
    "503;header=Content-Length:5;header=Content-Length:6",
    "cut:0",
    "reset-body:0",
]


@pytest.mark.slow
async def test_a_server_that_is_out_of_its_mind(adapter, server, quick):
    server.script("/sane", 200)
    policy, settings = NOW.replace(max_attempts=2), adapter.reading_for(0.5)
    async with adapter.client(policy=policy, settings=settings, **quick) as client:
        for number, step in enumerate(MAD):
            server.script(f"/{number}", step)
            with contextlib.suppress(adapter.transport_error):
                await adapter.call(client, "GET", f"{server.url}/{number}")
            assert (await adapter.call(client, "GET", server.url + "/sane")).status_code == 200
            assert 1 <= len(server.requests(f"/{number}")) <= 2


@pytest.mark.adapters("httpx-family")
async def test_nothing_of_an_answer_is_sent_back(adapter, quick):
    theirs = dict.fromkeys(("Idempotency-Key", "From", "Authorization"), "theirs")
    inner = adapter.watched([(503, theirs), 200])
    options = {"idempotency": IdempotencyKeys(), "policy": NOW}
    await adapter.once(inner, "POST", **options, **quick)
    first, second = (dict(request.headers) for request in inner.requests)
    assert first == second
    assert "theirs" not in second.values()
