"""Outcome: the facts of one finished attempt. Floor: decides.

Adapters state these facts; nothing here knows an HTTP library. A class a library raises becomes a
``FailureKind`` and a ``Phase``; an answer becomes a status and a hint.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

__all__ = ["NO_HINT", "Failure", "FailureKind", "Fault", "Hint", "Phase", "RetrySafety"]

# Safe to repeat by their meaning: RFC 9110 section 9.2.2, and QUERY: RFC 10008 section 2.
IDEMPOTENT_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "QUERY"})


class FailureKind(StrEnum):
    """Library-neutral class of a failure; ``RetryPolicy.failures`` chooses among those retried."""

    STATUS = "status"  # an answer with a failing status; chosen by RetryPolicy.statuses
    DNS = "dns"
    REFUSED = "refused"  # no connection: refused, unreachable, aborted while connecting
    CONNECT_TIMEOUT = "connect-timeout"
    TLS = "tls"  # handshake failed, for another reason than the certificate
    PROXY = "proxy"
    READ_TIMEOUT = "read-timeout"
    WRITE_TIMEOUT = "write-timeout"
    TIMEOUT = "timeout"  # of an unnamed phase
    RESET = "reset"  # closed or reset after sending had begun, before an answer
    PROTOCOL = "protocol"  # what came back is not HTTP
    UNPROCESSED = "unprocessed"  # HTTP/2: the peer says that it did not look at the request
    # NEVER_RETRIED:
    POOL = "pool"
    CERTIFICATE = "certificate"
    DECODING = "decoding"
    PERMANENT = "permanent"
    UNKNOWN = "unknown"


K = FailureKind
NEVER_RETRIED = frozenset({K.POOL, K.CERTIFICATE, K.DECODING, K.PERMANENT, K.UNKNOWN})
RETRYABLE_KINDS = frozenset(K) - NEVER_RETRIED - {K.STATUS}  # that has RetryPolicy.statuses
TIMEOUT_KINDS = frozenset({K.CONNECT_TIMEOUT, K.READ_TIMEOUT, K.WRITE_TIMEOUT, K.TIMEOUT, K.POOL})
# A new connection usually removes these, and trying one costs the origin next to nothing.
CONNECTION_KINDS = frozenset({K.DNS, K.REFUSED, K.TLS, K.RESET, K.UNPROCESSED})


class Phase(StrEnum):
    """How far an attempt got."""

    UNSENT = "unsent"  # the origin saw nothing
    SENT = "sent"  # it may have seen all of the request
    ANSWERED = "answered"  # its answer had begun


class Fault(StrEnum):
    """The side at fault, as far as the failure tells."""

    CLIENT = "client"
    SERVER = "server"
    OTHER = "other"


class RetrySafety(StrEnum):
    """Whether the failure by itself makes a repetition safe."""

    YES = "yes"  # nothing was sent
    NO = "no"  # another attempt cannot succeed
    MAYBE = "maybe"  # depends on the request: its method or key


class Hint(NamedTuple):
    """The server's advice about trying again."""

    delay: float | None
    """Seconds from now to stay away for, 0 to 2147483648; None: the server gave no usable time."""

    should_retry: bool | None
    """The server's explicit yes or no; None if it gave neither."""

    source: str | None
    """Lower-case name of the header, or of the part of a body, that ``delay`` comes from."""


NO_HINT = Hint(None, None, None)


class Failure(NamedTuple):
    """Why one attempt did not succeed; what a ``RetryStrategy`` is shown.

    Attributes:
        kind: Library-neutral class of the failure.
        phase: How far the attempt got.
        status: The answer's status, None when there was no answer.
        hint: What the answer's headers asked for.
        error: Name of the exception's class, None for an answer. Never its text.
        progress: A part of the answer's body has come and is kept: only the rest would be asked for
            again.
        flagged: ``retry_if``, the server or the policy's hinted statuses call the answer a failure.
        replayed: The answer is a stored one, which the same idempotency key would bring again.
    """

    kind: FailureKind
    phase: Phase
    status: int | None = None
    hint: Hint = NO_HINT
    error: str | None = None
    progress: bool = False
    replayed: bool = False
    flagged: bool = False

    @property
    def retry_safety(self) -> RetrySafety:
        """Whether the failure makes a repetition safe: YES if nothing was sent, NO if none can
        succeed.
        """
        if self.kind in NEVER_RETRIED:
            return RetrySafety.NO
        return RetrySafety.YES if self.phase is Phase.UNSENT else RetrySafety.MAYBE

    @property
    def is_throttle(self) -> bool:
        """The server says "too much": 429, a 503 that names a time, or an exhausted quota."""
        status = self.status
        if status == 429 or (status == 503 and self.hint.delay is not None):
            return True
        source = self.hint.source
        return source is not None and "ratelimit" in source.replace("-", "")

    @property
    def is_timeout(self) -> bool:
        """A timeout of the client ended the attempt; a 504 is an answer, and not meant."""
        return self.kind in TIMEOUT_KINDS

    @property
    def retry_after(self) -> float | None:
        """Seconds after which the server wants to be asked again; None when it did not say."""
        return self.hint.delay

    @property
    def fault(self) -> Fault:
        """CLIENT: a 4xx, or a mistake made here. SERVER: a 5xx. OTHER: the network's."""
        if self.status is not None:
            return Fault.SERVER if self.status >= 500 else Fault.CLIENT
        return Fault.CLIENT if self.retry_safety is RetrySafety.NO else Fault.OTHER

    def __repr__(self) -> str:
        what = self.error if self.status is None else self.status
        return f"<Failure {self.kind.value} {what}, {self.phase.value}>"
