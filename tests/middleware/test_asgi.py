"""forbear.asgi.RetryContextMiddleware around bare ASGI applications, Starlette and FastAPI."""

import anyio
import fastapi
import pytest
from starlette.applications import Starlette
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient

import forbear
from forbear.asgi import RetryContextMiddleware
from forbear.engine.current import CURRENT

from .servers import RETRY, answering, ask_asgi

pytestmark = pytest.mark.anyio


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
    """Without a socket in between the inner request is a retry too, and has the outer deadline."""
    calls = backend([503])
    options = {"clock": calls.clock, "margin": 0}
    inner = RetryContextMiddleware(answering(calls.aget), announce_deadline=True, **options)
    outer = RetryContextMiddleware(answering(lambda: ask_asgi(inner)), **options)
    await ask_asgi(outer, {**RETRY, "grpc-timeout": "2S"})
    assert calls.said("x-envoy-expected-rq-timeout-ms") == ["2000"]


async def test_the_deadline_ends_with_the_answer(backend):
    """Work between two pieces is waited for, and nobody waits for work after the last one."""
    calls = backend([200])

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"1", "more_body": True})
        calls.clock.sleep(2.0)
        with pytest.raises(forbear.DeadlineExceeded):
            await calls.aget()
        await send({"type": "http.response.body", "body": b"2"})
        await calls.aget()

    await ask_asgi(RetryContextMiddleware(app, clock=calls.clock), {"grpc-timeout": "1S"})
    assert calls.sent == 1


@pytest.mark.parametrize("answers", [True, False])
async def test_work_that_outlives_the_request_is_free_of_it(backend, answers):
    """A task that a request started lazily and left, also where no answer was ever finished."""
    calls, done = backend([503]), anyio.Event()
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

        app = RetryContextMiddleware(answering(start) if answers else silent, clock=calls.clock)
        await ask_asgi(app, {"grpc-timeout": "1S", **RETRY})
        done.set()
    assert calls.sent == 3 + 4


def marked(response):
    return response.headers.get_list("x-should-retry")


@pytest.mark.parametrize(("headers", "attempts"), [({}, 4), (RETRY, 1)])
def test_fastapi(backend, headers, attempts):
    """Coroutines, functions in its threads, dependencies: all run in the request's context."""
    calls = {name: backend([503]) for name in ("a", "b", "c")}
    app = fastapi.FastAPI()
    app.add_middleware(RetryContextMiddleware)

    def dependency():
        calls["c"].get()

    @app.get("/503", dependencies=[fastapi.Depends(dependency)])
    async def coroutine():
        answer = await calls["a"].aget()
        raise fastapi.HTTPException(answer.status_code)

    @app.get("/200")
    def function():
        calls["b"].get()

    with TestClient(app) as client:
        for status, marks in ((503, ["false"] if attempts == 4 else []), (200, [])):
            answer = client.get(f"/{status}", headers=headers)
            assert (answer.status_code, marked(answer)) == (status, marks)
    assert [backend.sent for backend in calls.values()] == [attempts] * 3


@pytest.mark.parametrize("path", ["/coroutine", "/function"])
def test_the_middlewares_deadline_is_the_one_for_fastapi(backend, path):
    """For no background task. A block in a dependency that is no coroutine holds for nothing."""
    calls, api = backend([503]), fastapi.FastAPI()

    def dependency():
        with forbear.deadline(0.0, clock=calls.clock):
            yield

    @api.get("/coroutine", dependencies=[fastapi.Depends(dependency)])
    async def coroutine(tasks: fastapi.BackgroundTasks):
        tasks.add_task(calls.aget)
        return (await calls.aget()).status_code

    @api.get("/function", dependencies=[fastapi.Depends(dependency)])
    def function(tasks: fastapi.BackgroundTasks):
        tasks.add_task(calls.get)
        return calls.get().status_code

    says = r"forbear\.deadline was left in another context.*write RetryContextMiddleware\(app, dead"
    app = RetryContextMiddleware(api, deadline=0.25, clock=calls.clock)
    with TestClient(app) as client, pytest.warns(UserWarning, match=says) as caught:
        assert client.get(path).json() == 503
    assert calls.sent == 3 + 4
    assert [one.filename for one in caught] == [__file__]


def test_an_unhandled_exception_is_marked_from_around(backend):
    """The framework answers it outside of what add_middleware adds."""
    calls = backend([503])

    async def page(request):
        (await calls.aget()).raise_for_status()

    app = Starlette(routes=[Route("/", page)])
    with TestClient(RetryContextMiddleware(app), raise_server_exceptions=False) as client:
        answer = client.get("/")
    assert (answer.status_code, marked(answer)) == (500, ["false"])


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
    with TestClient(app) as client, client.websocket_connect("/", headers=headers) as talking:
        assert talking.receive_text() == "done"
    assert (before.sent, after.sent) == (1, 4)


async def test_a_refused_websocket_is_marked(backend):
    """websocket.http.response: the denial of a handshake is an answer like any other."""
    app = answering(backend([503]).aget, 503, kind="websocket.http")
    start, _ = await ask_asgi(RetryContextMiddleware(app), kind="websocket")
    assert (b"x-should-retry", b"false") in start["headers"]
