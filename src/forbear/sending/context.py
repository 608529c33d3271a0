"""Context: what holds for every call made inside a block: deadline, overridden fields, listeners,
and the request that is being answered. Floor: acts.

All of it lives in one ContextVar, which follows tasks, ``asyncio.to_thread`` and anyio's threads,
but not a bare ``ThreadPoolExecutor``: enter the block inside the function you submit.
"""

from __future__ import annotations

from contextvars import ContextVar
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from .._rehearsal import clock_here, in_force
from ..core.checks import a_duration
from ..core.policy import RetryPolicy
from .clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from ..core.events import Event

__all__ = ["CURRENT", "Answering", "Incoming", "Scope", "deadline", "override"]

F = TypeVar("F", bound="Callable[..., Any]")


class Incoming:
    """The request that this program is answering: what it asks of the calls made for it, and what
    came of them.

    One object for all contexts that descend from the request's, on any thread: each attribute is
    only ever assigned.

    Attributes:
        retries: How often it was sent before. Unless 0, the calls made for it are sent once only:
            whoever sent it repeats it as a whole.
        deadline_at: Until when its sender waits, on ``clock``; infinite once it is answered.
        announces_deadline: Calls made for it tell their server how much time is left.
        gave_up: A call made for it was given up on in a way that should stop those above too.
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


class Scope:
    """What the enclosing blocks say together. Never changed after it was made."""

    __slots__ = (
        "_merged",
        "asks_nothing",
        "clock",
        "deadline_at",
        "fields",
        "incoming",
        "listeners",
        "outer",
    )

    def __init__(
        self,
        fields: dict[str, Any],
        deadline_at: float,
        clock: Clock,
        listeners: tuple[Callable[[Event], object], ...],
        incoming: Incoming | None = None,
    ) -> None:
        self.fields = fields
        self.deadline_at = (
            deadline_at  # on ``clock``; of the blocks, the incoming request has its own
        )
        self.clock = clock
        self.listeners = listeners
        self.incoming = incoming
        # Nothing concerns a first attempt: a request is being answered that is no retry and has no
        # deadline. Listeners hear of failures only.
        self.asks_nothing = not (fields or self.has_deadline() or self.sends_once())
        self._merged: tuple[RetryPolicy, RetryPolicy] | None = None
        self.outer: Scope | None = None

    def merged(self, policy: RetryPolicy) -> RetryPolicy:
        """Return the policy with the overridden fields; checked once per block and policy."""
        if not self.fields:
            return policy
        merged = self._merged
        if merged is None or merged[0] is not policy:
            merged = self._merged = (policy, policy.replace(**self.fields))
        return merged[1]

    def deadline_on(self, clock: Clock, now: float) -> float:
        """The deadline as an instant of another clock, by the time left now."""
        ends_at = moved(self.deadline_at, self.clock, clock, now)
        incoming = self.incoming
        if incoming is None or incoming.deadline_at == inf:
            return ends_at
        return min(ends_at, moved(incoming.deadline_at, incoming.clock, clock, now))

    def has_deadline(self) -> bool:
        return self.deadline_at != inf or (
            self.incoming is not None and self.incoming.deadline_at != inf
        )

    def sends_once(self) -> bool:
        """Is what is being answered itself a retry?"""
        return self.incoming is not None and self.incoming.retries > 0


def moved(instant: float, clock: Clock, onto: Clock, now: float) -> float:
    """An instant of one clock on another one, on which it is ``now``."""
    if instant == inf or clock is onto:
        return instant
    return now + instant - clock.monotonic()


CURRENT: ContextVar[Scope | None] = ContextVar("forbear", default=None)


def listeners_here() -> tuple[Callable[[Event], object], ...]:
    """Who is told of what happens here beside the transport's own: those of blocks, and of
    tests.
    """
    scope, terms = CURRENT.get(), in_force()
    listeners = () if scope is None else scope.listeners
    return listeners if terms is None else listeners + terms.listeners


class Block:
    """A ``with`` block, sync or async code, that is a decorator too. Any number of tasks may be in
    one.
    """

    __slots__ = ()

    def _inside(self, outer: Scope | None) -> Scope:
        raise AssertionError("each block says what it adds")

    def _fresh(self) -> Block:
        raise AssertionError("each block makes its like")

    def __enter__(self) -> Self:
        outer = CURRENT.get()
        inside = self._inside(outer)
        inside.outer = outer  # here, not on the block: tasks and threads may share that
        CURRENT.set(inside)
        return self

    def __exit__(self, *exception: object) -> None:
        inside = CURRENT.get()
        if inside is not None:  # else left in another context than it was entered in
            CURRENT.set(inside.outer)

    def __call__(self, function: F) -> F:
        """Decorate a function or a coroutine function: each call of it gets a block of its own."""
        from functools import wraps
        from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction

        if isgeneratorfunction(function) or isasyncgenfunction(function):
            raise TypeError(
                "a generator outlives the call that makes it; use the with block inside it instead"
            )
        if iscoroutinefunction(function):

            @wraps(function)
            async def ainside(*args: Any, **kwargs: Any) -> Any:
                with self._fresh():
                    return await function(*args, **kwargs)

            return ainside  # type: ignore[return-value]

        @wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with self._fresh():
                return function(*args, **kwargs)

        return inside  # type: ignore[return-value]


class Answering(Block):
    """Around the work for one incoming request; the middlewares of asgi.py and wsgi.py are made of
    it.
    """

    __slots__ = ("_incoming",)

    def __init__(self, incoming: Incoming) -> None:
        self._incoming = incoming

    def _inside(self, outer: Scope | None) -> Scope:
        incoming = self._incoming
        if outer is None:
            return Scope({}, inf, SYSTEM_CLOCK, (), incoming)
        around = outer.incoming
        if around is not None:  # one of our services called another one in this very context
            now = incoming.clock.monotonic()
            incoming.retries = max(incoming.retries, around.retries)
            incoming.deadline_at = min(
                incoming.deadline_at, moved(around.deadline_at, around.clock, incoming.clock, now)
            )
        return Scope(outer.fields, outer.deadline_at, outer.clock, outer.listeners, incoming)


class Override(Block):
    __slots__ = ("_fields",)

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def _inside(self, outer: Scope | None) -> Scope:
        if outer is None:
            return Scope(self._fields, inf, SYSTEM_CLOCK, ())
        fields = {**outer.fields, **self._fields}
        return Scope(fields, outer.deadline_at, outer.clock, outer.listeners, outer.incoming)

    def _fresh(self) -> Block:
        return Override(self._fields)


class Deadline(Block):
    __slots__ = ("_clock", "_seconds")

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._seconds = seconds
        self._clock = clock

    def _inside(self, outer: Scope | None) -> Scope:
        clock = clock_here(self._clock)
        now = clock.monotonic()
        ends_at = now + self._seconds
        if outer is None:
            return Scope({}, ends_at, clock, ())
        # Not with the incoming request's: that ends when it is answered, and this block may not.
        ends_at = min(ends_at, moved(outer.deadline_at, outer.clock, clock, now))
        return Scope(outer.fields, ends_at, clock, outer.listeners, outer.incoming)

    def _fresh(self) -> Block:
        return Deadline(self._seconds, self._clock)


class Listening(Block):
    """Adds a listener for the calls inside; ``forbear.testing.record`` is one."""

    __slots__ = ("_listener",)

    def __init__(self, listener: Callable[[Event], object]) -> None:
        self._listener = listener

    def _inside(self, outer: Scope | None) -> Scope:
        if outer is None:
            return Scope({}, inf, SYSTEM_CLOCK, (self._listener,))
        listeners = (*outer.listeners, self._listener)
        return Scope(outer.fields, outer.deadline_at, outer.clock, listeners, outer.incoming)

    def _fresh(self) -> Block:
        return Listening(self._listener)


def override(**fields: Any) -> Override:
    """Change fields of the policy for every call made inside the block, whatever the client.

    ``with override(max_attempts=2): …``, also in async code, or as a decorator. Inner fields win
    over outer ones, field by field; a request's own ``extensions={"forbear": …}`` wins over both.

    Args:
        **fields: Fields of ``RetryPolicy``.

    Raises:
        TypeError: A name is not a field, or a value of the wrong type.
        ValueError: A value is out of its range.
    """
    RetryPolicy(**fields)
    return Override(fields)


def deadline(seconds: float, *, clock: Clock = SYSTEM_CLOCK) -> Deadline:
    """Let every call made inside the block share these seconds: attempts, waits, bodies.

    Nested blocks: the earlier deadline holds; it is never lengthened. A call that begins after it
        sends
    nothing and raises its library's ``DeadlineExceeded``.

    Args:
        seconds: From entering the block; at least 0.
        clock: On which they are counted; a test passes its transports' FakeClock.

    Raises:
        ValueError, TypeError: ``seconds`` is not a number of at least 0.
    """
    a_duration("seconds", seconds)
    return Deadline(seconds, clock)
