"""Port: what the loops need of an HTTP library, and the part that all libraries share. Floor: acts.

One port per transport. A port keeps nothing of a call: that is in ``Call``, and in the outgoing
request that an adapter hangs on it.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from ..core.call import Call
from ..core.decide import PLAIN, answered, is_failure
from ..core.headers.nesting import ends_outer_loops, outer_loop
from ..core.outcome import Failure, FailureKind, Phase
from ..core.record import RECORD, Story
from ..core.verdict import GiveUp, Reason
from ..errors import RetryRefused
from . import context as tests
from .errors import CutOff, Interrupted
from .fast_path import FastPath
from .looking import Looking
from .settings import OFF

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.policy import RetryPolicy
    from ..core.request import Request
    from .context import Scope
    from .settings import Settings

__all__ = ["Port", "is_final"]

# Seconds by which most origins have answered, unless the policy's own limits are shorter.
USUAL_ANSWER = 1.0


class Port(FastPath, Looking):
    """The part of a port that does not depend on the library.

    Attributes:
        hears_ends: A listener wants to know when a call is over.
    """

    circuit_open_error: type[Any]
    deadline_exceeded: type[Any]
    # Each colour of each library has its own; asynchronous ones are awaited.
    sleep: Any  # (seconds, since=…): False if the transport was closed meanwhile
    send: Any  # (call): counts the attempt, reads a small body ahead
    judge: Any  # (call, response): the failure, None for a good answer
    look: Any  # (call, response): ask ``retry_if``; the response, or what took its place
    let_go: Any  # (outcome): close a response that nobody will get; None and errors: nothing
    discard: Any  # (call, response)
    keep: Any  # (call, response): read it into ``call.kept``; False: more than is kept is to come
    hand_over: Any  # (call, response): what the caller gets

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.policy = settings.policy
        self.limits = settings.limits
        self.clock = settings.clock
        self.sleeper = settings.sleeper
        self.retry_if: Any = settings.retry_if
        self.looks = self.retry_if is not None or bool(self.policy.vendors)
        self.most_attempts: float = inf if settings.counts_attempts else self.policy.max_attempts
        # Each attempt is sent as it is: no header of its own, no hook before it.
        self.sends_alike = settings.before_attempt is None and not settings.announce_attempts
        self.tell = settings.tell
        self.hears_ends = self.tell.tells_ends
        self.is_plain = not (self.limits.counts_calls or self.tell.hears_calls)

    # A call begins.

    def new_call(
        self, request: Request, started_at: float, context: Scope | None, outgoing: Any = None
    ) -> Call:
        """Begin a call.

        Args:
            request: What a decision may ask of it.
            started_at: When the call began.
            context: What the blocks around the call say.
            outgoing: What was made to be sent in the request's place; it has a policy, a deadline
                and a guard.
        """
        call = Call(self.policy, request, self.limits, started_at, self.most_attempts)
        call.key_until = started_at + self.settings.key_lifetime
        if self.looks:
            call.looks = True
        if outgoing is not None:
            call.outgoing = outgoing
            call.guard = outgoing.guard
            call.deadline_at = outgoing.deadline_at
            if outgoing.policy is not self.policy:
                self.follow(call, outgoing.policy)
        if tests.everywhere is not None:
            context = tests.with_everywhere(context)
        if context is not None:
            call.context = context
            call.listeners = context.listeners
            call.most_attempts = min(call.most_attempts, context.most_attempts)
            if context.random is not None and not self.settings.has_random:
                call.random = context.random
        return call

    def resolve(
        self, context: Scope | None, setting: Any, started_at: float
    ) -> tuple[RetryPolicy, float]:
        """Return the policy and the deadline of a call that begins now.

        Args:
            context: What the blocks around the call say.
            setting: The request's own: a RetryPolicy, a mapping of its fields, False or None.
            started_at: When the call began.
        """
        policy = self.policy
        if setting is not None or context is not None:
            policy = self.settings.resolve(context, setting)
        total = policy.total_timeout
        deadline_at = inf if total is None else started_at + total
        if context is not None:
            deadline_at = min(deadline_at, context.deadline_on(self.clock, started_at))
        return policy, deadline_at

    def enter(self, call: Call) -> float:
        """Ask the limits before the first attempt; return seconds to wait first, nearly always 0.

        Raises:
            The library's DeadlineExceeded or CircuitOpenError: nothing is sent.
        """
        now = call.started_at
        try:
            delay: float = call.limits.enter(call, now)
            if delay > 0 and delay > call.deadline_at - now:
                raise RetryRefused(Reason.DEADLINE, send=False, retry_after=delay)
            return delay
        except RetryRefused as refused:
            raise self.refusal(call, refused) from None

    def abandon(self, call: Call) -> Any:
        """Give back what an interrupted call has, its answer last; awaited if asynchronous."""
        call.limits.leave(call, self.clock.monotonic())
        return self.let_go(call.live)

    def too_late(self, call: Call) -> Exception:
        """Make the error of a call whose deadline was over before anything was sent."""
        error = self.deadline_error(call, "the deadline was over before anything was sent")
        self.ended(call)
        return error

    def follow(self, call: Call, policy: RetryPolicy) -> None:
        """Let another policy than the transport's hold for the call."""
        most: float = policy.max_attempts
        if policy is OFF:
            call.limits = self.settings.limits_when_off
        elif self.settings.counts_attempts and most == self.policy.max_attempts:
            most = inf  # a strategy of the user's counts, unless this call is told otherwise
        call.policy, call.most_attempts = policy, most
        call.looks = self.looks or bool(policy.vendors)

    def hook_raised(self, call: Call, error: Exception) -> None:
        """End the call by what ``before_attempt`` raised: an unsigned request must not go out."""
        call.stop = GiveUp(Reason.HOOK_FAILED)
        self.tell.refused(call, self.clock.monotonic(), call.listeners)
        self.with_story(call, error)

    # Each attempt.

    def expired(self, call: Call) -> Exception:
        """Make the error of an attempt that was not sent, since the deadline came first."""
        refusal = self.refusal(call, RetryRefused(Reason.DEADLINE, send=False))
        refusal.__cause__ = call.last_error
        return refusal

    # After each attempt.

    def failure_of(
        self, call: Call, status: int, lines: Sequence[Any], story: Any
    ) -> Failure | None:
        """Make the failure of an answer; None: it is good."""
        call.status = status
        if lines:
            call.lines = lines
        if story is not None or call.context is not None:
            call.nested = is_final(story) or self._sends_once(call)
        if status < 400 and not call.opinion:
            return self._broken_body(call)
        if lines or call.looks:
            flagged, now = bool(call.opinion), self.clock.time
            failure = answered(call.policy, status, lines, now, flagged, call.word)
        else:
            failure = PLAIN[status]
        if call.body_error is not None and not is_failure(call.policy, call.request, failure):
            return self._broken_body(call)
        return failure

    def _broken_body(self, call: Call) -> Failure | None:
        """An accepted answer must also have a whole body."""
        return None if call.body_error is None else self.judge_error(call, call.body_error)

    def judge_error(self, call: Call, error: Exception) -> Failure:
        """Make the failure of an exception."""
        if isinstance(error, CutOff):
            call.was_cut = True
            call.says_nothing = self._cut_by_caller(call)
            return Failure(FailureKind.TIMEOUT, Phase.SENT, error="DeadlineExceeded")
        failure = self.meaning(call, error)
        if error is call.body_error:
            progress = call.resumption is not None and call.resumption.progressed
            failure = Failure(failure.kind, Phase.ANSWERED, error=failure.error, progress=progress)
        call.was_cut = self.cut_short(call, failure)
        call.says_nothing = call.was_cut and self._cut_by_caller(call)
        call.nested = is_final(getattr(error, RECORD, None)) or self._sends_once(call)
        call.last_error = error
        return failure

    def meaning(self, call: Call, error: Exception) -> Failure:
        """Classify an exception of the library."""
        raise NotImplementedError

    def cut_short(self, call: Call, failure: Failure) -> bool:
        """Did the deadline end the attempt, through a timeout of the library?"""
        timeouts = None if call.outgoing is None else call.outgoing.timeouts
        return timeouts is not None and timeouts.cut_short(failure.kind, self.clock.monotonic())

    def renew(self, call: Call) -> Any:
        """Let the budget borrow more; blocks, but on asynchronous ports."""
        try:
            call.limits.renew(call)
        except Exception as error:
            self.tell.hook_failed(self.settings.plugin_name, error)

    def _cut_by_caller(self, call: Call) -> bool:
        """Did the request that is being answered leave the attempt less time than answers take?

        Then its end says nothing of the origin: anybody can send a deadline of 40 ms.
        """
        if call.context is None:
            return False
        now, policy = self.clock.monotonic(), call.policy
        if call.context.incoming_deadline_on(self.clock, now) > call.deadline_at:
            return False  # our own was earlier
        own = policy.attempt_timeout or USUAL_ANSWER, policy.total_timeout or USUAL_ANSWER
        return now - call.sent_at < min(*own, USUAL_ANSWER)

    def _sends_once(self, call: Call) -> bool:
        return call.context is not None and call.context.sends_once()

    def gave_up(self, call: Call, failure: Failure, stop: GiveUp, now: float) -> None:
        """Tell listeners, the log and loops above of a failed attempt that was the last one."""
        self.tell_above(call, stop.reason)
        if call.policy is not OFF:
            self.tell.gave_up(call, failure, stop, now)

    def tell_above(self, call: Call, reason: Reason) -> None:
        """Tell loops above, and whoever repeats the request that is being answered."""
        if call.most_attempts > 1:
            nested = outer_loop(call.request.header_lines())
            if nested is not None:
                self.tell.nested(*nested)
        self._tell_incoming(call, reason)

    def _tell_incoming(self, call: Call, reason: Reason) -> None:
        """Whoever repeats the request that is being answered would repeat all that was tried."""
        incoming = None if call.context is None else call.context.incoming
        if incoming is not None and ends_outer_loops(len(call.history), reason):
            incoming.gave_up = True

    # The end.

    def refusal(self, call: Call, refused: RetryRefused) -> Exception:
        """Make the exception for an attempt that may not be sent."""
        seconds = refused.retry_after
        call.stop = GiveUp(refused.reason, seconds)
        self._tell_incoming(call, refused.reason)
        if call.policy is not OFF:
            now = self.clock.monotonic()
            self.tell.refused(call, now, call.listeners)
        if refused.reason is Reason.DEADLINE:
            message = "the next attempt would begin after the deadline"
            return self.deadline_error(call, message, seconds)
        again = "" if seconds is None else f", try again in {seconds:.3g} s"
        error: Exception = self.circuit_open_error(
            f"{call.request.origin} is not sent to now: {refused.reason.value}{again}",
            reason=refused.reason,
            retry_after=seconds,
        )
        return self.with_story(call, error)

    def deadline_error(
        self, call: Call, message: str, retry_after: float | None = None
    ) -> Exception:
        """Make the library's DeadlineExceeded, with the story attached."""
        if call.stop is None or call.stop.reason is not Reason.DEADLINE:
            call.stop = GiveUp(Reason.DEADLINE)
        error: Exception = self.deadline_exceeded(
            f"{call.request.method} {call.request.origin}: {message}",
            reason=Reason.DEADLINE,
            retry_after=retry_after,
        )
        return self.with_story(call, error)

    def last_error(self, call: Call, error: Exception) -> Exception:
        """Attach the story to the error that ends the call; DeadlineExceeded, if that ended it."""
        if call.was_cut:
            exceeded = self.deadline_error(call, "the deadline ended the attempt")
            exceeded.__cause__ = None if isinstance(error, CutOff) else error
            return exceeded
        return error if call.policy is OFF else self.with_story(call, error)

    def with_story(self, call: Call, error: Exception) -> Exception:
        """Attach the story, unless a forbear below has attached its own."""
        if getattr(error, RECORD, None) is None:
            story = call.story(self.clock.monotonic())
            setattr(error, RECORD, story)
            if story.history:
                error.add_note(f"forbear: {story.record()}")
        return error

    def has_story(self, call: Call) -> bool:
        """Was something retried or refused?"""
        if call.policy is OFF:
            return False
        return call.stop is not None or len(call.history) > 1 or call.hedge is not None

    def wants_status_error(self, call: Call) -> bool:
        """Shall the library's own error be raised for the answer that the call ends with?"""
        return call.stop is not None and call.policy.on_exhausted == "raise"

    def ended(self, call: Call) -> None:
        """Tell that the call is over, and what a plug-in of the user's raised meanwhile."""
        if call.plugin_error is not None:
            self.tell.hook_failed(self.settings.plugin_name, call.plugin_error)
            call.plugin_error = None
        if self.hears_ends:
            self.tell.ended(call, self.clock.monotonic())

    def closed(self, call: Call) -> Any:
        """The transport was closed during a wait: end with what the call has.

        That is the last error, or the status of the last answer, which was let go of before the
        wait.

        Raises:
            The library's own error, or Interrupted: the rest of a body was waited for.
        """
        if call.resumption is not None:
            raise Interrupted
        failure = call.last_failure
        if failure is None:
            raise self.with_story(call, self.closed_error())
        error, call.last_error = call.last_error, None
        if failure.status is None and error is not None:
            try:
                raise self.with_story(call, error)
            finally:
                del error
        return self.bare_response(call, call.status, call.story(self.clock.monotonic()))

    def closed_error(self) -> Exception:
        """Make the error of a call that was to wait before its first attempt."""
        raise NotImplementedError

    def bare_response(self, call: Call, status: int | None, story: Story) -> Any:
        """Make a response that has only a status and its story."""
        raise NotImplementedError


def is_final(story: Any) -> bool:
    """Has a forbear below this one already retried, or decided that nobody should?"""
    return isinstance(story, Story) and story.is_final
