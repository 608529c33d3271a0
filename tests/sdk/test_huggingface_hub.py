"""huggingface_hub against the faulting server: how many requests arrive, without forbear and with
it.

From version 2 on it builds on httpx2, before on httpx; the same promises hold for both.
"""

import importlib

import anyio
import pytest
from huggingface_hub import HfApi, constants, set_async_client_factory, set_client_factory
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import _http, get_async_session, http_backoff
from huggingface_hub.utils._http import default_async_client_factory, default_client_factory

from forbear import RetryPolicy

from .conftest import attempts_of

LIBRARY = "httpx2" if hasattr(_http, "httpx2") else "httpx"
ours = importlib.import_module(f"forbear.{LIBRARY}")

MODEL = "/api/models/a/b"
FILE = "/a/b/resolve/main/config.json"


@pytest.fixture
def waits(without_waiting):
    """What http_backoff would have waited."""
    return without_waiting(_http)


@pytest.fixture(autouse=True)
def _its_own_factories(monkeypatch, waits):
    """huggingface_hub keeps one client for the whole process: give it back as it was."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(
        constants, "HF_HUB_DISABLE_TELEMETRY", True
    )  # it would ask huggingface.co, through our client
    yield
    set_client_factory(default_client_factory)
    set_async_client_factory(default_async_client_factory)


@pytest.fixture
def plug(ungated):
    """A function that plugs forbear in, or leaves it out."""

    def into(plugged):
        policy = RetryPolicy()
        if plugged:
            set_client_factory(
                lambda: ours.wrap(default_client_factory(), policy=policy, **ungated)
            )

    return into


# http_backoff retries 5 times by default, on 429, 500, 502, 503, 504 and lost connections; forbear
# sends 5 times.
PLUGGED = [
    pytest.param(False, {}, 1 + 5, id="alone"),
    pytest.param(False, {"max_retries": 0}, 1, id="neither"),
    pytest.param(True, {}, (1 + 5) * 5, id="both"),
    pytest.param(True, {"max_retries": 0}, 5, id="off"),
]


@pytest.mark.parametrize(("plugged", "settings", "attempts"), PLUGGED)
def test_attempts_of_http_backoff(plug, server, clock, waits, plugged, settings, attempts):
    """What downloads and uploads go through: attempts multiply unless max_retries=0; the exception
    stays.
    """
    plug(plugged)
    server.script(FILE, 503)
    with pytest.raises(HfHubHTTPError) as caught:
        http_backoff("GET", server.url + FILE, **settings)
    assert type(caught.value) is HfHubHTTPError
    assert len(server.requests()) == attempts
    assert clock.sleeps == [0.025, 0.75, 1.5, 3.0] * (attempts // 5 if plugged else 0)
    assert len(waits) == (0 if settings else 5)
    assert attempts_of(caught.value) == (5 if plugged else None)


def test_attempts_of_the_api(plug, server):
    """HfApi has no retry of its own."""
    plug(True)
    server.script(MODEL, 503)
    with pytest.raises(HfHubHTTPError):
        HfApi(endpoint=server.url, token=False).model_info("a/b")
    assert len(server.requests()) == 5


def test_attempts_of_the_asynchronous_client(server, ungated, clock):
    """set_async_client_factory: the same for get_async_session()."""
    set_async_client_factory(lambda: ours.wrap(default_async_client_factory(), **ungated))
    server.script(MODEL, 503)

    async def ask():
        async with get_async_session() as client:
            return await client.get(server.url + MODEL)

    response = anyio.run(ask)
    assert response.status_code == 503
    assert len(server.requests()) == 5
    assert clock.sleeps == [0.025, 0.75, 1.5, 3.0]
    assert attempts_of(response) == 5
