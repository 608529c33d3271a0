"""Cooldown: for how long an origin asked this process to pause.

A 503 with a time concerns the origin; a 429, and what else says "too much" of one client's calls,
only those that carry the same credential, so that one tenant does not delay another.

Calls that are held are released over a random share of time, and each checks again when its time
has come: if the response to one of the first asks for another wait, the rest waits too.
"""

from __future__ import annotations

from collections import OrderedDict

from ..core.call import Limit, Plan
from ..core.checks import check_choice
from ..core.outcome import Reason
from ..errors import RetryRefused
from ..limits import Locked
from ..limits.scopes import EVERYBODY, credential_of_call, delayed_so_far, note_delay

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ..core.call import Call
    from ..core.outcome import Failure

    Key = tuple[str, Hashable]  # origin, credential


MOST_KEYS = 1024  # least recently begun first out
LONGEST = 3600.0  # seconds; a server that names a year is not avoided until the process ends


class Cooldown(Locked):
    """The pauses that origins asked of one transport. Thread-safe.

    Args:
        mode: "retries": only retries are held; "all": first attempts too.

    Attributes:
        is_idle: No attempt is to be held.
        quiet: No first attempt is to be held.
    """

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.is_idle = self.quiet = True
        self._until: OrderedDict[Key, float] = OrderedDict()
        super().__init__()

    def begin(self, origin: str, credential: Hashable, seconds: float, now: float) -> None:
        """Note that the origin asked for a pause, of all calls if ``credential`` is EVERYBODY."""
        until, key = now + min(seconds, LONGEST), (origin, credential)
        with self._lock:
            self._until[key] = max(until, self._until.get(key, until))
            self._until.move_to_end(key)
            if len(self._until) > MOST_KEYS:
                self._until.popitem(last=False)
            self.is_idle, self.quiet = False, self.mode != "all"

    def left(self, origin: str, credential: Hashable, now: float) -> float:
        """Seconds until calls with this credential may be sent, 0 if they may now."""
        if self.is_idle:
            return 0.0
        with self._lock:
            if now >= max(self._until.values(), default=now):
                self._until.clear()
                self.is_idle = self.quiet = True
            keys = (origin, EVERYBODY), (origin, credential)
            return max(0.0, *(self._until.get(key, now) - now for key in keys))

    def __repr__(self) -> str:
        return f"<Cooldown {self.mode}, {len(self._until)} held>"


class CooldownLimit(Limit):
    """Delays the calls of one transport for as long as the response to another one asked for."""

    def __init__(self, mode: str) -> None:
        self.shared = self.cooldown = Cooldown(mode)
        self._delays_first = mode == "all"

    def begin(self, call: Call, wait: float, now: float) -> float:
        """Delay a first attempt."""
        if wait or not self._delays_first or call.is_under_way:
            return wait
        return self._delay(call, now)

    def admit(self, call: Call, now: float) -> float:
        """Delay the attempt, if the origin has asked for a pause meanwhile."""
        if self.cooldown.is_idle or not (call.history or self._delays_first):
            return 0.0
        return self._delay(call, now)

    def observe(self, call: Call, failure: Failure | None, now: float) -> None:
        """Begin a cooldown if the response asked for one."""
        if failure is None or not failure.hint.delay or not failure.is_throttle:
            return
        everybody = failure.status == 503
        credential = EVERYBODY if everybody else credential_of_call(call)
        self.cooldown.begin(call.sent_to, credential, failure.hint.delay, now)

    def plan(self, call: Call, failure: Failure, plan: Plan, now: float, latest: float) -> Plan:
        """Wait for as long as the response to another call asked for."""
        if call.limits.can_fail_over(call) or not (left := self.left(call, now)):
            return plan
        delay = left + self._stagger(call, left)
        if delay > latest >= left:
            delay = latest
        asked = max(plan.asked, left)
        if delay <= plan.delay:
            return plan._replace(asked=asked)
        return Plan(delay, failure.hint.source or "cooldown", asked, plan.backoff)

    def left(self, call: Call, now: float) -> float:
        """Seconds until the call may be sent."""
        if self.cooldown.is_idle or call.policy.hints == "ignore":
            return 0.0
        return self.cooldown.left(call.origin, credential_of_call(call), now)

    def _delay(self, call: Call, now: float) -> float:
        """Seconds for which the attempt is delayed; 0: it is not, or another origin is free.

        Raises:
            RetryRefused: That is longer than the policy waits, or another limit would refuse it.
        """
        left = self.left(call, now)
        if not left:
            return 0.0
        has_others = call.limits.can_fail_over(call)
        if has_others:
            left = call.limits.fail_over(call, now)
            if not left:
                return 0.0
        if delayed_so_far(call) + left > call.policy.max_retry_after:
            raise RetryRefused(Reason.RETRY_AFTER_TOO_LONG, send=False, retry_after=left)
        # At once: of many calls that waited for a probe all but a few would be refused then.
        closed = 0.0 if has_others else call.limits.closed(call, call.origin, now)
        if closed:
            raise RetryRefused(Reason.CIRCUIT_OPEN, send=False, retry_after=closed)
        note_delay(call, left)
        return left + self._stagger(call, left)

    def _stagger(self, call: Call, left: float) -> float:
        """Seconds on top, so that neither delayed calls nor a fleet are sent at one instant."""
        return call.random() * call.policy.hint_spread * max(left, 1.0)


def check(value: str) -> str:
    """Check the option ``cooldown``."""
    check_choice("cooldown", value, ("off", "retries", "all"))
    return value


def limits(mode: str, random: Callable[[], float]) -> list[Limit]:
    return [] if check(mode) == "off" else [CooldownLimit(mode)]
