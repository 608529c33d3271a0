"""Strategy: the interface of what decides in the place of all limits, and the limit that asks it.

``RetryStrategy`` is the interface that Smithy's reference guide describes: a call acquires a token,
refreshes it after each failure, and ends it with exactly one of ``record_success`` and ``release``.
Of all limits only this one is distrusted.
"""

from __future__ import annotations

from copy import copy
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from ..core.call import PLUGIN, PLUGIN_ERROR, Call, Limit, Plan
from ..core.checks import shown
from ..core.feature_checks import check_made, check_methods
from ..core.outcome import GiveUp, Reason
from ..errors import RetryRefused
from ..limits import Locked, Readings
from ..limits.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..core.outcome import Failure


REPLACED = "gate", "budget", "breaker", "cooldown", "origins", "hedge"  # by a strategy
METHODS: dict[str, tuple[str, ...]] = {  # and the arguments of each
    "acquire_initial_token": ("scope", "now"),
    "refresh_token": ("token", "failure", "now", "latest="),
    "record_success": ("token", "now"),
    "release": ("token", "now"),
}


class RetryToken:
    """One call's state inside a strategy: never in two calls, never in two threads at once.

    A strategy may subclass it or keep what it needs in ``state``.

    Attributes:
        delay: Seconds before the next attempt, from 0. A strategy sets it, also on initial tokens.
        attempts: Attempts sent so far, with those of earlier redirects. The call sets it.
        source: What set the delay, for the log: "backoff" or the name of the header that did.
        state: Whatever the strategy needs.
    """

    __slots__ = ("attempts", "delay", "source", "state")

    def __init__(self, delay: float = 0.0, state: Any = None) -> None:
        self.delay = delay
        self.attempts = 0
        self.source = "backoff"
        self.state = state

    def __repr__(self) -> str:
        return f"<{type(self).__name__} after {self.attempts} attempts, delay {self.delay:.3g} s>"


class RetryStrategy(Protocol):
    """When to retry, or why not: what ``strategy=`` of every transport and adapter takes.

    One object serves all calls, at once and from any thread: what it shares between calls is under
    a lock of its own. Its methods return at once: no I/O, no sleeping, no clock. ``now`` is
    monotonic seconds.

    A call asks ``acquire_initial_token`` first (while the strategy is ``quiet``: not before the
    first failure), ``refresh_token`` after each failure that may be retried, and at the end
    exactly one of ``record_success`` and ``release``, also when it is cancelled.

    A strategy cannot make a POST unsafe: whether it is a failure, whether a retry is safe and
    whether the body can be replayed is decided before it is called. Its delay is raised to the time
    that the server named and checked against the deadline afterwards. ``policy=`` gives statuses,
    methods, hints and time limits. The number of attempts is the strategy's, unless the request or
    ``forbear.override`` allows fewer.

    A strategy that fails loses nothing. If it raises anything but ``RetryRefused``, returns
    something that is no token, or a delay that is negative, not finite or no number, the call ends
    with what it has (``strategy-failed``). Such a fault is logged once, by class name.

    A strategy may also have ``scope_of(request) -> str``, which is given a
    ``forbear.core.request.Request``. Its result is passed as ``scope``; if it fails, the origin
    is.
    """

    @property
    def quiet(self) -> bool:
        """True: acquiring and recording success may be skipped now; a plain attribute will do.

        A first attempt reads only this, and a call that succeeds at once nothing else. A strategy
        that ignores successes is always quiet; one that delays first attempts never is.
        """
        ...

    def acquire_initial_token(self, scope: str, now: float) -> RetryToken:
        """Begin a call to ``scope`` (``scheme://host:port``).

        Raises:
            RetryRefused: ``send=True``: send once without retries; ``send=False``: do not send.
        """
        ...

    def refresh_token(
        self, token: RetryToken, failure: Failure, now: float, *, latest: float
    ) -> RetryToken:
        """Buy another attempt after ``failure``; return a token that says after which delay.

        Args:
            token: The one that ``acquire_initial_token`` or the last refresh returned.
            failure: What happened. ``failure.retry_after`` is the time that the server named, in
                seconds; ``is_throttle``, ``is_timeout``, ``retry_safety`` and ``fault`` say more.
            now: Monotonic seconds.
            latest: The longest delay the deadline allows, infinite if there is none.

        Raises:
            RetryRefused: No further attempt, and why. Nothing was taken. With ``Reason.DEADLINE``
                for a delay longer than ``latest``.
        """
        ...

    def record_success(self, token: RetryToken, now: float) -> None:
        """End the call: its last response was accepted. Idempotent."""
        ...

    def release(self, token: RetryToken, now: float) -> None:
        """End the call otherwise. Idempotent.

        Refund what bought an attempt that was not sent: ``token.attempts`` has not grown since.
        """
        ...


