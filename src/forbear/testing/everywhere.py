"""fast() and disabled(): blocks in which retries take no time, or are not made. Floor: acts."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from ..core.policy import RetryPolicy
from ..sending import context
from ..sending.clock import SYSTEM_CLOCK
from .clock import SKIPPING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from ..core.events import Event
    from ..sending.clock import Clock

__all__ = ["Everywhere", "disabled", "fast"]

_lock = threading.RLock()
_entered: list[Everywhere] = []  # a block that several threads are in stands here several times


@dataclass(eq=False, kw_only=True)
class Everywhere(context.Block):
    """Rules for every call of the process: a ``with`` block, and a decorator. Thread-safe.

    Blocks may overlap, in any order and from any thread: each exit ends one entry.

    Args:
        clock: In place of the system's; transports with a clock of their own keep it. A clock that
            a test reads wins over one that skips; of several the one entered last.
        random: In place of the system's random numbers; the one entered last.
        most_attempts: No call sends more often, whatever its policy says; the fewest.
        listener: Hears the events of all calls; every one of them does.
    """

    clock: Clock | None = None
    random: Callable[[], float] | None = None
    most_attempts: float = inf
    listener: Callable[[Event], object] | None = None

    def __enter__(self) -> Self:
        with _lock:
            _entered.append(self)
            apply()
        return self

    def __exit__(self, *exception: object) -> None:
        with _lock:
            _entered.remove(self)
            apply()

    def __call__(self, function: context.F) -> context.F:
        if isinstance(function, type):
            name = function.__name__
            raise TypeError(f"decorate the functions of {name}, or use the fixture forbear_fast")
        return super().__call__(function)


def apply() -> None:
    """Set the stand-in clock and the scope of the process to what all entered blocks say."""
    clocks = [block.clock for block in _entered if block.clock is not None]
    read = [clock for clock in clocks if clock is not SKIPPING]
    SYSTEM_CLOCK.replace_by((read or clocks)[-1] if clocks else None)
    listeners = tuple(block.listener for block in _entered if block.listener is not None)
    scope = context.Scope({}, listeners=listeners)
    scope.most_attempts = min((block.most_attempts for block in _entered), default=inf)
    scope.random = next((block.random for block in reversed(_entered) if block.random), None)
    context.everywhere = scope if _entered else None


def fast(*, max_attempts: int | None = None) -> Everywhere:
    """Let no wait between attempts take time, whatever transports send them: for tests.

    For code whose transports are out of reach: ``with fast(): …``, around async code too, or
    ``@fast()`` on a test. It holds for the whole process: for transports of every adapter, built
    before or inside, in SDK clients, tasks and threads. What is retried, given up and recorded is
    as in production: a wait that is skipped counts as waited for deadlines, breakers, budgets and
    records; only dates that servers send are compared with the real time. A transport with a
    ``clock=`` of its own keeps it. Timers that are not forbear's, such as ``asyncio.timeout`` or an
    SDK's own loop, run in real time. So do requests: calls that are held together, and whose
    retries need more than a few milliseconds each, may run out of patience before they are let go.

    It ends with the block, also by an exception, and blocks may overlap: nothing is left behind.

    Args:
        max_attempts: No call sends more often, whatever its policy says; None: as the policies say.

    Raises:
        ValueError: ``max_attempts`` is less than 1.
        TypeError: It is no whole number.
    """
    if max_attempts is None:
        return Everywhere(clock=SKIPPING)
    return Everywhere(
        clock=SKIPPING, most_attempts=RetryPolicy(max_attempts=max_attempts).max_attempts
    )


def disabled() -> Everywhere:
    """Let every call of the process be sent once, whatever its policy says: for tests.

    A block and a decorator. Everything else is as after the last attempt in production: what is
    returned or raised, its record and its event; deadlines, keys and breakers work. It reaches what
    ``fast`` reaches, and ends as that does.
    """
    return Everywhere(most_attempts=1)
