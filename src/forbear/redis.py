"""forbear for a fleet: ``RedisBudget``, one allowance for all processes on all hosts.

A fleet has one bucket per scope, on Redis. A process borrows a block of tokens, a lease, and spends
from it; it asks for more as soon as half of that is spent. The same round trip reports the calls
since the last one and what was left of a lease that is over.

No decision waits for a round trip. A retry that finds the lease used up or over is paid in advance,
from the budget of this process (``fallback``), and the next lease repays that before anything else
is spent from it. What is not repaid yet never exceeds the burst of that budget, so that the fleet's
bound stays hard. A refusal is remembered for a moment, so that an outage does not fall upon Redis
too; until it is over nothing is paid in advance either. While Redis is lost, the fallback stands
in.
"""

from __future__ import annotations

import logging
from dataclasses import KW_ONLY
from math import ceil, inf
from random import random as system_random
from threading import Thread
from typing import TYPE_CHECKING, Any

try:
    import redis
except ImportError:
    from .core.checks import to_install

    raise ImportError(f"forbear.redis needs redis: {to_install('redis')}") from None

from redis.backoff import NoBackoff
from redis.retry import Retry

from .addons.budget import MOST_SCOPES, TOKENS, RetryBudget, check_rates
from .core.checks import check_choice, check_duration, shown
from .core.feature_checks import begins_anew
from .limits import Locked, Readings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Literal

__all__ = ["RedisBudget"]

logger = logging.getLogger("forbear.redis")

# A few waits between attempts: long enough to be spent, short enough for a dead process.
LEASE_SECONDS = 10.0
REFUSED_SECONDS = 0.5  # to twice that, so that an outage does not hammer Redis
LOST_SECONDS = 1.0  # half to one and a half times that, growing to eight times
PATIENCE = 1.0  # seconds that a round trip may take beyond the timeouts
# Seconds without a retry after which calls are not counted: then the bucket is full, mostly, and
# what they would deposit is of no use.
QUIET_AFTER = 60.0


class Lease:
    """The tokens of one scope."""

    def __init__(self, reported_at: float) -> None:
        self.reported_at = reported_at
        self.calls = 0  # since then
        self.tokens = 0.0
        self.low = 0.0  # with so many left, more are asked for
        self.owed = 0.0  # tokens spent in advance
        # Of the last one, as Redis gave it, and the part of it that Redis takes back when it is
        # over; 0: there is none.
        self.number = self.size = 0
        self.until = self.refused_until = -inf

    def wants_more(self, now: float) -> bool:
        """Is it time to ask for more, and not too soon after a refusal?"""
        needs = self.owed > 0 or self.tokens <= self.low or now >= self.until
        return needs and now >= self.refused_until


