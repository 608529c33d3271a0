"""One suite for every client: a test is written once and runs over each lane.

A lane is a library in one colour. Which lanes a test runs on is decided here, in
``pytest_generate_tests``, and nowhere else:

- full lanes (httpx sync, httpx asyncio, aiohttp, requests, urllib3) run every test;
- httpx2 and trio share their code with the full lanes and run the tests marked ``smoke``: one for
  each promise, and one for each exit of the loop (success, give-up, the caller's exception,
  cancellation while sending and while sleeping, closed while waiting);
- ``-m smoke`` runs those on every lane, ``-k httpx2`` all that httpx2 runs;
- ``pytest.mark.adapters(*words)`` takes the lanes that have all these words.

A test asks for ``adapter`` and uses only its words. It is ``async def`` throughout: the calls of a
synchronous client are made in the test's own thread and never suspend. Where libraries rightly
differ, a test asks for a word (and clients have no gate unless a test gives one: its retries would
else depend on those before; test_holding.py is about the gate):

| word | who has it | why the others have not |
| --- | --- | --- |
| httpx-family | httpx, httpx2 | per-request ``extensions``, timeouts to be asked for, any transport below |
| async, sync, httpx … | that colour or library | |
| status-errors | httpx, httpx2, requests | the others' have no response |
| blank-headers | all but requests | requests refuses a header value that begins with a space |
| stacks | all but urllib3 | a pool manager has no inner one |
| plain-bodies | all but aiohttp | a plain function cannot read a body of its responses |
| prefetches | httpx, httpx2, aiohttp | a body is loaded, or the caller's to read |
| pickles | httpx, httpx2, requests | urllib3's own errors forget the error inside them |

urllib3 puts MaxRetryError around whatever failed before the body, so its errors of the wire all
have that name. requests says ConnectionError for a body that comes too slowly.
"""

from __future__ import annotations

import importlib
import io
import ssl
import time
from contextlib import asynccontextmanager
from types import SimpleNamespace

import anyio
import anyio.to_thread
import pytest
import requests
import trustme
import urllib3

import forbear.requests
import forbear.urllib3
from forbear import RetryBudget
from forbear.requests import RetryAdapter
from forbear.testing import FakeClock, FaultServer, ScriptedAdapter, ScriptedTransport
from forbear.urllib3 import RetryPoolManager

from .aiohttp_lane import AiohttpAdapter


