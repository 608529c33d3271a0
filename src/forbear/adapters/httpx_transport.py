"""Transports of the httpx family: the fast path. Floor: acts.

``SyncRetrying`` and ``AsyncRetrying`` are the bodies of ``RetryTransport`` and
``AsyncRetryTransport``. A first attempt that succeeds leaves no trace; everything else becomes a
``Call`` and goes through the loop.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from ..sending.bodies import ConsumedBody
from ..sending.context import CURRENT
from ..sending.errors import Raced
from ..sending.looking import WHOLE
from ..sending.loop import arun, run
from ..sending.settings import DEFAULT_POLICY, PREFETCH, Settings
from .httpx_io import AsyncHttpxPort, SyncHttpxPort
from .httpx_streams import aread_ahead, read_ahead
from .httpx_wrap import check_inner, of_other_colour, take_over_retries, warn_of_lost_proxy

if TYPE_CHECKING:
    from typing import Unpack

    from ..core.policy import RetryPolicy
    from ..sending.settings import FamilyOptions
    from .httpx_library import Library

__all__ = ["AsyncRetrying", "SyncRetrying"]

current = CURRENT.get
# A client asks its transport for these first: an asynchronous one a synchronous one in vain.
OF_CLIENTS = frozenset(
    ("handle_request", "handle_async_request", "__enter__", "__aenter__", "close", "aclose")
)


if TYPE_CHECKING:

    class Colour:
        _library: Library
        _port_class: type[SyncHttpxPort | AsyncHttpxPort]
        _base: str  # the library's class of transports of this colour
        _default: str  # and the one that is made if none is given
        _method: str
else:
    Colour = object  # annotations would be listed by help()


class Retrying(Colour):
    """The part that both colours of transport share."""

    def __init__(
        self,
        inner: Any = None,
        *,
        policy: RetryPolicy = DEFAULT_POLICY,
        **options: Unpack[FamilyOptions[Any]],
    ) -> None:
        library, who = self._library, type(self).__name__
        if inner is None:
            warn_of_lost_proxy(who, library.name)
            inner = getattr(library.module, self._default)()
        check_inner(inner, library.name, self._base, self._method, who)
        given: dict[str, Any] = {"prefetch": PREFETCH, **options}
        is_async = self._method == "handle_async_request"
        settings = Settings(who, policy, given, awaits=is_async, hedges=is_async)
        self.port: Any = self._port_class(settings, library, inner)
        self.inner = inner
        self.inner_retries = take_over_retries(inner, who)
        self.looks_at_bodies = self.port.looks_at_bodies
        self.special = settings.special
        self.shared: Any = settings.limits.shared
        self.is_plain = self.port.is_plain and settings.retry_if is None

    if not TYPE_CHECKING:  # a checker shall go on finding mistakes in names

        def __getattr__(self, name: str) -> Any:
            # An AttributeError: whoever asks which colour a transport has shall see one.
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in OF_CLIENTS:
                message += of_other_colour(self._library.name, self._method)
            raise AttributeError(message, name=name, obj=self)

    def __repr__(self) -> str:
        name = f"{type(self).__module__}.{type(self).__name__}"
        return f"<{name} {self.port.limits!r} over {type(self.inner).__name__}>"


class SyncRetrying(Retrying):
    """The body of ``RetryTransport``."""

    _base, _default, _method = "BaseTransport", "HTTPTransport", "handle_request"
    _port_class = SyncHttpxPort

    def handle_request(self, request: Any) -> Any:
        """Send a request, again where that is allowed and useful."""
        port = self.port
        started_at = port.clock.monotonic()
        scope = current()
        outgoing = None
        if (
            self.special
            or (scope is not None and not scope.asks_nothing)
            or "forbear" in request.extensions
            or type(request.stream) is not port.byte_stream
        ):
            outgoing = port.prepare(request, started_at, scope)
        if not self.shared.quiet and not port.begins(request.url, started_at):
            call = port.call_of(request, outgoing, started_at, scope)
            return run(call, port)
        outcome = trouble = None
        try:
            if outgoing is None:
                outcome = self.inner.handle_request(request)
            else:
                outcome = self.inner.handle_request(outgoing.request)
                port.bound_reads(outcome, outgoing)
            if outcome.status_code < 300:
                ahead = WHOLE
                if self.looks_at_bodies and type(outcome.stream) not in port.ready:
                    ahead = read_ahead(port, request, outcome, outgoing)
                if ahead is WHOLE and outgoing is None and self.is_plain and self.shared.quiet:
                    return outcome
                trouble = port.succeeded(request, outcome, outgoing, started_at, scope, ahead)
                if trouble is None:
                    return outcome
            elif port.reads_ahead(outcome, port.policy if outgoing is None else outgoing.policy):
                ahead = read_ahead(port, request, outcome, outgoing)
                trouble = ahead if isinstance(ahead, Exception) else None
        except ConsumedBody as error:
            outcome = port.consumed(outgoing, error, first=True)
        except Exception as error:
            outcome = error
        except BaseException:
            port.let_go(outcome)
            port.cancelled(port.call_of(request, outgoing, started_at, scope))
            raise
        try:
            begun = port.first_failed(port.call_of(request, outgoing, started_at, scope), trouble)
            begun.live, outcome = outcome, None  # nothing keeps it while the call waits
            return run(begun, port)
        except BaseException:
            port.let_go(begun.live if outcome is None else outcome)  # pyright: ignore
            raise

    def close(self) -> None:
        """Close the inner transport and wake calls that wait; they end with what they have."""
        self.port.sleeper.close()
        self.inner.close()

    def __enter__(self) -> Any:
        self.inner.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self.port.sleeper.close()
        self.inner.__exit__(*exception)


class AsyncRetrying(Retrying):
    """The body of ``AsyncRetryTransport``."""

    _base, _default, _method = "AsyncBaseTransport", "AsyncHTTPTransport", "handle_async_request"
    _port_class = AsyncHttpxPort

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request, again where that is allowed and useful."""
        port = self.port
        started_at = port.clock.monotonic()
        scope = current()
        outgoing = None
        if (
            self.special
            or (scope is not None and not scope.asks_nothing)
            or "forbear" in request.extensions
            or type(request.stream) is not port.byte_stream
        ):
            outgoing = port.prepare(request, started_at, scope)
        if not self.shared.quiet and not port.begins(request.url, started_at):
            call = port.call_of(request, outgoing, started_at, scope)
            return await arun(call, port)
        outcome = trouble = None
        try:
            if outgoing is not None and outgoing.deadline_at != inf:
                seconds, policy = outgoing.deadline_at - started_at, outgoing.policy
                outcome, ahead = await port.send_within(
                    seconds, outgoing.request, outgoing, policy, port.first
                )
            else:
                sent = request if outgoing is None else outgoing.request
                outcome = await port.first.handle_async_request(sent)
                ahead = WHOLE
                if outcome.status_code < 300:
                    if self.looks_at_bodies and type(outcome.stream) not in port.ready:
                        ahead = await aread_ahead(port, request, outcome, outgoing)
                elif port.reads_ahead(
                    outcome, port.policy if outgoing is None else outgoing.policy
                ):
                    ahead = await aread_ahead(port, request, outcome, outgoing)
            if outcome.status_code < 300:
                if ahead is WHOLE and outgoing is None and self.is_plain and self.shared.quiet:
                    return outcome
                trouble = port.succeeded(request, outcome, outgoing, started_at, scope, ahead)
                if trouble is None:
                    return outcome
            elif isinstance(ahead, Exception):
                trouble = ahead
        except ConsumedBody as error:
            outcome = port.consumed(outgoing, error, first=True)
        except Exception as error:
            outcome = error
        except BaseException:
            await port.let_go(outcome)
            port.cancelled(port.call_of(request, outgoing, started_at, scope))
            raise
        try:
            if type(outcome) is Raced:
                return await port.go_on(outcome, request, outgoing, started_at, scope)
            begun = port.first_failed(port.call_of(request, outgoing, started_at, scope), trouble)
            begun.live, outcome = outcome, None  # nothing keeps it while the call waits
            return await arun(begun, port)
        except BaseException:
            await port.let_go(begun.live if outcome is None else outcome)  # pyright: ignore
            raise

    async def aclose(self) -> None:
        """Close the inner transport and wake calls that wait; they end with what they have."""
        self.port.sleeper.close()
        await self.inner.aclose()

    async def __aenter__(self) -> Any:
        await self.inner.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.port.sleeper.close()
        await self.inner.__aexit__(*exception)
