"""What forbear takes for granted about the installed libraries: their private attributes and their
exceptions.

A new version that changes one of these fails here, by name, and nowhere in production: each fact
says what the code does without it.
"""

import http.client
import importlib
import inspect
import io
import socket
from types import SimpleNamespace

import pytest
import urllib3

from forbear import FailureKind, Phase, RetryPolicy
from forbear.adapters import bodies, errors, pools, prefetching, splicing, wrapping
from forbear.testing import FaultServer

LIBRARIES = ("httpx", "httpx2")
library = pytest.mark.parametrize("name", LIBRARIES)
colour = pytest.mark.parametrize("colour", ["", "Async"], ids=["sync", "async"])


def module(name):
    return importlib.import_module(name)


def ours(name):
    return importlib.import_module(f"forbear.{name}")


# Private attributes, as _httpx_family/__init__.py lists them.


@library
@colour
def test_clients_keep_their_transports_in_transport_and_mounts(name, colour):
    """Without them wrap() and unwrap() raise TypeError with the way around it."""
    lib = module(name)
    client = getattr(lib, f"{colour}Client")(
        verify=False, trust_env=False, mounts={"all://a.example.com": None}
    )
    assert hasattr(client._transport, "handle_async_request" if colour else "handle_request")
    assert isinstance(client._mounts, dict)
    assert [type(pattern).__name__ for pattern in client._mounts] == ["URLPattern"]
    assert list(client._mounts.values()) == [None]
    del client._mounts
    with pytest.raises(TypeError, match="RetryTransport"):
        ours(name).wrap(client)
    client._mounts = {}


@library
@colour
def test_a_transport_keeps_its_connect_retries_in_pool_retries(name, colour):
    """Without it they are left as they are."""
    transport = getattr(module(name), f"{colour}HTTPTransport")(verify=False, retries=3)
    assert transport._pool._retries == 3
    assert wrapping.take_over_retries(object(), "RetryTransport") == 0


@library
@colour
def test_a_pool_keeps_requests_and_connections_under_a_lock(name, colour):
    """Without them slots that httpcore 1.0.9 has lost stay lost."""
    transport = getattr(module(name), f"{colour}HTTPTransport")(verify=False)
    pool = transport._pool
    with pool._optional_thread_lock:
        assert list(pool._requests) == []
        assert list(pool._connections) == []
    core = module(name.replace("httpx", "httpcore"))
    connection = pool.create_connection(core.Origin(b"http", b"api.example.com", 80))
    assert connection._connection is None
    assert connection._connect_failed is False
    assert not connection.is_closed()
    connection._connect_failed = True
    assert connection.is_closed()
    pools.free_lost_slots(object())


@library
@colour
@pytest.mark.parametrize("kind", ["direct", "http-proxy", "https-through-proxy", "socks"])
def test_a_connection_that_was_never_begun_is_freed(name, colour, kind):
    """Whatever kind of connection the pool makes; one that a request waits for is left alone."""
    lib = module(name)
    core = module(name.replace("httpx", "httpcore"))
    proxy = {"direct": None, "socks": "socks5://127.0.0.1:1"}.get(kind, "http://127.0.0.1:1")
    try:
        transport = getattr(lib, f"{colour}HTTPTransport")(verify=False, proxy=proxy)
    except (
        ImportError
    ):  # socksio is not installed: the library refuses the proxy, and there is no such connection
        assert kind == "socks"
        return
    pool = transport._pool
    scheme, port = (b"https", 443) if kind == "https-through-proxy" else (b"http", 80)
    origin = core.Origin(scheme, b"api.example.com", port)
    lost, wanted = pool.create_connection(origin), pool.create_connection(origin)
    pool._connections = [lost, wanted]

    class Waiting:
        connection = wanted

        def is_queued(self):
            return False

    pool._requests.append(Waiting())
    pools.free_lost_slots(transport)
    assert lost.is_closed()
    assert not wanted.is_closed()


@library
@colour
@pytest.mark.anyio
async def test_the_http1_connection_below_a_body_can_be_seen(name, colour):
    """Without it a body that stalls while it is read ahead is noticed by the client's own read
    timeout.
    """
    lib = module(name)
    with FaultServer() as server:
        server.script("/thing", "200;body=5")
        transport = getattr(lib, f"{colour}HTTPTransport")(verify=False)
        request = lib.Request("GET", server.url + "/thing")
        if colour:
            response = await transport.handle_async_request(request)
        else:
            response = transport.handle_request(request)
        connection = prefetching.connection_below(response.stream)
        assert connection._h11_state.trailing_data[0] in (b"", b"01234")
        assert connection._network_stream is response.extensions["network_stream"]
        assert callable(connection._network_stream.read)
        if colour:
            await response.stream.aclose()
            await transport.aclose()
        else:
            response.stream.close()
            transport.close()

    class Other:
        _httpcore_stream = None

    assert prefetching.connection_below(Other()) is None


