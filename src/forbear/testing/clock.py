"""The waits of tests: FakeClock, fast(), assert_schedule(); and disabled() and record().

A FakeClock advances only when a call sleeps. Inside fast() retries take no time.
"""

from __future__ import annotations

import threading
import time
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import zip_longest
from math import inf
from typing import TYPE_CHECKING

from ..core.policy import RetryPolicy
from ..core.waits import ranges
from ..engine import current
from ..engine.blocks import Block, F
from ..engine.clock import SYSTEM_CLOCK
from ..engine.context import CallContext

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    from ..engine.clock import Clock
    from ..events import Event


async def checkpoint() -> None:
    """Let other tasks run and a cancellation arrive, as in a real sleep."""
    import anyio.lowlevel

    await anyio.lowlevel.checkpoint()


class FakeClock:
    """A clock for ``clock=``: its sleeps return at once, advance it, and are recorded.

    Tasks that sleep at the same time wake in the order in which they would, and leave the clock at
    the latest of their ends; the sleeps of threads add up. Thread-safe.

    Attributes:
        sleeps: Seconds of each wait, sync and async, in order, as in ``CallRecord.waits``. A wait
            that is slept in parts, because its call is held, is one.

    Args:
        now: Unix seconds at the start; the default is 2026-01-01 00:00:00 UTC.
        monotonic: The first instant; not 0, because a false value hides mistakes.
    """

    def __init__(self, now: float = 1_767_225_600.0, *, monotonic: float = 1_000.0) -> None:
        self._utc_offset = now
        self._began_at = monotonic
        self._elapsed = 0.0
        self.sleeps: list[float] = []
        self._ends: list[float] = []  # of the tasks that sleep, in elapsed seconds
        self._lock = threading.RLock()  # the sleep of a subclass may do anything

    def monotonic(self) -> float:
        with self._lock:
            return self._began_at + self._elapsed

    def time(self) -> float:
        with self._lock:
            return self._utc_offset + self._elapsed

    def sleep(self, seconds: float) -> None:
        clock, index = PART_OF.get()
        PART_OF.set((None, 0))
        if clock is not self or index >= len(self.sleeps):
            LAST.set((self, len(self.sleeps), self.monotonic()))
            self.sleeps.append(seconds)
        else:  # to the nanosecond: the parts are differences of instants
            self.sleeps[index] = round(self.sleeps[index] + seconds, 9)
        self.advance(seconds)

    def goes_on(self, since: float) -> None:
        """Count the next sleep of this thread or task to its last one, if that began ``since``."""
        clock, index, began_at = LAST.get()
        PART_OF.set((self if clock is self and began_at >= since else None, index))

    async def asleep(self, seconds: float) -> None:
        with self._lock:  # else another thread would read, or advance, a clock that is ahead
            began_at = self._elapsed
            self.sleep(seconds)  # a subclass may override it
            ends_at, self._elapsed = self._elapsed, began_at
            self._ends.append(ends_at)
        try:
            await checkpoint()
            while min(self._ends) < ends_at:
                await checkpoint()
            with self._lock:
                self._elapsed = max(self._elapsed, ends_at)
        finally:
            self._ends.remove(ends_at)

    def advance(self, seconds: float) -> None:
        """Let time pass without a sleep.

        Raises:
            ValueError: Time does not go back; to step the wall clock use ``step_utc``.
        """
        if seconds < 0:
            raise ValueError(f"time does not go back, got {seconds}; step_utc steps the wall clock")
        with self._lock:
            self._elapsed += seconds

    def step_utc(self, seconds: float) -> None:
        """Step the wall clock only, as an operator or NTP does; monotonic time is not changed."""
        with self._lock:
            self._utc_offset += seconds

    def __repr__(self) -> str:
        return f"<FakeClock +{self._elapsed:.6g} s, {len(self.sleeps)} sleeps>"


# Of this thread or task: the last sleep (clock, index in ``sleeps``, instant), and the index of the
# one that the next sleep is a part of.
LAST: ContextVar[tuple[FakeClock | None, int, float]] = ContextVar("last", default=(None, 0, 0.0))
PART_OF: ContextVar[tuple[FakeClock | None, int]] = ContextVar("part_of", default=(None, 0))


def pause_of(seconds: float) -> float:
    """Return what a skip really takes, in seconds: for 10 s in the steps of a held call 50 ms."""
    return min(seconds / 150, 0.002)


