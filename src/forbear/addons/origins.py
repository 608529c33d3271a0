"""Origins: several servers that serve the same things, and which of them is next.

``Origins`` knows which ones a user listed and which of them asked for a pause; ``OriginsLimit``
asks the other limits of a transport too for how long they would refuse an attempt.
"""

from __future__ import annotations

from dataclasses import KW_ONLY
from itertools import count

from ..core.call import Limit, Plan
from ..core.checks import check_choice
from ..core.feature_checks import begins_anew, check_is, texts
from ..core.origins import origin_from
from ..core.outcome import Phase, Reason
from ..errors import RetryRefused
from ..limits import Locked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Literal

    from ..core.call import Call
    from ..core.outcome import Failure

LONGEST = 3600.0  # seconds; a server that names a year is not avoided until the process ends
EXAMPLE = '["https://a.example.com", "https://b.example.com"]'


@begins_anew
class Origins(Locked):
    """Servers that can stand in for each other: a request to one of them may be sent to any.

    Thread-safe. A call begins at one origin. Its retries go to the next one that the circuit
    breaker allows and that has not asked for a pause: at once after a failure that proves that
    nothing was sent, as long as an origin is left that was not tried. If all are out, the call
    waits for the one that comes back soonest. Requests to other origins are not affected.

    List only servers that share what they know. An idempotency key, credentials and cookies of a
    request go wherever it is sent, so if the servers do not recognise each other's keys, a request
    may be executed by each.

    Args:
        origins: At least two, such as "https://api.example.com", with a port if it is special.
        choose: Where a call begins. "first": at the origin it names, while that is healthy; write
            the preferred one into the client's base URL. "round-robin": at each in turn.

    Raises:
        ValueError: Fewer than two origins, the same one twice, something that is no origin, or
            another ``choose``.
        TypeError: Not several str.
    """

    origins: Iterable[str]
    _: KW_ONLY
    choose: Literal["first", "round-robin"] = "first"

    def __post_init__(self) -> None:
        listed = tuple(map(origin_from, texts("origins", self.origins, EXAMPLE)))
        if len(listed) < 2:
            raise ValueError(f"origins must be at least two, got {len(listed)}; write {EXAMPLE}")
        for origin in listed:
            if listed.count(origin) > 1:
                raise ValueError(f"origins must differ, got {origin} twice")
        check_choice("choose", self.choose, ("first", "round-robin"))
        self.origins = self.listed = listed
        self.quiet = self.choose == "first"  # every call begins where it says
        self._resting: dict[str, float] = {}  # origin: until when its pause lasts
        self._begun = count()
        super().__init__()

    def rest(self, origin: str, seconds: float, now: float, *, longest_wait: float) -> None:
        """Note that an origin asked for a pause.

        After ``longest_wait``, which no call waits for, an hour more counts for where calls begin.
        """
        until = now + min(seconds, longest_wait + LONGEST)
        with self._lock:
            self._resting[origin] = max(until, self._resting.get(origin, until))
            self.quiet = False

    def resting(self, now: float) -> dict[str, float]:
        """Return the origins that rest, and until when; forget the others."""
        if self._resting:
            with self._lock:
                self._resting = dict(one for one in self._resting.items() if one[1] > now)
                self.quiet = not self._resting and self.choose == "first"
        return self._resting.copy()

    def order(self, call: Call) -> list[str]:
        """The origins for a first attempt, the one where it begins first."""
        if self.choose == "first":
            return [call.origin, *(origin for origin in self.listed if origin != call.origin)]
        return self.turned(next(self._begun))

    def turned(self, place: int) -> list[str]:
        """The origins in turn, from a place on."""
        place %= len(self.listed)
        return [*self.listed[place:], *self.listed[:place]]

    def __repr__(self) -> str:
        return f"<Origins {', '.join(self.listed)}, {self.choose}>"


def check(value: object) -> Origins:
    """Check the option ``origins``."""
    code = 'Origins(["https://a", "https://b"])'
    return check_is("origins", value, Origins, f"{code}, or None", code)


class OriginsLimit(Limit):
    """Chooses where the calls of one transport begin and where their retries go."""

    def __init__(self, origins: Origins) -> None:
        self.shared = self.origins = origins

    def begin(self, call: Call, wait: float, now: float) -> float:
        """Choose where the first attempt is sent."""
        resting = self.origins.resting(now)
        if not call.is_under_way and call.origin in self.origins.listed:
            order = self.origins.order(call)
            closed = {origin: call.limits.closed(call, origin, now) for origin in order}
            # One that rests is passed over only while another one is free: it does not wait.
            call.origin = min(order, key=lambda origin: (closed[origin], origin in resting))
            if refused_for := closed[call.origin]:
                raise RetryRefused(Reason.CIRCUIT_OPEN, send=False, retry_after=refused_for)
        return wait

    def observe(self, call: Call, failure: Failure | None, now: float) -> None:
        """Note the pause that an origin asked for, also if this call is not retried."""
        if failure is not None and failure.hint.delay:
            self._rest(call, call.sent_to, failure.hint.delay, now)

    def plan(self, call: Call, failure: Failure, plan: Plan, now: float, latest: float) -> Plan:
        """Fail over to the next origin: at once, if nothing was sent and it was not tried yet."""
        if not self.can_fail_over(call):
            return plan
        before = call.origin
        if failure.hint.delay:
            self._rest(call, before, plan.delay, now)
        call.notes[self] = (*call.notes.get(self, ()), before)
        again = plan.backoff
        fresh = 0.0 if failure.phase is Phase.UNSENT else again
        delay = self.move(call, now, fresh=fresh, again=again)
        if delay == again:
            return Plan(delay, "backoff", 0.0, again)
        too_long = delay > call.policy.max_retry_after
        if too_long and call.limits.closed(call, call.origin, now) >= delay:
            raise RetryRefused(Reason.CIRCUIT_OPEN, retry_after=delay)
        source = "failover" if call.origin != before else failure.hint.source or "failover"
        return Plan(delay, source, delay, again)

    def can_fail_over(self, call: Call) -> bool:
        """May another origin stand in for the call's? None has the rest of a body of another."""
        return not (call.rest and call.rest.is_pinned) and call.origin in self.origins.listed

    def fail_over(self, call: Call, now: float) -> float:
        """Choose another origin; return seconds until an attempt may be sent there."""
        return self.move(call, now, fresh=0.0, again=0.0)

    def move(self, call: Call, now: float, *, fresh: float, again: float) -> float:
        """Choose where the next attempt is sent; return after how many seconds.

        ``fresh`` is the least delay before an origin that was not tried yet, ``again`` before one
        that was.
        """
        tried, resting = call.notes.get(self, ()), self.origins.resting(now)
        order = self.origins.turned(self.origins.listed.index(call.origin) + 1)
        order.sort(key=lambda origin: origin in tried)  # a stable sort: in turn, untried ones first
        delays = {
            origin: max(
                again if origin in tried else fresh,
                resting.get(origin, now) - now,
                call.limits.closed(call, origin, now),
            )
            for origin in order
        }
        call.origin = min(order, key=delays.__getitem__)
        return delays[call.origin]

    def _rest(self, call: Call, origin: str, seconds: float, now: float) -> None:
        if origin in self.origins.listed:
            self.origins.rest(origin, seconds, now, longest_wait=call.policy.max_retry_after)


def limits(origins: Origins, random: Callable[[], float]) -> list[Limit]:
    return [OriginsLimit(origins)]
