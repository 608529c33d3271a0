"""Transports: the door. Floor: acts.

``SyncRetrying`` and ``AsyncRetrying`` are the bodies of ``RetryTransport`` and
``AsyncRetryTransport``. A first attempt that succeeds goes through the door at the top of
``handle_request`` and leaves no trace; everything else becomes an exchange.
"""

from __future__ import annotations

from .._retrying import DEFAULT_POLICY, OWN_BUDGET, Dialect, Retrying
from ..sending.context import CURRENT
from .httpx_prefetch import WHOLE, Places, aprefetch, prefetch, unread
from .httpx_resume import answer_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Literal

    from ..core.events import Event
    from ..core.key_options import IdempotencyKeys
    from ..core.outcome import Failure
    from ..core.policy import RetryPolicy
    from ..core.strategy import Budget, RetryStrategy, RetryToken
    from ..sending.clock import Clock
    from ..shared.breaker import CircuitBreaker
    from ..shared.origins import Origins

__all__ = ["AsyncRetrying", "Library", "SyncRetrying"]

current = CURRENT.get


class Library(Dialect):
    """One library of the family: its classes, which are not shared with the other."""

    def __init__(
        self, module: Any, *, circuit_open_error: type[Any], deadline_exceeded: type[Any]
    ) -> None:
        self.name = module.HTTPError.__module__.partition(".")[
            0
        ]  # sees through an alias of one for the other
        self.module = module
        self.roots = (self.name, self.name.replace("httpx", "httpcore"))
        self.byte_stream: type[Any] = module.ByteStream
        self.circuit_open_error = circuit_open_error
        self.deadline_exceeded = deadline_exceeded
        self.guard: Any = None

    def load(self) -> None:
        """Combine our streams with the library's own base classes, on which it insists.
        Idempotent.
        """
        if self.guard is None:
            from .httpx_bodies import AsyncBodyGuard, BodyGuard
            from .httpx_prefetch import AsyncPrefetched, Prefetched
            from .httpx_resume import AsyncResuming, Resuming
            from .httpx_timeouts import AsyncBounded, Bounded

            sync, asynchronous = self.module.SyncByteStream, self.module.AsyncByteStream
            self.async_guard: Any = type("AsyncGuardedBody", (AsyncBodyGuard, asynchronous), {})
            self.bounded: Any = type("BoundedStream", (Bounded, sync), {})
            self.async_bounded: Any = type("AsyncBoundedStream", (AsyncBounded, asynchronous), {})
            self.prefetched: Any = type("PrefetchedStream", (Prefetched, sync), {})
            self.async_prefetched: Any = type(
                "AsyncPrefetchedStream", (AsyncPrefetched, asynchronous), {}
            )
            self.resuming: Any = type("ResumingStream", (Resuming, sync), {})
            self.async_resuming: Any = type(
                "AsyncResumingStream", (AsyncResuming, asynchronous), {}
            )
            # Streams that are left as they are: read, or looked after by a forbear below.
            self.ready = frozenset(
                (
                    self.byte_stream,
                    self.prefetched,
                    self.async_prefetched,
                    self.resuming,
                    self.async_resuming,
                )
            )
            self.guard = type("GuardedBody", (BodyGuard, sync), {})

    def classify(self, error: BaseException) -> Failure:
        from .httpx_errors import classify

        return classify(error, self.roots)


