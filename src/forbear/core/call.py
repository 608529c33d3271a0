"""Call: one request's decisions, all rules in one stated order. Floor: decides.

After each attempt:

 1. Is it a failure? A status below 400, or one that neither policy nor server nor ``retry_if``
    flags, is accepted; so is an error of a kind that the policy does not retry.
 2. (answers) Did the server say no?                         server-said-no, replayed-response
 3. (errors) Can another attempt ever succeed?               permanent-error, local-saturation,
   unknown-error
 4. May it be repeated: nothing was sent, or the method is
    idempotent, or it carries a key that is still valid?     method-not-replayable, key-expired
 5. Can the body be produced again? Is ours the only loop?   body-consumed, nested-call
 6. Attempts left? Every sending counts.                     attempts-exhausted
 7. Delay = max(hint + spread, backoff, cooldown).           retry-after-too-long
 8. Does the delay leave time before the deadline?           deadline
 9. Does the breaker allow this origin, or is there another? circuit-open
10. Last, because only this takes something: the budget.     budget-exhausted
    If all else allows a retry and the strategy has run out of what it had borrowed, the driver
    renews it before.

1 to 5 are decided here and cannot be overridden. 6 to 10 are the strategy's
(shared/standard.py); a strategy that fails ends the call: strategy-failed. What it answers is still
held to the server's word: never sooner than asked, never past the deadline.

A strategy that watches attempts hears of each one before step 1, whoever decides about it. After
the delay and right before the sending it is asked once more (``admit``): only there is a probe
permit of the breaker taken, and if the circuit opened meanwhile, or the origin asked for another
wait that is too long, the call ends with the library's CircuitOpenError. First attempts are asked
for the same: cooldown, then breaker.

All instants are monotonic seconds.
"""

from __future__ import annotations

from math import inf, isnan

from ..errors import RetryRefused
from . import safety
from .headers.hints import read_hint
from .outcome import Failure, FailureKind, Hint, Phase
from .request import Request
from .strategy import RetryToken
from .trail import Trail
from .verdict import GiveUp, Reason, Renew, RetryAfter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .policy import RetryPolicy
    from .strategy import AttemptWatcher, RetryStrategy
    from .verdict import Verdict

__all__ = ["Call"]

# An attempt must have some time left after the wait, else it could only time out: a LAN round trip.
LEAST_ATTEMPT = 0.001  # seconds


