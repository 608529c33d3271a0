"""One suite for every adapter: a test is written once and runs over each library and each colour.

A test asks for ``adapter`` and speaks its few words; ``async def`` throughout, since a synchronous
client's calls are made directly in the test's own thread and never suspend. The words that every
library can be taught are ``client``, ``call``, ``open``, ``read``, ``close``, ``together``, ``watched``,
``header``, ``reading_for`` and the names of exceptions; the rest belongs to the httpx family, whose tests
say so with ``pytest.mark.adapters("httpx-family")``. A further library is a further class here and a line
in ``ADAPTERS``.
"""

from __future__ import annotations

import importlib
import io
import time
from contextlib import asynccontextmanager
from types import SimpleNamespace

import anyio
import anyio.to_thread
import pytest
import requests
import urllib3

import forbear.requests
import forbear.urllib3
from forbear import RetryBudget
from forbear.requests import RetryAdapter
from forbear.testing import FakeClock, FaultServer, ScriptedAdapter, ScriptedTransport
from forbear.urllib3 import RetryPoolManager


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
        self.words |= {"status-errors", "blank-headers"}
        self.library = importlib.import_module(name)
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
    def disconnect_error(self):
        return self.library.RemoteProtocolError

    @property
    def read_timeout(self):
        return self.library.ReadTimeout

    @property
    def DeadlineExceeded(self):
        return self.forbear.DeadlineExceeded

    @property
    def CircuitOpenError(self):
        return self.forbear.CircuitOpenError

    def reading_for(self, seconds):
        """A client's timeouts: seconds for a read, and plenty for the rest."""
        return {"timeout": self.library.Timeout(5, read=seconds)}

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

    def header(self, request, name):
        """All values of a header, of a request as an inner transport saw it."""
        return [value.decode() for found, value in request.headers.raw if found.lower() == name.lower().encode()]

    def header_names(self, request):
        return [name.decode().lower() for name, _ in request.headers.raw]

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


class SyncAdapter:
    """What requests and urllib3 share here."""

    is_async = False
    colour = "sync"

    @property
    def DeadlineExceeded(self):
        return self.forbear.DeadlineExceeded

    @property
    def CircuitOpenError(self):
        return self.forbear.CircuitOpenError

    @asynccontextmanager
    async def client(self, inner=None, *, settings=None, **options):
        client = self.bare_client(inner, options, **(settings or {}))
        try:
            yield client
        finally:
            client.close()

    async def call(self, client, method, url, **request):
        return client.request(method, url, **request)

    async def open(self, client, method, url, **request):
        return client.request(method, url, is_open=True, **request)

    async def close(self, thing):
        thing.close()

    def reading_for(self, seconds):
        return {"timeout": urllib3.Timeout(connect=5, read=seconds)}

    def watched(self, steps):
        return WatchedAdapter(steps)

    def header(self, request, name):
        return [as_text(value) for found, value in request.headers.items() if as_text(found).lower() == name.lower()]

    def header_names(self, request):
        return [as_text(name).lower() for name in request.headers]

    together = HttpxAdapter.together

    def __repr__(self):
        return f"<{self.name}>"


class RequestsAdapter(SyncAdapter):
    name = "requests"
    words = {"urllib3-family", "requests", "sync", "status-errors"}
    library = requests
    forbear = forbear.requests
    transport_error = requests.RequestException
    timeout_error = requests.Timeout
    status_error = requests.HTTPError
    connect_error = requests.ConnectionError
    disconnect_error = requests.ConnectionError
    read_timeout = requests.ReadTimeout

    def bare_client(self, inner, options, **settings):
        return RequestsClient(RetryAdapter(inner=scripted(inner), **options), **settings)

    async def read(self, response):
        return response.content


class RequestsClient:
    """A session with the words of the suite."""

    def __init__(self, adapter, *, timeout=5):
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.mount("http://", adapter)
        self.session.mount("https://", adapter)
        self._timeout = timeout

    def request(self, method, url, *, content=None, headers=None, is_open=False):
        return self.session.request(
            method,
            url,
            data=content,
            headers=None if headers is None else dict(headers),
            timeout=self._timeout,
            allow_redirects=False,
            stream=is_open,
        )

    def close(self):
        self.session.close()


