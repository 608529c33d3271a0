"""forbear for httpx2: ``RetryTransport``, ``AsyncRetryTransport``, ``wrap``.

Everything is shared with the other library of the family (adapters/httpx/) but the classes:
none of httpx2's own is an instance or a subclass of the other's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

try:
    import httpx2
except ImportError:
    from .core.checks import to_install

    raise ImportError(f"forbear.httpx2 needs httpx2: {to_install('httpx2')}") from None

from .adapters.httpx import errors as httpx_errors
from .adapters.httpx.port import Library
from .adapters.httpx.transport import AsyncRetrying, Retrying, SyncRetrying
from .errors import CircuitOpenError as CircuitOpen
from .errors import DeadlineExceeded as Exceeded

if TYPE_CHECKING:
    from typing import Never, Unpack

    from .addons.options import FamilyOptions
    from .core.outcome import Failure
    from .core.policy import RetryPolicy

__all__ = [
    "AsyncRetryTransport",
    "CircuitOpenError",
    "DeadlineExceeded",
    "RetryTransport",
    "classify",
    "is_wrapped",
    "unwrap",
    "wrap",
]

Predicate = Callable[[httpx2.Response], bool | None]
AsyncPredicate = Callable[[httpx2.Response], bool | Awaitable[bool | None] | None]
AnyClient = TypeVar("AnyClient", bound=httpx2.Client | httpx2.AsyncClient)


class CircuitOpenError(CircuitOpen, httpx2.TransportError):
    """Nothing was sent: a strategy refuses this origin now. Also an ``httpx2.TransportError``."""


class DeadlineExceeded(Exceeded, httpx2.TimeoutException):
    """The deadline of the call is over. Also an ``httpx2.TimeoutException``."""


LIBRARY = Library(httpx2, CircuitOpenError, DeadlineExceeded)


class RetryTransport(SyncRetrying, Retrying[httpx2.BaseTransport, Predicate], httpx2.BaseTransport):
    """A transport that retries failed requests where a repetition is safe. Thread-safe.

    For example ``httpx2.Client(transport=RetryTransport())``. This client ignores ``verify=``,
    ``limits=`` and HTTP_PROXY, and with ``proxy=`` it retries nothing: use ``inner`` or ``wrap``.

    Args:
        inner: The transport that sends. None: a new ``httpx2.HTTPTransport()``. The retries of
            ``inner`` itself are switched off.
        policy: When and how often to retry. One request changes it by ``extensions={"forbear": …}``
            (a RetryPolicy, a mapping of its fields, or False), a block by ``forbear.override``.
        **options: gate, budget, breaker, cooldown, origins, strategy, concurrency, pacing,
            addons; retry_if, before_attempt, idempotency, body_buffer; prefetch, resume,
            event_streams; on_event, name, contact, announce_attempts, stop_outer_retries;
            clock, random. ``help(forbear.Options)`` explains each.

    Raises:
        TypeError, ValueError: An option is wrong; the message says what to write.
    """

    _library = LIBRARY


class AsyncRetryTransport(
    AsyncRetrying, Retrying[httpx2.AsyncBaseTransport, AsyncPredicate], httpx2.AsyncBaseTransport
):
    """RetryTransport for ``httpx2.AsyncClient``, on asyncio and trio, with the same options.

    And with ``hedge``. ``retry_if`` and ``before_attempt`` may be coroutine functions.
    """

    _library = LIBRARY


def wrap(
    client: AnyClient,
    policy: RetryPolicy | None = None,
    **options: Unpack[FamilyOptions[AsyncPredicate]],
) -> AnyClient:
    """Make a client that is already built retry, and return the same client.

    The client keeps its proxies, mounts, TLS settings and limits. All its transports share one
    gate, budget and breaker. Wrap a client before other threads use it. ``unwrap`` undoes this.

    Examples:
        >>> client = wrap(httpx2.Client(), RetryPolicy(max_attempts=3))

    Args:
        client: A ``httpx2.Client`` or ``httpx2.AsyncClient``.
        policy: When and how often to retry. None: ``RetryPolicy()``.
        **options: Those of RetryTransport; ``help(forbear.Options)`` explains each.

    Raises:
        ValueError: The client is wrapped already, or a value is out of its range.
        TypeError: This is not a client of httpx2, or an option is wrong. For an object of an SDK
            the message says what to pass.
    """
    from .adapters.httpx.wrap import wrap_client

    wrap_client(LIBRARY, client, policy, options, (RetryTransport, AsyncRetryTransport))
    return client


def unwrap(client: AnyClient) -> AnyClient:
    """Undo ``wrap``; return the client.

    Raises:
        ValueError: It is not wrapped.
        TypeError: It is not a client of httpx2.
    """
    from .adapters.httpx.wrap import unwrap_client

    unwrap_client(LIBRARY, client)
    return client


def is_wrapped(client: httpx2.Client | httpx2.AsyncClient) -> bool:
    """Say whether all requests of a client are retried: by ``wrap``, or by ``transport=``.

    False also if only some are. ``httpx2.Client(transport=RetryTransport(), proxy=…)`` is such a
    client: its proxy has a transport of its own, which does not retry. A RetryTransport inside
    another transport is not seen.

    Raises:
        TypeError: It is not a client of httpx2.
    """
    from .adapters.httpx.wrap import is_wrapped_client

    return is_wrapped_client(LIBRARY, client)


def classify(error: BaseException) -> Failure:
    """Say what an exception means: its kind, and how far the request got. Never raises."""
    return httpx_errors.classify(error, LIBRARY.roots)


if not TYPE_CHECKING:  # a type checker has to keep finding misspelt names

    def __getattr__(name: str) -> Never:
        from .adapters.names import wrong_name

        raise wrong_name(__name__, name)
