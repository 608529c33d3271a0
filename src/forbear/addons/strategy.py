"""Strategy: a user's ``RetryStrategy`` in the place of all limits.

Of all limits only this one is distrusted. The protocol is in addons/interfaces.py.
"""

from __future__ import annotations

from copy import copy
from math import inf
from typing import TYPE_CHECKING, Any

from ..core.call import PLUGIN, PLUGIN_ERROR, SILENCE, Call, Limit, Plan
from ..core.checks import shown
from ..core.feature_checks import check_made, check_methods
from ..core.outcome import GiveUp, Reason
from ..errors import RetryRefused
from ..limits.limits import Limits
from .interfaces import RetryToken, note_exhausted, readings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..core.outcome import Failure
    from ..core.policy import RetryPolicy
    from .interfaces import Readings, RetryStrategy


REPLACED = "budget", "breaker", "cooldown", "origins"  # by a strategy, as are gate and hedge
METHODS: dict[str, tuple[str, ...]] = {  # and the arguments of each
    "acquire_initial_token": ("scope", "now"),
    "refresh_token": ("token", "failure", "now", "latest="),
    "record_success": ("token", "now"),
    "release": ("token", "now"),
}


def check(strategy: RetryStrategy) -> RetryStrategy:
    """Check the option ``strategy``: the user's own may lack a method."""
    check_made("strategy", strategy, "AwsStandard()")
    check_methods("strategy", strategy, METHODS)
    check_quiet(strategy)
    return strategy


def check_quiet(strategy: RetryStrategy) -> None:
    try:
        _ = strategy.quiet
    except AttributeError as error:
        raise TypeError(
            f"strategy has no attribute quiet, got {shown(strategy)}; write quiet = True if nothing"
            " needs to be recorded of a call that succeeds at once, else False"
        ) from error
    except Exception:  # raised by a property: the first call will raise it again
        return


class Asked:
    """The questions to a strategy for one call, and the token that it gave."""

    __slots__ = ("scope", "token")

    def __init__(self, scope: str) -> None:
        self.scope = scope
        self.token: RetryToken | None = None


class StrategyLimit(Limit):
    """A user's ``RetryStrategy`` in place of all other limits; distrusts whatever it returns."""

    counts_attempts = is_schedule = True

    def __init__(self, strategy: RetryStrategy) -> None:
        self.shared = self
        self.strategy = strategy
        self._refused: set[str] = set()  # origins that were refused, and allowed no retry since
        self._error: Exception | None = None  # that ``quiet`` raised

    @property
    def quiet(self) -> bool:
        """The strategy's own; False if reading it fails, so that each call uses its methods."""
        try:
            return bool(self.strategy.quiet)
        except Exception as error:
            self._error = error
            return False

    def begin(self, call: Call, wait: float, now: float) -> float:
        """Ask for the scope of the call, and for a token if the first attempt is not sent yet."""
        call.notes[PLUGIN] = f"strategy {type(self.strategy).__name__}"
        if self._error is not None:
            call.notes[PLUGIN_ERROR], self._error = self._error, None
        asked = self._asked(call)
        scope_of = getattr(self.strategy, "scope_of", None)
        if scope_of is not None:
            try:
                asked.scope = a_text(scope_of(call.request))
            except Exception as error:
                call.notes[PLUGIN_ERROR] = error
        if call.is_under_way:
            return 0.0
        try:
            return a_delay(self._acquire(call, now))
        except RetryRefused as refused:
            if not refused.send:
                raise
            call.stop = GiveUp(refused.reason, refused.retry_after)
        except Exception as error:
            call.notes[PLUGIN_ERROR] = error
            call.stop = GiveUp(Reason.STRATEGY_FAILED)
        self.leave(call, now)
        return 0.0

    def _asked(self, call: Call) -> Asked:
        asked: Asked = call.notes.setdefault(self, Asked(call.request.origin))
        return asked

    def _acquire(self, call: Call, now: float) -> RetryToken:
        asked = self._asked(call)
        try:
            token = self.strategy.acquire_initial_token(asked.scope, now)
        except RetryRefused as refused:
            raise a_refusal(refused) from None
        token = asked.token = a_token(token, call)
        return token

    def plan(self, call: Call, failure: Failure, plan: Plan, now: float, latest: float) -> Plan:
        """Refresh the token; raise its delay to what the server asked for."""
        asked = self._asked(call)
        token = asked.token or self._acquire(call, now)
        token.attempts = call.attempts
        try:
            token = self.strategy.refresh_token(token, failure, now, latest=latest)
        except RetryRefused as refused:
            if a_refusal(refused).reason is Reason.BUDGET_EXHAUSTED:
                note_exhausted(self._refused, call, call.request.origin, self._bucket(), now)
            raise refused from None
        self._refused.discard(call.request.origin)
        asked.token = a_token(token, call)
        delay, source, named = a_delay(token), a_text(token.source), failure.hint.delay
        if named is None:
            return Plan(delay, source)
        if delay < named:
            return Plan(named, failure.hint.source or source, named)
        return Plan(delay, source, named)

    def leave(self, call: Call, now: float) -> None:
        """End the token: the last response was accepted, or the call ends otherwise."""
        asked: Asked | None = call.notes.get(self)
        if asked is None or asked.token is None:
            return
        # Taken off the call first: a token must end once, also if the strategy raises below.
        token, asked.token = asked.token, None
        token.attempts = call.attempts
        try:
            if call.history and call.history[-1].failure is None:
                self.strategy.record_success(token, now)
            else:
                self.strategy.release(token, now)
        except Exception as error:  # the call is over: its response must not be lost
            call.notes.setdefault(PLUGIN_ERROR, error)

    def readings(self, now: float) -> Readings:
        return readings_of(self._bucket(), now)

    def _bucket(self) -> object:
        return getattr(self.strategy, "bucket", None)  # of an AwsStandard

    def __repr__(self) -> str:
        return repr(self.strategy)


