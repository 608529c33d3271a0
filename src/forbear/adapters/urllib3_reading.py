"""Reading: an answer's body under a deadline, or under none any more. Floor: acts.

urllib3's read timeout bounds each receive; here one instant bounds them all. See draining.py for
what is relied on; where that is not found, the library's own timeouts are all there is.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from urllib3.util import Timeout

from ..sending.clock import SYSTEM_CLOCK
from .urllib3_sockets import Hurried, is_over, raw_below

__all__ = ["stream_freely", "stream_within"]


def stream_within(raw: Any, seconds: float) -> None:
    """Let whatever is read from this urllib3 response end that many seconds from now."""
    below = None if is_over(raw) else raw_below(raw)
    if below is not None and not isinstance(below._sock, Hurried):
        below._sock = Hurried(below._sock, SYSTEM_CLOCK.monotonic() + seconds)


def stream_freely(raw: Any, configured: Timeout) -> None:
    """Let the caller read this urllib3 response with his own read timeout, not with that of the
    last attempt.
    """
    below = None if is_over(raw) else raw_below(raw)
    if below is not None:
        fresh = configured.clone()
        fresh.start_connect()  # else it does not say
        with suppress(OSError):
            below._sock.settimeout(fresh.read_timeout)
