"""Origins: several servers that serve the same things, and which of them is next. Floor: remembers.

Knows which origins a user listed and which of them asked to be left alone. Whether a breaker lets
an origin be called is asked of ``refused_for``. What follows from a failure is said in limits.py.
"""

from __future__ import annotations

from itertools import count

from ..core.checks import a_choice, texts
from ..core.frozen import rebuilt
from ..core.request import origin_from
from .locks import Locked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from typing import Any, Literal

    # Answers seconds until an origin may be called, 0 if it may be now.
    RefusedFor = Callable[[str, float], float]

__all__ = ["Origins"]

LONGEST = 3600.0  # seconds; a server that names a year is not avoided until the process ends
EXAMPLE = '["https://a.example.com", "https://b.example.com"]'


class Origins(Locked):
    """Servers that can stand in for each other: a request to one of them may be sent to any.

    Thread-safe. A call begins at one origin. Its retries go to the next one that the circuit
    breaker allows and that has not asked to be left alone: at once after a failure that proves that
    nothing was sent, as long as an origin is left that was not tried. If all are out, the call
    waits for the one that comes back soonest. Requests to other origins are not concerned.

    List only servers that share what they know. An idempotency key, credentials and cookies of a
    request go wherever it is sent; if the servers do not recognise each other's keys, a request may
    be executed by each.

    Args:
        origins: At least two, such as "https://api.example.com", with a port if it is special.
        choose: Where a call begins. "first": at the origin it names, while that is well; write the
            preferred one into the client's base URL. "round-robin": at each in turn.

    Raises:
        ValueError: Fewer than two origins, the same one twice, something that is no origin, or
            another ``choose``.
        TypeError: Not several str.
    """

    def __init__(
        self, origins: Iterable[str], *, choose: Literal["first", "round-robin"] = "first"
    ) -> None:
        listed = tuple(map(origin_from, texts("origins", origins, EXAMPLE)))
        if len(listed) < 2:
            raise ValueError(f"origins must be at least two, got {len(listed)}; write {EXAMPLE}")
        for origin in listed:
            if listed.count(origin) > 1:
                raise ValueError(f"origins must differ, got {origin} twice")
        a_choice("choose", choose, ("first", "round-robin"))
        self.listed: tuple[str, ...] = listed
        self.choose: Literal["first", "round-robin"] = choose
        self.quiet = choose == "first"  # every call begins where it says
        self._resting: dict[str, float] = {}  # origin: until when it asked to be left alone
        self._begun = count()
        super().__init__()

    def covers(self, origin: str) -> bool:
        """Is it listed?"""
        return origin in self.listed

    def first(self, named: str, now: float, refused_for: RefusedFor) -> tuple[str, float]:
        """Where a call begins, and for how many seconds it is refused there: 0 as a rule.

        An origin that is not listed stands for itself, and is not asked about. One that rests is
        passed over only while another one is free: a first attempt does not wait.
        """
        resting = self._rests(now)
        if not self.covers(named):
            return named, 0.0
        if self.choose == "first":
            order = [named, *(origin for origin in self.listed if origin != named)]
        else:
            order = self._from(next(self._begun))
        refusals = {origin: refused_for(origin, now) for origin in order}
        allowed = [origin for origin in order if refusals[origin] <= 0]
        if allowed:
            return min(allowed, key=resting.__contains__), 0.0  # the first one that does not rest
        soonest = min(order, key=refusals.__getitem__)
        return soonest, refusals[soonest]

    def next(
        self,
        after: str,
        tried: Collection[str],
        now: float,
        refused_for: RefusedFor,
        *,
        fresh: float,
        again: float,
    ) -> tuple[str, float]:
        """Where the next attempt goes, and after how many seconds.

        The last one went to ``after``, earlier ones to ``tried``. ``fresh`` is the least delay
        before an origin that was not tried yet, ``again`` before one that was.
        """
        resting = self._rests(now)
        order = self._from(self.listed.index(after) + 1)
        order.sort(key=lambda origin: origin in tried)  # stable: in turn, untried ones first
        delays = []
        for origin in order:
            least = again if origin in tried else fresh
            rest = resting.get(origin, now) - now
            delays.append(max(least, rest, refused_for(origin, now)))
        soonest = min(delays)
        return order[delays.index(soonest)], soonest

    def others(self, origin: str, now: float) -> list[str]:
        """The other origins in turn, without those that asked to be left alone."""
        resting = self._rests(now)
        order = self._from(self.listed.index(origin) + 1)
        return [other for other in order if other != origin and other not in resting]

    def rest(self, origin: str, seconds: float, now: float, *, longest_wait: float) -> None:
        """Note that an origin asked to be left alone.

        After ``longest_wait``, which no call waits for, an hour more counts for where calls begin.
        """
        until = now + min(seconds, longest_wait + LONGEST)
        with self._lock:
            self._resting[origin] = max(until, self._resting.get(origin, until))
            self.quiet = False

    def _rests(self, now: float) -> dict[str, float]:
        """Return who rests; forget the others."""
        if not self._resting:
            return {}
        with self._lock:
            resting = self._resting.items()
            self._resting = dict(one for one in resting if one[1] > now)
            self.quiet = not self._resting and self.choose == "first"
            return self._resting.copy()

    def _from(self, place: int) -> list[str]:
        place %= len(self.listed)
        return [*self.listed[place:], *self.listed[:place]]

    def __repr__(self) -> str:
        return f"<Origins {', '.join(self.listed)}, {self.choose}>"

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy in another process knows nothing of who rests.
        return rebuilt, (Origins, {"origins": self.listed, "choose": self.choose})
