"""Uploads that are answered before they end, wait to be asked for, or are kept to be sent again.


Every client over real sockets. A server may answer at once and read no further (RFC 9112 section
9.3): that is an answer, and not a broken connection, as far as the library still finds it.
"""

import pytest

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
