"""Budget: a token bucket that keeps retries a small share of traffic.

One bucket per scope. Each call deposits ``ratio`` tokens, time adds ``floor_per_second``, a retry
spends one: retries ≤ ratio × calls + floor × seconds + burst. The idea is Finagle's RetryBudget; it
is asked before the wait, so that a refused call ends at once. Only buckets that are not full are
kept: a full one needs no deposits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..core.call import LATER, PLUGIN_ERROR, REFUND, Limit
from ..core.checks import check_number, shown
from ..core.feature_checks import begins_anew, check_made, check_methods, check_scope, check_share
from ..core.outcome import GiveUp, Phase, Reason
from ..core.request import scope_of
from ..limits import Locked, Readings

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.call import Call
    from ..core.outcome import Failure, Refusal
    from ..core.request import Scope


# Of the cost of a hinted retry: to request what is missing of a body adds a request to the server's
# work and no more. With the default budget a download may break some 140 times in a row.
PROGRESS_SHARE = 0.2
TOKENS = "forbear.budget.available_tokens"  # the gauge
MOST_SCOPES = 1024  # the oldest first out; a forgotten scope starts full again


@begins_anew
class RetryBudget(Locked):
    """An allowance for retries, shared by everything it is given to. Thread-safe.

    Args:
        ratio: Tokens that each call deposits; 0.1 lets retries be a tenth of traffic. From 0 to 1.
        floor_per_second: Tokens per second that come whatever the traffic, so that a quiet client
            can retry too. At least 0.
        burst: Most tokens a bucket holds, and what it starts with. At least 1. A fleet of n
            processes may send n bursts into the first second of an outage, so it is small.
        hinted_cost: Tokens for a retry that the server itself scheduled (Retry-After and
            relatives): a server that always names a time is sent up to 1 / ``hinted_cost`` times as
            many. From 0 to 1; any other retry costs 1, and requesting the rest of a body that broke
            off, after some of it came, a fifth of this.
        scope: "origin": a bucket for each scheme://host:port; "transport": one for all origins; or
            a function of the request (``forbear.core.request.Request``: ``method``, ``origin``,
            ``url``, ``header(name)``) that returns any text, such as ``lambda request:
            request.url``: requests with the same text share a bucket. The function is called at
            most once per call, from any thread, but not for calls that succeed at once while all
            buckets are full. If it raises or returns no text, the call is on its origin's bucket,
            which is logged once. The text is never shown. At most 1,024 buckets are kept. A budget
            pickles if its function does: a lambda does not.

    Raises:
        ValueError: A number is out of its range.
        TypeError: A value is of the wrong type.
    """

    ratio: float = 0.1
    floor_per_second: float = 1.0
    burst: float = 7
    hinted_cost: float = 0.25
    scope: Scope = "origin"

    def __post_init__(self) -> None:
        check_rates(self.ratio, self.floor_per_second, self.burst, self.hinted_cost)
        check_scope(self.scope, "origin", "transport")
        self.quiet = True  # every bucket is full: ``deposit`` may be skipped
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens, and at what instant
        super().__init__()

    def deposit(self, scope: str, now: float) -> None:
        """Note a call."""
        if not self.quiet:
            with self._lock:
                self._add(scope, self.ratio, now)
                # Time alone fills a bucket whose scope is not called any more.
                self._add(next(iter(self._buckets), scope), 0.0, now)

    def spend(self, scope: str, cost: float, now: float) -> bool:
        """Take ``cost`` tokens if they are there, all or none."""
        with self._lock:
            is_enough = self._grown(scope, now) >= cost
            if is_enough:
                self._add(scope, -cost, now)
        return is_enough

    def refund(self, scope: str, cost: float) -> None:
        """Give back what bought an attempt that was not sent."""
        with self._lock:
            if scope in self._buckets:  # else it is full, or forgotten
                self._add(scope, cost, self._buckets[scope][1])

    def tokens(self, scope: str, now: float) -> float:
        """Tokens there now, for tests; takes nothing."""
        with self._lock:
            return self._grown(scope, now)

    def lowest(self, now: float) -> float:
        """Tokens that the scope with the fewest has now; takes nothing."""
        with self._lock:
            return min((self._grown(scope, now) for scope in self._buckets), default=self.burst)

    def readings(self, now: float) -> Readings:
        """Return its gauges, as ``Limit.readings`` does."""
        return [(TOKENS, ("default", "local"), self.lowest(now))]

    # Called with the lock held.

    def _grown(self, scope: str, now: float) -> float:
        tokens, since = self._buckets.get(scope, (self.burst, now))
        return min(self.burst, tokens + max(0.0, now - since) * self.floor_per_second)

    def _add(self, scope: str, tokens: float, now: float) -> None:
        tokens += self._grown(scope, now)
        if tokens >= self.burst:
            self._buckets.pop(scope, None)
        else:
            if scope not in self._buckets and len(self._buckets) >= MOST_SCOPES:
                del self._buckets[next(iter(self._buckets))]
            # Threads read the clock before they get the lock: instants may arrive out of order.
            _, since = self._buckets.get(scope, (tokens, now))
            self._buckets[scope] = tokens, max(now, since)
        self.quiet = not self._buckets

    def __repr__(self) -> str:
        with self._lock:
            held = [tokens for tokens, _ in self._buckets.values()]
        lowest, count = min(held, default=self.burst), len(held)
        below = f", {count} scope{'s' if count != 1 else ''} below full" if count else ""
        return f"<RetryBudget {lowest:.4g}/{self.burst:.4g}{below}>"


def check_rates(ratio: float, floor_per_second: float, burst: float, hinted_cost: float) -> None:
    """Raise a ValueError or a TypeError if a number of a budget is out of its range."""
    check_share("ratio", ratio, advice="; it is a share of calls")
    check_number("floor_per_second", floor_per_second, 0)
    check_number("burst", burst, 1)
    check_share("hinted_cost", hinted_cost, advice="; others cost 1")


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


METHODS: dict[str, tuple[str, ...]] = {  # and the arguments of each
    "deposit": ("scope", "now"),
    "spend": ("scope", "cost", "now"),
    "refund": ("scope", "cost"),
}


def check(budget: Budget) -> Budget:
    """Check the option ``budget``, which may be a class of the user's own."""
    check_made("budget", budget, "RetryBudget()")
    if not all(hasattr(budget, name) for name in (*METHODS, "hinted_cost")):
        raise TypeError(f"budget must be a RetryBudget, a RedisBudget or None, got {shown(budget)}")
    check_methods("budget", budget, METHODS)
    return budget


