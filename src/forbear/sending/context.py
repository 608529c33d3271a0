"""Context: what holds for every call made inside a block. Floor: acts.

One ContextVar keeps the deadline, overridden fields, listeners and the request that is being
answered. It follows tasks, ``asyncio.to_thread`` and anyio's threads, but not a bare
``ThreadPoolExecutor``: enter the block inside the function you submit. Beside it stands what a test
sets for the whole process.
"""

from __future__ import annotations

from contextvars import ContextVar
from functools import lru_cache, wraps
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from ..core.checks import a_duration
from ..core.policy import RetryPolicy
from .clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self, Unpack

    from ..core.events import Event
    from ..core.policy_fields import PolicyFields
    from .incoming import Incoming

__all__ = ["CURRENT", "Answering", "Listening", "Scope", "deadline", "override", "scope_of_call"]

F = TypeVar("F", bound="Callable[..., Any]")


class Scope:
    """The rules of all enclosing blocks together. Not changed once it is in use.

    Attributes:
        fields: Overridden fields of the policy.
        deadline_at: That of the blocks, on ``clock``; the incoming request has one of its own.
        listeners: They hear of the calls inside that fail.
        incoming: The request that is being answered.
        most_attempts: No call sends more often, whatever its policy says; set by tests.
        random: Draws in place of the system's random numbers; set by tests.
        asks_nothing: Nothing here concerns a first attempt that succeeds.
        outer: The scope to return to when the block ends.
    """

    def __init__(
        self,
        fields: Mapping[str, Any],
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
        self.outer: Scope | None = None
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
        ends_at = moved(self.deadline_at, self.clock, clock, now)
        if self.incoming is None:
            return ends_at
        return min(ends_at, self.incoming_deadline_on(clock, now))

    def incoming_deadline_on(self, clock: Clock, now: float) -> float:
        """The deadline of the request that is being answered, as an instant of another clock."""
        incoming = self.incoming
        if incoming is None:
            return inf
        return moved(incoming.deadline_at, incoming.clock, clock, now)

    def has_deadline(self) -> bool:
        return self.deadline_at != inf or (
            self.incoming is not None and self.incoming.deadline_at != inf
        )

    def sends_once(self) -> bool:
        """Is the request that is being answered itself a retry?"""
        return self.incoming is not None and self.incoming.retries > 0


def moved(instant: float, clock: Clock, onto: Clock, now: float) -> float:
    """An instant of one clock on another one, on which it is ``now``."""
    if instant == inf or clock is onto:
        return instant
    return now + instant - clock.monotonic()


def replaced(policy: RetryPolicy, fields: Mapping[str, Any]) -> RetryPolicy:
    """Return the policy with these fields; a microsecond if that was asked before, else 17."""
    try:
        return _replaced(policy, **fields)
    except TypeError:  # a value without a hash, such as a list, or a wrong one
        return policy.replace(**fields)


@lru_cache(maxsize=64, typed=True)
def _replaced(policy: RetryPolicy, /, **fields: Any) -> RetryPolicy:
    return policy.replace(**fields)


CURRENT: ContextVar[Scope | None] = ContextVar("forbear", default=None)
# What tests set for every call of the process; see forbear.testing.everywhere.
everywhere: Scope | None = None
NOTHING = Scope({})
CHECKED = RetryPolicy()  # fields are checked by putting them into a policy


def scope_of_call() -> Scope | None:
    """Return what the blocks around a call say, and what a test says for the whole process.

    Asked for calls that fail or that something special concerns; the fast path reads ``CURRENT``.
    """
    return with_everywhere(CURRENT.get())


def with_everywhere(scope: Scope | None) -> Scope | None:
    """Join what a test says for the whole process to the scope of a context."""
    tests = everywhere
    if tests is None or scope is None:
        return scope or tests
    listeners = scope.listeners + tests.listeners
    joined = Scope(scope.fields, scope.deadline_at, scope.clock, listeners, scope.incoming)
    joined.most_attempts, joined.random = tests.most_attempts, tests.random
    return joined


class Block:
    """A ``with`` or ``async with`` block around sync or async code, and a decorator.

    Any number of tasks and threads may be in one block at once, or in it several times.
    """

    def inside(self, outer: Scope) -> Scope:
        """Return a new scope: what ``outer`` says, and what this block adds."""
        raise AssertionError("each block says what it adds")

    def __enter__(self) -> Self:
        outer = CURRENT.get()
        scope = self.inside(NOTHING if outer is None else outer)
        scope.outer = outer  # on the scope, since tasks and threads may share the block
        try:
            CURRENT.set(scope)
            return self
        except BaseException:  # interrupted: nobody would leave the block
            CURRENT.set(outer)
            raise

    def __exit__(self, *exception: object) -> None:
        scope = CURRENT.get()
        if scope is not None:  # else left in another context than it was entered in
            CURRENT.set(scope.outer)

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
            async def acalled(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return await function(*args, **kwargs)

            return acalled  # type: ignore[return-value]

        @wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return called  # type: ignore[return-value]


class Answering(Block):
    """Around the work for one incoming request; the middlewares of asgi.py and wsgi.py enter it."""

    def __init__(self, incoming: Incoming) -> None:
        self._incoming = incoming

    def inside(self, outer: Scope) -> Scope:
        incoming, around = self._incoming, outer.incoming
        if around is not None:  # one of our services called another one in this very context
            clock = incoming.clock
            ends_at = moved(around.deadline_at, around.clock, clock, clock.monotonic())
            incoming.retries = max(incoming.retries, around.retries)
            incoming.deadline_at = min(incoming.deadline_at, ends_at)
        return Scope(outer.fields, outer.deadline_at, outer.clock, outer.listeners, incoming)


class Override(Block):
    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def inside(self, outer: Scope) -> Scope:
        fields = {**outer.fields, **self._fields}
        return Scope(fields, outer.deadline_at, outer.clock, outer.listeners, outer.incoming)


class Deadline(Block):
    def __init__(self, seconds: float, clock: Clock) -> None:
        self._seconds = seconds
        self._clock = clock

    def inside(self, outer: Scope) -> Scope:
        clock = self._clock
        now = clock.monotonic()
        # Not with the incoming request's: that ends when it is answered, and this block may not.
        ends_at = min(now + self._seconds, moved(outer.deadline_at, outer.clock, clock, now))
        return Scope(outer.fields, ends_at, clock, outer.listeners, outer.incoming)


class Listening(Block):
    """Adds a listener for the calls inside; ``forbear.testing.record`` is one."""

    def __init__(self, listener: Callable[[Event], object]) -> None:
        self._listener = listener

    def inside(self, outer: Scope) -> Scope:
        listeners = (*outer.listeners, self._listener)
        return Scope(outer.fields, outer.deadline_at, outer.clock, listeners, outer.incoming)


def override(**fields: Unpack[PolicyFields]) -> Override:
    """Change fields of the policy for every call made inside the block, through any client.

    It works with ``with`` and ``async with``, and as a decorator. In nested blocks the inner block
    wins, field by field; ``extensions={"forbear": …}`` of a request wins over all blocks. A block
    holds for its own context: asyncio tasks started inside inherit it, pool threads do not.

    Examples:
        >>> with forbear.override(max_attempts=2, total_timeout=5.0):
        ...     response = client.get(url)

    Args:
        **fields: Fields of ``RetryPolicy``, with its units and ranges.

    Raises:
        TypeError: A name is not a field, or a value is of the wrong type.
        ValueError: A value is out of its range.
    """
    replaced(CHECKED, fields)
    return Override(fields)


def deadline(seconds: float, *, clock: Clock = SYSTEM_CLOCK) -> Deadline:
    """Give all calls made inside the block these seconds together: attempts, waits and bodies.

    It works with ``with`` and ``async with``, and as a decorator. In nested blocks the earlier
    deadline holds. A call that begins after the deadline sends nothing and raises
    ``DeadlineExceeded`` of its client's module, such as ``forbear.httpx.DeadlineExceeded``. A block
    holds for its own context: asyncio tasks started inside inherit it, pool threads do not.

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
    a_duration("seconds", seconds)
    return Deadline(seconds, clock)
