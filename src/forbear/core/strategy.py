"""Strategy: what a call asks of shared things. Floor: decides.

The interface that Smithy's reference guide describes for retry strategies: a call acquires a token,
refreshes it after each failure, and ends it with exactly one of ``record_success`` and ``release``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from .outcome import Failure
    from .request import Request

__all__ = ["AttemptWatcher", "Budget", "Renewable", "RetryStrategy", "RetryToken"]


class RetryToken:
    """One call's state inside a strategy: never in two calls, never in two threads at once.

    A strategy may subclass it or keep what it needs in ``state``.

    Attributes:
        delay: Seconds before the next attempt, from 0; a strategy sets it, also on initial tokens.
        attempts: Attempts sent so far, redirects' earlier retries included; kept by the call, read
            by strategies.
        source: Who chose the delay: "backoff", the name of the header that did, or "cooldown". It
            is logged.
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
    """When to try again, or why not: what ``strategy=`` of every transport, adapter and manager
    takes.

    One object serves all calls, at once and from any thread, so what it shares between calls is
    under a lock of its own. Its methods return at once: no I/O, no sleeping, no clock; ``now`` is
    monotonic seconds.

    A call asks in this order: ``acquire_initial_token`` (put off until the first failure while
        ``quiet``),
    ``refresh_token`` after each failure that may be repeated, then exactly one of
    ``record_success`` and ``release``, also when it is cancelled or the client is closed meanwhile.
    What is no failure, what must not be repeated and whose body is gone is decided before a
    strategy is asked, and its delay is held to the server's word and the deadline afterwards: no
    strategy can make a POST unsafe. ``policy=`` gives statuses, methods, hints and time limits
    beside it; the number of attempts is the strategy's, unless the request or ``forbear.override``
    allows fewer.

    A strategy that fails loses nothing. What it raises other than ``RetryRefused``, what is no
    token, and a delay that is negative, not finite or no number end the call with what it has
    (``strategy-failed``), and are logged once, by class name.

    It may have one method more, ``scope_of(facts) -> str``, to see more of a request than its
    origin (``forbear.core.outcome.Request``): what it answers is passed as ``scope``. Calls
    are on their origin where it fails.

    One that must hear of every attempt is an ``AttemptWatcher``; for others that is nothing to care
    about.
    """

    @property
    def quiet(self) -> bool:
        """True: acquiring and recording success may be skipped now; a plain attribute will do.

        The first attempt asks only this, and a call that succeeds at once nothing else. A strategy
        without anything to remember of successes is always quiet; one that gates first attempts
        never is.
        """
        ...

    def acquire_initial_token(self, scope: str, now: float) -> RetryToken:
        """Begin a call to ``scope`` (``scheme://host:port``).

        It may be asked twice for one call, if it refuses or its token wants a delay: such a token
            is released
        at once.

        Raises:
            RetryRefused: ``send=True``: send once without retries; ``send=False``: do not send.
        """
        ...

    def refresh_token(
        self, token: RetryToken, failure: Failure, now: float, *, latest: float
    ) -> RetryToken:
        """Buy another attempt after ``failure``; the token returned says after which delay.

        Args:
            token: What ``acquire_initial_token`` or the last refresh returned.
            failure: What happened; ``failure.retry_after`` is the server's word in seconds. It
                tells ``is_throttle``, ``is_timeout``, ``retry_safety`` and ``fault`` too, and
                nothing of httpx or requests.
            now: Monotonic seconds.
            latest: The longest delay the deadline allows, infinite if there is none.

        Raises:
            RetryRefused: No further attempt, and why. Nothing was taken. With ``Reason.DEADLINE``
                for a delay longer than ``latest``.
        """
        ...

    def record_success(self, token: RetryToken, now: float) -> None:
        """End the call: its last answer was accepted. Idempotent."""
        ...

    def release(self, token: RetryToken, now: float) -> None:
        """End the call otherwise. Idempotent.

        Refund what bought an attempt that was not sent: ``token.attempts`` has not grown since.
        """
        ...


class AttemptWatcher(RetryStrategy, Protocol):
    """A strategy that follows attempts, not only retries; known by ``watches``, which others need
    not have.

    Its tokens may have ``origin``, where the next attempt goes; else that is where the request
    says.
    """

    @property
    def watches(self) -> bool:
        """True, and never changed: call the methods below."""
        ...

    def begin(self, facts: Request, scope: str, now: float) -> RetryToken:
        """In place of ``acquire_initial_token``, for one that looks at more of a request than its
        scope.
        """
        ...

    def admit(self, token: RetryToken, now: float) -> float:
        """The delay is over and the attempt about to be sent: take what only a sending may take.

        Returns:
            Seconds to wait first, after which this is asked again; 0: send.

        Raises:
            RetryRefused: With ``send=False``: it must not be sent any more. The call ends with
                that.
        """
        ...

    def observe(
        self,
        token: RetryToken | None,
        failure: Failure | None,
        now: float,
        *,
        facts: Request,
        scope: Callable[[], str],
        attempts: int,
        sent_at: float,
    ) -> RetryToken | None:
        """An attempt ended. Told before the strategy is asked anything about it, also if nobody
        will ask.

        Args:
            token: None if the first attempt went through the door while the strategy was quiet.
            failure: What happened, also for an answer of 400 and above that is accepted; None: a
                good answer.
            now: Monotonic seconds.
            facts: Of the request.
            scope: Answers what ``begin`` is given.
            attempts: Sent so far, this one included.
            sent_at: When it was sent.

        Returns:
            The token, or one for a call that had none; None for none.
        """
        ...


class Renewable(Protocol):
    """What a strategy has besides when it decides from something borrowed over the network.

    A decision never waits for I/O: the driver renews, on the failure path only, at most once per
    failure that may lead to a retry, after all else allows that retry and before ``refresh_token``.

    Another method, ``plan_retry``, with arguments as of ``refresh_token``, may raise
    ``RetryRefused`` for what else stands against that retry; then nothing is borrowed for it. It
    takes nothing.
    """

    def needs_renewal(self, scope: str, now: float) -> bool:
        """Has what was borrowed for ``scope`` run out? Asked often; returns at once."""
        ...

    def renew(self, scope: str) -> None:
        """Borrow more. May block for a tenth of a second, in whatever thread; whoever raises is
        logged once.
        """
        ...


class Budget(Protocol):
    """What ``budget=`` takes: ``RetryBudget``, ``forbear.redis.RedisBudget``. It may be
    ``Renewable`` too.

    Thread-safe and never blocking; ``scope`` is ``scheme://host:port``, ``now`` monotonic seconds.
    """

    hinted_cost: float  # tokens for a retry that the server scheduled; any other costs 1

    @property
    def quiet(self) -> bool:
        """True: deposits may be skipped now. Read once for each call."""
        ...

    def deposit(self, scope: str, now: float) -> None:
        """Note a call."""
        ...

    def spend(self, scope: str, cost: float, now: float) -> bool:
        """Take ``cost`` tokens if they are there, all or none."""
        ...

    def refund(self, scope: str, cost: float) -> None:
        """Give back what bought an attempt that was not sent."""
        ...
