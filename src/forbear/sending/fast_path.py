"""Fast path: how a first attempt ends that was sent before there was a call. Floor: acts.

The same for every library. A success leaves no more than what somebody wants to know of it;
whatever else comes becomes a ``Call``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..core.call import Call
    from .clock import Clock

__all__ = ["FastPath"]


class FastPath:
    """The part of a port that is asked before there is a call, and how one begins behind it.

    Attributes:
        is_plain: A success at once needs nothing more than to be returned.
    """

    is_plain: bool
    limits: Any
    clock: Clock
    tell: Any
    ended: Any
    origin_of: Any  # (url): where a request goes; what a url is, its adapter says

    def begins(self, url: Any, now: float) -> bool:
        """Tell the gate of a new call; False: others than the gate have to be asked too."""
        gate: Any = self.limits.only_gate
        if gate is None:
            return False
        gate.begin(self.origin_of(url), now)
        return True

    def note_success(self, method: str, url: Any, status: int, started_at: float) -> None:
        """Note a call that was sent once and accepted."""
        if self.limits.counts_calls:
            self.limits.count_call()
        gate, now = self.limits.gate, self.clock.monotonic()
        if gate is not None and not gate.quiet:
            gate.good(self.origin_of(url), now, retry=False)
        if self.tell.hears_calls:
            self.tell.succeeded_at_once(method, self.origin_of(url), status, now - started_at)

    def first_failed(self, call: Call, trouble: Any = None) -> Call:
        """Note a first attempt that was sent before there was a call.

        Args:
            call: Just begun.
            trouble: The error that broke a good answer's body, or the question to ``retry_if`` that
                was begun.
        """
        if trouble is not None:
            if isinstance(trouble, Exception):
                call.ahead = call.body_error = trouble
            else:
                call.opinion = trouble
        call.attempts += 1
        call.is_under_way = True
        call.limits.deposit(call, call.started_at)
        return call

    def cancelled(self, call: Call) -> None:
        """Tell of a call whose first attempt was cancelled."""
        call.sending(call.started_at)
        self.ended(call)
