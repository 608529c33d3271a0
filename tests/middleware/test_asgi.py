"""forbear.asgi.RetryContextMiddleware around bare ASGI applications, Starlette and FastAPI."""

import asyncio
import contextlib

import anyio
import anyio.to_thread
import fastapi
import httpx
import pytest
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient as StarletteClient

import forbear
from forbear import Reason
from forbear.asgi import RetryContextMiddleware
from forbear.sending.context import CURRENT
from forbear.testing import FakeClock

pytestmark = pytest.mark.anyio


async def ask(app, headers=(), *, kind="http", **scope):
    """One request, as a server makes it; return the messages that the application sent."""
    sent = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    lines = [(name.encode(), value.encode()) for name, value in dict(headers).items()]
    await app(
        {"type": kind, "method": "GET", "path": "/", "headers": lines, **scope}, receive, send
    )
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


async def test_calls_made_for_a_retry_are_sent_once(backend, headers, attempts):
    """By each of the five headers, as its source numbers it; a first sending has all its
    attempts.
    """
    calls = backend([503])
    await ask(RetryContextMiddleware(answering(calls.aget)), headers)
    assert calls.sent == attempts
    assert CURRENT.get() is None


async def test_the_record_says_why(backend):
    """Sent once, although the policy allows 4: nested-call."""
    calls = backend([503])
    records = []

    async def work():
        records.append(forbear.record_of(await calls.aget()))

    await ask(RetryContextMiddleware(answering(work)), {"retry-attempt": "2"})
    assert [(record.reason, len(record.attempts)) for record in records] == [
        (Reason.NESTED_CALL, 1)
    ]


async def test_no_setting_is_above_it(backend):
    """Like a deadline it is a bound, not a default: override, the request's own policy, after an
    error too.
    """
    calls = backend([503, "read_error"])

    async def work():
        with forbear.override(max_attempts=9), forbear.deadline(60, clock=calls.clock):
            await calls.aget()
        with pytest.raises(httpx.ReadError):
            await calls.aget(extensions={"forbear": {"max_attempts": 9}})

    await ask(RetryContextMiddleware(answering(work)), {"retry-attempt": "2"})
    assert calls.sent == 2


async def test_a_strategy_of_ones_own_is_bound_too(backend):
    """It is not asked for a second attempt."""
    strategy = forbear.StandardStrategy(
        forbear.RetryPolicy(max_attempts=9), budget=None, random=lambda: 0.0
    )
    calls = backend([503], strategy=strategy)
    await ask(RetryContextMiddleware(answering(calls.aget)), {"retry-attempt": "2"})
    assert calls.sent == 1


async def test_it_follows_tasks_and_threads(backend):
    calls = backend([503])

    async def work():
        await anyio.to_thread.run_sync(calls.get)
        async with anyio.create_task_group() as group:
            group.start_soon(calls.aget)

    await ask(RetryContextMiddleware(answering(work)), {"retry-attempt": "2"})
    assert calls.sent == 2


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


@pytest.mark.parametrize("kind", ["lifespan", "something-new"])
async def test_other_scopes_are_handed_through(kind):
    """The very objects that the server gave."""
    seen = []

    async def app(*arguments):
        seen.append((*arguments, CURRENT.get()))

    scope, receive, send = {"type": kind}, object(), object()
    await RetryContextMiddleware(app)(scope, receive, send)
    assert seen == [(scope, receive, send, None)]
    assert seen[0][0] is scope