class Urllib3Adapter(SyncAdapter):
    name = "urllib3"
    words = {"urllib3-family", "urllib3", "sync", "blank-headers"}
    library = urllib3
    forbear = forbear.urllib3
    transport_error = urllib3.exceptions.HTTPError
    timeout_error = urllib3.exceptions.TimeoutError
    status_error = connect_error = disconnect_error = read_timeout = urllib3.exceptions.MaxRetryError

    def bare_client(self, inner, options, **settings):
        manager = RetryPoolManager(**{"timeout": 5, **settings}, **options)
        if inner is not None:
            manager.pool_classes_by_scheme = {
                scheme: type("ScriptedPool", (retrying, ScriptedPool, pool), {"script": scripted(inner)})
                for scheme, kind in manager.pool_classes_by_scheme.items()
                for retrying, pool in [kind.__bases__]
            }
        return Urllib3Client(manager)

    async def read(self, response):
        return response.data


class Urllib3Client:
    """A pool manager with the words of the suite."""

    def __init__(self, manager):
        self.manager = manager

    def request(self, method, url, *, content=None, headers=None, is_open=False):
        response = self.manager.request(
            method, url, body=content, headers=None if headers is None else dict(headers), redirect=False,
            preload_content=not is_open,
        )  # fmt: skip
        return Urllib3Response(response)

    def close(self):
        self.manager.clear()


class Urllib3Response:
    """One of urllib3, which also answers to the other libraries' names for its status and body."""

    def __init__(self, response):
        self._response = response

    @property
    def status_code(self):
        return self._response.status

    @property
    def content(self):
        return self._response.data

    def __getattr__(self, name):
        return getattr(self._response, name)


class ScriptedPool:
    """Stands where urllib3 sends, between what retries and what is a pool, and answers by a script."""

    def urlopen(self, method, url, body=None, headers=None, **named):
        request = SimpleNamespace(
            method=method, url=f"{self.scheme}://{self.host}{url}", headers=headers, body=body, _cookies=None
        )
        try:
            return self.script.send(request, stream=True).raw
        except requests.RequestException as error:
            inner = error.args[0]
            raised = getattr(inner, "reason", inner)
        return named["retries"].increment(method, url, error=raised, _pool=self)


class WatchedAdapter(ScriptedAdapter):
    """Answers by a script, and knows which of its answers are read to their end or closed."""

    def __init__(self, steps):
        super().__init__(steps)
        self._answers = []

    def send(self, *arguments, **named):
        response = super().send(*arguments, **named)
        response.raw._fp = WatchedFile(response.raw._fp.getvalue())
        self._answers.append(response.raw)
        return response

    @property
    def closings(self):
        return [int(raw.closed or raw._fp.is_over) for raw in self._answers]


class WatchedFile(io.BytesIO):
    is_over = False

    def read(self, size=-1):
        found = super().read(size)
        self.is_over = size is None or size < 0 or not found
        return found


def scripted(inner):
    return ScriptedAdapter(inner) if isinstance(inner, list) else inner


def as_text(value):
    return value.decode("latin-1") if isinstance(value, bytes) else value


ADAPTERS = [
    *[HttpxAdapter(name, colour) for name in ("httpx", "httpx2") for colour in ("sync", "asyncio", "trio")],
    RequestsAdapter(),
    Urllib3Adapter(),
]


def pytest_configure(config):
    config.addinivalue_line("markers", "adapters(*words): run only over the adapters that have all these words")
    # httpcore under trio, by itself, when a peer resets while a body goes out: the library's to close.
    config.addinivalue_line("filterwarnings", "ignore:Async generator 'httpx2?._content:ResourceWarning")


def pytest_generate_tests(metafunc):
    if "adapter" in metafunc.fixturenames:
        words = {word for mark in metafunc.definition.iter_markers("adapters") for word in mark.args}
        chosen = [adapter for adapter in ADAPTERS if words <= adapter.words]
        assert chosen, f"no adapter has the words {words}"
        metafunc.parametrize("adapter", chosen, ids=[repr(each)[1:-1].replace(" ", "-") for each in chosen])


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
    """Seconds of the quickest of up to ten runs, so that a bound says nothing of how busy a machine is."""

    async def measure(run, *, bound):
        least = float("inf")
        for _ in range(10):
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
