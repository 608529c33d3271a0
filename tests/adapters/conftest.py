"""One suite for every adapter: a test is written once and runs over each library and each colour.

A test asks for ``adapter`` and speaks its few words; ``async def`` throughout, since a synchronous
client's calls are made directly in the test's own thread and never suspend. The words that every
library can be taught are ``client``, ``call``, ``together`` and the names of exceptions; the rest
(``transport``, ``inner``, ``open``) belongs to the httpx family, whose tests name it with
``pytest.mark.adapters``. A further library is a further class here and a line in ``ADAPTERS``.
"""

from __future__ import annotations

import importlib
import time
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread
import pytest

from forbear import RetryBudget
from forbear.testing import FakeClock, FaultServer, ScriptedTransport

ORIGIN = "http://api.example.com"


class HttpxAdapter:
    """A library of the httpx family in one colour.

    Attributes:
        words: What ``pytest.mark.adapters`` can choose it by.
        library: The module ``httpx`` or ``httpx2``.
        forbear: The module ``forbear.httpx`` or ``forbear.httpx2``.
        is_async: Its calls suspend.
    """

    def __init__(self, name: str, colour: str) -> None:
        self.name = name
        self.colour = colour
        self.is_async = colour != "sync"
        self.words = {"httpx-family", name, colour, "async" if self.is_async else "sync"}
        self.library = importlib.import_module(name)
        self.core = importlib.import_module(name.replace("httpx", "httpcore"))
        self.forbear = importlib.import_module(f"forbear.{name}")

    # What the promises are told in; every library has these.

    @property
    def transport_error(self):
        return self.library.TransportError

    @property
    def timeout_error(self):
        return self.library.TimeoutException

    @property
    def status_error(self):
        return self.library.HTTPStatusError

    @property
    def connect_error(self):
        return self.library.ConnectError

    @property
    def read_timeout(self):
        return self.library.ReadTimeout

    @property
    def DeadlineExceeded(self):
        return self.forbear.DeadlineExceeded

    @property
    def CircuitOpenError(self):
        return self.forbear.CircuitOpenError

    @asynccontextmanager
    async def client(self, inner=None, *, settings=None, **options):
        """A client that retries, closed at the end; ``settings`` are the client's own."""
        client = self.bare_client(transport=self.transport(inner, **options), **(settings or {}))
        try:
            yield client
        finally:
            await self.close(client)

    async def call(self, client, method, url, **request):
        """One request, its response read to the end."""
        if self.is_async:
            return await client.request(method, url, **request)
        return client.request(method, url, **request)

    async def close(self, thing):
        """Close a client, a transport or a response."""
        if self.is_async:
            await thing.aclose()
        else:
            thing.close()

    async def together(self, count, function):
        """Run ``await function(n)`` for each n at once: in threads, or in tasks."""

        def in_thread(n):
            coroutine = function(n)
            with pytest.raises(StopIteration):  # nothing in it suspends
                coroutine.send(None)

        if self.is_async:
            async with anyio.create_task_group() as group:
                for n in range(count):
                    group.start_soon(function, n)
        else:
            limiter = anyio.CapacityLimiter(count)
            async with anyio.create_task_group() as group:
                for n in range(count):
                    group.start_soon(lambda n=n: anyio.to_thread.run_sync(in_thread, n, limiter=limiter))

    # The family's own.

    @property
    def transport_class(self):
        return self.forbear.AsyncRetryTransport if self.is_async else self.forbear.RetryTransport

    @property
    def client_class(self):
        return self.library.AsyncClient if self.is_async else self.library.Client

    @property
    def inner_class(self):
        return self.library.AsyncHTTPTransport if self.is_async else self.library.HTTPTransport

    def transport(self, inner=None, **options):
        """A retrying transport; a list of steps stands for a ScriptedTransport of them."""
        if inner is None:
            inner = self.inner()
        elif isinstance(inner, list):
            inner = ScriptedTransport(inner)
        return self.transport_class(inner, **options)

    def inner(self, **options):
        """The library's own transport; without certificates, which take 30 ms to load."""
        return self.inner_class(**{"verify": False, **options})

    def bare_client(self, **settings):
        settings = {"trust_env": False, "verify": False, **settings}
        return self.client_class(**settings)

    async def send(self, transport, request):
        """One request straight through a transport."""
        if self.is_async:
            return await transport.handle_async_request(request)
        return transport.handle_request(request)

    async def open(self, client, method, url, **request):
        """One request whose response is not read yet."""
        return await self.send_on(client, client.build_request(method, url, **request), stream=True)

    async def send_on(self, client, request, **options):
        if self.is_async:
            return await client.send(request, **options)
        return client.send(request, **options)

    async def read(self, response):
        return await response.aread() if self.is_async else response.read()

    def watched(self, steps):
        """A scripted inner transport whose responses have live bodies, and note when they are closed."""
        return Watched(self.library, steps)

    def __repr__(self):
        return f"<{self.name} {self.colour}>"


