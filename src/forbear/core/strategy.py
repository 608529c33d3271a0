"""Strategy: what a call asks of shared things. Floor: decides.

The interface that Smithy's reference guide describes for retry strategies: a call acquires a token,
refreshes it after each failure, and ends it with exactly one of ``record_success`` and ``release``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from .outcome import Failure

__all__ = ["RetryStrategy", "RetryToken"]


class RetryToken:
    """One call's state inside a strategy. A strategy may subclass it or add what it needs in ``state``.

    Attributes:
        delay: Seconds before the next attempt; a strategy sets it, also on initial tokens.
        attempts: Attempts sent so far; kept by the call, read by strategies.
        source: Who chose the delay: "backoff" or the name of the header that did.
        state: Whatever the strategy needs.
    """

    __slots__ = ("attempts", "delay", "source", "state")

    def __init__(self, delay: float = 0.0, state: Any = None) -> None:
        self.delay = delay
        self.attempts = 0
        self.source = "backoff"
        self.state = state

    def __repr__(self) -> str:
        return f"<{type(self).__name__} after {self.attempts} attempts, delay {self.delay:.3g} s>"


class RetryStrategy(Protocol):
    """When to try again, or why not. Synchronous, never blocks, called from any thread.

    ``now`` is monotonic seconds. What a strategy raises other than ``RetryRefused``, or a delay that is
    negative or not finite, ends the call with what it has (``strategy-failed``); the request is never lost.
    """

    @property
    def quiet(self) -> bool:
        """True: acquiring and recording success may be skipped now. The first attempt asks only this."""
        ...

    def acquire_initial_token(self, scope: str, now: float) -> RetryToken:
        """Begin a call to ``scope`` (``scheme://host:port``).

        Raises:
            RetryRefused: ``send=True``: send once without retries; ``send=False``: do not send.
        """
        ...

    def refresh_token(self, token: RetryToken, failure: Failure, now: float, *, latest: float) -> RetryToken:
        """Buy another attempt after ``failure``; the token returned says after which delay.

        Args:
            token: What ``acquire_initial_token`` or the last refresh returned.
            failure: What happened; ``failure.retry_after`` is the server's word in seconds.
            now: Monotonic seconds.
            latest: The longest delay the deadline allows, infinite if there is none.

        Raises:
            RetryRefused: No further attempt, and why. Nothing was taken. With ``Reason.DEADLINE`` for a
                delay longer than ``latest``.
        """
        ...

    def record_success(self, token: RetryToken, now: float) -> None:
        """End the call: its last answer was accepted."""
        ...

    def release(self, token: RetryToken, now: float) -> None:
        """End the call otherwise; refund what bought an attempt that was not sent. Idempotent."""
        ...
