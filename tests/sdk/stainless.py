"""What is promised of the SDKs that Stainless generates: openai and anthropic.

Their loops are the same code, so the tests are too: each file of the two takes all of these and has
a class ``Sdk`` that says how to make its client and what to call. Both moved from httpx to httpx2.
"""

import importlib
import json

import pytest

import forbear
from forbear import EventStreams, IdempotencyKeys, RetryPolicy
from forbear.testing import answer

from .conftest import WAITS, attempts_of, plugged

ERROR = {"message": "Overloaded"}
OVERLOADED = {
    "openai": ("", {"error": {**ERROR, "type": "server_error", "code": "server_error"}}),
    "anthropic": ("error", {"type": "error", "error": {**ERROR, "type": "overloaded_error"}}),
}
GOOD = {
    "openai": ("", {"id": "1", "object": "chat.completion.chunk", "choices": []}),
    "anthropic": ("message_stop", {"type": "message_stop"}),
}


def events(*pairs):
    """A stream of server-sent events: name and data in turn."""
    body = "".join(
        f"event: {name}\ndata: {json.dumps(data)}\n\n" if name else f"data: {json.dumps(data)}\n\n"
        for name, data in zip(pairs[::2], pairs[1::2], strict=True)
    )
    headers = {"Content-Type": "text/event-stream"}
    return answer("200;chunked=1", body=body.encode(), headers=headers)


class Sdk:
    """One of the SDKs in one flavour; each file derives its own, with what is named here."""

    httpx2_since: int  # the major release that builds on it
    listing: str  # what list() and create() ask for
    creating: str

    def __init__(self, flavour, url, quick):
        self.flavour, self.url, self.quick = flavour, url, quick
        self.is_httpx2 = int(self.package.__version__.partition(".")[0]) >= self.httpx2_since

    def client(self, is_plugged, options=None, **more):
        """As the README says: the SDK's own client, wrapped."""
        kind, http_client = self.classes()
        http_client = http_client()
        if is_plugged:
            ours = importlib.import_module("forbear.httpx2" if self.is_httpx2 else "forbear.httpx")
            http_client = ours.wrap(http_client, **{**self.quick, **(options or {})})
        return kind(base_url=self.url, api_key="nobody's", http_client=http_client, **more)

    def list(self, client):
        return self.flavour.outcome(lambda: client.models.with_raw_response.list(), client.close)

    def create(self, client, **more):
        def call():
            return self.messages(client).with_raw_response.create(**self.message, **more)

        return self.flavour.outcome(call, client.close)

    def stream(self, client, **more):
        """All events of a streamed message."""

        async def acall():
            return [event async for event in await found()]

        def found():
            return self.messages(client).create(**self.message, stream=True, **more)

        call = acall if self.flavour.is_async else lambda: [*found()]
        return self.flavour.outcome(call, client.close)


@pytest.fixture
def waits(request, without_waiting):
    """What the SDK's own loop would have waited."""
    return without_waiting(request.module.Sdk.package._base_client)


@pytest.fixture
def sdk(request, flavour, server, waits, ungated):
    return request.module.Sdk(flavour, server.url, ungated)


