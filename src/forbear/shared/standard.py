"""StandardStrategy: policy, budget, breaker, cooldown and origins behind the RetryStrategy
interface. Floor: remembers.

Steps 6 to 10 of a decision (core/call.py tells all of them). Holds no state of a call: that is in
the token. What the shared things mean is theirs; here is only the order in which they are asked.
"""

from __future__ import annotations

from ..core.checks import a_choice
from ..core.outcome import MOMENTARY_KINDS, RETRYABLE_KINDS, FailureKind, Phase
from ..core.strategy import RetryToken
from ..core.verdict import Reason
from ..errors import RetryRefused
from .budget import RetryBudget
from .gauges import Unlimited, never_quiet
from .locks import lock_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal

    from ..core.outcome import Failure
    from ..core.policy import RetryPolicy
    from ..core.request import Request
    from ..core.strategy import Budget
    from .breaker import CircuitBreaker
    from .circuit import Transition
    from .cooldown import Cooldown
    from .gauges import Counting, NeverQuiet
    from .origins import Origins

__all__ = ["StandardStrategy"]

# What says that an origin is in trouble. A stream turned away is how a healthy one ends a
# connection.
TROUBLE_KINDS = RETRYABLE_KINDS - {FailureKind.UNPROCESSED}
# Of what a hinted retry costs: octets that came before are not sent again, so a resumption adds a
# request to the server's work and no more. With the default budget a download may break some 140
# times in a row.
RESUMING_SHARE = 0.2


class StandardToken(RetryToken):
    __slots__ = (
        "begun_at", "credential", "drawn", "ended", "held", "immediate_used", "is_admitted", "observed", "origin",
        "paid", "paid_for", "permit", "plan", "scope", "tried",
    )  # fmt: skip

    def __init__(self, scope: str, origin: str, begun_at: float, attempts: int = 0) -> None:
        self.delay = 0.0
        self.attempts = attempts
        self.source = "backoff"
        self.state = None
        self.scope = scope  # whose allowance the call is on
        self.origin = origin  # where the next attempt goes
        self.begun_at = begun_at  # when the first one was sent, if nobody tells
        self.tried: tuple[str, ...] = ()  # origins that failed before
        self.paid = 0.0  # tokens
        self.paid_for = 0  # number of the attempt they bought
        self.drawn = 0.0  # seconds that the schedule answered last
        self.immediate_used = False
        self.plan: tuple[int, float, str, float] | None = (
            None  # attempts made; delay, source and cost of the next
        )
        self.ended = False
        self.permit = 0  # of the breaker, held until the attempt ends
        self.is_admitted = False  # for the next attempt
        self.observed = -1  # attempts when an outcome was reported last
        self.credential = b""  # a hash, once it was needed
        self.held = 0.0  # seconds this call was held by cooldowns


