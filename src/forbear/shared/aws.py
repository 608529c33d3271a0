"""AwsStandard: the retry rules of the AWS SDKs behind the RetryStrategy interface. Floor:
remembers.

A quota of tokens per client: a retry costs some, a success gives some back, time gives nothing. The
numbers are those of the SDKs' "standard" mode since 2026 (botocore/retries/standard.py,
smithy-python's StandardRetryQuota), and of the example in Smithy's guide "Retrying Requests"
(2026). Holds no state of a call: that is in the token.
"""

from __future__ import annotations

from ..core.backoff import Exponential
from ..core.checks import a_number, shown
from ..core.strategy import RetryToken
from ..core.verdict import Reason
from ..errors import RetryRefused
from .locks import lock_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self

    from ..core.backoff import Backoff
    from ..core.outcome import Failure

__all__ = ["AwsStandard", "TokenBucket"]

MAX_ATTEMPTS = 3  # of the SDKs' standard mode
BACKOFF = Exponential(base=0.05, cap=20.0)  # seconds, full jitter
THROTTLE_BACKOFF = Exponential(base=1.0, cap=20.0)
BUCKET_FIELDS = (
    "capacity",
    "cost",
    "throttling_cost",
    "timeout_cost",
    "success_gain",
    "returns_cost",
)


class TokenBucket:
    """The quota of retries of the AWS SDKs, one for all origins. Thread-safe.

    It starts full. Nothing comes back with time: after an outage that emptied it, 14 successes buy
    a retry. One object may be shared by several strategies; a copy, also in another process, starts
    full.

    Args:
        capacity: Most tokens, and what it starts with. At least 0.
        cost: Tokens for a retry. At least 0, like all that follow.
        throttling_cost: For one after throttling (429, 503 with a time, an exhausted quota), which
            says less about the health of a server.
        timeout_cost: For one after a timeout of the client's own.
        success_gain: Tokens that a success brings if its call made no retry.
        returns_cost: A success after retries brings back what its last retry has cost; False: it
            brings ``success_gain`` like any other.

    Raises:
        ValueError: A number is out of its range.
        TypeError: A value is of the wrong type.
    """

    __slots__ = (
        "__weakref__",
        "_lock",
        "_tokens",
        "capacity",
        "cost",
        "quiet",
        "returns_cost",
        "success_gain",
        "throttling_cost",
        "timeout_cost",
    )

    def __init__(
        self,
        capacity: float = 500,
        *,
        cost: float = 14,
        throttling_cost: float = 5,
        timeout_cost: float = 14,
        success_gain: float = 1,
        returns_cost: bool = True,
    ) -> None:
        for name, value in (
            ("capacity", capacity),
            ("cost", cost),
            ("throttling_cost", throttling_cost),
            ("timeout_cost", timeout_cost),
            ("success_gain", success_gain),
        ):
            a_number(name, value)
            if value < 0:
                raise ValueError(f"{name} must be at least 0, got {shown(value)}")
        if not isinstance(returns_cost, bool):
            raise TypeError(f"returns_cost must be True or False, got {shown(returns_cost)}")
        self.capacity = capacity
        self.cost = cost
        self.throttling_cost = throttling_cost
        self.timeout_cost = timeout_cost
        self.success_gain = success_gain
        self.returns_cost = returns_cost
        self.quiet = True  # full: a success would bring nothing
        self._tokens = capacity
        self._lock = lock_of(self)

    @property
    def tokens(self) -> float:
        """Tokens there now, for metrics and tests."""
        return self._tokens

    def lowest(self, now: float) -> float:
        """Tokens there now, for metrics: there is one quota for all origins, and time gives
        nothing.
        """
        return self._tokens

    def cost_of(self, failure: Failure) -> float:
        """Return what a retry after this failure costs."""
        if failure.is_throttle:
            return self.throttling_cost
        return self.timeout_cost if failure.is_timeout else self.cost

    def spend(self, cost: float) -> bool:
        """Take ``cost`` tokens if they are there, all or none."""
        with self._lock:
            enough = self._tokens >= cost
            if enough:
                self._tokens -= cost
                self.quiet = self._tokens >= self.capacity
        return enough

    def deposit(self, last_cost: float) -> None:
        """Note a success; ``last_cost`` is what its call's last retry has cost, 0 if it made
        none.
        """
        self.refund(last_cost if last_cost and self.returns_cost else self.success_gain)

    def refund(self, cost: float) -> None:
        """Give back what bought an attempt that was not sent."""
        with self._lock:
            tokens = self._tokens + cost
            self._tokens = tokens if tokens < self.capacity else self.capacity
            self.quiet = self._tokens >= self.capacity

    def __repr__(self) -> str:
        return f"<TokenBucket {self._tokens:.4g}/{self.capacity:.4g}>"

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy in another process starts full: what was spent here was spent here.
        fields = {name: getattr(self, name) for name in BUCKET_FIELDS}
        return made, (type(self), fields)


class AwsToken(RetryToken):
    """What a call has bought."""

    __slots__ = ("drawn", "ended", "paid", "paid_for")

    def __init__(self) -> None:
        super().__init__()
        self.drawn = 0.0  # seconds that the schedule answered last
        self.paid: float = 0  # tokens for the last retry
        self.paid_for = 0  # number of the attempt they bought
        self.ended = False


