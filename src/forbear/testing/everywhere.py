"""fast(), disabled() and record(): retries that take no time, are off, or are recorded."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from ..core.policy import RetryPolicy
from ..engine import context
from ..engine.clock import SYSTEM_CLOCK
from ..engine.context import Listening
from .clock import SKIPPING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Self

    from ..core.events import Event
    from ..engine.clock import Clock


class RecordedEvents(Listening):
    """Events in order: of a ``with`` block's calls, or of a transport's as its ``on_event``."""

    def __init__(self) -> None:
        self._kept: list[Event] = []
        super().__init__(self._kept.append)

    def __call__(self, event: Event) -> None:  # type: ignore[override]
        self._kept.append(event)

    def __iter__(self) -> Iterator[Event]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def __getitem__(self, index: int) -> Event:
        return self._kept[index]

    @property
    def names(self) -> list[str]:
        """The events' names, in order."""
        return [event.name for event in self._kept]

    def named(self, name: str) -> list[Event]:
        """The events of one name, such as "gave_up"; ValueError if there is no such name."""
        from ..core.events import Event

        names = [kind._field_defaults["name"] for kind in Event.__args__]
        if name not in names:  # a typing error would make a test pass for ever
            raise ValueError(f"there is no event {name!r}; they are {', '.join(names)}")
        return [event for event in self._kept if event.name == name]

    def assert_retried(self, times: int, reasons: Sequence[str] | None = None) -> None:
        """Fail unless so many retries were scheduled, for these statuses or exception classes."""
        found = [
            str(getattr(event, "status", None) or getattr(event, "error", None))
            for event in self.named("retry_scheduled")
        ]
        if len(found) != times:
            raise AssertionError(f"expected {times} retries, there were {len(found)}: {found}")
        if reasons is not None and found != list(reasons):
            raise AssertionError(f"expected retries for {list(reasons)}, they were for {found}")

    def assert_no_events(self, name: str) -> None:
        """Fail if there was an event of this name; ValueError if there is no such name."""
        found = self.named(name)
        if found:
            raise AssertionError(f"expected no {name}, got {found}")

    def __repr__(self) -> str:
        return f"<RecordedEvents {self.names}>"


def record() -> RecordedEvents:
    """Return an object that records events for assertions.

    ``with record() as events:`` records those of every call made in this context;
    ``on_event=[events]`` records those of one transport, from any thread.
    """
    return RecordedEvents()


_lock = threading.RLock()
_entered: list[Everywhere] = []  # a block is listed once per thread that is in it


@dataclass(eq=False, kw_only=True)
class Everywhere(context.Block):
    """Rules for every call of the process: a ``with`` block, and a decorator. Thread-safe.

    Blocks may overlap, in any order and from any thread: each exit ends one entry.

    Args:
        clock: In place of the system's; transports with a clock of their own keep it. A clock that
            a test reads wins over one that skips; of several the one entered last.
        random: In place of the system's random numbers; the one entered last.
        most_attempts: No call makes more attempts, whatever its policy says; the fewest.
        listener: Receives the events of all calls; that of each block does.
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
    """Set the clock and the scope of the process from all entered blocks."""
    clocks = [block.clock for block in _entered if block.clock is not None]
    read = [clock for clock in clocks if clock is not SKIPPING]
    SYSTEM_CLOCK.replace_by((read or clocks)[-1] if clocks else None)
    listeners = tuple(block.listener for block in _entered if block.listener is not None)
    scope = context.CallContext({}, listeners=listeners)
    scope.most_attempts = min((block.most_attempts for block in _entered), default=inf)
    scope.random = next((block.random for block in reversed(_entered) if block.random), None)
    context.everywhere = scope if _entered else None


def fast(*, max_attempts: int | None = None) -> Everywhere:
    """Make waits between attempts take no time, in every transport: for tests.

    For code whose transports are out of reach: ``with fast(): …``, around async code too, or
    ``@fast()`` on a test. It holds for the whole process: for transports of every adapter, built
    before or inside, in SDK clients, tasks and threads. What is retried, given up and recorded is
    as in production: a wait that is skipped counts as waited for deadlines, breakers, budgets and
    records; only dates that servers send are compared with the real time. A transport with a
    ``clock=`` of its own keeps it. Timers that are not forbear's, such as ``asyncio.timeout`` or an
    SDK's own loop, run in real time. So do requests: calls that are held together, and whose
    retries need more than a few milliseconds each, may run out of patience before their release.

    It ends with the block, also by an exception, and blocks may overlap: nothing is left behind.

    Args:
        max_attempts: No call makes more attempts, whatever its policy says; None: no such limit.

    Raises:
        ValueError: ``max_attempts`` is less than 1.
        TypeError: It is not a whole number.
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
