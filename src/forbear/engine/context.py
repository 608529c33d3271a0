"""Context: what holds for every call made inside a block.

One ContextVar keeps the deadline, overridden fields, listeners and the incoming request. Tasks,
``asyncio.to_thread`` and anyio's threads inherit it. The workers of a plain
``ThreadPoolExecutor`` inherit it on a free-threaded Python from 3.14 on, but not on others, so
enter the block inside the function that you submit. In addition there is what a test sets for the
whole process.

``Incoming`` is the part of RetryContextMiddleware that ASGI and WSGI share: the headers of an
incoming request, and those of its response. Any client can write these headers, so all that they
can do is to make the calls for that one request fewer and shorter.

A loop that retries above us may count its attempts in a header of the request. Then attempts
multiply: 3 of theirs times 4 of ours are 12 at the server. Each loop counts in its own way:

| header                     | first  | first retry | source                                     |
| -------------------------- | ------ | ----------- | ------------------------------------------ |
| x-envoy-attempt-count      | 1      | 2           | Envoy, router filter, "HTTP headers (set)" |
| amz-sdk-request: attempt=  | 1      | 2           | botocore, handlers.py, add_retry_headers   |
| x-stainless-retry-count    | 0      | 1           | openai and anthropic, _base_client.py      |
| grpc-previous-rpc-attempts | absent | 1           | gRPC A6, "Exposed Retry Metadata"          |
| retry-attempt              | absent | 2           | forbear's announce_attempts                |

Two headers say how long the sender waits for the response, counted from when it sent the request,
so that the way here has taken its share already. Envoy's ``x-envoy-expected-rq-timeout-ms`` is "the
time in milliseconds the router expects the request to be completed" (router filter), where 0 means
no timeout; ``grpc-timeout`` is "a positive integer as ASCII string of at most 8 digits" and one
letter for the unit (PROTOCOL-HTTP2).

A value that cannot be read is as if it were absent.
"""

from __future__ import annotations

import threading
from contextvars import ContextVar
from functools import lru_cache, wraps
from math import inf
from typing import Generic, TypeVar

from ..core.checks import check_bool, check_duration, shown, suggesting
from ..core.headers.fields import OWS, Names, collect, is_digits
from ..core.outcome import Reason
from ..core.policy import RetryPolicy
from .clock import SYSTEM_CLOCK, Clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, Never, Self, Unpack

    from ..core.events import Event
    from ..core.headers.fields import Line
    from ..core.policy import PolicyFields


F = TypeVar("F", bound="Callable[..., object]")


class CallContext:
    """The rules of all enclosing blocks together. Not changed once it is in use.

    Attributes:
        fields: Overridden fields of the policy.
        deadline_at: That of the blocks, on ``clock``; the incoming request has one of its own.
        listeners: They receive the events of the calls inside that fail.
        incoming: The request that is being answered.
        most_attempts: No call makes more attempts, whatever its policy says; set by tests.
        random: Replaces the system's random numbers; set by tests.
        asks_nothing: Nothing here affects a first attempt that succeeds.
        outer: The scope to return to when the block ends.
        thread: The identifier of the thread that the block was entered in.
        is_left: The block has ended.
    """

    def __init__(
        self,
        fields: PolicyFields,
        deadline_at: float = inf,
        clock: Clock = SYSTEM_CLOCK,
        listeners: tuple[Callable[[Event], object], ...] = (),
        incoming: Incoming | None = None,
    ) -> None:
        self.fields = fields
        self.deadline_at = deadline_at
        self.clock = clock
        self.listeners = listeners
        self.incoming = incoming
        self.most_attempts: float = inf
        self.random: Callable[[], float] | None = None
        self.asks_nothing = not (self.fields or self.has_deadline() or self.sends_once())
        self.outer: CallContext | None = None
        self.thread = 0
        self.is_left = False
        self._merged: tuple[RetryPolicy, RetryPolicy] | None = None

    def merged(self, policy: RetryPolicy) -> RetryPolicy:
        """Return the policy with the overridden fields; made once per block and policy."""
        if not self.fields:
            return policy
        merged = self._merged
        if merged is None or merged[0] is not policy:
            merged = self._merged = (policy, replaced(policy, self.fields))
        return merged[1]

    def deadline_on(self, clock: Clock, now: float) -> float:
        """The deadline as an instant of another clock, by the time left now."""
        ends_at = self.deadline_at
        if self.clock is not clock:
            ends_at = converted(ends_at, self.clock, clock, now)
        if self.incoming is None:
            return ends_at
        return min(ends_at, self.incoming_deadline_on(clock, now))

    def incoming_deadline_on(self, clock: Clock, now: float) -> float:
        """The deadline of the request that is being answered, as an instant of another clock."""
        incoming = self.incoming
        if incoming is None:
            return inf
        return converted(incoming.deadline_at, incoming.clock, clock, now)

    def has_deadline(self) -> bool:
        return self.deadline_at != inf or (
            self.incoming is not None and self.incoming.deadline_at != inf
        )

    def sends_once(self) -> bool:
        """Is the request that is being answered itself a retry?"""
        return self.incoming is not None and self.incoming.retries > 0


