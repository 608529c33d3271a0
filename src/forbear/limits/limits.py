"""Limits: everything that outlives the calls of one transport, asked in one order.

What each limit does is in its own file, behind the ``Limit`` protocol (core/call.py). Here are
only the walk through the list, and the schedule of the policy, which all others begin with.
"""

from __future__ import annotations

from math import inf
from random import random as system_random
from typing import TYPE_CHECKING

from ..core.backoff import with_spread
from ..core.call import SILENCE, Call, Limit, Plan
from ..core.checks import shown
from ..core.outcome import TIMEOUT_KINDS, TIMEOUT_STATUSES, FailureKind, Phase, Reason
from ..errors import RetryRefused
from .gate import GateLimit, gate_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..core.backoff import Backoff
    from ..core.call import Quiet
    from ..core.outcome import Failure, Refusal
    from ..core.policy import RetryPolicy
    from .gate import RetryGate


class Limits(Limit):
    """All limits of one transport, as one. Thread-safe as they are.

    Attributes:
        listed: The limits, in the order in which they are asked.
        gate: The gate among them.
        shared: As of each limit: has the plain attribute ``quiet`` that a first attempt reads.
    """

    def __init__(
        self, listed: Iterable[Limit] = (), random: Callable[[], float] | None = None
    ) -> None:
        listed = self.listed = tuple(listed)
        own = next((one.own_random for one in listed if one.own_random is not None), random)
        self.random: Callable[[], float] = system_random if own is None else own
        self._admitting = [one for one in listed if type(one).admit is not Limit.admit]
        self.counts_attempts = any(one.counts_attempts for one in listed)
        self.reads_quotas = any(one.reads_quotas for one in listed)
        self._gate = next((one for one in listed if isinstance(one, GateLimit)), None)
        self.gate: RetryGate | None = None if self._gate is None else self._gate.gate
        noted = self._noted = [one.shared for one in listed if one.shared is not SILENCE]
        self.shared: Quiet = self if len(noted) > 1 else (noted or [SILENCE])[0]

    @property
    def quiet(self) -> bool:
        """Nothing needs to be recorded of a call that succeeds at once."""
        for shared in self._noted:  # noqa: SIM110  # ``all`` takes three times as long
            if not shared.quiet:
                return False
        return True

    def merged(self, policy: RetryPolicy) -> RetryPolicy:
        for limit in self.listed:
            policy = limit.merged(policy)
        return policy

    # What one limit asks of all.

    def closed(self, call: Call, origin: str, now: float) -> float:
        return max((one.closed(call, origin, now) for one in self.listed), default=0.0)

    def wants_probe(self, call: Call, now: float) -> bool:
        return any(one.wants_probe(call, now) for one in self.listed)

    def can_fail_over(self, call: Call) -> bool:
        return any(one.can_fail_over(call) for one in self.listed)

    def fail_over(self, call: Call, now: float) -> float:
        moving = next(one for one in self.listed if one.can_fail_over(call))
        return moving.fail_over(call, now)

    # The steps of a call.

    def begin(self, call: Call, wait: float, now: float) -> float:
        for limit in self.listed:
            wait = limit.begin(call, wait, now)
        return wait

    def admit(self, call: Call, now: float) -> float | None:
        if call.hold is None:
            return self._admit(call, now)
        assert self._gate is not None
        return self._gate.admit_held(call, now, self._admit)

    def _admit(self, call: Call, now: float) -> float | None:
        waits_for: Limit | None = None
        is_admitted = False
        try:
            for limit in self._admitting:
                wait = limit.admit(call, now)
                if wait != 0:
                    waits_for = limit
                    return wait
            is_admitted = True
            return 0.0
        finally:
            if not is_admitted:  # while it waits, others may have what it took from other limits
                for limit in self._admitting:
                    if limit is not waits_for:  # there it keeps its place
                        limit.leave(call, now)

    def observe(self, call: Call, failure: Failure | None, now: float) -> None:
        for limit in self.listed:
            limit.observe(call, failure, now)

    def plan(self, call: Call, failure: Failure, plan: Plan, now: float, latest: float) -> Plan:
        for limit in self.listed:
            plan = limit.plan(call, failure, plan, now, latest)
        return plan

    def take(self, call: Call, failure: Failure, delay: float, now: float, until: float) -> Refusal:
        for limit in self.listed:
            refusal = limit.take(call, failure, delay, now, until)
            if refusal is not None:
                return refusal
        return None

    def leave(self, call: Call, now: float) -> None:
        for limit in self.listed:
            limit.leave(call, now)

    def __repr__(self) -> str:
        parts = [repr(limit.shared) for limit in self.listed if limit.shared is not SILENCE]
        return " ".join(parts) or "no limits"


