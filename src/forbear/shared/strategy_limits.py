"""Strategy limits: a user's ``RetryStrategy`` in place of the limits. Floor: remembers.

The only code that distrusts a plug-in: whatever a strategy answers or raises ends the call with
what it has, and is told once.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from ..core.strategy import RetryToken
from ..core.verdict import GiveUp, Reason
from ..errors import RetryRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.call import Call
    from ..core.outcome import Failure
    from ..core.strategy import RetryStrategy

__all__ = ["StrategyLimits"]


class StrategyLimits:
    """A user's ``RetryStrategy`` in place of ``Limits``; distrusts whatever it answers.

    Attributes: as of ``Limits``.
    """

    gate = budget = only_gate = None  # ``refresh_token`` buys an attempt
    follows = False
    most_held = 0
    counts_calls = False

    def __init__(self, strategy: RetryStrategy, random: Callable[[], float]) -> None:
        self.strategy = strategy
        self.random = random
        self.shared = self
        self.borrows = False  # as the budget of ``Limits`` does
        self._renews = hasattr(strategy, "needs_renewal")
        self.error: Exception | None = None  # that ``quiet`` raised

    @property
    def quiet(self) -> bool:
        """The strategy's word; False if asking for it fails, so that each call asks its methods."""
        try:
            return bool(self.strategy.quiet)
        except Exception as error:
            self.error = error
            return False

    def deposit(self, call: Call, now: float) -> None:
        """Ask the strategy for the scope of a call; a call deposits nothing."""
        if self.error is not None:
            call.plugin_error, self.error = self.error, None
        scope_of = getattr(self.strategy, "scope_of", None)
        if scope_of is not None:
            try:
                call.scope = a_text(scope_of(call.request))
            except Exception as error:
                call.plugin_error = error

    def enter(self, call: Call, now: float) -> float:
        """Ask the strategy for a token.

        Raises:
            RetryRefused: With ``send=False``: nothing may be sent.
        """
        self.deposit(call, now)
        try:
            self._acquire(call, now)
            return a_delay(call.token)
        except RetryRefused as refused:
            if not refused.send:
                raise
            call.stop = GiveUp(refused.reason, refused.retry_after)
        except Exception as error:
            call.plugin_error = error
            call.stop = GiveUp(Reason.STRATEGY_FAILED)
        self.leave(call, now)
        return 0.0

    def _acquire(self, call: Call, now: float) -> RetryToken:
        try:
            token = self.strategy.acquire_initial_token(call.scope, now)
        except RetryRefused as refused:
            raise a_refusal(refused) from None
        call.token = a_token(token, call)
        return token

    def plan(
        self, call: Call, failure: Failure, now: float, latest: float
    ) -> tuple[float, str, float] | None:
        """Refresh the token; lift its delay to what the server asked for. None: renew before."""
        token: RetryToken = call.token or self._acquire(call, now)
        if self._renews:
            call.is_renewed = not call.is_renewed and self.is_dry(call, now)
            if call.is_renewed:
                return None
        token.attempts = call.attempts
        try:
            token = self.strategy.refresh_token(token, failure, now, latest=latest)
        except RetryRefused as refused:
            raise a_refusal(refused) from None
        call.token = a_token(token, call)
        delay, source, asked = a_delay(token), a_text(token.source), failure.hint.delay
        if asked is None:
            return delay, source, 0.0
        return (
            (asked, failure.hint.source or source, asked)
            if delay < asked
            else (delay, source, asked)
        )

    def observe(self, call: Call, failure: Failure | None, now: float) -> None:
        """Nothing: the strategy hears of failures as they are planned for."""

    def count_call(self) -> None:
        """Nothing: a strategy that counts calls is never quiet."""

    def is_dry(self, call: Call, now: float) -> bool:
        strategy: Any = self.strategy
        return bool(strategy.needs_renewal(call.scope, now))

    def renew(self, call: Call) -> None:
        strategy: Any = self.strategy
        strategy.renew(call.scope)

    def accept(self, call: Call, now: float) -> None:
        """End the token: the last answer was accepted."""
        self._end(call, "record_success", now)

    def leave(self, call: Call, now: float) -> None:
        """End the token, if it is not ended."""
        self._end(call, "release", now)

    def _end(self, call: Call, method: str, now: float) -> None:
        token, call.token = call.token, None
        if token is not None:
            token.attempts = call.attempts
            try:
                getattr(self.strategy, method)(token, now)
            except Exception as error:  # the call is over: its response must not be lost
                call.plugin_error = call.plugin_error or error

    def __repr__(self) -> str:
        return repr(self.strategy)


def a_token(answer: object, call: Call) -> RetryToken:
    if not isinstance(answer, RetryToken):
        raise TypeError(f"a strategy answered {type(answer).__name__}, not a RetryToken")
    answer.attempts = call.attempts
    return answer


def a_refusal(refused: RetryRefused) -> RetryRefused:
    seconds = refused.retry_after
    if not isinstance(refused.reason, Reason):
        raise TypeError(f"a strategy gave a {type(refused.reason).__name__}, not a Reason")
    if seconds is not None and not 0 <= float(seconds) < inf:  # NaN too
        raise ValueError(f"a strategy answered a time of {seconds!r} s")
    return refused


def a_delay(token: RetryToken) -> float:
    delay = token.delay
    if not 0 <= delay < inf:  # NaN too
        raise ValueError(f"a strategy answered a delay of {delay!r} s")
    return float(delay)


def a_text(answer: object) -> str:
    if not isinstance(answer, str):
        raise TypeError(f"a strategy answered {type(answer).__name__}, not text")
    return answer
