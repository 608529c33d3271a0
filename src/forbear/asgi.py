"""forbear for ASGI: keep retries from multiplying from service to service.

Pure ASGI: works around any application, and needs no framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .addons.incoming import STOP, Answering, Middleware

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    # The names of ASGI 3.0.
    Message = MutableMapping[str, Any]
    Scope = Message
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]
    Application = Callable[[Scope, Receive, Send], Awaitable[None]]

__all__ = ["RetryContextMiddleware"]


class RetryContextMiddleware(Middleware["Application"]):
    """Keep calls made for a request from multiplying the retries of its sender. Thread-safe.

    ``app.add_middleware(RetryContextMiddleware)`` (Starlette, FastAPI), or
    ``RetryContextMiddleware(app)`` around any ASGI application. It concerns ``http`` and
    ``websocket``, and every client of forbear that is called in the context of the request: its
    task, those started by it, ``asyncio.to_thread``.

    - A request that is itself a retry, by ``x-envoy-attempt-count``, ``amz-sdk-request``,
      ``x-stainless-retry-count``, ``grpc-previous-rpc-attempts`` or forbear's ``Retry-Attempt``:
      the calls made for it are sent once only, whatever their policy says.
    - ``x-envoy-expected-rq-timeout-ms`` and ``grpc-timeout``: the calls made for it end before the
      sender stops waiting, as in ``forbear.deadline``.
    - A failed response (500 and above, 408, 409, 425, 429) after a call that was retried in vain,
      or that must not be retried to spare its server, is marked ``x-should-retry: false``, unless
      it has that header already. forbear and some SDKs obey that.

    A header that cannot be parsed counts as absent. What the request says ends when the last byte
    of its response is sent, for a websocket when it is accepted, so background tasks, and tasks
    that outlive the request, are bound by neither.

    Args:
        app: The ASGI application.
        deadline: Seconds for all calls made for one request together, from its first line, as in
            ``forbear.deadline``. A block of that around the ``yield`` of a dependency, or in a
            middleware, also holds for background tasks, and in a dependency that is no coroutine
            for nothing at all; this holds on every thread of the request, and ends with its
            response. None: no deadline but its sender's.
        margin: Seconds taken off the incoming deadline for the way back; never more than half of
            it.
        announce_deadline: Send ``x-envoy-expected-rq-timeout-ms``, the time that is left, with each
            attempt made for a request that has a deadline (its own, or one of
            ``forbear.deadline``), unless the caller has written it.
        stop_outer_retries: Mark failed responses.
        clock: Where time comes from; a test passes forbear.testing.FakeClock(), as to its
            transports.

    Raises:
        TypeError: An option is of the wrong type.
        ValueError: ``deadline`` or ``margin`` is negative or not finite.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, as ASGI specifies."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        incoming = self.incoming(list(scope.get("headers", ())))

        async def mark_and_send(message: Message) -> None:
            kind = message["type"]
            if kind in STARTS:
                lines, mark = list(message.get("headers", ())), (STOP.encode(), b"false")
                lines = self.marked(incoming, message["status"], lines, *mark)
                message = {**message, "headers": lines}
            await send(message)
            if kind == "websocket.accept":
                incoming.end()  # only the handshake is what was retried
            elif kind in BODIES and not message.get("more_body", False):
                incoming.end()

        try:
            with Answering(incoming):
                await self.app(scope, receive, mark_and_send)
        finally:
            incoming.end()


STARTS = ("http.response.start", "websocket.http.response.start")
BODIES = ("http.response.body", "websocket.http.response.body")
