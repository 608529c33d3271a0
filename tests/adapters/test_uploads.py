"""Uploads that are answered before they end, wait to be asked for, or are kept to be sent again.

Every client over real sockets. A server may answer at once and read no further (RFC 9112 section
9.3): that is an answer, and not a broken connection, as far as the library still finds it.
"""

import pytest
import urllib3

from forbear import Fixed, RetryPolicy, record_of
from forbear.testing import FakeClock

from .test_bodies import digest, one_shot, put

POLICY = RetryPolicy(max_attempts=4, backoff=Fixed(0.0))
LARGE = bytes(range(256)) * 16_000  # 4,096,000 bytes: more than the sockets of loopback hold
# httpx abandons the iteration of an async body whose upload fails, and trio warns when it is
# collected.
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning"),
]


def chunks_of(adapter, body=LARGE):
    """A one-shot body."""
    return one_shot(adapter, [body[at : at + 65_536] for at in range(0, len(body), 65_536)])


async def send(adapter, server, content, *, method="PUT", headers=None, **options):
    named = {"content": content, "headers": headers, "method": method}
    options = {"policy": POLICY, "random": lambda: 0.0, **options}
    return await put(adapter, server.url + "/up", options=options, **named)


async def test_an_early_no_is_the_answer(adapter, server):
    """The server has read 1,000 bytes, and says no: one request, its own answer."""
    for count, (content, status) in enumerate(((LARGE, 413), (chunks_of(adapter), 401)), start=1):
        server.script("/up", f"early:{status}:1000", 200)
        assert (await send(adapter, server, content)).status_code == status
        assert len(server.requests("/up")) == count


async def test_an_early_hint_is_obeyed_and_the_body_sent_whole(adapter, server):
    """Throttled while it uploads: three seconds later the body is sent from its first byte.

    body_buffer holds what was read of a one-shot body, the generator has the rest: together they
    are the body. What is not held cannot be read again: the 429 itself, and why.
    """
    for content, room, arrived in (
        (LARGE, 0, [1000, len(LARGE)]),
        (chunks_of(adapter), len(LARGE), [1000, len(LARGE)]),
        (chunks_of(adapter), 0, [1000]),
    ):
        clock, before = FakeClock(), len(server.requests("/up"))
        server.script("/up", "early:429:1000;retry-after=3", 200)
        response = await send(adapter, server, content, clock=clock, body_buffer=room)
        arrivals = server.requests("/up")[before:]
        if len(arrived) == 2:
            assert [arrival.body_bytes for arrival in arrivals] == arrived
            assert response.status_code == 200
            assert clock.sleeps == [3.0]
            assert arrivals[1].sha256 == digest(LARGE)
        else:
            assert response.status_code == 429
            assert record_of(response).reason == "body-consumed"
            assert len(arrivals) == 1


def loses_answers(adapter):
    """asyncio closes a connection whose peer has reset it, with what was not read from it yet.

    So httpx has nothing to read there. urllib3 before 2.2 does not look for an answer after a
    reset.
    """
    is_old = tuple(map(int, urllib3.__version__.split(".")[:2])) < (2, 2)
    return adapter.is_async or (is_old and "urllib3-family" in adapter.words)


@pytest.mark.parametrize("kind", ["bytes", "one-shot"])
async def test_an_answer_before_a_reset_is_found_where_the_library_looks(adapter, kind, server):
    """The server closes while the upload goes on: its kernel resets behind the answer."""
    server.script("/up", "early:413:1000;linger=0")
    content = LARGE if kind == "bytes" else chunks_of(adapter)
    try:
        end = await send(adapter, server, content, method="POST")
    except adapter.transport_error as error:  # as without us
        assert loses_answers(adapter)
        end = error
    else:
        assert end.status_code == 413
    assert record_of(end).reason in ("status-not-retried", "method-not-replayable", "body-consumed")
    assert len(server.requests("/up")) == 1
    assert server.executed("/up") == 0


# Expect: 100-continue (RFC 9110 section 10.1.1).

EXPECT = {"Expect": "100-continue"}


async def test_what_comes_in_place_of_100_is_the_answer(adapter, server):
    """Without it not one byte of the body was asked for; after a 503 the whole of it is sent.

    The interim answer itself is none.
    """
    for step, status, arrived in (
        ("early:417:0", 417, [0]),
        ("early:503:0", 200, [0, len(LARGE)]),
        ("503", 200, [len(LARGE)] * 2),
    ):
        before = len(server.requests("/up"))
        server.script("/up", step, 200)
        assert (await send(adapter, server, LARGE, headers=EXPECT)).status_code == status
        arrivals = server.requests("/up")[before:]
        assert [arrival.body_bytes for arrival in arrivals] == arrived
        assert {dict(arrival.headers)["Expect"] for arrival in arrivals} == {"100-continue"}
        if status == 200:
            assert arrivals[1].sha256 == digest(LARGE)


# The buffer is measured and bounded.


@pytest.mark.release
@pytest.mark.parametrize("room", [2_000_000, 20_000_000])
async def test_a_buffer_costs_what_it_holds(adapter, room, server):
    """16 MB in pieces cost themselves if kept; what does not fit is let go of at once."""
    server.script("/up", 200)
    tracemalloc = pytest.importorskip("tracemalloc")
    size, count = 64_000, 250
    body = one_shot(adapter, (bytes([number]) * size for number in range(count)))
    tracemalloc.start()
    try:
        await send(adapter, server, body, body_buffer=room)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert server.requests("/up")[0].body_bytes == size * count
    kept = size * count if room >= size * count else room
    assert peak < kept + 4_000_000
    if kept < room:
        assert peak > kept
