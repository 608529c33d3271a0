"""Errors: every exception of forbear, family tree first. Floor: below all.

ForbearError(Exception)
├── CircuitOpenError      the breaker (or a cooldown) refuses to send to this origin now
├── DeadlineExceeded      the call's deadline was over before an attempt could be made or finished
└── RetryRefused          what a strategy raises inside the library; never leaves a transport

The adapters combine the first two with a class of their own library, so that ``except
httpx.TimeoutException`` also catches ``forbear.httpx.DeadlineExceeded``. None of them is a builtin
TimeoutError: that is an OSError, and code that classifies errors would take it for a failure of the
network. Only aiohttp's timeouts are, and so is ``forbear.aiohttp.DeadlineExceeded``.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .core.verdict import Reason

__all__ = ["CircuitOpenError", "DeadlineExceeded", "ForbearError", "RetryRefused"]


class ForbearError(Exception):
    """Base of all exceptions that forbear itself raises.

    Attributes:
        reason: The rule that refused, a member of ``forbear.Reason``.
        retry_after: Seconds after which another try may make sense, or None when nothing says so.
    """

    def __init__(self, message: str, *, reason: Reason, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception.__reduce__ would call the class without its keyword arguments.
        return _rebuild, (type(self), self.args, self.__dict__)


class CircuitOpenError(ForbearError):
    """The breaker of this origin is open, or the origin asked to be left alone; nothing is sent."""


class DeadlineExceeded(ForbearError):
    """The deadline of the call is over."""


class RetryRefused(ForbearError):
    """Raised by a strategy to say why there will be no (further) attempt.

    Args:
        reason: Why; it ends up in the call's record, its events and the log.
        send: Read on ``acquire_initial_token`` only. True: send once, without retries. False (an
            open breaker, a cooldown): do not send at all.
        retry_after: Seconds after which another try may make sense.
    """

    def __init__(
        self, reason: Reason, *, send: bool = True, retry_after: float | None = None
    ) -> None:
        super().__init__(f"refused: {reason.value}", reason=reason, retry_after=retry_after)
        self.send = send


def _rebuild(cls: type[ForbearError], args: tuple[Any, ...], state: dict[str, Any]) -> ForbearError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error
