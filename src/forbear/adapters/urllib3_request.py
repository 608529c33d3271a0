"""Request: what requests and urllib3 send, and what a decision sees of it. Floor: acts.

Private attributes that are read, checked by tests/adapters/test_private_attributes.py:
``_container`` of HTTPHeaderDict, without which all header lines are looked at; ``_connect`` and
``_read`` of Timeout.
"""

from __future__ import annotations

from math import inf
from socket import getdefaulttimeout
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from urllib3.util import Timeout

from ..core.headers.hints import READ_TEXT
from ..core.outcome import TIMEOUT_KINDS, FailureKind
from ..core.request import Request, origin_of

if TYPE_CHECKING:
    from ..sending.clock import Clock
    from .urllib3_resume import Begun

__all__ = [
    "LEAST", "Outgoing", "Timeouts", "Urllib3Request", "field_lines", "has_header", "origin_at",
]  # fmt: skip

LEAST = 0.001  # seconds; urllib3 refuses 0
EARLY = 0.05  # seconds; a timeout that fires so long before the deadline was the caller's own


class Urllib3Request(Request):
    """The questions that a decision asks about a request of requests or urllib3.

    Attributes:
        original: The request as the caller made it.
        streams: The caller reads the body of the answer.
        arguments: Of ``RetryAdapter.send``: timeout, verify, cert and proxies.
    """

    __slots__ = ("arguments", "streams")

    original: Any
    streams: bool
    arguments: Any

    def header_lines(self) -> list[tuple[str, str]]:
        return [(as_text(name), as_text(value)) for name, value in self.headers.items()]


def as_text(part: Any) -> str:
    return part.decode("latin-1") if isinstance(part, bytes) else str(part)


def origin_at(url: str | None, pool: Any = None) -> str:
    """``scheme://host:port``, never userinfo, path or query; empty if unknown.

    A forward proxy's pool gets absolute URLs, and is not the origin.
    """
    if url and not url.startswith("/"):
        try:
            parts = urlsplit(url)
            if parts.scheme and parts.hostname:
                return origin_of(parts.scheme, parts.hostname, parts.port)
        except ValueError:  # the library says what is wrong with it
            pass
    return "" if pool is None else origin_of(pool.scheme, pool.host, pool.port)


def field_lines(headers: Any) -> Any:
    """Field lines of an answer, several of one name apart; empty if no decision reads any."""
    names = getattr(headers, "_container", None)
    if names is not None and READ_TEXT.isdisjoint(names):
        return ()
    return list(headers.items())


class Timeouts:
    """The timeout that the client configured for a call, at most the time left."""

    __slots__ = ("_attempt_timeout", "_clock", "_deadline_at")

    def __init__(self, clock: Clock, deadline_at: float, attempt_timeout: float | None) -> None:
        self._clock = clock
        self._deadline_at = deadline_at
        self._attempt_timeout = attempt_timeout

    def left(self) -> float | None:
        """Seconds until the deadline, None if there is none."""
        if self._deadline_at == inf:
            return None
        return max(self._deadline_at - self._clock.monotonic(), LEAST)

    def clamped(self, configured: Timeout) -> Timeout:
        """The timeouts of the next attempt: connect and read, and as their sum the time left."""
        each = self._attempt_timeout
        connect, read = least(configured._connect, each), least(configured._read, each)
        return Timeout(total=least(configured.total, self.left()), connect=connect, read=read)

    def cut_short(self, kind: FailureKind, now: float) -> bool:
        """Did this timeout fire because the deadline had shortened it?"""
        return kind in TIMEOUT_KINDS and now >= self._deadline_at - EARLY


def least(configured: Any, other: float | None) -> Any:
    """The smaller of two timeouts; None means none, urllib3's default is the socket module's."""
    if other is None:
        return configured
    if configured is not None and not isinstance(configured, (int, float)):
        configured = getdefaulttimeout()
    return other if configured is None else min(configured, other)


class Outgoing:
    """The copy that is sent in place of the caller's own request.

    Attributes:
        request: What is sent next.
        pristine: The same before headers of one attempt alone and the user's hook.
        announced: Names of those headers.
        timeouts: The attempt's limits, if a deadline or ``attempt_timeout`` is set.
        begun: A large body that broke inside the loop, and whose rest is asked for.
    """

    __slots__ = ("announced", "begun", "pristine", "request", "timeouts")

    def __init__(self, request: Any) -> None:
        self.request = self.pristine = request
        self.announced: list[str] = []
        self.timeouts: Timeouts | None = None
        self.begun: Begun | None = None


def has_header(headers: Any, name: str) -> bool:
    wanted = name.lower()
    return any(as_text(found).lower() == wanted for found in headers)
