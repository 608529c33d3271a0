"""forbear for ASGI: ``RetryContextMiddleware``, so that retries do not multiply from service to
service. Floor: acts.

Pure ASGI: works around any application, and needs no framework.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from .sending.context import Answering
from .sending.incoming import MARGIN, STOP, RetryContext

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from .sending.clock import Clock
    from .sending.context import Incoming

    # The names of ASGI 3.0.
    Scope = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
    Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
    Application = Callable[[Scope, Receive, Send], Awaitable[None]]

__all__ = ["RetryContextMiddleware"]


class RetryContextMiddleware:
    """Keep the calls made for a request from multiplying the retries of whoever sent it.
    Thread-safe.

    ``app.add_middleware(RetryContextMiddleware)`` (Starlette, FastAPI), or
    ``RetryContextMiddleware(app)`` around any ASGI application. It concerns ``http`` and
    ``websocket``, and every client of forbear that is called in the context of the request: its
    task, those started by it, ``asyncio.to_thread``.

    - A request that is itself a retry, by ``x-envoy-attempt-count``, ``amz-sdk-request``,
      ``x-stainless-retry-count``, ``grpc-previous-rpc-attempts`` or forbear's ``Retry-Attempt``:
      the calls made for it are sent once only, whatever their policy says, also in its background
      tasks.
    - ``x-envoy-expected-rq-timeout-ms`` and ``grpc-timeout``: the calls made for it end before the
      sender stops waiting, as in ``forbear.deadline``. Until the last byte of the answer is sent:
      background tasks have no deadline.
    - A failed answer (500 and above, 408, 409, 425, 429) after a call that was retried in vain, or
      that may not be repeated for the server's sake, is marked ``x-should-retry: false``, unless it
      says something itself. forbear and some SDKs obey that.

    A header that cannot be read is as if it were absent. For a websocket all this ends when it is
    accepted.

    Args:
        app: The ASGI application.
        margin: Seconds taken off the incoming deadline for the way back; never more than half of
            it.
        announce_deadline: Send ``x-envoy-expected-rq-timeout-ms``, the time that is left, with each
            attempt made for a request that has a deadline (its own, or one of
            ``forbear.deadline``), unless the caller has written it.
        stop_outer_retries: Mark failed answers.
        clock: Where time comes from; a test passes forbear.testing.FakeClock(), as to its
            transports.

    Raises:
        TypeError: An option is of the wrong type.
        ValueError: ``margin`` is negative or not finite.
    """

    def __init__(
        self,
        app: Application,
        *,
        margin: float = MARGIN,
        announce_deadline: bool = False,
        stop_outer_retries: bool = True,
        clock: Clock | None = None,
    ) -> None:
        self._context = RetryContext(app, margin, announce_deadline, stop_outer_retries, clock)
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI says."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        incoming = self._context._read(list(scope.get("headers", ())))
        try:
            with Answering(incoming):
                await self.app(scope, receive, Answer(self._context, incoming, send))
        finally:
            incoming.deadline_at = inf  # tasks that outlive the request


class Answer:
    """The ``send`` of one request: marks the answer's start, notices its end."""

    __slots__ = ("_context", "_incoming", "_send")

    def __init__(self, context: RetryContext, incoming: Incoming, send: Send) -> None:
        self._context = context
        self._incoming = incoming
        self._send = send

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        kind = message["type"]
        if kind in STARTS and self._context._is_marked(self._incoming, message["status"]):
            message = with_mark(message)
        await self._send(message)
        if kind == "websocket.accept":
            self._incoming.retries = 0  # what was sent again is the handshake
            self._incoming.deadline_at = inf
        elif kind in BODIES and not message.get("more_body", False):
            self._incoming.deadline_at = inf


STARTS = ("http.response.start", "websocket.http.response.start")
BODIES = ("http.response.body", "websocket.http.response.body")


def with_mark(message: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    lines = list(message.get("headers", ()))
    mark = STOP.encode()
    if any(name.lower() == mark for name, _ in lines):
        return message
    return {**message, "headers": [*lines, (mark, b"false")]}
