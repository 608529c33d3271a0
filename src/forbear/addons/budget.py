"""Budget: a token bucket that keeps retries a small share of traffic.

One bucket per scope. Each call deposits ``ratio`` tokens, time adds ``floor_per_second``, a retry
spends one: retries ≤ ratio × calls + floor × seconds + burst. The idea is Finagle's RetryBudget; it
is asked before the wait, so that a refused call ends at once. Only buckets that are not full are
kept: a full one needs no deposits.
"""

from __future__ import annotations

from collections import OrderedDict
from math import inf

from ..core.call import PLUGIN_ERROR, REFUND, Limit
from ..core.checks import check_number, shown, suggesting
from ..core.feature_checks import check_made, check_methods, check_scope
from ..core.outcome import GiveUp, Phase, Reason
from ..core.request import scope_of
from ..limits import Locked
from .interfaces import TOKENS, note_exhausted, readings_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..core.call import Call
    from ..core.outcome import Failure, Refusal
    from ..core.request import Scope
    from .interfaces import Budget


# Of the cost of a hinted retry: to request what is missing of a body adds a request to the server's
# work and no more. With the default budget a download may break some 140 times in a row.
PROGRESS_SHARE = 0.2
MOST_SCOPES = 1024  # least recently used first out; a forgotten scope starts full again


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
            which is logged once. The text is never shown. The 1,024 buckets used last are kept.
            A budget pickles if its function does: a lambda does not.

    Raises:
        ValueError: A number is out of its range.
        TypeError: A value is of the wrong type.
    """

    @suggesting
    def __init__(
        self,
        ratio: float = 0.1,
        floor_per_second: float = 1.0,
        burst: float = 7,
        hinted_cost: float = 0.25,
        scope: Scope = "origin",
    ) -> None:
        check_rates(ratio, floor_per_second, burst, hinted_cost)
        check_scope(scope, "origin", "transport")
        self.ratio = ratio
        self.floor_per_second = floor_per_second
        self.burst = burst
        self.hinted_cost = hinted_cost
        self.scope = scope
        self.quiet = True  # every bucket is full: ``deposit`` may be skipped
        # Tokens, and at what instant.
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._full_at = -inf  # from then on time alone has filled every bucket
        super().__init__()

    def deposit(self, scope: str, now: float) -> None:
        """Note a call."""
        if self.quiet:
            return
        if self.scope == "transport":
            scope = ""
        with self._lock:  # no call in here: each is a point where another thread may run, and wait
            buckets = self._buckets
            if now >= self._full_at:
                self._buckets = OrderedDict()
                self.quiet = True
            elif scope in buckets:
                tokens, since = buckets[scope]
                tokens += self.ratio
                if now > since:
                    tokens += (now - since) * self.floor_per_second
                    since = now
                if tokens < self.burst:
                    buckets[scope] = tokens, since
                else:
                    del buckets[scope]
                    if not buckets:
                        self.quiet = True

    def spend(self, scope: str, cost: float, now: float) -> bool:
        """Take ``cost`` tokens if they are there, all or none."""
        if self.scope == "transport":
            scope = ""
        tokens = burst = self.burst
        floor = self.floor_per_second
        with self._lock:
            buckets = self._buckets
            if scope in buckets:
                tokens, since = buckets[scope]
                if now > since:
                    tokens += (now - since) * floor
                    if tokens > burst:
                        tokens = burst
                else:
                    now = since
            elif len(buckets) >= MOST_SCOPES:
                buckets.popitem(last=False)
            enough = tokens >= cost
            if enough:
                tokens -= cost
            # Before the change: were it interrupted in between, no deposit would refill the bucket.
            self.quiet = False
            full_at = now + (burst - tokens) / floor if floor else inf
            if full_at > self._full_at:
                self._full_at = full_at
            buckets[scope] = tokens, now
            buckets.move_to_end(scope)
        return enough

    def refund(self, scope: str, cost: float) -> None:
        """Give back what bought an attempt that was not sent."""
        if self.scope == "transport":
            scope = ""
        with self._lock:
            if scope in self._buckets:  # else it is full, or forgotten
                tokens, since = self._buckets[scope]
                self._buckets[scope] = min(tokens + cost, self.burst), since

    def tokens(self, scope: str, now: float) -> float:
        """Tokens there now, for metrics and tests; takes nothing."""
        if self.scope == "transport":
            scope = ""
        with self._lock:
            bucket = self._buckets.get(scope)
            return self.burst if bucket is None else self._grown(bucket, now)

    def lowest(self, now: float) -> float:
        """Tokens that the scope with the fewest has now, for metrics; takes nothing."""
        with self._lock:
            grown = [self._grown(bucket, now) for bucket in self._buckets.values()]
        return min(grown, default=self.burst)

    def in_force(self, scope: str, now: float) -> tuple[str, str, float | None]:
        """Return its name, "local" or "shared", and the tokens there now, for the event."""
        return "default", "local", self.tokens(scope, now)

    def readings(self, now: float) -> Iterable[tuple[str, tuple[str, ...], float]]:
        """Return its gauges, as ``Limit.readings`` does."""
        return [(TOKENS, ("default", "local"), self.lowest(now))]

    def _grown(self, bucket: tuple[float, float], now: float) -> float:
        tokens, since = bucket
        return min(self.burst, tokens + max(0.0, now - since) * self.floor_per_second)

    def __repr__(self) -> str:
        with self._lock:
            held = [tokens for tokens, _ in self._buckets.values()]
        lowest, count = min(held, default=self.burst), len(held)
        below = f", {count} scope{'s' if count != 1 else ''} below full" if count else ""
        return f"<RetryBudget {lowest:.4g}/{self.burst:.4g}{below}>"

    def __reduce__(self) -> tuple[object, ...]:
        # A copy in another process starts full, because it has spent nothing.
        rates = self.ratio, self.floor_per_second, self.burst, self.hinted_cost
        return RetryBudget, (*rates, self.scope)


def check_rates(ratio: float, floor_per_second: float, burst: float, hinted_cost: float) -> None:
    """Raise a ValueError or a TypeError if a number of a budget is out of its range."""
    for name, value, least in (
        ("ratio", ratio, 0),
        ("floor_per_second", floor_per_second, 0),
        ("burst", burst, 1),
        ("hinted_cost", hinted_cost, 0),
    ):
        check_number(name, value)
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {shown(value)}")
    for name, value, why in (
        ("ratio", ratio, "it is a share of the calls: 0.1 is 10 %"),
        ("hinted_cost", hinted_cost, "any other retry costs 1"),
    ):
        if value > 1:
            raise ValueError(f"{name} must be at most 1, got {shown(value)}; {why}")


METHODS: dict[str, tuple[str, ...]] = {  # and the arguments of each
    "deposit": ("scope", "now"),
    "spend": ("scope", "cost", "now"),
    "refund": ("scope", "cost"),
}


def check(budget: Budget) -> Budget:
    """Check the option ``budget``, which may be a class of the user's own."""
    check_made("budget", budget, "RetryBudget()")
    if not all(hasattr(budget, name) for name in (*METHODS, "hinted_cost")):
        raise TypeError(
            "budget must be a RetryBudget or a RedisBudget, or None for no limit, got"
            f" {shown(budget)}"
        )
    check_methods("budget", budget, METHODS)
    return budget


