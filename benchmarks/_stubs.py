"""Stubs: real requests and responses of one client family over transports that open no socket.

A request is built by the family's own client, so that it carries the usual headers and
`extensions["timeout"]`. A response has 8 headers as raw pairs, an unread stream and the extensions
of an HTTP/1.1 connection, so that closing or draining it costs what it costs in life.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any, Self

URL = "https://api.example.com/v1/items?page=2"
OTHER_URL = "https://other.example.com/v1/items"
BODY = b"x" * 101
HEADERS = [
    (b"Date", b"Fri, 20 Nov 2026 10:00:00 GMT"),
    (b"Server", b"nginx"),
    (b"Content-Type", b"application/json"),
    (b"Content-Length", b"101"),
    (b"Connection", b"keep-alive"),
    (b"Cache-Control", b"no-cache"),
    (b"Vary", b"Accept-Encoding"),
    (b"X-Request-Id", b"3f1c9a52d7e84b06"),
]


def received() -> Any:
    """Below a stream of the library's own: a connection of HTTP/1.1 whose h11 has the body.

    New for each response, since the library has just filled the buffer when it returns one.
    """
    state = SimpleNamespace(
        _receive_buffer=SimpleNamespace(_data=BODY), trailing_data=(BODY, False)
    )
    return SimpleNamespace(_stream=SimpleNamespace(_connection=SimpleNamespace(_h11_state=state)))


class Plan:
    """When one waiting call is to be sent again, and how late it was; in its extensions."""

    __slots__ = ("at", "late", "sends")

    def __init__(self) -> None:
        self.at = 0.0  # on time.monotonic
        self.late = -1.0  # seconds; below zero until the second sending
        self.sends = 0


class Family:
    """httpx or httpx2, with stub transports derived from its own base classes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lib = lib = importlib.import_module(name)

        class Body(lib.SyncByteStream, lib.AsyncByteStream):
            def __init__(self) -> None:
                self._httpcore_stream = received()

            def __iter__(self) -> Iterator[bytes]:
                yield BODY

            async def __aiter__(self) -> AsyncIterator[bytes]:
                yield BODY

        class Answering(lib.BaseTransport):
            """Returns one prebuilt response for ever, its body new each time."""

            def __init__(self, response: Any) -> None:
                self._response = response
                self._stream = response.stream if response is not None else None

            def handle_request(self, request: Any) -> Any:
                response = self._response
                response.stream = self._stream
                return response

        class AsyncAnswering(lib.AsyncBaseTransport):
            def __init__(self, response: Any) -> None:
                self._response = response
                self._stream = response.stream if response is not None else None

            async def handle_async_request(self, request: Any) -> Any:
                response = self._response
                response.stream = self._stream
                return response

        class Scripted(lib.BaseTransport):
            """Hands out responses laid out beforehand, in order; None stands for a refused
            connection.
            """

            def __init__(self) -> None:
                self.answers: deque[Any] = deque()

            def handle_request(self, request: Any) -> Any:
                answer = self.answers.popleft()
                if answer is None:
                    raise lib.ConnectError("connection refused", request=request)
                return answer

        class AsyncScripted(lib.AsyncBaseTransport):
            def __init__(self) -> None:
                self.answers: deque[Any] = deque()

            async def handle_async_request(self, request: Any) -> Any:
                answer = self.answers.popleft()
                if answer is None:
                    raise lib.ConnectError("connection refused", request=request)
                return answer

        class AsyncDeferring(lib.AsyncBaseTransport):
            """503 to a call's first sending, 200 to its second, which is compared with the plan."""

            def __init__(self, response_of: Any) -> None:
                self._response_of = response_of
                self.due = 0.0  # the instant planned for the call that was answered last

            def remaining(self) -> float:
                """Delay to give the call that was just answered."""
                return self.due - time.monotonic()

            async def handle_async_request(self, request: Any) -> Any:
                plan: Plan = request.extensions["plan"]
                plan.sends += 1
                if plan.sends == 1:
                    self.due = plan.at
                    return self._response_of(503)
                plan.late = time.monotonic() - plan.at
                return self._response_of(200)

        class Through(lib.BaseTransport):
            def __init__(self, send: Any) -> None:
                self.handle_request = send

        class AsyncThrough(lib.AsyncBaseTransport):
            def __init__(self, send: Any) -> None:
                self.handle_async_request = send

        self._through = {"sync": Through, "async": AsyncThrough}
        self._body = Body
        self._answering = {"sync": Answering, "async": AsyncAnswering}
        self._scripted = {"sync": Scripted, "async": AsyncScripted}
        self._deferring = AsyncDeferring
        self._clients = {
            "sync": lib.Client(transport=Answering(None)),
            "async": lib.AsyncClient(transport=AsyncAnswering(None)),
        }

    def request(self, flavour: str, url: str = URL, **extensions: Any) -> Any:
        request = self._clients[flavour].build_request(
            "GET", url, headers={"authorization": "Bearer token"}
        )
        request.extensions.update(extensions)
        return request

    def client(self, flavour: str, send: Any) -> Any:
        """The family's client, over what a candidate has made."""
        made = self.lib.Client if flavour == "sync" else self.lib.AsyncClient
        return made(transport=self._through[flavour](send))

    def response(self, status: int) -> Any:
        return self.lib.Response(
            status,
            headers=HEADERS,
            stream=self._body(),
            extensions={
                "http_version": b"HTTP/1.1",
                "reason_phrase": b"Stub",
                "network_stream": None,
            },
        )

    def answering(self, flavour: str) -> Any:
        return self._answering[flavour](self.response(200))

    def scripted(self, flavour: str) -> Any:
        return self._scripted[flavour]()

    def deferring(self) -> Any:
        return self._deferring(self.response)

    def caught(self, flavour: str, transport: Any) -> Any:
        """As `send_of`, and a refused connection is caught: the bare lane of failing calls."""
        refused = self.lib.ConnectError

        def send(request: Any) -> Any:
            try:
                return transport.handle_request(request)
            except refused:
                return None

        async def asend(request: Any) -> Any:
            try:
                return await transport.handle_async_request(request)
            except refused:
                return None

        return send if flavour == "sync" else asend

    def send_of(self, flavour: str, transport: Any) -> Any:
        """The bound method that a client of this flavour calls on a transport."""
        return transport.handle_request if flavour == "sync" else transport.handle_async_request


class Sleeps:
    """Puts no-ops in the place of time.sleep and asyncio.sleep while open, and counts calls."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Self:
        self._kept = time.sleep, asyncio.sleep
        time.sleep = self.sleep  # type: ignore[assignment]
        asyncio.sleep = self.asleep  # type: ignore[assignment]
        return self

    def __exit__(self, *exc_info: object) -> None:
        time.sleep, asyncio.sleep = self._kept  # type: ignore[assignment]

    def sleep(self, seconds: float) -> None:
        self.count += 1

    async def asleep(self, seconds: float, result: object = None) -> None:
        self.count += 1


class SleeplessClock:
    """The real clock with sleeps that only count: `clock=` where waits are stubbed."""

    def __init__(self, sleeps: Sleeps) -> None:
        self.monotonic = time.monotonic
        self.time = time.time
        self.sleep = sleeps.sleep
        self.asleep = sleeps.asleep


def generous_gate() -> Any:
    """A gate that takes notes as it is shipped, and lets every call go."""
    import forbear

    class Gate(forbear.RetryGate):
        def bad(self, *given: Any) -> bool:
            super().bad(*given)
            return True

        def is_healthy(self, origin: str) -> bool:
            return True

    return Gate()
