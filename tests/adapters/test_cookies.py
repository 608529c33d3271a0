"""Cookies of retried responses go into the jar of a known client. RFC 6265 section 3: a user agent
must process Set-Cookie "including responses with 400- and 500-level status codes".
"""

from contextlib import aclosing
from urllib.parse import quote

import aiohttp
import pytest
import requests

from forbear import Fixed, RetryPolicy
from forbear.requests import mount

from ..lanes.aiohttp import AiohttpClient

pytestmark = pytest.mark.lanes("httpx-sync", "httpx-asyncio", "requests", "aiohttp-asyncio")
NOW = RetryPolicy(max_attempts=3, backoff=Fixed(0))


class Known:
    """A client with its jar; ``plain`` does not retry."""

    def __init__(self, adapter, *, plain=False, policy=NOW, **options):
        self._adapter, named = adapter, {"policy": policy, "gate": None, **options}
        if adapter.name == "requests":
            self.client = requests.Session()
            self.client.trust_env = False
        elif adapter.name == "aiohttp":
            middlewares = () if plain else (adapter.forbear.RetryMiddleware(**named),)
            self.client = AiohttpClient(middlewares, follow_redirects=True)
            self.client.session._cookie_jar = aiohttp.CookieJar(unsafe=True)
        else:
            self.client = adapter.bare_client(follow_redirects=True)
        if adapter.name != "aiohttp" and not plain:
            wrap = mount if adapter.name == "requests" else adapter.forbear.wrap
            wrap(self.client, **named)

    async def aclose(self):
        await self._adapter.close(self.client)

    async def get(self, url, **named):
        response = await self._adapter.ended(self.client.request("GET", url, **named))
        return self._adapter.status(response)

    @property
    def jar(self):
        if self._adapter.name == "aiohttp":
            return sorted(f"{one.key}={one.value}" for one in self.client.session.cookie_jar)
        jar = getattr(self.client.cookies, "jar", self.client.cookies)
        return sorted(f"{one.name}={one.value}" for one in jar)


def setting(status, *cookies):
    return ";".join([str(status), *(f"header=Set-Cookie:{quote(cookie)}" for cookie in cookies)])


def carried(server, path="/thing"):
    """The cookies of each request, sorted; they come in one header."""
    found = []
    for request in server.requests(path):
        (line,) = [one for name, one in request.headers if name.lower() == "cookie"] or [""]
        found.append(sorted(line.split("; ")))
    return found


@pytest.mark.parametrize(("sets", "then"), [
    ("route=b", ["a=1", "route=b"]),
    ("a=2", ["a=2"]),
    ("a=; Max-Age=0", [""]),
    ("x=1; Path=/elsewhere", ["a=1"]),
    ("x=\xff", None),  # httpx could send no further request
])  # fmt: skip
async def test_a_retry_carries_what_the_jar_says_by_then(adapter, server, sets, then):
    server.script("/", setting(200, "a=1"))
    server.script("/thing", setting(503, sets), 503, 200)
    async with aclosing(Known(adapter)) as client:
        await client.get(server.url + "/")
        assert await client.get(server.url + "/thing") == 200
        assert await client.get(server.url + "/thing") == 200
    assert then is None or carried(server) == [["a=1"], then, then, then]


OWN = [{}, {"headers": {"Cookie": "mine=1; other=2"}}]
OWN += [{"cookies": {"mine": "1"}}, {"cookies": {"route": "mine"}}]  # the second of them is set


@pytest.mark.parametrize("own", OWN, ids=str)
@pytest.mark.parametrize("where", ["here", "before a redirect", "after a redirect elsewhere"])
async def test_a_retry_carries_what_the_bare_client_would_send_next(adapter, server, own, where):
    """Called twice by hand: the same cookies in the last request, and the same in the jar."""
    if "httpx-family" in adapter.words and "cookies" in own:
        return  # httpx has deprecated them
    sets, to = setting(503, "route=b", "c=3"), "302;header=Location:"
    elsewhere = server.url.replace("127.0.0.1", "localhost")
    first, second = {
        "here": ([sets, 200], [404]),
        "before a redirect": ([sets, f"{to}/next"], [200]),
        "after a redirect elsewhere": ([f"{to}{quote(elsewhere)}/next"], [sets, 200]),
    }[where]
    found = []
    server.script("/jar", setting(200, "d=4"))
    for plain in (True, False):
        server.script("/thing", *first)
        server.script("/next", *second)
        async with aclosing(Known(adapter, plain=plain)) as client:
            for origin in (server.url, elsewhere):
                await client.get(origin + "/jar")
            for _ in range(1 + plain):
                status = await client.get(server.url + "/thing", **own)
            last = carried(server, "/thing" if where == "here" else "/next")[-1]
            found.append((status, last, client.jar))
    assert found[0] == found[1]
    assert found[0][0] == 200


async def test_what_the_caller_does_not_get_is_kept_too(adapter, server):
    server.script("/thing", 503, 503, setting(503, "route=b"), 200)
    async with aclosing(Known(adapter, policy=NOW.replace(on_exhausted="raise"))) as client:
        with pytest.raises(adapter.status_error):
            await client.get(server.url + "/thing")
        assert client.jar == ["route=b"]