class BudgetLimit(Limit):
    """Lets a budget, perhaps a user's own, count the calls of one transport and allow retries."""

    sees_untouched = True

    def __init__(self, budget: Budget) -> None:
        self.shared = self.budget = budget
        self.counts_calls: bool = getattr(budget, "counts_calls", False)
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
        if failure.progress:
            cost = self.budget.hinted_cost * PROGRESS_SHARE
        elif call.origin != call.sent_to:
            # No server has seen the request yet, so to all of them this is the first attempt; else
            # it was another origin that named a time.
            was_tried = any(attempt.origin == call.origin for attempt in call.history)
            if failure.phase is Phase.UNSENT and not was_tried:
                cost = 0.0
        elif failure.hint.delay is not None:
            cost = self.budget.hinted_cost
        if self._spend(call, cost, now):
            self._refused.discard(self.scope_of(call))
            return None
        note_exhausted(self._refused, call, self.scope_of(call), self.budget, now)
        return GiveUp(Reason.BUDGET_EXHAUSTED, delay)

    def take_extra(self, call: Call, now: float) -> str | None:
        """Spend tokens for a hedge as for a retry; say why that is not allowed."""
        try:
            is_allowed = self._spend(call, 1.0, now)
        except Exception:  # of a user's own budget
            call.notes.pop(REFUND, None)
            is_allowed = False
        return None if is_allowed else "budget-exhausted"

    def leave(self, call: Call, now: float) -> None:
        tokens = call.notes.get(REFUND)
        if tokens is not None:
            self.budget.refund(self.scope_of(call), tokens)
            del call.notes[REFUND]

    def scope_of(self, call: Call) -> str:
        """Return whose allowance a call uses; a function of the user's is asked once."""
        scope: str | None = call.notes.get(self)
        if scope is None:
            scope = call.request.origin
            if callable(self._scope):
                try:
                    scope = scope_of(self._scope, call.request)
                except Exception as error:  # of the user's: the call is on its origin
                    call.notes[PLUGIN_ERROR] = error
            call.notes[self] = scope
        return scope

    def _spend(self, call: Call, cost: float, now: float) -> bool:
        call.notes[REFUND] = cost  # first: an interruption then refunds them, not loses them
        if self.budget.spend(self.scope_of(call), cost, now):
            return True
        del call.notes[REFUND]
        return False

    def count_call(self) -> None:
        self.budget.count_call()  # type: ignore[attr-defined]  # since it ``counts_calls``

    def readings(self, now: float) -> Iterable[tuple[str, tuple[str, ...], float]]:
        return readings_of(self.budget, now)


def limits(budget: Budget, random: Callable[[], float]) -> list[Limit]:
    return [BudgetLimit(budget)]