class SkippingClock:
    """The system's clock plus the waits that were skipped, which count although they take no time.

    Each task and thread skips by itself, as each would have waited by itself: after ten concurrent
    calls that wait a second each, all of them are one second later. A skip really takes up to 2 ms,
    because a held call that skips its patience in no time would end before the response to the
    retry that releases it.
    """

    def monotonic(self) -> float:
        return SYSTEM_CLOCK.true_monotonic() + SKIPPED.get()

    def time(self) -> float:
        """Return the real time: it is compared with dates of servers, which skip nothing."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        SKIPPED.set(SKIPPED.get() + seconds)
        time.sleep(pause_of(seconds))

    async def asleep(self, seconds: float) -> None:
        SKIPPED.set(SKIPPED.get() + seconds)
        ends_at = SYSTEM_CLOCK.true_monotonic() + pause_of(seconds)
        await checkpoint()
        # Not with a timer of the loop, which may be frozen; of concurrent tasks only one pauses.
        left = ends_at - SYSTEM_CLOCK.true_monotonic()
        if left > 0:
            time.sleep(left)
            await checkpoint()


SKIPPED: ContextVar[float] = ContextVar("forbear_skipped", default=0.0)  # seconds
SKIPPING = SkippingClock()


class RecordedEvents(Block, list["Event"]):
    """Events in order: of a ``with`` block's calls, or of a transport's as its ``on_event``."""

    def inside(self, outer: CallContext) -> CallContext:
        listeners = (*outer.listeners, self.append)
        return CallContext(outer.fields, outer.deadline_at, outer.clock, listeners, outer.sender)

    def __call__(self, event: Event) -> None:  # type: ignore[override]
        self.append(event)

    @property
    def names(self) -> list[str]:
        """The events' names, in order."""
        return [event.name for event in self]

    def named(self, name: str) -> list[Event]:
        """The events of one name, such as "gave_up"; ValueError if there is no such name."""
        from ..events import Event

        names = [kind._field_defaults["name"] for kind in Event.__args__]
        if name not in names:  # a typing error would make a test pass for ever
            raise ValueError(f"there is no event {name!r}; they are {', '.join(names)}")
        return [event for event in self if event.name == name]

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


_shared = threading.RLock()  # reentrant, since a generator that is closed meanwhile may leave one
_entered: list[Everywhere] = []  # a block is listed once per thread that is in it


@dataclass(eq=False, kw_only=True)
class Everywhere(Block):
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
        with _shared:
            _entered.append(self)
            apply()
        return self

    def __exit__(self, *exception: object) -> None:
        with _shared:
            _entered.remove(self)
            apply()

    def __call__(self, function: F) -> F:
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
    scope = CallContext({}, listeners=listeners)
    scope.most_attempts = min((block.most_attempts for block in _entered), default=inf)
    scope.random = next((block.random for block in reversed(_entered) if block.random), None)
    current.everywhere = scope if _entered else None


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
    most = inf if max_attempts is None else RetryPolicy(max_attempts=max_attempts).max_attempts
    return Everywhere(clock=SKIPPING, most_attempts=most)


def disabled() -> Everywhere:
    """Let every call of the process be sent once, whatever its policy says: for tests.

    A block and a decorator. Everything else is as after the last attempt in production: what is
    returned or raised, its record and its event; deadlines, keys and breakers work. It reaches what
    ``fast`` reaches, and ends as that does.
    """
    return Everywhere(most_attempts=1)


SLACK = 1e-9  # relative; of sums of binary fractions


def assert_schedule(policy: RetryPolicy, waits: Sequence[tuple[float, float]]) -> None:
    """Fail unless each wait of the policy's ``backoff``, with any jitter, is within its bounds.

    ``assert_schedule(policy, [(0, 0.5), (0, 1)])``: two retries, at most half a second and a second
    after the attempt before. A decorrelated wait depends on the one before, so every length of that
    is tried. For the schedule after throttling pass
    ``policy.replace(backoff=policy.throttle_backoff)``; server hints and deadlines are not part of
    it.

    Args:
        policy: Whose schedule it is.
        waits: For each retry the least and the longest wait in seconds; wider than need be is fine.

    Raises:
        AssertionError: A wait can be shorter or longer, or there are more or fewer retries; the
            message shows all.
    """
    found = ranges(policy.backoff, policy.max_attempts - 1)
    if len(found) == len(waits) and all(map(is_within, found, waits)):
        return
    message = f"the schedule of {policy.backoff!r} with max_attempts={policy.max_attempts}"
    message += " is another one:"
    for number, (span, bound) in enumerate(zip_longest(found, waits), start=1):
        made = "is not made" if span is None else f"waits {shown(span)}"
        message += f"\n  retry {number}: {made}"
        if bound is None:
            message += ", not expected"
        elif span is None or not is_within(span, bound):
            message += f", expected {shown(bound)}"
    raise AssertionError(message)


def is_within(span: tuple[float, float], bounds: tuple[float, float]) -> bool:
    slack = SLACK * max(1.0, span[1])
    return bounds[0] - slack <= span[0] and span[1] <= bounds[1] + slack


def shown(span: tuple[float, float]) -> str:
    least, longest = (f"{seconds:.6g}" for seconds in span)
    return f"{least} s" if least == longest else f"{least} to {longest} s"
