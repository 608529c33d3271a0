"""google-genai against the faulting server: its streams begin again until their first event."""

import httpx2
import pytest
from google import genai
from google.genai import errors, types

from forbear import EventStreams, RetryPolicy
from forbear.httpx2 import wrap

from .stainless import events

PATH = "/v1/models/m:streamGenerateContent"
POLICY = RetryPolicy(max_attempts=4, methods={"GET", "POST"}).for_vendors("google")
OVERLOADED = ("", {"error": {"code": 503, "message": "Overloaded", "status": "UNAVAILABLE"}})
GOOD = ("", {"candidates": [{"content": {"parts": [{"text": "hello"}], "role": "model"}}]})


@pytest.fixture
def streamed(flavour, server, ungated):
    """Return the texts of a stream, or what it raises."""

    def stream():
        made = httpx2.AsyncClient if flavour.is_async else httpx2.Client
        http_client = wrap(made(), POLICY, event_streams=EventStreams(), **ungated)
        name = "httpx_async_client" if flavour.is_async else "httpx_client"
        settings = {"base_url": server.url, "api_version": "v1", name: http_client}
        client = genai.Client(api_key="k", http_options=types.HttpOptions(**settings))
        asked = {"model": "m", "contents": "hi"}

        async def atexts():
            found = await client.aio.models.generate_content_stream(**asked)
            return [chunk.text async for chunk in found]

        def texts():
            return [chunk.text for chunk in client.models.generate_content_stream(**asked)]

        close = http_client.aclose if flavour.is_async else http_client.close
        return flavour.outcome(atexts if flavour.is_async else texts, close)

    return stream


def test_a_stream_begins_again_after_an_overloaded_first_event(streamed, server):
    """2 requests; while it never ends 4, and the SDK's own error."""
    server.script(PATH, events(*OVERLOADED), events(*GOOD))
    assert streamed() == ["hello"]
    assert len(server.requests()) == 2
    server.script(PATH, events(*OVERLOADED))
    assert isinstance(streamed(), errors.APIError)
    assert len(server.requests()) == 2 + 4
