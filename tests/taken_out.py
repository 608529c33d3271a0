"""Smoke runs of all clients while an add-on is taken out: python tests/taken_out.py breaker

Its import is blocked, and its line of the table is gone, as if its file were deleted.
"""

import asyncio
import importlib.abc
import socket
import sys
import time

import aiohttp
import httpx
import pytest
import requests
import urllib3


class Blocker(importlib.abc.MetaPathFinder):
    def __init__(self, module):
        self.module = module

    def find_spec(self, name, path=None, target=None):
        if name == self.module:
            raise ModuleNotFoundError(f"{name} is taken out", name=name)


def clients(forbear, policy):
    """Functions of method, URL and body that send with each client and return the status."""

    def with_httpx(method, url, body=None):
        with httpx.Client(trust_env=False) as client:
            forbear.httpx.wrap(client, policy)
            return client.request(method, url, content=body).status_code

    async def with_async_httpx(method, url, body=None):
        async with httpx.AsyncClient(trust_env=False) as client:
            forbear.httpx.wrap(client, policy)
            return (await client.request(method, url, content=body)).status_code

    async def with_aiohttp(method, url, body=None):
        async with aiohttp.ClientSession() as session:
            forbear.aiohttp.wrap(session, policy)
            async with session.request(method, url, data=body) as response:
                return response.status

    def with_requests(method, url, body=None):
        with requests.Session() as session:
            session.trust_env = False
            forbear.requests.mount(session, policy)
            return session.request(method, url, data=body).status_code

    def with_urllib3(method, url, body=None):
        with forbear.urllib3.RetryPoolManager(policy) as manager:
            return manager.request(method, url, body=body).status

    yield from (with_httpx, with_requests, with_urllib3)
    for send in (with_async_httpx, with_aiohttp):
        yield lambda *request, send=send: asyncio.run(send(*request))


REFUSED = (httpx.ConnectError, aiohttp.ClientConnectionError)
REFUSED += (requests.ConnectionError, urllib3.exceptions.HTTPError)


def smoke(forbear):
    """A 200, a 503 that is retried, a refused connection, a Retry-After, a POST and a deadline."""
    policy = forbear.RetryPolicy(backoff=forbear.Fixed(0.01), max_attempts=3, hint_spread=0.0)
    with forbear.testing.FaultServer() as server, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        refused = f"http://127.0.0.1:{closed.getsockname()[1]}/"
        for number, send in enumerate(clients(forbear, policy)):

            def url(name, *steps, number=number):
                server.script(f"/{number}/{name}", *steps)
                return f"{server.url}/{number}/{name}"

            def sent(name, number=number):
                return len(server.requests(f"/{number}/{name}"))

            assert send("GET", url("200", 200)) == 200
            assert send("GET", url("503", 503, 200)) == 200
            began, asked = time.monotonic(), "429;header=Retry-After-Ms:100"
            assert send("GET", url("429", asked, 200)) == 200
            assert time.monotonic() - began >= 0.1
            assert send("POST", url("post", 503, 200), b"x") == 503
            assert sent("post") == 1
            with pytest.raises(REFUSED) as caught:
                send("GET", refused)
            assert len(forbear.record_of(caught.value).attempts) == 3
            with forbear.deadline(4.0):
                assert send("GET", url("late", "503;retry-after=5", 200)) == 503
            assert sent("late") == 1


def main(option):
    """Import forbear as if an add-on had been deleted, and run the smoke tests."""
    from forbear.engine import settings

    module = f"forbear.{settings.ADDONS.pop(option)}"
    del settings.DEFAULTS[option]
    assert module not in sys.modules
    sys.meta_path.insert(0, Blocker(module))
    import forbear

    smoke(forbear)


if __name__ == "__main__":
    main(sys.argv[1])
