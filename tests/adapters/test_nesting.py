"""Loops above and below: an SDK above that retries too is logged once, with the switch that turns
its retries off; and what an earlier call has left on an outcome is no loop below.
"""

import logging

import pytest

from forbear import Fixed, RetryPolicy, record_of
from forbear.engine.outer import outer_loop
from forbear.testing import FakeClock

NOW = RetryPolicy(backoff=Fixed(0), max_attempts=2)


@pytest.mark.parametrize(
    ("name", "value", "noticed"),
    [
        ("x-stainless-retry-count", "0", False),
        (b"x-stainless-retry-count", b"2", True),
        ("amz-sdk-request", "attempt=2; max=3", True),
        ("amz-sdk-request", "ttl=20260101T000000Z; attempt=3; max=3", True),
        ("x-stainless-retry-count", "often", False),
        ("x-envoy-attempt-count", "2", False),  # above this process: the middleware's to look at
        ("retry-attempt", "2", False),
    ],
)
def test_the_headers_that_tell(name, value, noticed):
    """A first attempt of theirs says nothing."""
    assert (outer_loop([(name, value)]) is not None) is noticed


@pytest.mark.anyio
async def test_logged_once_per_client(adapter, quick, caplog):
    """However many calls give up; another client tells of it again."""
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
    """A mock raises one error, or returns one response, each time: to this client, then to another.

    Each call makes three attempts, and has a record and at most one note, of itself.
    """
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
