"""P10: nothing secret is logged, noted, recorded or shown.

Every value below that a caller or a server may keep secret holds the word SECRET; method, scheme,
host, port, status and class names are all that is told.
"""

import copy
import logging
import traceback

import pytest

import forbear
from forbear import Fixed, IdempotencyKeys, RetryPolicy, record_of
from forbear.testing import record

pytestmark = pytest.mark.anyio

REQUEST = {
    "headers": {
        "Authorization": "Bearer SECRET-token",
        "Cookie": "session=SECRET-cookie",
        "Idempotency-Key": "SECRET-key",
        "X-Api-Key": "SECRET-api-key",
    },
    "content": b"SECRET-body",
}
ANSWER = {
    "Set-Cookie": "SECRET-set-cookie",
    "X-Note": "SECRET-note",
    "WWW-Authenticate": "SECRET-realm",
}
URL = "http://SECRET-user:SECRET-password@api.example.com/SECRET-path?token=SECRET-query"
OUTCOMES = [
    (503, ANSWER, b"SECRET-answer"),
    "error",
    (500, {**ANSWER, "x-should-retry": "false"}, b"SECRET-answer"),
    (503, {**ANSWER, "Retry-After": "3600 SECRET"}, b"SECRET-answer"),
    (503, {**ANSWER, "Retry-After": "3600"}, b"SECRET-answer"),
    (409, {**ANSWER, "Idempotent-Replayed": "true"}, b"SECRET-answer"),
]


def everything_about(thing):
    """All that a user might print, log or send away."""
    yield repr(thing)
    yield str(thing)
    yield repr(copy.copy(getattr(thing, "__dict__", None)))


class Told(logging.Handler):
    """All that reaches the log of forbear, fields included."""

    def __init__(self):
        super().__init__(logging.DEBUG)
        self.text = []

    def emit(self, entry):
        self.text.append(entry.getMessage())
        self.text.append(repr({**entry.__dict__, "args": entry.args}))
        if entry.exc_info:
            self.text.append("".join(traceback.format_exception(*entry.exc_info)))


class Silent:
    """What a strategy needs to be one."""

    quiet = False

    def refresh_token(self, token, failure, now, *, latest):
        return token

    def record_success(self, token, now):
        pass

    def release(self, token, now):
        pass


@pytest.fixture
def told():
    logger, handler = logging.getLogger("forbear"), Told()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


@pytest.mark.parametrize(
    "last", OUTCOMES, ids=["503", "error", "no", "odd-hint", "too-long", "replayed"]
)
async def test_nothing_secret_is_told(adapter, quick, told, last):
    """Not in the log, nor in events, records, notes and reprs."""

    def fail(request):
        raise adapter.secret_error("SECRET-text of an error")

    last = fail if last == "error" else last
    inner = adapter.watched([(503, ANSWER, b"SECRET-answer"), fail, last])
    events = record()
    policy = RetryPolicy(backoff=Fixed(0), max_attempts=4)
    keys = IdempotencyKeys()
    options = {"policy": policy, "on_event": [events], "idempotency": keys, "name": "orders"}
    async with adapter.client(inner, **options, **quick) as client:
        try:
            outcome = await adapter.call(client, "POST", URL, **REQUEST)
            seen = [record_of(outcome)]
        except adapter.transport_error as error:
            outcome = error
            seen = [record_of(error), *(note for note in error.__notes__)]
        seen += [*events, events, adapter.retrying(client), policy, keys]
        seen += [
            getattr(request, "extensions", {}).get("forbear.call") for request in inner.requests
        ]
    text = "\n".join([*told.text, *(line for thing in seen for line in everything_about(thing))])
    assert len(told.text) >= 8  # a log and listeners that saw nothing would prove nothing
    assert len(events) >= 5
    assert "http://api.example.com:80" in text
    assert "SECRET" not in text


async def test_our_own_exceptions_tell_nothing_secret(adapter, quick, told):
    """DeadlineExceeded and CircuitOpenError name method and origin, and no more."""

    class Refusing(Silent):
        def acquire_initial_token(self, scope, now):
            raise forbear.RetryRefused(forbear.Reason.CIRCUIT_OPEN, send=False)

    errors = []
    async with adapter.client([200], strategy=Refusing(), **quick) as client:
        with pytest.raises(adapter.CircuitOpenError) as caught:
            await adapter.call(client, "POST", URL, **REQUEST)
        errors.append(caught.value)
    async with adapter.client([200], policy=RetryPolicy(total_timeout=0), **quick) as client:
        with pytest.raises(adapter.DeadlineExceeded) as caught:
            await adapter.call(client, "POST", URL, **REQUEST)
        errors.append(caught.value)
    for error in errors:
        text = "".join(
            [
                str(error),
                repr(error),
                *getattr(error, "__notes__", []),
                repr(record_of(error)),
                *told.text,
            ]
        )
        assert "http://api.example.com:80" in text
        assert "SECRET" not in text


async def test_hooks_that_fail_are_named_by_class_only(adapter, quick, told):
    """The text of what a user's function raised may hold anything."""

    def broken(*args):
        raise ValueError("SECRET-text")

    class Strategy(Silent):
        def acquire_initial_token(self, scope, now):
            raise ValueError("SECRET-text")

    options = {"retry_if": broken, "before_attempt": broken, "on_event": [broken]}
    policy = RetryPolicy(backoff=Fixed(0))
    async with adapter.client([503, 503, 200], policy=policy, **options, **quick) as client:
        assert (await adapter.call(client, "GET", URL)).status_code == 200
    async with adapter.client([503, 200], strategy=Strategy(), **quick) as client:
        assert (await adapter.call(client, "GET", URL)).status_code == 503
    text = "\n".join(told.text)
    for hook in ("retry_if", "before_attempt", "on_event", "strategy"):
        assert hook in text
    assert "SECRET" not in text


@pytest.mark.adapters("httpx-family")
async def test_a_setting_that_is_refused_is_not_repeated_whole(adapter, quick):
    """A header dict pasted in the wrong place does not end up in an exception's text."""
    async with adapter.client([200], **quick) as client:
        with pytest.raises(TypeError) as caught:
            await adapter.call(client, "GET", URL, extensions={"forbear": ["SECRET"] * 100})
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "given",
    [
        "http://user:SECRET@proxy:3128",
        "http://SECRET@proxy/@x",
        ["https://user:SECRET@a", "https://b"],
    ],
)
def test_a_password_in_a_url_is_not_repeated(given):
    """A URL that was given in the place of something else is shown without who may use it."""
    with pytest.raises(TypeError) as caught:
        forbear.RetryPolicy(backoff=given)
    assert "//…@" in str(caught.value)
    assert "SECRET" not in str(caught.value)
