"""Context: what holds for every call made inside a block: deadline, overridden fields, listeners. Floor: acts.

All of it lives in one ContextVar, which follows tasks, ``asyncio.to_thread`` and anyio's threads, but
not a bare ``ThreadPoolExecutor``: enter the block inside the function you submit.
"""

from __future__ import annotations

from contextvars import ContextVar
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from .clock import SYSTEM_CLOCK, Clock
from .core._checks import a_duration
from .core.policy import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from .core.events import Event

__all__ = ["CURRENT", "Scope", "deadline", "override"]

F = TypeVar("F", bound="Callable[..., Any]")


class Scope:
    """What the enclosing blocks say together. Never changed after it was made."""

    __slots__ = ("_merged", "clock", "deadline_at", "fields", "listeners", "outer")

    def __init__(
        self,
        fields: dict[str, Any],
        deadline_at: float,
        clock: Clock,
        listeners: tuple[Callable[[Event], object], ...],
    ) -> None:
        self.fields = fields
        self.deadline_at = deadline_at  # on ``clock``
        self.clock = clock
        self.listeners = listeners
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
        if self.deadline_at == inf or clock is self.clock:
            return self.deadline_at
        return now + self.deadline_at - self.clock.monotonic()


CURRENT: ContextVar[Scope | None] = ContextVar("forbear", default=None)


class Block:
    """A ``with`` block, sync or async code, that is a decorator too. Any number of tasks may be in one."""

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
            raise TypeError("a generator outlives the call that makes it; use the with block inside it instead")
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


class Override(Block):
    __slots__ = ("_fields",)

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def _inside(self, outer: Scope | None) -> Scope:
        if outer is None:
            return Scope(self._fields, inf, SYSTEM_CLOCK, ())
        return Scope({**outer.fields, **self._fields}, outer.deadline_at, outer.clock, outer.listeners)

    def _fresh(self) -> Block:
        return Override(self._fields)


class Deadline(Block):
    __slots__ = ("_clock", "_seconds")

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._seconds = seconds
        self._clock = clock

    def _inside(self, outer: Scope | None) -> Scope:
        now = self._clock.monotonic()
        ends_at = now + self._seconds
        if outer is None:
            return Scope({}, ends_at, self._clock, ())
        ends_at = min(ends_at, outer.deadline_on(self._clock, now))
        return Scope(outer.fields, ends_at, self._clock, outer.listeners)

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
        return Scope(outer.fields, outer.deadline_at, outer.clock, (*outer.listeners, self._listener))

    def _fresh(self) -> Block:
        return Listening(self._listener)


def override(**fields: Any) -> Override:
    """Change fields of the policy for every call made inside the block, whatever the client.

    ``with override(max_attempts=2): …``, also in async code, or as a decorator. Inner fields win over
    outer ones, field by field; a request's own ``extensions={"forbear": …}`` wins over both.

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

    Nested blocks: the earlier deadline holds; it is never lengthened. A call that begins after it sends
    nothing and raises its library's ``DeadlineExceeded``.

    Args:
        seconds: From entering the block; at least 0.
        clock: On which they are counted; a test passes its transports' FakeClock.

    Raises:
        ValueError, TypeError: ``seconds`` is not a number of at least 0.
    """
    a_duration("seconds", seconds)
    return Deadline(seconds, clock)
