"""fast() and disabled(): blocks in which retries take no time, or are not made. Floor: acts."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from .._rehearsal import Rehearsal
from ..core.policy import RetryPolicy
from ..sending.clock import SKIPPING
from ..sending.context import Block, F

if TYPE_CHECKING:
    from typing import Self

__all__ = ["Rehearsing", "disabled", "fast"]


class Rehearsing(Block):
    """A rehearsal as a ``with`` block, sync or async code, or as a decorator. Any number of tasks
    may be in one.
    """

    __slots__ = ("_begun", "_rules")

    def __init__(self, **rules: Any) -> None:
        self._rules = rules  # of Rehearsal
        self._begun: list[Rehearsal] = []

    def __enter__(self) -> Self:
        rehearsal = Rehearsal(**self._rules)
        self._begun.append(rehearsal)
        rehearsal.begin()
        return self

    def __exit__(self, *exception: object) -> None:
        # Each exit ends one, also where a fixture is left in another task than it was entered in.
        mine = [rehearsal for rehearsal in self._begun if rehearsal.is_around()] or self._begun
        mine[-1].end()
        self._begun.remove(mine[-1])

    def __call__(self, function: F) -> F:
        if isinstance(function, type):
            raise TypeError(
                f"decorate the functions of {function.__name__}, or let them use the fixture forbear_fast"
            )
        return super().__call__(function)

    def _fresh(self) -> Block:
        return Rehearsing(**self._rules)


def fast(*, max_attempts: int | None = None) -> Rehearsing:
    """Let no wait between attempts take time, whatever transports send them: a block and a
    decorator for tests.

    For code whose transports are out of reach: ``with fast(): …``, around async code too, or
        ``@fast()`` on a test.
    It reaches transports of every adapter, built before or inside, in SDK clients, tasks and
    threads. What is retried, given up and recorded is as in production: a wait that is skipped
    counts as waited for deadlines, breakers, budgets and records; only dates that servers send are
    compared with the real time. A transport with a ``clock=`` of its own keeps it. Timers that are
    not forbear's, such as ``asyncio.timeout`` or an SDK's own loop, run in real time.

    Entered in a task of asyncio or trio it holds for that task, for what it starts, and for all
    other threads; entered anywhere else, as in a fixture, for the whole process. A call is in it if
    it failed for the first time inside. It ends with the block, also by an exception, and blocks
    may overlap: nothing is left behind.

    Args:
        max_attempts: No call sends more often, whatever its policy says; None: as the policies say.

    Raises:
        ValueError: ``max_attempts`` is less than 1.
        TypeError: It is no whole number.
    """
    most: float = (
        inf if max_attempts is None else RetryPolicy(max_attempts=max_attempts).max_attempts
    )
    return Rehearsing(clock=SKIPPING, most_attempts=most)


def disabled() -> Rehearsing:
    """Let every call be sent once, whatever its policy says: a block and a decorator for tests.

    Everything else is as after the last attempt in production: what is returned or raised, its
        record and its
    event; deadlines, keys and breakers work. It reaches what ``fast`` reaches, and ends as that
    does.
    """
    return Rehearsing(most_attempts=1)
