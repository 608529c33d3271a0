"""forbear for a fleet: ``RedisBudget``, one allowance for all processes on all hosts. Floor: acts.

What is decided, and what is remembered, is in shared/lease.py; here is the round trip, and what
happens when it fails.
"""

from __future__ import annotations

import logging
import threading
from random import random as system_random
from typing import TYPE_CHECKING, Any

try:
    import redis
except ImportError:
    from .core.checks import to_install

    raise ImportError(f"forbear.redis needs redis: {to_install('redis')}") from None

from redis.backoff import NoBackoff
from redis.retry import Retry

from .adapters.redis_script import SCRIPT
from .core.checks import a_choice, a_duration, shown
from .core.frozen import rebuilt
from .sending.clock import SYSTEM_CLOCK
from .shared.budget import RetryBudget, check_rates
from .shared.lease import LeasedBudget, Report

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

__all__ = ["RedisBudget"]

logger = logging.getLogger("forbear.redis")

# A few waits between attempts: long enough to be spent, short enough for a dead process.
LEASE_SECONDS = 10.0
REFUSED_SECONDS = 0.5  # to twice that, so that an outage does not hammer Redis
FIRST_SECONDS = 1.0  # that the first round trip may take longer, since it connects
LOST_SECONDS = 1.0  # half to one and a half times that, growing to eight times


