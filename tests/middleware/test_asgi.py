"""forbear.asgi.RetryContextMiddleware around bare ASGI applications, Starlette and FastAPI."""

import contextlib
import functools
import math

import anyio
import anyio.to_thread
import fastapi
import httpx
import pytest
import requests
import urllib3
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient as StarletteClient

import forbear
import forbear.requests
import forbear.urllib3
from forbear import Reason
from forbear.asgi import RetryContextMiddleware
from forbear.sending.context import CURRENT
from forbear.testing import FakeClock, FaultServer

pytestmark = pytest.mark.anyio


async def ask(app, headers=(), *, kind="http"):
    """One request, as a server makes it; return the messages that the application sent."""
    sent = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    lines = [(name.encode(), value.encode()) for name, value in dict(headers).items()]
    await app({"type": kind, "method": "GET", "path": "/", "headers": lines}, receive, send)
    return sent


def answering(work, status=200, headers=()):
    """An application that does some work and answers."""

    async def app(scope, receive, send):
        await work()
        await send({"type": "http.response.start", "status": status, "headers": list(headers)})
        await send({"type": "http.response.body", "body": b"ok"})

    return app


def mark_of(messages):
    """Values of x-should-retry in an answer."""
    return [value for name, value in messages[0]["headers"] if name.lower() == b"x-should-retry"]


# Retries.


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_calls_made_for_a_retry_are_sent_once(backend, counts):
    """By each of the five headers, as its source numbers it; the record says why."""
    for headers, attempts in counts:
        calls = backend([503])
        records = []

        async def work(calls=calls, records=records):
            records.append(forbear.record_of(await calls.aget()))

        await ask(RetryContextMiddleware(answering(work)), headers)
        assert calls.sent == attempts, headers
        assert (records[0].reason is Reason.NESTED_CALL) == (attempts == 1)
        assert CURRENT.get() is None


async def test_no_setting_is_above_it(backend):
    """A bound, not a default: for override, the request's own policy, a user's strategy."""
    calls = backend([503, "read_error"])

    async def work():
        with forbear.override(max_attempts=9), forbear.deadline(60, clock=calls.clock):
            await calls.aget()
        with pytest.raises(httpx.ReadError):
            await calls.aget(extensions={"forbear": {"max_attempts": 9}})

    await ask(RetryContextMiddleware(answering(work)), {"retry-attempt": "2"})
    assert calls.sent == 2
    strategy = forbear.StandardStrategy(forbear.RetryPolicy(max_attempts=9), budget=None)
    calls = backend([503], strategy=strategy)
    await ask(RetryContextMiddleware(answering(calls.aget)), {"retry-attempt": "2"})
    assert calls.sent == 1


async def test_requests_at_once_do_not_mix(backend):
    """Half of 20 are retries; each has its own context."""
    first, again = backend([503]), backend([503])

    async def app(scope, receive, send):
        for _ in range(3):
            await anyio.sleep(0)
        await (again if scope["headers"] else first).aget()

    middleware = RetryContextMiddleware(app)
    async with anyio.create_task_group() as group:
        for n in range(20):
            group.start_soon(ask, middleware, {"retry-attempt": "2"} if n % 2 else {})
    assert (first.sent, again.sent) == (40, 10)


async def test_an_application_that_raises_leaves_nothing_behind(backend):
    async def app(scope, receive, send):
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        await ask(RetryContextMiddleware(app), {"retry-attempt": "2"})
    assert CURRENT.get() is None
    calls = backend([503])
    await calls.aget()
    assert calls.sent == 4


async def test_other_scopes_are_handed_through():
    """The very objects that the server gave."""
    seen = []

    async def app(*arguments):
        seen.append((*arguments, CURRENT.get()))

    scope, receive, send = {"type": "lifespan"}, object(), object()
    await RetryContextMiddleware(app)(scope, receive, send)
    assert seen == [(scope, receive, send, None)]
    assert seen[0][0] is scope


