"""Blocks: ``override`` and ``deadline``, which hold for every call made inside them."""

from __future__ import annotations

import threading
from contextlib import AsyncContextDecorator, ContextDecorator
from typing import TypeVar

from ..core.checks import check_duration, shown, suggesting
from ..core.policy import RetryPolicy
from .clock import SYSTEM_CLOCK, Clock
from .context import CallContext, converted, replaced
from .current import CURRENT, in_force

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Never, Self, Unpack

    from ..core.policy_fields import PolicyFields

F = TypeVar("F", bound="Callable[..., object]")


NOTHING = CallContext({})
CHECKED = RetryPolicy()  # fields are checked by putting them into a policy


class Block(ContextDecorator, AsyncContextDecorator):
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
        context.block = self
        context.outer = outer  # on the scope, since tasks and threads may share the block
        CURRENT.set(context)
        return self

    def __exit__(self, *exception: object) -> None:
        above, own = None, CURRENT.get()
        while own is not None and own.block is not self:
            above, own = own, own.outer
        if own is None:
            from .frames import warn

            name = type(self).__name__
            warn(
                f"forbear.{name} was left in another context than it was entered in, so it may have"
                " held for no call: enter it around the calls; a dependency of FastAPI that is no"
                " coroutine is the usual reason: write RetryContextMiddleware(app, deadline=…)"
            )
            return
        own.is_left = True
        if above is None:
            CURRENT.set(own.outer)
        else:  # generators may end in any order
            above.outer = own.outer

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
            return AsyncContextDecorator.__call__(self, function)  # type: ignore[return-value]
        return ContextDecorator.__call__(self, function)


class override(Block):  # noqa: N801
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

    def __init__(self, *others: Never, **fields: Unpack[PolicyFields]) -> None:
        if others:
            raise TypeError(
                f"override takes fields by name, got {shown(others[0])}: write"
                " override(max_attempts=1) to send once"
            )
        replaced(CHECKED, fields)
        self._fields = fields

    def inside(self, outer: CallContext) -> CallContext:
        fields: PolicyFields = {**outer.fields, **self._fields}
        return CallContext(fields, outer.deadline_at, outer.clock, outer.listeners, outer.sender)


class deadline(Block):  # noqa: N801
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

    @suggesting
    def __init__(self, seconds: float, *, clock: Clock = SYSTEM_CLOCK) -> None:
        check_duration("seconds", seconds)
        self._seconds = seconds
        self._clock = clock

    def inside(self, outer: CallContext) -> CallContext:
        clock = self._clock
        now = clock.monotonic()
        # Without the incoming request's deadline: that ends with its response, this block may not.
        ends_at = min(now + self._seconds, converted(outer.deadline_at, outer.clock, clock, now))
        return CallContext(outer.fields, ends_at, clock, outer.listeners, outer.sender)