class AwsStandard:
    """The "standard" mode of the AWS SDKs: three attempts, under a quota of tokens. Thread-safe.

    ``RetryTransport(strategy=AwsStandard())``. After attempt n it waits a random time up to 50 ms ×
    2**(n - 1), after throttling up to 1 s × 2**(n - 1), at most 20 s.

    Departs from AWS in one thing: a time that the server named is waited in full, where AWS cuts it
        at 5 s
    beyond its own backoff. forbear never comes sooner than a server asked: what is too long for
    ``policy.max_retry_after`` or the deadline ends the call instead. No random share is added to
    it.

    Like any strategy it takes the place of schedule and budget; ``max_attempts`` and ``backoff`` of
    the policy do not count. In many processes each has a quota of its own. Under
    ``forbear.urllib3.Retry``, which is not told of calls that succeed at once, a quota that is used
    up comes back only by retries that succeed.

    Args:
        max_attempts: Sends in all, the first included; at least 1.
        bucket: The quota, to be shared or with other numbers; one of its own if not given.
        backoff: Seconds to wait.
        throttle_backoff: The same after throttling.
        random: Like ``random.random``; drawn once per retry.

    Raises:
        ValueError: A number is out of its range.
        TypeError: A value is of the wrong type.
    """

    __slots__ = (
        "_given_random",
        "backoff",
        "bucket",
        "gauge",
        "max_attempts",
        "random",
        "throttle_backoff",
    )

    def __init__(
        self,
        *,
        max_attempts: int = MAX_ATTEMPTS,
        bucket: TokenBucket | None = None,
        backoff: Backoff = BACKOFF,
        throttle_backoff: Backoff = THROTTLE_BACKOFF,
        random: Callable[[], float] | None = None,
    ) -> None:
        if isinstance(max_attempts, bool) or not isinstance(max_attempts, int):
            raise TypeError(f"max_attempts must be a whole number, got {shown(max_attempts)}")
        if max_attempts < 1:
            raise ValueError(
                f"max_attempts must be at least 1, got {max_attempts}; 1 sends once and never retries"
            )
        if bucket is not None and not isinstance(bucket, TokenBucket):
            raise TypeError(f"bucket must be a TokenBucket, got {shown(bucket)}")
        for name, schedule in (("backoff", backoff), ("throttle_backoff", throttle_backoff)):
            if not callable(getattr(schedule, "delay", None)):
                raise TypeError(
                    f"{name} must be a schedule such as Exponential(base=0.05), got {shown(schedule)}"
                )
        self._given_random = random
        if random is None:
            from random import random as system_random

            random = system_random
        self.max_attempts = max_attempts
        self.bucket = TokenBucket() if bucket is None else bucket
        self.gauge = self.bucket  # where ``quiet`` is a plain attribute: a first attempt asks there
        self.backoff = backoff
        self.throttle_backoff = throttle_backoff
        self.random: Callable[[], float] = random

    @classmethod
    def smithy_example(cls, *, random: Callable[[], float] | None = None) -> Self:
        """The example strategy of Smithy's guide: five attempts; 5 tokens a retry, 10 after a
        timeout, 1 for a success.

        It waits up to 1 s × 2**(n - 1) after attempt n, at most 20 s, whatever the failure was, and
        a success never brings more than one token.
        """
        bucket = TokenBucket(
            500, cost=5, throttling_cost=5, timeout_cost=10, success_gain=1, returns_cost=False
        )
        return cls(
            max_attempts=5,
            bucket=bucket,
            backoff=THROTTLE_BACKOFF,
            throttle_backoff=THROTTLE_BACKOFF,
            random=random,
        )

    @property
    def quiet(self) -> bool:
        """The bucket is full: a success would bring nothing."""
        return self.bucket.quiet

    def acquire_initial_token(self, scope: str, now: float) -> RetryToken:
        return AwsToken()

    def refresh_token(
        self, token: RetryToken, failure: Failure, now: float, *, latest: float
    ) -> RetryToken:
        assert isinstance(token, AwsToken)
        attempts = token.attempts
        if attempts >= self.max_attempts:
            raise RetryRefused(Reason.ATTEMPTS_EXHAUSTED)
        schedule = self.throttle_backoff if failure.is_throttle else self.backoff
        delay, source = schedule.delay(attempts, token.drawn, self.random), "backoff"
        token.drawn = delay
        if not delay >= 0:  # a custom schedule; NaN too
            raise ValueError(f"the backoff answered {delay!r} s")
        asked = failure.hint.delay
        if asked is not None and asked >= delay:
            delay, source = asked, failure.hint.source or source
        if delay > latest:
            raise RetryRefused(Reason.DEADLINE, retry_after=delay)
        cost = self.bucket.cost_of(failure)
        if not self.bucket.spend(cost):
            raise RetryRefused(Reason.BUDGET_EXHAUSTED, retry_after=delay)
        token.paid = cost
        token.paid_for = attempts + 1
        token.delay = delay
        token.source = source
        return token

    def record_success(self, token: RetryToken, now: float) -> None:
        assert isinstance(token, AwsToken)
        if not token.ended:
            token.ended = True
            self.bucket.deposit(token.paid)

    def release(self, token: RetryToken, now: float) -> None:
        assert isinstance(token, AwsToken)
        if not token.ended:
            token.ended = True
            if token.paid_for > token.attempts:  # bought, but never sent
                self.bucket.refund(token.paid)

    def __repr__(self) -> str:
        return f"<AwsStandard max_attempts={self.max_attempts} {self.bucket!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {
            name: getattr(self, name)
            for name in ("max_attempts", "bucket", "backoff", "throttle_backoff")
        }
        return made, (type(self), {**fields, "random": self._given_random})


def made(cls: type[Any], fields: dict[str, Any]) -> Any:
    """What a pickle calls: with names, which ``__reduce__`` alone cannot pass."""
    return cls(**fields)
