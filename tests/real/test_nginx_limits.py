"""nginx's own limits in front of a server: limit_conn, and a limit that finds it."""

import asyncio

import httpx
import pytest

from forbear import ConcurrencyLimit, Exponential, RetryPolicy
from forbear.httpx import AsyncRetryTransport
from forbear.testing import FaultServer

from .conftest import nginx

pytestmark = [pytest.mark.real, pytest.mark.slow]


def refused(url, calls, limit):
    """How many 429s so many calls at once got; all of them succeed in the end."""
    policy = RetryPolicy(max_attempts=30, backoff=Exponential(base=0.05, cap=0.5))
    found = []

    async def main():
        inner = httpx.AsyncHTTPTransport(limits=httpx.Limits(max_connections=None))
        options = {"policy": policy, "concurrency": limit, "gate": None}
        transport = AsyncRetryTransport(inner, on_event=[found.append], **options)
        async with httpx.AsyncClient(transport=transport, timeout=30) as client:
            got = await asyncio.gather(*(client.get(url) for _ in range(calls)))
        assert {response.status_code for response in got} == {200}

    asyncio.run(main())
    return sum(event.name == "attempt_failed" and event.status == 429 for event in found)


def test_limit_conn_refuses_little_more(tmp_path):
    """Mostly five of a hundred; a busy machine lets responses come late. Without a limit 90 are."""
    zone = "access_log off; limit_conn_zone $server_name zone=conn:1m; limit_conn_status 429;"
    with FaultServer() as server:
        server.script("/conn", "200;delay=30")
        location = f"location /conn {{ limit_conn conn 10; proxy_pass {server.url}; }}"
        with nginx(tmp_path, zone, location) as url:
            assert refused(f"{url}/conn", 40, None) >= 15  # only ten may be in flight
            assert refused(f"{url}/conn", 100, ConcurrencyLimit()) < 50
