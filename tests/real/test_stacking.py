"""Above and below others: hishel's cache both ways."""

import anyio
import httpx2
import pytest

import forbear
import forbear.httpx
from forbear.httpx2 import AsyncRetryTransport
from forbear.testing import FakeClock

from .conftest import package

pytestmark = pytest.mark.real
CACHED = "200;header=Cache-Control:max-age=60;header=ETag:%22v1%22"


@pytest.mark.parametrize("order", ["cache above", "cache below"])
def test_a_cache_and_retries_do_both_their_work(order, server):
    """503, 200: the first call is retried, the second comes from the cache; two requests in all."""
    server.script("/page", 503, CACHED)
    hishel, adapter = package("hishel"), package("hishel.httpx2")

    async def run():
        import anysqlite

        storage = hishel.AsyncSqliteStorage(connection=await anysqlite.connect(":memory:"))
        sending, named = httpx2.AsyncHTTPTransport(verify=False), {"clock": FakeClock()}
        if order == "cache above":
            below = AsyncRetryTransport(sending, **named)
            transport = adapter.AsyncCacheTransport(below, storage)
        else:
            below = adapter.AsyncCacheTransport(sending, storage)
            transport = AsyncRetryTransport(below, **named)
        async with httpx2.AsyncClient(transport=transport, trust_env=False) as client:
            return [await client.get(f"{server.url}/page") for _ in range(2)]

    first, second = anyio.run(run)
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.text == second.text
    assert len(server.requests()) == 2
    if order == "cache below":
        assert forbear.record_of(first).reasons == ("503",)
