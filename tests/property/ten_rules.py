"""An oracle of the ten rules: is a call retried, when, and if not, why not?

Written from the rules of tests/corpus (S1 to S10 of retry_safety, H1 to H8 of server_hints) and from
what the policy's fields promise, without the code of forbear. So a rule that is lost in ``decide``,
or changes its place, is found by any drawn call on which the two disagree.
"""

from dataclasses import dataclass
from math import inf
from typing import Any

from forbear import Exponential, Reason, RetryPolicy
from forbear.core.outcome import GiveUp, SendAgain

IDEMPOTENT = {"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "QUERY"}  # S2
NEVER = {  # S9
    **dict.fromkeys(("certificate", "decoding", "permanent"), Reason.PERMANENT_ERROR),
    "pool": Reason.LOCAL_SATURATION, "unknown": Reason.UNKNOWN_ERROR,
}  # fmt: skip
# Of the client or of a gateway: the work may still go on.
TIMEOUTS = {"connect-timeout", "read-timeout", "write-timeout", "timeout", 408, 504, 522, 524}
LEAST_ATTEMPT = 0.001


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended: a status with header lines, or an error of a kind, in a phase."""

    status: int | None = None
    lines: tuple[tuple[str, str], ...] = ()
    flagged: bool = False  # ``retry_if`` returned True
    kind: str = "status"
    phase: str = "answered"
    is_stale: bool = False  # the connection had carried a request before

    def named(self, name: str) -> list[str]:
        return [value.strip().lower() for key, value in self.lines if key.lower() == name]

    @property
    def advice(self) -> bool | None:
        """The server's yes or no. (H8)"""
        said = self.named("x-should-retry")
        if "false" in said or not all(map(str.isdigit, self.named("grpc-retry-pushback-ms"))):
            return False
        return True if "true" in said else None

    @property
    def named_time(self) -> tuple[float, str] | None:
        """The seconds that the server asked for, and where. (H2)"""
        units = {"retry-after-ms": 1000.0, "grpc-retry-pushback-ms": 1000.0, "retry-after": 1.0}
        for name, unit in units.items():
            for value in self.named(name):
                if value.replace(".", "", 1).isdigit():
                    return float(value) / unit, name
        return None


@dataclass
class Oracle:
    """One call."""

    policy: RetryPolicy
    method: str
    keyed: bool
    draw: float  # what ``random`` returns, each time
    deadline_at: float = inf
    key_until: float = inf
    body_is_gone: bool = False
    barred: Reason | None = None  # by the caller, or by another retry loop
    stop: GiveUp | None = None
    was_executed: bool = False  # an attempt so far, as far as anybody can know
    attempts: int = 0
    stale: int = 0
    rejected: int = 0  # responses 401
    has_begun_fast: bool = False
    previous: float = 0.0

    def verdict(
        self, outcome: Outcome, now: float, *, may_be_fast: bool, refused_for: float, tokens: float
    ) -> Any:
        """What becomes of the next attempt's outcome; None: it is accepted.

        The gate has the last word: it may hold or refuse a retry to an unhealthy origin. Gate and
        circuit are as this outcome has left them; ``tokens`` are there.
        """
        policy = self.policy
        self.attempts += 1
        self.stale += outcome.is_stale
        time = outcome.named_time
        if outcome.status is None:
            if outcome.kind in NEVER:  # 3
                return GiveUp(NEVER[outcome.kind])
            if outcome.kind not in policy.failures:  # 1
                return None
        else:
            if not self.is_failure(outcome):  # 1
                return None
            if outcome.advice is False:  # 2
                return GiveUp(Reason.SERVER_SAID_NO)
            if self.barred is Reason.CALLER_SAID_NO:
                return GiveUp(Reason.CALLER_SAID_NO)
            is_replayed = self.keyed and "true" in outcome.named("idempotent-replayed")  # S6
            if is_replayed and outcome.advice is None:
                return GiveUp(Reason.REPLAYED_RESPONSE)
        if policy.hints == "ignore":
            time = None
        is_refused = outcome.phase == "unsent" or outcome.status in policy.unexecuted_statuses
        self.was_executed = self.was_executed or not is_refused
        relies_on_key = self.was_executed and self.method not in IDEMPOTENT  # S8, S10
        if relies_on_key and not self.keyed:  # 4
            return GiveUp(Reason.METHOD_NOT_REPLAYABLE)
        if relies_on_key and now > self.key_until:
            return GiveUp(Reason.KEY_EXPIRED)
        if self.body_is_gone:  # 5
            return GiveUp(Reason.BODY_CONSUMED)
        if self.barred is Reason.NESTED_CALL:
            return GiveUp(Reason.NESTED_CALL)
        has_spare = self.stale and policy.max_attempts > 1  # one more than the policy says
        if self.attempts >= policy.max_attempts + bool(has_spare):  # 6
            return GiveUp(Reason.ATTEMPTS_EXHAUSTED)
        if self.stop is not None:
            return self.stop
        latest = self.deadline_at - now - LEAST_ATTEMPT
        asked, source = time or (0.0, "backoff")
        if asked:  # 7
            spread = self.draw * policy.hint_spread * max(asked, 1.0)
            delay = asked + spread if asked + spread <= latest or asked > latest else latest
        else:
            source = "backoff"
            self.rejected += outcome.status == 401
            if outcome.status != 401:
                delay = self.backoff(outcome, time, latest, may_be_fast)
            elif self.rejected > 1:
                return GiveUp(Reason.ATTEMPTS_EXHAUSTED)
            else:
                delay = 0.0
        if asked > policy.max_retry_after:
            return GiveUp(Reason.RETRY_AFTER_TOO_LONG, asked)
        if delay > latest:  # 8
            return GiveUp(Reason.DEADLINE, delay)
        if relies_on_key and now + delay > self.key_until:
            return GiveUp(Reason.KEY_EXPIRED, delay)
        if refused_for > delay:  # 9
            return GiveUp(Reason.CIRCUIT_OPEN, refused_for)
        if tokens < (1.0 if time is None else 0.25):  # 10
            return GiveUp(Reason.BUDGET_EXHAUSTED, delay)
        return SendAgain(delay, source)

    def is_failure(self, outcome: Outcome) -> bool:
        """By the policy, the server or ``retry_if``. (S4, S5)"""
        policy, status = self.policy, outcome.status
        if outcome.flagged or status in {*policy.statuses, *policy.unexecuted_statuses}:
            return True
        if status < 400:  # type: ignore[operator]
            return False
        if status == 409 and self.keyed and policy.conflict_with_key:
            return True
        is_hinted = status in policy.hinted_statuses and outcome.named_time is not None
        return is_hinted or outcome.advice is True

    def backoff(self, outcome: Outcome, time: Any, latest: float, may_be_fast: bool) -> float:
        """The client's own delay; the first one is fast where nothing speaks against it."""
        policy = self.policy
        schedule: Any = policy.backoff
        is_throttle = outcome.status == 429 or (outcome.status == 503 and time is not None)
        if policy.throttle_backoff is not None and is_throttle:
            schedule = policy.throttle_backoff
        fast = getattr(schedule, "fast_first", None)
        is_timeout = outcome.kind in TIMEOUTS or outcome.status in TIMEOUTS
        is_fast = fast is not None and not is_timeout and may_be_fast
        if not self.has_begun_fast and (outcome.is_stale or is_fast):
            self.has_begun_fast = True
            is_unsent = outcome.phase == "unsent" and outcome.kind in ("reset", "unprocessed")
            if is_unsent or outcome.is_stale:  # no new connection has failed yet
                return 0.0
            return float(min(fast, max(latest, 0.0)) * self.draw)
        number = self.attempts - self.has_begun_fast
        delay = wait(schedule, number, self.previous, self.draw)
        if delay > latest:  # drawn again in what fits, if half of the range does
            least = wait(schedule, number, self.previous, 0.0)
            most = wait(schedule, number, self.previous, 1.0)
            if least <= latest and latest - least >= (most - least) / 2:
                delay = least + (latest - least) * self.draw
        self.previous = delay
        return delay


def wait(schedule: Any, number: int, previous: float, draw: float) -> float:
    """The wait after attempt ``number``, as its docstring has it."""
    if not isinstance(schedule, Exponential):
        return float(schedule.seconds)
    base, cap, jitter = schedule.base, schedule.cap, schedule.jitter
    if jitter == "decorrelated":
        return min(base + draw * (3 * max(previous, base) - base), cap)
    full = min(base * schedule.factor ** (number - 1), cap)
    if not isinstance(jitter, str):
        return min(full * (1 - jitter + 2 * jitter * draw), cap)
    return full * {"none": 1.0, "full": draw, "equal": 0.5 + 0.5 * draw}[jitter]
