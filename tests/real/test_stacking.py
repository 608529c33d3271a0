"""Above and below others: hishel's cache both ways, and one forbear over another."""

import anyio
import httpx
import httpx2
import pytest

import forbear
import forbear.httpx
import forbear.httpx2
from forbear.testing import FakeClock

pytestmark = pytest.mark.real
CACHED = "200;header=Cache-Control:max-age=60;header=ETag:%22v1%22"


def sync_gets(library, ours, hishel, adapter, order, url):
    import sqlite3

    connection = sqlite3.connect(":memory:", check_same_thread=False)
    storage = hishel.SqliteStorage(connection=connection)
    sending, named = library.HTTPTransport(verify=False), {"clock": FakeClock()}
    if order == "cache above":
        transport = adapter.CacheTransport(ours.RetryTransport(sending, **named), storage)
    else:
        transport = ours.RetryTransport(adapter.CacheTransport(sending, storage), **named)
    try:
        with library.Client(transport=transport, trust_env=False) as client:
            return client.get(url), client.get(url)
    finally:
        connection.close()


def async_gets(library, ours, hishel, adapter, order, url):
    async def run():
        import anysqlite

        storage = hishel.AsyncSqliteStorage(connection=await anysqlite.connect(":memory:"))
        sending, named = library.AsyncHTTPTransport(verify=False), {"clock": FakeClock()}
        if order == "cache above":
            below = ours.AsyncRetryTransport(sending, **named)
            transport = adapter.AsyncCacheTransport(below, storage)
        else:
            below = adapter.AsyncCacheTransport(sending, storage)
            transport = ours.AsyncRetryTransport(below, **named)
        async with library.AsyncClient(transport=transport, trust_env=False) as client:
            return await client.get(url), await client.get(url)

    return anyio.run(run)


FAMILIES = [
    pytest.param((sync_gets, httpx, forbear.httpx, "hishel.httpx"), id="httpx-sync"),
    pytest.param((async_gets, httpx2, forbear.httpx2, "hishel.httpx2"), id="httpx2-async"),
]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("order", ["cache above", "cache below"])
def test_a_cache_and_retries_do_both_their_work(need_package, family, order, server):
    """503, 200: the first call is retried, the second comes from the cache; two requests in all."""
    server.script("/page", 503, CACHED)
    gets, library, ours, module = family
    hishel, adapter = need_package("hishel"), need_package(module)
    first, second = gets(library, ours, hishel, adapter, order, server.url + "/page")
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.text == second.text
    assert len(server.requests()) == 2
    if order == "cache below":
        assert forbear.record_of(first).reasons == ("503",)
