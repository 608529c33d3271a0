"""Lease: the block of tokens that a fleet budget lends one process. Floor: remembers.

A fleet has one bucket per scope; its keeper is not known here. A process spends from what it has
borrowed. When a retry finds the lease used up or expired, the loop borrows again; the same round
trip reports the calls since the last one and what was left of the lease. A refusal is remembered
for a moment, so that an outage does not fall upon the keeper too. While the keeper is lost, a
budget of this process stands in, and so for a single scope whose bucket the keeper cannot read.

While nothing is wrong the only work is to count. The keeper cuts a report of calls that were made
long ago to those since its bucket was last full, so such calls are counted for all scopes together.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import count
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from .locks import Locked

if TYPE_CHECKING:
    from typing import Literal

    from .budget import RetryBudget

__all__ = ["LeasedBudget", "Report"]

MOST_SCOPES = 1024  # least recently borrowed for, first out
QUIET_AFTER = 10.0  # seconds without a retry; until then every call asks for its origin


class Report(NamedTuple):
    """The request of a process that borrows tokens."""

    calls: int  # since the last report
    elapsed: float  # seconds since then, infinite if there was none
    left: float  # tokens of a lease that is over; 0 for one that runs on and is added to
    number: int  # of the last lease, as its keeper gave it; 0: there is none
    size: int  # of that lease


class Lease:
    """The tokens of one scope."""

    def __init__(self, reported_at: float) -> None:
        self.reported_at = self.asked_at = reported_at  # asked: when it was last found used up
        self.tokens = self.most = 0.0  # most: that there can be after a refund
        self.calls = self.size = self.number = 0
        self.until = self.refused_until = -inf

    def suffices(self, wanted: float, now: float) -> bool:
        """Are that many tokens there, or is it too soon to ask for more?"""
        return (self.tokens >= wanted and now < self.until) or now < self.refused_until


class LeasedBudget(Locked):
    """A budget that spends from leases. Thread-safe.

    Whoever fetches leases calls ``borrow`` before, and ``lend``, ``refuse``, ``lose`` or
    ``lose_one`` after.

    Attributes:
        hinted_cost: Tokens for a retry that the server itself scheduled.
        scope: "origin": leases for each origin; "transport": one for all.
        fallback: The budget that stands in while the keeper is lost.
        is_lost: The keeper could not be reached the last time, or not yet.
        errors: How often it could not be reached.
        quiet: There was no retry for a while: a call that needs none is noted by ``count_call``.
    """

    counts_calls = True  # ``count_call`` wants to be called

    def __init__(
        self, *, hinted_cost: float, scope: Literal["origin", "transport"], fallback: RetryBudget
    ) -> None:
        self.hinted_cost = hinted_cost
        self.scope = scope
        self.fallback = fallback
        self.is_lost = False
        self._is_told = False  # of its loss
        self.errors = 0
        super().__init__()
        self._begin()

    def _begin(self) -> None:
        """Owe nothing and have nothing: at first, and in a forked child."""
        self._leases: OrderedDict[str, Lease] = OrderedDict()
        self._unreadable: set[str] = set()  # scopes
        self.quiet = True
        self._quiet_at = -inf  # from then on, unless something goes wrong
        self._counted = count()
        self._counted_before = 0
        self._counted_since = -inf
        self._ask_at = -inf  # while lost: when to look for the keeper again
        self._losses = 0  # in a row

    def count_call(self) -> None:
        """Note a call that succeeded at once while ``quiet``."""
        next(self._counted)  # one step of the interpreter: no lock

    def deposit(self, scope: str, now: float) -> None:
        """Note any other call."""
        if self.quiet:
            next(self._counted)
            return
        lost = self.falls_back(scope)
        if lost:
            self.fallback.deposit(scope, now)
            if not self.fallback.quiet:
                return
        with self._lock:
            if now >= self._quiet_at:
                self.quiet = True
                self._counted_since = now
                next(self._counted)
            elif not lost:
                self._lease(scope, now).calls += 1

    def spend(self, scope: str, cost: float, now: float) -> bool:
        """Take ``cost`` tokens of the lease if they are there, all or none."""
        if self.falls_back(scope):
            with self._lock:
                self._counted_until_now()
                self._quiet_at = now + QUIET_AFTER
            return self.fallback.spend(scope, cost, now)
        with self._lock:
            lease = self._leases.get(self._key(scope))
            if lease is None or lease.tokens < cost or now >= lease.until:
                return False
            lease.tokens -= cost
        return True

    def refund(self, scope: str, cost: float) -> None:
        """Give back what bought an attempt that was not sent."""
        if self.falls_back(scope):
            self.fallback.refund(scope, cost)
            return
        with self._lock:
            lease = self._leases.get(self._key(scope))
            if lease is not None:
                lease.tokens = min(lease.tokens + cost, lease.most)

    def tokens(self, scope: str, now: float) -> float:
        """Tokens borrowed and not yet spent, or the fallback's; takes nothing."""
        if self.falls_back(scope):
            return self.fallback.tokens(scope, now)
        with self._lock:
            lease = self._leases.get(self._key(scope))
            return lease.tokens if lease is not None and now < lease.until else 0.0

    def falls_back(self, scope: str) -> bool:
        """Does the fallback stand in for this scope?"""
        return self.is_lost or (bool(self._unreadable) and self._key(scope) in self._unreadable)

    def lowest(self, now: float) -> float:
        """Tokens that the scope with the fewest has left, 0 while none has any; takes nothing."""
        with self._lock:
            leases = self._leases.values()
            return min((lease.tokens for lease in leases if now < lease.until), default=0.0)

    def needs_renewal(self, scope: str, now: float) -> bool:
        """Can the lease not pay for a retry, and is it worth asking for another?"""
        with self._lock:
            if self.is_lost:
                needs = now >= self._ask_at
            else:
                lease = self._leases.get(self._key(scope))
                needs = lease is None or not lease.suffices(1, now)
            if needs:
                self._lease(scope, now).asked_at = now
        return needs

    def borrow(self, scope: str, wanted: int, pause: float) -> tuple[Report, float] | None:
        """Return what to report, and the instant at which a lease that is lent begins.

        None if ``wanted`` tokens are there by now or were refused a moment ago; also for ``pause``
        seconds after the keeper was looked for in vain, growing to eight times that.
        """
        with self._lock:
            lease = self._leases.get(self._key(scope))
            if lease is None:  # the keeper was lost a moment ago
                return None
            now = lease.asked_at  # by the clock of whoever asks; somewhat early is the safe side
            if lease.suffices(wanted, now):
                return None
            if self.is_lost:
                if now < self._ask_at:
                    return None
                self._ask_at = now + pause * 2 ** min(self._losses, 3)
            if counted := self._counted_until_now():
                lease.calls += counted
                lease.reported_at = min(lease.reported_at, self._counted_since)
            self._quiet_at = now + QUIET_AFTER
            left = 0.0
            if now >= lease.until:  # else others may be about to spend it
                left, lease.tokens = lease.tokens, 0.0
            report = Report(lease.calls, now - lease.reported_at, left, lease.number, lease.size)
            lease.calls = lease.size = lease.number = 0
            lease.reported_at = now
        return report, now

    def lend(self, scope: str, size: int, number: int, now: float, until: float) -> bool:
        """Begin a lease, or add to the one that runs; return whether the keeper had been lost."""
        with self._lock:
            lease = self._lease(scope, now)
            lease.tokens += size
            lease.most, lease.until = lease.tokens, until
            lease.size, lease.number = size, number
        return self._found(scope)

    def refuse(self, scope: str, now: float, until: float) -> bool:
        """Remember that there is nothing to lend; return whether the keeper had been lost."""
        with self._lock:
            self._lease(scope, now).refused_until = until
        return self._found(scope)

    def lose_one(self, scope: str, now: float, until: float) -> bool:
        """Let the fallback stand in for a scope whose bucket cannot be read; return whether that is
        new. The keeper is asked again after ``until``.
        """
        with self._lock:
            is_new = self._key(scope) not in self._unreadable
            if len(self._unreadable) < MOST_SCOPES:
                self._unreadable.add(self._key(scope))
            self.errors += 1
            self._lease(scope, now).refused_until = until
        return is_new

    def lose(self, now: float, pause: float, *, failed: bool = True) -> bool:
        """Let the fallback stand in; return whether the keeper was there until now.

        Not ``failed``: the keeper may still answer, and so is not told to be lost.
        """
        with self._lock:
            was_there, was_told = not self.is_lost, self._is_told
            self.is_lost = True
            if was_there:
                self._ask_at = now + pause
                self._leases.clear()  # they return by themselves, and their calls now count here
            elif failed:
                self._losses += 1
            if failed:
                self._is_told = True
                self.errors += 1
        return failed and not was_told

    def _found(self, scope: str) -> bool:
        with self._lock:
            was_lost = self._is_told or self._key(scope) in self._unreadable
            self.is_lost = self._is_told = False
            self._unreadable.discard(self._key(scope))
            self._losses = 0
        return was_lost

    def _counted_until_now(self) -> int:
        """Be quiet no longer; return the calls counted meanwhile. Called with the lock held."""
        if not self.quiet:
            return 0
        self.quiet = False
        reading = next(self._counted)
        counted = reading - self._counted_before
        self._counted_before = reading + 1
        return counted

    def _key(self, scope: str) -> str:
        return "" if self.scope == "transport" else scope

    def _lease(self, scope: str, now: float) -> Lease:
        """The scope's entry, as the most recently used. Called with the lock held."""
        scope, leases = self._key(scope), self._leases
        lease = leases.get(scope)
        if lease is None:
            lease = leases[scope] = Lease(now)
            if len(leases) > MOST_SCOPES:
                leases.popitem(last=False)
        leases.move_to_end(scope)  # never out of the dictionary: an interruption would lose it
        return lease

    def after_fork(self) -> None:
        super().after_fork()
        self._begin()

    def _state(self) -> str:
        with self._lock:
            return f"{sum(lease.tokens for lease in self._leases.values()):.4g} tokens borrowed"