class StandardStrategy:
    """The default strategy: waits as the policy says, under a budget, a breaker and cooldowns.
    Thread-safe.

    Args:
        policy: Schedules, attempts and limits.
        budget: Shared allowance for retries, a RetryBudget or RedisBudget; None: no limit.
        breaker: Shared breaker; None: none.
        cooldown: Leave an origin alone for as long as it asked one call to: "off", "retries"
            (retries of other calls wait too), or "all" (first attempts wait too; those that would
            have to wait longer than ``policy.max_retry_after`` or their deadline are refused at
            once).
        origins: Servers that can stand in for each other; None: a call is sent where it says.
        random: Like ``random.random``; drawn a few times per retry.

    Raises:
        ValueError: ``cooldown`` is none of the three.

    Attributes:
        gauge: What to ask ``quiet`` before a first attempt: a plain attribute, where this object's
            own is a property. It is another object while the breaker or a cooldown concerns first
            attempts.
        watches: It has a breaker or a cooldown, and follows attempts (``AttemptWatcher``).
        holds_first: First attempts may be held.
        needs_facts: ``begin`` must see the request also if nothing else concerns a first attempt.
        origins: As given.
        on_transition: Called with each transition of the breaker that a call of this strategy
            caused.
    """

    __slots__ = (
        "__weakref__", "_breaker", "_budget", "_cooldown", "_lock", "_renewable", "gauge", "holds_first", "needs_facts",
        "on_transition", "origins", "policy", "random", "scope_of", "watches",
    )  # fmt: skip

    def __init__(
        self,
        policy: RetryPolicy,
        *,
        budget: Budget | None = None,
        breaker: CircuitBreaker | None = None,
        cooldown: Literal["off", "retries", "all"] = "off",
        origins: Origins | None = None,
        random: Callable[[], float] | None = None,
    ) -> None:
        if random is None:
            from random import random as system_random

            random = system_random
        a_choice("cooldown", cooldown, ("off", "retries", "all"))
        self.policy = policy
        self.random: Callable[[], float] = random
        # None where it is not needed: with it the facts of a request are made also for those that
        # succeed at once beside one that failed.
        self.scope_of: Callable[[Request], str] | None = (
            budget.scope_of if isinstance(budget, RetryBudget) and callable(budget.scope) else None
        )
        self.on_transition: Callable[[Transition], object] | None = None
        self.holds_first = cooldown == "all"
        self.needs_facts = self.holds_first or origins is not None or self.scope_of is not None
        self.watches = breaker is not None or cooldown != "off" or origins is not None
        self.origins = origins
        self._budget: Budget = Unlimited() if budget is None else budget
        self._renewable: Any = budget if hasattr(budget, "needs_renewal") else None
        self._breaker = breaker
        self._cooldown: Cooldown | None = None
        self._lock = lock_of(self)
        if breaker is not None:
            breaker.watch(self)
        if origins is not None:
            origins.watch(self)
        if cooldown != "off":
            from .cooldown import Cooldown

            self._cooldown = Cooldown(cooldown, random)
            self._cooldown.watch(self)
        self.gauge: Budget | NeverQuiet | Counting
        self.adjust()

    @property
    def quiet(self) -> bool:
        """Every bucket is full, every circuit well and nobody to be held: nothing needs to be
        recorded.
        """
        return self._budget.quiet and self._is_calm

    @property
    def _is_calm(self) -> bool:
        breaker, cooldown, origins = self._breaker, self._cooldown, self.origins
        return (
            (breaker is None or breaker.quiet)
            and (cooldown is None or cooldown.quiet)
            and (origins is None or origins.quiet)
        )

    def adjust(self) -> None:
        """Choose the gauge anew; the breaker, the cooldown or the origins have changed."""
        with self._lock:  # who comes last has seen what all others did
            self.gauge = self._budget if self._is_calm else never_quiet(self._budget)

    def _forked(self) -> None:
        self.adjust()

    @property
    def budget(self) -> Budget | None:
        return None if isinstance(self._budget, Unlimited) else self._budget

    @property
    def breaker(self) -> CircuitBreaker | None:
        return self._breaker

    @property
    def cooldown(self) -> str:
        return "off" if self._cooldown is None else self._cooldown.mode

    def with_policy(self, policy: RetryPolicy) -> StandardStrategy:
        """Return a strategy with other rules and the same shared state."""
        other = object.__new__(StandardStrategy)
        for name in SHARED:
            setattr(other, name, getattr(self, name))
        other.policy = policy
        return other

    def unguarded(self, policy: RetryPolicy) -> StandardStrategy:
        """Return one with other rules that shares only the budget: for calls that are forwarded
        untouched.
        """
        return StandardStrategy(policy, budget=self.budget, random=self.random)

    def needs_renewal(self, scope: str, now: float) -> bool:
        """Has what the budget had borrowed run out? Never for one that borrows nothing."""
        return self._renewable is not None and self._renewable.needs_renewal(scope, now)

    def renew(self, scope: str) -> None:
        """Let the budget borrow more; blocks for a tenth of a second at most."""
        self._renewable.renew(scope)

    # A call.

    def acquire_initial_token(self, scope: str, now: float) -> RetryToken:
        token = StandardToken(scope, scope, now)
        self._enter(token, now)
        return token

    def begin(self, facts: Request, scope: str, now: float) -> RetryToken:
        token = StandardToken(scope, facts.origin, now)
        if self.holds_first and self._cooldown is not None and not self._cooldown.quiet:
            token.credential = self._cooldown.credential_of(facts.header_lines())
        self._enter(token, now)
        return token

    def _enter(self, token: StandardToken, now: float) -> None:
        """Before a first attempt: where it goes. It is sent at once, unless it is held. The call is
        noted.
        """
        if self.watches and not self._is_calm:
            origins = self.origins
            if origins is not None:
                token.origin, refused_for = origins.first(token.origin, now, self._refused_for)
                if refused_for:
                    raise RetryRefused(Reason.CIRCUIT_OPEN, send=False, retry_after=refused_for)
            if self.holds_first:
                token.delay = self._hold(token, now)
            if token.delay == 0:
                self._take_permit(token, now)
                token.is_admitted = True
        try:
            self._budget.deposit(token.scope, now)
        except BaseException:  # a budget of the user's own
            self._end(token)
            raise

    def refresh_token(
        self, token: RetryToken, failure: Failure, now: float, *, latest: float
    ) -> RetryToken:
        assert isinstance(token, StandardToken)
        if token.plan is None or token.plan[0] != token.attempts:
            self.plan_retry(token, failure, now, latest=latest)
        assert token.plan is not None
        attempts, delay, source, cost = token.plan
        if delay > latest:  # after a renewal
            raise RetryRefused(Reason.DEADLINE, retry_after=delay)
        if not self._budget.spend(token.scope, cost, now):
            raise RetryRefused(Reason.BUDGET_EXHAUSTED, retry_after=delay)
        token.paid = cost
        token.paid_for = attempts + 1
        token.delay = delay
        token.source = source
        return token

    def plan_retry(self, token: RetryToken, failure: Failure, now: float, *, latest: float) -> None:
        """Decide all that ``refresh_token`` does but for the budget, which may have to be renewed
        first.

        Raises:
            RetryRefused: As of ``refresh_token``.
        """
        assert isinstance(token, StandardToken)
        policy = self.policy
        attempts = token.attempts
        if (
            self.watches and token.observed != attempts
        ):  # by a caller who does not tell of every attempt
            self._record(token.origin, token, failure, now, now)
        if attempts >= policy.max_attempts:
            raise RetryRefused(Reason.ATTEMPTS_EXHAUSTED)
        asked = failure.hint.delay
        is_alone = self._is_alone(token)
        if is_alone and asked is not None and asked > policy.max_retry_after:
            raise RetryRefused(Reason.RETRY_AFTER_TOO_LONG, retry_after=asked)

        backoff = policy.backoff
        if policy.throttle_backoff is not None and failure.is_throttle:
            backoff = policy.throttle_backoff
        if (
            failure.kind in MOMENTARY_KINDS
            and not token.immediate_used
            and getattr(backoff, "immediate_first", False)
        ):
            token.immediate_used = True
            delay = 0.0
        else:
            # Its own last wait, not what a server made of it: after an hour's hint it would start
            # at its cap.
            delay = backoff.delay(attempts, token.drawn, self.random)
            token.drawn = delay
            if not delay >= 0:  # a custom schedule; NaN too
                raise ValueError(f"the backoff answered {delay!r} s")
        # What asks only for the rest of a body makes the server do nothing twice.
        cost = 1.0 if asked is None else self._budget.hinted_cost
        if failure.progress:
            cost = self._budget.hinted_cost * RESUMING_SHARE
        if is_alone:
            delay, source = self._wait_here(token, failure, delay, now, latest)
        else:
            before = token.origin
            delay, source = self._go_on(token, failure, delay, now, latest)
            if failure.phase is Phase.UNSENT and token.origin not in token.tried:
                cost = 0.0  # no server has seen it yet: to all of them it is the first one
            elif token.origin != before:
                cost = 1.0  # it was not this one that named a time
        if delay > latest:
            raise RetryRefused(Reason.DEADLINE, retry_after=delay)
        if is_alone and self._breaker is not None:
            refused_for = self._breaker.refused_for(token.origin, now)
            if refused_for > delay:
                raise RetryRefused(Reason.CIRCUIT_OPEN, retry_after=refused_for)
        token.plan = attempts, delay, source, cost

    def _wait_here(
        self, token: StandardToken, failure: Failure, backoff: float, now: float, latest: float
    ) -> tuple[float, str]:
        """When to come back to the same origin: never below its word, nor below what it told
        another call.
        """
        policy, asked = self.policy, failure.hint.delay
        delay, source = backoff, "backoff"
        if asked is not None:
            # The spread on top is cut to what the deadline leaves.
            spread = self._spread(asked)
            hinted = asked + spread if asked + spread <= latest or asked > latest else latest
            if hinted >= delay:
                delay, source = hinted, failure.hint.source or source
        left = self._cooling(token, now) if self.watches else 0.0
        if left:
            if left > policy.max_retry_after:
                raise RetryRefused(Reason.RETRY_AFTER_TOO_LONG, retry_after=left)
            held = left + self._stagger(token, left, now)
            if held > latest >= left:
                held = latest
            if held > delay:
                delay, source = held, failure.hint.source or "cooldown"
        return delay, source

    def _go_on(
        self, token: StandardToken, failure: Failure, backoff: float, now: float, latest: float
    ) -> tuple[float, str]:
        """Where to go next, and when: at once if nothing was sent and an origin is left that was
        not tried.
        """
        origins, asked, before = self.origins, failure.hint.delay, token.origin
        assert origins is not None
        if asked is not None:
            spread = self._spread(asked)
            self._rest(
                before,
                asked + spread if asked + spread <= latest or asked > latest else latest,
                now,
            )
        token.tried = (*token.tried, before)
        fresh = 0.0 if failure.phase is Phase.UNSENT else backoff
        token.origin, delay = self._next(token, now, fresh=fresh, again=backoff)
        if delay > self.policy.max_retry_after:
            refused_for = self._refused_for(token.origin, now)
            reason = Reason.CIRCUIT_OPEN if refused_for >= delay else Reason.RETRY_AFTER_TOO_LONG
            raise RetryRefused(reason, retry_after=delay)
        if delay == backoff:
            return delay, "backoff"
        return delay, (failure.hint.source or "failover") if token.origin == before else "failover"

    def _next(
        self, token: StandardToken, now: float, *, fresh: float, again: float
    ) -> tuple[str, float]:
        def refused_for(origin: str, now: float) -> float:
            cooling = 0.0
            if self._cooldown is not None and self.policy.hints == "obey":
                cooling = self._cooldown.left(origin, token.credential, now)
            return max(cooling, self._refused_for(origin, now))

        assert self.origins is not None
        return self.origins.next(
            token.origin, token.tried, now, refused_for, fresh=fresh, again=again
        )

    def _refused_for(self, origin: str, now: float) -> float:
        return 0.0 if self._breaker is None else self._breaker.refused_for(origin, now)

    def _spread(self, asked: float) -> float:
        return self.random() * self.policy.hint_spread * (asked if asked > 1.0 else 1.0)

    def record_success(self, token: RetryToken, now: float) -> None:
        assert isinstance(token, StandardToken)
        if self.watches and token.observed != token.attempts:
            self._record(
                token.origin, token, None, now, token.begun_at if token.attempts <= 1 else now
            )
        self._end(token)

    def release(self, token: RetryToken, now: float) -> None:
        assert isinstance(token, StandardToken)
        self._end(token)

    def _end(self, token: StandardToken) -> None:
        if token.permit:
            self._give_back(token)
        if not token.ended:
            token.ended = True
            if token.paid_for > token.attempts:  # bought, but never sent
                self._budget.refund(token.scope, token.paid)

    # Its attempts.

    def admit(self, token: RetryToken, now: float) -> float:
        assert isinstance(token, StandardToken)
        if token.is_admitted or (self._is_calm and (self._cooldown is None or self.holds_first)):
            return 0.0
        if token.attempts or self.holds_first:
            delay = self._hold(token, now)
            if delay:
                return delay
        try:
            self._take_permit(token, now)
        except RetryRefused:
            delay = self._turn_to(token, now)
            if delay:
                return delay
            self._take_permit(token, now)
        token.is_admitted = True
        return 0.0

    def _turn_to(self, token: StandardToken, now: float) -> float:
        """The breaker has closed this origin meanwhile: go to another one; return the seconds to
        wait first.

        Raises:
            RetryRefused: There is none, or none within the time that the policy waits.
        """
        if self._is_alone(token):
            raise RetryRefused(
                Reason.CIRCUIT_OPEN, send=False, retry_after=self._refused_for(token.origin, now)
            )
        token.origin, delay = self._next(token, now, fresh=0.0, again=0.0)
        token.held += delay
        if token.held > self.policy.max_retry_after:
            raise RetryRefused(Reason.CIRCUIT_OPEN, send=False, retry_after=delay)
        return delay

    def observe(
        self,
        token: RetryToken | None,
        failure: Failure | None,
        now: float,
        *,
        facts: Request,
        scope: Callable[[], str],
        attempts: int,
        sent_at: float,
    ) -> RetryToken | None:
        cooldown, is_new = self._cooldown, False
        assert token is None or isinstance(token, StandardToken)
        if token is None and failure is not None:
            token = StandardToken(scope(), facts.origin, sent_at, attempts)
            is_new = True
        if (
            cooldown is not None
            and failure is not None
            and token is not None
            and not token.credential
        ):
            token.credential = cooldown.credential_of(facts.header_lines())
        self._record(facts.origin if token is None else token.origin, token, failure, now, sent_at)
        if is_new and token is not None:
            self._budget.deposit(token.scope, now)
        return token

    def _record(
        self,
        origin: str,
        token: StandardToken | None,
        failure: Failure | None,
        now: float,
        sent_at: float,
    ) -> None:
        """Tell breaker and cooldown how an attempt ended."""
        breaker, cooldown = self._breaker, self._cooldown
        permit = 0
        if token is not None:
            permit, token.permit = token.permit, 0
            token.observed = token.attempts
            token.is_admitted = False
        hint = None if failure is None else failure.hint.delay
        if breaker is not None:
            trouble = is_trouble(failure)
            if trouble is not None:
                edge = breaker.record(
                    origin, failed=trouble, sent_at=sent_at, now=now, permit=permit, hint=hint
                )
                if edge is not None:
                    self._tell(edge)
            elif permit:
                breaker.release(origin, permit)
            was_bought = token is not None and token.paid_for == token.attempts
            if (
                token is not None
                and was_bought
                and trouble
                and permit
                and breaker.mode == "enforce"
            ):
                self._budget.refund(
                    token.scope, token.paid
                )  # a retry that was a probe costs nothing if it fails
                token.paid = 0.0
        if cooldown is not None and failure is not None and hint and failure.is_throttle:
            everybody = failure.status == 503 or token is None
            cooldown.begin(
                origin, b"" if everybody or token is None else token.credential, hint, now
            )
        if hint:
            self._rest(origin, hint, now)  # also if this call is not sent again

    def _rest(self, origin: str, seconds: float, now: float) -> None:
        if self.origins is not None and self.origins.covers(origin):
            self.origins.rest(origin, seconds, now, longest_wait=self.policy.max_retry_after)

    def _hold(self, token: StandardToken, now: float) -> float:
        """Seconds that a cooldown holds an attempt, 0 if none does, or if it can go to another
        origin.

        Raises:
            RetryRefused: It holds the call for longer than the policy waits, or the breaker refuses
                it.
        """
        left = self._cooling(token, now)
        if left and not self._is_alone(token):
            token.origin, left = self._next(token, now, fresh=0.0, again=0.0)
        if not left:
            return 0.0
        if token.held + left > self.policy.max_retry_after:
            raise RetryRefused(Reason.RETRY_AFTER_TOO_LONG, send=False, retry_after=left)
        if self._breaker is not None and self._is_alone(token):
            refused_for = self._breaker.refused_for(token.origin, now)
            if (
                refused_for
            ):  # at once: of many that waited for a probe's turn all but a few would be refused
                raise RetryRefused(Reason.CIRCUIT_OPEN, send=False, retry_after=refused_for)
        token.held += left
        token.source = "cooldown"
        return left + self._stagger(token, left, now)

    def _is_alone(self, token: StandardToken) -> bool:
        """No other origin can stand in."""
        return self.origins is None or not self.origins.covers(token.origin)

    def _cooling(self, token: StandardToken, now: float) -> float:
        if self._cooldown is None or self.policy.hints == "ignore":
            return 0.0
        return self._cooldown.left(token.origin, token.credential, now)

    def _stagger(self, token: StandardToken, left: float, now: float) -> float:
        """Seconds on top, so that those who were held do not come back together, nor a fleet of
        processes.
        """
        assert self._cooldown is not None
        spread = self.random() * self.policy.hint_spread * max(left, 1.0)
        return spread + self._cooldown.queue(token.origin, token.credential, now)

    def _take_permit(self, token: StandardToken, now: float) -> None:
        if self._breaker is None:
            return
        admission = self._breaker.admit(token.origin, now)
        token.permit = admission.permit
        if admission.edge is not None:
            self._tell(admission.edge)
        if admission.refused_for:
            raise RetryRefused(Reason.CIRCUIT_OPEN, send=False, retry_after=admission.refused_for)

    def _give_back(self, token: StandardToken) -> None:
        permit, token.permit = token.permit, 0
        if self._breaker is not None:
            self._breaker.release(token.origin, permit)

    def _tell(self, edge: Transition) -> None:
        if self.on_transition is not None:
            self.on_transition(edge)

    def __repr__(self) -> str:
        parts = [repr(self._budget)]
        if self._breaker is not None:
            parts.append(repr(self._breaker))
        if self._cooldown is not None:
            parts.append(repr(self._cooldown))
        if self.origins is not None:
            parts.append(repr(self.origins))
        return f"<StandardStrategy max_attempts={self.policy.max_attempts} {' '.join(parts)}>"


# What ``with_policy`` hands on.
SHARED = (
    "_breaker", "_budget", "_cooldown", "_lock", "_renewable", "gauge", "holds_first", "needs_facts", "on_transition",
    "origins", "random", "scope_of", "watches",
)  # fmt: skip


def is_trouble(failure: Failure | None) -> bool | None:
    """Does the origin fail (True), does it answer as it should (False), or does this say nothing
    (None)?
    """
    if failure is None:
        return False
    if failure.kind is not FailureKind.STATUS:
        return True if failure.kind in TROUBLE_KINDS else None
    status = failure.status or 0
    if status >= 500 or status < 400:  # below: retry_if takes it for a failure like 503
        return True
    return None if failure.is_throttle else False
