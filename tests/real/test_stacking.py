"""Above and below others: hishel's cache both ways, and one forbear over another."""

from functools import partial

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
ORDERS = ("cache above", "cache below")


def sync_gets(family, order, url, times, **options):
    import sqlite3

    library, ours, hishel, adapter = family
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    storage = hishel.SqliteStorage(connection=connection)
    options = {"clock": FakeClock(), **options}
    sending = library.HTTPTransport(verify=False)
    if order == "cache above":
        transport = adapter.CacheTransport(ours.RetryTransport(sending, **options), storage)
    else:
        transport = ours.RetryTransport(adapter.CacheTransport(sending, storage), **options)
    try:
        with library.Client(transport=transport, trust_env=False) as client:
            return [client.get(url) for _ in range(times)]
    finally:
        connection.close()


def async_gets(family, order, url, times, **options):
    library, ours, hishel, adapter = family

    async def run():
        import anysqlite

        storage = hishel.AsyncSqliteStorage(connection=await anysqlite.connect(":memory:"))
        sending = library.AsyncHTTPTransport(verify=False)
        named = {"clock": FakeClock(), **options}
        if order == "cache above":
            transport = adapter.AsyncCacheTransport(
                ours.AsyncRetryTransport(sending, **named), storage
            )
        else:
            transport = ours.AsyncRetryTransport(
                adapter.AsyncCacheTransport(sending, storage), **named
            )
        async with library.AsyncClient(transport=transport, trust_env=False) as client:
            return [await client.get(url) for _ in range(times)]

    return anyio.run(run)


FAMILIES = [
    pytest.param((sync_gets, httpx, forbear.httpx, "hishel.httpx"), id="httpx-sync"),
    pytest.param((async_gets, httpx2, forbear.httpx2, "hishel.httpx2"), id="httpx2-async"),
]


@pytest.fixture(params=FAMILIES)
def gets(request, need_package):
    """A function that asks for a URL some times, by one library in one flavour."""
    function, library, ours, module = request.param
    return partial(function, (library, ours, need_package("hishel"), need_package(module)))


@pytest.mark.parametrize("order", ORDERS)
def test_a_cache_and_retries_do_both_their_work(gets, order, server):
    """503, 200: the first call is retried, the second comes from the cache; two requests in all."""
    server.script("/page", 503, CACHED)
    first, second = gets(order, server.url + "/page", 2)
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.text == second.text
    assert len(server.requests()) == 2
    if order == "cache below":
        assert forbear.record_of(first).reasons == ("503",)


@pytest.mark.parametrize("order", ORDERS)
def test_a_failure_is_not_cached_for_the_next_attempt(gets, order, server):
    """A 503 that stays: the cache answers none of five attempts; the next call tries again."""
    server.script("/page", *[503] * 5, CACHED)
    first, second = gets(order, server.url + "/page", 2)
    assert (first.status_code, second.status_code) == (503, 200)
    assert len(server.requests()) == 6