class Watched:
    """Answers by a script, with live bodies.

    Attributes:
        closings: For each response, in order, how often its body was closed.
        requests: As they arrived.
    """

    def __init__(self, library, steps):
        self._script = ScriptedTransport(steps)
        self._library = library
        self.closings = []
        self._stream = type("WatchedStream", (WatchedBody, library.SyncByteStream, library.AsyncByteStream), {})

    @property
    def requests(self):
        return self._script.requests

    @property
    def bodies(self):
        return self._script.bodies

    def handle_request(self, request):
        return self._live(self._script.handle_request(request))

    async def handle_async_request(self, request):
        return self._live(await self._script.handle_async_request(request))

    def _live(self, answer):
        self.closings.append(0)
        stream = self._stream(answer.content, self.closings, len(self.closings) - 1)
        return self._library.Response(answer.status_code, headers=answer.headers, stream=stream)

    def close(self):
        self._script.close()

    async def aclose(self):
        self._script.close()


class WatchedBody:
    def __init__(self, content, closings, number):
        self._content = content
        self._closings = closings
        self._number = number

    def __iter__(self):
        yield self._content

    async def __aiter__(self):
        yield self._content

    def close(self):
        self._closings[self._number] += 1

    async def aclose(self):
        self._closings[self._number] += 1


ADAPTERS = [
    HttpxAdapter(name, colour)
    for name in ("httpx", "httpx2")
    for colour in ("sync", "asyncio", "trio")
]  # fmt: skip


def pytest_configure(config):
    config.addinivalue_line("markers", "adapters(*words): run only over the adapters that have all these words")
    # httpcore under trio, by itself, when a peer resets while a body goes out: the library's to close.
    config.addinivalue_line("filterwarnings", "ignore:Async generator 'httpx2?._content:ResourceWarning")


def pytest_generate_tests(metafunc):
    if "adapter" in metafunc.fixturenames:
        words = {word for mark in metafunc.definition.iter_markers("adapters") for word in mark.args}
        chosen = [adapter for adapter in ADAPTERS if words <= adapter.words]
        assert chosen, f"no adapter has the words {words}"
        metafunc.parametrize("adapter", chosen, ids=[f"{each.name}-{each.colour}" for each in chosen])


@pytest.fixture
def anyio_backend(adapter):
    return "trio" if adapter.colour == "trio" else "asyncio"


@pytest.fixture
def clock():
    """A clock whose sleeps are kept and take no time."""
    return FakeClock()


@pytest.fixture
def server():
    """The faulting server on loopback."""
    with FaultServer() as running:
        yield running


@pytest.fixture
def budget():
    """20 tokens that nothing but a refund brings back, so that what a call took can be read off."""
    return RetryBudget(ratio=0, floor_per_second=0, burst=20)


@pytest.fixture
def quick():
    """Options of a transport that waits in fake time, with the middle of every random range."""
    return {"clock": FakeClock(), "random": lambda: 0.5}


@pytest.fixture
def quickest():
    """Seconds of the quickest of up to three runs, so that a bound says nothing of how busy a machine is."""

    async def measure(run, *, bound):
        least = float("inf")
        for _ in range(3):
            began = time.monotonic()
            await run()
            least = min(least, time.monotonic() - began)
            if least <= bound:
                break
        return least

    return measure


@pytest.fixture
def elapsed():
    """Seconds since the test asked last."""
    at = time.monotonic()

    def since():
        nonlocal at
        before, at = at, time.monotonic()
        return at - before

    return since
