"""Carried: what one call carries from Retry to Retry. Floor: acts.

urllib3 passes the Retry of the next attempt along; this is the part of it that is one call's. A
redirect begins a new hop: retries and deadline go on, what belongs to an origin begins anew.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from urllib3.util import parse_url

from .._rehearsal import Terms, in_force
from .._understudy import strategy_for
from ..core.call import Call
from ..core.headers.nesting import ends_outer_loops
from ..sending.context import CURRENT, Scope
from ..shared.standard import StandardStrategy
from .urllib3_exchange import Facts

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.events import Event
    from ..core.policy import RetryPolicy
    from ..core.strategy import RetryStrategy
    from ..core.verdict import GiveUp
    from ..sending.clock import Clock

__all__ = ["KEYED", "Carried", "PoolFacts", "begin", "origin_of"]

# Safe to repeat only with an idempotency key, and a Retry does not see the request's headers.
KEYED = frozenset({"POST", "PATCH"})
DEFAULT_PORTS = {"http": 80, "https": 443}


def begin(policy: RetryPolicy, clock: Clock, now: float) -> Carried:
    """Begin a call under what holds in this context."""
    scope, terms = CURRENT.get(), in_force()
    deadline_at = inf
    if scope is not None:
        policy = scope.merged(policy)
        deadline_at = scope.deadline_on(clock, now)
    if policy.total_timeout is not None:
        deadline_at = min(deadline_at, now + policy.total_timeout)
    if terms is not None:
        policy = terms.bounded(policy)
    return Carried(policy, scope, deadline_at, clock, terms, now)


class PoolFacts(Facts):
    """What a decision may ask of a request to a pool: its URL is a path, or whole for a forward
    proxy's.
    """

    __slots__ = ()

    def path_and_query(self) -> str:
        url = self.target or ""
        return url.partition("#")[0] if url.startswith("/") else parse_url(url).request_uri


class Carried:
    """One call. Not shared between threads.

    Attributes:
        policy: As overridden in the context in which the call began.
        scope: That context.
        deadline_at: The instant after which nothing is sent again.
        clock: By which it is that instant.
        terms: Of the rehearsal that the call began in, if any.
        sent_at: When this hop's first attempt was sent, as far as is known.
        retries_used: By earlier hops.
        call: From the hop's first failure on.
        delay: Seconds to wait before the next attempt, from ``judged_at`` on.
        sent: The next attempt is noted in the call already.
        ended: urllib3 has handed over or raised.
    """

    __slots__ = (
        "call",
        "clock",
        "deadline_at",
        "delay",
        "ended",
        "judged_at",
        "policy",
        "retries_used",
        "scope",
        "sent",
        "sent_at",
        "terms",
    )

    def __init__(
        self,
        policy: RetryPolicy,
        scope: Scope | None,
        deadline_at: float,
        clock: Clock,
        terms: Terms | None,
        now: float,
        retries_used: int = 0,
    ) -> None:
        self.policy = policy
        self.scope = scope
        self.deadline_at = deadline_at
        self.clock = clock
        self.terms = terms
        self.sent_at = self.judged_at = now
        self.retries_used = retries_used
        self.call: Call | None = None
        self.delay = 0.0
        self.sent = self.ended = False

    @property
    def listeners(self) -> tuple[Callable[[Event], object], ...]:
        listeners = () if self.scope is None else self.scope.listeners
        return listeners if self.terms is None else listeners + self.terms.listeners

    @property
    def sends_once(self) -> bool:
        return self.scope is not None and self.scope.sends_once()

    def tell_incoming(self, verdict: GiveUp) -> None:
        """Whoever repeats the request that is being answered would repeat all that was tried
        here.
        """
        incoming = None if self.scope is None else self.scope.incoming
        attempts = 0 if self.call is None else len(self.call.trail.entries)
        if incoming is not None and ends_outer_loops(attempts, verdict.reason):
            incoming.gave_up = True

    def next_hop(self, now: float) -> Carried:
        """What goes on with a redirect; a hop's first sending is no retry."""
        used = self.retries_used if self.call is None else self.call.attempts - 1
        return Carried(self.policy, self.scope, self.deadline_at, self.clock, self.terms, now, used)

    def note_attempt(
        self, method: str, origin: str, url: str | None, strategy: RetryStrategy, now: float
    ) -> Call:
        """Return the call, with the attempt that has just ended noted in it."""
        call = self.call
        if call is None:
            policy, terms = self.policy, self.terms
            if terms is not None:
                strategy = strategy_for(strategy, terms)
            if isinstance(strategy, StandardStrategy) and strategy.policy is not policy:
                strategy = strategy.with_policy(policy)
            if policy.methods & KEYED:
                policy = policy.replace(methods=policy.methods - KEYED)
            facts = PoolFacts(method, origin, {}, target=url)  # a Retry sees no headers
            call = self.call = Call(
                policy, facts, strategy, now=self.sent_at, deadline_at=self.deadline_at
            )
            if self.scope is not None and not isinstance(strategy, StandardStrategy):
                call.most_attempts = self.scope.fields.get("max_attempts", inf)
            if terms is not None:
                call.most_attempts = min(call.most_attempts, terms.most_attempts)
            call.follow(self.retries_used)
            call.sending(self.sent_at)
        elif not self.sent:  # urllib3 always sleeps in between, others may not
            call.sending(now)
        call.facts.method = method
        return call


def origin_of(url: str | None, pool: Any) -> str:
    """``scheme://host:port``, never userinfo, path or query; empty if unknown.

    A forward proxy's pool gets absolute URLs, and is not the origin.
    """
    scheme = host = port = None
    if url is not None and not url.startswith("/"):
        try:
            parsed = parse_url(url)
            scheme, host, port = parsed.scheme, parsed.host, parsed.port
        except ValueError:  # urllib3 says what is wrong with it, elsewhere
            pass
    if not scheme or not host:
        if pool is None:
            return ""
        scheme, host, port = pool.scheme, pool.host, pool.port
    if port is None:
        port = DEFAULT_PORTS.get(scheme, 0)
    host = host.strip("[]").lower()
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
