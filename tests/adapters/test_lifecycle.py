"""A transport in use: what a call leaves behind, threads and tasks, later patches."""

import contextlib
import gc
from types import SimpleNamespace

import pytest

from forbear import IdempotencyKeys, RetryBudget, RetryGate, RetryPolicy
from forbear.testing import FakeClock

from ..lanes.aiohttp import answered
from .foreign import Foreign, collecting_by_hand, stream_of

pytestmark = pytest.mark.anyio
family = pytest.mark.adapters("httpx-family")

URL = "http://api.example.com/thing"
CALLS = 50


def answering(library, *steps):
    """Answers by turns, and keeps nothing."""

    def answer(request):
        step = steps[(inner.sent - 1) % len(steps)]
        if isinstance(step, str):
            raise getattr(library, step)("no")
        return library.Response(step, headers={"Location": "/b"} if step == 307 else {})

    inner = Foreign(answer)
    return inner


class Instant(FakeClock):
    """Its sleeps do not suspend: an event loop's own garbage is not ours to count."""

    async def asleep(self, seconds):
        self.sleep(seconds)


GARBAGE = {
    "success": ([200], {}),
    "answers": ([503, 503, 200], {}),
    "errors": (["ConnectError", "ReadTimeout", 200], {}),
    "gave-up-answer": ([503], {}),
    "gave-up-error": (["ConnectError"], {}),
    "redirect": ([307], {}),
    "deadline": ([503, "ReadError", 200], {"policy": RetryPolicy(total_timeout=60)}),
    "listener": ([503, 200], {"on_event": [lambda event: None]}),
    "keys": ([503, 200], {"idempotency": IdempotencyKeys()}),
    "no-budget": ([503, 200], {"budget": None}),
    "raise": ([503], {"policy": RetryPolicy(on_exhausted="raise")}),
}


@family
@pytest.mark.parametrize(("steps", "options"), GARBAGE.values(), ids=GARBAGE)
async def test_a_call_leaves_no_cyclic_garbage(adapter, steps, options):
    """Exactly 0 objects that only the garbage collector could free, with and without retries."""
    options = {"clock": Instant(), "random": lambda: 0.5, **options}
    transport = adapter.transport(answering(adapter.library, *steps), **options)
    request = adapter.library.Request("POST" if "idempotency" in options else "GET", URL)

    async def calls(count):
        for _ in range(count):
            with contextlib.suppress(adapter.library.HTTPError):
                await adapter.send(transport, request)

    await calls(3)  # imports, and what is made on first use
    with collecting_by_hand():
        await calls(CALLS)
        assert gc.collect() == 0


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
    """respx, responses and OpenTelemetry replace a method of the class: every call looks it up."""
    seen = []

    def answer():
        seen.append(1)
        return 503 if len(seen) == 1 else 200

    async with adapter.client(**quick) as client:
        patch(adapter, monkeypatch, answer)
        assert (await adapter.call(client, "GET", URL)).status_code == 200
    assert len(seen) == 2


async def test_what_retries_is_one_of_the_library_and_shows_its_state(adapter):
    """repr, in one line: class and limits; where there is an inner transport, that too."""
    async with adapter.client([200], gate=RetryGate(), budget=RetryBudget()) as client:
        found = adapter.retrying(client)
    assert isinstance(found, adapter.base_class)
    text = repr(found)
    assert text.startswith(f"<forbear.{adapter.name}.{type(found).__name__} ")
    assert "<RetryGate healthy> <RetryBudget 7/7" in text
    assert ("Scripted" in text) is (adapter.name not in ("urllib3", "aiohttp"))
    assert "\n" not in text


@pytest.mark.smoke
@pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")  # of trio: left in the middle
@pytest.mark.adapters("httpx-family")
async def test_the_body_of_an_answer_is_closed_once(adapter, quick):
    """Read ahead and broken, or left by the caller in the middle."""
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