def converted(instant: float, clock: Clock, onto: Clock, now: float) -> float:
    """Convert an instant of one clock to another one, which shows ``now``."""
    # Compared with ``is``: the same clock read twice would shorten the deadline at each call.
    if instant == inf or clock is onto:
        return instant
    return now + instant - clock.monotonic()


def replaced(policy: RetryPolicy, fields: Mapping[str, Any]) -> RetryPolicy:
    """Return the policy with these fields: 1 µs if the cache has it, else 17 µs."""
    try:
        return _replaced(policy, **fields)
    except TypeError:  # a value without a hash, such as a list, or a wrong one
        return policy.replace(**fields)


@lru_cache(maxsize=64, typed=True)
def _replaced(policy: RetryPolicy, /, **fields: Unpack[PolicyFields]) -> RetryPolicy:
    return policy.replace(**fields)


CURRENT: ContextVar[CallContext | None] = ContextVar("forbear", default=None)
# What tests set for every call of the process; see forbear.testing.clock.
everywhere: CallContext | None = None
NOTHING = CallContext({})
CHECKED = RetryPolicy()  # fields are checked by putting them into a policy


def scope_of_call() -> CallContext | None:
    """Return what the blocks around a call set, and what a test sets for the whole process.

    Used for calls that fail or that need more than the fast path, which reads ``CURRENT`` itself.
    """
    return with_everywhere(CURRENT.get())


def in_force(context: CallContext | None) -> CallContext | None:
    """Return the innermost scope of a context whose block still counts.

    Tasks that outlive a block keep what held when they were started. A thread may live much longer
    and serve other requests: a worker of a pool that was started inside a block, where threads
    inherit contexts, would keep a deadline that is long over. So a block that has ended no longer
    counts in other threads than the one that entered it.
    """
    while context is not None and context.is_left and context.thread != threading.get_ident():
        context = context.outer
    return context


def with_everywhere(context: CallContext | None) -> CallContext | None:
    """Join what a test sets for the whole process to the scope in force of a context."""
    tests, context = everywhere, in_force(context)
    if tests is None or context is None:
        return context or tests
    listeners = context.listeners + tests.listeners
    joined = CallContext(
        context.fields, context.deadline_at, context.clock, listeners, context.incoming
    )
    joined.most_attempts, joined.random = tests.most_attempts, tests.random
    return joined