class FamilyRetrying(Retrying):
    """What both colours of transport share."""

    _library: Library
    _base: str  # the library's class of transports of this colour
    _default: str  # and the one that is made if none is given
    _method: str

    def __init__(
        self,
        inner: Any = None,
        *,
        policy: RetryPolicy = DEFAULT_POLICY,
        budget: Budget | None = OWN_BUDGET,
        breaker: CircuitBreaker | None = None,
        cooldown: Literal["off", "retries", "all"] = "off",
        origins: Origins | None = None,
        strategy: RetryStrategy | None = None,
        idempotency: IdempotencyKeys | None = None,
        retry_if: Callable[[Any], bool | None] | None = None,
        before_attempt: Callable[[Any, int], Any] | None = None,
        on_event: Iterable[Callable[[Event], object]] = (),
        body_buffer: int = 0,
        prefetch: int = 65_536,
        resume: bool = True,
        contact: str | None = None,
        announce_attempts: bool = False,
        stop_outer_retries: bool = False,
        name: str = "default",
        clock: Clock | None = None,
        random: Callable[[], float] | None = None,
    ) -> None:
        from ..core.strategy import RetryToken
        from .httpx_exchange import AsyncExchange, SyncExchange, origin_of
        from .httpx_wrap import check_inner, take_over_retries, warn_of_lost_proxy

        library = self._library
        if inner is None:
            warn_of_lost_proxy(type(self).__name__, library.name)
            inner = getattr(library.module, self._default)()
        check_inner(inner, library, self._base, self._method, type(self).__name__)
        self._equip(
            policy,
            budget=budget,
            breaker=breaker,
            cooldown=cooldown,
            origins=origins,
            strategy=strategy,
            idempotency=idempotency,
            retry_if=retry_if,
            before_attempt=before_attempt,
            on_event=on_event,
            body_buffer=body_buffer,
            prefetch=prefetch,
            resume=resume,
            contact=contact,
            announce_attempts=announce_attempts,
            stop_outer_retries=stop_outer_retries,
            name=name,
            clock=clock,
            random=random,
        )
        library.load()
        self._inner = inner
        self._inner_retries = take_over_retries(inner, type(self).__name__)
        self._byte_stream = library.byte_stream
        self._ready = library.ready
        self._places = Places()
        self._exchange: Any = SyncExchange if self._method == "handle_request" else AsyncExchange
        self._origin_of = origin_of
        self._token_class = RetryToken

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} {self._strategy!r} over {type(self._inner).__name__}>"

    def _token(self, request: Any, now: float) -> RetryToken | None:
        """Begin a call that only the strategy concerns: some origin is unwell. None: it is for an
        exchange.
        """
        if (
            self._special
            or ((scope := current()) is not None and not scope.asks_nothing)
            or "forbear" in request.extensions
            or type(request.stream) is not self._byte_stream
        ):
            return None
        strategy = self._strategy
        try:
            # An exchange has the facts. Who watches attempts wants them, unless it says otherwise.
            if getattr(strategy, "needs_facts", getattr(strategy, "watches", False)):
                return None
            if getattr(strategy, "scope_of", None) is not None:
                return None
            token = strategy.acquire_initial_token(self._origin_of(request.url), now)
            if isinstance(token, self._token_class) and token.delay == 0:
                return token
            strategy.release(token, now)
        except Exception:  # whatever it is, the exchange meets it again and knows what to do
            return None
        return None

    def _passed(self, token: RetryToken, request: Any, status: int, started_at: float) -> None:
        """End a call that went through the door with a token, and well."""
        self._settle(token, self._strategy.record_success)
        if self._notices.hears_calls:
            self._notices.plain(
                request.method, self._origin_of(request.url), status, self._now() - started_at
            )

    def _dropped(self, token: RetryToken, request: Any, started_at: float) -> None:
        """End one that was cancelled in the door."""
        self._settle(token, self._strategy.release)
        if self._notices.hears_calls:
            self._notices.plain(
                request.method, self._origin_of(request.url), None, self._now() - started_at
            )

    def _settle(self, token: RetryToken, ask: Callable[[RetryToken, float], None]) -> None:
        """End a token; what a strategy raises here must not cost the response."""
        try:
            ask(token, self._now())
        except Exception as error:
            self._notices.hook_failed(f"strategy {type(self._strategy).__name__}", error)


