"""Timeouts of the urllib3 family: a call's deadline reaches the library as its own timeouts. Floor:
acts.
"""

from __future__ import annotations

from math import inf
from socket import getdefaulttimeout
from typing import Any

from urllib3.util import Timeout

from ..core.outcome import TIMEOUT_KINDS, FailureKind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Timeouts"]

LEAST = 0.001  # seconds; urllib3 refuses 0
EARLY = 0.05  # seconds; a timeout that ends this long before the deadline was not shortened by it in effect


class Timeouts:
    """What the client configured for a call, never more than the time left."""

    def __init__(
        self, now: Callable[[], float], deadline_at: float, attempt_timeout: float | None
    ) -> None:
        self._now = now
        self.deadline_at = deadline_at
        self._attempt_timeout = attempt_timeout

    def left(self) -> float | None:
        """Seconds until the deadline, None if there is none."""
        return None if self.deadline_at == inf else max(self.deadline_at - self._now(), LEAST)

    def clamped(self, configured: Timeout) -> Timeout:
        """The timeouts of the next attempt: connect and read, and as their sum the time left."""
        each = self._attempt_timeout
        connect, read = least(configured._connect, each), least(configured._read, each)
        return Timeout(total=least(configured.total, self.left()), connect=connect, read=read)

    def cut_short(self, kind: FailureKind, now: float) -> bool:
        """Did this timeout fire because the deadline had shortened it?"""
        return kind in TIMEOUT_KINDS and now >= self.deadline_at - EARLY


def least(configured: Any, other: float | None) -> Any:
    """The smaller of two timeouts, of which None means none and urllib3's default is the socket
    module's.
    """
    if other is None:
        return configured
    if configured is None or isinstance(configured, (int, float)):
        return other if configured is None else min(configured, other)
    default = getdefaulttimeout()
    return other if default is None else min(default, other)
