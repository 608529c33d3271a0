"""The lane of aiohttp: its session with the words of the suite, and answers by a script."""

import asyncio
import inspect
import io
import json

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

import forbear.aiohttp
from forbear.adapters.aiohttp.bodies import Replaced
from forbear.aiohttp import RetryMiddleware
from forbear.testing import ScriptedTransport

from .lane import Lane, as_text

ERRORS = {
    "connect_error": lambda: aiohttp.ClientConnectorError(None, ConnectionRefusedError(111, "no")),
    "connect_timeout": lambda: aiohttp.ConnectionTimeoutError("scripted connect_timeout"),
    "read_timeout": lambda: aiohttp.SocketTimeoutError("scripted read_timeout"),
    "read_error": lambda: aiohttp.ClientOSError(104, "scripted read_error"),
    "write_timeout": lambda: aiohttp.ServerTimeoutError("scripted write_timeout"),
    "write_error": lambda: aiohttp.ClientOSError(32, "scripted write_error"),
    "proxy_error": lambda: aiohttp.ClientProxyConnectionError(None, OSError(111, "scripted")),
    "pool_timeout": lambda: aiohttp.ConnectionTimeoutError("scripted pool_timeout"),
    "disconnect": lambda: aiohttp.ServerDisconnectedError(),
}


class AiohttpLane(Lane):
    name, flavour = "aiohttp", "asyncio"
    words = {"aiohttp", "async", "asyncio", "blank-headers", "stacks", "prefetches"}
    library = aiohttp
    forbear = forbear.aiohttp
    transport_error, timeout_error = aiohttp.ClientError, aiohttp.ServerTimeoutError
    status_error = aiohttp.ClientResponseError
    connect_error = aiohttp.ClientConnectorError
    disconnect_error = aiohttp.ServerDisconnectedError
    read_timeout = aiohttp.SocketTimeoutError
    cut_error = aiohttp.ClientPayloadError
    wire_errors = {
        "reset": {"ClientOSError", "ServerDisconnectedError", "ClientConnectionResetError"},
        "close": {"ServerDisconnectedError"},
        "garbage": {"ClientResponseError"},
        "hang": {"SocketTimeoutError"},
    }

    def pool_of(self, size):
        return {"settings": {"limit": size}}

    def is_idle(self, client):
        return not client.session.connector._acquired and not client.session.connector._waiters

    def retrying(self, client):
        return client.middleware

    def status(self, response):
        return response.status

    def reading_for(self, seconds):
        return {"timeout": aiohttp.ClientTimeout(sock_connect=5, sock_read=seconds)}

    def build(self, inner, options, **settings):
        chain = [self.transport(**options)]
        chain += [*inner] if isinstance(inner, Stack) else [scripted(inner)] if inner else []
        return AiohttpClient(tuple(chain), **settings)

    def transport(self, inner=None, **options):
        judge = options.get("retry_if")
        if judge is not None:
            options["retry_if"] = lambda response: judge(AiohttpResponse(response))
        middleware = RetryMiddleware(**{"gate": None, **options})
        return middleware if inner is None else Stack(middleware, scripted(inner))

    async def call(self, client, method, url, **request):
        response = await client.request(method, url, **request)
        await self.read(response)
        return response

    async def open(self, client, method, url, **request):
        return await client.request(method, url, **request)

    async def read(self, response):
        return await response.aread()

    async def collect(self, response, got):
        async for piece in response.response.content.iter_any():
            got += piece

    def header(self, request, name):
        return request.headers.getall(name, [])

    def header_names(self, request):
        return [name.lower() for name in request.headers]

    def watched(self, steps):
        return Watched(steps)

    def __repr__(self):
        return "<aiohttp asyncio>"


class Request(aiohttp.ClientRequest):
    """Retrieves the error that aiohttp's own task drops if a peer resets just before a body's end."""

    async def send(self, conn):
        response = await super().send(conn)
        if self._writer:
            self._writer.add_done_callback(lambda task: task.cancelled() or task.exception())
        return response