async def test_one_service_inside_another_ones_context(backend):
    """Called without a socket in between, the inner request is part of the outer one: a retry, with
    its deadline.

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
    """No retry, no deadline: a call that succeeds takes the fast door, and its failures are heard
    all the same.
    """
    calls = backend([200, 503])
    transport = calls.aclient._transport
    made, transport._exchange = transport._exchange, None  # making one would raise
    await ask(RetryContextMiddleware(answering(calls.aget)))
    with pytest.raises(TypeError):
        await ask(RetryContextMiddleware(answering(calls.aget)), {"grpc-timeout": "1S"})
    assert calls.sent == 1
    transport._exchange = made
    assert mark_of(await ask(RetryContextMiddleware(answering(calls.aget, 503)))) == [b"false"]


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


async def test_a_request_that_is_off_says_nothing(backend):
    """extensions={"forbear": False} is forwarded untouched, whatever it is made for."""
    calls = backend([503], announce_attempts=True)
    off = {"extensions": {"forbear": False}}
    app = RetryContextMiddleware(
        answering(lambda: calls.aget(**off)), announce_deadline=True, clock=calls.clock
    )
    await ask(app, {"retry-attempt": "2", "grpc-timeout": "1S"})
    assert calls.said("retry-attempt") == calls.said("x-envoy-expected-rq-timeout-ms") == [None]


# Deadlines.


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        pytest.param({"x-envoy-expected-rq-timeout-ms": "1000"}, 0.95, id="envoy"),
        pytest.param({"grpc-timeout": "2S"}, 1.95, id="grpc"),
        pytest.param(
            {"grpc-timeout": "2S", "x-envoy-expected-rq-timeout-ms": "1000"}, 0.95, id="the earlier"
        ),
        pytest.param({"grpc-timeout": "60m"}, 0.03, id="never less than half"),
        pytest.param(
            {"grpc-timeout": "soon", "x-envoy-expected-rq-timeout-ms": "0"}, None, id="none"
        ),
    ],
)
async def test_the_incoming_deadline_bounds_the_calls(backend, headers, seconds):
    """Taken over, and 0.05 s of it kept for the way back."""
    calls = backend([503])
    left = []

    async def work():
        scope = CURRENT.get()
        left.append(
            scope.deadline_on(calls.clock, calls.clock.monotonic()) - calls.clock.monotonic()
        )
        await calls.aget()

    await ask(RetryContextMiddleware(answering(work), clock=calls.clock), headers)
    assert left == [pytest.approx(seconds) if seconds is not None else float("inf")]
    # Attempts are 0.1 s apart.
    assert calls.sent == (1 if seconds == 0.03 else 4)


async def test_after_the_deadline_nothing_is_sent(backend):
    calls = backend([503])

    async def work():
        calls.clock.sleep(1.0)
        with pytest.raises(forbear.DeadlineExceeded):
            await calls.aget()

    await ask(RetryContextMiddleware(answering(work), clock=calls.clock), {"grpc-timeout": "1S"})
    assert calls.sent == 0


async def test_the_margin_is_ones_own(backend):
    calls = backend([200], clock=(clock := FakeClock()))
    app = RetryContextMiddleware(
        answering(calls.aget), margin=0.3, announce_deadline=True, clock=clock
    )
    await ask(app, {"grpc-timeout": "1S"})
    assert calls.said("x-envoy-expected-rq-timeout-ms") == ["700"]


async def test_the_time_left_is_sent_on_if_asked(backend):
    """announce_deadline: with each attempt what is left of 2 s less the margin; half a second goes
    by in between.
    """
    calls = backend([503, 200], policy=forbear.RetryPolicy(backoff=forbear.Fixed(0.5)))
    app = RetryContextMiddleware(answering(calls.aget), announce_deadline=True, clock=calls.clock)
    await ask(app, {"grpc-timeout": "2S"})
    assert calls.said("x-envoy-expected-rq-timeout-ms") == ["1950", "1450"]


@pytest.mark.parametrize(
    ("options", "incoming", "headers", "said"),
    [
        pytest.param({}, {"grpc-timeout": "2S"}, {}, None, id="not asked"),
        pytest.param({"announce_deadline": True}, {}, {}, None, id="no deadline"),
        pytest.param(
            {"announce_deadline": True},
            {"grpc-timeout": "2S"},
            {"X-Envoy-Expected-Rq-Timeout-Ms": "7"},
            "7",
            id="the caller's own",
        ),
    ],
)
async def test_nothing_else_is_sent_on(backend, options, incoming, headers, said):
    calls = backend([200])

    async def work():
        await calls.aget(headers=headers)

    await ask(RetryContextMiddleware(answering(work), clock=calls.clock, **options), incoming)
    assert calls.said("x-envoy-expected-rq-timeout-ms") == [said]


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
    """Nobody waits for what is done after the last byte; what is done between two pieces is waited
    for.
    """
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


async def test_work_that_outlives_the_request_has_no_deadline(backend):
    """A task that was started and left: also where the application never finished its answer."""
    calls = backend([200])
    done = anyio.Event()
    async with anyio.create_task_group() as group:

        async def later():
            await done.wait()
            calls.clock.sleep(5.0)
            await calls.aget()

        async def app(scope, receive, send):
            group.start_soon(later)

        await ask(RetryContextMiddleware(app, clock=calls.clock), {"grpc-timeout": "1S"})
        done.set()
    assert calls.sent == 1


# The mark.


@pytest.mark.parametrize(
    ("steps", "status", "marked"),
    [
        pytest.param([503], 502, True, id="retried in vain"),
        pytest.param(["read_error"], 500, True, id="errors too"),
        pytest.param([503], 429, True, id="throttled"),
        pytest.param([(503, {"x-should-retry": "false"})], 503, True, id="the server's no goes up"),
        pytest.param([(429, {"Retry-After": "3600"})], 503, True, id="too long"),
        pytest.param([503], 200, False, id="answered all the same"),
        pytest.param([503], 404, False, id="no loop repeats that"),
        pytest.param([503, 200], 503, False, id="saved by a retry"),
        pytest.param([404], 503, False, id="not given up on"),
        pytest.param(["unknown"], 503, False, id="one attempt, and nobody's no"),
    ],
)
async def test_a_failed_answer_is_marked(backend, steps, status, marked):
    """x-should-retry: false, if a call made for it was retried in vain or may not be repeated."""
    calls = backend([RuntimeError("unknown") if step == "unknown" else step for step in steps])

    async def work():
        with contextlib.suppress(httpx.TransportError, RuntimeError):
            await calls.aget()

    messages = await ask(RetryContextMiddleware(answering(work, status)))
    assert mark_of(messages) == ([b"false"] if marked else [])
    assert messages[1] == {"type": "http.response.body", "body": b"ok"}


@pytest.mark.parametrize("library", ["requests", "urllib3", "Retry"])
async def test_every_client_is_heard(backend, library):
    """requests in a thread, a pool manager, and urllib3's Retry too: once for a retry, and the
    mark.
    """
    import urllib3

    from forbear.testing import FaultServer
    from forbear.urllib3 import Retry, RetryPoolManager

    calls = backend([503])
    options = {"policy": forbear.RetryPolicy(backoff=forbear.Fixed(0)), "clock": calls.clock}
    with FaultServer() as server:
        server.script("/thing", 503)
        session = calls.session
        with (
            RetryPoolManager(**options) as ours,
            urllib3.PoolManager(retries=Retry(**options)) as theirs,
        ):

            def get():
                if library == "requests":
                    session.get("http://backend.example/")
                else:
                    (ours if library == "urllib3" else theirs).request("GET", server.url + "/thing")

            async def work():
                await anyio.to_thread.run_sync(get)

            app = RetryContextMiddleware(answering(work, 502))
            assert mark_of(await ask(app, {"retry-attempt": "2"})) == []
            assert calls.sent + len(server.requests()) == 1
            assert mark_of(await ask(app)) == [b"false"]
            assert calls.sent + len(server.requests()) == 1 + 4


async def test_a_call_of_one_attempt_leaves_it_to_those_above(backend):
    """max_attempts=1, a POST without a key, or a request that is a retry: nobody here has
    multiplied anything.
    """
    calls = backend([503])

    async def work():
        with forbear.override(max_attempts=1):
            await calls.aget()
        await calls.aclient.post("http://backend.example/")

    assert mark_of(await ask(RetryContextMiddleware(answering(work, 503)))) == []
    assert (
        mark_of(
            await ask(RetryContextMiddleware(answering(calls.aget, 503)), {"retry-attempt": "2"})
        )
        == []
    )


async def test_what_the_application_says_itself_stays(backend):
    calls = backend([503])
    app = answering(calls.aget, 503, [(b"X-Should-Retry", b"true")])
    assert mark_of(await ask(RetryContextMiddleware(app))) == [b"true"]


async def test_no_mark_if_not_wanted(backend):
    calls = backend([503])
    app = RetryContextMiddleware(answering(calls.aget, 503), stop_outer_retries=False)
    assert mark_of(await ask(app)) == []


async def test_a_refused_origin_marks_the_answer_too(backend):
    """Nothing was sent for it, for the server's sake: whoever asks again would only be refused
    again.
    """

    class Refusing:
        quiet = False

        def acquire_initial_token(self, scope, now):
            raise forbear.RetryRefused(Reason.CIRCUIT_OPEN, send=False, retry_after=3.0)

        def refresh_token(self, token, failure, now, *, latest):
            raise AssertionError("nothing was sent")

        record_success = release = None

        def __init__(self):
            self.record_success = self.release = lambda token, now: None

    calls = backend([200], strategy=Refusing())

    async def work():
        with pytest.raises(forbear.CircuitOpenError):
            await calls.aget()

    assert mark_of(await ask(RetryContextMiddleware(answering(work, 503)))) == [b"false"]
    assert calls.sent == 0


# Construction.


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"margin": -1}, ValueError, "margin must be at least 0"),
        ({"margin": "1"}, TypeError, "margin must be a number of seconds"),
        ({"announce_deadline": 1}, TypeError, "announce_deadline must be True or False"),
        ({"stop_outer_retries": None}, TypeError, "stop_outer_retries must be True or False"),
        ({"app": None}, TypeError, "goes around an application, got None"),
    ],
)
def test_wrong_options_are_told(options, error, message):
    with pytest.raises(error, match=message):
        RetryContextMiddleware(**{"app": answering(None), **options})


# Frameworks.


def marked(response):
    return response.headers.get_list("x-should-retry")


@pytest.mark.parametrize("way", ["add_middleware", "around"])
def test_fastapi(backend, headers, attempts, way):
    """Coroutines, functions in its threads, dependencies: all that it runs for a request is in its
    context.
    """
    calls = {name: backend([503]) for name in ("a", "b", "c")}
    app = fastapi.FastAPI()
    if way == "add_middleware":
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

    served = app if way == "add_middleware" else RetryContextMiddleware(app)
    with TestClient(served) as client:
        answer = client.get("/coroutine", headers=headers)
        assert (answer.status_code, marked(answer)) == (503, ["false"] if attempts == 4 else [])
        answer = client.get("/function", headers=headers)
        assert (answer.status_code, marked(answer)) == (200, [])
    assert [backend.sent for backend in calls.values()] == [attempts] * 3


def test_an_unhandled_exception_is_marked_from_around(backend):
    """The frameworks' answer to it is made outside of what add_middleware adds; around everything
    it is seen.
    """
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
    """A stream is waited for, a background task is not; both are part of the retry."""
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
    with StarletteClient(app) as client:
        assert (
            client.get("/", headers={"retry-attempt": "2", "grpc-timeout": "1S"}).content == b"12"
        )
    assert late == ["stream"]
    assert (streamed.sent, background.sent) == (1, 1)


def test_a_websocket_is_a_request_until_it_is_accepted(backend):
    """The handshake may be a retry and may be waited for; the conversation that follows is
    neither.
    """
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


def test_lifespan_runs(backend):
    """Start and end of the application, untouched; what it opens is used by requests."""
    calls = backend([503])
    seen = []

    async def page(request):
        await calls.aget()
        return PlainTextResponse("ok")

    async def lifespan(app):
        seen.append(CURRENT.get())
        yield
        seen.append(CURRENT.get())

    app = Starlette(routes=[Route("/", page)], lifespan=contextlib.asynccontextmanager(lifespan))
    with StarletteClient(RetryContextMiddleware(app)) as client:
        assert client.get("/", headers={"retry-attempt": "2"}).text == "ok"
    assert seen == [None, None]
    assert calls.sent == 1


def test_create_task_takes_it_along(backend):
    """What a handler starts and does not wait for: still part of the retry, without its
    deadline.
    """
    calls = backend([503])
    tasks = []
    answered = asyncio.Event()

    async def page(request):
        async def later():
            await answered.wait()
            calls.clock.sleep(5.0)
            await calls.aget()

        tasks.append(asyncio.create_task(later()))
        return PlainTextResponse("ok")

    async def wait(request):
        answered.set()
        await tasks[0]
        return PlainTextResponse("ok")

    app = Starlette(routes=[Route("/", page), Route("/wait", wait)])
    app.add_middleware(RetryContextMiddleware, clock=calls.clock)
    with StarletteClient(app) as client:
        client.get("/", headers={"retry-attempt": "2", "grpc-timeout": "1S"})
        client.get("/wait")
    assert calls.sent == 1
