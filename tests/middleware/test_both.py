"""What both middlewares promise, around an application that makes calls and answers."""

import functools
import math
from contextlib import suppress
from contextvars import copy_context
from wsgiref.validate import validator

import anyio
import httpx
import pytest
import requests
import urllib3

import forbear
import forbear.requests
import forbear.urllib3
from forbear import Fixed, Reason, RetryPolicy, asgi, wsgi
from forbear.engine.current import CURRENT

from .servers import PLAIN, RETRY, answering, ask_asgi, ask_wsgi, marks_of

DEADLINE = "x-envoy-expected-rq-timeout-ms"
TWO = {"grpc-timeout": "2S"}


def serve_asgi(work, status, own, headers, options, backend="asyncio"):
    """One request; return the values of x-should-retry in the answer."""

    async def awaited():
        work()

    app = asgi.RetryContextMiddleware(answering(awaited, status, own), **options)
    start, *rest = anyio.run(ask_asgi, app, headers, backend=backend)
    assert rest == [{"type": "http.response.body", "body": b"ok"}]
    return marks_of((name.decode(), value.decode()) for name, value in start["headers"])


def serve_wsgi(work, status, own, headers, options):
    """The same by the rules of PEP 3333, which are kept on both sides."""

    def app(environ, start_response):
        work()
        start_response(f"{status} Scripted", [*PLAIN, *own])
        return [b"ok"]

    served = validator(wsgi.RetryContextMiddleware(validator(app), **options))
    _, marks, body = ask_wsgi(served, headers)
    assert body == b"ok"
    return marks


ON_TRIO = functools.partial(serve_asgi, backend="trio")


@pytest.fixture(params=[serve_asgi, ON_TRIO, serve_wsgi], ids=["asgi", "asgi on trio", "wsgi"])
def ask(request):
    """A function: a request whose application does some work; returns the marks of its answer."""

    def ask(work, headers=(), status=200, own=(), **options):
        marks = request.param(work, status, own, headers, options)
        assert CURRENT.get() is None
        return marks

    return ask


@pytest.mark.parametrize(("headers", "attempts"), [
    ({}, 4), ({"x-envoy-attempt-count": "2"}, 1), ({"amz-sdk-request": "attempt=1; max=3"}, 4),
    ({"amz-sdk-request": "attempt=2; max=3"}, 1), ({"x-stainless-retry-count": "1"}, 1),
    ({"grpc-previous-rpc-attempts": "1"}, 1), ({"retry-attempt": "2"}, 1),
    ({"retry-attempt": "often", "x-envoy-attempt-count": "-2"}, 4),  # malformed
])  # fmt: skip
def test_calls_made_for_a_retry_are_sent_once(ask, backend, headers, attempts):
    """By each of the five headers, as its source numbers it; the record says why."""
    calls, records = backend([503]), []
    ask(lambda: records.append(forbear.record_of(calls.get())), headers)
    assert calls.sent == attempts
    assert (records[0].reason is Reason.NESTED_CALL) == (attempts == 1)


def test_no_setting_is_above_it(ask, backend):
    """A bound, not a default: for override, the request's own policy, a user's strategy."""
    calls = backend([503, "read_error"])

    def work():
        with forbear.override(max_attempts=9), forbear.deadline(60, clock=calls.clock):
            calls.get()
        with pytest.raises(httpx.ReadError):
            calls.get(extensions={"forbear": {"max_attempts": 9}})

    ask(work, RETRY)
    assert calls.sent == 2
    strategy = forbear.strategies.StandardStrategy(RetryPolicy(max_attempts=9))
    calls = backend([503], strategy=strategy)
    ask(calls.get, RETRY)
    assert calls.sent == 1


def test_an_application_that_raises_leaves_nothing_behind(ask, backend):
    def work():
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        ask(work, RETRY)
    assert CURRENT.get() is None
    calls = backend([503])
    calls.get()
    assert calls.sent == 4