async def test_one_service_inside_another_ones_context(backend):
    """Without a socket in between the inner request is a retry too, and has the outer deadline.

    The clocks differ: of the outer one's 2 s 1 is over when the inner one reads its own.
    """
    calls = backend([200])
    outer_clock = FakeClock()
    inner = RetryContextMiddleware(
        answering(calls.aget), clock=calls.clock, announce_deadline=True, margin=0
    )

    async def work():
        calls.clock.advance(100.0)
        outer_clock.advance(1.0)
        await ask(inner)
        await ask(inner, {"grpc-timeout": "500m"})

    outer = RetryContextMiddleware(answering(work), clock=outer_clock, margin=0)
    await ask(outer, {"retry-attempt": "2", "grpc-timeout": "2S"})
    assert calls.said("x-envoy-expected-rq-timeout-ms") == ["1000", "500"]
    calls = backend([503])
    inner = RetryContextMiddleware(answering(calls.aget))
    outer = RetryContextMiddleware(answering(lambda: ask(inner)))
    await ask(outer, {"retry-attempt": "2"})
    assert calls.sent == 1


async def test_a_request_that_asks_nothing_leaves_first_attempts_alone(backend):
    """No retry, no deadline: a call that succeeds is on the fast path; a failure is heard of."""
    asked = []

    async def work():
        asked.append(CURRENT.get().asks_nothing)
        await calls.aget()

    calls = backend([503])
    app = RetryContextMiddleware(answering(work, 503))
    assert mark_of(await ask(app)) == [b"false"]
    await ask(app, {"grpc-timeout": "1S"})
    await ask(app, {"retry-attempt": "2"})
    assert asked == [True, False, False]


# Announcing.


async def test_a_retry_is_announced_further_down(backend):
    """With announce_attempts the work that is asked for again says so from its first sending on."""
    calls = backend([503], announce_attempts=True)
    app = RetryContextMiddleware(answering(calls.aget))
    await ask(app, {"retry-attempt": "3"})
    await ask(app, {"x-stainless-retry-count": "1"})
    assert calls.said("retry-attempt") == ["3", "2"]
    await ask(app)
    assert calls.said("retry-attempt")[2:] == [None, "2", "3", "4"]


# Deadlines.


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"grpc-timeout": "2S"}, 1.95),
        ({"grpc-timeout": "2S", "x-envoy-expected-rq-timeout-ms": "1000"}, 0.95),  # the earlier
        ({"grpc-timeout": "60m"}, 0.03),  # never less than half
        ({"grpc-timeout": "soon", "x-envoy-expected-rq-timeout-ms": "0"}, math.inf),
    ],
)
async def test_the_incoming_deadline_bounds_the_calls(backend, headers, seconds):
    """Taken over, and 0.05 s of it kept for the way back."""
    calls = backend([503])
    left = []

    async def work():
        scope = CURRENT.get()
        now = calls.clock.monotonic()
        left.append(scope.deadline_on(calls.clock, now) - now)
        await calls.aget()

    await ask(RetryContextMiddleware(answering(work), clock=calls.clock), headers)
    assert left == [pytest.approx(seconds)]
    # Attempts are 0.1 s apart.
    assert calls.sent == (1 if seconds == 0.03 else 4)


async def test_the_time_left_is_sent_on_if_asked(backend):
    """announce_deadline: with each attempt what is left of 2 s less the margin; half a second goes
    by in between.
    """
    calls = backend([503, 200], policy=forbear.RetryPolicy(backoff=forbear.Fixed(0.5)))
    app = RetryContextMiddleware(answering(calls.aget), announce_deadline=True, clock=calls.clock)
    await ask(app, {"grpc-timeout": "2S"})
    assert calls.said("x-envoy-expected-rq-timeout-ms") == ["1950", "1450"]


