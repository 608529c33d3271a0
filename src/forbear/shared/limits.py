"""Limits: what one call asks of everything that outlives calls. Floor: remembers.

``Limits`` composes gate, budget, breaker, cooldown and origins; strategy_limits.py asks a user's
``RetryStrategy`` instead. What each shared thing means is its own; here is only the order in which
they are asked. Of a call's state only ``Call`` is written.

| method | asked |
| --- | --- |
| enter | before the first attempt of a call |
| deposit | once per call: as a part of enter, or when a first attempt has failed |
| admit | right before each attempt: may a held call go? takes a probe's permit |
| observe | after each attempt, whoever decides about it |
| plan, refused_for, is_dry, holds, spend | by core/decide.py, in this order |
| accept | when the last answer was accepted, if the call has a strategy's token |
| leave | at the end of each call: gives back what bought an attempt that was not sent |
"""

from __future__ import annotations

from copy import copy
from math import inf
from random import random as system_random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ..core.checks import a_choice
from ..core.outcome import CONNECTION_KINDS, FailureKind, Phase
from ..core.verdict import Reason
from ..errors import RetryRefused
from .circuit import CircuitState
from .gate import LATEST_ASK, MOST_THREADS
from .guards import Guards, hinted
from .health import cost_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.call import Call
    from ..core.outcome import Failure
    from ..core.request import Request
    from ..core.strategy import Budget
    from .breaker import CircuitBreaker
    from .gate import RetryGate
    from .health import Place
    from .origins import Origins

__all__ = ["Limits"]

# Of the cost of a hinted retry: a resumption adds a request to the server's work and no more. With
# the default budget a download may break some 140 times in a row.
RESUMING_SHARE = 0.2


QUIET = SimpleNamespace(quiet=True)  # in place of what is shared, where nothing is


