"""Hop: one hop of a call, on its way from urllib3 Retry to Retry. Floor: acts.

urllib3 passes the Retry of the next attempt along; a hop is the part of it that is one call's. A
redirect begins a new hop: retries and deadline go on, what belongs to an origin begins anew.
"""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ..core.outcome import Failure
from ..sending.context import CURRENT, scope_of_call
from ..sending.loop import RENEWAL, settle
from ..sending.port import Port
from .urllib3_errors import classify
from .urllib3_request import Urllib3Request, origin_at

if TYPE_CHECKING:
    from ..core.call import Call
    from ..core.policy import RetryPolicy
    from ..core.record import Story
    from ..sending.settings import Settings

__all__ = ["KEYED", "BridgePort", "Hop"]

KEYED = frozenset({"POST", "PATCH"})  # need a key to be safe, and a Retry sees no headers
UNSEEN = SimpleNamespace(ready=False)  # a body that a Retry cannot see


class Hop:
    """One hop. Not shared between threads."""

    def __init__(self, sent_at: float, deadline_at: float, retries_used: int = 0) -> None:
        self.sent_at = sent_at  # the first attempt, as far as known
        self.deadline_at = deadline_at
        self.retries_used = retries_used  # by earlier hops
        self.call: Call | None = None  # from the hop's first failure on
        self.is_over = False  # urllib3 has handed over or raised
        self.story: Story | None = None  # then, what happened

    @property
    def delay(self) -> float:
        """Seconds to wait before the next attempt."""
        history = () if self.call is None else self.call.history
        return (history[-1].delay or 0.0) if history else 0.0

    def next(self, now: float) -> Hop:
        """The part of a call that redirects keep; a hop's first sending is no retry."""
        used = self.retries_used if self.call is None else self.call.attempts - 1
        return Hop(now, self.deadline_at, used)


class BridgePort(Port):
    """The port that all copies of a Retry share."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.hears_ends = False  # the end of a call is seen only if urllib3 asks

    def meaning(self, call: Call, error: Exception) -> Failure:
        return classify(error)

    def first_hop(self, policy: RetryPolicy, now: float) -> Hop:
        """Begin under what holds in this context."""
        context, deadline_at = scope_of_call(), inf
        if context is not None:
            policy = context.merged(policy)
            deadline_at = context.deadline_on(self.clock, now)
        if policy.total_timeout is not None:
            deadline_at = min(deadline_at, now + policy.total_timeout)
        return Hop(now, deadline_at)

    def note(self, hop: Hop, policy: RetryPolicy, method: str, url: Any, pool: Any) -> Call:
        """Return the hop's call, with the attempt that has just ended noted in it."""
        call = hop.call
        if call is None:
            request = Urllib3Request(method, origin_at(url, pool), {}, target=url)
            call = hop.call = self.new_call(request, hop.sent_at, CURRENT.get())
            if call.context is not None:
                policy = call.context.merged(policy)
            if policy.methods & KEYED:
                policy = policy.replace(methods=policy.methods - KEYED)
            if policy is not self.policy:
                self.follow(call, policy)
            call.deadline_at = hop.deadline_at
            call.attempts = call.sent_before = hop.retries_used
            self.first_failed(call)
        elif not call.is_under_way:  # urllib3 always sleeps in between, others may not
            call.sending(self.clock.monotonic())
        call.request.method = method
        return call

    def goes_on(self, hop: Hop, failure: Failure, *, body_ready: bool) -> bool:
        """Is another attempt to be made? Then ``delay`` says when."""
        call = hop.call
        assert call is not None
        call.guard = None if body_ready else UNSEEN
        seconds = settle(call, self, failure)
        if seconds is RENEWAL:
            self.renew(call)
            seconds = settle(call, self, failure, renewed=True)
        if seconds is None:
            self.end(hop)
        return seconds is not None

    def wait(self, hop: Hop) -> None:
        """Wait until the next attempt is due, and note that it is sent."""
        call = hop.call
        if call is None or call.is_under_way:
            return
        ended_at = call.sent_at + call.history[-1].elapsed
        delay = ended_at + hop.delay - self.clock.monotonic()  # draining took its share
        try:
            if delay > 0:
                self.clock.sleep(delay)
        except BaseException:
            self.end(hop)
            raise
        call.sending(self.clock.monotonic())

    def accept(self, hop: Hop, status: int) -> None:
        """urllib3 keeps an answer without asking ``increment``."""
        call = hop.call
        if not hop.is_over and call is not None:
            if not call.is_under_way:
                call.sending(self.clock.monotonic())
            if status < 400:
                call.status = status
                settle(call, self, None)
                self.settings.tell.succeeded(call, self.clock.monotonic(), call.listeners)
            self.end(hop)
        hop.is_over = True

    def end(self, hop: Hop) -> None:
        """Give back what was not used; keep the story."""
        hop.is_over = True
        call, now = hop.call, self.clock.monotonic()
        assert call is not None
        call.limits.leave(call, now)
        self.ended(call)
        hop.story = call.story(now)
