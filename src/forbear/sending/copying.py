"""Copying: what is sent in the place of a request, the same for httpx and aiohttp. Floor: acts.

A fast path that succeeds sends the caller's own request. Whatever forbear adds to a request, or
changes in it, is on a copy.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from ..core.outcome import Failure, FailureKind, Phase
from ..core.verdict import GiveUp, Reason
from . import context as tests
from . import resumption
from .headers import announced, new_headers, next_lines
from .port import Port, is_final
from .settings import OFF

if TYPE_CHECKING:
    from ..core.call import Call
    from ..core.policy import RetryPolicy
    from .context import Scope
    from .settings import Settings

__all__ = ["EARLY", "CopyingPort", "Hop", "Outgoing"]

EARLY = 0.05  # seconds; a timeout that fires this long before the deadline was the caller's own


class Outgoing:
    """The request that is sent, and the rules that hold for it.

    Attributes:
        request: Sent next: a copy of the client's own, or that itself if nothing in it is changed.
        pristine: The same before headers of one attempt alone and the user's hook.
        policy: In force for the call.
        deadline_at: The call must not go on after this instant; infinite if there is none.
        timeouts: The attempt's limits, if a deadline or ``attempt_timeout`` is set.
        hurries: ``forbear.deadline`` holds: for reading the body of the answer too.
        guard: Around a body that is no plain bytes.
        key: Header lines of a generated idempotency key.
        hop: What an earlier hop of a redirected call has left.
    """

    # As defaults of the class they cost nothing to set.
    timeouts: Any = None
    hurries = False
    guard: Any = None
    key: Any = ()
    hop: Any = None

    def __init__(self, request: Any, policy: RetryPolicy, deadline_at: float) -> None:
        self.request = self.pristine = request
        self.policy = policy
        self.deadline_at = deadline_at


class Hop:
    """The part of a redirected call that its hops hand on."""

    __slots__ = ("deadline_at", "key", "key_origin", "retries_used")

    def __init__(self, call: Call) -> None:
        outgoing: Outgoing | None = call.outgoing
        self.retries_used = max(0, call.attempts - 1)
        self.deadline_at = call.deadline_at
        self.key = () if outgoing is None else outgoing.key
        self.key_origin = call.request.origin


class CopyingPort(Port):
    """The part of a port that makes what is sent. Each library adds what stands first here.

    A *source* is what the fast path has of a request: the request, and with aiohttp what sends it.
    """

    body_name: str  # the attribute of a request that holds its body
    story_name: str  # the place of the story in the notes of an answer
    view_of: Any  # (source): the questions that a decision asks about a request
    guard_of: Any  # (request, body, hop): a guard for a body that is no plain bytes
    copied: Any  # (request, lines=None, url=None): a copy, with header lines or a URL of its own
    moved: Any  # (url, scheme, host, port): the URL at another origin
    host_of: Any  # (url): as in a Host header
    kind_of: Any  # (error): the kind of failure that an exception of the library is
    bound: Any  # (outgoing): lets what is sent know its limits

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.before_attempt: Any = settings.before_attempt
        keys = settings.idempotency
        self.adds_headers = settings.contact is not None or (keys is not None and keys.generate)

    # A call begins.

    def outgoing_for(
        self,
        source: Any,
        request: Any,
        body: Any,
        started_at: float,
        scope: Scope | None,
        setting: Any,
        hop: Any,
    ) -> Outgoing:
        """Say what is sent in the place of a request: a copy, if anything in it is changed.

        Args:
            source: The request as the fast path has it.
            request: The same alone.
            body: Its own; None: it can be sent again as it is.
            started_at: When the call began.
            scope: What the blocks around the call say.
            setting: The request's own: a RetryPolicy, a mapping of its fields, False or None.
            hop: What the hop before has left; None: this is no redirect.

        Raises:
            The library's DeadlineExceeded: nothing is sent.
        """
        context = scope if tests.everywhere is None else tests.with_everywhere(scope)
        policy, deadline_at = self.resolve(context, setting, started_at)
        outgoing = Outgoing(request, policy, deadline_at)
        if hop is not None:
            outgoing.hop = hop
            outgoing.deadline_at = deadline_at = min(hop.deadline_at, deadline_at)
        lines = None
        if body is not None and policy is not OFF:
            outgoing.guard = self.guard_of(request, body, hop)
        if self.adds_headers and policy is not OFF:
            lines = self._new_lines(source, outgoing)
        is_bounded = deadline_at != inf or policy.attempt_timeout is not None
        if is_bounded or lines or outgoing.guard is not None:
            outgoing.request = outgoing.pristine = self.copied(request, lines)
        if body is not None and outgoing.guard is not None:
            setattr(outgoing.pristine, self.body_name, outgoing.guard)
            if is_bounded:
                self._limit(outgoing.guard, deadline_at)
        if is_bounded:
            if deadline_at <= started_at:
                raise self.too_late(self.call_of(source, outgoing, started_at, scope))
            self.bound(outgoing)
        if context is not None:
            if is_bounded and context.has_deadline():
                outgoing.hurries = True
            if context.incoming is not None and policy is not OFF:
                written = request.headers.__contains__
                lines = announced(self.settings, context, 1, deadline_at, written)
                if lines:
                    outgoing.request = self.copied(outgoing.pristine, lines)
        return outgoing

    def _limit(self, guard: Any, deadline_at: float) -> None:
        """Let no part of a guarded body go out after the deadline."""
        guard.clock, guard.deadline_at = self.clock, deadline_at

    def _new_lines(self, source: Any, outgoing: Outgoing) -> Any:
        view, hop = self.view_of(source), outgoing.hop
        lines, key = new_headers(self.settings, view)
        if key and hop is not None and hop.key and hop.key_origin == view.origin:
            key = hop.key
        outgoing.key = key
        return [*lines, *key] or None

    def call_of(
        self, source: Any, outgoing: Outgoing | None, started_at: float, scope: Scope | None
    ) -> Call:
        """Begin a call."""
        call = self.new_call(self.view_of(source), started_at, scope, outgoing)
        if outgoing is not None:
            call.request.headers = outgoing.request.headers
            if outgoing.hop is not None:
                call.attempts = call.sent_before = outgoing.hop.retries_used
        return call

    def outgoing_of(self, call: Call) -> Outgoing:
        """Make the copy to send for a call that has sent the client's own request so far."""
        outgoing: Outgoing | None = call.outgoing
        if outgoing is None:
            copy = self.copied(call.request.original)
            outgoing = call.outgoing = Outgoing(copy, call.policy, call.deadline_at)
        return outgoing

    # Each attempt.

    def next_request(self, call: Call) -> Any:
        """Return the request to send now: to the call's origin, with this attempt's headers."""
        outgoing: Outgoing | None = call.outgoing
        original, moves = call.request.original, call.origin != call.sent_to
        if self.sends_alike and not moves and call.context is None and call.resumption is None:
            return original if outgoing is None else outgoing.request
        if moves:
            outgoing = self.outgoing_of(call)
            outgoing.request = outgoing.pristine = self.aimed(outgoing.pristine, call.origin)
            call.request.headers = outgoing.request.headers
        lines = next_lines(self.settings, call, original.headers.__contains__)
        if lines or (self.before_attempt is not None and call.history):  # on a fresh copy
            outgoing = self.outgoing_of(call)
            outgoing.request = self.copied(outgoing.pristine, lines)
            call.request.headers = outgoing.request.headers
        elif outgoing is not None:
            outgoing.request = outgoing.pristine
        return original if outgoing is None else outgoing.request

    def aimed(self, request: Any, origin: str) -> Any:
        """Copy a request for another origin."""
        scheme, _, host = origin.partition("://")
        host, _, port = host.rpartition(":")
        url = self.moved(request.url, scheme, host.strip("[]"), int(port))
        # A Host header that names another host than the URL is the caller's own, for every origin.
        named = request.headers.get("Host") == self.host_of(request.url)
        return self.copied(request, [("Host", self.host_of(url))] if named else None, url)

    def sent_request(self, call: Call) -> Any:
        """The request that was sent last."""
        return call.request.original if call.outgoing is None else call.outgoing.request

    def note_ahead(self, call: Call, outcome: Any) -> None:
        """Note what came of reading the body ahead."""
        call.ahead = outcome
        if isinstance(outcome, Exception):
            call.body_error = outcome

    # The end.

    def conclude(self, call: Call, notes: Any) -> None:
        """Attach the story to the answer that a call ends with, and tell of a late success.

        Args:
            call: It ends.
            notes: Where the answer keeps its story, by name.

        Raises:
            The error that broke the body while it was read ahead, and ends the call.
        """
        if call.policy is OFF:
            return
        stop, was_retried = call.stop, len(call.history) > 1
        if stop is None and not was_retried and call.hedge is None:
            return
        now, name = self.clock.monotonic(), self.story_name
        # A forbear below has told its story already; ours adds nothing if it only passed on.
        if was_retried or not is_final(notes.get(name)):
            notes[name] = call.story(now)
        if stop is None:
            if was_retried:
                self.tell.succeeded(call, now, call.listeners)
        elif call.body_error is not None:
            # It is not asked for again: the caller meets it where the body breaks, as without us.
            error = self.last_error(call, call.body_error)
            if self.wants_status_error(call) or error is not call.body_error:
                raise error

    def body_broke(self, call: Call, error: Exception, kind: FailureKind) -> None:
        """Attach the story to an error of a body that was handed over, and that stays broken."""
        now = self.clock.monotonic()
        if call.stop is None:
            failure = Failure(kind, Phase.ANSWERED, error=type(error).__name__)
            call.broke(failure, GiveUp(Reason.RESPONSE_DELIVERED), now)
            self.tell.refused(call, now, call.listeners)
        self.with_story(call, error)

    def body_is_late(self, call: Call, error: str = "DeadlineExceeded") -> Exception:
        """Make the error of a body that was handed over, and that the deadline ended."""
        failure = Failure(FailureKind.TIMEOUT, Phase.ANSWERED, error=error)
        call.broke(failure, GiveUp(Reason.DEADLINE), self.clock.monotonic())
        return self.deadline_error(call, "the deadline ended the body")

    def resume(self, call: Call, error: Exception, received: int, *, progressed: bool) -> None:
        """Get ready to ask for the rest of a body, under the limits that hold after a hand-over."""
        resumption.begin(self, call, error, received, progressed=progressed)
        outgoing = self.outgoing_of(call)
        outgoing.deadline_at, outgoing.timeouts = call.deadline_at, None
        if call.deadline_at != inf or call.policy.attempt_timeout is not None:
            self.bound(outgoing)
            if outgoing.guard is not None:
                self._limit(outgoing.guard, call.deadline_at)
