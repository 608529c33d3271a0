"""Loops above and below: an SDK above that retries too is logged once, with the switch that turns
its retries off; and what an earlier call has left on an outcome is no loop below.
"""

import logging

import pytest

from forbear import Fixed, RetryPolicy, record_of
from forbear.testing import FakeClock

NOW = RetryPolicy(backoff=Fixed(0), max_attempts=2)


@pytest.mark.anyio
async def test_logged_once_per_client(adapter, quick, caplog):
    for number, (name, value, switch) in enumerate(
        (
            ("x-stainless-retry-count", "1", "max_retries=0"),
            ("amz-sdk-request", "attempt=2; max=3", "total_max_attempts"),
        ),
        start=1,
    ):
        async with adapter.client([503], policy=NOW, name=switch, **quick) as client:
            for _ in range(3):
                headers = {name: value}
                await adapter.call(client, "GET", "http://api.example.com/", headers=headers)
        logged = [
            entry
            for entry in caplog.records
            if getattr(entry, "forbear.event", "") == "nested_retry"
        ]
        assert len(logged) == number
        assert switch in logged[-1].getMessage()
        assert logged[-1].levelno == logging.WARNING


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


async def outcome_of(adapter, client, method):
    try:
        return await adapter.call(client, method, "http://api.example.com/")
    except Exception as error:
        return error


@pytest.mark.anyio
@pytest.mark.smoke
@pytest.mark.parametrize("kind", ["error", "response"])
async def test_what_an_earlier_call_ended_with_is_retried_like_the_first(adapter, kind):
    script = [ERRORS[adapter.name](adapter.library) if kind == "error" else 503]
    inner = Same(adapter.watched(script)) if kind == "response" else script
    policy = RetryPolicy(backoff=Fixed(1.0), max_attempts=3)
    for methods in (("GET", "PUT", "DELETE"), ("PUT", "GET")):
        async with adapter.client(inner, policy=policy, clock=FakeClock()) as client:
            for method in methods:
                outcome = await outcome_of(adapter, client, method)
                record = record_of(outcome)
                assert (record.method, len(record.attempts)) == (method, 3)
                notes = getattr(outcome, "__notes__", [])
                assert [method in note for note in notes] == [True] * (kind == "error")
