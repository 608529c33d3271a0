"""Guards: breaker, cooldown and origins, as one call meets them. Floor: remembers.

What each of them means is its own; here is only the order in which they are asked before and after
each attempt. Of a call's state only ``Call`` is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.outcome import Phase
from ..core.verdict import Reason
from ..errors import RetryRefused
from .breaker import is_trouble
from .circuit import CircuitState

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.call import Call
    from ..core.outcome import Failure
    from .breaker import CircuitBreaker
    from .circuit import Transition
    from .cooldown import Cooldown
    from .origins import Origins

__all__ = ["Guards", "hinted"]

CLOSED = CircuitState.CLOSED


class Guards:
    """Breaker, cooldown and origins of one or more transports. Thread-safe as they are.

    Attributes:
        on_transition: Told each transition of the breaker that a call has caused.
    """

    def __init__(
        self,
        breaker: CircuitBreaker | None,
        cooldown: str,
        origins: Origins | None,
        random: Callable[[], float],
    ) -> None:
        self.breaker = breaker
        self.cooldown: Cooldown | None = None
        self.origins = origins
        self.holds_first = cooldown == "all"
        self.on_transition: Callable[[Transition], object] | None = None
        if cooldown != "off":
            from .cooldown import Cooldown

            self.cooldown = Cooldown(cooldown, random)

    def is_calm(self) -> bool:
        """No first attempt is concerned by breaker, cooldown or origins."""
        breaker, cooldown, origins = self.breaker, self.cooldown, self.origins
        return (
            (breaker is None or breaker.quiet)
            and (cooldown is None or cooldown.quiet)
            and (origins is None or origins.quiet)
        )

    def enter(self, call: Call, now: float) -> float:
        """Choose where the first attempt goes; hold it, or take its permit."""
        if self.origins is not None:
            call.origin, refused_for = self.origins.first(call.origin, now, self._refused_for)
            if refused_for:
                raise RetryRefused(Reason.CIRCUIT_OPEN, send=False, retry_after=refused_for)
        delay = self._hold(call, now) if self.holds_first else 0.0
        if not delay:
            self._take_permit(call, now)
            call.is_admitted = True
        return delay

    def admit(self, call: Call, now: float) -> float:
        """Take what only a sending may take; return seconds to wait first, nearly always 0.

        Raises:
            RetryRefused: The attempt must not be sent.
        """
        if call.is_admitted:
            return 0.0
        cooldown = self.cooldown
        if cooldown is not None and not cooldown.is_idle and (call.history or self.holds_first):
            delay = self._hold(call, now)
            if delay:
                return delay
        if self.breaker is None or self.breaker.is_closed:
            return 0.0
        try:
            self._take_permit(call, now)
        except RetryRefused:
            delay = self._turn_away(call, now)
            if delay:
                return delay
            self._take_permit(call, now)
        call.is_admitted = True
        return 0.0

    def observe(self, call: Call, failure: Failure | None, now: float) -> None:
        """Tell breaker, cooldown and origins how an attempt ended."""
        permit = call.permit
        call.is_admitted = False
        origin, cooldown, breaker = call.sent_to, self.cooldown, self.breaker
        hint = None if failure is None else failure.hint.delay
        if breaker is not None:
            trouble = None if call.says_nothing else is_trouble(failure)
            if trouble is not None:
                draw = call.random() if trouble else 0.5
                edge = breaker.record(
                    origin, failed=trouble, sent_at=call.sent_at, now=now, permit=permit, hint=hint,
                    draw=draw,
                )  # fmt: skip
                if edge is not None:
                    self._tell(edge)
            elif permit:
                breaker.release(origin, permit)
        call.permit = 0
        if hint and failure is not None:
            if cooldown is not None and failure.is_throttle:
                everybody = failure.status == 503
                credential = b"" if everybody else self._credential(call, cooldown)
                cooldown.begin(origin, credential, hint, now)
            self._rest(call, origin, hint, now)  # also if this call is not sent again

    def plan(
        self, call: Call, failure: Failure, backoff: float, now: float, latest: float
    ) -> tuple[float, str, float]:
        """Say when to send again, and where: as of ``Limits.plan``."""
        if not self._is_alone(call):
            return self._plan_elsewhere(call, failure, backoff, now, latest)
        delay, source, asked = backoff, "backoff", 0.0
        if failure.hint.delay:
            delay, source, asked = hinted(call, failure, latest)
        left = 0.0 if self.cooldown is None else self._cooling(call, now)
        if left:  # as long as it told another call
            held = left + self._stagger(call, left, now)
            if held > latest >= left:
                held = latest
            if held > delay:
                delay, source = held, failure.hint.source or "cooldown"
        return delay, source, max(asked, left)

    def _plan_elsewhere(
        self, call: Call, failure: Failure, backoff: float, now: float, latest: float
    ) -> tuple[float, str, float]:
        """Go to the next origin: at once, if nothing was sent and that origin was not tried yet."""
        before = call.origin
        if failure.hint.delay is not None:
            self._rest(call, before, with_spread(call, failure.hint.delay, latest), now)
        call.tried = (*call.tried, before)
        fresh = 0.0 if failure.phase is Phase.UNSENT else backoff
        call.origin, delay = self._next(call, now, fresh=fresh, again=backoff)
        if delay == backoff:
            return delay, "backoff", 0.0
        source = "failover" if call.origin != before else failure.hint.source or "failover"
        too_long = delay > call.policy.max_retry_after
        if too_long and self._refused_for(call.origin, now) >= delay:
            raise RetryRefused(Reason.CIRCUIT_OPEN, retry_after=delay)
        return delay, source, delay

    def refused_for(self, call: Call, now: float) -> float:
        """Seconds for which the breaker refuses the origin; 0 if another one stands in."""
        if self.breaker is None or self.breaker.is_closed or not self._is_alone(call):
            return 0.0
        return self.breaker.refused_for(call.origin, now)

    def beside(self, origin: str, now: float) -> list[str]:
        """Where a second attempt may go beside a first one to ``origin``."""
        if self.origins is None or not self.origins.covers(origin):
            return [origin]
        return self.origins.others(origin, now)

    def refuses_hedge(self, call: Call, now: float) -> str | None:
        """Say why no second attempt may go to ``call.origin``; None: it may."""
        if self.breaker is not None and self.breaker.state(call.origin, now) is not CLOSED:
            return "circuit-open"
        return "cooldown" if self._cooling(call, now) else None

    def release(self, call: Call) -> None:
        """Give back the permit of an attempt that was not sent. Idempotent."""
        if call.permit and self.breaker is not None:
            self.breaker.release(call.origin, call.permit)
        call.permit = 0

    def _is_alone(self, call: Call) -> bool:
        """No other origin can stand in."""
        return self.origins is None or not self.origins.covers(call.origin)

    def _refused_for(self, origin: str, now: float) -> float:
        return 0.0 if self.breaker is None else self.breaker.refused_for(origin, now)

    def _next(self, call: Call, now: float, *, fresh: float, again: float) -> tuple[str, float]:
        def refused_for(origin: str, now: float) -> float:
            cooling = 0.0
            if self.cooldown is not None and call.policy.hints == "obey":
                cooling = self.cooldown.left(origin, call.credential, now)
            return max(cooling, self._refused_for(origin, now))

        assert self.origins is not None
        return self.origins.next(
            call.origin, call.tried, now, refused_for, fresh=fresh, again=again
        )

    def _turn_away(self, call: Call, now: float) -> float:
        """The breaker has closed the origin meanwhile: go to another; return seconds to wait first.

        Raises:
            RetryRefused: No other origin is free within the time that the policy waits.
        """
        delay = self._refused_for(call.origin, now)
        if not self._is_alone(call):
            call.origin, delay = self._next(call, now, fresh=0.0, again=0.0)
            call.cooled += delay
            if call.cooled <= call.policy.max_retry_after:
                return delay
        raise RetryRefused(Reason.CIRCUIT_OPEN, send=False, retry_after=delay)

    def _hold(self, call: Call, now: float) -> float:
        """Seconds for which a cooldown holds the attempt; 0: none does, or another origin is free.

        Raises:
            RetryRefused: The cooldown holds the call for longer than the policy waits, or the
                breaker refuses.
        """
        left = self._cooling(call, now)
        alone = self._is_alone(call)
        if left and not alone:
            call.origin, left = self._next(call, now, fresh=0.0, again=0.0)
        if not left:
            return 0.0
        if call.cooled + left > call.policy.max_retry_after:
            raise RetryRefused(Reason.RETRY_AFTER_TOO_LONG, send=False, retry_after=left)
        # At once: of many calls that waited for a probe's turn all but a few would be refused.
        if alone and (refused_for := self._refused_for(call.origin, now)):
            raise RetryRefused(Reason.CIRCUIT_OPEN, send=False, retry_after=refused_for)
        call.cooled += left
        return left + self._stagger(call, left, now)

    def _cooling(self, call: Call, now: float) -> float:
        cooldown = self.cooldown
        if cooldown is None or cooldown.is_idle or call.policy.hints == "ignore":
            return 0.0
        return cooldown.left(call.origin, self._credential(call, cooldown), now)

    def _credential(self, call: Call, cooldown: Cooldown) -> bytes:
        if not call.credential:
            call.credential = cooldown.credential_of(call.request.header_lines())
        return call.credential

    def _stagger(self, call: Call, left: float, now: float) -> float:
        """Seconds on top, so that held calls do not come back together, nor does a fleet."""
        assert self.cooldown is not None
        spread = call.random() * call.policy.hint_spread * max(left, 1.0)
        return spread + self.cooldown.queue(call.origin, call.credential, now)

    def _rest(self, call: Call, origin: str, seconds: float, now: float) -> None:
        if self.origins is not None and self.origins.covers(origin):
            self.origins.rest(origin, seconds, now, longest_wait=call.policy.max_retry_after)

    def _take_permit(self, call: Call, now: float) -> None:
        if self.breaker is None:
            return
        # In one statement: between two an interruption would leave the permit out.
        call.permit = (admission := self.breaker.admit(call.origin, now)).permit
        if admission.edge is not None:
            self._tell(admission.edge)
        if admission.refused_for:
            raise RetryRefused(Reason.CIRCUIT_OPEN, send=False, retry_after=admission.refused_for)

    def _tell(self, edge: Transition) -> None:
        if self.on_transition is not None:
            self.on_transition(edge)

    def __repr__(self) -> str:
        parts = (self.breaker, self.cooldown, self.origins)
        return " ".join(repr(part) for part in parts if part is not None)


def hinted(call: Call, failure: Failure, latest: float) -> tuple[float, str, float]:
    """Wait as long as the server asked: the time itself, not the least time."""
    asked, source = failure.hint.delay, failure.hint.source
    assert asked is not None
    return with_spread(call, asked, latest), source or "backoff", asked


def with_spread(call: Call, asked: float, latest: float) -> float:
    """The time that a server named, with a random share on top, cut to what is left."""
    hinted = asked + call.random() * call.policy.hint_spread * max(asked, 1.0)
    return hinted if hinted <= latest or asked > latest else latest
