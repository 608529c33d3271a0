"""The lanes of httpx and httpx2."""

import importlib

from forbear.testing import ScriptedTransport

from .lane import Lane


class HttpxLane(Lane):
    """A library of the httpx family in one flavour."""

    def __init__(self, name, flavour):
        self.name, self.flavour = name, flavour
        self.library = library = importlib.import_module(name)
        self.forbear = importlib.import_module(f"forbear.{name}")
        super().__init__()
        self.is_full = name == "httpx" and flavour != "trio"
        self.words = {"httpx-family", name, flavour, "async" if self.is_async else "sync"}
        self.words |= {"status-errors", "blank-headers", "stacks", "plain-bodies"}
        self.words.add("prefetches")
        self.transport_error, self.timeout_error = library.TransportError, library.TimeoutException
        self.status_error, self.connect_error = library.HTTPStatusError, library.ConnectError
        self.disconnect_error = self.cut_error = library.RemoteProtocolError
        self.read_timeout = library.ReadTimeout
        self.wire_errors = {
            "reset": {"ReadError", "RemoteProtocolError"},
            "close": {"RemoteProtocolError"},
            "garbage": {"RemoteProtocolError"},
            "hang": {"ReadTimeout"},
        }
        prefix = "Async" if self.is_async else ""
        self.transport_class = getattr(self.forbear, f"{prefix}RetryTransport")
        self.client_class = getattr(library, f"{prefix}Client")
        self.inner_class = getattr(library, f"{prefix}HTTPTransport")

    def pool_of(self, size):
        """Options of a client with so many connections, for which callers queue."""
        return {"inner": self.inner(limits=self.library.Limits(max_connections=size))}

    def is_idle(self, client):
        """Has such a pool all its connections back?"""
        pool = client._transport.inner._pool
        # The pool drops what is closed with the next request.
        return pool._requests == [] and all(
            connection.is_idle() or connection.is_closed() for connection in pool.connections
        )

    def retrying(self, client):
        """The part of a client that retries."""
        return client._transport

    def status(self, response):
        """The status of a response as a hook of the library gets it."""
        return response.status_code

    def reading_for(self, seconds):
        """A client's timeouts: seconds for a read, and plenty for the rest."""
        return {"timeout": self.library.Timeout(30, read=seconds)}

    def build(self, inner, options, **settings):
        if "transport" not in settings:
            settings["transport"] = self.transport(inner, **options)
        return self.bare_client(**settings)

    async def open(self, client, method, url, **request):
        return await self.send_on(client, client.build_request(method, url, **request), stream=True)

    async def read(self, response):
        return await response.aread() if self.is_async else response.read()

    async def close(self, thing):
        await self.ended(thing.aclose() if self.is_async else thing.close())

    async def collect(self, response, got):
        """Read a body piece by piece into ``got``."""
        if self.is_async:
            async for piece in response.aiter_raw():
                got += piece
        else:
            for piece in response.iter_raw():
                got += piece

    def header(self, request, name):
        """All values of a header, of a request as an inner transport saw it."""
        return [
            value.decode()
            for found, value in request.headers.raw
            if found.lower() == name.lower().encode()
        ]

    def header_names(self, request):
        return [name.decode().lower() for name, _ in request.headers.raw]

    def watched(self, steps):
        """A scripted inner transport whose live responses note when they are closed."""
        return Watched(self.library, steps)

    # The family's own.

    def transport(self, inner=None, **options):
        """A retrying transport; a list of steps stands for a ScriptedTransport of them, a dict for
        settings of the library's own.
        """
        if inner is None or isinstance(inner, dict):
            inner = self.inner(**(inner or {}))
        elif isinstance(inner, list):
            inner = ScriptedTransport(inner)
        return self.transport_class(inner, **{"gate": None, **options})

    def inner(self, **options):
        """The library's own transport; without certificates, which take 30 ms to load."""
        return self.inner_class(**{"verify": False, **options})

    def bare_client(self, **settings):
        # The library's own five seconds for a read can pass where a busy machine runs the test.
        settings = {"trust_env": False, "verify": False, "timeout": 30, **settings}
        return self.client_class(**settings)

    async def send(self, transport, request):
        """One request straight through a transport."""
        if self.is_async:
            return await transport.handle_async_request(request)
        return transport.handle_request(request)

    async def send_on(self, client, request, **options):
        return await self.ended(client.send(request, **options))

    def __repr__(self):
        return f"<{self.name} {self.flavour}>"


class Watched:
    """Answers by a script, with live bodies.

    Attributes:
        closings: For each response, in order, how often its body was closed.
    """

    def __init__(self, library, steps):
        self._script = ScriptedTransport(steps)
        self._library = library
        self.closings = []
        self._stream = type(
            "WatchedStream", (WatchedBody, library.SyncByteStream, library.AsyncByteStream), {}
        )

    def __getattr__(self, name):  # requests and bodies
        return getattr(self._script, name)

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
        self.close()
