"""AWS: the retry rules of the AWS SDKs, ``AwsStandard``, with a quota of tokens, ``TokenBucket``.

A retry costs tokens, a success gives some back, time gives nothing. The numbers are those of the
SDKs' "standard" mode since 2026 (botocore/retries/standard.py, smithy-python's StandardRetryQuota).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, field
from random import random as system_random
from typing import TYPE_CHECKING

from ..core.backoff import Exponential
from ..core.checks import check_number, check_positive_int, shown
from ..core.feature_checks import begins_anew, check_backoff
from ..core.outcome import Reason
from ..errors import RetryRefused
from ..limits import Locked, Readings
from .strategy import RetryToken

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.backoff import Backoff
    from ..core.outcome import Failure

BACKOFF = Exponential(base=0.05, cap=20.0)  # seconds, full jitter
THROTTLE_BACKOFF = Exponential(base=1.0, cap=20.0)


@begins_anew
class TokenBucket(Locked):
    """The quota of retries of the AWS SDKs, one for all origins. Thread-safe.

    It starts full, as does a copy. Nothing comes back with time: after an outage that emptied it,
    14 successes buy a retry. One object may be shared by several strategies.

    Args:
        capacity: Most tokens, and what it starts with. At least 0.
        cost: Tokens for a retry. At least 0, like all that follow.
        throttling_cost: For one after throttling (429, 503 with a time, an exhausted quota).
        timeout_cost: For one after a timeout of the client's own.
        success_gain: Tokens that a success brings if its call made no retry; else it brings back
            the cost of the last one.

    Raises:
        ValueError: A number is out of its range.
        TypeError: A value is of the wrong type.
    """

    capacity: float = 500
    _: KW_ONLY
    cost: float = 14
    throttling_cost: float = 5
    timeout_cost: float = 14
    success_gain: float = 1

    def __post_init__(self) -> None:
        for name in ("capacity", "cost", "throttling_cost", "timeout_cost", "success_gain"):
            check_number(name, getattr(self, name), 0)
        self.quiet = True  # full: a success would bring nothing
        self.tokens = self.capacity  # there now, for metrics and tests
        super().__init__()

    def readings(self, now: float) -> Readings:
        """Return its gauges, as ``Limit.readings`` does."""
        return [("forbear.budget.available_tokens", ("default", "local"), self.tokens)]

    def cost_of(self, failure: Failure) -> float:
        """Return what a retry after this failure costs."""
        if failure.is_throttle:
            return self.throttling_cost
        return self.timeout_cost if failure.is_timeout else self.cost

    def spend(self, cost: float) -> bool:
        """Take ``cost`` tokens if they are there, all or none."""
        with self._lock:
            is_enough = self.tokens >= cost
            if is_enough:
                self.tokens -= cost
                self.quiet = self.tokens >= self.capacity
        return is_enough

    def deposit(self, last_cost: float) -> None:
        """Note a success; ``last_cost`` is what its call's last retry cost, 0 if it made none."""
        self.refund(last_cost or self.success_gain)

    def refund(self, cost: float) -> None:
        """Give back what bought an attempt that was not sent."""
        with self._lock:
            self.tokens = min(self.tokens + cost, self.capacity)
            self.quiet = self.tokens >= self.capacity

    def __repr__(self) -> str:
        return f"<TokenBucket {self.tokens:.4g}/{self.capacity:.4g}>"


class Bought:
    """What a call has bought."""

    last_backoff = 0.0  # seconds that the schedule returned last
    cost = 0.0  # tokens that the last retry cost
    attempt = 0  # number of the attempt that they bought
    is_over = False


@begins_anew
class AwsStandard:
    """The "standard" mode of the AWS SDKs: three attempts, under a quota of tokens. Thread-safe.

    ``RetryTransport(strategy=AwsStandard())``. After attempt n it waits a random time up to 50 ms ×
    2**(n - 1), after throttling up to 1 s × 2**(n - 1), at most 20 s.

    It departs from AWS in one thing: a time that the server named is waited in full, without a
    random share, where AWS cuts it at 5 s beyond its own backoff. A time too long for
    ``policy.max_retry_after`` or the deadline ends the call instead.

    Like any strategy it takes the place of schedule and budget; ``max_attempts`` and ``backoff`` of
    the policy do not count. Each process has a quota of its own. ``forbear.urllib3.Retry`` does not
    see calls that succeed at once: there a quota comes back only by retries that succeed.

    Args:
        max_attempts: Attempts in all, the first included; at least 1.
        bucket: The quota, to be shared or with other numbers; one of its own if not given.
        backoff: Seconds to wait.
        throttle_backoff: The same after throttling.
        random: Like ``random.random``; called once per retry.

    Raises:
        ValueError: A number is out of its range.
        TypeError: A value is of the wrong type.
    """

    _: KW_ONLY
    max_attempts: int = 3
    bucket: TokenBucket = field(default_factory=TokenBucket)
    backoff: Backoff = BACKOFF
    throttle_backoff: Backoff = THROTTLE_BACKOFF
    random: Callable[[], float] | None = None

    def __post_init__(self) -> None:
        check_positive_int("max_attempts", self.max_attempts, "; 1 sends once and never retries")
        if not isinstance(self.bucket, TokenBucket):
            raise TypeError(f"bucket must be a TokenBucket, got {shown(self.bucket)}")
        check_backoff("backoff", self.backoff)
        check_backoff("throttle_backoff", self.throttle_backoff)
        # Not in place of the field: copies of the system's generator would draw the same numbers.
        self._random = self.random or system_random

    @property
    def quiet(self) -> bool:
        """The bucket is full: a success would bring nothing."""
        return self.bucket.quiet

    def acquire_initial_token(self, scope: str, now: float) -> RetryToken:
        return RetryToken(state=Bought())

    def refresh_token(
        self, token: RetryToken, failure: Failure, now: float, *, latest: float
    ) -> RetryToken:
        bought: Bought = token.state
        if token.attempts >= self.max_attempts:
            raise RetryRefused(Reason.ATTEMPTS_EXHAUSTED)
        schedule = self.throttle_backoff if failure.is_throttle else self.backoff
        delay = schedule.delay(token.attempts, bought.last_backoff, self._random)
        bought.last_backoff = delay
        source, asked = "backoff", failure.hint.delay
        if asked is not None and asked >= delay:
            delay, source = asked, failure.hint.source or source
        if delay > latest:
            raise RetryRefused(Reason.DEADLINE, retry_after=delay)
        cost = self.bucket.cost_of(failure)
        if not self.bucket.spend(cost):
            raise RetryRefused(Reason.BUDGET_EXHAUSTED, retry_after=delay)
        bought.cost, bought.attempt = cost, token.attempts + 1
        token.delay, token.source = delay, source
        return token

    def record_success(self, token: RetryToken, now: float) -> None:
        bought: Bought = token.state
        if not bought.is_over:
            bought.is_over = True
            self.bucket.deposit(bought.cost)

    def release(self, token: RetryToken, now: float) -> None:
        bought: Bought = token.state
        if not bought.is_over and bought.attempt > token.attempts:  # bought, but never sent
            self.bucket.refund(bought.cost)
        bought.is_over = True

    def __repr__(self) -> str:
        return f"<AwsStandard max_attempts={self.max_attempts} {self.bucket!r}>"