class Limits:
    """Gate, budget, breaker, cooldown and origins of one or more transports. Thread-safe as they
    are.

    Attributes:
        follows: There is a breaker, a cooldown or a list of origins to ask before each attempt.
        most_held: Calls that are held for one origin, unless the gate says another number.
        borrows: The budget may have to be renewed over the network.
        counts_calls: The budget wants ``count_call`` for each call that asks nothing else.
        shared: Has the plain attribute ``quiet`` that a first attempt reads.
        only_gate: The gate, if nobody else wants to know that a call begins.
    """

    def __init__(
        self,
        *,
        gate: RetryGate | None = None,
        budget: Budget | None = None,
        breaker: CircuitBreaker | None = None,
        cooldown: str = "off",
        origins: Origins | None = None,
        random: Callable[[], float] | None = None,
    ) -> None:
        a_choice("cooldown", cooldown, ("off", "retries", "all"))
        self.random: Callable[[], float] = system_random if random is None else random
        self.gate = gate
        self.most_held = MOST_THREADS
        self.budget = budget
        self.guards: Guards | None = None
        if breaker is not None or cooldown != "off" or origins is not None:
            self.guards = Guards(breaker, cooldown, origins, self.random)
        self.follows = self.guards is not None
        self.borrows = hasattr(budget, "needs_renewal")
        self.counts_calls: bool = getattr(budget, "counts_calls", False)
        scope = getattr(budget, "scope", None)
        self._scope_of: Callable[[Request], str] | None = None
        if callable(scope):
            self._scope_of = budget.scope_of  # type: ignore[union-attr]
        self.shared: Any = self
        if not self.follows and self._scope_of is None and (gate is None or budget is None):
            self.shared = gate or budget or QUIET
        self.only_gate = gate if self.shared is gate else None

    def lent(self) -> Limits:
        """Return limits that share all parts, whose transitions are told through another client."""
        other = copy(self)
        if self.guards is not None:
            other.guards = copy(self.guards)
        return other

    @property
    def quiet(self) -> bool:
        """Nothing needs to be recorded of a call that succeeds at once."""
        gate, budget, guards = self.gate, self.budget, self.guards
        return (
            (gate is None or gate.quiet)
            and (budget is None or budget.quiet)
            and (guards is None or guards.is_calm())
        )

    def count_call(self) -> None:
        """Note a call that succeeds at once, for a budget that counts them."""
        self.budget.count_call()  # type: ignore[union-attr]

    # A call begins.

    def enter(self, call: Call, now: float) -> float:
        """Begin a call; return the seconds to wait before its first attempt, nearly always 0.

        Raises:
            RetryRefused: Nothing may be sent.
        """
        delay, guards, gate = 0.0, self.guards, self.gate
        if guards is not None and not guards.is_calm():
            delay = guards.enter(call, now)
        if gate is not None and not gate.quiet:
            gate.begin(call.origin, now)
        self.deposit(call, now)
        return delay

    def deposit(self, call: Call, now: float) -> None:
        """Note a call that did not succeed at once, on the allowance that it has in the budget."""
        if self.budget is None:
            return
        if self._scope_of is not None:
            try:
                call.scope = self._scope_of(call.request)
            except Exception as error:  # of the user's: the call is on its origin
                call.plugin_error = error
        try:
            self.budget.deposit(call.scope, now)
        except Exception as error:  # of a user's own budget: the call loses nothing
            call.plugin_error = error

    # Around each attempt.

    def admit(self, call: Call, now: float) -> float | None:
        """Ask whether the next attempt may be sent.

        Returns:
            0: now. Else seconds until the call asks again. None: its patience is over.

        Raises:
            RetryRefused: The attempt must not be sent.
        """
        guards, place = self.guards, call.place
        if place is None:
            return 0.0 if guards is None else guards.admit(call, now)
        wait = self._turn(call, place, now)
        if wait != 0 or guards is None:
            return wait
        origin, cooled = call.origin, call.cooled
        try:
            wait = guards.admit(call, now)
        except RetryRefused as refused:
            if refused.reason is not Reason.CIRCUIT_OPEN:
                raise
            self.gate.put_back(place)  # type: ignore[union-attr]  # the probe's permit is taken
            wait = LATEST_ASK
        if wait:  # it stays held: its place, its origin and its answer stay too
            call.origin, call.cooled = origin, cooled
            wait = min(wait, place.until - now)
        return wait

    def _turn(self, call: Call, place: Place, now: float) -> float | None:
        """Ask whether a held call may go. While its circuit is open it stays where it is."""
        probe_is_due = False
        breaker = None if self.guards is None else self.guards.breaker
        if place.cause is None and breaker is not None and not breaker.quiet:
            if now < place.until and (refused_for := self.refused_for(call, now)):
                return min(refused_for, LATEST_ASK, place.until - now)
            if breaker.mode == "enforce":
                probe_is_due = breaker.state(call.origin, now) is CircuitState.HALF_OPEN
        gate: Any = self.gate
        wait: float | None = gate.turn(place, now, call.random, probe_is_due=probe_is_due)
        return wait

    def observe(self, call: Call, failure: Failure | None, now: float) -> None:
        """An attempt ended."""
        if self.guards is not None:
            self.guards.observe(call, failure, now)
        gate = self.gate
        if gate is None or call.says_nothing:
            return
        is_retry = bool(call.history) or call.resumption is not None
        cost = -1.0
        if failure is not None and not failure.progress:
            cost = cost_of(failure, is_retry)
        if cost > 0:
            gate.bad(call.sent_to, now, sent_at=call.sent_at, weight=cost)
        elif cost < 0 and not gate.quiet:
            gate.good(call.sent_to, now, retry=is_retry)

    def refused_for(self, call: Call, now: float) -> float:
        """Seconds for which the breaker refuses the origin."""
        return 0.0 if self.guards is None else self.guards.refused_for(call, now)

    # The steps of a decision.

    def plan(
        self, call: Call, failure: Failure, now: float, latest: float
    ) -> tuple[float, str, float]:
        """Say when to send again.

        Returns:
            The delay, who chose it, and how much of it the origin asked for itself.
        """
        guards = self.guards
        if guards is None and failure.hint.delay:
            return hinted(call, failure, latest)
        policy = call.policy
        backoff: Any = policy.backoff
        if policy.throttle_backoff is not None and failure.is_throttle:
            backoff = policy.throttle_backoff
        delay = None
        if failure.status in FAST_STATUSES:
            delay = self._fast_first(call, failure, backoff, latest)
        if delay is None:
            # The schedule's own last wait, not the server's: after an hour's hint the schedule
            # would begin at its cap.
            delay = backoff.delay(call.attempts, call.drawn, call.random)
            if not 0 <= delay < inf:  # NaN too
                raise ValueError(f"the backoff answered {delay!r} s")
            if delay > latest:
                delay = drawn_again(backoff, call, delay, latest)
            call.drawn = delay
        if guards is None:
            return delay, "backoff", 0.0
        return guards.plan(call, failure, delay, now, latest)

    def _fast_first(
        self, call: Call, failure: Failure, backoff: Any, latest: float
    ) -> float | None:
        """The wait of a fast first retry, None if this failure has none."""
        if failure.status == 401:  # nothing but other credentials changes it: no wait, no third try
            if any(attempt.status == 401 for attempt in call.history):
                raise RetryRefused(Reason.ATTEMPTS_EXHAUSTED)
            return 0.0
        if call.used_fast_first:
            return None
        longest: float | None = getattr(backoff, "fast_first", None)
        if longest is None or not (failure.status == 502 or failure.kind in CONNECTION_KINDS):
            return None
        if self.gate is not None and not self.gate.is_well(call.origin):
            return None
        call.used_fast_first = True
        if failure.phase is Phase.UNSENT and failure.kind in STALE_KINDS:
            return 0.0
        return min(longest, max(latest, 0.0)) * call.random()

    def is_dry(self, call: Call, now: float) -> bool:
        """Has the budget spent what it had borrowed?"""
        return self.budget.needs_renewal(call.scope, now)  # type: ignore[union-attr, no-any-return]

    def renew(self, call: Call) -> None:
        """Let the budget borrow more; blocks for a tenth of a second at most."""
        self.budget.renew(call.scope)  # type: ignore[union-attr]

    def holds(
        self, call: Call, failure: Failure, delay: float, now: float, latest_at: float
    ) -> bool:
        """Hold the call until its origin is well; False: it ends with what it has.

        Args:
            call: Not to be sent before its delay is over; its origin is unwell.
            failure: Why it is to be sent again.
            delay: Seconds from now.
            now: The present instant.
            latest_at: When the deadline is over, or the key.
        """
        gate: Any = self.gate
        patience = call.policy.patience
        if not patience:
            return False
        ready_at = now + delay
        patience -= call.held  # in all, however often it is held
        if failure.hint.delay:
            until = ready_at + patience
        else:
            until = call.patient_until = min(call.patient_until, now + patience)
        until = min(until, latest_at)
        call.place = gate.hold(
            call.origin, now, ready_at=ready_at, until=until, most=self.most_held
        )
        return call.place is not None

    def spend(self, call: Call, failure: Failure, now: float) -> bool:
        """Pay for the retry; False: the budget, which there is, does not allow it."""
        budget: Any = self.budget
        cost = 1.0
        if failure.progress:
            cost = budget.hinted_cost * RESUMING_SHARE
        elif call.origin != call.sent_to:
            # No server has seen the request yet, so to all of them this is the first attempt; else
            # it was another origin that named a time.
            if failure.phase is Phase.UNSENT and call.origin not in call.tried:
                cost = 0.0
        elif failure.hint.delay is not None:
            cost = budget.hinted_cost
        call.paid = cost  # first: an interruption then gives back rather than loses
        if budget.spend(call.scope, cost, now):
            return True
        call.paid = 0.0
        return False

    # A second attempt beside the first one.

    def refuses_hedge(self, call: Call, now: float) -> str | None:
        """Choose ``call.origin`` for a second attempt; say why there is none, None: there is."""
        guards, gate, refusal = self.guards, self.gate, "origin-unwell"
        origins = [call.sent_to] if guards is None else guards.beside(call.sent_to, now)
        for origin in origins:
            if gate is not None and not gate.is_well(origin):
                continue
            call.origin = origin
            found = None if guards is None else guards.refuses_hedge(call, now)
            if found is None:
                return None
            refusal = found
        return refusal

    def pays_hedge(self, call: Call, now: float) -> bool:
        """Pay for a second attempt as for a retry; False: the budget does not allow it."""
        if self.budget is None:
            return True
        try:
            if self._scope_of is not None:
                call.scope = self._scope_of(call.request)
            call.paid = float(self.budget.spend(call.scope, 1.0, now))
        except Exception:  # of a user's own budget
            return False
        return call.paid > 0

    # A call ends.

    def leave(self, call: Call, now: float) -> None:
        """Give back the permit and the price of an attempt that was not sent. Idempotent."""
        if call.paid and self.budget is not None:
            self.budget.refund(call.scope, call.paid)
        call.paid = 0.0
        if call.place is not None:
            self.gate.drop(call.place)  # type: ignore[union-attr]
            call.place = None
        if self.guards is not None:
            self.guards.release(call)

    def __repr__(self) -> str:
        parts = (self.gate, self.budget, self.guards)
        return " ".join(repr(part) for part in parts if part is not None) or "no limits"


# A 502 is mostly over at once. A 401 answers the credentials (RFC 9110 section 15.5.2), and
# ``before_attempt`` may send others. None: an error may be of the connection alone.
FAST_STATUSES = frozenset({401, 502, None})
# A connection that was found closed before anything was sent: a new one mostly holds.
STALE_KINDS = frozenset({FailureKind.RESET, FailureKind.UNPROCESSED})


def drawn_again(backoff: Any, call: Call, delay: float, latest: float) -> float:
    """Draw a wait in what the deadline leaves, if at least half of the schedule's range fits."""
    least = backoff.delay(call.attempts, call.drawn, float)
    most = backoff.delay(call.attempts, call.drawn, almost_one)
    if not least <= latest or latest - least < (most - least) / 2:
        return delay
    return least + (latest - least) * call.random()  # type: ignore[no-any-return]


def almost_one() -> float:
    return 1.0 - 2.0**-53
