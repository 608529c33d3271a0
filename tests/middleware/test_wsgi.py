"""forbear.wsgi.RetryContextMiddleware around bare WSGI applications and Flask."""

import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor
from wsgiref.util import FileWrapper

import flask
import httpx
import pytest
from werkzeug.serving import make_server

import forbear
from forbear.engine.current import CURRENT
from forbear.wsgi import RetryContextMiddleware

from ..threads import in_threads
from .servers import PLAIN, RETRY, URL, ask_wsgi, environ_of


def test_it_holds_over_the_body_until_its_close(backend):
    """Each piece that the server asks for is made in the context, and nothing in between is."""
    calls = backend([503])

    class Body:
        def __iter__(self):
            calls.get()
            yield b"1"
            calls.get()
            yield b"2"

        def close(self):
            calls.get()

    def app(environ, start_response):
        start_response("200 OK", PLAIN)
        return Body()

    body = RetryContextMiddleware(app)(environ_of(RETRY), lambda *_: None)
    pieces = iter(body)
    assert next(pieces) == b"1"
    assert CURRENT.get() is None
    with ThreadPoolExecutor(1) as pool:  # the server may ask in another thread
        assert pool.submit(next, pieces).result() == b"2"
        assert pool.submit(CURRENT.get).result() is None
    assert list(pieces) == []
    body.close()
    assert CURRENT.get() is None
    assert calls.sent == 2 + 4  # what close() does is asked for by nobody


def test_a_body_that_cannot_be_iterated_is_closed():
    """The server gets nothing that it could close."""
    closed = []

    class Body:
        def __iter__(self):
            raise OSError("gone")

        def close(self):
            closed.append(True)

    with pytest.raises(OSError, match="gone"):
        list(RetryContextMiddleware(lambda *_: Body())(environ_of(), lambda *_: None))
    assert closed == [True]


def test_an_application_that_is_a_generator(backend):
    """It begins to run, calls start_response and is marked with the first piece."""
    calls = backend([503])

    def app(environ, start_response):
        calls.get()
        start_response("503 Busy", PLAIN)
        yield b"busy"

    for headers, marks, sent in (({}, ["false"], 4), (RETRY, [], 4 + 1)):
        assert ask_wsgi(RetryContextMiddleware(app), headers) == ("503 Busy", marks, b"busy")
        assert calls.sent == sent


def test_a_block_may_span_pieces(backend):
    """A generator in the middle of ``with forbear.override``: its next piece is in it too."""
    calls = backend([503])

    def app(environ, start_response):
        start_response("200 OK", PLAIN)
        with forbear.override(max_attempts=2):
            yield b"1"
            calls.get()
            yield b"2"
        calls.get()
        yield b"3"

    body = RetryContextMiddleware(app)(environ_of(), lambda *_: None)
    for number, piece in enumerate(body, 1):
        assert piece == str(number).encode()
        assert CURRENT.get() is None
    body.close()
    assert (number, calls.sent) == (3, 2 + 4)


@pytest.mark.parametrize("kind", [list, tuple, FileWrapper])
def test_a_finished_body_is_handed_through(backend, tmp_path, kind):
    """Servers have quicker ways for lists and their own file wrapper, if they see the object."""
    path = tmp_path / "file"
    path.write_bytes(b"ok")
    with path.open("rb") as file:
        made = kind([b"ok"]) if kind is not FileWrapper else FileWrapper(file)
        app = RetryContextMiddleware(lambda environ, start: start("200 OK", []) or made)
        environ = environ_of(**{"wsgi.file_wrapper": FileWrapper})
        assert app(environ, lambda *_: None) is made


def test_exc_info_and_write_are_handed_through():
    """Both are the server's; the application may call start_response again with an error."""
    started, written = [], []

    def start_response(*arguments):
        started.append(arguments)
        return written.append

    def app(environ, start):
        start("200 OK", [("X", "1")])(b"early")
        start("500 Broken", [("X", "2")], ("type", "error", None))
        return []

    RetryContextMiddleware(app)(environ_of(), start_response)
    error = ("500 Broken", [("X", "2")], ("type", "error", None))
    assert started == [("200 OK", [("X", "1")]), error]
    assert written == [b"early"]


def test_work_that_outlives_the_request_is_free_of_it(backend):
    """A thread that a request started with a copy of its context, after an answer in pieces."""
    calls, left = backend([503]), []

    def app(environ, start_response):
        left.append(contextvars.copy_context())
        start_response("200 OK", PLAIN)
        return iter([b"ok"])

    assert ask_wsgi(RetryContextMiddleware(app), RETRY)[2] == b"ok"
    left[0].run(calls.get)
    assert calls.sent == 4


def test_an_odd_environ_is_no_reason_to_fail(backend):
    """What is no text is not read, and a status that is none is the server's to refuse."""
    calls = backend([503])

    def app(environ, start_response):
        calls.get()
        start_response("none of the above", [])
        return [b"ok"]

    odd = {"HTTP_RETRY_ATTEMPT": 2, "HTTP_GRPC_TIMEOUT": None}
    assert ask_wsgi(RetryContextMiddleware(app), **odd)[0] == "none of the above"
    assert calls.sent == 4


def flask_app(calls):
    app = flask.Flask(__name__)
    app.wsgi_app = RetryContextMiddleware(app.wsgi_app, clock=calls.clock)

    @app.get("/orders")
    def orders():
        return "busy", calls.session.get(URL).status_code

    @app.get("/broken")
    def broken():
        calls.session.get(URL).raise_for_status()

    @app.get("/stream")
    def stream():
        @flask.stream_with_context
        def pieces():
            yield flask.request.path
            calls.get()
            yield "!"

        return flask.Response(pieces())

    return app


@pytest.mark.parametrize(("headers", "attempts"), [({}, 4), (RETRY, 1)])
def test_flask(backend, headers, attempts):
    """Views, streamed answers, and an exception that Flask makes a 500 of."""
    calls = backend([503])
    client, mark = flask_app(calls).test_client(), ["false"] if attempts == 4 else []
    for path, status, marks, body in [
        ("/orders", 503, mark, "busy"), ("/broken", 500, mark, None), ("/stream", 200, [], "/stream!"),
    ]:  # fmt: skip
        before = calls.sent
        answer = client.get(path, headers=headers)
        assert (answer.status_code, answer.headers.getlist("x-should-retry")) == (status, marks)
        assert body is None or answer.text == body
        assert calls.sent - before == attempts


def test_flask_on_the_threads_of_a_real_server(backend):
    """40 requests at once, every second one a retry: neither leaks into the other."""
    first, again = backend([503]), backend([503])
    apps = flask_app(first), flask_app(again)

    def app(environ, start_response):
        return apps["HTTP_RETRY_ATTEMPT" in environ].wsgi_app(environ, start_response)

    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/orders"
        with httpx.Client(trust_env=False, timeout=30) as client:
            answers = in_threads(40, lambda n: client.get(url, headers=RETRY if n % 2 else {}))
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert (first.sent, again.sent) == (20 * 4, 20)
    marks = [answer.headers.get("x-should-retry") for answer in answers]
    assert marks == ["false", None] * 20