class Block:
    """A ``with`` or ``async with`` block around sync or async code, and a decorator.

    Any number of tasks and threads may be in one block at once, or in it several times.
    """

    def inside(self, outer: CallContext) -> CallContext:
        """Return a new scope: what ``outer`` sets, and what this block adds."""
        raise AssertionError("each block says what it adds")

    def __enter__(self) -> Self:
        outer = in_force(CURRENT.get())
        context = self.inside(NOTHING if outer is None else outer)
        context.thread = threading.get_ident()
        context.outer = outer  # on the scope, since tasks and threads may share the block
        try:
            CURRENT.set(context)
            return self
        except BaseException:  # interrupted: Python will not call __exit__, which would undo it
            CURRENT.set(outer)
            raise

    def __exit__(self, *exception: object) -> None:
        context = CURRENT.get()
        if context is not None:  # None: left in another context than the one it was entered in
            context.is_left = True
            CURRENT.set(context.outer)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, *exception: object) -> None:
        self.__exit__(*exception)

    def __call__(self, function: F) -> F:
        """Decorate a function or a coroutine function: the block is entered at each call of it."""
        from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction

        if isgeneratorfunction(function) or isasyncgenfunction(function):
            raise TypeError(
                "a generator outlives the call that makes it; use the with block inside it instead"
            )
        if iscoroutinefunction(function):

            @wraps(function)
            async def acalled(*args: object, **kwargs: object) -> object:
                with self:
                    return await function(*args, **kwargs)

            return acalled  # type: ignore[return-value]

        @wraps(function)
        def called(*args: object, **kwargs: object) -> object:
            with self:
                return function(*args, **kwargs)

        return called  # type: ignore[return-value]


class Answering(Block):
    """Around the work for one incoming request; the middlewares of asgi.py and wsgi.py enter it."""

    def __init__(self, incoming: Incoming) -> None:
        self._incoming = incoming

    def inside(self, outer: CallContext) -> CallContext:
        incoming, around = self._incoming, outer.incoming
        if around is not None:  # one of our services called another one in the same context
            clock = incoming.clock
            ends_at = converted(around.deadline_at, around.clock, clock, clock.monotonic())
            incoming.retries = max(incoming.retries, around.retries)
            incoming.deadline_at = min(incoming.deadline_at, ends_at)
        return CallContext(outer.fields, outer.deadline_at, outer.clock, outer.listeners, incoming)


class Override(Block):
    def __init__(self, fields: PolicyFields) -> None:
        self._fields = fields

    def inside(self, outer: CallContext) -> CallContext:
        fields: PolicyFields = {**outer.fields, **self._fields}
        return CallContext(fields, outer.deadline_at, outer.clock, outer.listeners, outer.incoming)


class Deadline(Block):
    def __init__(self, seconds: float, clock: Clock) -> None:
        self._seconds = seconds
        self._clock = clock

    def inside(self, outer: CallContext) -> CallContext:
        clock = self._clock
        now = clock.monotonic()
        # Without the incoming request's deadline: that ends with its response, this block may not.
        ends_at = min(now + self._seconds, converted(outer.deadline_at, outer.clock, clock, now))
        return CallContext(outer.fields, ends_at, clock, outer.listeners, outer.incoming)


def override(*others: Never, **fields: Unpack[PolicyFields]) -> Override:
    """Change fields of the policy for every call made inside the block, through any client.

    It works with ``with`` and ``async with``, and as a decorator. In nested blocks the inner block
    wins, field by field; ``extensions={"forbear": …}`` of a request wins over all blocks. A block
    holds for its own context: asyncio tasks started inside inherit it. Other threads may, as long
    as the block lasts, so enter the block inside the function that you submit to a pool.

    Examples:
        >>> with forbear.override(max_attempts=2, total_timeout=5.0):
        ...     response = client.get(url)

    Args:
        *others: None; fields are given by name.
        **fields: Fields of ``RetryPolicy``, with its units and ranges.

    Raises:
        TypeError: A name is not a field, or a value is of the wrong type.
        ValueError: A value is out of its range.
    """
    if others:
        given: object = others[0]
        right = "override(max_attempts=1) to send once"
        if isinstance(given, RetryPolicy):
            right = repr(given).replace("RetryPolicy", "override", 1)
        raise TypeError(f"override takes fields by name, got {shown(given)}: write {right}")
    replaced(CHECKED, fields)
    return Override(fields)


