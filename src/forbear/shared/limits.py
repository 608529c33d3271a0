"""Limits: what one call asks of everything that outlives calls. Floor: remembers.

``Limits`` composes budget, breaker, cooldown and origins; strategy_limits.py asks a user's
``RetryStrategy`` instead. What each shared thing means is its own; here is only the order in which
they are asked. Of a call's state only ``Call`` is written.

| method | asked |
| --- | --- |
| enter | once per call: before the first attempt, or when a first attempt has failed |
| admit | right before each attempt: takes a probe's permit |
| observe | after each attempt, whoever decides about it |
| plan, refused_for, is_dry, spend | by core/decide.py, in this order |
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
from ..core.outcome import MOMENTARY_KINDS, Phase
from .guards import Guards, hinted

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.call import Call
    from ..core.outcome import Failure
    from ..core.request import Request
    from ..core.strategy import Budget
    from .breaker import CircuitBreaker
    from .origins import Origins

__all__ = ["Limits"]

# Of the cost of a hinted retry: a resumption adds a request to the server's work and no more. With
# the default budget a download may break some 140 times in a row.
RESUMING_SHARE = 0.2


QUIET = SimpleNamespace(quiet=True)  # in place of what is shared, where nothing is


class Limits:
    """Budget, breaker, cooldown and origins of one or more transports. Thread-safe as they are.

    Attributes:
        follows: There is a breaker, a cooldown or a list of origins: ``admit``, ``observe`` and
            ``refused_for`` are those of ``guards``.
        borrows: The budget may have to be renewed over the network.
        counts_calls: The budget wants ``count_call`` for each call that asks nothing else.
        shared: Has the plain attribute ``quiet`` that a first attempt reads.
    """

    def __init__(
        self,
        *,
        budget: Budget | None = None,
        breaker: CircuitBreaker | None = None,
        cooldown: str = "off",
        origins: Origins | None = None,
        random: Callable[[], float] | None = None,
    ) -> None:
        a_choice("cooldown", cooldown, ("off", "retries", "all"))
        self.random: Callable[[], float] = system_random if random is None else random
        self.budget = budget
        self.guards: Guards | None = None
        if breaker is not None or cooldown != "off" or origins is not None:
            self._take_guards(Guards(breaker, cooldown, origins, self.random))
        self.follows = self.guards is not None
        self.borrows = hasattr(budget, "needs_renewal")
        self.counts_calls: bool = getattr(budget, "counts_calls", False)
        scope = getattr(budget, "scope", None)
        self._scope_of: Callable[[Request], str] | None = None
        if callable(scope):
            self._scope_of = budget.scope_of  # type: ignore[union-attr]
        self.shared: Any = self
        if not self.follows and self._scope_of is None:
            self.shared = QUIET if budget is None else budget

    def _take_guards(self, guards: Guards) -> None:
        self.guards = guards
        self.admit = guards.admit  # type: ignore[method-assign]
        self.observe = guards.observe  # type: ignore[method-assign]
        self.refused_for = guards.refused_for  # type: ignore[method-assign]

    def lent(self) -> Limits:
        """Return limits that share all parts, whose transitions are told through another client."""
        other = copy(self)
        if self.guards is not None:
            other._take_guards(copy(self.guards))
        return other

    @property
    def quiet(self) -> bool:
        """Nothing needs to be recorded of a call that succeeds at once."""
        guards = self.guards
        return (self.budget is None or self.budget.quiet) and (guards is None or guards.is_calm())

    def count_call(self) -> None:
        """Note a call that succeeds at once, for a budget that counts them."""
        self.budget.count_call()  # type: ignore[union-attr]

    # A call begins.

    def enter(self, call: Call, now: float, *, sent: bool) -> float:
        """Begin a call; return the seconds to wait before its first attempt, nearly always 0.

        Raises:
            RetryRefused: Nothing may be sent.
        """
        if self._scope_of is not None:
            try:
                call.scope = self._scope_of(call.request)
            except Exception as error:  # of the user's: the call is on its origin
                call.plugin_error = error
        delay = 0.0
        if self.guards is not None and not sent and not self.guards.is_calm():
            delay = self.guards.enter(call, now)
        if self.budget is not None:
            try:
                self.budget.deposit(call.scope, now)
            except Exception as error:  # of a user's own budget: the call loses nothing
                call.plugin_error = error
        return delay

    # Where there is no breaker, no cooldown and one origin.

    def admit(self, call: Call, now: float) -> float:
        """Seconds to wait before the attempt may be sent."""
        return 0.0

    def observe(self, call: Call, failure: Failure | None, now: float) -> None:
        """An attempt ended."""

    def refused_for(self, call: Call, now: float) -> float:
        """Seconds for which the breaker refuses the origin."""
        return 0.0

    # The steps of a decision.

    def plan(
        self, call: Call, failure: Failure, now: float, latest: float
    ) -> tuple[float, str, float]:
        """Say when to send again.

        Returns:
            The delay, who chose it, and how much of it the origin asked for itself.
        """
        backoff = call.policy.backoff
        if call.policy.throttle_backoff is not None and failure.is_throttle:
            backoff = call.policy.throttle_backoff
        if (
            failure.status is None
            and failure.kind in MOMENTARY_KINDS  # the cause is known to pass: once without a wait
            and not call.used_immediate
            and getattr(backoff, "immediate_first", False)
        ):
            call.used_immediate = True
            delay = 0.0
        else:
            # The schedule's own last wait, not the server's: after an hour's hint the schedule
            # would begin at its cap.
            call.drawn = delay = backoff.delay(call.attempts, call.drawn, call.random)
            if not 0 <= delay < inf:  # NaN too
                raise ValueError(f"the backoff answered {delay!r} s")
        if self.guards is not None:
            return self.guards.plan(call, failure, delay, now, latest)
        if failure.hint.delay is None:
            return delay, "backoff", 0.0
        return hinted(call, failure, delay, latest)

    def is_dry(self, call: Call, now: float) -> bool:
        """Has the budget spent what it had borrowed?"""
        return self.budget.needs_renewal(call.scope, now)  # type: ignore[union-attr, no-any-return]

    def renew(self, call: Call) -> None:
        """Let the budget borrow more; blocks for a tenth of a second at most."""
        self.budget.renew(call.scope)  # type: ignore[union-attr]

    def spend(self, call: Call, failure: Failure, now: float) -> bool:
        """Pay for the retry; False: the budget does not allow it."""
        budget = self.budget
        if budget is None:
            return True
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
        if budget.spend(call.scope, cost, now):
            call.paid = cost
            return True
        return False

    # A call ends.

    def leave(self, call: Call, now: float) -> None:
        """Give back the permit and the price of an attempt that was not sent. Idempotent."""
        paid, call.paid = call.paid, 0.0
        if paid and self.budget is not None:
            self.budget.refund(call.scope, paid)
        if self.guards is not None:
            self.guards.release(call)

    def __repr__(self) -> str:
        parts = (self.budget, self.guards)
        return " ".join(repr(part) for part in parts if part is not None) or "no budget"