class HttpxAdapter:
    """A library of the httpx family in one colour.

    Attributes:
        words: ``pytest.mark.adapters`` chooses lanes by them.
        is_full: The lane runs every test, not only those marked ``smoke``.
        library: The module ``httpx`` or ``httpx2``.
        forbear: The module ``forbear.httpx`` or ``forbear.httpx2``.
        is_async: Its calls suspend.
    """

    def __init__(self, name: str, colour: str) -> None:
        self.name = name
        self.colour = colour
        self.is_async = colour != "sync"
        self.is_full = name == "httpx" and colour != "trio"
        self.words = {"httpx-family", name, colour, "async" if self.is_async else "sync"}
        self.words |= {"status-errors", "blank-headers", "stacks", "pickles", "plain-bodies"}
        self.words.add("prefetches")
        self.library = library = importlib.import_module(name)
        self.forbear = importlib.import_module(f"forbear.{name}")
        self.DeadlineExceeded = self.forbear.DeadlineExceeded
        self.CircuitOpenError = self.forbear.CircuitOpenError
        self.transport_error, self.timeout_error = library.TransportError, library.TimeoutException
        self.status_error, self.connect_error = library.HTTPStatusError, library.ConnectError
        self.disconnect_error = library.RemoteProtocolError
        self.read_timeout, self.pool_timeout = library.ReadTimeout, library.PoolTimeout
        # While the caller reads the body: one that comes too slowly, and one that ends early.
        self.body_timeout, self.cut_error = library.ReadTimeout, library.RemoteProtocolError
        # The names of the errors that a fault of the server may come out as.
        self.wire_errors = {
            "reset": {"ReadError", "RemoteProtocolError"},
            "close": {"RemoteProtocolError"},
            "garbage": {"RemoteProtocolError"},
            "hang": {"ReadTimeout"},
        }
        prefix = "Async" if self.is_async else ""
        self.base_class = getattr(library, f"{prefix}BaseTransport")
        self.transport_class = getattr(self.forbear, f"{prefix}RetryTransport")
        self.client_class = getattr(library, f"{prefix}Client")
        self.inner_class = getattr(library, f"{prefix}HTTPTransport")

    def secret_error(self, text):
        """An error of the wire with this text inside."""
        return self.library.ReadError(text)

    def pool_of(self, size):
        """Options of a client with so many connections, for which callers queue."""
        return {"inner": self.inner(limits=self.library.Limits(max_connections=size))}

    def is_idle(self, client):
        """Has such a pool all its connections back?"""
        pool = client._transport.inner._pool
        return pool._requests == [] and all(connection.is_idle() for connection in pool.connections)

    def retrying(self, client):
        """The part of a client that retries."""
        return client._transport

    def status(self, response):
        """The status of a response as a hook of the library gets it."""
        return response.status_code

    async def shut(self, client):
        """Close the part that retries, and leave the client as it is."""
        await self.close(client._transport)

    def patch(self, monkeypatch, answer):
        """Replace the library's own sending, as mocks and instrumentation do: ``answer()`` is a
        status.
        """
        if self.is_async:

            async def patched(transport, request):
                return self.library.Response(answer())

        else:

            def patched(transport, request):
                return self.library.Response(answer())

        monkeypatch.setattr(self.inner_class, f"handle_{'async_' * self.is_async}request", patched)

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
                    group.start_soon(
                        lambda n=n: anyio.to_thread.run_sync(in_thread, n, limiter=limiter)
                    )

    def header(self, request, name):
        """All values of a header, of a request as an inner transport saw it."""
        return [
            value.decode()
            for found, value in request.headers.raw
            if found.lower() == name.lower().encode()
        ]

    def header_names(self, request):
        return [name.decode().lower() for name, _ in request.headers.raw]

    # The family's own.

    def transport(self, inner=None, **options):
        """A retrying transport; a list of steps stands for a ScriptedTransport of them."""
        if inner is None:
            inner = self.inner()
        elif isinstance(inner, list):
            inner = ScriptedTransport(inner)
        return self.transport_class(inner, **{"gate": None, **options})

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

    async def download(self, client, url, **request):
        """A GET whose body is read to its end after the hand-over."""
        return await self.call(client, "GET", url, **request)

    async def collect(self, response, got):
        """Read a body piece by piece into ``got``."""
        if self.is_async:
            async for piece in response.aiter_raw():
                got += piece
        else:
            for piece in response.iter_raw():
                got += piece

    def watched(self, steps):
        """A scripted inner transport whose live responses note when they are closed."""
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
        self._stream = type(
            "WatchedStream", (WatchedBody, library.SyncByteStream, library.AsyncByteStream), {}
        )

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
    """The part that the lanes of requests and urllib3 share."""

    is_async = False
    is_full = True
    colour = "sync"

    def __init__(self):
        self.DeadlineExceeded = self.forbear.DeadlineExceeded
        self.CircuitOpenError = self.forbear.CircuitOpenError

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

    async def download(self, client, url, **request):
        response = await self.open(client, "GET", url, **request)
        await self.read(response)
        return response

    async def collect(self, response, got):
        for piece in self.pieces_of(response):
            got += piece

    async def close(self, thing):
        thing.close()

    async def shut(self, client):
        client.close()

    def is_idle(self, client):
        pools = self.pools(client)
        return all(pools[key].pool.qsize() == pools[key].pool.maxsize for key in pools.keys())  # noqa: SIM118

    def status(self, response):
        return response.status_code

    pool_timeout = urllib3.exceptions.EmptyPoolError

    def secret_error(self, text):
        """The error that requests raises; a ScriptedPool takes urllib3's out of it."""
        return requests.ConnectionError(
            urllib3.exceptions.ProtocolError(text, ConnectionResetError(104, text))
        )

    def reading_for(self, seconds):
        return {"timeout": urllib3.Timeout(connect=5, read=seconds)}

    def watched(self, steps):
        return WatchedAdapter(steps)

    def header(self, request, name):
        return [
            as_text(value)
            for found, value in request.headers.items()
            if as_text(found).lower() == name.lower()
        ]

    def header_names(self, request):
        return [as_text(name).lower() for name in request.headers]

    together = HttpxAdapter.together

    def __repr__(self):
        return f"<{self.name}>"


