"""openai and anthropic from PyPI, pointed at the faulting server: they gain retries and change nowhere else."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import anyio
import httpx
import pytest

import forbear
import forbear.httpx
import forbear.httpx2
from forbear import IdempotencyKeys, RetryPolicy
from forbear.testing import FakeClock

pytestmark = pytest.mark.real
ANSWER = "200;header=Content-Type:application/json;body=1"  # its content is the JSON document 0
TWICE = RetryPolicy(max_attempts=2)


class Sdk:
    """One SDK in one colour, spoken to as its README says.

    Attributes:
        get_path, post_path: Where its requests for a list and for a completion arrive.
    """

    def __init__(self, name: str, default_client: str, *, is_async: bool) -> None:
        self.name = name
        self.is_async = is_async
        self._default_client = default_client
        self.get_path, self.post_path = {
            "openai": ("/models", "/chat/completions"),
            "anthropic": ("/v1/models", "/v1/messages"),
        }[name]
        self.module: ModuleType

    def http_client(self) -> Any:
        """The SDK's own HTTP client, with its timeouts and limits."""
        return getattr(self.module, self._default_client)(trust_env=False)

    def build(self, url: str, **options: Any) -> Any:
        name = {"openai": "OpenAI", "anthropic": "Anthropic"}[self.name]
        kind = getattr(self.module, f"Async{name}" if self.is_async else name)
        return kind(base_url=url, api_key="key-of-nobody", **{"max_retries": 0, **options})

    def get(self, client: Any) -> Any:
        return client.models.with_raw_response.list()

    def post(self, client: Any) -> Any:
        asked = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
        if self.name == "openai":
            return client.chat.completions.with_raw_response.create(**asked)
        return client.messages.with_raw_response.create(max_tokens=5, **asked)

    def run(self, method: str, client: Any, *, deadline: float | None = None) -> Any:
        """One request, then the client is closed; return its answer or its exception."""
        call = {"GET": self.get, "POST": self.post}[method]
        if self.is_async:
            return anyio.run(self._arun, call, client, deadline)
        with client:
            try:
                if deadline is None:
                    return call(client)
                with forbear.deadline(deadline):
                    return call(client)
            except Exception as error:
                return error

    async def _arun(self, call: Any, client: Any, deadline: float | None) -> Any:
        async with client:
            try:
                if deadline is None:
                    return await call(client)
                with forbear.deadline(deadline):
                    return await call(client)
            except Exception as error:
                return error


SDKS = [
    Sdk("openai", "DefaultHttpx2Client", is_async=False),
    Sdk("openai", "DefaultAsyncHttpx2Client", is_async=True),
    Sdk("anthropic", "DefaultHttpxClient", is_async=False),
    Sdk("anthropic", "DefaultAsyncHttpxClient", is_async=True),
]


@pytest.fixture(params=SDKS, ids=lambda sdk: f"{sdk.name}-{'async' if sdk.is_async else 'sync'}")
def sdk(request, need_package):
    request.param.module = need_package(request.param.name)
    return request.param


def wrapped(sdk: Sdk, server: Any, **options: Any) -> Any:
    """As the README says: the SDK's own client, wrapped, and the SDK's own retries off."""
    options = {"clock": FakeClock(), "random": lambda: 0.5, **options}
    return sdk.build(server.url, http_client=forbear.httpx2.wrap(sdk.http_client(), **options))


def test_a_list_survives_what_may_be_repeated(sdk, server):
    """503, a dropped connection, then the answer: three requests, and the SDK returns as if nothing had been."""
    server.script(sdk.get_path, 503, "close", ANSWER)
    answer = sdk.run("GET", wrapped(sdk, server))
    assert answer.status_code == 200
    assert len(server.requests(sdk.get_path)) == 3
    assert {dict(arrival.headers)["x-stainless-retry-count"] for arrival in server.requests()} == {"0"}
    assert forbear.record_of(answer.http_response).reasons == ("503", "RemoteProtocolError")


def test_a_completion_without_a_key_is_bought_once(sdk, server):
    """POST: the server may have done the work, so the SDK's own exception comes back after one request."""
    server.script(sdk.post_path, "503;executes=1", ANSWER)
    error = sdk.run("POST", wrapped(sdk, server))
    assert isinstance(error, sdk.module.APIStatusError)
    assert (error.status_code, len(server.requests()), server.executed()) == (503, 1, 1)
    assert forbear.record_of(error).reason == "method-not-replayable"


