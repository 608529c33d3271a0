"""Private attributes and exceptions that forbear relies on: a new version that changes one fails
here, by name. Each fact says what the code does without it.
"""

import asyncio
import http.client
import importlib.util
import inspect
import io
import socket
from importlib import import_module as module
from types import SimpleNamespace

import aiohttp
import pytest
import requests
import urllib3

from forbear import FailureKind
from forbear.adapters.aiohttp.port import HOLDS
from forbear.adapters.httpx import errors as httpx_errors
from forbear.adapters.httpx import guard as httpx_guard
from forbear.adapters.httpx import pools as httpx_pool
from forbear.adapters.httpx import reading as httpx_reading
from forbear.adapters.urllib3 import deadlines as urllib3_sockets
from forbear.engine.clock import SYSTEM_CLOCK
from forbear.strategies import Phase
from forbear.testing import FaultServer

LIBRARIES = ("httpx", "httpx2")
library = pytest.mark.parametrize("name", LIBRARIES)
flavour = pytest.mark.parametrize("flavour", ["", "Async"], ids=["sync", "async"])


def ours(name):
    return module(f"forbear.{name}")


def core_of(name):
    return module(name.replace("httpx", "httpcore"))


def transport_of(name, flavour, **options):
    return getattr(module(name), f"{flavour}HTTPTransport")(verify=False, **options)


# The httpx family, as the modules of adapters/httpx list it.


@library
@flavour
def test_clients_keep_their_transports_in_transport_and_mounts(name, flavour):
    """Without them wrap() raises TypeError, whose message alone looks for an SDK's ``_client``."""
    lib = module(name)
    settings = {"verify": False, "trust_env": False, "mounts": {"all://a.example.com": None}}
    client = getattr(lib, f"{flavour}Client")(**settings)
    assert hasattr(client._transport, "handle_async_request" if flavour else "handle_request")
    assert isinstance(client._mounts, dict)
    assert [type(pattern).__name__ for pattern in client._mounts] == ["URLPattern"]
    assert list(client._mounts.values()) == [None]
    del client._mounts
    with pytest.raises(TypeError, match="RetryTransport"):
        ours(name).wrap(client)
    client._mounts = {}


@library
@flavour
def test_a_transport_keeps_its_connect_retries_in_pool_retries(name, flavour):
    """Without it they are left as they are."""
    transport = transport_of(name, flavour, retries=3)
    assert transport._pool._retries == 3


@library
@pytest.mark.parametrize("is_closed_early", [False, True])
def test_a_response_whose_closing_was_cancelled_leaves_the_pool(name, is_closed_early):
    """Without ``_pool_request`` it would stay there, with its connection.

    Closed early: because the task was cancelled once before, while the body was drained.
    """
    lib = module(name)

    async def run(server):
        opened, closing = asyncio.Event(), asyncio.Event()

        async def trace(step, info):
            if step == "http11.receive_response_headers.complete":
                opened.set()
            if step == "http11.response_closed.started" and not closing.is_set():
                closing.set()
                await asyncio.sleep(0.01)

        inner = transport_of(name, "Async", limits=lib.Limits(max_connections=1))
        async with lib.AsyncClient(transport=ours(name).AsyncRetryTransport(inner)) as client:
            first = client.get(server.url, extensions={"trace": trace})
            task = asyncio.create_task(first)
            if is_closed_early:
                await opened.wait()
                await asyncio.sleep(0.05)
                task.cancel()
            await closing.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert inner._pool._requests == []
            assert (await client.get(server.url, timeout=5)).status_code == 200

    with FaultServer() as server:
        server.script("/", "503;body=64;drip=400" if is_closed_early else "503", "200")
        asyncio.run(run(server))