@begins_anew
class RedisBudget(Locked):
    """One allowance for the retries of a whole fleet, kept on Redis. Thread-safe and fork-safe.

    ``RetryTransport(budget=RedisBudget("redis://cache:6379", name="orders"))``, and so with every
    adapter. Needs Redis 6.2 or Valkey. All processes that give the same ``name`` on the same Redis
    share; they should give the same numbers too. One object may serve many transports.

    A process borrows a *lease*, a token and a tenth of what is there, and requests the next one as
    soon as half of it is spent. A round trip is made in the background and also reports the calls;
    no retry waits for it, and calls that succeed make none. The first retry of a process, and one
    that finds its lease spent or expired, spends a token of ``fallback``, which the next lease
    refunds. A process that was refused neither retries nor requests a lease for 0.5 to 1 s. A lease
    ends after 10 s and its tokens return, so that none is lost with a process that dies. Calls
    are counted for a minute after each retry of their process; else the bucket is full, mostly.

    Fleet-wide, per scope, counted from any instant at which the bucket is full::

        retries ≤ ratio × calls + floor_per_second × seconds + burst + slack

    A retry that the server itself scheduled counts as ``hinted_cost``. The slack is the sum of what
    follows:

    - The burst of ``fallback`` for each process: the most that it spends in advance, however long
      an outage lasts. ``fallback=RetryBudget(burst=1)`` makes it one retry for each process, but of
      many calls that fail at once only the first is then retried before there is a lease. What a
      process has spent in advance is forgotten if it dies or loses Redis.
    - A lease, at most ``1 + burst / 10``, for each process that had spent its lease and then died,
      lost Redis or had nothing more to retry: these tokens return as if they were left. A process
      that comes back deducts them first.
    - ``ratio`` for each call that was in flight when the failures began: it may be counted late.
    - What ``fallback`` allows, in each process, while it has lost Redis.
    - ``burst`` each time Redis forgets: restarted without its data, failed over, evicted.

    Redis slow, gone, failing over, full, read-only or not a Redis: ``fallback`` decides in its
    place until Redis is reachable again. That is tried when a retry is requested, in the
    background, every second or so, later every eight. The logger ``forbear.redis`` logs each
    transition once: ERROR when Redis is lost, INFO when it is back. A round trip that takes a
    second longer than ``connect_timeout + command_timeout`` counts as a loss, whatever the client
    does. So does a key that is not this budget's.

    A user of Redis needs no more than ``+eval +time +hgetall +hset +hdel +hincrby +pexpire
    ~forbear:*`` (and ``+select`` for another database than 0).

    A retry that requests a lease takes 0.1 ms to start the thread, which makes one round trip; the
    script takes Redis 27 µs.

    Attributes:
        is_lost: Redis could not be reached the last time; ``fallback`` stands in.

    Args:
        url_or_client: ``redis://``, ``rediss://`` or ``unix://``, or a synchronous client of
            redis-py: ``redis.Redis``, ``redis.RedisCluster``, what a ``Sentinel`` gives out. Give a
            client short timeouts and no retries of its own; one that is made from a URL has them. A
            client must be fork-safe where you fork; redis.Redis is, unless another thread uses it.
        name: Of the allowance. The key on Redis is ``forbear:name:origin``.
        ratio: Tokens that each call deposits, from 0 to 1.
        floor_per_second: Tokens per second for the whole fleet, whatever its traffic.
        burst: Most tokens a bucket holds, and what it starts with. At least 1.
        hinted_cost: Tokens for a retry that the server scheduled, 0 to 1; any other costs 1.
        scope: "origin": a bucket for each scheme://host:port; "transport": one for all origins.
        fallback: Allows retries before there is a lease, and while Redis is lost. If not given, a
            RetryBudget of each process with the same ratio, one token in ten seconds and a burst
            of 5.
        connect_timeout: Seconds.
        command_timeout: Seconds.
        random: Like random.random; spreads what a fleet would otherwise do in step.

    Raises:
        ValueError: A number is out of its range, or it is no URL of a Redis.
        TypeError: A value is of the wrong type, or the client is asynchronous.
    """

    url_or_client: object
    _: KW_ONLY
    name: str
    ratio: float = 0.1
    floor_per_second: float = 1.0
    burst: float = 100
    hinted_cost: float = 0.25
    scope: Literal["origin", "transport"] = "origin"
    fallback: RetryBudget | None = None
    connect_timeout: float = 0.05
    command_timeout: float = 0.05
    random: Callable[[], float] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise TypeError(f"name must be a text such as 'orders', got {shown(self.name)}")
        check_rates(self.ratio, self.floor_per_second, self.burst, self.hinted_cost)
        check_choice("scope", self.scope, ("origin", "transport"))
        check_duration("connect_timeout", self.connect_timeout, zero=False)
        check_duration("command_timeout", self.command_timeout, zero=False)
        local = self.fallback or RetryBudget(self.ratio, 0.1, 5, self.hinted_cost)
        if not isinstance(local, RetryBudget):
            raise TypeError(f"fallback must be a RetryBudget, got {shown(local)}")
        self.fallback = self._local = local
        self._random = self.random or system_random
        self._of_parents: list[object] = []
        self._begin()
        super().__init__()

    def _begin(self) -> None:
        """Have nothing and owe nothing: at first, and in a forked child."""
        self._client = self._connected()
        self._leases: dict[str, Lease] = {}
        self.quiet = True  # calls are not counted
        self._quiet_at = -inf  # from then on
        self.is_lost = False
        self._errors = 0  # in all, and
        self._losses = 0  # in a row
        self._ask_at = -inf  # while lost: when to look for Redis again
        self._thread: Thread | None = None
        self._fails_at = -inf  # when the round trip under way takes too long

    def _connected(self) -> Any:
        """Return the client to use; it connects when it is first used."""
        target = self.url_or_client
        if not isinstance(target, str):
            if not callable(getattr(target, "eval", None)) or hasattr(target, "__aenter__"):
                raise TypeError(
                    "url_or_client must be a URL or a synchronous client of redis-py, redis.Redis"
                    f" and not redis.asyncio.Redis, got a {type(target).__name__}"
                )
            return target
        try:
            return redis.Redis.from_url(
                target,
                socket_connect_timeout=self.connect_timeout,
                socket_timeout=self.command_timeout,
                # No retries: a report that did arrive would count twice, and the caller waits.
                retry=Retry(NoBackoff(), 0),
            )
        except Exception:  # its text may hold parts of the password
            raise ValueError(
                "url_or_client is no URL of a Redis: write redis://user:password@host:port/db"
                " (rediss:// for TLS, unix:// for a socket) and percent-encode what is special in"
                " the password"
            ) from None

    def deposit(self, scope: str, now: float) -> None:
        """Note a call."""
        if self.quiet:
            return
        if self.is_lost:
            self._local.deposit(scope, now)
            return
        with self._lock:
            lease = self._lease(scope, now)
            lease.calls += 1
            # Else what an outage has left owing would refuse the first retry after it.
            asks = lease.owed > 0 and self._begins_to_ask(lease, now)
            self.quiet = now >= self._quiet_at
        if asks:
            self.renew_soon(scope, now)

    def spend(self, scope: str, cost: float, now: float) -> bool:
        """Take ``cost`` tokens, all or none: of the lease, else in advance of the next one."""
        if not cost:
            return True
        # No option bounds all that a client may do in the thread: resolve names, follow a cluster.
        if -inf < self._fails_at <= now and not self.is_lost:
            self._lose(now, "TimeoutError")
        with self._lock:
            self.quiet, self._quiet_at = False, now + QUIET_AFTER
            lease = self._lease(scope, now)
            if self.is_lost:
                is_paid = self._local.spend(scope, cost, now)
            elif lease.tokens >= cost and now < lease.until:
                lease.tokens -= cost
                is_paid = True
            else:
                may_owe = now >= lease.refused_until and lease.owed + cost <= self._local.burst
                is_paid = may_owe and self._local.spend(scope, cost, now)
                lease.owed += cost if is_paid else 0.0
            asks = self._begins_to_ask(lease, now)
        if asks:
            self.renew_soon(scope, now)
        return is_paid

    def refund(self, scope: str, cost: float) -> None:
        """Give back what bought an attempt that was not sent."""
        with self._lock:
            lease = self._leases.get(scope)
            in_advance = cost
            if lease is not None and not self.is_lost:
                in_advance = min(lease.owed, cost)
                lease.owed -= in_advance
                lease.tokens += cost - in_advance
        self._local.refund(scope, in_advance)

    def tokens(self, scope: str, now: float) -> float:
        """Tokens borrowed and not yet spent, or the fallback's; takes nothing."""
        if self.is_lost:
            return self._local.tokens(scope, now)
        with self._lock:
            lease = self._leases.get(scope)
            return lease.tokens if lease is not None and now < lease.until else 0.0

    def readings(self, now: float) -> Readings:
        """Return its gauges, as ``Limit.readings`` does: first of what is in force."""
        with self._lock:
            leases = list(self._leases.values())
        lowest = min((lease.tokens for lease in leases if now < lease.until), default=0.0)
        found = [
            (TOKENS, (self.name, "shared"), lowest),
            (TOKENS, (self.name, "local"), self._local.lowest(now)),
        ]
        errors = "forbear.budget.backend.errors", ("redis",), float(self._errors)
        return [*found[:: -1 if self.is_lost else 1], errors]

    def renew_soon(self, scope: str, now: float) -> None:
        """Let a thread renew the lease; it lives for this one round trip."""
        self._thread = Thread(
            target=self.renew, args=(scope, now), name="forbear-lease", daemon=True
        )
        try:
            self._thread.start()
        except RuntimeError as error:  # no more threads, the end is near, or a subinterpreter's
            self._lose(now, type(error).__name__)

    def renew(self, scope: str, now: float) -> None:
        """Report, and renew the lease, in one round trip.

        Blocks for as long as the client does. An error of the client only makes Redis lost.
        """
        with self._lock:
            lease = self._lease(scope, now)
            left, owed = 0.0, ceil(lease.owed)
            if now >= lease.until:  # else others may be about to spend it
                left, lease.tokens = lease.tokens, 0.0
            report = (
                lease.calls * self.ratio, min(now - lease.reported_at, 1e9) * 1000, left,
                lease.number, lease.size, owed,
            )  # fmt: skip
            lease.calls = lease.number = lease.size = 0
            lease.reported_at = now
        key = f"forbear:{self.name}:{scope}"
        numbers = float(self.floor_per_second), float(self.burst)
        try:
            reply = self._client.eval(SCRIPT, 1, key, *numbers, *report, int(LEASE_SECONDS * 1000))
            lent, number = map(int, reply)
        except Exception as error:
            self._lose(now, type(error).__name__)
        else:
            self._borrowed(scope, now, lent, number, owed)
        finally:
            self._fails_at = -inf

    def _borrowed(self, scope: str, now: float, lent: int, number: int, owed: int) -> None:
        """Repay what was spent in advance, and add the rest to the lease; 0: there is nothing."""
        with self._lock:
            was_lost, self.is_lost, self._losses = self.is_lost, False, 0
            lease = self._lease(scope, now)
            repaid = min(lease.owed, lent)
            lease.owed -= repaid
            if lent:
                lease.tokens += lent - repaid
                lease.low = lent / 2
                lease.number, lease.size = number, max(0, lent - owed)
                lease.until = now + LEASE_SECONDS * (1 - 0.2 * self._random())
            else:
                lease.refused_until = now + REFUSED_SECONDS * (1 + self._random())
        self._local.refund(scope, repaid)
        if was_lost:
            self._log(logging.INFO, "shared_budget_back", "Redis is back")

    def _lose(self, now: float, error: str) -> None:
        """Let the fallback stand in."""
        with self._lock:
            was_lost, self.is_lost = self.is_lost, True
            self._errors += 1
            self._losses += 1
            pause = LOST_SECONDS * (0.5 + self._random()) * 2 ** min(self._losses - 1, 3)
            self._ask_at = now + pause
            self._leases.clear()  # they return by themselves, and their calls now count here
        if not was_lost:
            text = f"Redis is lost ({error}); a budget of this process stands in until it is back"
            self._log(logging.ERROR, "shared_budget_lost", text, {"forbear.error_type": error})

    def _log(self, level: int, event: str, text: str, more: Mapping[str, str] = {}) -> None:
        fields = {"forbear.event": event, "forbear.budget": self.name, "forbear.backend": "redis"}
        logger.log(level, "fleet budget %s: %s", self.name, text, extra={**fields, **more})

    # Called with the lock held.

    def _lease(self, scope: str, now: float) -> Lease:
        """The scope's entry, as the most recently used."""
        lease = self._leases.pop(scope, None) or Lease(now)
        if len(self._leases) >= MOST_SCOPES:
            del self._leases[next(iter(self._leases))]
        self._leases[scope] = lease
        return lease

    def _begins_to_ask(self, lease: Lease, now: float) -> bool:
        """Should the lease be renewed, and is no round trip under way? Then one is from now on."""
        if now < self._fails_at or (self._thread is not None and self._thread.is_alive()):
            return False
        asks = now >= self._ask_at if self.is_lost else lease.wants_more(now)
        if asks:
            self._fails_at = now + self.connect_timeout + self.command_timeout + PATIENCE
        return asks

    def after_fork(self) -> None:
        super().after_fork()
        # Kept: closing it may wait for a lock that a thread of the parent held at the fork.
        self._of_parents.append(self._client)
        self._begin()

    def __repr__(self) -> str:
        with self._lock:
            borrowed = sum(lease.tokens for lease in self._leases.values())
        lost = f"lost, {self._local!r} stands in"
        state = lost if self.is_lost else f"{borrowed:.4g} tokens borrowed"
        return f"<RedisBudget {self.name!r} {state}>"


