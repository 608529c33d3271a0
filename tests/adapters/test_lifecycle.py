"""A transport in use: what a call leaves behind, threads and tasks, later patches."""

from types import SimpleNamespace

import pytest

from ..lanes.aiohttp import answered
from .foreign import Foreign, stream_of

pytestmark = pytest.mark.anyio

URL = "http://api.example.com/thing"


def patch(adapter, monkeypatch, answer):
    """Replace the library's own sending, as mocks and instrumentation do."""
    library = adapter.library

    def sync_httpx(transport, request):
        return library.Response(answer())

    async def async_httpx(transport, request):
        return library.Response(answer())

    def requests(adapter, request, **named):
        response = library.Response()
        response.status_code, response._content = answer(), b""
        return response

    def urllib3(pool, method, url, *arguments, **named):
        return library.HTTPResponse(b"", status=answer(), request_method=method)

    async def connect(connector, request, traces, timeout):
        protocol = SimpleNamespace(set_response_params=lambda **named: None)
        return SimpleNamespace(protocol=protocol, close=lambda: None)

    async def send(request, connection):
        return answered(request, answer(), (), b"")

    async def start(response, connection):
        return response

    if adapter.name == "aiohttp":
        monkeypatch.setattr(library.TCPConnector, "connect", connect)
        monkeypatch.setattr(library.ClientRequest, "send", send)
        monkeypatch.setattr(library.ClientResponse, "start", start)
    elif adapter.name == "requests":
        monkeypatch.setattr(library.adapters.HTTPAdapter, "send", requests)
    elif adapter.name == "urllib3":
        monkeypatch.setattr(library.HTTPConnectionPool, "urlopen", urllib3)
    elif adapter.is_async:
        monkeypatch.setattr(adapter.inner_class, "handle_async_request", async_httpx)
    else:
        monkeypatch.setattr(adapter.inner_class, "handle_request", sync_httpx)


@pytest.mark.smoke
async def test_a_patch_made_after_the_client_was_built_is_seen(adapter, quick, monkeypatch):
    seen = []

    def answer():
        seen.append(1)
        return 503 if len(seen) == 1 else 200

    async with adapter.client(**quick) as client:
        patch(adapter, monkeypatch, answer)
        assert (await adapter.call(client, "GET", URL)).status_code == 200
    assert len(seen) == 2


@pytest.mark.smoke
@pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")  # of trio: left in the middle
@pytest.mark.adapters("httpx-family")
async def test_the_body_of_an_answer_is_closed_once(adapter, quick):
    library = adapter.library
    broken = library.ReadError("the rest does not come")
    for status, headers, error in (
        (200, {"Content-Length": "10"}, broken),
        (404, {"Content-Length": "10"}, broken),
        (200, {"Content-Length": "100000", "ETag": '"v1"'}, None),
        (200, {}, None),
    ):
        streams = []

        def answer(request, status=status, headers=headers, error=error, streams=streams):
            streams.append(stream_of(library, [b"0123", b"4567"], error))
            return library.Response(status, headers=headers, stream=streams[-1])

        async with adapter.client(Foreign(answer), **quick) as client:
            response = await adapter.open(client, "GET", URL)
            pieces = response.aiter_raw() if adapter.is_async else response.iter_raw()
            await anext(pieces) if adapter.is_async else next(pieces)
            await adapter.close(pieces)
            await adapter.close(response)
        assert [stream.closed for stream in streams] == [1] * len(streams), (status, headers)
