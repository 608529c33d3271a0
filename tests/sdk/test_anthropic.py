"""anthropic against the faulting server: how many requests arrive, without forbear and with it.

From version 1 on anthropic takes a client of httpx2 and no other, before of httpx; the same
promises hold for both.
"""

from __future__ import annotations

import importlib
import re

import anthropic
import anthropic._base_client
import pytest

import forbear
from forbear import IdempotencyKeys, RetryPolicy

MAJOR = int(anthropic.__version__.partition(".")[0])
IS_HTTPX2 = MAJOR >= 1
ours = importlib.import_module("forbear.httpx2" if IS_HTTPX2 else "forbear.httpx")

EMPTY_LIST = "200;header=Content-Type:application/json;body=1"
EMPTY_STREAM = "200;header=Content-Type:text/event-stream;body=0"
BROKEN_STREAM = "cut:5;header=Content-Type:text/event-stream;body=10"


@pytest.fixture
def waits(without_waiting):
    """What anthropic's own loop would have waited."""
    return without_waiting(anthropic._base_client)


@pytest.fixture
def sdk(colour, server, waits, quick):
    return Sdk(colour, server.url, quick)


class Sdk:
    """anthropic in one colour."""

    def __init__(self, colour, url, quick):
        self.colour = colour
        self.url = url
        self.quick = quick

    def client(self, plugged, options=None, **more):
        """As the README says: the SDK's own client, wrapped."""
        default = (
            anthropic.DefaultAsyncHttpxClient
            if self.colour.is_async
            else anthropic.DefaultHttpxClient
        )
        http_client = default()
        if plugged:
            http_client = ours.wrap(http_client, **{**self.quick, **(options or {})})
        kind = anthropic.AsyncAnthropic if self.colour.is_async else anthropic.Anthropic
        return kind(base_url=self.url, api_key="nobody's", http_client=http_client, **more)

    def list(self, client):
        return self.colour.outcome(lambda: client.models.with_raw_response.list(), client.close)

    def create(self, client, **more):
        def call():
            return client.messages.with_raw_response.create(
                model="m", max_tokens=5, messages=[], **more
            )

        return self.colour.outcome(call, client.close)

    def stream(self, client, **more):
        """All events of a streamed message."""

        async def acall():
            return [event async for event in await found()]

        def found():
            return client.messages.create(model="m", max_tokens=5, messages=[], stream=True, **more)

        return self.colour.outcome(
            acall if self.colour.is_async else lambda: [*found()], client.close
        )


# anthropic's README: connection errors, 408, 409, 429 and >=500 are retried 2 times by default;
# forbear sends 4 times by default.
PLUGGED = [
    pytest.param(False, {}, 1 + 2, id="alone"),
    pytest.param(False, {"max_retries": 0}, 1, id="neither"),
    pytest.param(True, {}, (1 + 2) * 4, id="both"),
    pytest.param(True, {"max_retries": 0}, 4, id="off"),
]


