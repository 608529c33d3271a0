"""What the tests of both middlewares share."""

import httpx
import pytest
import requests

from forbear import Fixed, RetryPolicy
from forbear.httpx import AsyncRetryTransport, RetryTransport
from forbear.requests import RetryAdapter
from forbear.testing import FakeClock, ScriptedAdapter, ScriptedTransport

URL = "http://backend.example/"


class Backend:
    """A server that answers by a script, and clients of forbear that ask it; a call is 4 attempts
    if it fails.
    """

    def __init__(self, steps, **options):
        self.clock = FakeClock()
        policy = RetryPolicy(backoff=Fixed(0.1), hint_spread=0.0)
        options = {"policy": policy, "clock": self.clock, "budget": None, **options}
        if "strategy" in options:
            del options["budget"]
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
        """Of each request: a header."""
        return [
            request.headers.get(name) for request in [*self.script.requests, *self.adapted.requests]
        ]

    def get(self, **named):
        return self.client.get(URL, **named)

    async def aget(self, **named):
        return await self.aclient.get(URL, **named)


@pytest.fixture
def backend():
    """A function that makes one."""
    return Backend


# What says that a request is a retry, and what does not.
COUNTS = [
    pytest.param({}, 4, id="no header"),
    pytest.param({"x-envoy-attempt-count": "1"}, 4, id="envoy first"),
    pytest.param({"x-envoy-attempt-count": "2"}, 1, id="envoy retry"),
    pytest.param({"amz-sdk-request": "attempt=1; max=3"}, 4, id="aws first"),
    pytest.param({"amz-sdk-request": "attempt=2; max=3"}, 1, id="aws retry"),
    pytest.param({"x-stainless-retry-count": "0"}, 4, id="stainless first"),
    pytest.param({"x-stainless-retry-count": "1"}, 1, id="stainless retry"),
    pytest.param({"grpc-previous-rpc-attempts": "1"}, 1, id="grpc retry"),
    pytest.param({"retry-attempt": "2"}, 1, id="forbear retry"),
    pytest.param({"retry-attempt": "often", "x-envoy-attempt-count": "-2"}, 4, id="malformed"),
]


def pytest_generate_tests(metafunc):
    if "attempts" in metafunc.fixturenames:
        metafunc.parametrize(("headers", "attempts"), COUNTS)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param
