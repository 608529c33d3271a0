"""Limits: everything that outlives the calls of one transport, asked in one order.

What each limit does is in its own file, behind the ``Limit`` protocol (core/call.py). Here are
only the list, the walk through it, and the schedule of the policy, which all others begin with.
"""

from __future__ import annotations

from copy import copy
from math import inf
from random import random as system_random
from typing import TYPE_CHECKING

from ..core.backoff import with_spread
from ..core.call import Call, Limit, Plan
from ..core.checks import check_choice, shown
from ..core.outcome import TIMEOUT_KINDS, TIMEOUT_STATUSES, FailureKind, Phase, Reason
from ..errors import RetryRefused
from .gate import GateLimit, gate_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..addons.breaker import BreakerLimit, CircuitBreaker
    from ..addons.budget import BudgetLimit
    from ..addons.concurrency import ConcurrencyLimit, SlotLimit
    from ..addons.cooldown import CooldownLimit
    from ..addons.origins import Origins, OriginsLimit
    from ..addons.pacing import Pacing, PacingLimit
    from ..core.backoff import Backoff
    from ..core.call import Quiet
    from ..core.outcome import Failure, Refusal
    from ..core.strategy import Budget, RetryStrategy
    from .gate import RetryGate


class Silence:
    """Stands for what limits share, where nothing is shared."""

    quiet = True


SILENCE = Silence()


class Limits(Limit):
    """All limits of one transport, as one. Thread-safe as they are.

    Attributes:
        listed: The limits, in the order in which they are asked.
        counts_calls: The budget wants ``count_call`` for each call that asks nothing else.
        shared: As of each limit: has the plain attribute ``quiet`` that a first attempt reads.
    """

    def __init__(
        self,
        *,
        gate: RetryGate | None = None,
        budget: Budget | None = None,
        breaker: CircuitBreaker | None = None,
        cooldown: str = "off",
        origins: Origins | None = None,
        strategy: RetryStrategy | None = None,
        concurrency: ConcurrencyLimit | None = None,
        pacing: Pacing | None = None,
        random: Callable[[], float] | None = None,
    ) -> None:
        check_choice("cooldown", cooldown, ("off", "retries", "all"))
        self.random: Callable[[], float] = system_random if random is None else random
        self.gate, self.budget, self.strategy = gate, budget, strategy
        # What few transports have is loaded where it is given.
        self.cooldown: CooldownLimit | None = None
        if cooldown != "off":
            from ..addons.cooldown import CooldownLimit

            self.cooldown = CooldownLimit(cooldown, self.random, breaker)
        self.breaker: BreakerLimit | None = None
        if breaker is not None:
            from ..addons.breaker import BreakerLimit

            self.breaker = BreakerLimit(breaker)
        self.origins: OriginsLimit | None = None
        if origins is not None:
            from ..addons.origins import OriginsLimit

            refused_for = at_once if breaker is None else breaker.refused_for
            cooling = at_once if self.cooldown is None else self.cooldown.cooldown.left
            self.origins = OriginsLimit(origins, refused_for, cooling)
        self._gate = None if gate is None else GateLimit(gate, self.breaker)
        self.budget_limit: BudgetLimit | None = None
        if budget is not None:
            from ..addons.budget import BudgetLimit

            self.budget_limit = BudgetLimit(budget)
        self.slots: SlotLimit | None = None
        if concurrency is not None:
            from ..addons.concurrency import SlotLimit

            self.slots = SlotLimit(concurrency)
        self.pacing: PacingLimit | None = None
        if pacing is not None:
            from ..addons.pacing import PacingLimit

            self.pacing = PacingLimit(pacing)
        for limit in (self.breaker, self.cooldown):
            if limit is not None:
                limit.origins = self.origins
        schedule: Limit = Schedule(gate, self.origins)
        if strategy is not None:
            from ..addons.strategy import StrategyLimit

            schedule = StrategyLimit(strategy)
        self._list(
            # The order of a decision: when and where, then whether. What takes something stands
            # last, because a retry that a later limit refuses would keep it. A strategy of the
            # user's takes the place of all others.
            schedule,
            self.origins,
            self.cooldown,
            self.pacing,
            self.breaker,
            self.slots,  # after what may delay an attempt, because one that waits has no slot
            self._gate,
            self.budget_limit,
        )

    def _list(self, *limits: Limit | None) -> None:
        listed = self.listed = tuple(limit for limit in limits if limit is not None)
        self._admitting = [one for one in listed if type(one).admit is not Limit.admit]
        self.counts_calls: bool = getattr(self.budget, "counts_calls", False)
        noted = self._noted = [one.shared for one in listed if one.shared is not SILENCE]
        self.shared: Quiet = self if len(noted) > 1 else (noted or [SILENCE])[0]

    def lent(self, concurrency: ConcurrencyLimit | None, pacing: Pacing | None) -> Limits:
        """Return limits that share all parts, whose transitions another client emits.

        ``concurrency`` and ``pacing`` are added.
        """
        other = copy(self)
        added = Limits(concurrency=concurrency, pacing=pacing)
        other.slots, other.pacing = added.slots, added.pacing
        if self.breaker is not None:
            other.breaker = copy(self.breaker)
        own = (other.breaker if one is self.breaker else one for one in self.listed)
        other._list(*own, other.pacing, other.slots)
        return other

    def hold_at_most(self, calls: int) -> None:
        """Hold so many calls of one origin, unless the gate says another number."""
        if self._gate is not None:
            self._gate.most_held = calls

    @property
    def quiet(self) -> bool:
        """Nothing needs to be recorded of a call that succeeds at once."""
        for shared in self._noted:  # noqa: SIM110  # ``all`` takes three times as long
            if not shared.quiet:
                return False
        return True

    def budget_scope(self, call: Call) -> str:
        """What the budget keeps an allowance of, for this call."""
        return (
            call.request.origin if self.budget_limit is None else self.budget_limit.scope_of(call)
        )

    def count_call(self) -> None:
        """Note a call that succeeds at once, for a budget that counts them."""
        self.budget.count_call()  # type: ignore[union-attr]

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


