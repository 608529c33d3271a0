"""Context: the rules of the blocks around a call, and of the request that is being answered.

Loaded with the first block (blocks.py), or the first incoming request (addons/incoming.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf
from typing import Protocol

from .clock import SYSTEM_CLOCK, Clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Unpack

    from ..core.call import Call, Listener
    from ..core.outcome import Reason
    from ..core.policy import RetryPolicy
    from ..core.policy_fields import PolicyFields


class Sender(Protocol):
    """Of the request that is being answered: what it sets for calls that are made for that.

    Attributes:
        retries: Unless 0, these calls are not retried: it retries the request as a whole.
        deadline_at: Until when it waits, on a clock of its own; infinite if there is no limit.
        has_own_deadline: That is the service's own, not the sender's.
    """

    retries: int
    deadline_at: float
    has_own_deadline: bool

    def deadline_on(self, clock: Clock, now: float) -> float:
        """The deadline as an instant of another clock."""
        ...

    def lines(self, left: float) -> list[tuple[str, str]]:
        """Return the header lines of an attempt for which so many seconds are left."""
        ...

    def cuts(self, call: Call, clock: Clock) -> bool:
        """Did its deadline leave the attempt less time than responses take?"""
        ...

    def note_end(self, attempts: int, reason: Reason) -> None:
        """A call has ended without success, after so many attempts."""


@dataclass(eq=False)
class CallContext:
    """The rules of all enclosing blocks together. Not changed once it is in use.

    Attributes:
        fields: Overridden fields of the policy.
        deadline_at: That of the blocks, on ``clock``; a sender has one of its own.
        listeners: They receive the events of the calls inside that fail.
        sender: Of the request that is being answered.
        most_attempts: No call makes more attempts, whatever its policy says; set by tests.
        random: Replaces the system's random numbers; set by tests.
        block: The block that made it.
        outer: The scope to return to when the block ends.
        thread: The identifier of the thread that the block was entered in.
        is_left: The block has ended.
    """

    fields: PolicyFields
    deadline_at: float = inf
    clock: Clock = SYSTEM_CLOCK
    listeners: tuple[Listener, ...] = ()
    sender: Sender | None = None
    most_attempts: float = inf
    random: Callable[[], float] | None = None
    block: object = field(default=None, init=False)
    outer: CallContext | None = field(default=None, init=False)
    thread: int = field(default=0, init=False)
    is_left: bool = field(default=False, init=False)

    @property
    def asks_nothing(self) -> bool:
        """Nothing here affects a first attempt that succeeds."""
        return not (self.fields or self.has_deadline() or self.sends_once())

    def merged(self, policy: RetryPolicy) -> RetryPolicy:
        """Return the policy with the overridden fields."""
        return replaced(policy, self.fields) if self.fields else policy

    def deadline_on(self, clock: Clock, now: float) -> float:
        """The deadline as an instant of another clock, by the time left now."""
        ends_at = converted(self.deadline_at, self.clock, clock, now)
        if self.sender is None:
            return ends_at
        return min(ends_at, self.sender.deadline_on(clock, now))

    def has_deadline(self) -> bool:
        return self.deadline_at != inf or (
            self.sender is not None and self.sender.deadline_at != inf
        )

    def sends_once(self) -> bool:
        """Is the request that is being answered itself a retry?"""
        return self.sender is not None and self.sender.retries > 0

    def joined(self, tests: CallContext) -> CallContext:
        """Return these rules with what a test sets for the whole process."""
        listeners = self.listeners + tests.listeners
        most_attempts, random = tests.most_attempts, tests.random
        return replace(self, listeners=listeners, most_attempts=most_attempts, random=random)


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
