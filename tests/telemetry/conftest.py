"""What tests of telemetry share: every adapter behind one way of calling, and numbers looked up in
a registry.
"""

from __future__ import annotations

import importlib
import threading
from contextlib import AsyncExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import anyio
import pytest
import requests

import forbear.requests
import forbear.urllib3
from forbear.testing import FaultServer

LIBRARIES = ("httpx", "httpx2")
CALLERS = [
    *(f"{name}-{colour}" for name in LIBRARIES for colour in ("sync", "asyncio", "trio")),
    "requests",
    "urllib3",
]


class Caller:
    """A client of one library in one colour, which makes calls one after the other."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.library, _, self.colour = name.partition("-")

    def calls(self, *calls: tuple[Any, ...], **options: Any) -> list[Any]:
        """Make calls, each a method, a URL and perhaps headers and a body; return statuses and
        errors.
        """
        if self.colour in ("asyncio", "trio"):
            return anyio.run(self.acalls, calls, options, backend=self.colour)
        with self.client(options) as client:
            return [self._outcome(client, *call) for call in calls]

    async def acalls(self, calls: Any, options: dict[str, Any]) -> list[Any]:
        outcomes = []
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(self.client(options))
            for method, url, *rest in calls:
                headers, body = (*rest, None, None)[:2]
                try:
                    response = await client.request(method, url, headers=headers, content=body)
                    outcomes.append(response.status_code)
                except Exception as error:
                    outcomes.append(error)
        return outcomes

    def client(self, options: dict[str, Any]) -> Any:
        policy = options.pop("policy")
        if self.library == "requests":
            return forbear.requests.mount(requests.Session(), policy, **options)
        if self.library == "urllib3":
            return forbear.urllib3.RetryPoolManager(policy, timeout=5, **options)
        library = importlib.import_module(self.library)
        adapter = importlib.import_module(f"forbear.{self.library}")
        if self.colour == "sync":
            return library.Client(transport=adapter.RetryTransport(policy=policy, **options))
        return library.AsyncClient(transport=adapter.AsyncRetryTransport(policy=policy, **options))

    def _outcome(
        self, client: Any, method: str, url: str, headers: Any = None, body: Any = None
    ) -> Any:
        # Streamed, as large bodies are: what is read before it is handed over is asked for anew if
        # it breaks.
        named = {
            "requests": {"data": body, "stream": True},
            "urllib3": {"body": body, "preload_content": False},
        }.get(self.library, {"content": body})
        try:
            response = client.request(method, url, headers=headers, **named)
            _ = response.data if self.library == "urllib3" else response.content
        except Exception as error:
            return error
        return response.status if self.library == "urllib3" else response.status_code


@pytest.fixture(params=CALLERS)
def caller(request: pytest.FixtureRequest) -> Caller:
    """Every adapter, in every colour."""
    return Caller(request.param)


@pytest.fixture
def server() -> Any:
    with FaultServer() as running:
        yield running


@pytest.fixture
def series() -> Any:
    """A function: the samples of a metric in a registry, by the values of the given labels."""

    def read(registry: Any, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        found: dict[tuple[str, ...], float] = {}
        for family in registry.collect():
            for sample in family.samples:
                if sample.name == name:
                    key = tuple(sample.labels[label] for label in labels)
                    assert key not in found, "the labels asked for do not tell the samples apart"
                    found[key] = sample.value
        return found

    return read


class Download(BaseHTTPRequestHandler):
    """A large file whose connection breaks in the middle, once ``failures`` have been answered.

    What asks for the rest gets ``answers``.
    """

    protocol_version = "HTTP/1.1"
    content = b"0123456789abcdef" * 20_000
    answers: ClassVar[list[int]]
    failures: ClassVar[list[int]]

    def do_GET(self):
        asked = self.headers.get("Range")
        first = 0 if asked is None else int(asked.removeprefix("bytes=").rstrip("-"))
        status = (
            (self.failures.pop(0) if self.failures else 200)
            if asked is None
            else self.answers.pop(0)
        )
        body = self.content[first:] if status < 400 else b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"1"')
        if status == 206:
            self.send_header(
                "Content-Range", f"bytes {first}-{len(self.content) - 1}/{len(self.content)}"
            )
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if asked is None else body)
        self.close_connection = True

    def log_message(self, *_): ...


@pytest.fixture
def download():
    """A function: the address of such a file."""
    servers = []

    def serve(*answers, failures=()):
        handler = type(
            "Answering", (Download,), {"answers": list(answers), "failures": list(failures)}
        )
        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), handler))
        threading.Thread(target=servers[-1].serve_forever, kwargs={"poll_interval": 0.01}).start()
        return f"http://127.0.0.1:{servers[-1].server_port}/"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()
