"""huggingface_hub against the faulting server: how many requests arrive, without forbear and with
it.

From version 2 on it builds on httpx2, before on httpx; the same promises hold for both.
"""

import importlib

import anyio
import pytest
from huggingface_hub import HfApi, constants, set_async_client_factory, set_client_factory
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import _http, get_async_session, get_session, http_backoff
from huggingface_hub.utils._http import default_async_client_factory, default_client_factory

from forbear import RetryPolicy

from .conftest import attempts_of

LIBRARY = "httpx2" if hasattr(_http, "httpx2") else "httpx"
library = importlib.import_module(LIBRARY)
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


@pytest.mark.parametrize(
    ("plugged", "attempts"),
    [pytest.param(False, 1, id="alone"), pytest.param(True, 5, id="forbear")],
)
def test_attempts_of_the_api(plug, server, clock, plugged, attempts):
    """HfApi has no retry of its own: 503 for ever takes 5 requests with forbear, and ends in its
    own exception.
    """
    plug(plugged)
    server.script(MODEL, 503)
    with pytest.raises(HfHubHTTPError) as caught:
        HfApi(endpoint=server.url, token=False).model_info("a/b")
    assert type(caught.value) is HfHubHTTPError
    assert len(server.requests()) == attempts
    assert clock.sleeps == [0.025, 0.75, 1.5, 3.0] * (attempts // 5)
    assert attempts_of(caught.value) == (5 if plugged else None)


# http_backoff retries 5 times by default, on 429, 500, 502, 503, 504 and lost connections; forbear
# sends 5 times.
PLUGGED = [
    pytest.param(False, {}, 1 + 5, id="alone"),
    pytest.param(False, {"max_retries": 0}, 1, id="neither"),
    pytest.param(True, {}, (1 + 5) * 5, id="both"),
    pytest.param(True, {"max_retries": 0}, 5, id="off"),
]


@pytest.mark.parametrize(("plugged", "settings", "attempts"), PLUGGED)
@pytest.mark.parametrize(
    ("fault", "kind"),
    [(503, HfHubHTTPError), ("close", library.RemoteProtocolError)],
    ids=["503", "close"],
)
def test_attempts_of_http_backoff(
    plug, server, clock, waits, plugged, settings, attempts, fault, kind
):
    """What downloads and uploads go through: attempts multiply unless max_retries=0; the exception
    stays.
    """
    plug(plugged)
    server.script(FILE, fault)
    with pytest.raises(kind) as caught:
        http_backoff("GET", server.url + FILE, **settings)
    assert type(caught.value) is kind
    assert len(server.requests()) == attempts
    assert clock.sleeps == [0.025, 0.75, 1.5, 3.0] * (attempts // 5 if plugged else 0)
    assert len(waits) == (0 if settings else 5)
    assert attempts_of(caught.value) == (5 if plugged else None)


def test_hooks_and_settings_of_the_client_stay(plug, server):
    """The wrapped client is huggingface_hub's own: its request id is on every attempt, redirects
    are followed.
    """
    plug(True)
    server.script("/old", f"302;header=Location:{MODEL}")
    server.script(MODEL, 503, 200)
    assert get_session().get(server.url + "/old").status_code == 200
    assert len(server.requests()) == 1 + 2
    assert all("x-amzn-trace-id" in dict(lowered(arrival.headers)) for arrival in server.requests())


def lowered(headers):
    return [(name.lower(), value) for name, value in headers]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_attempts_of_the_asynchronous_client(server, ungated, clock, backend):
    """set_async_client_factory: the same for get_async_session()."""
    set_async_client_factory(lambda: ours.wrap(default_async_client_factory(), **ungated))
    server.script(MODEL, 503)

    async def ask():
        async with get_async_session() as client:
            return await client.get(server.url + MODEL)

    response = anyio.run(ask, backend=backend)
    assert response.status_code == 503
    assert len(server.requests()) == 5
    assert clock.sleeps == [0.025, 0.75, 1.5, 3.0]
    assert attempts_of(response) == 5