@library
@flavour
@pytest.mark.parametrize("kind", ["direct", "http-proxy", "https-through-proxy", "socks"])
def test_a_connection_that_was_never_begun_is_freed(name, flavour, kind):
    """Whatever kind of connection the pool makes; one that a request waits for is left alone.

    Without ``_requests`` slots that httpcore 1.0.9 has lost stay lost, and idle connections open.
    """
    core = core_of(name)
    proxy = {"direct": None, "socks": "socks5://127.0.0.1:1"}.get(kind, "http://127.0.0.1:1")
    if kind == "socks" and importlib.util.find_spec("socksio") is None:
        return  # the library refuses the proxy, and there is no such connection
    transport = transport_of(name, flavour, proxy=proxy)
    pool = transport._pool
    scheme, port = (b"https", 443) if kind == "https-through-proxy" else (b"http", 80)
    origin = core.Origin(scheme, b"api.example.com", port)
    lost, wanted = pool.create_connection(origin), pool.create_connection(origin)
    pool._connections = [lost, wanted]
    assert pool._requests == []
    pool._requests.append(SimpleNamespace(connection=wanted, is_queued=lambda: False))
    httpx_pool.free_lost_slots(object())
    httpx_pool.free_lost_slots(transport)
    pool._assign_requests_to_connections()
    assert pool.connections == [wanted]


@library
def test_a_body_over_http_1_shows_what_has_come_of_it(name):
    """Without ``_httpcore_stream`` and ``_h11_state`` each small body is read before it is handed
    over, and is not looked at in time; without its buffer, or ``_list`` of headers, the former.
    """
    lib = module(name)
    with FaultServer() as server, lib.HTTPTransport(verify=False) as transport:
        server.script("/", "200;body=160")
        response = transport.handle_request(lib.Request("GET", server.url + "/"))
        port = ours(name).RetryTransport(transport).port
        assert port.length_of(response) == 160
        parser = httpx_reading.parser_of(response.stream)
        assert parser is response.stream._httpcore_stream._stream._connection._h11_state
        is_there = len(parser._receive_buffer._data) == 160
        assert parser._receive_buffer._data == parser.trailing_data[0]
        assert port.has_arrived(response) is is_there
        response.stream.close()
    headers = lib.Headers([(b"Content-Length", b"5")])
    assert headers._list == [(b"Content-Length", b"content-length", b"5")]


@library
def test_bodies_can_be_seen_into(name):
    """``_stream`` of the iterator streams, ``fields`` of multipart and ``file`` of its fields."""
    lib = module(name)
    source = iter([b"a"])
    assert lib.Request("PUT", "http://a", content=source).stream._stream is source

    async def chunks():
        yield b"a"

    source = chunks()
    assert lib.Request("PUT", "http://a", content=source).stream._stream is source
    file = io.BytesIO(b"abc")
    stream = lib.Request("POST", "http://a", data={"x": "y"}, files={"f": file}).stream
    assert [getattr(field, "file", None) for field in stream.fields] == [None, file]
    assert type(lib.Request("PUT", "http://a", content=b"abc").stream) is lib.ByteStream
    assert type(lib.Request("GET", "http://a").stream) is lib.ByteStream
    body = httpx_guard.Guard([b"a"], 0)  # which cannot: read once, and never again
    assert body.ready
    body.begin()
    assert not body.ready


# Exceptions. Taken from the installed libraries, so that a new one cannot go unnoticed.


K = FailureKind
# After which a POST is sent again: proof that nothing was sent.
UNSENT = "ConnectError ConnectTimeout ProxyError PoolTimeout ConnectionNotAvailable InvalidURL"
UNSENT += " UnsupportedProtocol CookieConflict"
KNOWN = {*httpx_errors.MEANING, "ReadError", "WriteError", "CloseError", "TransportError"}
KNOWN |= {"RequestError", "StreamConsumed", "StreamClosed", "RequestNotRead", "ResponseNotRead"}


