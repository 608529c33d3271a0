"""A body that forbear has read before its caller (for a hint, ``retry_if``, a held call or a first
event) is whole in every way of reading it, and ends.
"""

import io

import pytest

from forbear import EventStreams, Fixed, RetryGate, RetryPolicy

from .origin import Answer, Origin
from .test_resume_streamed import WAYS

JSON = {"Content-Type": "application/json"}
EVENTS = {"Content-Type": "text/event-stream"}
BODY = b'{"error": {"code": "insufficient_quota"},\n\n "why": "' + b"x" * 5000 + b'"}\n'
POLICY = RetryPolicy(backoff=Fixed(0.0), max_attempts=2, patience=0.5)
SYNC = {
    "read": lambda r: [r.read()],
    "iter_bytes": lambda r: r.iter_bytes(),
    "iter_bytes(n)": lambda r: r.iter_bytes(7),
    "iter_raw": lambda r: r.iter_raw(),
    "iter_text": lambda r: (text.encode() for text in r.iter_text()),
}
ASYNC = {
    "aread": lambda r: once(r.aread),
    "aiter_bytes": lambda r: r.aiter_bytes(),
    "aiter_bytes(n)": lambda r: r.aiter_bytes(7),
    "aiter_raw": lambda r: r.aiter_raw(),
}
AIOHTTP = {
    "read": lambda r: once(r.response.read),
    "content.read": lambda r: once(r.content.read),
    "content.read(n)": lambda r: until_empty(lambda: r.content.read(7)),
    "readany": lambda r: until_empty(r.content.readany),
    "readline": lambda r: until_empty(r.content.readline),
    "readchunk": lambda r: (piece async for piece, _ in r.content.iter_chunks()),
    "readexactly": lambda r: once(lambda: r.content.readexactly(len(BODY))),
    "iter_chunked": lambda r: r.content.iter_chunked(7),
    "lines": lambda r: r.content,
}
MORE = {
    "stream(1)": lambda r: r.raw.stream(1),
    "buffered": lambda r: [io.BufferedReader(r.raw).read()],
    "read, stream-none": lambda r: [r.raw.read(), *r.raw.stream(None)],
}


async def once(read):
    yield await read()


async def until_empty(read):
    while piece := await read():
        yield piece


def ways_of(adapter):
    if "httpx-family" in adapter.words:
        return ASYNC if adapter.is_async else SYNC
    if adapter.name == "aiohttp":
        return AIOHTTP
    return {**WAYS[adapter.name], **(MORE if adapter.name == "urllib3" else {})}


def looking(adapter):
    """Reads the body in the way that spun, and has no say."""

    async def alook(response):
        await response.aread()

    def look(response):
        if "urllib3-family" in adapter.words:
            list(getattr(response, "raw", response).stream(None))
        else:
            response.json()

    return {"retry_if": alook if adapter.is_async else look}


READ_BY = {
    "a vendor's hint": (429, JSON, lambda adapter: {"policy": POLICY.for_vendors("openai")}),
    "retry_if": (200, JSON, looking),
    "a held call": (503, JSON, lambda adapter: {"gate": RetryGate()}),
    "a first event": (200, EVENTS, lambda adapter: {"event_streams": EventStreams()}),
}


@pytest.mark.smoke
@pytest.mark.timeout(60)
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize(("status", "lines", "options"), READ_BY.values(), ids=READ_BY)
async def test_a_body_that_was_read_is_put_back(adapter, quick, status, lines, options, chunked):
    options = {"policy": POLICY, **quick, **options(adapter)}
    answer = Answer(status=status, lines=lines, content=BODY, chunked=chunked)
    with Origin(BODY, [answer]) as origin:
        if options.get("gate"):
            now = quick["clock"].monotonic()
            options["gate"].bad(origin.url, now, now, 3.0)
        async with adapter.client(**options) as client:
            for way, read in ways_of(adapter).items():
                response = await adapter.open(client, "GET", origin.url)
                pieces = read(response)
                is_async = hasattr(pieces, "__aiter__")
                got = [each async for each in pieces] if is_async else pieces
                assert b"".join(got) == BODY, way
                await adapter.close(response)
                assert adapter.is_idle(client), way
