"""Vendors whose word is in the body of a failed answer: it is read before the answer is judged."""

import gzip
import json

import pytest

import forbear
from forbear import Fixed, Reason, RetryPolicy, record_of

from .origin import Answer, Origin

pytestmark = pytest.mark.anyio

JSON = {"Content-Type": "application/json; charset=UTF-8"}
POLICY = RetryPolicy(backoff=Fixed(1.0), max_attempts=3)
INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}
WAIT = json.dumps({"error": {"code": 429, "details": [INFO], "why": "x" * 2000}}).encode()
SPENT = json.dumps({"error": {"code": "insufficient_quota", "why": "x" * 2000}}).encode()
ZIPPED = {**JSON, "Content-Encoding": "gzip"}
SEVEN = 7.875  # seconds: and half of a quarter of that on top


def busy(status=429, lines=JSON, content=WAIT, **named):
    return Answer(status=status, lines=lines, content=content, **named)


HINTS = {
    "known length": (busy(), SEVEN),
    "chunked": (busy(503, chunked=True), SEVEN),
    "gzip": (busy(lines=ZIPPED, content=gzip.compress(WAIT)), SEVEN),
    "a header wins": (busy(lines={**JSON, "Retry-After": "3"}), 3.375),
    "no JSON": (busy(lines=()), 1.0),
    "broken": (busy(chunked=True, cut=900), 1.0),
    "too long": (busy(content=WAIT + b" " * 65_536), 1.0),
}


async def test_the_delay_in_the_body_is_the_servers_hint(adapter, quick):
    options = {"policy": POLICY.for_vendors("google"), **quick}
    for name, (answer, waited) in HINTS.items():
        quick["clock"].sleeps.clear()
        with Origin(b"ok", [answer, Answer()]) as origin:
            async with adapter.client(**options) as client:
                response = await adapter.call(client, "GET", origin.url)
                assert response.content == b"ok"
        assert sum(quick["clock"].sleeps) == pytest.approx(waited), name


@pytest.mark.smoke
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_no_in_the_body_ends_the_call_and_the_body_is_the_callers(adapter, quick, chunked):
    options = {"policy": POLICY.for_vendors("openai"), **quick}
    answer = Answer(status=429, lines=JSON, content=SPENT, chunked=chunked)
    with Origin(b"", [answer]) as origin:
        async with adapter.client(**options) as client:
            response = await adapter.call(client, "GET", origin.url)
            assert response.content == SPENT
            streamed = await adapter.open(client, "GET", origin.url)
            assert await adapter.read(streamed) == SPENT
    assert record_of(response).reason is record_of(streamed).reason is Reason.SERVER_SAID_NO
    assert len(origin.requests) == 2


async def test_a_policy_without_vendors_reads_no_word(adapter, quick):
    options = {"policy": POLICY, **quick}
    with Origin(b"", [Answer(status=429, lines=JSON, content=SPENT)]) as origin:
        async with adapter.client(**options) as client:
            await adapter.call(client, "GET", origin.url)
            assert len(origin.requests) == 3
            with forbear.override(vendors=["openai"]):
                await adapter.call(client, "GET", origin.url)
            assert len(origin.requests) == 4