class Merging(Limit):
    """Lets a ``StandardStrategy`` decide a part of the policy."""

    shared = SILENCE

    def __init__(self, strategy: Any) -> None:
        self._strategy = strategy
        self.own_random = strategy.limits.random

    def merged(self, policy: RetryPolicy) -> RetryPolicy:
        found: RetryPolicy = self._strategy.merged(policy)
        return found


def limits(strategy: Any, random: Callable[[], float]) -> list[Limit]:
    """Return a limit that asks the strategy, or copies of those that a StandardStrategy shares."""
    shared = getattr(strategy, "limits", None)
    if isinstance(shared, Limits):
        return [Merging(strategy), *map(copy, shared.listed)]
    return [StrategyLimit(strategy)]


def check_beside(given: dict[str, Any], defaults: Mapping[str, Any]) -> None:
    """Refuse what is given in addition to a strategy, which decides that by itself."""
    if given["gate"] is not ... and given["gate"] is not None:
        raise ValueError("give strategy= or gate=, not both: a strategy decides by itself")
    given["gate"] = None
    for option in REPLACED:
        if given.get(option) != defaults.get(option):
            raise ValueError(
                f"give strategy= or {option}=, not both: StandardStrategy takes {option}= itself"
            )
    if given.get("hedge") is not None:
        raise ValueError("give strategy= or hedge=, not both: a strategy decides by itself")


def a_token(returned: object, call: Call) -> RetryToken:
    if not isinstance(returned, RetryToken):
        raise TypeError(f"a strategy returned {type(returned).__name__}, not a RetryToken")
    returned.attempts = call.attempts
    return returned


def a_refusal(refused: RetryRefused) -> RetryRefused:
    seconds = refused.retry_after
    if not isinstance(refused.reason, Reason):
        raise TypeError(f"a strategy gave a {type(refused.reason).__name__}, not a Reason")
    if seconds is not None and not 0 <= float(seconds) < inf:  # NaN too
        raise ValueError(f"a strategy returned a time of {seconds!r} s")
    return refused


def a_delay(token: RetryToken) -> float:
    delay = token.delay
    if not 0 <= delay < inf:  # NaN too
        raise ValueError(f"a strategy returned a delay of {delay!r} s")
    return float(delay)


def a_text(returned: object) -> str:
    if not isinstance(returned, str):
        raise TypeError(f"a strategy returned {type(returned).__name__}, not text")
    return returned
