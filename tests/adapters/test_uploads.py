"""Uploads that are answered before they end, wait to be asked for, or are kept to be sent again.

Every client over real sockets. A server may answer at once and read no further (RFC 9112 section
9.3): that is an answer, and not a broken connection, as far as the library still finds it.
"""

from __future__ import annotations

import tracemalloc

import pytest
import requests
import urllib3

from forbear import Fixed, RetryPolicy, record_of
from forbear.testing import FakeClock, FaultServer

from .test_bodies import BOTH, LANES, agenerator, digest, generator

POLICY = RetryPolicy(max_attempts=4, backoff=Fixed(0.0))
LARGE = bytes(range(256)) * 16_000  # 4,096,000 bytes: more than the sockets of loopback hold
ALL = LANES + BOTH
lanes = pytest.mark.parametrize("lane", ALL)
# httpx abandons the iteration of an async body whose upload fails, and trio warns when it is
# collected.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")


@pytest.fixture
def server():
    with FaultServer() as running:
        yield running


def chunks_of(lane, body=LARGE):
    """A one-shot body."""
    pieces = [body[at : at + 65_536] for at in range(0, len(body), 65_536)]
    return generator(pieces) if lane.backend is None else agenerator(pieces)


def send(lane, server, content, *, method="PUT", headers=None, **options):
    options = {"policy": POLICY, "random": lambda: 0.0, **options}
    named = {"headers": headers} if headers else {}
    return lane.send(method, server.url + "/up", content=content, options=options, **named)


@lanes
@pytest.mark.parametrize(("kind", "status"), [("bytes", 413), ("one-shot", 401)])
def test_an_early_no_is_the_answer(lane, kind, status, server):
    """The server has read 1,000 bytes, and says no: one request, its own answer."""
    server.script("/up", f"early:{status}:1000", 200)
    response = send(lane, server, LARGE if kind == "bytes" else chunks_of(lane))
    assert response.status_code == status
    assert len(server.requests("/up")) == 1


@lanes
@pytest.mark.parametrize("step", ["early:429:1000;retry-after=3"])
def test_an_early_hint_is_obeyed_and_the_body_sent_whole(lane, step, server):
    """Throttled while it uploads: three seconds later the body is sent from its first byte."""
    clock = FakeClock()
    server.script("/up", step, 200)
    assert send(lane, server, LARGE, clock=clock).status_code == 200
    assert clock.sleeps == [3.0]
    assert [arrival.body_bytes for arrival in server.requests("/up")] == [1000, len(LARGE)]
    assert server.requests("/up")[1].sha256 == digest(LARGE)


@lanes
def test_an_early_hint_to_a_body_that_is_gone_is_handed_over(lane, server):
    """The part that was read of a one-shot body cannot be read again: the 429 itself, and why."""
    server.script("/up", "early:429:1000;retry-after=3", 200)
    response = send(lane, server, chunks_of(lane))
    assert response.status_code == 429
    assert record_of(response).reason == "body-consumed"
    assert len(server.requests("/up")) == 1


@lanes
def test_an_early_hint_to_a_body_that_is_kept_is_obeyed(lane, server):
    """body_buffer holds what was read, the generator has the rest: together they are the body."""
    server.script("/up", "early:429:1000;retry-after=3", 200)
    response = send(lane, server, chunks_of(lane), body_buffer=len(LARGE), clock=FakeClock())
    assert response.status_code == 200
    assert server.requests("/up")[1].sha256 == digest(LARGE)


@lanes
def test_an_early_429_to_a_post_is_its_answer(lane, server):
    """Nobody knows what was done with it: a POST without a key is sent once."""
    server.script("/up", "early:429:1000;retry-after=1", 200)
    assert send(lane, server, LARGE, method="POST").status_code == 429
    assert len(server.requests("/up")) == 1


def loses_answers(lane):
    """asyncio closes a connection whose peer has reset it, with what was not read from it yet.

    So httpx has nothing to read there. urllib3 before 2.2 does not look for an answer after a
    reset.
    """
    if lane.backend == "asyncio":
        return True
    is_old = tuple(map(int, urllib3.__version__.split(".")[:2])) < (2, 2)
    return is_old and lane.library in (requests, urllib3)


@lanes
@pytest.mark.parametrize("kind", ["bytes", "one-shot"])
def test_an_answer_before_a_reset_is_found_where_the_library_looks(lane, kind, server):
    """The server closes while the upload goes on: its kernel resets behind the answer."""
    server.script("/up", "early:413:1000;linger=0")
    content = LARGE if kind == "bytes" else chunks_of(lane)
    try:
        end = send(lane, server, content, method="POST")
    except lane.transport_error as error:  # as without us
        assert loses_answers(lane)
        end = error
    else:
        assert end.status_code == 413
    assert record_of(end).reason in (None, "method-not-replayable", "body-consumed")
    assert len(server.requests("/up")) == 1
    assert server.executed("/up") == 0


# Expect: 100-continue (RFC 9110 section 10.1.1).

EXPECT = {"Expect": "100-continue"}


@lanes
def test_expect_continue_works(lane, server):
    """The interim answer is none; after a 503 the whole of it is done again."""
    server.script("/up", 503, 200)
    assert send(lane, server, LARGE, headers=EXPECT).status_code == 200
    seen = [(arrival.body_bytes, arrival.sha256) for arrival in server.requests("/up")]
    assert seen == [(len(LARGE), digest(LARGE))] * 2
    assert [dict(arrival.headers)["Expect"] for arrival in server.requests("/up")] == [
        "100-continue"
    ] * 2


@lanes
@pytest.mark.parametrize("status", [417])
def test_a_final_answer_in_place_of_100_is_the_answer(lane, status, server):
    """Not one byte of the body was asked for."""
    server.script("/up", f"early:{status}:0", 200)
    assert send(lane, server, LARGE, headers=EXPECT).status_code == status
    assert [arrival.body_bytes for arrival in server.requests("/up")] == [0]


@lanes
def test_a_503_in_place_of_100_is_retried_with_the_whole_body(lane, server):
    server.script("/up", "early:503:0", 200)
    assert send(lane, server, LARGE, headers=EXPECT).status_code == 200
    assert [arrival.body_bytes for arrival in server.requests("/up")] == [0, len(LARGE)]
    assert server.requests("/up")[1].sha256 == digest(LARGE)


# The buffer is measured and bounded.


@pytest.mark.slow
@lanes
@pytest.mark.parametrize("room", [2_000_000, 20_000_000])
def test_a_buffer_costs_what_it_holds(lane, room, server):
    """16 MB in pieces cost themselves if kept; what does not fit is let go of at once."""
    server.script("/up", 200)
    size, count = 64_000, 250

    def pieces():
        for number in range(count):
            yield bytes([number]) * size

    async def apieces():
        for piece in pieces():
            yield piece

    tracemalloc.start()
    try:
        send(lane, server, pieces() if lane.backend is None else apieces(), body_buffer=room)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert server.requests("/up")[0].body_bytes == size * count
    kept = size * count if room >= size * count else room
    assert peak < kept + 4_000_000
    if kept < room:
        assert peak > kept
