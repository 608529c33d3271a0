"""Transports of the httpx family: their options, and the fast path of each flavour.

``SyncRetrying`` and ``AsyncRetrying`` are the bodies of ``RetryTransport`` and
``AsyncRetryTransport``. A first attempt that succeeds leaves no trace; everything else becomes a
``Call`` and goes through the loop. A change in one flavour belongs in the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ...core.call import SETTING
from ...engine.calls import call_of
from ...engine.current import CURRENT
from ...engine.first import go_on, let_go
from ...engine.loop import drive, drive_call, run
from ...engine.settings import DEFAULT_POLICY, PREFETCH, Settings
from .port import HttpxPort, Library

if TYPE_CHECKING:
    from typing import Self, Unpack

    from ...addons.options import FamilyOptions
    from ...core.policy import RetryPolicy
    from ...engine.calls import Held
    from .tasks import AsyncHttpxPort

current = CURRENT.get
Inner = TypeVar("Inner")
Predicate = TypeVar("Predicate")


class Retrying(Generic[Inner, Predicate]):
    """The part that the transports of both flavours share."""

    _prefix = _method = ""  # of the library's names; of transports

    if not TYPE_CHECKING:  # a type checker has to keep finding misspelt names

        def __getattr__(self, name):
            from .messages import missing_attribute

            raise missing_attribute(self, self._library.name, self._method, name)

    def __repr__(self) -> str:
        name = f"{type(self).__module__}.{type(self).__name__}"
        return f"<{name} {self.limits!r} over {type(self.inner).__name__}>"

    def __init__(
        self,
        inner: Inner | None = None,
        *,
        policy: RetryPolicy = DEFAULT_POLICY,
        **options: Unpack[FamilyOptions[Predicate]],
    ) -> None:
        self._library: Library  # here, since help() lists the annotations of a class
        library, wrapper, is_async = self._library, type(self).__name__, bool(self._prefix)
        is_default = inner is None
        if is_default:
            from .messages import warn_of_lost_proxy

            warn_of_lost_proxy(library.name)
            inner = getattr(library.module, f"{self._prefix}HTTPTransport")()
        roots = {cls.__module__.partition(".")[0] for cls in type(inner).__mro__}
        is_of_other = library.name not in roots and not roots.isdisjoint(("httpx", "httpx2"))
        is_class = isinstance(inner, type)
        if is_of_other or is_class or not callable(getattr(inner, self._method, None)):
            from .messages import wrong_inner

            base = "" if is_of_other else f"{self._prefix}BaseTransport"
            raise TypeError(wrong_inner(inner, library.name, base, wrapper))
        settings = Settings(
            wrapper, policy, options, awaits=is_async, layered=is_async, prefetch=PREFETCH
        )
        self.inner: Any = inner
        pool: Any = getattr(inner, "_pool", None)
        self.inner_retries = getattr(pool, "_retries", 0)
        if type(self.inner_retries) is int and self.inner_retries:  # two loops would multiply
            from .messages import warn_of_retries

            warn_of_retries(inner, self.inner_retries, wrapper)
            pool._retries = 0
        self.policy, self.limits = settings.policy, settings.limits
        made = HttpxPort
        if is_async:
            from .tasks import AsyncHttpxPort  # of no use to the other flavour

            made = AsyncHttpxPort
        self.port: Any = made(settings, library, inner)
        self.port.inner_is_default = is_default


class SyncRetrying:
    """The part of ``RetryTransport`` that sends."""

    _prefix, _method = "", "handle_request"

    if TYPE_CHECKING:
        inner: Any
        port: HttpxPort

    def handle_request(self, request: Any) -> Any:
        """Send a request; retry it where that is allowed and useful."""
        port = self.port
        started_at = port.clock.monotonic()
        context = current()
        outgoing = None
        if (
            port.special
            or (context is not None and not context.asks_nothing)
            or SETTING in request.extensions
            or type(request.stream) is not port.byte_stream
        ):
            outgoing = port.prepare(request, started_at, context)
        if not port.shared.quiet:
            return drive_call(call_of(port, request, outgoing, started_at, context), port)
        held: Held = [None]
        try:
            try:
                held[0] = response = self.inner.handle_request(
                    request if outgoing is None else outgoing.request
                )
                if (
                    response.status_code < 300
                    and ((not port.prefetches and outgoing is None) or port.has_arrived(response))
                    and port.is_plain
                    and port.shared.quiet
                ):
                    return response  # no read is left that a deadline could bound
            except Exception as error:
                held[0] = error
            response = None  # it would keep a failed one alive for as long as the call waits
            return drive(go_on(port, held, request, outgoing, started_at, context))
        except BaseException:
            drive(let_go(port, held, request, outgoing, started_at, context))
            raise

    def close(self) -> None:
        """Close the inner transport and wake waiting calls; they end with their last outcome."""
        self.port.settings.sleeper.close()
        self.inner.close()

    def __enter__(self) -> Self:
        self.inner.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self.port.settings.sleeper.close()
        self.inner.__exit__(*exception)


class AsyncRetrying:
    """The part of ``AsyncRetryTransport`` that sends."""

    _prefix, _method = "Async", "handle_async_request"

    if TYPE_CHECKING:
        inner: Any
        port: AsyncHttpxPort

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request; retry it where that is allowed and useful."""
        port = self.port
        started_at = port.clock.monotonic()
        context = current()
        outgoing = None
        if (
            port.special
            or (context is not None and not context.asks_nothing)
            or SETTING in request.extensions
            or type(request.stream) is not port.byte_stream
        ):
            outgoing = port.prepare(request, started_at, context)
        if not port.shared.quiet:
            return await run(call_of(port, request, outgoing, started_at, context), port)
        held: Held = [None]
        try:
            try:
                if outgoing is None:
                    held[0] = response = await self.inner.handle_async_request(request)
                else:
                    held[0] = response = await port.send_within(
                        outgoing.deadline_at - started_at, outgoing.request
                    )
                if (
                    response.status_code < 300
                    and ((not port.prefetches and outgoing is None) or port.has_arrived(response))
                    and port.is_plain
                    and port.shared.quiet
                ):
                    return response  # no read is left that a deadline could bound
            except Exception as error:
                held[0] = error
            response = None  # it would keep a failed one alive for as long as the call waits
            return await go_on(port, held, request, outgoing, started_at, context)
        except BaseException:
            await let_go(port, held, request, outgoing, started_at, context)
            raise

    async def aclose(self) -> None:
        """Close the inner transport and wake waiting calls; they end with their last outcome."""
        self.port.settings.sleeper.close()
        await self.inner.aclose()

    async def __aenter__(self) -> Self:
        await self.inner.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.port.settings.sleeper.close()
        await self.inner.__aexit__(*exception)