@library
def test_headers_keep_their_lines_in_list(name):
    """Without it they are asked for as ``raw``, which costs more."""
    lib = module(name)
    headers = lib.Headers([(b"Content-Length", b"5")])
    assert headers._list == [(b"Content-Length", b"content-length", b"5")]
    response = lib.Response(200, stream=lib.ByteStream(b""))
    response.headers = SimpleNamespace(raw=[(b"Content-Length", b"5")])
    transport = SimpleNamespace(_prefetch=5, _places=prefetching.Places())
    assert prefetching.unread(transport, lib.Request("GET", "http://a"), response) == 5


@library
def test_bodies_can_be_seen_into(name):
    """``_stream`` of the iterator streams, ``fields`` of multipart and ``file`` of its fields."""
    lib = module(name)
    source = iter([b"a"])
    assert lib.Request("PUT", "http://a", content=source).stream._stream is source

    async def chunks():
        yield b"a"

    asource = chunks()
    assert lib.Request("PUT", "http://a", content=asource).stream._stream is asource

    file = io.BytesIO(b"abc")
    stream = lib.Request("POST", "http://a", data={"x": "y"}, files={"f": file}).stream
    assert [getattr(field, "file", None) for field in stream.fields] == [None, file]
    assert type(lib.Request("PUT", "http://a", content=b"abc").stream) is lib.ByteStream
    assert type(lib.Request("GET", "http://a").stream) is lib.ByteStream


@pytest.mark.parametrize("guard", [bodies.BodyGuard, bodies.AsyncBodyGuard])
def test_a_body_that_cannot_be_seen_into_is_a_one_shot_one(guard):
    """The strict side: read once, and never again."""

    class Opaque:
        def __iter__(self):
            return iter([b"a"])

        async def __aiter__(self):
            yield b"a"

    body = guard(Opaque(), 0)
    assert body.ready
    body._begin()
    assert not body.ready


@library
def test_the_two_libraries_share_no_class(name):
    """What makes a check by the module's name sound."""
    other = module({"httpx": "httpx2", "httpx2": "httpx"}[name])
    for attribute in (
        "BaseTransport",
        "AsyncBaseTransport",
        "ByteStream",
        "TransportError",
        "Response",
        "Request",
    ):
        mine, theirs = getattr(module(name), attribute), getattr(other, attribute)
        assert not issubclass(mine, theirs)
        assert not issubclass(theirs, mine)


# Exceptions. Taken from the installed libraries, so that a new one cannot go unnoticed.


def exceptions_of(name):
    found = {}
    for attribute in dir(module(name)):
        value = getattr(module(name), attribute)
        if isinstance(value, type) and issubclass(value, BaseException):
            found[attribute] = value
    return found


def an_instance(name, cls):
    lib = module(name)
    try:
        return cls("what happened")
    except TypeError:
        pass
    for arguments in (
        {"request": None, "response": lib.Response(500)},
        {"request": None},
    ):
        try:
            return cls("what happened", **arguments)
        except TypeError:
            continue
    return cls()


K, UNSENT, SENT, ANSWERED = FailureKind, Phase.UNSENT, Phase.SENT, Phase.ANSWERED

# research: which of them prove that nothing was sent, which may have reached the server, which
# never succeed
MEANS = {
    "ConnectError": (K.REFUSED, UNSENT),
    "ConnectTimeout": (K.CONNECT_TIMEOUT, UNSENT),
    "ProxyError": (K.PROXY, UNSENT),
    "PoolTimeout": (K.POOL, UNSENT),
    "ConnectionNotAvailable": (K.UNPROCESSED, UNSENT),
    "ReadTimeout": (K.READ_TIMEOUT, SENT),
    "WriteTimeout": (K.WRITE_TIMEOUT, SENT),
    "ReadError": (K.RESET, SENT),
    "WriteError": (K.RESET, SENT),
    "CloseError": (K.RESET, SENT),
    "NetworkError": (K.RESET, SENT),
    "RemoteProtocolError": (K.PROTOCOL, SENT),
    "TimeoutException": (K.TIMEOUT, SENT),
    "ProtocolError": (K.PROTOCOL, SENT),
    "TransportError": (K.PROTOCOL, SENT),
    "RequestError": (K.PROTOCOL, SENT),
    "HTTPError": (K.PROTOCOL, SENT),
    "DecodingError": (K.DECODING, ANSWERED),
    **dict.fromkeys(
        (
            "UnsupportedProtocol",
            "LocalProtocolError",
            "InvalidURL",
            "CookieConflict",
            "TooManyRedirects",
            "HTTPStatusError",
            "StreamError",
            "StreamConsumed",
            "StreamClosed",
            "RequestNotRead",
            "ResponseNotRead",
            "SSEError",
        ),
        (K.PERMANENT, None),
    ),
}