@pytest.mark.parametrize(("plugged", "settings", "attempts"), PLUGGED)
@pytest.mark.parametrize(
    ("fault", "name"),
    [
        (503, "ServiceUnavailableError" if MAJOR >= 2 else "InternalServerError"),
        (429, "RateLimitError"),
        ("close", "APIConnectionError"),
    ],
    ids=["503", "429", "close"],
)
def test_attempts_of_what_may_be_repeated(
    sdk, server, clock, waits, plugged, settings, attempts, fault, name
):
    """A list while the server stays broken: attempts multiply unless max_retries=0; the exception
    stays.
    """
    server.script("/v1/models", fault)
    error = sdk.list(sdk.client(plugged, **settings))
    assert len(server.requests()) == attempts
    assert type(error).__name__ == name
    assert isinstance(error, anthropic.APIError)
    assert len(forbear.record_of(error).attempts) == (4 if plugged else int(fault != "close"))
    # Of each 4 attempts 3 follow a wait of forbear: the middle of 1 to 3, 1 to 6 and 1 to 10.5 s.
    assert clock.sleeps == [2.0, 3.5, 5.75] * (attempts // 4)
    assert len(waits) == (2 if "max_retries" not in settings else 0)


@pytest.mark.parametrize(("plugged", "settings", "attempts"), PLUGGED)
def test_attempts_of_a_message_with_generated_keys(sdk, server, plugged, settings, attempts):
    """IdempotencyKeys(): it may be repeated. anthropic sends no key, so each of its own retries
    gets a new one.
    """
    server.script("/v1/messages", 503)
    error = sdk.create(sdk.client(plugged, {"idempotency": IdempotencyKeys()}, **settings))
    assert isinstance(error, anthropic.InternalServerError)
    keys = [arrival.key for arrival in server.requests()]
    assert len(keys) == attempts
    if plugged:
        assert None not in keys
        assert keys == [key for key in keys[::4] for _ in range(4)]
        assert len(set(keys)) == attempts // 4
    else:
        assert set(keys) == {None}


@pytest.mark.parametrize(
    ("plugged", "settings", "attempts"),
    [
        pytest.param(False, {}, 1 + 2, id="alone"),
        pytest.param(True, {}, 1 + 2, id="both"),
        pytest.param(True, {"max_retries": 0}, 1, id="off"),
    ],
)
def test_attempts_of_a_message_without_a_key(sdk, server, plugged, settings, attempts):
    """The server may have done the work: forbear sends a POST without a key once, only the SDK's
    loop repeats it.
    """
    server.script("/v1/messages", 503)
    error = sdk.create(sdk.client(plugged, **settings))
    assert isinstance(error, anthropic.InternalServerError)
    assert len(server.requests()) == attempts
    if plugged:
        assert forbear.record_of(error).reason == "method-not-replayable"


def test_a_message_is_bought_once(sdk, server):
    """503, then executed without an answer: the third request brings the same key, and the server
    knows it.
    """
    server.script("/v1/messages", 503, "close")
    answer = sdk.create(sdk.client(True, {"idempotency": IdempotencyKeys()}, max_retries=0))
    assert answer.status_code == 200
    assert answer.headers["idempotent-replayed"] == "true"
    assert server.executed() == 1
    assert len(server.requests()) == 3
    assert len({arrival.key for arrival in server.requests()}) == 1
    assert forbear.record_of(answer.http_response).retries == 2


@pytest.mark.parametrize(("plugged", "settings", "attempts"), PLUGGED)
def test_attempts_of_a_stream_that_does_not_begin(sdk, server, plugged, settings, attempts):
    """stream=True with the caller's own key: attempts as without streaming."""
    server.script("/v1/messages", 503)
    error = sdk.stream(
        sdk.client(plugged, **settings), extra_headers={"Idempotency-Key": "order-1"}
    )
    assert isinstance(error, anthropic.InternalServerError)
    assert [arrival.key for arrival in server.requests()] == ["order-1"] * attempts


def test_a_stream_begins_after_two_failures(sdk, server):
    """stream=True: the events are those of the third answer."""
    server.script("/v1/messages", 503, 503, EMPTY_STREAM)
    assert sdk.stream(sdk.client(True, {"idempotency": IdempotencyKeys()}, max_retries=0)) == []
    assert len(server.requests()) == 3


def test_a_stream_that_breaks_is_the_callers_to_repeat(sdk, server):
    """What was streamed cannot be taken back: one request, and the same exception as without
    forbear.
    """
    server.script("/v1/messages", BROKEN_STREAM)
    alone = sdk.stream(sdk.client(False, max_retries=0))
    error = sdk.stream(sdk.client(True, {"idempotency": IdempotencyKeys()}, max_retries=0))
    assert isinstance(error, Exception)
    assert type(error) is type(alone)
    assert len(server.requests()) == 1 + 1


def test_overload_is_retried_if_asked(sdk, server):
    """529 overloaded_error: final by default, 4 attempts with for_vendors("anthropic")."""
    server.script("/v1/models", 529)
    sdk.list(sdk.client(True, max_retries=0))
    assert len(server.requests()) == 1
    error = sdk.list(
        sdk.client(True, {"policy": RetryPolicy().for_vendors("anthropic")}, max_retries=0)
    )
    assert len(server.requests()) == 1 + 4
    assert type(error).__name__ == "OverloadedError"


def test_a_throttled_answer_is_obeyed(sdk, server, clock):
    """429 with Retry-After: 7: the next request is 7 s later, and half of a tenth of it."""
    server.script("/v1/models", "429;retry-after=7", EMPTY_LIST)
    assert sdk.list(sdk.client(True, max_retries=0)).status_code == 200
    assert len(server.requests()) == 2
    assert clock.sleeps == [pytest.approx(7 + 0.5 * 0.1 * 7)]


def test_a_throttle_longer_than_we_may_wait_is_handed_over(sdk, server, clock, waits):
    """Retry-After: 3600, which anthropic's own loop would sleep: its RateLimitError at once."""
    server.script("/v1/models", "429;retry-after=3600", EMPTY_LIST)
    error = sdk.list(sdk.client(True, max_retries=0))
    assert type(error) is anthropic.RateLimitError
    assert len(server.requests()) == 1
    assert [*clock.sleeps, *waits] == []
    assert forbear.record_of(error).refused_delay == 3600


def test_with_its_own_loop_on_a_long_throttle_is_not_handed_over(sdk, server, clock, waits):
    """Why max_retries=0 matters: the hour that forbear refuses is slept by anthropic, or ignored
    before 1.0.
    """
    server.script("/v1/models", "429;retry-after=3600", EMPTY_LIST)
    assert sdk.list(sdk.client(True)).status_code == 200
    assert len(server.requests()) == 2
    assert clock.sleeps == []
    if IS_HTTPX2:
        assert waits == [3600]
    else:
        assert [wait <= 0.5 for wait in waits] == [True]


@pytest.mark.parametrize("settings", [{}, {"max_retries": 0}], ids=["both", "off"])
def test_the_servers_no_ends_both_loops(sdk, server, settings):
    """x-should-retry: false: one request."""
    server.script("/v1/models", "503;header=x-should-retry:false")
    assert isinstance(sdk.list(sdk.client(True, **settings)), anthropic.InternalServerError)
    assert len(server.requests()) == 1


def test_the_sdks_loop_is_noticed_once(sdk, server, caplog):
    """Two calls whose attempts multiply, 12 each: one warning, which names the switch."""
    server.script("/v1/models", 503)
    client = sdk.client(True)
    if sdk.colour.is_async:

        async def twice():
            for _ in range(2):
                with pytest.raises(anthropic.InternalServerError):
                    await client.models.list()

    else:

        def twice():
            for _ in range(2):
                with pytest.raises(anthropic.InternalServerError):
                    client.models.list()

    assert sdk.colour.outcome(twice, client.close) is None
    warned = [
        record.getMessage() for record in caplog.records if "max_retries=0" in record.getMessage()
    ]
    assert len(warned) == 1
    assert len(server.requests()) == 2 * 12


def test_the_sdks_loop_is_stopped(sdk, server, caplog, waits):
    """stop_outer_retries: anthropic's own loop is on, and ends with ours: 4 instead of 12, and
    nothing to warn of.
    """
    server.script("/v1/models", 503)
    error = sdk.list(sdk.client(True, {"stop_outer_retries": True}))
    assert isinstance(error, anthropic.InternalServerError)
    assert len(server.requests()) == 4
    assert error.response.headers["x-should-retry"] == "false"
    assert len(forbear.record_of(error).attempts) == 4
    assert waits == []
    assert "SDK" not in caplog.text


@pytest.mark.parametrize(
    ("options", "attempts"),
    [
        pytest.param({}, 1, id="no key"),
        pytest.param({"idempotency": IdempotencyKeys()}, 4, id="generated key"),
    ],
)
def test_the_sdks_loop_is_stopped_with_a_key_or_without(sdk, server, options, attempts):
    """A POST that may have been executed is no longer sent three times, nor a key three times made
    anew.
    """
    server.script("/v1/messages", 503)
    error = sdk.create(sdk.client(True, {"stop_outer_retries": True, **options}))
    assert isinstance(error, anthropic.InternalServerError)
    assert len(server.requests()) == attempts
    assert len({arrival.key for arrival in server.requests()}) == 1


def test_the_sdks_loop_is_not_stopped_by_errors(sdk, server):
    """Only an answer can be marked: after a lost connection anthropic begins anew. max_retries=0
    has no such gap.
    """
    server.script("/v1/models", "close")
    assert (
        type(sdk.list(sdk.client(True, {"stop_outer_retries": True})))
        is anthropic.APIConnectionError
    )
    assert len(server.requests()) == 12


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
def test_what_stays_wrong_is_told_as_by_the_sdk_alone(sdk, server, step, name):
    """Same class, same words and body as without forbear; record_of finds the story in it."""
    settings = {"max_retries": 0, **({"timeout": 0.1} if step == "hang" else {})}
    server.script("/v1/models", step)
    alone = sdk.list(sdk.client(False, **settings))
    error = sdk.list(sdk.client(True, {"policy": RetryPolicy(max_attempts=2)}, **settings))
    assert type(error) is type(alone)
    assert isinstance(error, getattr(anthropic, name))
    assert str(error) == str(alone)
    assert getattr(error, "body", None) == getattr(alone, "body", None)
    assert len(server.requests()) == 1 + 2
    record = forbear.record_of(error)
    assert (len(record.attempts), record.reason) == (2, "attempts-exhausted")


def test_our_deadline_is_the_sdks_timeout(sdk, server):
    """forbear.deadline around a call: the SDK's APITimeoutError, in time, with our exception as the
    cause.
    """
    server.script("/v1/models", "hang")
    client = sdk.client(True, {"clock": None}, max_retries=0)

    async def alist():
        return await client.models.list()

    call = forbear.deadline(0.15)(alist if sdk.colour.is_async else client.models.list)
    error = sdk.colour.outcome(call, client.close)
    assert type(error) is anthropic.APITimeoutError
    assert isinstance(error.__cause__, forbear.DeadlineExceeded)
    assert forbear.record_of(error).reason == "deadline"
    assert (
        forbear.record_of(error).elapsed < 0.15 + 2
    )  # the server would never answer; the slack is for a busy machine


def test_wrapping_the_sdk_object_says_what_to_pass(sdk):
    """It is not an HTTP client: TypeError names the one inside."""
    client = sdk.client(False)
    with pytest.raises(TypeError, match=re.escape(f"{ours.__name__}.wrap(client._client)")):
        ours.wrap(client)
    sdk.colour.outcome(lambda: None, client.close)


def test_a_finished_client_can_be_wrapped(sdk, server, quick):
    """wrap(client._client): for code that hands over a finished client of the SDK."""
    server.script("/v1/models", 503)
    client = sdk.client(False)
    before = client._client._transport
    ours.wrap(client._client, **quick)
    client.max_retries = 0
    assert isinstance(sdk.list(client), anthropic.InternalServerError)
    assert len(server.requests()) == 4
    ours.unwrap(client._client)
    assert client._client._transport is before
