"""Understudy: stands in for a transport during one call of a rehearsal. Floor: acts.

It is the transport in all but clock, schedule and number of attempts, and is gone with the call:
what belongs to the transport (pools, budget, breaker, listeners) is the transport's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .shared.standard import StandardStrategy

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from ._rehearsal import Terms
    from .core.policy import RetryPolicy
    from .core.strategy import RetryStrategy
    from .sending.clock import Clock, Sleeper
    from .sending.context import Scope

__all__ = ["Understudy", "strategy_for"]


class Understudy:
    """What it does not have itself it asks the transport for.

    Attributes:
        started_at: When the call began, on the clock that holds for it.
    """

    def __init__(self, transport: Any, terms: Terms, started_at: float) -> None:
        self._played = transport
        self._terms = terms
        self._policy = terms.bounded(transport._policy)
        self._strategy = strategy_for(transport._strategy, terms)
        self.started_at = started_at
        clock = terms.clock_for(transport._clock)
        if clock is not transport._clock:
            self._clock = clock
            self._now = clock.monotonic
            self._sleeper = Skipper(transport._sleeper, clock, started_at)
            self.started_at = terms.since(started_at)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._played, name)

    def _resolve(self, scope: Scope | None, setting: Any) -> RetryPolicy:
        policy: RetryPolicy = self._played._resolve(scope, setting)
        return self._policy if policy is self._played._policy else self._terms.bounded(policy)


class Skipper:
    """Sleeps on the rehearsal's clock; a close of the transport, which is real, ends that too."""

    __slots__ = ("_clock", "_sleeper", "_started_at")

    def __init__(self, sleeper: Sleeper, clock: Clock, started_at: float) -> None:
        self._sleeper = sleeper
        self._clock = clock
        self._started_at = started_at  # by the system's clock

    def _is_open(self) -> bool:
        return not self._sleeper.was_closed(since=self._started_at)

    def sleep(self, seconds: float, *, since: float) -> bool:
        if self._is_open():
            self._clock.sleep(seconds)
        return self._is_open()

    def lie_down(self, seconds: float, *, since: float) -> Awaitable[bool]:
        return self._asleep(seconds)

    async def _asleep(self, seconds: float) -> bool:
        if self._is_open():
            await self._clock.asleep(seconds)
        return self._is_open()

    def get_up(self, nap: Awaitable[bool]) -> None:
        pass


def strategy_for(strategy: RetryStrategy, terms: Terms) -> RetryStrategy:
    """The standard strategy under the terms, with the same shared state; another one as it is."""
    if type(strategy) is not StandardStrategy:
        return strategy
    from random import random as system_random

    mine = strategy.with_policy(terms.bounded(strategy.policy))
    if terms.random is not None and mine.random is system_random:
        mine.random = terms.random
    return mine