@pytest.mark.parametrize("name", ["httpx", "httpx2", "httpcore", "httpcore2"])
def test_every_exception_of_the_installed_library_is_classified(name):
    """A class that a new version brings is named here, before it is taken for something else."""
    family = name.replace("httpcore", "httpx")
    found = exceptions_of(name)
    assert len(found) >= 15
    for attribute, cls in found.items():
        assert attribute in errors.MEANING, f"{name}.{attribute} is new: say what it means"
        assert attribute in MEANS, f"{name}.{attribute} is new: say what it means"
        kind, phase = MEANS[attribute]
        failure = ours(family).classify(an_instance(family, cls))
        if kind is K.PROTOCOL and name.startswith("httpcore"):
            kind = K.RESET  # bare from httpcore, without h11's error behind it: the peer closed without an answer
        assert failure.kind is kind, attribute
        assert phase in (None, failure.phase), attribute
        assert failure.error == cls.__name__


@library
def test_what_is_retryable_is_what_may_be_chosen(name):
    """Every kind that a transport-level exception can have is either in ``failures`` or never
    retried.
    """
    never = {K.POOL, K.CERTIFICATE, K.DECODING, K.PERMANENT, K.UNKNOWN}
    for kind, _ in errors.MEANING.values():
        assert (kind in RetryPolicy().failures) is (kind not in never)


@library
def test_an_exception_of_the_other_family_is_unknown(name):
    """Which cannot happen in a transport that was built right, and is not guessed about."""
    other = module({"httpx": "httpx2", "httpx2": "httpx"}[name])
    assert ours(name).classify(other.ConnectError("x")).kind is K.UNKNOWN


@library
def test_a_subclass_of_a_known_exception_is_known(name):
    """Users and plug-ins derive their own."""

    class Mine(module(name).ReadTimeout):
        pass

    assert ours(name).classify(Mine("x")).kind is K.READ_TIMEOUT


# Bodies that go on, as _urllib3_family/splicing.py lists them.


@pytest.fixture
def streamed():
    """A urllib3 response whose body is to come, over a socket."""
    ours, theirs = socket.socketpair()
    theirs.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: "v1"\r\n\r\nhello')
    below = http.client.HTTPResponse(ours, method="GET")
    below.begin()
    pool = urllib3.HTTPConnectionPool("127.0.0.1")
    connection = pool.ConnectionCls("127.0.0.1")
    pool.pool.get(block=False)  # its place
    yield urllib3.HTTPResponse(
        below,
        headers=below.headers.items(),
        status=200,
        preload_content=False,
        original_response=below,
        pool=pool,
        connection=connection,
    )
    ours.close()
    theirs.close()


def test_a_streamed_response_of_urllib3_is_one_that_we_know(streamed):
    """All that is relied on is there; http.client reads from a buffered file, which is made a
    splice.
    """
    assert splicing.is_known(streamed)
    assert splicing.is_promising(streamed)
    splicing.splice(streamed, ())
    assert type(streamed._original_response.fp) is splicing.Splice
    assert type(streamed._original_response.fp.raw) is socket.SocketIO
    assert not splicing.is_known(streamed)  # a second splice above it would ask twice
    assert streamed.read() == b"hello"
    assert streamed.connection is None
    assert streamed._pool.pool.get(block=False) is not None


@pytest.mark.parametrize("name", ["_fp", "_original_response", "_connection", "_pool"])
def test_without_one_of_these_nothing_is_resumed(streamed, name):
    """The strict side: the response is left as it is."""
    file = streamed._original_response.fp
    kept = streamed._original_response, streamed._fp
    delattr(streamed, name)
    splicing.splice(streamed, ())
    assert kept[0].fp is file
    streamed._original_response, streamed._fp = kept
    streamed._connection = streamed._pool = None


@pytest.mark.parametrize("missing", ["fp", "length"])
def test_without_what_http_client_has_nothing_is_resumed(streamed, missing):
    below = streamed._original_response
    kept = getattr(below, missing)
    delattr(below, missing)
    assert not splicing.is_known(streamed)
    setattr(below, missing, kept)


def test_the_errors_of_a_body_pass_one_method():
    """Without it they carry no record."""
    assert callable(urllib3.HTTPResponse._error_catcher)
    assert callable(urllib3.HTTPConnectionPool._put_conn)
    has_shutdown = hasattr(urllib3.HTTPResponse, "shutdown")
    assert ("sock_shutdown" in inspect.signature(urllib3.HTTPResponse).parameters) is has_shutdown


def test_another_kind_of_response_is_left_alone():
    """Of urllib3's HTTP/2, of a test double, of an adapter that reads from memory."""
    made = urllib3.HTTPResponse(
        io.BytesIO(b"hello"), headers={"ETag": '"v1"'}, status=200, preload_content=False
    )
    splicing.splice(made, ())
    assert made.read() == b"hello"
