"""forbear for httpx: ``RetryTransport``, ``AsyncRetryTransport``, ``wrap``. Floor: acts.

Everything is shared with the other library of the family (adapters/httpx_*.py) but the classes:
none of httpx's own is an instance or a subclass of the other's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

try:
    import httpx
except ImportError:
    raise ImportError("forbear.httpx needs httpx: pip install 'forbear[httpx]'") from None

from . import errors
from .adapters import httpx_errors
from .adapters import httpx_transport as transports
from .adapters.httpx_library import Library
from .adapters.httpx_wrap import unwrap_client, wrap_client
from .sending.settings import documented

if TYPE_CHECKING:
    from typing import Unpack

    from .core.outcome import Failure
    from .core.policy import RetryPolicy
    from .sending.settings import FamilyOptions

__all__ = [
    "AsyncRetryTransport",
    "CircuitOpenError",
    "DeadlineExceeded",
    "RetryTransport",
    "classify",
    "unwrap",
    "wrap",
]

AnyClient = TypeVar("AnyClient", httpx.Client, httpx.AsyncClient)
Predicate = Callable[[httpx.Response], bool | None]
AsyncPredicate = Callable[[httpx.Response], bool | Awaitable[bool | None] | None]


class CircuitOpenError(errors.CircuitOpenError, httpx.TransportError):
    """Nothing was sent: a strategy refuses this origin now. Also an ``httpx.TransportError``."""


class DeadlineExceeded(errors.DeadlineExceeded, httpx.TimeoutException):
    """The deadline of the call is over. Also an ``httpx.TimeoutException``."""


LIBRARY = Library(httpx, CircuitOpenError, DeadlineExceeded)


@documented(prefetch=True)
class RetryTransport(transports.SyncRetrying[Predicate], httpx.BaseTransport):
    """A transport that sends again what may be sent again. Thread-safe.

    ``httpx.Client(transport=RetryTransport())``. A transport given to a client makes httpx ignore
    ``proxy=``, ``verify=``, ``limits=`` and HTTP_PROXY: give them to ``inner``, or use ``wrap``.

    Args:
        inner: What sends; None: a new ``httpx.HTTPTransport()``. Its own connect retries are set to
            0 with a warning.
        policy: When and how often; per request ``extensions={"forbear": …}`` changes it (a
            RetryPolicy, a mapping of its fields, False for off), per context ``forbear.override``.
        **options: Below.

    Raises:
        TypeError: An option is of the wrong type, or ``inner`` belongs to another library.
        ValueError: A value is out of its range, or ``strategy`` is given together with ``budget``,
            ``breaker``, ``cooldown`` or ``origins``.
    """

    library = LIBRARY


@documented(prefetch=True)
class AsyncRetryTransport(transports.AsyncRetrying[AsyncPredicate], httpx.AsyncBaseTransport):
    """The same for ``httpx.AsyncClient``, on asyncio and trio; options as of RetryTransport.

    ``retry_if`` and ``before_attempt`` may be coroutine functions.
    """

    library = LIBRARY


def wrap(
    client: AnyClient,
    policy: RetryPolicy | None = None,
    **options: Unpack[FamilyOptions[AsyncPredicate]],
) -> AnyClient:
    """Make a built client retry, keeping its proxies, mounts, TLS settings and limits; return it.

    All its transports share one budget and breaker. Options as of RetryTransport.

    Raises:
        ValueError: It is wrapped already.
        TypeError: It is not a client of httpx; for an SDK object the message says what to pass.
    """
    wrap_client(LIBRARY, client, policy, options, (RetryTransport, AsyncRetryTransport))
    return client


def unwrap(client: AnyClient) -> AnyClient:
    """Undo ``wrap``; return the client.

    Raises:
        ValueError: It is not wrapped.
        TypeError: It is not a client of httpx.
    """
    unwrap_client(LIBRARY, client)
    return client


def classify(error: BaseException) -> Failure:
    """Say what an exception means: its kind, and how far the request got. Never raises."""
    return httpx_errors.classify(error, LIBRARY.roots)
