"""Options: of every transport and adapter, explained for editors, type checkers and ``help()``.

Loaded where they are named; the engine has the defaults (settings.py) and the checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Literal

    from ..core.call import Limit
    from ..engine.clock import Clock
    from ..events import Event
    from ..idempotency import IdempotencyKeys
    from ..limits.gate import RetryGate
    from .breaker import CircuitBreaker
    from .budget import Budget
    from .concurrency import ConcurrencyLimit
    from .event_streams import EventStreams
    from .hedge import Hedge
    from .origins import Origins
    from .pacing import Pacing
    from .strategy import RetryStrategy

Predicate = TypeVar("Predicate")  # the type of ``retry_if``: of the library's own response


class Options(TypedDict, Generic[Predicate], total=False):
    """Options of every transport, adapter and manager, and of ``wrap`` and ``mount``.

    Objects given as options may serve several clients and threads. Durations are seconds, sizes
    are bytes. The page "All options" of the documentation has the defaults.

    Examples:
        >>> options: forbear.Options = {"name": "orders", "breaker": CircuitBreaker()}
        >>> client = forbear.httpx.wrap(httpx.Client(), **options)

    Attributes:
        gate: A RetryGate. It lets retries go while their server is healthy, and holds failed calls
            while the server is unhealthy. Left out: one for this client. None: no call is held.
        budget: A RetryBudget, or a RedisBudget for a fleet: a hard bound over all retries in
            addition to the gate. None: no bound.
        breaker: A CircuitBreaker. It refuses calls to an origin that keeps failing, by the
            library's CircuitOpenError. None: no call is refused.
        cooldown: Which calls wait after an origin sent one call a Retry-After (with a 503, or with
            a 429 for calls with the same Authorization or x-api-key). "retries": retries.
            "all": first attempts too; one that would wait longer than ``policy.max_retry_after``
            or its deadline is refused at once. "off": only the call that received it.
        origins: Origins: servers that can replace each other. Retries go to them in turn.
        strategy: A RetryStrategy in place of schedule, gate, budget, breaker, cooldown and origins.
            The policy still gives statuses, methods, hints and time limits.
        concurrency: A ConcurrencyLimit. It bounds how many attempts are in flight, by what the
            server accepts or by a number; others wait for their turn. None: no bound.
        pacing: A Pacing. It spreads calls over what is left of a quota that the server's responses
            show. None: no call is paced.
        addons: Limits of your own, objects of classes of forbear.addons.Limit. They are asked about
            every attempt, and may delay it or refuse it.
        idempotency: IdempotencyKeys: which key POST and PATCH get, and which key headers count.
        retry_if: A function of each response; it is not called for exceptions. True: a failure like
            a 503 (a request that is not safe to retry is still sent once). False: final, whatever
            the status. None: the policy decides. It may read a body of up to 64 KiB, and the caller
            still gets all of it. It may be a coroutine function on asynchronous transports only.
        before_attempt: A function of (request, attempt), called before each retry with a copy of
            the request: to sign it again, or to refresh a token. It may be a coroutine function on
            asynchronous transports only. An exception in it ends the call, and nothing is sent.
        on_event: Listeners: functions of one event, see forbear.events. They are not awaited.
        body_buffer: Up to so many bytes of a one-shot request body are buffered for a replay.
        prefetch: A response body of known length up to so many bytes is read before the hand-over,
            so that a broken one is a failure like any other. Event streams are never prefetched. 0:
            no body is. Only httpx, httpx2 and aiohttp take this option.
        hedge: A Hedge. It sends a hedged request after a first attempt that takes long, where that
            is safe, and the first good response wins. None: no call is hedged. Only
            ``AsyncRetryTransport`` takes this option.
        resume: Whether a GET whose response body breaks requests the rest, by Range and If-Range.
            That needs a strong ETag, or a Last-Modified that counts as one. Otherwise the error
            that broke the body is raised.
        event_streams: EventStreams: a stream of events is handed over with its first event, and an
            error event, a break or silence before it is a failure; see its arguments. None: a
            stream that breaks or ends before its first byte is requested again, where a repetition
            is safe, when the caller reads it.
        contact: E-mail address for the ``From`` header (RFC 9110 section 10.1.2).
        announce_attempts: Whether the first retry carries ``Retry-Attempt: 2``, and so on. A header
            of that name in the request is left alone.
        stop_outer_retries: Whether a response that forbear gave up on is marked with
            ``x-should-retry: false`` and ``stripe-should-retry: false``, which stop an outer SDK.
        name: Name of this client in events, logs and metrics.
        clock: Where time comes from. A test passes forbear.testing.FakeClock().
        random: A function like random.random.
    """

    gate: RetryGate | None
    budget: Budget | None
    breaker: CircuitBreaker | None
    cooldown: Literal["off", "retries", "all"]
    origins: Origins | None
    strategy: RetryStrategy | None
    concurrency: ConcurrencyLimit | None
    pacing: Pacing | None
    addons: Iterable[Limit]
    idempotency: IdempotencyKeys | None
    retry_if: Predicate | None
    before_attempt: Callable[[Any, int], object] | None
    on_event: Iterable[Callable[[Event], object]]
    body_buffer: int
    resume: bool
    event_streams: EventStreams | None
    contact: str | None
    announce_attempts: bool
    stop_outer_retries: bool
    name: str
    clock: Clock | None
    random: Callable[[], float] | None


class FamilyOptions(Options[Predicate], Generic[Predicate], total=False):
    """``Options``, and those that only transports of the httpx family take."""

    prefetch: int
    hedge: Hedge | None
