"""Policy: the frozen rules a user writes.

One attribute per decision, checked at construction; no state, no counting. The order in which the
rules apply is in decide.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from .backoff import Backoff, Exponential
from .checks import (
    check_bool,
    check_choice,
    check_duration,
    check_number,
    check_positive_int,
    check_set,
    frozen,
    set_fields,
    suggesting,
    tool,
)
from .outcome import IDEMPOTENT_METHODS, RETRYABLE_KINDS, FailureKind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal, TypeGuard, Unpack

    from .policy_fields import PolicyFields

DEFAULT_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
# 0 to 0.05 s, then 0.5 to 1 s, 1 to 2 s, 2 to 4 s. The first is short, because most failures are
# of one replica or one connection, and over at once.
DEFAULT_BACKOFF = Exponential(base=0.75, jitter=1 / 3, fast_first=0.05)
KINDS = (
    f"retryable FailureKind members ({', '.join(sorted(kind.name for kind in RETRYABLE_KINDS))})"
)
METHODS = "upper-case names such as 'GET'"
DEFAULT_PATIENCE = 10.0  # seconds: a restart; a person waits no longer


@frozen(kw_only=True)
class RetryPolicy:
    """The rules of a client: what is retried, after which waits, and when a call ends.

    Immutable and hashable; share one among clients and threads. ``replace`` makes a variant. All
    durations are seconds, at least 0 and finite.

    Examples:
        >>> policy = RetryPolicy(max_attempts=3, total_timeout=10.0)
        >>> client = httpx.Client(transport=RetryTransport(policy=policy))

    Args:
        max_attempts: Attempts of a call, the first one included; at least 1, which never retries.
        backoff: The schedule of the waits: ``Exponential``, ``Fixed`` or any object with a
            ``delay(attempt, previous, random)`` method.
        patience: How long an outage may last for failed calls to be held, and how long a call is
            held at most beyond the delays that were decided, all holds together; see
            ``RetryGate``. Longer than the default, it bounds a call in an outage in place of
            ``max_attempts``: a held call that is sent as a probe uses up no attempt. 0: a call is
            never held; while its server is unhealthy it ends at once. None: neither; the call is
            retried as if there were no gate, for polling and for a schedule that must hold.
        throttle_backoff: A slower schedule after throttling (429, an exhausted quota) that names no
            time. None: ``backoff``.
        statuses: Statuses that are retried, 400 to 599. An empty set means none. A 401 is retried
            once in a call and without a wait, for a ``before_attempt`` that refreshes a token.
        hinted_statuses: Statuses that are retried only if the response says when to retry, such
            as GitHub's 403; see ``for_vendors``.
        unexecuted_statuses: Statuses of which you know that the server has not executed the
            request, such as the 429 of a rate limiter in front of it. They are added to
            ``statuses``, and a request of any method, without a key too, is retried after one of
            them. All else holds: a connection that is reset after a POST is still raised.
        vendors: Vendors whose hint in the JSON body of a failed response is obeyed, and whose error
            events in a stream (``EventStreams``): "anthropic", "bedrock", "google", "openai"; see
            ``for_vendors``, which also adds their statuses. A body of more than 64 KiB is not read.
        conflict_with_key: Whether 409 is retried if the request carries an idempotency key. The
            server still works on the first request with this key then
            (draft-ietf-httpapi-idempotency-key-header section 2.7).
        failures: Kinds of failure (``FailureKind``) that are retried, in addition to statuses.
        methods: Methods that are safe to retry, in capitals. Any other method needs an idempotency
            key, proof that nothing was sent, or one of the ``unexecuted_statuses``.
        attempt_timeout: Longest time for each phase of an attempt (pool, connect, write, read),
            with aiohttp for all of them up to the head of the response; more than 0, and never
            more than the client's own timeout. None: the client's own.
        total_timeout: Longest time from the call to the hand-over of the response: waits, attempts
            and bodies that forbear reads. None: no limit. 0: nothing is sent.
        max_retry_after: Longest wait that a server may ask for. If it asks for more, the response
            is returned at once.
        hints: "obey", or "ignore" for the times that servers name. An explicit no is always obeyed.
        hint_spread: Random share that is added to a time that the server named, so that not all
            clients retry at once; at least 0, and 0.25 adds up to a quarter.
        on_exhausted: What the last failed response becomes. "return": it is returned. "raise": the
            library's own error for its status is raised. Exceptions are raised either way.

    Raises:
        ValueError: A value is out of its range.
        TypeError: A value is of the wrong type, or the name of a field is unknown.
    """

    max_attempts: int = 5
    backoff: Backoff = DEFAULT_BACKOFF
    patience: float | None = DEFAULT_PATIENCE
    throttle_backoff: Backoff | None = None
    statuses: AbstractSet[int] = DEFAULT_STATUSES
    hinted_statuses: AbstractSet[int] = frozenset()
    unexecuted_statuses: AbstractSet[int] = frozenset()
    vendors: Sequence[str] = ()
    conflict_with_key: bool = True
    failures: AbstractSet[FailureKind] = RETRYABLE_KINDS
    methods: AbstractSet[str] = IDEMPOTENT_METHODS
    attempt_timeout: float | None = None
    total_timeout: float | None = None
    max_retry_after: float = 60.0  # about what a person or a queue worker sits through
    hints: Literal["obey", "ignore"] = "obey"
    hint_spread: float = 0.25
    on_exhausted: Literal["return", "raise"] = "return"

    def __post_init__(self) -> None:
        check_positive_int(
            "max_attempts", self.max_attempts, "; use max_attempts=1 to send once and never retry"
        )
        if self.backoff is not DEFAULT_BACKOFF:
            tool("feature_checks").check_backoff("backoff", self.backoff)
        check_duration("patience", self.patience, none="no gate for these calls")
        if self.throttle_backoff is not None:
            tool("feature_checks").check_backoff("throttle_backoff", self.throttle_backoff)
        check_bool("conflict_with_key", self.conflict_with_key)
        check_duration(
            "attempt_timeout", self.attempt_timeout, none="the client's own timeouts", zero=False
        )
        check_duration("total_timeout", self.total_timeout, none="no limit")
        check_duration("max_retry_after", self.max_retry_after)
        check_choice("hints", self.hints, ("obey", "ignore"))
        check_number("hint_spread", self.hint_spread, 0, "; 0.1 adds up to 10 %")
        check_choice("on_exhausted", self.on_exhausted, ("return", "raise"))
        unexecuted = status_set("unexecuted_statuses", self.unexecuted_statuses)
        vendors = self.vendors
        if vendors != ():
            vendors = tool("headers.vendors").with_body_hints(vendors)
        failures = check_set("failures", self.failures, "{FailureKind.REFUSED}", KINDS, is_kind)
        set_fields(
            self,
            statuses=status_set("statuses", self.statuses) | unexecuted,
            hinted_statuses=status_set("hinted_statuses", self.hinted_statuses),
            unexecuted_statuses=unexecuted,
            vendors=vendors,
            failures=frozenset(map(FailureKind, failures)),
            methods=check_set("methods", self.methods, "{'GET', 'PUT'}", METHODS, is_method),
        )

    def replace(self, **changes: Unpack[PolicyFields]) -> RetryPolicy:
        """Return a copy with these fields changed, checked like a new one.

        Raises:
            TypeError: A name is not a field; the message says what to write.
        """
        return dataclasses.replace(self, **changes)

    def for_vendors(self, *vendors: str) -> RetryPolicy:
        """Return a copy that also obeys what these vendors use for "retry" and "do not retry".

        Args:
            vendors: "anthropic" retries 529 (overloaded) and ends at the monthly spend cap,
                "bedrock" retries exceptions in a stream, "cloudflare" retries 520-524,
                "azure" and "github" retry 403 if it names a time, "google" waits as long as
                ``google.rpc.RetryInfo`` says and ends at a quota of a day, "openai" ends at
                ``insufficient_quota`` and its like. Safety rules stay: a POST still needs a key.

        Raises:
            ValueError: The vendor is not known; the message lists those that are.
        """
        policy: RetryPolicy = tool("headers.vendors").policy_for(self, vendors)
        return policy

    @staticmethod
    @suggesting
    def latency_sensitive() -> RetryPolicy:
        """For latency-sensitive calls: 3 attempts, 10 ms, ×2, cap 100 ms, no patience.

        While the server is healthy, up to two fast retries, after a timeout too, cost at most 30 ms
        of delay, less than one more round trip across a continent; they help against a lost
        connection or one bad replica. While it is unhealthy a failed call ends immediately, because
        an outage is the caller's to handle.
        """
        return RetryPolicy(max_attempts=3, backoff=Exponential(base=0.01, cap=0.1), patience=0.0)

    @staticmethod
    @suggesting
    def high_availability() -> RetryPolicy:
        """For calls between services that should survive a deployment: 6 attempts, 100 ms, ×2, cap
        30 s, patience 20 s.

        The first retries, within 0.1, 0.2 and 0.4 s of each other, bridge the gap between a replica
        that closes and the load balancer that notices. A call survives an outage of 5 s, with
        refused connections or a 503, because it is then held and its probes use up no attempt.
        """
        backoff = Exponential(base=0.1, cap=30.0)
        return RetryPolicy(max_attempts=6, backoff=backoff, patience=20.0)

    @staticmethod
    @suggesting
    def batch() -> RetryPolicy:
        """For background jobs: 11 attempts, 100 ms, ×2, cap 60 s, patience an hour.

        A job waits until its deadline, or an hour. In an outage one probe in eight seconds is sent
        for all held calls together, and uses up no attempt, so even a lone call outlasts the
        failover of a database.
        """
        return RetryPolicy(
            max_attempts=11, backoff=Exponential(base=0.1, cap=60.0), patience=3600.0
        )

    @staticmethod
    @suggesting
    def gateway() -> RetryPolicy:
        """For proxies and model gateways: 6 attempts, 50 ms, ×1.5, cap 30 s, ±20 %, patience 2 s.

        Five retries at 50, 75, 112, 168 and 253 ms before jitter: 0.66 s in all, and no two far
        apart, so that a request reaches a healthy worker before its own client gives up. In an
        outage a request is held for two seconds at most beyond these: its client waits too.
        """
        backoff = Exponential(base=0.05, cap=30.0, factor=1.5, jitter=0.2)
        return RetryPolicy(max_attempts=6, backoff=backoff, patience=2.0)

    @staticmethod
    @suggesting
    def disabled() -> RetryPolicy:
        """One attempt, no retry; deadlines, keys and records still work."""
        return RetryPolicy(max_attempts=1)

    @staticmethod
    def from_env(prefix: str) -> RetryPolicy:
        """Return the policy that environment variables describe: with the prefix "MYAPP_RETRY_"
        ``MYAPP_RETRY_MAX_ATTEMPTS=3``, and each other field by its name in capitals.

        forbear reads no variable by itself, only here and now. A field without a variable has its
        default, or that of ``MYAPP_RETRY_PRESET``, such as batch. Sets are written with commas
        between (``429,503``, ``GET,PUT``, ``refused,read-timeout``), None and an empty set as
        ``none``, True as ``true``, and vendors are those of ``for_vendors``. A schedule is
        ``base=0.5,cap=30,jitter=full`` for Exponential, with any of its arguments, or seconds for
        Fixed.

        Raises:
            ValueError: A value cannot be read, or a variable with the prefix is no field. The
                message names the variable, and says what to write.
        """
        policy: RetryPolicy = tool("environment").policy_from(prefix)
        return policy

    @staticmethod
    def from_urllib3(retry: object) -> RetryPolicy:
        """Return the nearest policy to a ``urllib3.Retry``, or to a number of retries as urllib3
        takes it.

        It never sends more often than urllib3 would. ``max_attempts`` is 1 + the smallest of total,
        connect, read, status and other; one of these that is 0 takes its kind of failure out of
        ``failures`` or ``statuses`` instead. ``patience`` is None, so that its counts and waits
        hold on a dead server too; fields that urllib3 has no setting for keep their defaults.
        ``forbear.core.migration`` lists the differences. A
        ``forbear.urllib3.Retry`` gives its own policy.

        Raises:
            TypeError: It is neither a ``urllib3.Retry`` nor a whole number.
        """
        own = getattr(retry, "policy", None)
        if isinstance(own, RetryPolicy):
            return own
        return RetryPolicy(**tool("migration").fields_of(retry))

    @staticmethod
    def from_httpx_retries(retry: object) -> RetryPolicy:
        """Return the nearest policy to an ``httpx_retries.Retry``.

        It never sends more often than httpx-retries would. ``patience`` is None, so that its counts
        and waits hold on a dead server too; fields that httpx-retries has no setting for keep
        their defaults. ``forbear.core.migration`` lists the differences.

        Raises:
            TypeError: It is no ``httpx_retries.Retry``.
            ValueError: A number in it is out of range.
        """
        return RetryPolicy(**tool("migration").fields_of_httpx_retries(retry))


FIELDS = tuple(one.name for one in dataclasses.fields(RetryPolicy))


def status_set(name: str, value: object) -> frozenset[int]:
    return check_set(name, value, "{429, 503}", "whole numbers from 400 to 599", is_status)


def is_status(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and 400 <= value <= 599


def is_method(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and value.isascii() and value == value.upper() != ""


def is_kind(value: object) -> TypeGuard[FailureKind]:
    return value in RETRYABLE_KINDS
