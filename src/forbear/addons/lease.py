"""Lease: the block of tokens that a fleet budget lends one process.

A fleet has one bucket per scope; its keeper is not known here. A process spends from what it has
borrowed, and asks for more as soon as half of that is spent; the same round trip reports the calls
since the last one and what was left of a lease that is over.

No decision waits for a round trip. A retry that finds the lease used up or over is paid in advance,
from the budget of this process (``fallback``), and the next lease repays that before anything else
is spent from it. What is not repaid yet never exceeds the burst of that budget, so that the fleet's
bound stays hard. A refusal is remembered for a moment, so that an outage does not fall upon the
keeper too; until it is over nothing is paid in advance either. While the keeper is lost, the
fallback stands in, and so for a single scope whose bucket the keeper cannot read.

While nothing is wrong the only work is to count. The keeper cuts a report of calls that were made
long ago to those since its bucket was last full, so such calls are counted for all scopes together.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import count
from math import ceil, inf
from typing import TYPE_CHECKING, NamedTuple

from ..limits import Locked
from .interfaces import TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from .budget import RetryBudget
    from .interfaces import Readings

MOST_SCOPES = 1024  # least recently borrowed for, first out
QUIET_AFTER = 10.0  # seconds without a retry; until then every call asks for its origin
# A few waits between attempts: long enough to be spent, short enough for a dead process.
LEASE_SECONDS = 10.0
REFUSED_SECONDS = 0.5  # to twice that, so that an outage does not hammer the keeper
LOST_SECONDS = 1.0  # half to one and a half times that, growing to eight times
ERRORS = "forbear.budget.backend.errors"
ASKED_SECONDS = 1.0  # then a request is repeated: it may have been interrupted before it was made


class Report(NamedTuple):
    """The request of a process that borrows tokens."""

    scope: str
    asked_at: float  # by the clock of whoever asks, so somewhat early, which is the safe side
    calls: int  # since the last report
    elapsed: float  # seconds since then, infinite if there was none
    left: float  # tokens of a lease that is over; 0 for one that runs on and is added to
    number: int  # of the last lease, as its keeper gave it; 0: there is none
    size: int  # the part of that lease which its keeper takes back by itself when it is over
    owed: int  # tokens spent in advance, rounded up


class Lease:
    """The tokens of one scope."""

    def __init__(self, reported_at: float) -> None:
        self.reported_at = self.asked_at = reported_at
        self.tokens = self.most = 0.0  # most: that there can be after a refund
        self.low = 0.0  # with so many left, more are asked for
        self.owed = 0.0  # tokens spent in advance
        self.calls = self.size = self.number = 0
        self.until = self.asked_until = self.refused_until = -inf

    def wants_more(self, now: float) -> bool:
        """Is it time to ask for more, and not too soon after a refusal?"""
        if now < self.refused_until:
            return False
        return self.owed > 0 or self.tokens <= self.low or now >= self.until


class LeasedBudget(Locked):
    """A budget that spends from leases. Thread-safe.

    Whoever fetches leases overrides ``renew_soon``, calls ``borrow`` before a round trip, and
    ``lend``, ``refuse``, ``lose`` or ``lose_one`` after it.

    Attributes:
        hinted_cost: Tokens for a retry that the server itself scheduled.
        scope: "origin": leases for each origin; "transport": one for all.
        fallback: The budget that pays in advance, and that stands in while the keeper is lost.
        is_lost: The keeper could not be reached the last time.
        errors: How often it could not be reached.
        quiet: There was no retry for a while: a call that needs none is noted by ``count_call``.
    """

    name: str  # these two for metrics and logs
    backend: str
    counts_calls = True  # ``count_call`` wants to be called

    def __init__(
        self,
        *,
        hinted_cost: float,
        scope: Literal["origin", "transport"],
        fallback: RetryBudget,
        random: Callable[[], float],
    ) -> None:
        self.hinted_cost = hinted_cost
        self.scope = scope
        self.fallback = fallback
        self.is_lost = False
        self.errors = 0
        self._random = random
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

    def renew_soon(self, scope: str, now: float) -> None:
        """Have the lease of this scope renewed in the background; must return at once.

        Asked after a retry that left little, or found nothing, in the lease.
        """
        raise NotImplementedError

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
        asks = False
        with self._lock:
            if now >= self._quiet_at:
                self.quiet = True
                self._counted_since = now
                next(self._counted)
            elif not lost:
                lease = self._lease(scope, now)
                lease.calls += 1
                # Else what an outage has left owing would refuse the first retry after it.
                asks = lease.owed > 0 and self._begins_to_ask(lease, now)
        if asks:
            self.renew_soon(scope, now)

    def spend(self, scope: str, cost: float, now: float) -> bool:
        """Take ``cost`` tokens, all or none: of the lease, else in advance of the next one."""
        if not cost:
            return True
        paid = in_advance = False
        lost = self.falls_back(scope)
        with self._lock:
            lease = self._lease(scope, now)
            counted = self._counted_until_now(now)
            if not lost:
                self._add_calls(lease, counted)
                if lease.tokens >= cost and now < lease.until:
                    lease.tokens -= cost
                    paid = True
                elif now >= lease.refused_until and lease.owed + cost <= self.fallback.burst:
                    lease.owed += cost
                    in_advance = True
            asks = self._begins_to_ask(lease, now)
        if lost or in_advance:
            paid = self.fallback.spend(scope, cost, now)
            if in_advance and not paid:
                self._give_back(scope, cost)
        if asks:
            self.renew_soon(scope, now)
        return paid

    def refund(self, scope: str, cost: float) -> None:
        """Give back what bought an attempt that was not sent."""
        local = cost if self.falls_back(scope) else self._give_back(scope, cost)
        if local:
            self.fallback.refund(scope, local)

    def _give_back(self, scope: str, cost: float) -> float:
        """Undo a payment; return how much of it was in advance."""
        with self._lock:
            lease = self._leases.get(self._key(scope))
            if lease is None:
                return 0.0
            owed = min(lease.owed, cost)
            lease.owed -= owed
            lease.tokens = min(lease.tokens + cost - owed, lease.most)
        return owed

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

    def readings(self, now: float) -> Readings:
        """Return its gauges, as ``Limit.readings`` does: first of what is in force."""
        found = [
            (TOKENS, (self.name, "shared"), self.lowest(now)),
            (TOKENS, (self.name, "local"), self.fallback.lowest(now)),
        ]
        errors = float(self.errors)
        return [*found[:: -1 if self.is_lost else 1], (ERRORS, (self.backend,), errors)]

    # The round trip.

    def borrow(self, scope: str) -> Report | None:
        """Return what to report and to ask for.

        None if that is not needed any more, or if the keeper is lost and was looked for already.
        """
        pause = self._pause()
        with self._lock:
            lease = self._leases.get(self._key(scope))
            if lease is None:  # the keeper was lost a moment ago
                return None
            now = lease.asked_at
            if self.is_lost:
                if now < self._ask_at:
                    return None
                self._ask_at = now + pause * 2 ** min(self._losses, 3)
            elif not lease.wants_more(now):
                return None
            self._add_calls(lease, self._counted_until_now(now))
            left = 0.0
            if now >= lease.until:  # else others may be about to spend it
                left, lease.tokens = lease.tokens, 0.0
            report = Report(
                scope, now, lease.calls, now - lease.reported_at, left,
                lease.number, lease.size, ceil(lease.owed),
            )  # fmt: skip
            lease.calls = lease.size = lease.number = 0
            lease.reported_at = now
        return report

    def lend(self, report: Report, size: int, number: int) -> bool:
        """Repay what was spent in advance, and begin a lease with the rest, or add that to the one
        that runs; return whether the keeper had been lost.
        """
        until = report.asked_at + LEASE_SECONDS * (1 - 0.2 * self._random())
        with self._lock:
            lease = self._lease(report.scope, report.asked_at)
            repaid = min(lease.owed, size)
            lease.owed -= repaid
            lease.tokens += size - repaid
            lease.most = lease.tokens + repaid  # what was repaid may have bought what is not sent
            lease.low = size / 2
            lease.size, lease.number = max(0, size - report.owed), number
            lease.until, lease.asked_until = until, -inf
        if repaid:
            self.fallback.refund(report.scope, repaid)
        return self._found(report.scope)

    def refuse(self, report: Report) -> bool:
        """Remember that there is nothing to lend; return whether the keeper had been lost."""
        self._refuse_until(report, REFUSED_SECONDS * (1 + self._random()))
        return self._found(report.scope)

    def lose_one(self, report: Report) -> bool:
        """Let the fallback stand in for a scope whose bucket cannot be read, and ask again after a
        while; return whether that is new.
        """
        self._refuse_until(report, self._pause() * 8)
        with self._lock:
            self._lease(report.scope, report.asked_at).owed = 0.0  # the fallback has paid for it
            is_new = self._key(report.scope) not in self._unreadable
            if len(self._unreadable) < MOST_SCOPES:
                self._unreadable.add(self._key(report.scope))
            self.errors += 1
        return is_new

    def lose(self, now: float) -> bool:
        """Let the fallback stand in; return whether the keeper was there until now."""
        pause = self._pause()
        with self._lock:
            was_there = not self.is_lost
            self.is_lost = True
            self.errors += 1
            if was_there:
                self._ask_at = now + pause
            else:
                self._losses += 1
            self._leases.clear()  # they return by themselves, and their calls now count here
        return was_there

    def _refuse_until(self, report: Report, seconds: float) -> None:
        with self._lock:
            lease = self._lease(report.scope, report.asked_at)
            lease.refused_until, lease.asked_until = report.asked_at + seconds, -inf

    def _found(self, scope: str) -> bool:
        key = self._key(scope)
        with self._lock:
            was_lost = self.is_lost or key in self._unreadable
            self.is_lost = False
            self._unreadable.discard(key)
            self._losses = 0
        return was_lost

    def _pause(self) -> float:
        return LOST_SECONDS * (0.5 + self._random())

    # Called with the lock held.

    def _begins_to_ask(self, lease: Lease, now: float) -> bool:
        """Should the lease be renewed, and is that not under way? Then it is from now on."""
        if now < lease.asked_until:
            return False
        asks = now >= self._ask_at if self.is_lost else lease.wants_more(now)
        if asks:
            lease.asked_at, lease.asked_until = now, now + ASKED_SECONDS
        return asks

    def _counted_until_now(self, now: float) -> int:
        """Be quiet no longer; return the calls counted meanwhile."""
        self._quiet_at = max(self._quiet_at, now + QUIET_AFTER)
        if not self.quiet:
            return 0
        self.quiet = False
        reading = next(self._counted)
        counted = reading - self._counted_before
        self._counted_before = reading + 1
        return counted

    def _add_calls(self, lease: Lease, counted: int) -> None:
        if counted:
            lease.calls += counted
            lease.reported_at = min(lease.reported_at, self._counted_since)

    def _key(self, scope: str) -> str:
        return "" if self.scope == "transport" else scope

    def _lease(self, scope: str, now: float) -> Lease:
        """The scope's entry, as the most recently used."""
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
