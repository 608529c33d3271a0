"""Outcome: the facts of one finished attempt, and the verdict about what follows.

Adapters state these facts; nothing here knows an HTTP library. An exception that a library raises
becomes a ``FailureKind`` and a ``Phase``; a response becomes a status and a hint. The verdict is
``SendAgain``, ``GiveUp``, or None, which accepts the outcome as it is.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

# Idempotent by definition: RFC 9110 section 9.2.2, and QUERY: RFC 10008 section 2.
IDEMPOTENT_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "QUERY"})


class FailureKind(StrEnum):
    """Library-neutral class of a failure; ``RetryPolicy.failures`` chooses among those retried."""

    STATUS = "status"  # a response with a failing status; chosen by RetryPolicy.statuses
    DNS = "dns"
    REFUSED = "refused"  # no connection: refused, unreachable, aborted while connecting
    CONNECT_TIMEOUT = "connect-timeout"
    TLS = "tls"  # handshake failed, for another reason than the certificate
    PROXY = "proxy"
    READ_TIMEOUT = "read-timeout"
    WRITE_TIMEOUT = "write-timeout"
    TIMEOUT = "timeout"  # of an unnamed phase
    RESET = "reset"  # closed or reset after sending had begun, before a response
    PROTOCOL = "protocol"  # what came back is not HTTP
    UNPROCESSED = "unprocessed"  # HTTP/2: the peer says that it did not process the request
    # NEVER_RETRIED:
    POOL = "pool"
    CERTIFICATE = "certificate"
    DECODING = "decoding"
    PERMANENT = "permanent"
    UNKNOWN = "unknown"


K = FailureKind
NEVER_RETRIED = frozenset({K.POOL, K.CERTIFICATE, K.DECODING, K.PERMANENT, K.UNKNOWN})
RETRYABLE_KINDS = frozenset(K) - NEVER_RETRIED - {K.STATUS}  # that has RetryPolicy.statuses
# These say that an origin fails. A healthy one refuses streams when it closes a connection.
ORIGIN_FAILURE_KINDS = RETRYABLE_KINDS - {K.UNPROCESSED}
TIMEOUT_KINDS = frozenset({K.CONNECT_TIMEOUT, K.READ_TIMEOUT, K.WRITE_TIMEOUT, K.TIMEOUT, K.POOL})
# A gateway, of Cloudflare too, or the server itself waited too long: the work may still go on.
TIMEOUT_STATUSES = frozenset({408, 504, 522, 524})


class Phase(StrEnum):
    """How far an attempt got."""

    UNSENT = "unsent"  # the origin saw nothing
    SENT = "sent"  # it may have seen all of the request
    ANSWERED = "answered"  # the response had begun


class Fault(StrEnum):
    """The side at fault, as far as the failure shows."""

    CLIENT = "client"
    SERVER = "server"
    OTHER = "other"


class RetrySafety(StrEnum):
    """Whether the failure by itself makes a retry safe."""

    YES = "yes"  # nothing was sent
    NO = "no"  # another attempt cannot succeed
    MAYBE = "maybe"  # depends on the request: its method or key


class Hint(NamedTuple):
    """The server's advice about retrying."""

    delay: float | None
    """Seconds from now to stay away for, 0 to 2147483648; None: the server gave no usable time."""

    should_retry: bool | None
    """The server's explicit yes or no; None if it gave neither."""

    source: str | None
    """Lower-case name of the header, or of the part of a body, that ``delay`` comes from."""


NO_HINT = Hint(None, None, None)


class Failure(NamedTuple):
    """Why one attempt did not succeed; what a ``RetryStrategy`` is passed. Immutable.

    Attributes:
        kind: Library-neutral class of the failure.
        phase: How far the attempt got.
        status: The response's status, None when there was no response.
        hint: What the response's headers asked for.
        error: Name of the exception's class, ErrorEvent for one in a stream, None for a response.
            Never its text.
        progress: A part of the body was received and is kept, so that a retry requests only the
            rest.
        flagged: ``retry_if``, the server or the policy's hinted statuses call the response a
            failure.
        replayed: The response is a stored one, which the same idempotency key would return again.
        stale_connection: A connection that had carried a request before was reset or closed before
            anything of a response came. It says nothing of the server.
    """

    kind: FailureKind
    phase: Phase
    status: int | None = None
    hint: Hint = NO_HINT
    error: str | None = None
    progress: bool = False
    replayed: bool = False
    flagged: bool = False
    stale_connection: bool = False

    @property
    def retry_safety(self) -> RetrySafety:
        """Whether the failure makes a retry safe: YES if nothing was sent, NO if none succeeds."""
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
        """A timeout of the client ended the attempt; a 504 is a response, so it is none."""
        return self.kind in TIMEOUT_KINDS

    @property
    def retry_after(self) -> float | None:
        """Seconds after which the server allows a retry; None when it did not say."""
        return self.hint.delay

    @property
    def fault(self) -> Fault:
        """CLIENT: a 4xx, or a mistake made here. SERVER: a 5xx. OTHER: the network's."""
        if self.status is not None:
            return Fault.SERVER if self.status >= 500 else Fault.CLIENT
        return Fault.CLIENT if self.retry_safety is RetrySafety.NO else Fault.OTHER


class Reason(StrEnum):
    """Why there was no further attempt. The value is the stable string of logs and metrics."""

    SERVER_SAID_NO = "server-said-no"
    CALLER_SAID_NO = "caller-said-no"
    REPLAYED_RESPONSE = "replayed-response"
    PERMANENT_ERROR = "permanent-error"
    LOCAL_SATURATION = "local-saturation"
    UNKNOWN_ERROR = "unknown-error"
    METHOD_NOT_REPLAYABLE = "method-not-replayable"
    KEY_EXPIRED = "key-expired"
    BODY_CONSUMED = "body-consumed"
    RESPONSE_DELIVERED = "response-delivered"
    NESTED_CALL = "nested-call"
    ATTEMPTS_EXHAUSTED = "attempts-exhausted"
    RETRY_AFTER_TOO_LONG = "retry-after-too-long"
    DEADLINE = "deadline"
    CIRCUIT_OPEN = "circuit-open"
    ORIGIN_UNHEALTHY = "origin-unhealthy"
    BUDGET_EXHAUSTED = "budget-exhausted"
    CONCURRENCY_LIMIT = "concurrency-limit"
    STRATEGY_FAILED = "strategy-failed"
    HOOK_FAILED = "hook-failed"
    STATUS_NOT_RETRIED = "status-not-retried"


class SendAgain(NamedTuple):
    """Retry ``delay`` seconds from now.

    ``source`` says what set the delay: "backoff", the name of a header, "cooldown" or "failover".
    """

    delay: float
    source: str


class GiveUp(NamedTuple):
    """Hand over the last response or error, because of ``reason``.

    ``delay`` is the uncut wait in seconds that was refused, None if no wait was.
    """

    reason: Reason
    delay: float | None = None


Refusal = GiveUp | None
Verdict = SendAgain | Refusal


class Judged(Exception):
    """A verdict on an attempt by its body: stands for what broke the body; never raised.

    Attributes:
        failure: With a status and a hint.
    """

    failure: Failure