def test_a_completion_with_a_generated_key_is_repeated_and_bought_once(sdk, server):
    """idempotency=IdempotencyKeys(): the server executes, drops the connection, and knows the key again."""
    server.script(sdk.post_path, "503", "close", ANSWER)
    answer = sdk.run("POST", wrapped(sdk, server, idempotency=IdempotencyKeys()))
    assert answer.status_code == 200
    assert answer.headers["idempotent-replayed"] == "true"
    assert server.executed() == 1
    keys = {arrival.key for arrival in server.requests(sdk.post_path)}
    assert len(server.requests()) == 3
    assert len(keys) == 1
    assert None not in keys
    assert len({arrival.sha256 for arrival in server.requests()}) == 1


@pytest.mark.parametrize(
    ("step", "name"),
    [
        (503, "InternalServerError"),
        ("429;retry-after=1", "RateLimitError"),
        (408, "APIStatusError"),
        ("close", "APIConnectionError"),
        ("hang", "APITimeoutError"),
    ],
)
def test_what_stays_wrong_is_told_by_the_sdks_own_exception(sdk, server, step, name):
    """Same class, same status and body as without us; record_of finds the story in it."""
    timeout = {"timeout": 0.3} if step == "hang" else {}
    server.script(sdk.get_path, step)
    bare = sdk.run("GET", sdk.build(server.url, http_client=sdk.http_client(), **timeout))
    options = {"policy": TWICE, "clock": FakeClock()}
    client = sdk.build(server.url, http_client=forbear.httpx2.wrap(sdk.http_client(), **options), **timeout)
    error = sdk.run("GET", client)
    assert type(error) is type(bare)
    assert isinstance(error, getattr(sdk.module, name))
    assert str(error) == str(bare)
    assert getattr(error, "body", None) == getattr(bare, "body", None)
    assert len(server.requests()) == 1 + 2
    record = forbear.record_of(error)
    assert (len(record.attempts), record.reason) == (2, "attempts-exhausted")


def test_our_deadline_is_the_sdks_timeout(sdk, server):
    """forbear.deadline around an SDK call: its APITimeoutError, in time, with our exception as the cause."""
    server.script(sdk.get_path, "hang")
    error = sdk.run("GET", wrapped(sdk, server, clock=None), deadline=0.15)
    assert type(error) is sdk.module.APITimeoutError
    assert isinstance(error.__cause__, forbear.DeadlineExceeded)
    assert forbear.record_of(error).reason == "deadline"
    # The server would never answer; the slack is for a busy machine.
    assert forbear.record_of(error).elapsed < 0.15 + 2


def test_a_built_client_can_be_wrapped_too(sdk, server):
    """wrap(client._client): for code that only hands over a finished SDK client; unwrap undoes it."""
    server.script(sdk.get_path, 503, ANSWER)
    client = sdk.build(server.url)
    before = client._client._transport
    assert forbear.httpx2.wrap(client._client, clock=FakeClock()) is client._client
    assert sdk.run("GET", client).status_code == 200
    assert len(server.requests()) == 2
    forbear.httpx2.unwrap(client._client)
    assert client._client._transport is before


def test_wrapping_the_sdk_object_says_what_to_pass(sdk, server):
    """An SDK client is not an HTTP client: TypeError names client._client."""
    client = sdk.build(server.url)
    with pytest.raises(TypeError, match=r"forbear\.httpx2\.wrap\(client\._client\)"):
        forbear.httpx2.wrap(client)
    with pytest.raises(TypeError, match=r"forbear\.httpx2\.wrap"):
        forbear.httpx.wrap(client._client)


def test_openai_with_a_client_of_httpx_proper(server, need_package):
    """openai still takes a client of httpx at run time; that is forbear.httpx then."""
    openai = need_package("openai")
    server.script("/models", 503, ANSWER)
    http_client = forbear.httpx.wrap(httpx.Client(trust_env=False), clock=FakeClock())
    client = openai.OpenAI(base_url=server.url, api_key="x", http_client=http_client, max_retries=0)
    with client:
        assert client.models.with_raw_response.list().status_code == 200
    assert len(server.requests()) == 2


def test_left_on_the_sdks_own_retries_multiply(sdk, server):
    """What max_retries=0 is for: two attempts of ours under three of its own make six, not two."""
    server.script(sdk.get_path, "503;header=retry-after-ms:1")
    http_client = forbear.httpx2.wrap(sdk.http_client(), policy=TWICE, clock=FakeClock())
    sdk.run("GET", sdk.build(server.url, http_client=http_client, max_retries=2))
    assert len(server.requests()) == 6