async def test_nothing_else_is_sent_on(backend):
    """Not asked for; no deadline; the caller has written the header; a request that is off, which is
    forwarded untouched, whatever it is made for.
    """
    name, two, off = "x-envoy-expected-rq-timeout-ms", {"grpc-timeout": "2S"}, {"forbear": False}
    for announces, incoming, named, said in (
        (False, two, {}, None),
        (True, {}, {}, None),
        (True, two, {"headers": {name.title(): "7"}}, "7"),
        (True, {**two, "retry-attempt": "2"}, {"extensions": off}, None),
    ):
        calls = backend([200], announce_attempts=True)
        app = RetryContextMiddleware(
            answering(functools.partial(calls.aget, **named)),
            clock=calls.clock,
            announce_deadline=announces,
        )
        await ask(app, incoming)
        assert (calls.said(name), calls.said("retry-attempt")) == ([said], [None])


async def test_a_deadline_of_ones_own_is_sent_on_too(backend):
    """The earlier one holds: forbear.deadline inside the incoming one, and the other way round."""
    calls = backend([200])

    async def work():
        with forbear.deadline(0.5, clock=calls.clock):
            await calls.aget()
        with forbear.deadline(60, clock=calls.clock):
            await calls.aget()

    await ask(
        RetryContextMiddleware(answering(work), announce_deadline=True, clock=calls.clock),
        {"grpc-timeout": "1S"},
    )
    assert calls.said("x-envoy-expected-rq-timeout-ms") == ["500", "950"]


async def test_the_deadline_ends_with_the_answer(backend):
    """Work between two pieces is waited for, and nobody waits for work after the last one."""
    calls = backend([200])
    app_clock = calls.clock
    ended = []

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        with forbear.deadline(60, clock=app_clock):
            await send({"type": "http.response.body", "body": b"1", "more_body": True})
            app_clock.sleep(2.0)
            with pytest.raises(forbear.DeadlineExceeded):
                await calls.aget()
            await send({"type": "http.response.body", "body": b"2"})
            ended.append(await calls.aget())

    await ask(RetryContextMiddleware(app, clock=app_clock), {"grpc-timeout": "1S"})
    assert len(ended) == calls.sent == 1


@pytest.mark.parametrize("answers", [True, False])
async def test_work_that_outlives_the_request_is_free_of_it(backend, answers):
    """A task that a request started lazily and left, also where no answer was ever finished."""
    calls = backend([503])
    done = anyio.Event()
    async with anyio.create_task_group() as group:

        async def later():
            await done.wait()
            calls.clock.sleep(5.0)
            with forbear.override(max_attempts=3):
                await calls.aget()
            await calls.aget()

        async def start():
            group.start_soon(later)

        async def silent(scope, receive, send):
            await start()

        app = answering(start) if answers else silent
        said = {"grpc-timeout": "1S", "retry-attempt": "2"}
        await ask(RetryContextMiddleware(app, clock=calls.clock), said)
        done.set()
    assert calls.sent == 3 + 4


# The mark.


@pytest.mark.parametrize(
    ("steps", "status", "marked"),
    [
        ([503], 502, True),
        (["read_error"], 500, True),
        ([503], 429, True),
        ([(503, {"x-should-retry": "false"})], 503, True),  # the server's no goes up
        ([(429, {"Retry-After": "3600"})], 503, True),
        ([503], 200, False),
        ([503], 404, False),  # no loop repeats that
        ([503, 200], 503, False),
        ([404], 503, False),
        ([RuntimeError("unknown")], 503, False),  # one attempt, and nobody's no
    ],
)
async def test_a_failed_answer_is_marked(backend, steps, status, marked):
    """x-should-retry: false, if a call made for it was retried in vain or may not be repeated."""
    calls = backend(steps)

    async def work():
        with contextlib.suppress(httpx.TransportError, RuntimeError):
            await calls.aget()

    messages = await ask(RetryContextMiddleware(answering(work, status)))
    assert mark_of(messages) == ([b"false"] if marked else [])
    assert messages[1] == {"type": "http.response.body", "body": b"ok"}


