"""Options: of every transport and adapter, explained once and checked once.

``Options`` names and explains them for editors, type checkers and ``help()``. The checks follow:
each message says what was given, and the code to write instead. Loaded with the first transport
that is given an option; engine/settings.py has the defaults.
"""

from __future__ import annotations

from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar

from ..core.checks import check_bool, check_takes, shown, to_install, tool
from ..core.event_streams import EventStreams
from ..core.policy import RetryPolicy
from ..limits.gate import RetryGate
from ..limits.hedge import Hedge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Literal

    from ..core.events import Event
    from ..core.strategy import Budget, RetryStrategy
    from ..idempotency import IdempotencyKeys
    from ..limits.breaker import CircuitBreaker
    from ..limits.concurrency import ConcurrencyLimit
    from ..limits.origins import Origins
    from ..limits.pacing import Pacing
    from .clock import Clock

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
        idempotency: IdempotencyKeys: which key POST and PATCH get, and which key headers count.
        retry_if: A function of each response; it is not called for exceptions. True: a failure like
            a 503 (a request that is not safe to retry is still sent once). False: final, whatever
            the status. None: the policy decides. It may read a body of up to 64 KiB, and the caller
            still gets all of it. It may be a coroutine function on asynchronous transports only.
        before_attempt: A function of (request, attempt), called before each retry with a copy of
            the request: to sign it again, or to refresh a token. It may be a coroutine function on
            asynchronous transports only. An exception in it ends the call, and nothing is sent.
        on_event: Listeners: functions of one event, see forbear.core.events. They are not awaited.
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


# The code that a message suggests in place of True.
OBJECTS = {
    "gate": "RetryGate()",
    "budget": "RetryBudget()",
    "breaker": "CircuitBreaker()",
    "origins": 'Origins(["https://a", "https://b"])',
    "strategy": "AwsStandard()",
    "hedge": "Hedge()",
    "concurrency": "ConcurrencyLimit()",
    "pacing": "Pacing()",
    "event_streams": "EventStreams()",
    "idempotency": 'IdempotencyKeys(origins=["https://api.example.com"])',
}
# What an option must be, as a message says it: of this class, or with these attributes.
MUST_BE: dict[str, tuple[str, type | tuple[str, ...]]] = {
    "gate": ("a RetryGate, or None for none", RetryGate),
    "budget": (
        "a RetryBudget or a RedisBudget, or None for no limit",
        ("deposit", "spend", "refund", "hinted_cost"),
    ),
    "breaker": (
        "a CircuitBreaker, or None for none",
        ("admit", "record", "release", "refused_for"),
    ),
    "origins": ('Origins(["https://a", "https://b"]), or None', ("covers",)),
    "hedge": ("a Hedge, or None for none", Hedge),
    "concurrency": ("a ConcurrencyLimit, or None for none", ("enter",)),
    "pacing": ("a Pacing, or None for none", ("turn",)),
    "event_streams": ("EventStreams(), or None for the default", EventStreams),
    "idempotency": ("IdempotencyKeys(), or None", ("covers",)),
}
# The arguments of what users may write themselves.
FUNCTIONS: dict[str, tuple[str, ...]] = {
    "retry_if": ("response",),
    "before_attempt": ("request", "attempt"),
    "random": (),
}
METHODS: dict[str, dict[str, tuple[str, ...]]] = {
    "strategy": {
        "acquire_initial_token": ("scope", "now"),
        "refresh_token": ("token", "failure", "now", "latest="),
        "record_success": ("token", "now"),
        "release": ("token", "now"),
    },
    "budget": {
        "deposit": ("scope", "now"),
        "spend": ("scope", "cost", "now"),
        "refund": ("scope", "cost"),
    },
}


def check_options(
    who: str,
    policy: object,
    options: Mapping[str, Any],
    defaults: Mapping[str, Any],
    *,
    awaits: bool,
    hedges: bool,
) -> dict[str, Any]:
    """Check the policy and the options of the class ``who``; return all options.

    Raises:
        TypeError, ValueError: What is wrong with them, and what to write instead.
    """
    if not options.keys() <= defaults.keys():
        raise TypeError(tool("migration").unknown(who, options, defaults))
    given = {**defaults, **options}
    if not isinstance(policy, RetryPolicy):
        raise TypeError(
            f"policy must be a RetryPolicy, got {shown(policy)}: write"
            f" policy={tool('migration').policy_of(policy)}"
        )
    check_values(given, defaults)
    for option in () if awaits else ("retry_if", "before_attempt"):
        if is_async(given[option]):
            raise TypeError(
                f"{who} is synchronous and would not await {option}, got the coroutine"
                f" function {shown(given[option])}; give it a plain function"
            )
    if given["hedge"] is not None and not hedges:
        raise TypeError(
            f"{who} takes no hedge: only AsyncRetryTransport does, of forbear.httpx and"
            " forbear.httpx2. On a synchronous client every call that could be hedged would"
            " need a thread"
        )
    if given["contact"] is not None:
        given["contact"] = checked_contact(given["contact"])
    return given


