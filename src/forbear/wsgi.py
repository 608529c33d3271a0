"""forbear for WSGI: keep retries from multiplying from service to service.

Pure WSGI (PEP 3333): works around any application, and needs no framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar
from wsgiref.types import WSGIApplication

from .addons.incoming import STOP, TIMEOUTS, Answering, Middleware
from .engine.blocks import NOTHING
from .engine.current import CURRENT, in_force
from .engine.outer import COUNTERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from wsgiref.types import StartResponse, WSGIEnvironment

    from _typeshed import OptExcInfo

    from .addons.incoming import Incoming
    from .engine.context import CallContext

__all__ = ["RetryContextMiddleware"]

T = TypeVar("T")
# header -> its name in an environ
NAMES = {name: f"HTTP_{name.upper().replace('-', '_')}" for name in (*COUNTERS, *TIMEOUTS)}


class RetryContextMiddleware(Middleware[WSGIApplication]):
    """Keep calls made for a request from multiplying the retries of its sender. Thread-safe.

    ``app.wsgi_app = RetryContextMiddleware(app.wsgi_app)`` (Flask), or
    ``RetryContextMiddleware(app)`` around any WSGI application. What it does is described at
    ``forbear.asgi.RetryContextMiddleware``. It holds while the application runs and while its
    response is iterated, on whatever thread. What the request says ends with the last chunk of the
    response, before ``close()``. The threads of a pool need not inherit it.

    Args:
        app: The WSGI application.
        deadline: Seconds for all calls made for one request together; None: only its sender's.
        margin: Seconds taken off the incoming deadline; never more than half of it.
        announce_deadline: Send the time that is left with each attempt.
        stop_outer_retries: Mark failed responses.
        clock: Where time comes from; a test passes forbear.testing.FakeClock().
    """

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Serve one request, as PEP 3333 specifies."""
        incoming = self.incoming(lines_of(environ))
        response = Response(incoming)

        def start(
            status: str, headers: list[tuple[str, str]], *exc_info: OptExcInfo
        ) -> Callable[[bytes], object]:
            code = int(status[:3]) if status[:3].isdecimal() else 0
            headers = self.marked(incoming, code, headers, STOP, "false")
            return start_response(status, headers, *exc_info)

        try:
            body = response.step(self.app, environ, start)
            # While these are sent nothing of the application runs, and servers have quicker ways.
            wrapper = environ.get("wsgi.file_wrapper")
            ready = (list, tuple, wrapper) if isinstance(wrapper, type) else (list, tuple)
            if isinstance(body, ready):
                incoming.end()
                return body
            response.body = body
            response.pieces = response.step(iter, body)
            return response
        except BaseException:
            response.close()  # the server has nothing that it could close
            raise


class Response:
    """One request's response: runs each step of the application in the request's context.

    The context is set for each step only, because between two chunks the thread may do other work,
    and another thread may fetch the next one.
    """

    body: Iterable[bytes] = ()
    pieces: Iterator[bytes]

    def __init__(self, incoming: Incoming) -> None:
        self._incoming = incoming
        # What the application's last step left: a generator may be in a block of its own.
        self._left: CallContext | None = Answering(incoming).inside(
            in_force(CURRENT.get()) or NOTHING
        )

    def step(self, work: Callable[..., T], *arguments: object) -> T:
        around = CURRENT.get()
        CURRENT.set(self._left)
        try:
            return work(*arguments)
        finally:
            self._left = CURRENT.get()
            CURRENT.set(around)

    def __iter__(self) -> Response:
        return self

    def __next__(self) -> bytes:
        return self.step(self.pieces.__next__)

    def close(self) -> None:
        # PEP 3333: called in any case, after the last chunk or when the client has gone.
        self._incoming.end()
        close = getattr(self.body, "close", None)
        if close is not None:
            self.step(close)


def lines_of(environ: WSGIEnvironment) -> list[tuple[str, str]]:
    return [
        (name, environ[key]) for name, key in NAMES.items() if isinstance(environ.get(key), str)
    ]