@pytest.mark.parametrize("library", ["requests", "urllib3", "Retry"])
async def test_every_client_is_heard(backend, library):
    """Sent once for a retry; else its giving up marks the answer."""
    policy = forbear.RetryPolicy(backoff=forbear.Fixed(0))
    with FaultServer() as server, contextlib.ExitStack() as stack:
        server.script("/thing", 503)
        url = server.url + "/thing"
        if library == "requests":
            session = stack.enter_context(requests.Session())
            session.trust_env = False
            forbear.requests.mount(session, policy, gate=None)
            get = functools.partial(session.get, url)
        else:
            retry = forbear.urllib3.Retry(policy)
            made = forbear.urllib3.RetryPoolManager(policy, gate=None)
            manager = made if library == "urllib3" else urllib3.PoolManager(retries=retry)
            get = functools.partial(stack.enter_context(manager).request, "GET", url)

        async def work():
            await anyio.to_thread.run_sync(get)

        app = RetryContextMiddleware(answering(work, 502))
        assert mark_of(await ask(app, {"retry-attempt": "2"})) == []
        assert len(server.requests()) == 1
        assert mark_of(await ask(app)) == [b"false"]
        assert len(server.requests()) == 1 + 4


async def test_a_call_of_one_attempt_leaves_it_to_those_above(backend):
    """max_attempts=1, a POST without a key, a request that is a retry: nothing was multiplied."""
    calls = backend([503])

    async def work():
        with forbear.override(max_attempts=1):
            await calls.aget()
        await calls.aclient.post("http://backend.example/")

    assert mark_of(await ask(RetryContextMiddleware(answering(work, 503)))) == []
    app = RetryContextMiddleware(answering(calls.aget, 503))
    assert mark_of(await ask(app, {"retry-attempt": "2"})) == []


async def test_no_mark_where_the_application_has_one_or_none_is_wanted(backend):
    calls = backend([503])
    app = answering(calls.aget, 503, [(b"X-Should-Retry", b"true")])
    assert mark_of(await ask(RetryContextMiddleware(app))) == [b"true"]
    app = RetryContextMiddleware(answering(calls.aget, 503), stop_outer_retries=False)
    assert mark_of(await ask(app)) == []


async def test_a_refused_origin_marks_the_answer_too(backend):
    """Nothing was sent, for the server's sake: whoever asks again would be refused again."""
    breaker = forbear.CircuitBreaker(consecutive_failures=1, open_for=60.0)
    calls = backend([500], breaker=breaker)
    await calls.aget()

    async def work():
        with pytest.raises(forbear.CircuitOpenError):
            await calls.aget()

    assert mark_of(await ask(RetryContextMiddleware(answering(work, 503)))) == [b"false"]
    assert calls.sent == 1


# Construction.


def test_wrong_options_are_told():
    for options, error, message in (
        ({"margin": -1}, ValueError, "margin must be at least 0"),
        ({"margin": "1"}, TypeError, "margin must be a number of seconds"),
        ({"announce_deadline": 1}, TypeError, "announce_deadline must be True or False"),
        ({"stop_outer_retries": None}, TypeError, "stop_outer_retries must be True or False"),
        ({"app": None}, TypeError, "goes around an application, got None"),
    ):
        with pytest.raises(error, match=message):
            RetryContextMiddleware(**{"app": answering(None), **options})


# Frameworks.


def marked(response):
    return response.headers.get_list("x-should-retry")


