"""announce_attempts tells a server which attempt it gets; stop_outer_retries ends loops above."""

import logging

import pytest

from forbear import Fixed, Reason, RetryPolicy, record_of
from forbear.testing import FakeClock

from ..lanes import URL

NOW = RetryPolicy(max_attempts=4, backoff=Fixed(0), hint_spread=0.0)
STOPS = ("x-should-retry", "stripe-should-retry")
TWICE = RetryPolicy(backoff=Fixed(0), max_attempts=2)


def said(server, name="retry-attempt"):
    return [
        [value for found, value in arrival.headers if found.lower() == name]
        for arrival in server.requests("/thing")
    ]


@pytest.mark.smoke
async def test_retries_say_which_attempt_they_are(adapter, server, quick):
    server.script("/thing", 503, 503, "close", 200)
    async with adapter.client(policy=NOW, announce_attempts=True, **quick) as client:
        response = await adapter.call(client, "GET", server.url + "/thing", headers={"X-Own": "1"})
        assert response.status_code == 200
        assert said(server) == [[], ["2"], ["3"], ["4"]]
        assert said(server, "x-own") == [["1"]] * 4
        # The next call begins anew, and the request of the caller was never touched.
        await adapter.call(client, "GET", server.url + "/thing")
    assert said(server)[4:] == [[]]


@pytest.mark.smoke
async def test_an_answer_that_is_given_up_says_so(adapter, quick):
    for method, said, reason in (
        ("GET", {"X-Own": "kept"}, Reason.ATTEMPTS_EXHAUSTED),
        ("POST", {}, Reason.METHOD_NOT_REPLAYABLE),
        ("GET", {"x-should-retry": "true"}, Reason.ATTEMPTS_EXHAUSTED),
        ("GET", {"x-should-retry": "false"}, Reason.SERVER_SAID_NO),
    ):
        options = {"policy": NOW, "stop_outer_retries": True, **quick}
        response = await adapter.once([(503, said)], method, **options)
        assert [response.headers[name] for name in STOPS] == ["false", "false"], said
        assert response.headers.get("X-Own") == said.get("X-Own")
        assert (response.status_code, record_of(response).reason) == (503, reason)


async def test_logged_once_per_client(adapter, quick, caplog):
    for headers, switch in (
        ({"x-stainless-retry-count": "1"}, "max_retries=0"),
        ({"amz-sdk-request": "attempt=2; max=3"}, "total_max_attempts"),
    ):
        caplog.clear()
        async with adapter.client([503], policy=TWICE, name=switch, **quick) as client:
            for _ in range(3):
                await adapter.call(client, "GET", URL, headers=headers)
        entries = [(vars(entry).get("forbear.event"), entry) for entry in caplog.records]
        (logged,) = [entry for event, entry in entries if event == "nested_retry"]
        assert switch in logged.getMessage()
        assert logged.levelno == logging.WARNING


ERRORS = {
    "httpx": lambda library: library.ReadError("cut"),
    "httpx2": lambda library: library.ReadError("cut"),
    "aiohttp": lambda library: library.ServerDisconnectedError(),
    "requests": lambda library: library.ConnectionError(ConnectionResetError(104, "cut")),
    "urllib3": lambda library: library.exceptions.ProtocolError("cut", ConnectionResetError()),
}


class Same:
    """In the place of a library: gives each request the first response of a script."""

    def __init__(self, script):
        self._script, self._response = script, None

    def __getattr__(self, name):
        return getattr(self._script, name)

    def send(self, request, **named):
        if self._response is None:
            respond = getattr(self._script, "send", None) or self._script.handle_request
            self._response = respond(request)
        return self._response

    handle_request = send

    async def handle_async_request(self, request):
        if self._response is None and hasattr(self._script, "seen"):
            self._response = await self._script.handle_async_request(request)
        return self.send(request)


@pytest.mark.smoke
@pytest.mark.parametrize("kind", ["error", "response"])
async def test_what_an_earlier_call_ended_with_is_retried_like_the_first(adapter, kind):
    script = [ERRORS[adapter.name](adapter.library) if kind == "error" else 503]
    inner = Same(adapter.watched(script)) if kind == "response" else script
    policy = RetryPolicy(backoff=Fixed(1.0), max_attempts=3)
    for methods in (("GET", "PUT", "DELETE"), ("PUT", "GET")):
        async with adapter.client(inner, policy=policy, clock=FakeClock()) as client:
            for method in methods:
                outcome = await adapter.outcome(client, method)
                record = record_of(outcome)
                assert (record.method, len(record.attempts)) == (method, 3)
                notes = getattr(outcome, "__notes__", [])
                assert [method in note for note in notes] == [True] * (kind == "error")