@suggesting
def deadline(seconds: float, *, clock: Clock = SYSTEM_CLOCK) -> Deadline:
    """Give all calls made inside the block these seconds together: attempts, waits and bodies.

    It works with ``with`` and ``async with``, and as a decorator. In nested blocks the earlier
    deadline holds. A call that begins after the deadline sends nothing and raises
    ``DeadlineExceeded`` of its client's module, such as ``forbear.httpx.DeadlineExceeded``. A block
    holds for its own context: asyncio tasks started inside inherit it. Other threads may, as long
    as the block lasts, so enter the block inside the function that you submit to a pool.

    Examples:
        >>> with forbear.deadline(2.0):
        ...     stock, price = client.get(stock_url), client.get(price_url)

    Args:
        seconds: Seconds from the moment that the block is entered; at least 0.
        clock: The clock that counts the seconds. A test passes the FakeClock of its transports.

    Raises:
        TypeError: ``seconds`` is not a number.
        ValueError: ``seconds`` is negative or not finite.
    """
    check_duration("seconds", seconds)
    return Deadline(seconds, clock)


App = TypeVar("App")
T = TypeVar("T", bound=str | bytes)
# Seconds kept for the way back: two round trips between data centres of a region and a handler's
# rendering.
MARGIN = 0.05
STOP = "x-should-retry"
# Statuses that an outer client may retry; a 404 or 401 ends every retry loop by itself.
REPEATED = frozenset({408, 409, 425, 429})


class Incoming:
    """The request that is being answered: what it sets for calls made for it, what came of them.

    All contexts that descend from the request's share this object, on any thread, so each attribute
    is only assigned: no value depends on one read before, and there is no lock.

    Attributes:
        retries: How often it was sent before. Unless 0, the calls made for it are not retried,
            because its sender retries it as a whole. 0 once its response is sent.
        deadline_at: Until when its sender waits, on ``clock``; infinite once its response is sent.
        announces_deadline: Calls made for it send the time that is left in a header.
        gave_up: A call made for it gave up in a way that should stop the retries of its sender.
    """

    __slots__ = ("announces_deadline", "clock", "deadline_at", "gave_up", "retries")

    def __init__(
        self, retries: int, deadline_at: float, clock: Clock, announces_deadline: bool
    ) -> None:
        self.retries = retries
        self.deadline_at = deadline_at
        self.clock = clock
        self.announces_deadline = announces_deadline
        self.gave_up = False

    def end(self) -> None:
        """Limit calls no more: its response is sent, and tasks that it started may outlive it."""
        self.retries = 0
        self.deadline_at = inf


class Middleware(Generic[App]):
    """The part of both RetryContextMiddleware: reads requests, says which responses are marked."""

    @suggesting
    def __init__(
        self,
        app: App,
        *,
        margin: float = MARGIN,
        announce_deadline: bool = False,
        stop_outer_retries: bool = True,
        clock: Clock | None = None,
    ) -> None:
        if not callable(app):
            raise TypeError(f"RetryContextMiddleware goes around an application, got {shown(app)}")
        check_duration("margin", margin)
        check_bool("announce_deadline", announce_deadline)
        check_bool("stop_outer_retries", stop_outer_retries)
        self.app: App = app
        self._margin = margin
        self._announce_deadline = announce_deadline
        self._stop_outer_retries = stop_outer_retries
        self._clock: Clock = SYSTEM_CLOCK if clock is None else clock

    def incoming(self, lines: list[tuple[bytes, bytes]] | list[tuple[str, str]]) -> Incoming:
        """Read the retry count and the deadline in the headers of a request."""
        ends_at = self._clock.monotonic() + shrunk(seconds_for(lines), self._margin)
        return Incoming(retries_above(lines), ends_at, self._clock, self._announce_deadline)

    def marks(self, incoming: Incoming, status: int) -> bool:
        """Is this the failed response to a request for which a call gave up?"""
        if not self._stop_outer_retries or not incoming.gave_up:
            return False
        return status >= 500 or status in REPEATED