@pytest.mark.parametrize("name", ["httpx", "httpx2", "httpcore", "httpcore2"])
def test_every_exception_of_the_installed_library_is_classified(name):
    """A class that a new version brings is named here, before it is taken for something else."""
    family = name.replace("httpcore", "httpx")
    named = vars(module(name)).items()
    found = {key: one for key, one in named if isinstance(one, type) and issubclass(one, Exception)}
    assert len(found) >= 15
    for attribute, cls in found.items():
        assert attribute in KNOWN, f"{name}.{attribute} is new: say what it means"
        meanings = httpx_errors.MEANING
        kind, phase = next(
            meanings[one.__name__] for one in cls.__mro__ if one.__name__ in meanings
        )
        mine = type("Mine", (cls,), {"__module__": "mine"})  # users and plug-ins derive their own
        assert ours(family).classify(mine.__new__(mine, "x")).kind is not K.UNKNOWN
        failure = ours(family).classify(cls.__new__(cls, "what happened"))
        assert (failure.phase is Phase.UNSENT) is (attribute in UNSENT.split()), attribute
        if kind is K.PROTOCOL and name.startswith("httpcore"):
            kind = K.RESET  # bare from httpcore, without h11's error behind it: the peer closed without an answer
        assert failure.kind is kind, attribute
        assert failure.phase is phase, attribute
        assert failure.error == cls.__name__


# urllib3 and http.client, as resume.py and deadlines.py list them.


def test_a_streamed_response_of_urllib3_shows_its_socket():
    """Without it a drip is bounded by the library's own timeout for each receive.

    One of urllib3's HTTP/2, of a test double, of an adapter that reads from memory is left alone.
    """
    with FaultServer() as server, urllib3.PoolManager() as manager:
        server.script("/thing", "200;body=5")
        streamed = manager.request("GET", server.url + "/thing", preload_content=False)
        below = streamed._fp
        assert type(below) is http.client.HTTPResponse
        assert type(below.fp.raw) is socket.SocketIO
        assert isinstance(below.fp.raw._sock, socket.socket)
        assert urllib3_sockets.socket_of(streamed) is below.fp.raw._sock
        streamed.close()
    made = urllib3.HTTPResponse(io.BytesIO(b"hello"), status=200, preload_content=False)
    assert urllib3_sockets.socket_of(made) is None


# requests and urllib3.


def test_requests_keeps_where_a_file_stood():
    """``_body_position`` of a prepared request."""
    file = io.BytesIO(b"abc")
    file.seek(1)
    assert requests.Request("PUT", "http://a.example", data=file).prepare()._body_position == 1


# aiohttp, as port.py, bodies.py and request.py use it.


def test_aiohttps_requests_bodies_and_pool_are_as_they_are_read():
    """Without ``_timer``, ``_body`` or ``_middlewares`` it raises; else it is strict."""

    async def look():
        async def pieces():
            yield b"x"

        seen = []

        async def stop(request, handler):
            payload, _ = request._body, request._timer
            assert payload._value.__aiter__ is not None
            assert request.session.connector._available_connections(request.connection_key) == 100
            seen.append(payload is request.body)
            raise KeyError("stop")

        async with aiohttp.ClientSession(middlewares=(stop,)) as session:
            assert session._middlewares == (stop,)
            with pytest.raises(KeyError):
                await session.put("http://a.example/", data=pieces())
        assert seen == [True]

    asyncio.run(look())


def test_aiohttps_connections_are_found_again():
    """``_conns``; without it no connection is known to be an old one, and none is closed."""

    async def look():
        with FaultServer() as server:
            async with aiohttp.ClientSession() as session, session.get(server.url) as response:
                await response.read()
                [[(protocol, since)]] = session.connector._conns.values()
                assert protocol.is_connected()
                assert 0 <= SYSTEM_CLOCK.true_monotonic() - since < 60

    asyncio.run(look())


def test_aiohttps_readers_and_responses_have_what_is_overridden():
    """A response has its connection, and the task that writes the request's body, among its
    attributes: without them the copy for ``retry_if`` cannot end the caller's.
    """
    assert inspect.iscoroutinefunction(aiohttp.StreamReader._wait)
    assert "await self._wait(" in inspect.getsource(aiohttp.StreamReader.readany)
    assert "self._cache" in inspect.getsource(aiohttp.ClientResponse)

    async def look():
        async def pieces():
            yield b"x"
            await asyncio.sleep(5)

        with FaultServer() as server:
            server.script("/", "early:413:1;drip=50")
            sending = aiohttp.ClientSession()
            async with sending as session, session.put(server.url, data=pieces()) as response:
                held = [one for one in vars(response).values() if isinstance(one, HOLDS)]
                assert {type(one) for one in held} == set(HOLDS)

    asyncio.run(look())
