"""What tests of telemetry share: every client behind one way of calling, and numbers looked up in a
registry.

Clients have no gate unless a test gives one: retries would else depend on the calls before.
"""

from __future__ import annotations

import importlib
import threading
from contextlib import AsyncExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import anyio
import pytest

from forbear.testing import FaultServer

# Tests run over the full lanes; those marked ``smoke`` over the others too, whose code is the same.
FULL = ("httpx-sync", "httpx-asyncio", "requests", "urllib3")
OTHERS = ("httpx-trio", "httpx2-sync", "httpx2-asyncio", "httpx2-trio")


def pytest_generate_tests(metafunc):
    if "caller" in metafunc.fixturenames:
        is_smoke = any(metafunc.definition.iter_markers("smoke"))
        names = FULL + OTHERS if is_smoke else FULL
        metafunc.parametrize("caller", [Caller(name) for name in names], ids=names)


class Caller:
    """A client of one library in one colour, which makes calls one after the other."""

    def __init__(self, name: str) -> None:
        self.library, _, self.colour = name.partition("-")
        self.is_async = self.colour in ("asyncio", "trio")

    def calls(self, *calls: tuple[Any, ...], **options: Any) -> list[Any]:
        """Make calls, each a method, a URL and perhaps headers and a body; return statuses and
        errors.
        """
        if self.is_async:
            return anyio.run(self._calls, calls, options, backend=self.colour)
        with self.client(options) as client:
            return [self._outcome(client, *call) for call in calls]

    async def _calls(self, calls: Any, options: dict[str, Any]) -> list[Any]:
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
        options = {"gate": None, **options}
        library = importlib.import_module(self.library)
        adapter = importlib.import_module(f"forbear.{self.library}")
        policy = options.pop("policy")
        if self.library == "requests":
            return adapter.mount(library.Session(), policy, **options)
        if self.library == "urllib3":
            return adapter.RetryPoolManager(policy, timeout=5, **options)
        if self.is_async:
            transport = adapter.AsyncRetryTransport(policy=policy, **options)
            return library.AsyncClient(transport=transport)
        return library.Client(transport=adapter.RetryTransport(policy=policy, **options))

    def _outcome(
        self, client: Any, method: str, url: str, headers: Any = None, body: Any = None
    ) -> Any:
        # Streamed, as large bodies are: the body is handed over before it is read.
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


@pytest.fixture
def server() -> Any:
    with FaultServer() as running:
        yield running


@pytest.fixture
def nobody() -> str:
    """An address at which nobody listens."""
    with FaultServer() as gone:
        return gone.url


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

    Requests for the rest get ``answers``.
    """

    protocol_version = "HTTP/1.1"
    content = b"0123456789abcdef" * 20_000
    answers: ClassVar[list[int]]
    failures: ClassVar[list[int]]

    def do_GET(self):
        asked = self.headers.get("Range")
        if asked is None:
            first, status = 0, self.failures.pop(0) if self.failures else 200
        else:
            first, status = int(asked[len("bytes=") : -1]), self.answers.pop(0)
        body = self.content[first:] if status < 400 else b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"1"')
        if status == 206:
            whole = len(self.content)
            self.send_header("Content-Range", f"bytes {first}-{whole - 1}/{whole}")
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if asked is None else body)
        self.close_connection = True

    def log_message(self, *_): ...


@pytest.fixture
def download():
    """A function: the address of such a file."""
    servers = []

    def serve(*answers, failures=()):
        script = {"answers": list(answers), "failures": list(failures)}
        handler = type("Answering", (Download,), script)
        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), handler))
        threading.Thread(target=servers[-1].serve_forever, kwargs={"poll_interval": 0.01}).start()
        return f"http://127.0.0.1:{servers[-1].server_port}/"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()