class RequestsAdapter(SyncAdapter):
    name = "requests"
    words = {"urllib3-family", "requests", "sync", "status-errors", "stacks", "pickles"}
    words |= {"plain-bodies"}
    library = requests
    forbear = forbear.requests
    transport_error = requests.RequestException
    timeout_error = requests.Timeout
    status_error = requests.HTTPError
    connect_error = requests.ConnectionError
    disconnect_error = requests.ConnectionError
    read_timeout = requests.ReadTimeout
    body_timeout = requests.ConnectionError
    cut_error = requests.exceptions.ChunkedEncodingError
    base_class = requests.adapters.HTTPAdapter
    wire_errors = {fault: {"ConnectionError"} for fault in ("reset", "close", "garbage")} | {
        "hang": {"ReadTimeout"}
    }

    def bare_client(self, inner, options, **settings):
        return RequestsClient(self.transport(inner, **options), **settings)

    def transport(self, inner=None, **options):
        return RetryAdapter(inner=scripted(inner), **{"gate": None, **options})

    def pool_of(self, size):
        return {"pool_maxsize": size, "pool_block": True}

    def pools(self, client):
        return self.retrying(client).poolmanager.pools

    def retrying(self, client):
        return client.session.get_adapter("http://")

    def patch(self, monkeypatch, answer):
        def patched(adapter, request, **named):
            response = requests.Response()
            response.status_code, response._content = answer(), b""
            return response

        monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", patched)

    async def read(self, response):
        return response.content

    def pieces_of(self, response):
        return response.iter_content(1000)


class RequestsClient:
    """A session with the words of the suite."""

    def __init__(self, adapter, *, timeout=5, follow_redirects=False):
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.mount("http://", adapter)
        self.session.mount("https://", adapter)
        self._named = {"timeout": timeout, "allow_redirects": follow_redirects}

    def request(self, method, url, *, content=None, headers=None, is_open=False, **named):
        named = {"data": content, "stream": is_open, **self._named, **named}
        return self.session.request(method, url, headers=as_mapping(headers), **named)

    def close(self):
        self.session.close()


class Urllib3Adapter(SyncAdapter):
    name = "urllib3"
    words = {"urllib3-family", "urllib3", "sync", "blank-headers", "plain-bodies"}
    library = urllib3
    forbear = forbear.urllib3
    transport_error = urllib3.exceptions.HTTPError
    timeout_error = urllib3.exceptions.TimeoutError
    status_error = connect_error = disconnect_error = read_timeout = (
        urllib3.exceptions.MaxRetryError
    )
    body_timeout = urllib3.exceptions.ReadTimeoutError
    cut_error = urllib3.exceptions.ProtocolError
    base_class = urllib3.PoolManager
    wire_errors = {fault: {"MaxRetryError"} for fault in ("reset", "close", "garbage", "hang")}

    def bare_client(self, inner, options, *, follow_redirects=False, **settings):
        manager = RetryPoolManager(**{"timeout": 5, "gate": None, **settings, **options})
        if inner is not None:
            manager.pool_classes_by_scheme = {
                scheme: type(
                    "ScriptedPool", (retrying, ScriptedPool, pool), {"script": scripted(inner)}
                )
                for scheme, kind in manager.pool_classes_by_scheme.items()
                for retrying, pool in [kind.__bases__]
            }
        return Urllib3Client(manager, follow_redirects)

    async def read(self, response):
        return response.data

    def pieces_of(self, response):
        return response.stream(1000)

    async def close(self, thing):
        thing.close()
        if isinstance(thing, Urllib3Response):
            thing.release_conn()  # with block=True a pool counts the closed ones too

    def pool_of(self, size):
        return {"settings": {"maxsize": size, "block": True}}

    def pools(self, client):
        return client.manager.pools

    def retrying(self, client):
        return client.manager

    def status(self, response):
        return response.status

    def patch(self, monkeypatch, answer):
        def patched(pool, method, url, *arguments, **named):
            return urllib3.HTTPResponse(b"", status=answer(), request_method=method)

        monkeypatch.setattr(urllib3.HTTPConnectionPool, "urlopen", patched)


