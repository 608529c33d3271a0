"""Budget: keeps retries a small share of traffic. Floor: remembers.

One token bucket per scope. Each call deposits ``ratio`` tokens, time adds ``floor_per_second``, a retry
spends one: retries ≤ ratio × calls + floor × seconds + burst. The idea is Finagle's RetryBudget; asked
before the wait, so that a refused caller is told at once.

Only buckets that are not full are kept. A full one needs no deposits, so while all is well nothing is
computed, locked or stored.
"""

from __future__ import annotations

import os
from _thread import allocate_lock
from math import inf
from weakref import WeakSet

from ..core._checks import a_choice, a_number, shown

__all__ = ["RetryBudget"]

MOST_SCOPES = 1024  # least recently used first out; a forgotten scope starts full again
TOKENS, SINCE = 0, 1  # of a bucket: tokens at the instant


class RetryBudget:
    """An allowance for retries, shared by everything it is given to. Thread-safe.

    Args:
        ratio: Tokens that each call deposits; 0.2 lets retries be a fifth of traffic. At least 0.
        floor_per_second: Tokens per second that come whatever the traffic, so that a quiet client can
            retry too. At least 0.
        burst: Most tokens a bucket holds, and what it starts with. At least 1.
        hinted_cost: Tokens for a retry that the server itself scheduled (Retry-After and relatives): it
            knows what it can take. From 0 to 1; any other retry costs 1.
        scope: "origin": a bucket for each scheme://host:port; "transport": one for all origins.

    Raises:
        ValueError: A number is out of its range.
        TypeError: A value is of the wrong type.
    """

    __slots__ = (
        "__weakref__",
        "_buckets",
        "_full_at",
        "_lock",
        "burst",
        "floor_per_second",
        "hinted_cost",
        "quiet",
        "ratio",
        "scope",
    )

    def __init__(
        self,
        ratio: float = 0.2,
        floor_per_second: float = 1.0,
        burst: float = 20,
        hinted_cost: float = 0.25,
        scope: str = "origin",
    ) -> None:
        for name, value, least in (
            ("ratio", ratio, 0),
            ("floor_per_second", floor_per_second, 0),
            ("burst", burst, 1),
            ("hinted_cost", hinted_cost, 0),
        ):
            a_number(name, value)
            if value < least:
                raise ValueError(f"{name} must be at least {least}, got {shown(value)}")
        if hinted_cost > 1:
            raise ValueError(f"hinted_cost must be at most 1, got {shown(hinted_cost)}; any other retry costs 1")
        a_choice("scope", scope, ("origin", "transport"))
        self.ratio = ratio
        self.floor_per_second = floor_per_second
        self.burst = burst
        self.hinted_cost = hinted_cost
        self.scope = scope
        self.quiet = True  # every bucket is full
        self._buckets: dict[str, list[float]] = {}
        self._full_at = -inf  # from then on time alone has filled every bucket
        self._lock = allocate_lock()
        _budgets.add(self)

    def deposit(self, scope: str, now: float) -> None:
        """Note a call."""
        if self.scope == "transport":
            scope = ""
        buckets = self._buckets
        with self._lock:  # nothing is called in here: a call is where another thread may come in
            if now >= self._full_at:
                self._buckets = {}
                self.quiet = True
            elif scope in buckets:
                bucket = buckets[scope]
                elapsed = now - bucket[SINCE]
                if elapsed > 0:
                    bucket[TOKENS] += elapsed * self.floor_per_second
                    bucket[SINCE] = now
                bucket[TOKENS] += self.ratio
                if bucket[TOKENS] >= self.burst:
                    del buckets[scope]
                    if not buckets:
                        self.quiet = True

    def spend(self, scope: str, cost: float, now: float) -> bool:
        """Take ``cost`` tokens if they are there, all or none."""
        if self.scope == "transport":
            scope = ""
        burst, floor = self.burst, self.floor_per_second
        with self._lock:
            buckets = self._buckets
            tokens = burst
            if scope in buckets:
                bucket = buckets[scope]
                tokens = bucket[TOKENS]
                if now > bucket[SINCE]:
                    tokens += (now - bucket[SINCE]) * floor
                    if tokens > burst:
                        tokens = burst
                    bucket[SINCE] = now
                del buckets[scope]  # and back at the end: the most recently used
            else:
                bucket = [burst, now]
            buckets[scope] = bucket
            enough = tokens >= cost
            if enough:
                tokens -= cost
            bucket[TOKENS] = tokens
            full_at = now + (burst - tokens) / floor if floor else inf
            if full_at > self._full_at:
                self._full_at = full_at
            self.quiet = False
            if len(buckets) > MOST_SCOPES:
                del buckets[next(iter(buckets))]
        return enough

    def refund(self, scope: str, cost: float) -> None:
        """Give back what bought an attempt that was not sent."""
        if self.scope == "transport":
            scope = ""
        with self._lock:
            buckets = self._buckets
            if scope in buckets:  # else it is full, or forgotten
                bucket = buckets[scope]
                bucket[TOKENS] += cost
                bucket[TOKENS] = min(bucket[TOKENS], self.burst)

    def tokens(self, scope: str, now: float) -> float:
        """Tokens there now, for metrics and tests; takes nothing."""
        if self.scope == "transport":
            scope = ""
        with self._lock:
            bucket = self._buckets.get(scope)
            if bucket is None:
                return self.burst
            grown = bucket[TOKENS] + max(0.0, now - bucket[SINCE]) * self.floor_per_second
        return min(self.burst, grown)

    def __repr__(self) -> str:
        with self._lock:
            lowest = min((bucket[TOKENS] for bucket in self._buckets.values()), default=self.burst)
            count = len(self._buckets)
        below = f", {count} scope{'s' if count != 1 else ''} below full" if count else ""
        return f"<RetryBudget {lowest:.4g}/{self.burst:.4g}{below}>"

    def __reduce__(self) -> tuple[type[RetryBudget], tuple[float | str, ...]]:
        # A copy in another process starts full: what was spent here was spent here.
        return RetryBudget, (self.ratio, self.floor_per_second, self.burst, self.hinted_cost, self.scope)


_budgets: WeakSet[RetryBudget] = WeakSet()


def _renew_locks() -> None:
    # A lock that another thread held at the fork would stay locked in the child for ever.
    for budget in list(_budgets):
        budget._lock = allocate_lock()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_renew_locks)