# The script that a RedisBudget runs on Redis to borrow tokens.
#
# Atomic, and one key: any node of a cluster that has it will do. Times are the server's, in
# milliseconds. A key that is not there is a full bucket. ``lent`` are the tokens of running leases
# by when they end, to the second, without those that the borrowing process has spent in advance:
# what is lent and never reported returns when its lease is over. A lease that is reported does not,
# so ``size`` is its part of ``lent``.
#
# It returns the tokens lent and the end of their lease, which is their number.
SCRIPT = """
local floor, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local deposit, elapsed = tonumber(ARGV[3]), tonumber(ARGV[4])
local left, number, size = tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7])
local owed, lasts = tonumber(ARGV[8]), tonumber(ARGV[9])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local tokens, at, full_at, lent = burst, now, now, {}
local fields = redis.call('HGETALL', KEYS[1])
for i = 1, #fields, 2 do
    local name, value = fields[i], tonumber(fields[i + 1])
    if name == 'tokens' then tokens = value
    elseif name == 'at' then at = value
    elseif name == 'full_at' then full_at = value
    else lent[name] = value end
end

tokens = tokens + math.max(0, now - at) / 1000 * floor
for ends_at, some in pairs(lent) do
    if tonumber(ends_at) <= now then
        tokens = tokens + some
        lent[ends_at] = nil
        redis.call('HDEL', KEYS[1], ends_at)
    end
end
if tokens >= burst then
    tokens, full_at = burst, now
end
if deposit > 0 then
    tokens = tokens + deposit * math.min(1, math.max(0, now - full_at) / math.max(1, elapsed))
end
if size > 0 and lent[number] then
    if lent[number] > size then redis.call('HINCRBY', KEYS[1], number, -size)
    else redis.call('HDEL', KEYS[1], number) end
elseif size > 0 then
    left = left - size
end
tokens = math.min(burst, tokens + left)

local lend, ends_at = 0, 0
if tokens >= 1 then
    lend = math.min(math.floor(tokens), math.max(1, owed) + math.floor(tokens / 10))
    tokens = tokens - lend
    ends_at = math.ceil((now + lasts) / 1000) * 1000
    if lend > owed then redis.call('HINCRBY', KEYS[1], ends_at, lend - owed) end
end
redis.call('HSET', KEYS[1], 'tokens', tostring(tokens), 'at', now, 'full_at', full_at)
local until_full = 86400000
if floor > 0 then until_full = math.min(until_full, math.ceil((burst - tokens) / floor * 1000)) end
redis.call('PEXPIRE', KEYS[1], math.max(until_full, lasts + 1000))
return {lend, ends_at}
"""