@pytest.mark.parametrize(("headers", "own", "seconds", "sent"), [
    (TWO, None, 1.95, 4 + 4), ({**TWO, DEADLINE: "1000"}, None, 0.95, 4 + 4),  # the earlier
    ({"grpc-timeout": "60m"}, None, 0.03, 1 + 1),  # never less than half
    ({"grpc-timeout": "soon", DEADLINE: "0"}, None, math.inf, 4 + 4),
    ({"grpc-timeout": "99999999H"}, None, math.inf, 4 + 4),  # no client could wait so long
    ({}, 0.25, 0.25, 3 + 1), ({DEADLINE: "150"}, 0.25, 0.1, 1 + 1),  # the earlier again
])  # fmt: skip
def test_a_deadline_bounds_the_calls(ask, backend, headers, own, seconds, sent):
    """The sender's, of which 0.05 s are kept for the way back, or the service's own."""
    calls, after = backend([503]), []

    def work():
        now = calls.clock.monotonic()
        after.append(copy_context())
        assert CURRENT.get().deadline_on(calls.clock, now) - now == pytest.approx(seconds)
        calls.get()  # attempts are 0.1 s apart
        calls.get()

    ask(work, headers, deadline=own, clock=calls.clock)
    assert calls.sent == sent
    after[0].run(calls.get)  # as a task does that outlives the request
    assert calls.sent == sent + 4


def test_the_time_left_is_sent_on_if_asked(ask, backend):
    """announce_deadline: what is left of 2 s less the margin; half a second goes by in between."""
    calls = backend([503, 200], policy=RetryPolicy(backoff=Fixed(0.5)))
    ask(calls.get, TWO, announce_deadline=True, clock=calls.clock)
    assert calls.said(DEADLINE) == ["1950", "1450"]


@pytest.mark.parametrize(("announces", "incoming", "named", "said"), [
    pytest.param(False, TWO, {}, None, id="not asked for"),
    pytest.param(True, {}, {}, None, id="no deadline"),
    pytest.param(True, TWO, {"headers": {DEADLINE.title(): "7"}}, "7", id="the caller's own"),
    pytest.param(True, {**TWO, **RETRY}, {"extensions": {"forbear": False}}, None,
        id="a request that is off is forwarded untouched"),
])  # fmt: skip
def test_nothing_else_is_sent_on(ask, backend, announces, incoming, named, said):
    calls = backend([200], announce_attempts=True)
    work = functools.partial(calls.get, **named)
    ask(work, incoming, clock=calls.clock, announce_deadline=announces)
    assert (calls.said(DEADLINE), calls.said("retry-attempt")) == ([said], [None])


@pytest.mark.parametrize(("steps", "status", "marked"), [
    ([503], 502, True), (["read_error"], 500, True), ([503], 429, True),
    ([(503, {"x-should-retry": "false"})], 503, True),  # the server's no goes up
    ([(429, {"Retry-After": "3600"})], 503, True), ([503], 200, False),
    ([503], 404, False),  # no loop repeats that
    ([503, 200], 503, False), ([404], 503, False),
    ([RuntimeError("unknown")], 503, False),  # one attempt, and nobody's no
])  # fmt: skip
def test_a_failed_answer_is_marked(ask, backend, steps, status, marked):
    """x-should-retry: false, if a call made for it was retried in vain or may not be repeated."""
    calls = backend(steps)

    def work():
        with suppress(httpx.TransportError, RuntimeError):
            calls.get()

    assert ask(work, status=status) == (["false"] if marked else [])


@pytest.mark.parametrize("library", ["requests", "urllib3", "Retry"])
def test_every_client_is_heard(ask, server, library):
    """Sent once for a retry; else its giving up marks the answer."""
    server.script("/thing", 503)
    policy, url = RetryPolicy(max_attempts=4, backoff=Fixed(0)), server.url + "/thing"
    if library == "requests":
        client = forbear.requests.mount(requests.Session(), policy, gate=None)
        client.trust_env = False
    elif library == "urllib3":
        client = forbear.urllib3.RetryPoolManager(policy, gate=None)
    else:
        client = urllib3.PoolManager(retries=forbear.urllib3.Retry(policy))
    with client:
        get = functools.partial(client.request, "GET", url)
        assert ask(get, RETRY, status=502) == []
        assert len(server.requests()) == 1
        assert ask(get, status=502) == ["false"]
        assert len(server.requests()) == 1 + 4


def test_no_mark_where_the_application_has_one_or_none_is_wanted(ask, backend):
    calls, own = backend([503]), [("X-Should-Retry", "true")]
    assert ask(calls.get, status=503, own=own) == ["true"]
    assert ask(calls.get, status=503, stop_outer_retries=False) == []


def test_a_refused_origin_marks_the_answer_too(ask, backend):
    """Nothing was sent, for the server's sake: whoever asks again would be refused again."""
    calls = backend([500], breaker=forbear.CircuitBreaker(consecutive_failures=1, open_for=60.0))
    calls.get()

    def work():
        with pytest.raises(forbear.CircuitOpenError):
            calls.get()

    assert ask(work, status=503) == ["false"]
    assert calls.sent == 1