class SyncRetrying(FamilyRetrying):
    """The body of ``RetryTransport``."""

    _base, _default, _method = "BaseTransport", "HTTPTransport", "handle_request"

    def handle_request(self, request: Any) -> Any:
        started_at = self._now()
        token = None
        scope = current()
        if not (
            self._signal.gauge.quiet
            and (scope is None or scope.asks_nothing)
            and "forbear" not in request.extensions
            and type(request.stream) is self._byte_stream
        ):
            token = self._token(request, started_at)
            if token is None:
                exchange = self._exchange(self, request, started_at)
                exchange.prepare()
                return exchange.run()
        try:
            response = self._inner.handle_request(request)
            broke = None
            if (
                self._looks_at_bodies
                and response.status_code < 300
                and type(response.stream) not in self._ready
            ):
                missing = unread(self, request, response) if self._prefetch else -1
                if missing != 0:
                    broke = self._receive(
                        request, response, missing, (self, request, scope, started_at)
                    )
        except Exception as error:
            exchange = self._exchange(self, request, started_at)
            exchange.first_error = error
        except BaseException:
            if token is not None:
                self._dropped(token, request, started_at)
            raise
        else:
            if response.status_code < 300 and broke is None:
                if token is not None:
                    self._passed(token, request, response.status_code, started_at)
                return response
            exchange = self._exchange(self, request, started_at)
            exchange.first_response = response
            if broke is not None:
                exchange.note_ahead(broke)
                del broke
            del response  # the drive lets go of it before it waits
        exchange.call.sent(token)
        return exchange.run()

    def _receive(self, request: Any, response: Any, missing: int, call: Any) -> Exception | None:
        """Wait for the rest of a small body, let any other resume; return what broke it
        meanwhile.
        """
        if missing > 0:
            outcome = prefetch(self, request, response, missing)
            if outcome is WHOLE:
                return None
            if isinstance(outcome, Exception):
                return outcome
        if self._resume and request.method == "GET" and response.status_code in (200, 206):
            response.stream = self._library.resuming(response.stream, answer_of(response), call)
        return None

    def close(self) -> None:
        """Close the inner transport and wake calls that wait; they end with what they have."""
        self._sleeper.close()
        self._inner.close()

    def __enter__(self) -> Any:
        self._inner.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._sleeper.close()
        self._inner.__exit__(*exception)


class AsyncRetrying(FamilyRetrying):
    """The body of ``AsyncRetryTransport``."""

    _base, _default, _method = "AsyncBaseTransport", "AsyncHTTPTransport", "handle_async_request"

    async def handle_async_request(self, request: Any) -> Any:
        started_at = self._now()
        token = None
        scope = current()
        if not (
            self._signal.gauge.quiet
            and (scope is None or scope.asks_nothing)
            and "forbear" not in request.extensions
            and type(request.stream) is self._byte_stream
        ):
            token = self._token(request, started_at)
            if token is None:
                exchange = self._exchange(self, request, started_at)
                exchange.prepare()
                return await exchange.run()
        try:
            response = await self._inner.handle_async_request(request)
            broke = None
            if (
                self._looks_at_bodies
                and response.status_code < 300
                and type(response.stream) not in self._ready
            ):
                missing = unread(self, request, response) if self._prefetch else -1
                if missing != 0:
                    broke = await self._receive(
                        request, response, missing, (self, request, scope, started_at)
                    )
        except Exception as error:
            exchange = self._exchange(self, request, started_at)
            exchange.first_error = error
        except BaseException:
            if token is not None:
                self._dropped(token, request, started_at)
            raise
        else:
            if response.status_code < 300 and broke is None:
                if token is not None:
                    self._passed(token, request, response.status_code, started_at)
                return response
            exchange = self._exchange(self, request, started_at)
            exchange.first_response = response
            if broke is not None:
                exchange.note_ahead(broke)
                del broke
            del response  # the drive lets go of it before it waits
        exchange.call.sent(token)
        return await exchange.run()

    async def _receive(
        self, request: Any, response: Any, missing: int, call: Any
    ) -> Exception | None:
        """Wait for the rest of a small body, let any other resume; return what broke it
        meanwhile.
        """
        if missing > 0:
            outcome = await aprefetch(self, request, response, missing)
            if outcome is WHOLE:
                return None
            if isinstance(outcome, Exception):
                return outcome
        if self._resume and request.method == "GET" and response.status_code in (200, 206):
            response.stream = self._library.async_resuming(
                response.stream, answer_of(response), call
            )
        return None

    async def aclose(self) -> None:
        """Close the inner transport and wake calls that wait; they end with what they have."""
        self._sleeper.close()
        await self._inner.aclose()

    async def __aenter__(self) -> Any:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._sleeper.close()
        await self._inner.__aexit__(*exception)
