"""huggingface_hub against the faulting server: how many requests arrive, without forbear and with it.

From version 2 on it builds on httpx2, before on httpx; the same promises hold for both.
"""

import importlib

import anyio
import pytest
from huggingface_hub import HfApi, constants, set_async_client_factory, set_client_factory
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import _http, get_async_session, http_backoff
from huggingface_hub.utils._http import default_async_client_factory, default_client_factory

from .conftest import attempts_of, plugged

ours = importlib.import_module(f"forbear.{'httpx2' if hasattr(_http, 'httpx2') else 'httpx'}")
MODEL = "/api/models/a/b"


@pytest.fixture(autouse=True)
def waits(monkeypatch, without_waiting):
    """What http_backoff would have waited; the client of the whole process is given back."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    # It would ask huggingface.co, through our client.
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
    yield without_waiting(_http)
    set_client_factory(default_client_factory)
    set_async_client_factory(default_async_client_factory)


# http_backoff retries 5 times by default.
@plugged(1 + 5, {}, off={"max_retries": 0})
def test_attempts_of_http_backoff(server, ungated, waits, is_plugged, settings, attempts):
    """What downloads and uploads go through: the exception stays."""
    if is_plugged:
        set_client_factory(lambda: ours.wrap(default_client_factory(), **ungated))
    server.script(MODEL, 503)
    with pytest.raises(HfHubHTTPError) as caught:
        http_backoff("GET", server.url + MODEL, **settings)
    assert type(caught.value) is HfHubHTTPError
    assert len(server.requests()) == attempts
    assert len(waits) == (0 if settings else 5)
    assert attempts_of(caught.value) == (5 if is_plugged else None)


def test_attempts_of_the_api_and_of_the_asynchronous_client(server, ungated):
    """HfApi has no retry of its own; set_async_client_factory does the same for get_async_session()."""
    set_client_factory(lambda: ours.wrap(default_client_factory(), **ungated))
    set_async_client_factory(lambda: ours.wrap(default_async_client_factory(), **ungated))
    server.script(MODEL, 503)
    with pytest.raises(HfHubHTTPError):
        HfApi(endpoint=server.url, token=False).model_info("a/b")
    assert len(server.requests()) == 5

    async def ask():
        async with get_async_session() as client:
            return await client.get(server.url + MODEL)

    assert attempts_of(anyio.run(ask)) == 5