# Both READMEs: connection errors, 408, 409, 429 and >=500 are retried 2 times by default.
@plugged(1 + 2, {}, off={"max_retries": 0})
def test_attempts_of_what_may_be_repeated(
    sdk, server, clock, waits, caplog, is_plugged, settings, attempts
):
    """One warning tells of attempts that multiply; the exception stays."""
    server.script(sdk.listing, 503)
    error = sdk.list(sdk.client(is_plugged, **settings))
    assert len(server.requests()) == attempts
    assert isinstance(error, sdk.package.InternalServerError)
    assert attempts_of(error) == (5 if is_plugged else None)
    assert clock.sleeps == WAITS * (attempts // 5)
    assert len(waits) == (2 if "max_retries" not in settings else 0)
    warned = [line for line in caplog.records if "max_retries=0" in line.getMessage()]
    assert len(warned) == (attempts == 15)


def test_a_message_without_a_key_is_sent_once(sdk, server):
    """The server may have done the work."""
    server.script(sdk.creating, "503;executes=1")
    error = sdk.create(sdk.client(True, max_retries=0))
    assert isinstance(error, sdk.package.InternalServerError)
    assert len(server.requests()) == server.executed() == 1
    assert forbear.record_of(error).reason == "method-not-replayable"


@pytest.mark.smoke
def test_a_message_is_bought_once(sdk, server):
    """503, then executed without an answer: the third request brings a key that the server knows."""
    server.script(sdk.creating, 503, "close")
    answer = sdk.create(sdk.client(True, {"idempotency": IdempotencyKeys()}, max_retries=0))
    assert (answer.status_code, answer.headers["idempotent-replayed"]) == (200, "true")
    assert (server.executed(), len(server.requests())) == (1, 3)
    assert len({arrival.key for arrival in server.requests()}) == 1
    assert forbear.record_of(answer.http_response).retries == 2


@pytest.mark.smoke
def test_a_stream_begins_again_after_an_overloaded_first_event(sdk, server):
    """With EventStreams(): 2 requests; while it never ends 4, and the SDK's own end of the story."""
    vendor = sdk.package.__name__
    policy = RetryPolicy(max_attempts=4, methods={"GET", "POST"}).for_vendors(vendor)
    options = {"policy": policy, "event_streams": EventStreams(first_event_timeout=20.0)}
    server.script(sdk.creating, events(*OVERLOADED[vendor]), events(*GOOD[vendor]))
    found = sdk.stream(sdk.client(True, options, max_retries=0))
    assert len(found) == 1
    assert len(server.requests()) == 2
    server.script(sdk.creating, events(*OVERLOADED[vendor]))
    error = sdk.stream(sdk.client(True, options, max_retries=0))
    assert isinstance(error, sdk.package.APIError)
    assert len(server.requests()) == 2 + 4


def test_the_sdks_loop_is_stopped(sdk, server, caplog, waits):
    """stop_outer_retries: its own loop is on, and ends with ours: 5, not 15, nothing to warn of."""
    server.script(sdk.listing, 503)
    error = sdk.list(sdk.client(True, {"stop_outer_retries": True}))
    assert isinstance(error, sdk.package.InternalServerError)
    assert len(server.requests()) == 5
    assert error.response.headers["x-should-retry"] == "false"
    assert len(forbear.record_of(error).attempts) == 5
    assert waits == []
    assert "SDK" not in caplog.text


@pytest.mark.parametrize("step", [503, "close"])
def test_what_stays_wrong_is_told_as_by_the_sdk_alone(sdk, server, step):
    """Same class, same words and body as without forbear."""
    server.script(sdk.listing, step)
    alone = sdk.list(sdk.client(False, max_retries=0))
    error = sdk.list(sdk.client(True, max_retries=0))
    assert (type(error), str(error)) == (type(alone), str(alone))
    assert getattr(error, "body", None) == getattr(alone, "body", None)
    assert attempts_of(error) == 5


@pytest.mark.smoke
def test_our_deadline_is_the_sdks_timeout(sdk, server):
    """The SDK's APITimeoutError, in time, with our exception as the cause."""
    server.script(sdk.listing, "hang")
    client = sdk.client(True, {"clock": None}, max_retries=0)

    async def alist():
        return await client.models.list()

    call = forbear.deadline(0.15)(alist if sdk.flavour.is_async else client.models.list)
    error = sdk.flavour.outcome(call, client.close)
    assert isinstance(error, sdk.package.APITimeoutError)
    assert isinstance(error.__cause__, forbear.DeadlineExceeded)
    assert forbear.record_of(error).reason == "deadline"
    # The server would never answer; the slack is for a busy machine.
    assert forbear.record_of(error).elapsed < 30