class BudgetLimit(Limit):
    """Lets a budget, perhaps a user's own, count the calls of one transport and allow retries."""

    sees_untouched = True

    def __init__(self, budget: Budget) -> None:
        self.shared = self.budget = budget
        self._scope: Scope = getattr(budget, "scope", "origin")
        self._refused: set[str] = set()  # scopes that were refused, and allowed no retry since

    def __copy__(self) -> BudgetLimit:
        return BudgetLimit(self.budget)  # for another transport, which emits its own events

    def begin(self, call: Call, wait: float, now: float) -> float:
        try:
            self.budget.deposit(self.scope_of(call), now)
        except Exception as error:  # of a user's own budget: the call loses nothing
            call.notes[PLUGIN_ERROR] = error
        return wait

    def take(self, call: Call, failure: Failure, delay: float, now: float, until: float) -> Refusal:
        """Spend tokens for the retry."""
        cost = 1.0
        is_elsewhere = call.origin != call.sent_to  # so it was not this one that named a time
        tried = {attempt.origin for attempt in call.history}
        if failure.progress:
            cost = self.budget.hinted_cost * PROGRESS_SHARE
        elif is_elsewhere and failure.phase is Phase.UNSENT and call.origin not in tried:
            cost = 0.0  # no server has seen the request yet: to all of them it is the first attempt
        elif failure.hint.delay is not None and not is_elsewhere:
            cost = self.budget.hinted_cost
        if self._spend(call, cost, now):
            self._refused.discard(self.scope_of(call))
            return None
        self._note_exhausted(call, now)
        return GiveUp(Reason.BUDGET_EXHAUSTED, delay)

    def _note_exhausted(self, call: Call, now: float) -> None:
        """Have it emitted, once until a retry is allowed again."""
        scope = self.scope_of(call)
        if scope not in self._refused:
            if len(self._refused) >= MOST_SCOPES:
                self._refused.clear()
            self._refused.add(scope)
            given: dict[str, object] = {"budget": "default", "scope": "local", "tokens": None}
            left = getattr(self.budget, "tokens", None)  # ours have it, as they have readings
            for _, (name, whose), _ in self.readings(now)[:1]:
                given = {"budget": name, "scope": whose, "tokens": left and left(scope, now)}
            call.notes[LATER] = {BudgetExhausted: given}

    def leave(self, call: Call, now: float) -> None:
        tokens = call.notes.pop(REFUND, None)
        if tokens is not None:
            try:
                self.budget.refund(self.scope_of(call), tokens)
            except Exception as error:  # of a user's own budget: the call keeps its outcome
                call.notes.setdefault(PLUGIN_ERROR, error)

    def scope_of(self, call: Call) -> str:
        """Return whose allowance a call uses; a function of the user's is asked once."""
        scope: str | None = call.notes.get(self)
        if scope is None:
            try:
                scope = scope_of(self._scope, call.request)
            except Exception as error:  # of the user's: the call is on its origin
                call.notes[PLUGIN_ERROR] = error
                scope = call.request.origin
            call.notes[self] = scope
        return scope

    def _spend(self, call: Call, cost: float, now: float) -> bool:
        is_allowed = self.budget.spend(self.scope_of(call), cost, now)
        if is_allowed:
            call.notes[REFUND] = cost
        return is_allowed

    def readings(self, now: float) -> Readings:
        # What a budget of the user's has by the name of a method of ours may do anything.
        found = getattr(self.budget, "readings", None)
        return list(found(now)) if found and isinstance(self.budget, Locked) else []


def limits(budget: Budget, random: Callable[[], float]) -> list[Limit]:
    return [BudgetLimit(budget)]


class BudgetExhausted(NamedTuple):
    """The budget refused a retry after it had allowed one."""

    client: str
    origin: str
    budget: str  # its name; "default" if it has none
    scope: str  # "local": of this process; "shared": of a fleet
    tokens: float | None  # that are left; None if the budget does not say
    name: str = "budget_exhausted"

    def sentence(self) -> str:
        return f"the retry budget {self.budget} ({self.scope}) is used up; retries are refused"