def with_mark(lines: list[tuple[T, T]], name: T, value: T) -> list[tuple[T, T]]:
    """Return the header lines of a response with the mark, unless the response has its own."""
    if any(found.lower() == name for found, _ in lines):
        return lines
    return [*lines, (name, value)]


EXPECTED = "x-envoy-expected-rq-timeout-ms"


def retries_above(lines: Iterable[Line]) -> int:
    """Return how often a request was sent before, by the highest count in it; 0: it is no retry."""
    found = collect(lines, _COUNTED)
    return max((COUNTERS[name](value) for name in found for value in found[name]), default=0)


def outer_loop(lines: Iterable[Line]) -> tuple[str, str] | None:
    """Return the header by which an SDK above announces a retry, and the SDK's off switch."""
    found = collect(lines, _SWITCHED)
    announced = (name for name in found if any(map(COUNTERS[name], found[name])))
    return next(((name, SWITCHES[name]) for name in announced), None)


def ends_outer_loops(attempts: int, reason: Reason) -> bool:
    """Return whether the loops above us should not retry after a call has ended so.

    Yes if we have retried ourselves, or must not for the sake of the server. Not after a single
    attempt that only we may not retry: a key of the caller's can make their request safe.
    """
    return attempts > 1 or reason in FOR_THE_SERVER


def seconds_for(lines: Iterable[Line]) -> float:
    """Return the seconds that a request's sender waits, the least that it names; else infinity."""
    found = collect(lines, _TIMED)
    return min((TIMEOUTS[name](value) for name in found for value in found[name]), default=inf)


def shrunk(seconds: float, margin: float) -> float:
    """Return the seconds left when ``margin`` is kept for the way back; never less than half."""
    return seconds - min(margin, seconds / 2)


def _count(value: str) -> int:
    return int(value) if len(value) <= 9 and is_digits(value) else 0  # a long one takes seconds


def _count_from_one(value: str) -> int:
    return max(0, _count(value) - 1)


def _count_of_aws(value: str) -> int:
    parts = (part.partition("=") for part in value.split(";"))
    counts = (number for name, _, number in parts if name.strip(OWS) == "attempt")
    return _count_from_one(next(counts, "").strip(OWS))


def _our_count(value: str) -> int:
    number = _count(value)
    return max(1, number - 1) if number else 0  # sent on retries only, so 1 is one too


def _grpc_timeout(value: str) -> float:
    unit = UNITS.get(value[-1:])
    return inf if unit is None else _positive(value[:-1], 8, unit)


def _positive(digits: str, most: int, unit: float) -> float:
    return int(digits) * unit or inf if len(digits) <= most and is_digits(digits) else inf


# header -> how many retries a value of it counts
COUNTERS = {
    "x-envoy-attempt-count": _count_from_one,
    "amz-sdk-request": _count_of_aws,
    "x-stainless-retry-count": _count,
    "grpc-previous-rpc-attempts": _count,
    "retry-attempt": _our_count,
}
# Loops that may be in this very process, with the switch of each.
SWITCHES = {
    "x-stainless-retry-count": "max_retries=0 for the SDK's client (openai, anthropic …)",
    "amz-sdk-request": 'Config(retries={"total_max_attempts": 1})',
}
# header -> the seconds that a value of it names
TIMEOUTS = {EXPECTED: lambda value: _positive(value, 15, 1e-3), "grpc-timeout": _grpc_timeout}
UNITS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
FOR_THE_SERVER = frozenset(
    {Reason.SERVER_SAID_NO, Reason.RETRY_AFTER_TOO_LONG}
    | {Reason.CIRCUIT_OPEN, Reason.BUDGET_EXHAUSTED}
)
_COUNTED, _SWITCHED, _TIMED = Names(COUNTERS), Names(SWITCHES), Names(TIMEOUTS)
