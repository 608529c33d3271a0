"""Context: the rules of the blocks around a call, and of the request that is being answered.

Loaded with the first block (blocks.py), or the first incoming request (addons/incoming.py).
"""

from __future__ import annotations

from functools import lru_cache
from math import inf

from ..core.outcome import Reason
from .clock import SYSTEM_CLOCK, Clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Unpack

    from ..core.call import Call
    from ..core.policy import RetryPolicy
    from ..core.policy_fields import PolicyFields


# Seconds within which most origins respond, unless the policy's own limits are shorter.
USUAL_RESPONSE_TIME = 1.0
# Envoy's header for the milliseconds in which the sender expects the response.
EXPECTED = "x-envoy-expected-rq-timeout-ms"


class Incoming:
    """The request that is being answered: what it sets for calls made for it, what came of them.

    All contexts that descend from the request's share this object, on any thread, so each attribute
    is only assigned: no value depends on one read before, and there is no lock.

    Attributes:
        retries: How often it was sent before. Unless 0, the calls made for it are not retried,
            because its sender retries it as a whole. 0 once its response is sent.
        deadline_at: Until when its sender waits, on ``clock``; infinite once its response is sent.
        has_own_deadline: That is the service's own, not its sender's.
        announces_deadline: Calls made for it send the time that is left in a header.
        gave_up: A call made for it gave up in a way that should stop the retries of its sender.
    """

    __slots__ = (
        "announces_deadline", "clock", "deadline_at", "gave_up", "has_own_deadline", "retries",
    )  # fmt: skip

    def __init__(
        self,
        retries: int,
        deadline_at: float,
        clock: Clock,
        announces_deadline: bool,
        has_own_deadline: bool = False,
    ) -> None:
        self.retries = retries
        self.deadline_at = deadline_at
        self.has_own_deadline = has_own_deadline
        self.clock = clock
        self.announces_deadline = announces_deadline
        self.gave_up = False

    def lines(self, left: float) -> list[tuple[str, str]]:
        """Return the header lines of an attempt for which so many seconds are left."""
        if not self.announces_deadline:
            return []
        return [(EXPECTED, str(max(1, int(left * 1000))))]  # 0 would mean no limit

    def deadline_on(self, clock: Clock, now: float) -> float:
        """The deadline as an instant of another clock."""
        return converted(self.deadline_at, self.clock, clock, now)

    def note_end(self, attempts: int, reason: Reason) -> None:
        """A call made for it has ended without success, after so many attempts."""
        if ends_outer_loops(attempts, reason):
            self.gave_up = True

    def end(self) -> None:
        """Limit calls no more: its response is sent, and tasks that it started may outlive it."""
        self.retries = 0
        self.deadline_at = inf


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
        block: The block that made it.
        outer: The scope to return to when the block ends.
        thread: The identifier of the thread that the block was entered in.
        is_left: The block has ended.
    """

    def __init__(
        self,
        fields: PolicyFields,
        deadline_at: float = inf,
        clock: Clock = SYSTEM_CLOCK,
        listeners: tuple[Callable[[Any], object], ...] = (),
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
        self.block: object = None
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
        return min(ends_at, self.incoming.deadline_on(clock, now))

    def cuts(self, call: Call, clock: Clock) -> bool:
        """Did the incoming request leave the attempt less time than responses take?

        Then the timeout says nothing about the origin, and must not open its breaker: any client
        can send a deadline of 40 ms.
        """
        incoming, policy, now = self.incoming, call.policy, clock.monotonic()
        if incoming is None or incoming.has_own_deadline:
            return False
        if incoming.deadline_on(clock, now) > call.deadline_at:
            return False  # our own was earlier
        usual = USUAL_RESPONSE_TIME
        own = policy.attempt_timeout or usual, policy.total_timeout or usual
        return now - call.sent_at < min(*own, usual)

    def has_deadline(self) -> bool:
        return self.deadline_at != inf or (
            self.incoming is not None and self.incoming.deadline_at != inf
        )

    def sends_once(self) -> bool:
        """Is the request that is being answered itself a retry?"""
        return self.incoming is not None and self.incoming.retries > 0

    def joined(self, tests: CallContext) -> CallContext:
        """Return these rules with what a test sets for the whole process."""
        listeners = self.listeners + tests.listeners
        joined = CallContext(self.fields, self.deadline_at, self.clock, listeners, self.incoming)
        joined.most_attempts, joined.random = tests.most_attempts, tests.random
        return joined


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


def ends_outer_loops(attempts: int, reason: Reason) -> bool:
    """Return whether the loops above us should not retry after a call has ended so.

    Yes if we have retried ourselves, or must not for the sake of the server. Not after a single
    attempt that only we may not retry: a key of the caller's can make their request safe.
    """
    return attempts > 1 or reason in FOR_THE_SERVER


FOR_THE_SERVER = frozenset(
    {Reason.SERVER_SAID_NO, Reason.RETRY_AFTER_TOO_LONG}
    | {Reason.CIRCUIT_OPEN, Reason.BUDGET_EXHAUSTED}
)
