"""Transports: the options, and the door. Floor: acts.

``SyncRetrying`` and ``AsyncRetrying`` are the bodies of ``RetryTransport`` and ``AsyncRetryTransport``. A
first attempt that succeeds goes through the door at the top of ``handle_request`` and leaves no trace;
everything else becomes an exchange.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from ..clock import SYSTEM_CLOCK, Clock, Sleeper
from ..context import CURRENT, Scope
from ..core._checks import shown
from ..core.outcome import Failure
from ..core.policy import RetryPolicy
from ..drive import adrive, drive
from ..shared.budget import RetryBudget
from ..shared.standard import StandardStrategy
from ..telemetry.notices import Notices
from .added import checked_contact
from .bodies import AsyncBodyGuard, BodyGuard
from .errors import classify
from .exchange import OFF, AsyncExchange, SyncExchange
from .timeouts import AsyncBounded, Bounded
from .wrapping import check_inner, take_over_retries, warn_of_lost_proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..core.events import Event
    from ..core.keys import IdempotencyKeys
    from ..core.strategy import RetryStrategy

__all__ = ["AsyncRetrying", "Library", "Options", "Retrying", "SyncRetrying"]

OWN_BUDGET = RetryBudget()  # stands for "one of its own" in signatures; never spent from
DEFAULT_POLICY = RetryPolicy()
current = CURRENT.get


def check_has(option: str, value: object, *methods: str) -> None:
    missing = [method for method in methods if not callable(getattr(value, method, None))]
    if missing:
        raise TypeError(f"{option} has no method {' and no '.join(missing)}, got {shown(value)}")


class NeverQuiet:
    """The gauge of a transport whose every call is special."""

    __slots__ = ()
    quiet = False


NEVER_QUIET = NeverQuiet()


class Library:
    """One library of the family: its classes, which are not shared with the other."""

    def __init__(self, module: Any, *, circuit_open_error: type[Any], deadline_exceeded: type[Any]) -> None:
        self.name: str = module.HTTPError.__module__.partition(".")[0]  # sees through an alias of one for the other
        self.module = module
        self.roots = (self.name, self.name.replace("httpx", "httpcore"))
        self.byte_stream: type[Any] = module.ByteStream
        self.circuit_open_error = circuit_open_error
        self.deadline_exceeded = deadline_exceeded
        # The library insists on its own base classes for what it streams.
        sync, asynchronous = module.SyncByteStream, module.AsyncByteStream
        self.guard: type[Any] = type("GuardedBody", (BodyGuard, sync), {})
        self.async_guard: type[Any] = type("AsyncGuardedBody", (AsyncBodyGuard, asynchronous), {})
        self.bounded: type[Any] = type("BoundedStream", (Bounded, sync), {})
        self.async_bounded: type[Any] = type("AsyncBoundedStream", (AsyncBounded, asynchronous), {})

    def classify(self, error: BaseException) -> Failure:
        return classify(error, self.roots)


class Options(TypedDict, total=False):
    """The options that every transport takes; described at ``RetryTransport``."""

    budget: RetryBudget | None
    strategy: RetryStrategy | None
    idempotency: IdempotencyKeys | None
    retry_if: Callable[[Any], bool | None] | None
    before_attempt: Callable[[Any, int], Any] | None
    on_event: Iterable[Callable[[Event], object]]
    body_buffer: int
    contact: str | None
    name: str
    clock: Clock | None
    random: Callable[[], float] | None


class Retrying:
    """What both colours of transport share: options, and how a call begins."""

    _library: Library

    def __init__(
        self,
        inner: Any = None,
        *,
        policy: RetryPolicy = DEFAULT_POLICY,
        budget: RetryBudget | None = OWN_BUDGET,
        strategy: RetryStrategy | None = None,
        idempotency: IdempotencyKeys | None = None,
        retry_if: Callable[[Any], bool | None] | None = None,
        before_attempt: Callable[[Any, int], Any] | None = None,
        on_event: Iterable[Callable[[Event], object]] = (),
        body_buffer: int = 0,
        contact: str | None = None,
        name: str = "default",
        clock: Clock | None = None,
        random: Callable[[], float] | None = None,
    ) -> None:
        if inner is None:
            warn_of_lost_proxy(type(self).__name__, self._library.name)
            inner = self._default_inner()
        self._check_inner(inner)
        if not isinstance(policy, RetryPolicy):
            raise TypeError(f"policy must be a RetryPolicy, got {shown(policy)}")
        if strategy is not None and budget is not OWN_BUDGET:
            raise ValueError("give strategy= or budget=, not both: a strategy brings its own budget")
        if budget is OWN_BUDGET:
            budget = RetryBudget()
        elif budget is not None and not isinstance(budget, RetryBudget):
            raise TypeError(f"budget must be a RetryBudget, or None for no limit, got {shown(budget)}")
        if strategy is not None:
            check_has("strategy", strategy, "acquire_initial_token", "refresh_token", "record_success", "release")
        if clock is not None:
            check_has("clock", clock, "monotonic", "time", "sleep", "asleep")
        if idempotency is not None:
            check_has("idempotency", idempotency, "covers")
        for option, hook in (("retry_if", retry_if), ("before_attempt", before_attempt)):
            if hook is not None and not callable(hook):
                raise TypeError(f"{option} must be a function, got {shown(hook)}")
        if callable(on_event):
            raise TypeError(f"on_event must be a list of functions, got one: write on_event=[{shown(on_event)}]")
        if isinstance(body_buffer, bool) or not isinstance(body_buffer, int) or body_buffer < 0:
            raise ValueError(f"body_buffer must be a number of bytes, 0 for none, got {shown(body_buffer)}")
        self._inner = inner
        self._policy = policy
        self._clock: Clock = SYSTEM_CLOCK if clock is None else clock
        self._now = self._clock.monotonic
        self._sleeper = Sleeper(self._clock)
        self._strategy: RetryStrategy = (
            StandardStrategy(policy, budget=budget, random=random) if strategy is None else strategy
        )
        self._idempotency = idempotency
        self._key_names = frozenset() if idempotency is None else idempotency.recognised
        self._retry_if = retry_if
        self._before_attempt = before_attempt
        self._notices = Notices(name, on_event)
        self._body_buffer = body_buffer
        self._contact = None if contact is None else checked_contact(contact)
        self._inner_retries = take_over_retries(inner, type(self).__name__)
        # One look instead of many. Special: something of this transport concerns every first attempt.
        special = (
            policy.total_timeout is not None
            or policy.attempt_timeout is not None
            or retry_if is not None
            or contact is not None
            or (idempotency is not None and idempotency.generate)
        )
        self._gauge: Any = NEVER_QUIET if special else getattr(self._strategy, "gauge", self._strategy)
        self._byte_stream = self._library.byte_stream

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} {self._strategy!r} over {type(self._inner).__name__}>"

    def _default_inner(self) -> Any:
        raise AssertionError("each colour has its own")

    def _check_inner(self, inner: Any) -> None:
        raise AssertionError("each colour has its own")

    def _resolve(self, scope: Scope | None, setting: Any) -> RetryPolicy:
        """The policy of one call: the transport's < ``override`` < the request's."""
        if setting is False:
            return OFF
        if isinstance(setting, RetryPolicy):
            return setting
        policy = self._policy if scope is None else scope.merged(self._policy)
        if setting is None:
            return policy
        if hasattr(setting, "keys"):
            return policy.replace(**setting)
        raise TypeError(
            'extensions["forbear"] must be a RetryPolicy, a mapping of its fields, False for off or None,'
            f" got {shown(setting)}"
        )

    def _wake(self) -> None:
        self._sleeper.close()


class SyncRetrying(Retrying):
    """The body of ``RetryTransport``."""

    def handle_request(self, request: Any) -> Any:
        if (
            self._gauge.quiet
            and current() is None
            and "forbear" not in request.extensions
            and type(request.stream) is self._byte_stream
        ):
            started_at = self._now()
            try:
                response = self._inner.handle_request(request)
            except Exception as error:
                exchange = SyncExchange(self, request, started_at)
                exchange.first_error = error
            else:
                if response.status_code < 300:
                    return response
                exchange = SyncExchange(self, request, started_at)
                exchange.first_response = response
                del response  # drive() lets go of it before it waits
        else:
            exchange = SyncExchange(self, request, self._now())
            exchange.prepare()
        return drive(exchange)

    def close(self) -> None:
        """Close the inner transport and wake calls that wait; they end with what they have."""
        self._wake()
        self._inner.close()

    def __enter__(self) -> Any:
        self._inner.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._wake()
        self._inner.__exit__(*exception)

    def _default_inner(self) -> Any:
        return self._library.module.HTTPTransport()

    def _check_inner(self, inner: Any) -> None:
        check_inner(inner, self._library, "BaseTransport", "handle_request", type(self).__name__)


class AsyncRetrying(Retrying):
    """The body of ``AsyncRetryTransport``."""

    async def handle_async_request(self, request: Any) -> Any:
        if (
            self._gauge.quiet
            and current() is None
            and "forbear" not in request.extensions
            and type(request.stream) is self._byte_stream
        ):
            started_at = self._now()
            try:
                response = await self._inner.handle_async_request(request)
            except Exception as error:
                exchange = AsyncExchange(self, request, started_at)
                exchange.first_error = error
            else:
                if response.status_code < 300:
                    return response
                exchange = AsyncExchange(self, request, started_at)
                exchange.first_response = response
                del response  # adrive() lets go of it before it waits
        else:
            exchange = AsyncExchange(self, request, self._now())
            exchange.prepare()
        return await adrive(exchange)

    async def aclose(self) -> None:
        """Close the inner transport and wake calls that wait; they end with what they have."""
        self._wake()
        await self._inner.aclose()

    async def __aenter__(self) -> Any:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._wake()
        await self._inner.__aexit__(*exception)

    def _default_inner(self) -> Any:
        return self._library.module.AsyncHTTPTransport()

    def _check_inner(self, inner: Any) -> None:
        check_inner(inner, self._library, "AsyncBaseTransport", "handle_async_request", type(self).__name__)