class Call:
    """The state of one call. Not shared between threads; lives as long as its request.

    Attributes:
        attempts: Sends that count against ``max_attempts``; starts at the retries that earlier hops
            of a redirected call have used.
        deadline_at: The instant after which the call must not go on, infinite if there is none.
        strategy_error: What a strategy raised, for the log; None while it works.
        scope_error: What the strategy's ``scope_of`` raised, for the log.
        most_attempts: What this call or its context allows a strategy of the user's own; infinite
            if they say nothing of it. The default strategy has it from the policy.
        was_cut: The deadline ended the last attempt, not the peer.
        origin: Where the next attempt goes: as the request says, unless a strategy fails over.
        sent_to: Where the last one went.
        is_under_way: An attempt was sent and nobody has judged it yet.
        number: For whoever tells of the call; 0 until somebody does.
    """

    # Defaults that most calls keep stand here once.
    attempts = number = 0
    token: RetryToken | None = None
    last_failure: Failure | None = None
    refusal: GiveUp | None = None
    pending: Failure | None = None  # judged but for what the strategy says after a renewal
    strategy_error: Exception | None = None
    scope_error: Exception | None = None
    most_attempts: float = inf
    was_cut = is_under_way = False
    _scope_found: str | None = None

    def __init__(
        self,
        policy: RetryPolicy,
        facts: Request,
        strategy: RetryStrategy,
        *,
        now: float,
        deadline_at: float = inf,
        key_lifetime: float = 86_400.0,
    ) -> None:
        self.policy = policy
        self.facts = facts
        self.strategy = strategy
        self.started_at = self.sent_at = now
        self.deadline_at = deadline_at
        self.key_until = now + key_lifetime
        self.origin = self.sent_to = facts.origin
        self.trail = Trail(facts.method, facts.origin)

    def open(self, now: float) -> float:
        """Ask the strategy before the first attempt; return the delay it wants first.

        Raises:
            RetryRefused: ``send`` is False: nothing may be sent, or not before the deadline.
        """
        try:
            delay = delay_of(self._acquire(now))
            self._aim()
            if delay > self.deadline_at - now - LEAST_ATTEMPT and delay > 0:
                raise RetryRefused(Reason.DEADLINE, send=False, retry_after=delay)
            return delay
        except RetryRefused as refused:
            self.refusal = self._refused(refused)
            self.release(now)
            if not refused.send and self.refusal.reason is not Reason.STRATEGY_FAILED:
                raise
        except Exception as error:
            self.refusal = GiveUp(Reason.STRATEGY_FAILED)
            self.release(now)
            self.strategy_error = error
        return 0.0

    def admit(self, now: float) -> float:
        """Ask the strategy right before an attempt is sent; return seconds to wait first, nearly
        always 0.

        Raises:
            RetryRefused: It must not be sent any more.
        """
        watcher = self._watcher()
        if watcher is None or self.token is None:
            return 0.0
        try:
            delay = watcher.admit(self.token, now)
            self._aim()
            if not 0 <= delay < inf:
                raise ValueError(f"a strategy answered a delay of {delay!r} s")
            if delay > 0:
                self._check_wait(delay, now)
            return delay
        except RetryRefused as refused:
            self.refusal = self._refused(refused)
            self.release(now)
            if self.refusal.reason is not Reason.STRATEGY_FAILED:
                raise
        except Exception as error:
            self.strategy_error = error
        return 0.0

    def _check_wait(self, delay: float, now: float) -> None:
        """A further wait, after the one that was decided: does it fit, too? Note it in the
        story.
        """
        if delay > self.deadline_at - now - LEAST_ATTEMPT:
            raise RetryRefused(Reason.DEADLINE, send=False, retry_after=delay)
        failure, entries = self.last_failure, self.trail.entries
        if failure is None:
            return
        if now + delay > self.key_until and safety.may_not_repeat(
            self.policy, self.facts, failure, key_expired=True
        ):
            raise RetryRefused(Reason.KEY_EXPIRED, send=False, retry_after=delay)
        status, failure, elapsed, waited, source, origin = entries[-1]
        entries[-1] = (status, failure, elapsed, (waited or 0.0) + delay, source, origin)

    def follow(self, retries_used: int) -> None:
        """Take over what earlier hops of a redirected call have used."""
        self.attempts = self.trail.sent_before = retries_used

    def sent(self, token: RetryToken | None) -> None:
        """The first attempt went through the door; a token was acquired for it if some origin is
        unwell.
        """
        self.attempts = 1
        self.is_under_way = True
        self.token = token
        if token is not None:
            token.attempts = 1

    def sending(self, now: float) -> None:
        """Note that an attempt is being sent."""
        self.attempts += 1
        self.is_under_way = True
        self.sent_at = now
        self.sent_to = self.origin
        if self.token is not None:
            self.token.attempts = self.attempts

    def after_response(
        self,
        status: int,
        headers: Sequence[tuple[str, str]] | Sequence[tuple[bytes, bytes]],
        now: float,
        *,
        utc_now: float,
        body_ready: bool = True,
        flagged: bool = False,
        nested: bool = False,
    ) -> Verdict:
        """Judge an answer. None: accept it.

        Args:
            status: Of the answer.
            headers: Its field lines in wire order.
            now: Monotonic seconds.
            utc_now: Unix seconds, with which dates in the answer are compared when it carries no
                Date.
            body_ready: The request's body can be produced again from its first byte.
            flagged: ``retry_if`` calls it a failure.
            nested: A forbear below this one has already done what could be done, or one of those
                above repeats all of it.
        """
        policy = self.policy
        if status < 400 and not flagged:
            self._observe(None, now)
            self._accept(status, now)
            return None
        hint = read_hint(status, headers, now=utc_now)
        is_failure = flagged or safety.is_flagged(policy, self.facts, status, hint)
        advice = hint.should_retry
        if policy.hints == "ignore" and hint.delay is not None:
            hint = Hint(None, advice, None)
        failure = Failure(FailureKind.STATUS, Phase.ANSWERED, status, hint)
        self._observe(failure, now)
        if not is_failure:
            self._accept(status, now)
            return None
        if advice is False:
            return self._end(failure, now, GiveUp(Reason.SERVER_SAID_NO))
        if advice is None and safety.is_replayed(headers) and self.facts.keyed:
            return self._end(failure, now, GiveUp(Reason.REPLAYED_RESPONSE))
        return self._repeat(failure, now, body_ready, nested)

    def after_error(
        self,
        failure: Failure,
        now: float,
        *,
        body_ready: bool = True,
        nested: bool = False,
        delivered: bool = False,
    ) -> Verdict:
        """Judge an error. None: the policy does not retry this kind.

        Args:
            failure: What the adapter made of the exception.
            now: Monotonic seconds.
            body_ready: The request's body can be produced again from its first byte.
            nested: A forbear below this one has already done what could be done, or one of those
                above repeats all of it.
            delivered: The response had already been handed over (S11).
        """
        self._observe(failure, now)
        reason = safety.may_never_succeed(failure)
        if reason is not None:
            return self._end(failure, now, GiveUp(reason))
        if delivered:
            return self._end(failure, now, GiveUp(Reason.RESPONSE_DELIVERED))
        if failure.kind not in self.policy.failures:
            self._note(None, failure, now)
            self.last_failure = failure
            self.release(now)
            return None
        return self._repeat(failure, now, body_ready, nested)

    def broke(self, *, progressed: bool) -> None:
        """The body of the answer that was accepted last is not whole; ``after_error`` is told of it
        next.

        Args:
            progressed: A part of it came and only the rest will be asked for: this attempt counts
                as a first one.
        """
        if self.trail.entries:  # else it went through the door, and no note was taken
            self.trail.entries.pop()
        if progressed:
            self.attempts = 1

    def after_renewal(self, now: float) -> RetryAfter | GiveUp:
        """Go on judging after ``Renew`` was carried out, or could not be."""
        failure, self.pending = self.pending, None
        assert failure is not None
        verdict = self._purchase(failure, now, renewed=True)
        assert not isinstance(verdict, Renew)
        return verdict

    def cut_off(self, failure: Failure, now: float) -> GiveUp:
        """The deadline ended the attempt."""
        self.was_cut = True
        self._observe(failure, now)
        return self._end(failure, now, GiveUp(Reason.DEADLINE))

    def release(self, now: float) -> None:
        """Give back what an attempt that will not be sent was bought with. Idempotent."""
        token, self.token = self.token, None
        if token is not None:
            self._ask("release", token, now)

    def close_trail(self, now: float) -> Trail:
        """The story, which ends now."""
        trail, refusal = self.trail, self.refusal
        trail.elapsed = now - self.started_at
        if refusal is not None:
            trail.reason, trail.refused_delay = refusal
        return trail

    def _watcher(self) -> AttemptWatcher | None:
        return self.strategy if getattr(self.strategy, "watches", False) else None  # type: ignore[return-value]

    def _observe(self, failure: Failure | None, now: float) -> None:
        """Let a strategy that watches attempts know how this one ended."""
        watcher = self._watcher()
        if watcher is not None:
            try:
                self.token = watcher.observe(
                    self.token,
                    failure,
                    now,
                    facts=self.facts,
                    scope=self.scope,
                    attempts=self.attempts,
                    sent_at=self.sent_at,
                )
            except Exception as error:
                self.strategy_error = error

    def _accept(self, status: int, now: float) -> None:
        self._note(status, None, now)
        self.last_failure = self.refusal = None
        token, self.token = self.token, None
        if token is not None:
            self._ask("record_success", token, now)

    def _repeat(
        self, failure: Failure, now: float, body_ready: bool, nested: bool
    ) -> RetryAfter | GiveUp | Renew:
        policy, facts = self.policy, self.facts
        reason = safety.may_not_repeat(policy, facts, failure, key_expired=now > self.key_until)
        if reason is None and not body_ready:
            reason = Reason.BODY_CONSUMED
        if reason is None and nested:
            reason = Reason.NESTED_CALL
        if reason is None and self.attempts >= self.most_attempts:
            reason = Reason.ATTEMPTS_EXHAUSTED
        if reason is not None:
            return self._end(failure, now, GiveUp(reason))
        return self._purchase(failure, now, renewed=False)

    def _purchase(
        self, failure: Failure, now: float, *, renewed: bool
    ) -> RetryAfter | GiveUp | Renew:
        latest = self.deadline_at - now - LEAST_ATTEMPT
        verdict: RetryAfter | GiveUp | Renew
        try:
            verdict = self._buy(failure, now, latest, renewed)
        except RetryRefused as refused:
            verdict = self._refused(refused)
        except Exception as error:
            self.strategy_error = error
            verdict = GiveUp(Reason.STRATEGY_FAILED)
        if isinstance(verdict, GiveUp):
            return self._end(failure, now, verdict)
        if isinstance(verdict, Renew):
            self.pending = failure
            return verdict
        self._note(failure.status, failure, now, verdict.delay, verdict.source)
        self.last_failure = failure
        return verdict

    def _buy(
        self, failure: Failure, now: float, latest: float, renewed: bool
    ) -> RetryAfter | GiveUp | Renew:
        if self.refusal is not None:  # refused before the first attempt: send once, without retries
            return self.refusal
        token = self.token
        if token is None:  # the first attempt went through the door, or an earlier token was ended
            token = self._acquire(now)
        asked = failure.hint.delay
        if not renewed and self._is_to_renew(token, failure, now, latest):
            return Renew(self.scope())
        refreshed = self.strategy.refresh_token(token, failure, now, latest=latest)
        self.token = a_token(
            refreshed, self.attempts
        )  # what is no token does not take the place of one
        delay, source = delay_of(refreshed), refreshed.source
        if not isinstance(source, str):
            raise TypeError(f"a strategy answered a source of type {type(source).__name__}")
        self._aim()
        if (
            asked is not None and self.origin == self.sent_to
        ):  # no other origin was asked for anything
            if asked > self.policy.max_retry_after:
                return GiveUp(Reason.RETRY_AFTER_TOO_LONG, asked)
            if delay < asked:
                delay, source = asked, failure.hint.source or source
        if delay > latest:
            return GiveUp(Reason.DEADLINE, delay)
        if now + delay > self.key_until and safety.may_not_repeat(
            self.policy, self.facts, failure, key_expired=True
        ):
            return GiveUp(Reason.KEY_EXPIRED, delay)
        return RetryAfter(delay, source)

    def _is_to_renew(self, token: RetryToken, failure: Failure, now: float, latest: float) -> bool:
        """Has the strategy run out of what it had borrowed, and is there nothing else against
        another attempt?

        Raises:
            RetryRefused: There is.
        """
        needs_renewal = getattr(self.strategy, "needs_renewal", None)
        if needs_renewal is None or not needs_renewal(self.scope(), now):
            return False
        plan_retry = getattr(self.strategy, "plan_retry", None)
        if plan_retry is not None:
            plan_retry(token, failure, now, latest=latest)
            return True
        asked = failure.hint.delay
        return asked is None or asked <= min(self.policy.max_retry_after, latest)

    def _acquire(self, now: float) -> RetryToken:
        watcher, scope = self._watcher(), self.scope()
        if watcher is None:
            answer = self.strategy.acquire_initial_token(scope, now)
        else:
            answer = watcher.begin(self.facts, scope, now)
        token = self.token = a_token(answer, self.attempts)
        return token

    def _aim(self) -> None:
        """Go where the strategy says, if it is one that may say so."""
        if self.token is not None and self._watcher() is not None:
            self.origin = getattr(self.token, "origin", self.origin)

    def scope(self) -> str:
        """Whose allowance this call is on: its origin, unless the strategy wants to look closer,
        which it may once.
        """
        scope = self._scope_found
        if scope is None:
            scope = self.facts.origin
            scope_of = getattr(self.strategy, "scope_of", None)
            if scope_of is not None:
                try:
                    answer = scope_of(self.facts)
                    if not isinstance(answer, str):
                        raise TypeError(f"scope_of answered {type(answer).__name__}")
                    scope = answer
                except Exception as error:
                    self.scope_error = error
            self._scope_found = scope
        return scope

    def _refused(self, refused: RetryRefused) -> GiveUp:
        """The refusal, if it is one that records and logs can tell."""
        reason, delay = refused.reason, refused.retry_after
        try:
            if not isinstance(reason, Reason):
                raise TypeError("a strategy refused without a Reason")
            if delay is not None:
                delay = float(delay)
                if isnan(delay):
                    raise ValueError("a strategy refused with a time that is no number")
        except (TypeError, ValueError, OverflowError) as error:
            self.strategy_error = error
            return GiveUp(Reason.STRATEGY_FAILED)
        return GiveUp(reason, delay)

    def _end(self, failure: Failure, now: float, verdict: GiveUp) -> GiveUp:
        self._note(failure.status, failure, now)
        self.last_failure = failure
        self.refusal = verdict
        self.release(now)
        return verdict

    def _note(
        self,
        status: int | None,
        failure: Failure | None,
        now: float,
        delay: float | None = None,
        source: str | None = None,
    ) -> None:
        origin = None if self.sent_to == self.facts.origin else self.sent_to
        self.trail.entries.append((status, failure, now - self.sent_at, delay, source, origin))
        self.is_under_way = False

    def _ask(self, name: str, token: RetryToken, now: float) -> None:
        # The call is over: a strategy that fails now must not lose its response.
        try:
            getattr(self.strategy, name)(token, now)
        except Exception as error:
            if self.strategy_error is None:  # the first one is the cause
                self.strategy_error = error


def a_token(answer: object, attempts: int) -> RetryToken:
    """What a strategy answered, told of the attempts so far.

    Raises:
        TypeError: It is no token.
    """
    if not isinstance(answer, RetryToken):
        raise TypeError(f"a strategy answered {type(answer).__name__}, not a RetryToken")
    answer.attempts = attempts
    return answer


def delay_of(token: RetryToken) -> float:
    """Seconds that a token wants to wait.

    Raises:
        ValueError, TypeError: That is no time to wait.
    """
    delay = token.delay
    if not 0 <= delay < inf:  # NaN too
        raise ValueError(f"a strategy answered a delay of {delay!r} s")
    return float(delay)  # of whatever can be compared with a number
