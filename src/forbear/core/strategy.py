"""Strategy: backoff schedules, and the interfaces of what users may plug in for retries.

A backoff says how long the client itself would wait before attempt n + 1: pure arithmetic, which
knows nothing of hints, deadlines or budgets (see decide.py). Full, equal and decorrelated jitter
follow Brooker, "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015). All durations are
seconds.

``RetryStrategy`` is the interface that Smithy's reference guide describes: a call acquires a token,
refreshes it after each failure, and ends it with exactly one of ``record_success`` and ``release``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from .checks import Frozen, check_duration, check_number, shown, suggesting

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from .outcome import Failure


# A delay is random in [a·d, (a + b)·d]: a and b by jitter.
SHARES = {"full": (0.0, 1.0), "equal": (0.5, 0.5), "decorrelated": (0, 0), "none": (1.0, 0.0)}


class Backoff(Protocol):
    """A schedule: one method, pure, called with no lock held and from any thread."""

    def delay(self, attempt: int, previous: float, random: Callable[[], float]) -> float:
        """Return the seconds to wait after attempt number ``attempt`` failed.

        Args:
            attempt: The attempt that failed; 1 is the first one.
            previous: Seconds that this call's schedule returned last; 0.0 before the first.
            random: Like ``random.random``; the only randomness a schedule may use.
        """
        ...


class Exponential(Frozen):
    """``base × factor**(n - 1)`` seconds after attempt n, at most ``cap``, made random by jitter.

    Immutable, so safe to share between threads.

    Args:
        base: Seconds before the first retry, before jitter; at least 0.
        cap: No wait is longer; seconds, at least ``base``.
        factor: Growth from one wait to the next; at least 1.
        jitter: Where the delay is random: "full" in [0, d], "equal" in [d/2, d], "decorrelated" in
            [base, 3 × previous], a float f in [0, 1] in [d - f·d, d + f·d]; "none": it is d.
        fast_first: Longest delay, in seconds, of one fast first retry that a call may have before
            the schedule begins: after any failure but a timeout (408 and 504 too) and a response
            that names a time, while the server is healthy. 0: at once; None: no such retry.

    Raises:
        ValueError: A number is out of its range.
        TypeError: A value is of the wrong type.
    """

    base: float
    cap: float
    factor: float
    jitter: Literal["full", "equal", "decorrelated", "none"] | float
    fast_first: float | None

    FIELDS = tuple(__annotations__)
    __slots__ = (*FIELDS, "_least", "_range")
    _least: float
    _range: float

    @suggesting
    def __init__(
        self,
        base: float = 0.5,
        cap: float = 30.0,
        factor: float = 2.0,
        jitter: Literal["full", "equal", "decorrelated", "none"] | float = "full",
        fast_first: float | None = None,
    ) -> None:
        check_duration("base", base)
        check_duration("cap", cap)
        if cap < base:
            raise ValueError(f"cap must be at least base ({shown(base)}), got {shown(cap)}")
        check_number("factor", factor, 1, "; use 1 for waits that do not grow")
        if not isinstance(jitter, str):
            check_number("jitter", jitter)
            if not 0 <= jitter <= 1:
                raise ValueError(
                    f"jitter as a number must be in [0, 1], got {shown(jitter)}; 0.2 means ±20 %"
                )
            least, span = 1.0 - jitter, 2.0 * jitter
        elif jitter in SHARES:
            least, span = SHARES[jitter]
        else:
            names = ", ".join(SHARES)
            raise ValueError(f"jitter must be one of {names} or a float, got {jitter!r}")
        check_duration("fast_first", fast_first, none="no fast first retry")
        self._set(base=base, cap=cap, factor=factor, jitter=jitter, fast_first=fast_first)
        self._set(_least=least, _range=span)

    def delay(self, attempt: int, previous: float, random: Callable[[], float]) -> float:
        base, cap = self.base, self.cap
        if self.jitter == "decorrelated":
            return min(base + random() * (max(previous, base) * 3 - base), cap)
        try:
            full = min(base * self.factor ** (attempt - 1), cap)
        except OverflowError:  # saturates: attempt 10,000 waits cap
            full = cap if base else 0.0
        if self.jitter == "none":
            return full
        return min(full * (self._least + self._range * random()), cap)


class Fixed(Frozen):
    """The same wait every time. Immutable, so safe to share between threads.

    Args:
        seconds: At least 0. Without jitter many clients retry in step, so prefer ``Exponential``
            for anything that more than one process calls.

    Raises:
        ValueError: ``seconds`` is out of its range.
        TypeError: It is not a number.
    """

    seconds: float

    __slots__ = FIELDS = tuple(__annotations__)

    @suggesting
    def __init__(self, seconds: float) -> None:
        check_duration("seconds", seconds)
        self._set(seconds=seconds)

    def delay(self, attempt: int, previous: float, random: Callable[[], float]) -> float:
        return self.seconds


def with_spread(asked: float, share: float, latest: float) -> float:
    """The delay that a server asked for, with a random share on top, cut to what is left."""
    delay = asked + share * max(asked, 1.0)
    return delay if delay <= latest or asked > latest else latest


class RetryToken:
    """One call's state inside a strategy: never in two calls, never in two threads at once.

    A strategy may subclass it or keep what it needs in ``state``.

    Attributes:
        delay: Seconds before the next attempt, from 0. A strategy sets it, also on initial tokens.
        attempts: Attempts sent so far, with those of earlier redirects. The call sets it.
        source: What set the delay, for the log: "backoff" or the name of the header that did.
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
    """When to retry, or why not: what ``strategy=`` of every transport and adapter takes.

    One object serves all calls, at once and from any thread: what it shares between calls is under
    a lock of its own. Its methods return at once: no I/O, no sleeping, no clock. ``now`` is
    monotonic seconds.

    A call asks ``acquire_initial_token`` first (while the strategy is ``quiet``: not before the
    first failure), ``refresh_token`` after each failure that may be retried, and at the end
    exactly one of ``record_success`` and ``release``, also when it is cancelled.

    A strategy cannot make a POST unsafe: whether it is a failure, whether a retry is safe and
    whether the body can be replayed is decided before it is called. Its delay is raised to the time
    that the server named and checked against the deadline afterwards. ``policy=`` gives statuses,
    methods, hints and time limits. The number of attempts is the strategy's, unless the request or
    ``forbear.override`` allows fewer.

    A strategy that fails loses nothing. If it raises anything but ``RetryRefused``, returns
    something that is no token, or a delay that is negative, not finite or no number, the call ends
    with what it has (``strategy-failed``). Such a fault is logged once, by class name.

    A strategy may also have ``scope_of(request) -> str``, which is given a
    ``forbear.core.request.Request``. Its result is passed as ``scope``; if it fails, the origin
    is.
    """

    @property
    def quiet(self) -> bool:
        """True: acquiring and recording success may be skipped now; a plain attribute will do.

        A first attempt reads only this, and a call that succeeds at once nothing else. A strategy
        that ignores successes is always quiet; one that delays first attempts never is.
        """
        ...

    def acquire_initial_token(self, scope: str, now: float) -> RetryToken:
        """Begin a call to ``scope`` (``scheme://host:port``).

        Raises:
            RetryRefused: ``send=True``: send once without retries; ``send=False``: do not send.
        """
        ...

    def refresh_token(
        self, token: RetryToken, failure: Failure, now: float, *, latest: float
    ) -> RetryToken:
        """Buy another attempt after ``failure``; return a token that says after which delay.

        Args:
            token: The one that ``acquire_initial_token`` or the last refresh returned.
            failure: What happened. ``failure.retry_after`` is the time that the server named, in
                seconds; ``is_throttle``, ``is_timeout``, ``retry_safety`` and ``fault`` say more.
            now: Monotonic seconds.
            latest: The longest delay the deadline allows, infinite if there is none.

        Raises:
            RetryRefused: No further attempt, and why. Nothing was taken. With ``Reason.DEADLINE``
                for a delay longer than ``latest``.
        """
        ...

    def record_success(self, token: RetryToken, now: float) -> None:
        """End the call: its last response was accepted. Idempotent."""
        ...

    def release(self, token: RetryToken, now: float) -> None:
        """End the call otherwise. Idempotent.

        Refund what bought an attempt that was not sent: ``token.attempts`` has not grown since.
        """
        ...


class Budget(Protocol):
    """The protocol that ``budget=`` takes: ``RetryBudget`` or ``forbear.redis.RedisBudget``.

    Thread-safe and never blocking. ``scope`` is ``scheme://host:port``, ``now`` monotonic seconds.
    No decision waits for I/O: a budget that needs the network works from what it has, and fetches
    more in the background. With ``counts_calls = True`` it has a method ``count_call()`` that is
    called for each call whose deposit is skipped.
    """

    hinted_cost: float  # tokens for a retry that the server scheduled; any other costs 1

    @property
    def quiet(self) -> bool:
        """True: the deposit of a call that succeeds at once may be skipped now."""
        ...

    def deposit(self, scope: str, now: float) -> None:
        """Note a call."""
        ...

    def spend(self, scope: str, cost: float, now: float) -> bool:
        """Take ``cost`` tokens if they are there, all or none."""
        ...

    def refund(self, scope: str, cost: float) -> None:
        """Give back what bought an attempt that was not sent."""
        ...