# A connection that was found closed before anything was sent: a new one mostly holds.
STALE_KINDS = frozenset({FailureKind.RESET, FailureKind.UNPROCESSED})


class Schedule(Limit):
    """When the policy, or the server, wants the retry."""

    shared = SILENCE

    def __init__(self, gate: RetryGate | None = None) -> None:
        self._gate = gate

    def plan(self, call: Call, failure: Failure, plan: Plan, now: float, latest: float) -> Plan:
        asked = failure.hint.delay
        if asked and not call.limits.can_fail_over(call):  # else another is not bound by the hint
            return hinted(call, failure, 0.0, latest)
        policy = call.policy
        longest: float | None = None
        backoff = policy.backoff
        if policy.throttle_backoff is not None and failure.is_throttle:
            backoff = policy.throttle_backoff
        if failure.status == 401:
            # It rejects the credentials (RFC 9110 section 15.5.2), and ``before_attempt`` may send
            # others, so there is no wait; if these fail too, a third attempt is of no use.
            if any(attempt.status == 401 for attempt in call.history):
                raise RetryRefused(Reason.ATTEMPTS_EXHAUSTED)
            delay = 0.0
        elif not call.used_fast_first and (
            failure.stale_connection
            or (
                (longest := getattr(backoff, "fast_first", None)) is not None
                and not asked  # a time that the server named is the wait
                and failure.kind not in TIMEOUT_KINDS  # work may have piled up
                and failure.status not in TIMEOUT_STATUSES
                and (
                    self._gate is None
                    or policy.patience is None
                    or self._gate.may_be_fast(gate_key(self._gate, call, call.origin))
                )
            )
        ):
            call.used_fast_first = True
            call.off_schedule += 1
            delay = 0.0  # at once over a stale connection: no new one has failed yet
            is_unsent = failure.phase is Phase.UNSENT and failure.kind in STALE_KINDS
            if not (is_unsent or failure.stale_connection):
                delay = min(longest or 0.0, max(latest, 0.0)) * call.random()
        else:
            # The schedule's own last wait, not the server's: after an hour's hint the schedule
            # would begin at its cap. A fast first retry does not advance it.
            attempt = max(1, call.attempts - call.off_schedule)  # some may have been given back
            delay = backoff.delay(attempt, call.last_backoff, call.random)
            # NaN is not either, nor None, where a return was forgotten.
            if not (isinstance(delay, (int, float)) and 0 <= delay < inf):
                raise ValueError(f"{type(backoff).__qualname__}.delay returned {shown(delay)}")
            if delay > latest:
                delay = cut_to(latest, backoff, attempt, call, delay)
            call.last_backoff = delay
        if asked:
            return hinted(call, failure, delay, latest)
        return Plan(delay, "backoff", 0.0, delay)


def hinted(call: Call, failure: Failure, backoff: float, latest: float) -> Plan:
    """Wait as long as the server asked: the time itself, not the least time."""
    asked, source = failure.hint.delay, failure.hint.source
    assert asked is not None
    delay = with_spread(asked, call.random() * call.policy.hint_spread, latest)
    return Plan(delay, source or "backoff", asked, backoff)


def cut_to(latest: float, backoff: Backoff, attempt: int, call: Call, delay: float) -> float:
    """Choose a delay in what the deadline leaves, if half of the schedule's range fits."""
    previous = call.last_backoff
    least = backoff.delay(attempt, previous, float)
    most = backoff.delay(attempt, previous, almost_one)
    if not least <= latest or latest - least < (most - least) / 2:
        return delay
    return least + (latest - least) * call.random()


def almost_one() -> float:
    return 1.0 - 2.0**-53