class RedisBudget(LeasedBudget):
    """One allowance for the retries of a whole fleet, kept on Redis. Thread-safe and fork-safe.

    ``RetryTransport(budget=RedisBudget("redis://cache:6379", name="orders"))``, and so with every
    adapter. Needs Redis 6.2 or Valkey. All processes that give the same ``name`` on the same Redis
    share; they should give the same numbers too. One object may serve many transports.

    A process borrows a *lease*: one token for the retry at hand and a tenth of what is there. It
    asks only when it wants to retry and has nothing left, in one round trip that also reports its
    calls; never for a call that succeeds. A process that was refused does not ask again for 0.5 to
    1 s. A lease ends after 10 s, and its tokens return, so a process that dies takes nothing along.
    Calls made while nothing is wrong are counted together, and reported for the origin that needs
    tokens first.

    Fleet-wide, per scope, counted from any instant at which the bucket is full::

        retries ≤ ratio × calls + floor_per_second × seconds + burst + slack

    A retry that the server itself scheduled counts as ``hinted_cost``. The slack is the sum of what
    follows; 50 processes in a total outage, 75,000 calls, showed none of it:

    - (lease - 1) ≤ ``burst / 10`` for each process that had spent its lease and then died, lost
      Redis or had nothing more to retry: these tokens return as if they were left. A process that
      comes back pays them back first.
    - ``ratio`` for each call that was on its way when the trouble began: it may be counted late.
    - What ``fallback`` allows, in each process, while it has lost Redis or is connecting.
    - ``burst`` each time Redis forgets: restarted without its data, failed over, evicted.

    Redis slow, gone, failing over, full, read-only or not a Redis: ``fallback`` is asked from then
    on, at once and without a wait, until Redis is found again. It is looked for when a retry is
    wanted, in the background, every second or so, later every eight. The logger ``forbear.redis``
    says so once: ERROR when it is lost, INFO when it is back. Each time Redis is lost, a call waits
    ``connect_timeout + command_timeout`` at most, whatever the client does. The first round trip of
    a process has a second more, since it loads certificates and connects; a call does not wait for
    that, and ``fallback`` is asked meanwhile. A key that is not this budget's (another type, or no
    numbers) concerns its own origin only.

    A user of Redis needs no more than ``+eval +time +hgetall +hset +hdel +hincrby +pexpire
    ~forbear:*`` (and ``+select`` for another database than 0).

    A round trip costs the retry 0.15 to 0.3 ms on loopback, of which the script takes Redis 27 µs.
    A call that succeeds pays 40 ns for being counted; for 10 s after each round trip, as much as
    with a ``RetryBudget`` that is not full (1.5 µs with httpx).

    Attributes:
        is_lost: Redis could not be reached the last time, or not yet; ``fallback`` stands in.

    Args:
        url_or_client: ``redis://``, ``rediss://`` or ``unix://``, or a synchronous client of
            redis-py: ``redis.Redis``, ``redis.RedisCluster``, what a ``Sentinel`` gives out. Give a
            client short timeouts and no retries of its own; one that is made from a URL has them. A
            client must be fork-safe where you fork; redis.Redis is, unless another thread uses it.
        name: Of the allowance. The key on Redis is ``forbear:name:origin``.
        ratio: Tokens that each call deposits.
        floor_per_second: Tokens per second for the whole fleet, whatever its traffic.
        burst: Most tokens a bucket holds, and what it starts with. At least 1.
        hinted_cost: Tokens for a retry that the server scheduled, 0 to 1; any other costs 1.
        scope: "origin": a bucket for each scheme://host:port; "transport": one for all origins.
        fallback: Asked while Redis is lost. If not given, a RetryBudget of each process with the
            same ratio, one token in ten seconds and a burst of 5.
        connect_timeout: Seconds.
        command_timeout: Seconds.
        random: Like random.random; spreads what a fleet would otherwise do in step.

    Raises:
        ValueError: A number is out of its range, or it is no URL of a Redis.
        TypeError: A value is of the wrong type, or the client is asynchronous.
    """

    backend = "redis"  # in metrics and logs

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
        a_choice("scope", scope, ("origin", "transport"))
        a_duration("connect_timeout", connect_timeout, zero=False)
        a_duration("command_timeout", command_timeout, zero=False)
        if fallback is not None and not isinstance(fallback, RetryBudget):
            raise TypeError(f"fallback must be a RetryBudget, got {shown(fallback)}")
        if fallback is None:
            fallback = RetryBudget(ratio, 0.1, 5, hinted_cost, scope)
        super().__init__(hinted_cost=hinted_cost, scope=scope, fallback=fallback)
        self.name = name
        self.ratio = ratio
        self.floor_per_second = floor_per_second
        self.burst = burst
        self.connect_timeout = connect_timeout
        self.command_timeout = command_timeout
        self._random: Callable[[], float] = system_random if random is None else random
        self._target = url_or_client
        self._longest = connect_timeout + command_timeout
        self._client: Any = self._connected()
        self._of_parents: list[Any] = []

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
                # Never twice: a report that did arrive would count twice, and the caller waits.
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
        self._trips: dict[str, RoundTrip] = {}
        self._is_first = True
        self._trips_lock = threading.Lock()
        self._edges = threading.RLock()  # the log tells of them in their order

    def renew(self, scope: str) -> None:
        """Fetch a lease, or wait for the one that another thread is fetching.

        Blocks for ``connect_timeout + command_timeout`` at most, not at all while Redis is lost.
        Never raises.
        """
        scope = self._key(scope)
        now = SYSTEM_CLOCK.monotonic()
        until, wanted = now + self._longest, 1
        while True:
            with self._trips_lock:
                trip = self._trips.get(scope)
                is_own = trip is None
                if trip is None:
                    if self.is_lost and self._trips:  # Redis is looked for already
                        return
                    borrowed = self.borrow(scope, wanted, LOST_SECONDS * (0.5 + self._random()))
                    if borrowed is None:
                        return
                    trip = RoundTrip(scope, *borrowed, wanted, now + self._longest)
                    trip.fails_at = trip.until + FIRST_SECONDS * self._is_first
                    self._trips[scope] = trip
                trip.waiting += 1
            if is_own:
                self._start(trip)
            if self.is_lost:  # the trip goes to look for Redis; a call need not wait for that
                if not self._is_told and SYSTEM_CLOCK.monotonic() > trip.fails_at:
                    self._lose(trip.now, "TimeoutError")
                return
            if not trip.over.wait(min(until, trip.until) - SYSTEM_CLOCK.monotonic()):
                if trip.until <= until:
                    failed = SYSTEM_CLOCK.monotonic() > trip.fails_at
                    self._lose(trip.now, "TimeoutError", failed=failed)
                return
            if is_own or trip.lent >= trip.waiting or trip.lent < trip.wanted:
                return
            wanted = trip.waiting  # who came first may not have spent its token yet
            now = SYSTEM_CLOCK.monotonic()

    def _start(self, trip: RoundTrip) -> None:
        # No option bounds all of what a client may do: resolve names, follow a cluster, try again.
        thread = threading.Thread(
            target=self._make, args=(trip,), name="forbear-lease", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # no more threads, or the interpreter is about to end
            self._lose(trip.now, type(error).__name__)
            self._end(trip)

    def _make(self, trip: RoundTrip) -> None:
        try:
            lent, number = self._ask(trip)
            if SYSTEM_CLOCK.monotonic() > trip.fails_at:
                raise TimeoutError
        except Exception as error:
            self._lose(trip.now, type(error).__name__)
        else:
            trip.lent = max(0, lent)
            with self._edges:
                self._take(trip, lent, number)
        finally:
            self._end(trip)

    def _take(self, trip: RoundTrip, lent: int, number: int) -> None:
        if lent < 0:
            until = trip.now + LOST_SECONDS * 8 * (0.5 + self._random())
            if self.lose_one(trip.scope, trip.now, until):
                self._tell_lost(f"the key of {trip.scope or 'all'} is lost", "WRONGTYPE")
            return
        if lent:
            until = trip.now + LEASE_SECONDS * (1 - 0.2 * self._random())
            was_lost = self.lend(trip.scope, lent, number, trip.now, until)
        else:
            until = trip.now + REFUSED_SECONDS * (1 + self._random())
            was_lost = self.refuse(trip.scope, trip.now, until)
        if was_lost:
            fields = self._fields("shared_budget_back")
            logger.info("fleet budget %s: Redis is back", self.name, extra=fields)

    def _ask(self, trip: RoundTrip) -> tuple[int, int]:
        report = trip.report
        reply = self._client.eval(
            SCRIPT,
            1,
            f"forbear:{self.name}:{trip.scope}",
            float(self.floor_per_second),
            float(self.burst),
            report.calls * self.ratio,
            min(report.elapsed, 1e9) * 1000,
            report.left,
            report.number,
            report.size,
            trip.wanted,
            int(LEASE_SECONDS * 1000),
        )
        match reply:
            case [int(lent), int(number)] if 0 <= lent <= self.burst and number >= 0:
                return lent, number
            case [-1, 0]:  # the key is not this budget's
                return -1, 0
        raise redis.InvalidResponse

    def _lose(self, now: float, error: str, *, failed: bool = True) -> None:
        with self._edges:
            if self.lose(now, LOST_SECONDS * (0.5 + self._random()), failed=failed):
                self._tell_lost("Redis is lost", error)

    def _tell_lost(self, told: str, error: str) -> None:
        logger.error(
            "fleet budget %s: %s (%s); a budget of this process stands in until it is back",
            self.name,
            told,
            error,
            extra={**self._fields("shared_budget_lost"), "forbear.error_type": error},
        )

    def _fields(self, event: str) -> dict[str, str]:
        named = {"forbear.budget": self.name, "forbear.backend": self.backend}
        return {"forbear.event": event, **named}

    def _end(self, trip: RoundTrip) -> None:
        with self._trips_lock:
            if self._trips.get(trip.scope) is trip:
                del self._trips[trip.scope]
        self._is_first = False
        trip.over.set()

    def after_fork(self) -> None:
        super().after_fork()
        if isinstance(self._target, str):
            # Kept: closing it may wait for a lock that a thread of the parent held at the fork.
            self._of_parents.append(self._client)
            self._client = self._connected()

    def __repr__(self) -> str:
        state = f"lost, {self.fallback!r} stands in" if self.is_lost else self._state()
        return f"<RedisBudget {self.name!r} {state}>"

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy in another process borrows for itself; a client cannot be copied, a URL can.
        options = {name: getattr(self, name) for name in OPTIONS}
        return rebuilt, (RedisBudget, {"url_or_client": self._target, **options})


OPTIONS = (
    "name", "ratio", "floor_per_second", "burst", "hinted_cost", "scope", "fallback",
    "connect_timeout", "command_timeout",
)  # fmt: skip


class RoundTrip:
    """A round trip to Redis. Whoever wants a lease of the same scope meanwhile waits for it."""

    def __init__(self, scope: str, report: Report, now: float, wanted: int, until: float) -> None:
        self.scope = scope
        self.report = report
        self.now = now  # by the clock of the transport
        self.wanted = wanted
        self.until = self.fails_at = until  # by the system's; until: a call waits for it
        self.lent = self.waiting = 0
        self.over = threading.Event()
