"""P10: nothing secret is logged, noted, recorded or shown; what is secret below holds SECRET."""

import logging

import pytest
import requests
import urllib3

import forbear
from forbear import Fixed, IdempotencyKeys, RetryPolicy, record_of
from forbear.testing import record

from .test_strategies import raising, with_methods

SENT = ("Authorization", "Cookie", "Idempotency-Key", "X-Api-Key")
REQUEST = {"headers": dict.fromkeys(SENT, "a=SECRET"), "content": b"SECRET-body"}
ANSWER = dict.fromkeys(("Set-Cookie", "X-Note", "WWW-Authenticate"), "a=SECRET")
BODY = b"SECRET-answer"
URL = "http://SECRET-user:SECRET-password@api.example.com/SECRET-path?token=SECRET-query"
OUTCOMES = {
    "503": (503, ANSWER, BODY),
    "error": None,
    "no": (500, {**ANSWER, "x-should-retry": "false"}, BODY),
    "odd-hint": (503, {**ANSWER, "Retry-After": "3600 SECRET"}, BODY),
    "too-long": (503, {**ANSWER, "Retry-After": "3600"}, BODY),
    "replayed": (409, {**ANSWER, "Idempotent-Replayed": "true"}, BODY),
}


@pytest.fixture
def told(caplog):
    """A function: all that reached forbear's log, fields included."""
    caplog.set_level(logging.DEBUG, "forbear")

    def read():
        entries = [entry for entry in caplog.records if entry.name.startswith("forbear")]
        return [text for entry in entries for text in (entry.getMessage(), repr(vars(entry)))]

    return read


def secret_error(adapter, text):
    """An error of the wire with this text inside."""
    if adapter.name == "aiohttp":
        return adapter.library.ClientOSError(104, text)
    if "httpx-family" in adapter.words:
        return adapter.library.ReadError(text)
    # The error that requests raises; the lane of urllib3 takes urllib3's out of it.
    inside = urllib3.exceptions.ProtocolError(text, ConnectionResetError(104, text))
    return requests.ConnectionError(inside)


@pytest.mark.smoke
@pytest.mark.parametrize("last", OUTCOMES)
async def test_nothing_secret_is_told(adapter, quick, told, last):
    def fail(request):
        raise secret_error(adapter, "SECRET-text of an error")

    inner = adapter.watched([OUTCOMES["503"], fail, OUTCOMES[last] or fail])
    events, keys = record(), IdempotencyKeys()
    policy = RetryPolicy(backoff=Fixed(0), max_attempts=4)
    options = {"policy": policy, "on_event": [events], "idempotency": keys, "name": "orders"}
    async with adapter.client(inner, **options, **quick) as client:
        outcome = await adapter.outcome(client, "POST", URL, **REQUEST)
        seen = [record_of(outcome), *getattr(outcome, "__notes__", ())]
        seen += [*events, events, adapter.retrying(client), policy, keys]
        sent = [getattr(request, "extensions", {}) for request in inner.requests]
        seen += [extensions.get("forbear.call") for extensions in sent]
    shown = [f"{each!r} {each} {getattr(each, '__dict__', None)!r}" for each in seen]
    text = "\n".join([*told(), *shown])
    assert (len(told()) >= 8, len(events) >= 5) == (True, True)  # else it would prove nothing
    assert "http://api.example.com:80" in text
    assert "SECRET" not in text


@pytest.mark.smoke
async def test_our_own_exceptions_tell_nothing_secret(adapter, quick, told):
    refused = forbear.strategies.RetryRefused(forbear.Reason.CIRCUIT_OPEN, send=False)
    refusing = with_methods(acquire_initial_token=raising(refused))
    for options, expected in (
        ({"strategy": refusing}, adapter.CircuitOpenError),
        ({"policy": RetryPolicy(total_timeout=0)}, adapter.DeadlineExceeded),
    ):
        with pytest.raises(expected) as caught:
            await adapter.once([200], "POST", URL, request=REQUEST, **options, **quick)
        error = caught.value
        notes = getattr(error, "__notes__", [])
        text = "".join([str(error), repr(error), *notes, repr(record_of(error)), *told()])
        assert "http://api.example.com:80" in text
        assert "SECRET" not in text


@pytest.mark.adapters("httpx", "sync")
async def test_a_setting_that_is_refused_is_not_repeated_whole(adapter, quick):
    async with adapter.client([200], **quick) as client:
        with pytest.raises(TypeError) as caught:
            await adapter.call(client, "GET", URL, extensions={"forbear": ["SECRET"] * 100})
    assert len(str(caught.value)) < 400


def test_a_password_in_a_url_is_not_repeated():
    urls = ["http://user:SECRET@proxy:3128", "http://SECRET@proxy/@x"]
    for given in (*urls, ["https://user:SECRET@a", "https://b"]):
        with pytest.raises(TypeError) as caught:
            forbear.RetryPolicy(backoff=given)
        assert "//…@" in str(caught.value)
        assert "SECRET" not in str(caught.value)