def check(strategy: RetryStrategy) -> RetryStrategy:
    """Check the option ``strategy``: the user's own may lack a method."""
    check_made("strategy", strategy, "AwsStandard()")
    check_methods("strategy", strategy, METHODS)
    if not hasattr(strategy, "quiet"):
        raise TypeError(
            f"strategy has no attribute quiet, got {shown(strategy)}; write quiet = True if nothing"
            " needs to be recorded of a call that succeeds at once, else False"
        )
    return strategy


def check_beside(given: dict[str, object], defaults: Mapping[str, object]) -> None:
    """Refuse what is given in addition to a strategy, which decides that by itself."""
    for option in REPLACED:
        if given.get(option) not in (None, defaults.get(option)):
            raise ValueError(f"give strategy= or {option}=, not both: a strategy decides by itself")
    given["gate"] = None


class StrategyLimit(Limit):
    """A user's ``RetryStrategy`` in place of all other limits."""

    counts_attempts = True

    def __init__(self, strategy: RetryStrategy) -> None:
        self.shared = self.strategy = strategy

    def begin(self, call: Call, wait: float, now: float) -> float:
        """Ask for a token if the first attempt is not sent yet."""
        call.notes[PLUGIN] = f"strategy {type(self.strategy).__name__}"
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

    def _acquire(self, call: Call, now: float) -> RetryToken:
        scope = call.request.origin
        scope_of = getattr(self.strategy, "scope_of", None)
        if scope_of is not None:
            try:
                scope = scope_of(call.request)
            except Exception as error:
                call.notes[PLUGIN_ERROR] = error
        token = call.notes[self] = self.strategy.acquire_initial_token(scope, now)
        return token

    def plan(self, call: Call, failure: Failure, plan: Plan, now: float, latest: float) -> Plan:
        """Refresh the token; raise its delay to what the server asked for."""
        token = call.notes.get(self) or self._acquire(call, now)
        token.attempts = call.attempts
        token = self.strategy.refresh_token(token, failure, now, latest=latest)
        delay, named = a_delay(token), failure.hint.delay
        call.notes[self] = token
        if named is None or delay >= named:
            return Plan(delay, token.source, named or 0.0)
        return Plan(named, failure.hint.source or token.source, named)

    def leave(self, call: Call, now: float) -> None:
        """End the token: the last response was accepted, or the call ends otherwise."""
        # Taken off the call first: a token must end once, also if the strategy raises below.
        token = call.notes.pop(self, None)
        if token is None:
            return
        try:
            token.attempts = call.attempts
            if call.history and call.history[-1].failure is None:
                self.strategy.record_success(token, now)
            else:
                self.strategy.release(token, now)
        except Exception as error:  # the call is over: its response must not be lost
            call.notes.setdefault(PLUGIN_ERROR, error)

    def readings(self, now: float) -> Readings:
        bucket = getattr(self.strategy, "bucket", None)  # of an AwsStandard
        found = getattr(bucket, "readings", None)
        return list(found(now)) if found and isinstance(bucket, Locked) else []


def limits(strategy: Any, random: Callable[[], float]) -> list[Limit]:
    """Return a limit that asks the strategy, or copies of those of a StandardStrategy."""
    shared = getattr(strategy, "limits", None)
    if isinstance(shared, Limits):
        return [strategy, *map(copy, shared.listed)]
    return [StrategyLimit(strategy)]


def a_delay(token: RetryToken) -> float:
    if not 0 <= token.delay < inf:  # NaN too
        raise ValueError(f"a strategy returned a delay of {token.delay!r} s")
    return float(token.delay)