class Urllib3Client:
    """A pool manager with the words of the suite."""

    def __init__(self, manager, follow_redirects):
        self.manager = manager
        self._follows = follow_redirects

    def request(self, method, url, *, content=None, headers=None, is_open=False, **named):
        if content is not None:
            named["body"] = content
        response = self.manager.request(
            method, url, headers=as_mapping(headers), redirect=self._follows,
            preload_content=not is_open, **named,
        )  # fmt: skip
        return Urllib3Response(response)

    def close(self):
        self.manager.clear()


class Urllib3Response:
    """A response of urllib3 that also knows the other libraries' names for status and body."""

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
    """Answers by a script in the place where urllib3's own pool would send."""

    def urlopen(self, method, url, body=None, headers=None, **named):
        request = SimpleNamespace(
            method=method,
            url=f"{self.scheme}://{self.host}{url}",
            headers=headers,
            body=body,
            _cookies=None,
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


def as_mapping(headers):
    """The headers as requests and urllib3 take them; a dict stays the caller's own."""
    return headers if headers is None or isinstance(headers, dict) else dict(headers)


def as_text(value):
    return value.decode("latin-1") if isinstance(value, bytes) else value


ADAPTERS = [
    *[
        HttpxAdapter(name, colour)
        for name in ("httpx", "httpx2")
        for colour in ("sync", "asyncio", "trio")
    ],
    RequestsAdapter(),
    Urllib3Adapter(),
    AiohttpAdapter(),
]


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "adapters(*words): run only over the adapters that have all these words"
    )
    # httpcore under trio, by itself, when a peer resets while a body goes out: the library's to
    # close.
    config.addinivalue_line(
        "filterwarnings", "ignore:Async generator 'httpx2?._content:ResourceWarning"
    )


def pytest_generate_tests(metafunc):
    if "adapter" in metafunc.fixturenames:
        words = {
            word for mark in metafunc.definition.iter_markers("adapters") for word in mark.args
        }
        is_smoke = any(metafunc.definition.iter_markers("smoke"))
        chosen = [
            adapter
            for adapter in ADAPTERS
            if words <= adapter.words and (is_smoke or adapter.is_full)
        ]
        assert chosen, f"no full lane has the words {words}: is the test to be marked smoke?"
        metafunc.parametrize(
            "adapter", chosen, ids=[repr(each)[1:-1].replace(" ", "-") for each in chosen]
        )


@pytest.fixture
def anyio_backend(adapter):
    return "trio" if adapter.colour == "trio" else "asyncio"


@pytest.fixture
def clock():
    """A clock whose sleeps are kept and take no time."""
    return FakeClock()


@pytest.fixture(scope="session")
def authority():
    """Issues certificates, and is trusted by nobody who was not told to."""
    return trustme.CA(key_type=trustme.KeyType.ECDSA)


@pytest.fixture(scope="session")
def context_of(authority):
    """Makes the TLS context of a server."""

    def make(name="127.0.0.1", by=authority):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        by.issue_cert(name, key_type=trustme.KeyType.ECDSA).configure_cert(context)
        return context

    return make


@pytest.fixture
def server():
    """The faulting server on loopback."""
    with FaultServer() as running:
        yield running


@pytest.fixture
def budget():
    """20 tokens that only a refund brings back, so that the cost of a call can be read off."""
    return RetryBudget(ratio=0, floor_per_second=0, burst=20)


@pytest.fixture
def quick():
    """Options of a transport that waits in fake time, with the middle of every random range."""
    return {"clock": FakeClock(), "random": lambda: 0.5}


@pytest.fixture
def quickest():
    """Seconds of the quickest of up to ten runs: a bound must not depend on a busy machine."""

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
