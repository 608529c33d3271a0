"""What the tests of both middlewares share."""

import httpx
import pytest
import requests

from forbear import Fixed, RetryPolicy
from forbear.httpx import AsyncRetryTransport, RetryTransport
from forbear.requests import RetryAdapter
from forbear.testing import FakeClock, ScriptedAdapter, ScriptedTransport

from .servers import URL


class Backend:
    """A server that answers by a script, and its clients; a call that fails is 4 attempts."""

    def __init__(self, steps, **options):
        policy = RetryPolicy(max_attempts=4, backoff=Fixed(0.1), hint_spread=0.0)
        gate = {} if "strategy" in options else {"gate": None}
        options = {"policy": policy, "clock": FakeClock(), **gate, **options}
        self.clock = options["clock"]
        self.script, self.adapted = ScriptedTransport(steps), ScriptedAdapter(steps)
        self.client = httpx.Client(transport=RetryTransport(self.script, **options))
        self.aclient = httpx.AsyncClient(transport=AsyncRetryTransport(self.script, **options))
        self.session = requests.Session()
        self.session.mount("http://", RetryAdapter(inner=self.adapted, **options))

    @property
    def sent(self):
        """Requests that reached it."""
        return len(self.script.requests) + len(self.adapted.requests)

    def said(self, name):
        """Return what each request of httpx said in a header."""
        return [request.headers.get(name) for request in self.script.requests]

    def get(self, **named):
        return self.client.get(URL, **named)

    async def aget(self, **named):
        return await self.aclient.get(URL, **named)


@pytest.fixture
def backend():
    return Backend


@pytest.fixture
def anyio_backend():
    return "asyncio"