@pytest.mark.parametrize(("headers", "attempts"), [({}, 4), ({"retry-attempt": "2"}, 1)])
def test_fastapi(backend, headers, attempts):
    """Coroutines, functions in its threads, dependencies: all run in the request's context."""
    calls = {name: backend([503]) for name in ("a", "b", "c")}
    app = fastapi.FastAPI()
    app.add_middleware(RetryContextMiddleware)

    def dependency():
        calls["c"].get()

    @app.get("/coroutine", dependencies=[fastapi.Depends(dependency)])
    async def coroutine():
        answer = await calls["a"].aget()
        raise fastapi.HTTPException(answer.status_code)

    @app.get("/function")
    def function():
        calls["b"].get()
        return "fallback"

    with TestClient(app) as client:
        answer = client.get("/coroutine", headers=headers)
        assert (answer.status_code, marked(answer)) == (503, ["false"] if attempts == 4 else [])
        answer = client.get("/function", headers=headers)
        assert (answer.status_code, marked(answer)) == (200, [])
    assert [backend.sent for backend in calls.values()] == [attempts] * 3


def test_an_unhandled_exception_is_marked_from_around(backend):
    """The framework answers it outside of what add_middleware adds."""
    calls = backend([503])

    async def page(request):
        (await calls.aget()).raise_for_status()

    app = Starlette(routes=[Route("/", page)])
    with StarletteClient(RetryContextMiddleware(app), raise_server_exceptions=False) as client:
        answer = client.get("/")
    assert (answer.status_code, marked(answer)) == (500, ["false"])
    app = Starlette(routes=[Route("/", page)])
    app.add_middleware(RetryContextMiddleware)
    with StarletteClient(app, raise_server_exceptions=False) as client:
        answer = client.get("/")
    assert (answer.status_code, marked(answer)) == (500, [])


def test_starlette_background_tasks_and_streams(backend):
    """A stream is waited for and part of the retry, a background task is neither."""
    clock = FakeClock()
    streamed, background = backend([503], clock=clock), backend([503], clock=clock)
    late = []

    async def pieces():
        yield b"1"
        await streamed.aget()
        clock.sleep(2.0)
        try:
            await streamed.aget()
        except forbear.DeadlineExceeded:
            late.append("stream")
        yield b"2"

    async def page(request):
        return StreamingResponse(pieces(), background=BackgroundTask(background.aget))

    class Around(BaseHTTPMiddleware):
        """Runs the application in another task."""

        async def dispatch(self, request, call_next):
            return await call_next(request)

    app = Starlette(routes=[Route("/", page)])
    app.add_middleware(Around)
    app.add_middleware(RetryContextMiddleware, clock=clock)
    headers = {"retry-attempt": "2", "grpc-timeout": "1S"}
    with StarletteClient(app) as client:
        assert client.get("/", headers=headers).content == b"12"
    assert late == ["stream"]
    assert (streamed.sent, background.sent) == (1, 4)


def test_a_websocket_is_a_request_until_it_is_accepted(backend):
    """The handshake may be a retry and waited for; the conversation after it is neither."""
    before, after = backend([503]), backend([503])

    async def talk(websocket):
        await before.aget()
        await websocket.accept()
        after.clock.sleep(5.0)
        await after.aget()
        await websocket.send_text("done")
        await websocket.close()

    app = Starlette(routes=[WebSocketRoute("/", talk)])
    app.add_middleware(RetryContextMiddleware, clock=after.clock)
    headers = {"x-envoy-attempt-count": "2", "x-envoy-expected-rq-timeout-ms": "1000"}
    with (
        StarletteClient(app) as client,
        client.websocket_connect("/", headers=headers) as websocket,
    ):
        assert websocket.receive_text() == "done"
    assert (before.sent, after.sent) == (1, 4)


async def test_a_refused_websocket_is_marked(backend):
    """websocket.http.response: the denial of a handshake is an answer like any other."""
    calls = backend([503])

    async def app(scope, receive, send):
        await calls.aget()
        await send({"type": "websocket.http.response.start", "status": 503, "headers": []})
        await send({"type": "websocket.http.response.body", "body": b""})

    assert mark_of(await ask(RetryContextMiddleware(app), kind="websocket")) == [b"false"]