class AiohttpClient:
    """A session with the words of the suite."""

    def __init__(self, middlewares, *, limit=100, follow_redirects=False, timeout=30):
        if not isinstance(timeout, aiohttp.ClientTimeout):
            timeout = aiohttp.ClientTimeout(sock_connect=timeout, sock_read=timeout)
        self.middleware = middlewares[0] if middlewares else None
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=limit),
            timeout=timeout,
            middlewares=middlewares,
            request_class=Request,
        )
        self._follows = follow_redirects

    async def request(self, method, url, *, content=None, headers=None, **named):
        if isinstance(content, bytes) and len(content) > 2**20:
            content = io.BytesIO(content)  # as aiohttp asks for
        if "data" in named:
            content = named.pop("data")
        if isinstance(headers, (list, tuple)):
            headers = CIMultiDict((as_text(name), as_text(value)) for name, value in headers)
        if "files" in named:
            content = aiohttp.FormData()
            for name, (filename, file) in named.pop("files").items():
                content.add_field(name, file, filename=filename)
        url = URL(url)
        if url.user and "Authorization" in (headers or {}):
            url = url.with_user(None)  # aiohttp refuses to choose
        named = {"allow_redirects": self._follows, "data": content, "headers": headers, **named}
        return AiohttpResponse(await self.session.request(method, url, **named))

    async def close(self):
        await self.session.close()
        # A transport with a part of an upload left is not closed until its peer has read that.
        for transport in list(asyncio.get_running_loop()._transports.values()):
            transport.abort()
        await asyncio.sleep(0)


class AiohttpResponse:
    """A response of aiohttp that also knows the other libraries' names for status and body."""

    def __init__(self, response):
        self.response = response
        self.status_code = response.status

    async def aread(self):
        self.content = await self.response.read()
        return self.content

    def json(self):
        return json.loads(self.content)

    def __getattr__(self, name):
        return getattr(self.response, name)


class Stack(tuple):
    """Middlewares one below the other."""

    def __new__(cls, *middlewares):
        return super().__new__(cls, middlewares)


class Scripted(ScriptedTransport):
    """Answers by a script, as the last middleware, in the place where aiohttp would send."""

    async def __call__(self, request, handler):
        return await self.handle_async_request(request)

    async def handle_async_request(self, request):
        body = Written()
        if request.body:
            await request.body.write_with_length(body, None)
        step = self._next(request, bytes(body.raw_bytes))
        if isinstance(step, str):
            if step == "pool_timeout":
                request.session.connector._available_connections = lambda key: 0
            raise ERRORS[step]()
        status, headers, content = step
        lines = headers.items() if hasattr(headers, "items") else headers
        return self.seen(answered(request, status, lines, content))

    def seen(self, response):
        return response


class Watched(Scripted):
    """Knows which of its answers are read to their end or closed."""

    def __init__(self, steps):
        super().__init__(steps)
        self._answers = []

    def seen(self, response):
        self._answers.append(response)
        return response

    @property
    def closings(self):
        return [int(answer.closed) for answer in self._answers]


class Written:
    """Takes a body in the place of a connection."""

    def __init__(self):
        self.raw_bytes = bytearray()

    async def write(self, chunk):
        self.raw_bytes += chunk


class Parts:
    """A source."""

    def __init__(self, parts):
        self.parts = parts

    async def read(self):
        return self.parts.pop() if self.parts else b""

    async def close(self):
        self.parts.clear()


class Live(Replaced):
    """The body of an answer, which comes when it is read, or waited for."""

    async def wait_eof(self):
        while not self.is_eof():
            await self._wait("wait_eof")


def answered(request, status, lines, content):
    """Make a response with a live body."""
    named = {"writer": None, "continue100": None, "timer": request._timer, "traces": []}
    if "stream_writer" in inspect.signature(aiohttp.ClientResponse.__init__).parameters:
        named["stream_writer"] = type("Writer", (), {"output_size": 0})()
    response = aiohttp.ClientResponse(
        request.method, request.url, request_info=request.request_info, loop=request.loop,
        session=request.session, **named,
    )  # fmt: skip
    pairs = [(as_text(name), as_text(value)) for name, value in lines]
    response._headers = CIMultiDictProxy(CIMultiDict(pairs))
    response._raw_headers = tuple(
        (name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs
    )
    response.status, response.reason, response._closed = status, "", False
    parts = [content] if content and request.method != "HEAD" else []

    response.content = Live(aiohttp.streams.EMPTY_PAYLOAD, Parts(parts))
    response.content.on_eof(response._response_eof)
    return response


def scripted(inner):
    if isinstance(inner, list):
        return Scripted(inner)
    if callable(inner):
        return inner
    return lambda request, handler: inner.handle_async_request(request)
