"""forbear for httpx2: ``RetryTransport``, ``AsyncRetryTransport``, ``wrap``. Floor: acts.

Everything is shared with the other library of the family (_httpx_family/) but the classes: none of
httpx2's own is an instance or a subclass of the other's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

try:
    import httpx2
except ImportError:
    raise ImportError("forbear.httpx2 needs httpx2: pip install 'forbear[httpx2]'") from None

from . import errors
from .adapters import httpx_transport as transports

if TYPE_CHECKING:
    from typing import Unpack

    from ._retrying import FamilyOptions
    from .core.outcome import Failure
    from .core.policy import RetryPolicy
    from .core.verdict import Reason

__all__ = [
    "AsyncRetryTransport",
    "CircuitOpenError",
    "DeadlineExceeded",
    "RetryTransport",
    "classify",
    "unwrap",
    "wrap",
]

AnyClient = TypeVar("AnyClient", httpx2.Client, httpx2.AsyncClient)


class CircuitOpenError(errors.CircuitOpenError, httpx2.TransportError):
    """Nothing was sent: a strategy refuses this origin now. Also an ``httpx2.TransportError``."""

    def __init__(self, message: str, *, reason: Reason, retry_after: float | None = None) -> None:
        httpx2.TransportError.__init__(self, message)
        self.reason = reason
        self.retry_after = retry_after


class DeadlineExceeded(errors.DeadlineExceeded, httpx2.TimeoutException):
    """The deadline of the call is over. Also an ``httpx2.TimeoutException``."""

    def __init__(self, message: str, *, reason: Reason, retry_after: float | None = None) -> None:
        httpx2.TimeoutException.__init__(self, message)
        self.reason = reason
        self.retry_after = retry_after


LIBRARY = transports.Library(
    httpx2, circuit_open_error=CircuitOpenError, deadline_exceeded=DeadlineExceeded
)


class RetryTransport(transports.SyncRetrying, httpx2.BaseTransport):
    """A transport that sends again what may be sent again. Thread-safe.

    ``httpx2.Client(transport=RetryTransport())``. A transport given to a client makes httpx2 ignore
    ``proxy=``, ``verify=``, ``limits=`` and HTTP_PROXY: give them to ``inner``, or use ``wrap``.

    Args:
        inner: What sends; None: a new ``httpx2.HTTPTransport()``. Its own connect retries are set
            to 0 with a warning.
        policy: When and how often; per request ``extensions={"forbear": …}`` changes it (a
            RetryPolicy, a mapping of its fields, False for off), per context ``forbear.override``.
        budget: Allowance that keeps retries a small share of traffic; one of its own if not given,
            a RetryBudget to share one, a RedisBudget for a fleet, None for no limit.
        breaker: CircuitBreaker that refuses calls to an origin that keeps failing, by the library's
            CircuitOpenError; one object may serve several clients. None: none.
        cooldown: Leave an origin alone for as long as it asked one call to (Retry-After of a 503;
            of a 429 for calls with the same Authorization or x-api-key). "retries": retries wait;
            "all": first attempts too, or are refused at once if they would wait longer than
            ``policy.max_retry_after`` or their deadline; "off".
        origins: Origins: servers that can stand in for each other, to which retries go in turn.
        strategy: A RetryStrategy in place of schedule, budget, breaker, cooldown and origins; the
            policy still gives statuses, methods, hints and time limits.
        idempotency: IdempotencyKeys: generate keys for POST and PATCH, recognise further key
            headers.
        retry_if: Called with each response (status, headers, request); True makes it a failure like
            503. It may only widen.
        before_attempt: Called with (request, attempt) before each re-send, on a copy: sign again,
            refresh a token.
        on_event: Callables that are told what happens, see forbear.core.events.
        body_buffer: Keep up to so many bytes of a one-shot body, so that it can be sent again.
        prefetch: Read a body of known length up to so many bytes before handing over the response,
            so that a truncated one is a failure like any other; for 0.25 s at most, then what came
            is handed over with the live stream behind it. Never an event stream. 0: never.
        resume: Go on with the body of a GET when it breaks: ask for the rest with Range and
            If-Range, and check that it is the rest of the very same bytes; else the error that
            broke it stands. Needs an answer with a strong ETag, or a Last-Modified that counts as
            one. False: never.
        contact: E-mail address for the ``From`` header (RFC 9110 section 10.1.2).
        announce_attempts: Send ``Retry-Attempt: 2`` with the first retry and so on, unless the
            request has that header.
        stop_outer_retries: Mark a response that was given up on with ``x-should-retry: false`` and
            ``stripe-should-retry: false``, so that the loop of an SDK above ends too.
        name: Name of this client in events and logs.
        clock: Where time comes from; a test passes forbear.testing.FakeClock().
        random: Like random.random.

    Raises:
        TypeError: An option is of the wrong type, or ``inner`` belongs to another library.
        ValueError: A value is out of its range, or ``strategy`` is given together with ``budget``,
            ``breaker``, ``cooldown`` or ``origins``.
    """

    _library = LIBRARY


class AsyncRetryTransport(transports.AsyncRetrying, httpx2.AsyncBaseTransport):
    """The same for ``httpx2.AsyncClient``, on asyncio and trio; options as of RetryTransport.

    ``before_attempt`` may be a coroutine function.
    """

    _library = LIBRARY


def wrap(
    client: AnyClient, policy: RetryPolicy | None = None, **options: Unpack[FamilyOptions]
) -> AnyClient:
    """Make a built client retry, keeping its proxies, mounts, TLS settings and limits; return it.

    All its transports share one budget and breaker. Options as of RetryTransport.

    Raises:
        ValueError: It is wrapped already.
        TypeError: It is not a client of httpx2; for an SDK object the message says what to pass.
    """
    from .adapters.httpx_wrap import wrap_client

    wrap_client(LIBRARY, client, policy, options, (RetryTransport, AsyncRetryTransport))
    return client


def unwrap(client: AnyClient) -> AnyClient:
    """Undo ``wrap``; return the client.

    Raises:
        ValueError: It is not wrapped.
        TypeError: It is not a client of httpx2.
    """
    from .adapters.httpx_wrap import unwrap_client

    unwrap_client(LIBRARY, client)
    return client


def classify(error: BaseException) -> Failure:
    """Say what an exception means: its kind, and how far the request got. Never raises."""
    return LIBRARY.classify(error)
