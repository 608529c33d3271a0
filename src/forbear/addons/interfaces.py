"""Interfaces of what users may plug in for retries: budgets and strategies.

``RetryStrategy`` is the interface that Smithy's reference guide describes: a call acquires a token,
refreshes it after each failure, and ends it with exactly one of ``record_success`` and ``release``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..core.call import LATER
from ..limits import Locked

if TYPE_CHECKING:
    from ..core.call import Call
    from ..core.outcome import Failure
    from ..telemetry.rows import Row

    Readings = list[tuple[str, tuple[str, ...], float]]

TOKENS = "forbear.budget.available_tokens"  # the gauge
MOST_SCOPES = 1024  # that were refused; beyond it they are forgotten
WARNING = 30  # of logging, which is not needed to decide


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


class Budget(Protocol):
    """The protocol that ``budget=`` takes: ``RetryBudget`` or ``forbear.redis.RedisBudget``.

    Thread-safe and never blocking. ``scope`` is ``scheme://host:port``, ``now`` monotonic seconds.
    No decision waits for I/O: a budget that needs the network works from what it has, and fetches
    more in the background.
    """

    hinted_cost: float  # tokens for a retry that the server scheduled; any other costs 1

    @property
    def quiet(self) -> bool:
        """True: the deposit of a call that succeeds at once may be skipped now."""
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


def note_exhausted(refused: set[str], call: Call, scope: str, budget: object, now: float) -> None:
    """Have it emitted that a budget is exhausted, once until it allows a retry again.

    ``refused`` are the scopes that were refused, and allowed no retry since. A budget of the user's
    is used only by its protocol: what has the name of a method of ours may do anything.
    """
    if scope not in refused:
        if len(refused) >= MOST_SCOPES:
            refused.clear()
        refused.add(scope)
        given: dict[str, object] = {"budget": "default", "scope": "local", "tokens": None}
        for _, (name, whose), tokens in readings_of(budget, now)[:1]:
            given = {"budget": name, "scope": whose, "tokens": tokens}
        call.notes[LATER] = {"budget_exhausted": given}


def readings_of(budget: object, now: float) -> Readings:
    """Return the gauges of a budget, if it is one of ours; the first is of what is in force."""
    ours: Any = budget
    found: Readings = ours.readings(now) if isinstance(budget, Locked) else []
    return found


class BudgetExhausted(NamedTuple):
    """The budget refused a retry after it had allowed one; emitted once a minute."""

    client: str
    origin: str
    budget: str  # its name; "default" if it has none
    scope: str  # "local": of this process; "shared": of a fleet
    tokens: float | None  # that are left; None if the budget does not say
    name: str = "budget_exhausted"


def rows() -> list[Row]:
    """The row of the event that a budget, or a strategy for lack of one, refuses retries."""
    from ..telemetry.rows import Row

    def sentence(event: BudgetExhausted) -> str:
        return f"the retry budget {event.budget} ({event.scope}) is used up; retries are refused"

    return [Row(BudgetExhausted, WARNING, sentence)]
