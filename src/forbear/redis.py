"""forbear for a fleet: ``RedisBudget``, one allowance for all processes on all hosts.

What is decided, and what is remembered, is in addons/lease.py; here is the round trip, which a
thread makes in the background, and what happens when it fails.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from math import inf
from random import random as system_random
from typing import TYPE_CHECKING, Any

try:
    import redis
except ImportError:
    from .core.checks import to_install

    raise ImportError(f"forbear.redis needs redis: {to_install('redis')}") from None

from redis.backoff import NoBackoff
from redis.retry import Retry

from .addons.budget import RetryBudget, check_rates
from .addons.lease import LEASE_SECONDS, LeasedBudget, Report
from .core.checks import check_choice, check_duration, rebuilt, shown, suggesting
from .engine.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

__all__ = ["RedisBudget"]

logger = logging.getLogger("forbear.redis")

FIRST_SECONDS = 1.0  # that the first round trip may take longer, since it connects

# The lines of its log: name, level and text.
BUDGET_LOST = (
    "shared_budget_lost",
    logging.ERROR,
    "fleet budget %s: %s (%s); a budget of this process stands in until it is back",
)
BUDGET_BACK = "shared_budget_back", logging.INFO, "fleet budget %s: Redis is back"


class RedisBudget(LeasedBudget):
    """One allowance for the retries of a whole fleet, kept on Redis. Thread-safe and fork-safe.

    ``RetryTransport(budget=RedisBudget("redis://cache:6379", name="orders"))``, and so with every
    adapter. Needs Redis 6.2 or Valkey. All processes that give the same ``name`` on the same Redis
    share; they should give the same numbers too. One object may serve many transports.

    A process borrows a *lease*, a token and a tenth of what is there, and requests the next one as
    soon as half of it is spent. A round trip is made in the background and also reports the calls;
    no retry waits for it, and calls that succeed make none. The first retry of a process, and one
    that finds its lease spent or expired, spends a token of ``fallback``, which the next lease
    refunds. A process that was refused neither retries nor requests a lease for 0.5 to 1 s. A lease
    ends after 10 s and its tokens return, so that none is lost with a process that dies. Calls made
    while nothing fails are counted together, and reported for the origin that needs tokens first.

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
    transition once: ERROR when Redis is lost, INFO when it is back. A round trip that takes longer
    than ``connect_timeout + command_timeout`` counts as a loss, whatever the client does; the first
    one of a process has a second more, because it loads certificates and connects. A key that is
    not this budget's (another type, or no numbers) concerns its own origin only.

    A user of Redis needs no more than ``+eval +time +hgetall +hset +hdel +hincrby +pexpire
    ~forbear:*`` (and ``+select`` for another database than 0).

    A retry that requests a lease takes 0.1 ms to start the thread, which ends when no more leases
    are requested; the script takes Redis 27 µs. Counting a call that succeeds costs 40 ns; for 10 s
    after each retry it costs as much as with a ``RetryBudget`` that is not full (1.5 µs with
    httpx).

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

    backend = "redis"  # in metrics and logs

    @suggesting
    def __init__(
        self,
        url_or_client: Any,
        *,
        name: str,
        ratio: float = 0.1,
        floor_per_second: float = 1.0,
        burst: float = 100,
        hinted_cost: float = 0.25,
        scope: Literal["origin", "transport"] = "origin",
        fallback: RetryBudget | None = None,
        connect_timeout: float = 0.05,
        command_timeout: float = 0.05,
        random: Callable[[], float] | None = None,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise TypeError(f"name must be a text such as 'orders', got {shown(name)}")
        check_rates(ratio, floor_per_second, burst, hinted_cost)
        check_choice("scope", scope, ("origin", "transport"))
        check_duration("connect_timeout", connect_timeout, zero=False)
        check_duration("command_timeout", command_timeout, zero=False)
        if fallback is not None and not isinstance(fallback, RetryBudget):
            raise TypeError(f"fallback must be a RetryBudget, got {shown(fallback)}")
        if fallback is None:
            fallback = RetryBudget(ratio, 0.1, 5, hinted_cost, scope)
        super().__init__(
            hinted_cost=hinted_cost,
            scope=scope,
            fallback=fallback,
            random=system_random if random is None else random,
        )
        self.name = name
        self.ratio = ratio
        self.floor_per_second = floor_per_second
        self.burst = burst
        self.connect_timeout = connect_timeout
        self.command_timeout = command_timeout
        self._target = url_or_client
        self._client = self._connected()
        self._of_parents: list[object] = []

    def _connected(self) -> Any:
        """Return the client to use; it connects when it is first used."""
        target = self._target
        if not isinstance(target, str):
            if not callable(getattr(target, "eval", None)):
                raise TypeError(
                    "url_or_client must be a URL or a client of redis-py, got a "
                    + type(target).__name__
                )
            if hasattr(target, "__aenter__"):
                raise TypeError(
                    "the client must be synchronous, redis.Redis and not redis.asyncio.Redis: it"
                    " serves every event loop from a thread"
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

    def _begin(self) -> None:
        super()._begin()
        self._waiting: deque[str] = deque()  # scopes whose leases are to be renewed
        self._thread: threading.Thread | None = None
        self._thread_lock = threading.Lock()
        self._fails_at = inf  # when the round trip in flight takes too long; inf: there is none
        self._is_first = True
        self._edges = threading.RLock()  # transitions are logged in their order

    def spend(self, scope: str, cost: float, now: float) -> bool:
        # Checked here, because no option bounds all that a client may do in the thread: resolve
        # names, follow a cluster, retry. Without it a call would rely on a Redis that hangs.
        if SYSTEM_CLOCK.monotonic() > self._fails_at and not self.is_lost:
            self._lose(now, "TimeoutError")
        return super().spend(scope, cost, now)

    def renew_soon(self, scope: str, now: float) -> None:
        """Let a thread renew the lease. There is one at a time, and only while there is work."""
        if self.is_lost and self._fails_at < inf:  # a round trip tries to reach Redis already
            return
        try:
            with self._thread_lock:
                self._waiting.append(scope)
                if self._thread is None or not self._thread.is_alive():
                    self._thread = threading.Thread(
                        target=self._renew_waiting, name="forbear-lease", daemon=True
                    )
                    self._thread.start()
        except RuntimeError as error:  # no more threads, the end is near, or a subinterpreter's
            self._waiting.clear()
            self._lose(now, type(error).__name__)

    def _renew_waiting(self) -> None:
        while True:
            with self._thread_lock:
                if not self._waiting:
                    self._thread = None
                    return
                scope = self._waiting.popleft()
            self.renew(scope)

    def renew(self, scope: str) -> None:
        """Renew the lease now, in one round trip, if a retry has requested that.

        Blocks for as long as the client does. An error of the client only makes Redis lost.
        """
        report = self.borrow(scope)
        if report is None:
            return
        seconds = self.connect_timeout + self.command_timeout + FIRST_SECONDS * self._is_first
        self._fails_at = fails_at = SYSTEM_CLOCK.monotonic() + seconds
        try:
            lent, number = self._ask(report)
            if SYSTEM_CLOCK.monotonic() > fails_at:
                raise TimeoutError
        except Exception as error:
            self._lose(report.asked_at, type(error).__name__)
        else:
            with self._edges:
                self._take(report, lent, number)
        finally:
            self._fails_at = inf
            self._is_first = False

    def _take(self, report: Report, lent: int, number: int) -> None:
        if lent < 0:
            if self.lose_one(report):
                key = self._key(report.scope) or "all"
                self._log(BUDGET_LOST, f"the key of {key} is lost", "WRONGTYPE")
            return
        if self.lend(report, lent, number) if lent else self.refuse(report):
            self._log(BUDGET_BACK)

    def _ask(self, report: Report) -> tuple[int, int]:
        reply = self._client.eval(
            SCRIPT,
            1,
            f"forbear:{self.name}:{self._key(report.scope)}",
            float(self.floor_per_second),
            float(self.burst),
            report.calls * self.ratio,
            min(report.elapsed, 1e9) * 1000,
            report.left,
            report.number,
            report.size,
            report.owed,
            int(LEASE_SECONDS * 1000),
        )
        match reply:
            case [int(lent), int(number)] if 0 <= lent <= self.burst and number >= 0:
                return lent, number
            case [-1, 0]:  # the key is not this budget's
                return -1, 0
        raise redis.InvalidResponse

    def _lose(self, now: float, error: str) -> None:
        with self._edges:
            if self.lose(now):
                self._log(BUDGET_LOST, "Redis is lost", error)

    def _log(self, line: tuple[str, int, str], *why: str) -> None:
        name, level, text = line
        named = {"event": name, "budget": self.name, "backend": self.backend}
        if why:
            named["error_type"] = why[-1]
        fields = {f"forbear.{field}": value for field, value in named.items()}
        logger.log(level, text, self.name, *why, extra=fields)

    def after_fork(self) -> None:
        super().after_fork()
        if isinstance(self._target, str):
            # Kept: closing it may wait for a lock that a thread of the parent held at the fork.
            self._of_parents.append(self._client)
            self._client = self._connected()

    def __repr__(self) -> str:
        state = f"lost, {self.fallback!r} stands in" if self.is_lost else self._state()
        return f"<RedisBudget {self.name!r} {state}>"

    def __reduce__(self) -> tuple[object, ...]:
        # A copy in another process borrows for itself; a client cannot be copied, a URL can.
        options = {name: getattr(self, name) for name in OPTIONS}
        return rebuilt, (RedisBudget, {"url_or_client": self._target, **options})


OPTIONS = (
    "name", "ratio", "floor_per_second", "burst", "hinted_cost", "scope", "fallback",
    "connect_timeout", "command_timeout",
)  # fmt: skip


# The script that a RedisBudget runs on Redis to borrow tokens.
#
# Atomic, and one key: any node of a cluster that has it will do. Times are the server's, in
# milliseconds. A key that is not there is a full bucket. ``lent`` are the tokens of running leases
# by when they end, to the second, without those that the borrowing process has spent in advance:
# what is lent and never reported returns when its lease is over. A lease that is reported does not,
# so ``size`` is its part of ``lent``.
#
# It returns the tokens lent and the end of their lease, which is their number; ``{-1, 0}``: the key
# holds something else.
SCRIPT = """
local floor, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local deposit, elapsed = tonumber(ARGV[3]), tonumber(ARGV[4])
local left, number, size = tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7])
local owed, lasts = tonumber(ARGV[8]), tonumber(ARGV[9])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local tokens, at, full_at, lent = burst, now, now, {}
local fields = redis.pcall('HGETALL', KEYS[1])
if fields.err then
    if string.find(fields.err, 'WRONGTYPE') then return {-1, 0} end
    return fields
end
for i = 1, #fields, 2 do
    local name, value = fields[i], tonumber(fields[i + 1])
    if name == 'tokens' then tokens = value
    elseif name == 'at' then at = value
    elseif name == 'full_at' then full_at = value
    elseif value and tonumber(name) then lent[name] = value
    else return {-1, 0} end
end
if not (tokens and at and full_at) then return {-1, 0} end

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