def check_values(given: dict[str, Any], defaults: Mapping[str, Any]) -> None:
    for option in (*OBJECTS, "clock"):
        value = given[option]
        if isinstance(value, type):
            code = tool("migration").code_of_class(value)
            raise TypeError(f"{option} was given the class {value.__name__}: write {option}={code}")
        if isinstance(value, bool) and option in OBJECTS:
            code = OBJECTS[option] if value else None
            raise TypeError(f"{option} is an object or None, not {value}: write {option}={code}")
    strategy, gate = given["strategy"], given["gate"]
    if strategy is not None:
        if gate is not ... and gate is not None:
            raise ValueError("give strategy= or gate=, not both: a strategy decides by itself")
        for option in ("budget", "breaker", "cooldown", "origins"):
            if given[option] != defaults[option]:
                raise ValueError(
                    f"give strategy= or {option}=, not both: StandardStrategy takes {option}="
                    " itself"
                )
        if given["hedge"] is not None:
            raise ValueError("give strategy= or hedge=, not both: a strategy decides by itself")
        check_has("strategy", strategy, METHODS["strategy"])
        check_quiet(strategy)
    for option, (wanted, fits) in MUST_BE.items():
        value = given[option]
        if value is None or value is defaults[option]:
            continue
        if isinstance(fits, type):
            is_right = isinstance(value, fits)
        else:
            is_right = all(hasattr(value, name) for name in fits)
        if not is_right:
            raise TypeError(f"{option} must be {wanted}, got {shown(value)}")
    for option, takes in FUNCTIONS.items():
        if given[option] is not None:
            check_takes(option, given[option], *takes)
    for option, methods in METHODS.items():
        if given[option] is not None:
            for method, takes in methods.items():
                check_takes(f"{option}.{method}", getattr(given[option], method), *takes)
    if given["clock"] is not None:
        check_has("clock", given["clock"], ("monotonic", "time", "sleep", "asleep"))
    listeners = given["on_event"]
    if callable(listeners):
        raise TypeError(
            f"on_event must be a list of functions, got one: write on_event=[{shown(listeners)}]"
        )
    given["on_event"] = listeners = tuple(listeners)
    for listener in listeners:
        check_takes("on_event", listener, "event")
    for listener in filter(is_async, listeners):
        raise TypeError(
            f"on_event must be plain functions, got the coroutine function {shown(listener)}, which"
            " nobody would await; start a task in a plain function"
        )
    for option in ("body_buffer", "prefetch"):
        size = given[option]
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise ValueError(f"{option} must be a number of bytes, 0 for none, got {shown(size)}")
    for option in ("resume", "announce_attempts", "stop_outer_retries"):
        check_bool(option, given[option])


def is_async(function: object) -> bool:
    """Is it a coroutine function, a ``functools.partial`` of one, or an object called as one?"""
    while isinstance(function, partial):
        function = function.func
    return iscoroutinefunction(function) or iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  # inspected, not tested for
    )


def check_has(option: str, value: object, methods: Iterable[str]) -> None:
    missing = [method for method in methods if not callable(getattr(value, method, None))]
    if missing:
        raise TypeError(f"{option} has no method {' and no '.join(missing)}, got {shown(value)}")


def check_quiet(strategy: RetryStrategy) -> None:
    try:
        _ = strategy.quiet
    except AttributeError as error:
        raise TypeError(
            f"strategy has no attribute quiet, got {shown(strategy)}; write quiet = True if nothing"
            " needs to be recorded of a call that succeeds at once, else False"
        ) from error
    except Exception:  # raised by a property: the first call will raise it again
        return


def checked_contact(contact: str) -> str:
    """The ``From`` value of RFC 9110 section 10.1.2: one machine-usable address."""
    try:
        from email_validator import EmailNotValidError, validate_email
    except ImportError:
        raise ImportError(f"contact= needs email-validator: {to_install('contact')}") from None
    try:
        found = validate_email(
            contact, check_deliverability=False, allow_smtputf8=False, strict=True
        )
    except EmailNotValidError as error:
        raise ValueError(
            f"contact must be one e-mail address such as 'ops@example.com', got {shown(contact)}:"
            f" {error}"
        ) from None
    address: str | None = found.ascii_email
    assert address is not None
    return address
