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

from .conftest import attempts_of

ours = importlib.import_module(f"forbear.{'httpx2' if hasattr(_http, 'httpx2') else 'httpx'}")
MODEL = "/api/models/a/b"


@pytest.fixture
def waits(without_waiting):
    """What http_backoff would have waited."""
    return without_waiting(_http)


@pytest.fixture(autouse=True)
def _its_own_factories(monkeypatch, waits):
    """huggingface_hub keeps one client for the whole process: give it back as it was."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    # It would ask huggingface.co, through our client.
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
    yield
    set_client_factory(default_client_factory)
    set_async_client_factory(default_async_client_factory)


# http_backoff retries 5 times by default.
@pytest.mark.parametrize(
    ("plugged", "settings", "attempts"),
    [
        pytest.param(False, {}, 1 + 5, id="alone"),
        pytest.param(True, {}, (1 + 5) * 5, id="both"),
        pytest.param(True, {"max_retries": 0}, 5, id="off"),
    ],
)
def test_attempts_of_http_backoff(server, ungated, waits, plugged, settings, attempts):
    """What downloads and uploads go through: attempts multiply unless max_retries=0; the exception
    stays.
    """
    if plugged:
        set_client_factory(lambda: ours.wrap(default_client_factory(), **ungated))
    server.script(MODEL, 503)
    with pytest.raises(HfHubHTTPError) as caught:
        http_backoff("GET", server.url + MODEL, **settings)
    assert type(caught.value) is HfHubHTTPError
    assert len(server.requests()) == attempts
    assert len(waits) == (0 if settings else 5)
    assert attempts_of(caught.value) == (5 if plugged else None)


def test_attempts_of_the_api(server, ungated):
    """HfApi has no retry of its own."""
    set_client_factory(lambda: ours.wrap(default_client_factory(), **ungated))
    server.script(MODEL, 503)
    with pytest.raises(HfHubHTTPError):
        HfApi(endpoint=server.url, token=False).model_info("a/b")
    assert len(server.requests()) == 5


def test_attempts_of_the_asynchronous_client(server, ungated):
    """set_async_client_factory: the same for get_async_session()."""
    set_async_client_factory(lambda: ours.wrap(default_async_client_factory(), **ungated))
    server.script(MODEL, 503)

    async def ask():
        async with get_async_session() as client:
            return await client.get(server.url + MODEL)

    assert attempts_of(anyio.run(ask)) == len(server.requests()) == 5