def at_once(*asked: object) -> float:
    """Seconds until what is not limited may be sent."""
    return 0.0


# A connection that was found closed before anything was sent: a new one mostly holds.
STALE_KINDS = frozenset({FailureKind.RESET, FailureKind.UNPROCESSED})


class Schedule(Limit):
    """When the policy, or the server, wants the retry."""

    shared = SILENCE

    def __init__(self, gate: RetryGate | None, origins: OriginsLimit | None) -> None:
        self._gate = gate
        self._may_fail_over = origins is not None

    def plan(self, call: Call, failure: Failure, plan: Plan, now: float, latest: float) -> Plan:
        asked = failure.hint.delay
        if asked and not self._may_fail_over:  # else another origin is not bound by the hint
            return hinted(call, failure, 0.0, latest)
        policy, progress = call.policy, call.progress
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
        elif not progress.used_fast_first and (
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
            progress.used_fast_first = True
            progress.off_schedule += 1
            delay = 0.0  # at once over a stale connection: no new one has failed yet
            is_unsent = failure.phase is Phase.UNSENT and failure.kind in STALE_KINDS
            if not (is_unsent or failure.stale_connection):
                delay = min(longest or 0.0, max(latest, 0.0)) * call.random()
        else:
            # The schedule's own last wait, not the server's: after an hour's hint the schedule
            # would begin at its cap. A fast first retry does not advance it.
            attempt = max(1, call.attempts - progress.off_schedule)  # some may have been given back
            delay = backoff.delay(attempt, progress.last_backoff, call.random)
            try:
                is_right = 0 <= delay < inf  # NaN is not
            except TypeError:  # None, most likely: a return was forgotten
                is_right = False
            if not is_right:
                raise ValueError(f"{type(backoff).__qualname__}.delay returned {shown(delay)}")
            if delay > latest:
                delay = cut_to(latest, backoff, attempt, call, delay)
            progress.last_backoff = delay
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
    previous = call.progress.last_backoff
    least = backoff.delay(attempt, previous, float)
    most = backoff.delay(attempt, previous, almost_one)
    if not least <= latest or latest - least < (most - least) / 2:
        return delay
    return least + (latest - least) * call.random()


def almost_one() -> float:
    return 1.0 - 2.0**-53
