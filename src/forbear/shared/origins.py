"""Origins: several servers that serve the same things, and which of them is next. Floor: remembers.

Knows which origins a user listed and which of them asked to be left alone; whether a breaker lets
an origin be called is asked of ``refused_for``. What follows from a failure is the strategy's to
say (standard.py).
"""

from __future__ import annotations

from itertools import count

from ..core.checks import a_choice, texts
from ..core.origin import origin_from
from .watched import Watched

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from typing import Any, Literal

    RefusedFor = Callable[
        [str, float], float
    ]  # seconds until an origin may be called, 0 if it may be now

__all__ = ["Origins"]

LONGEST = (
    3600.0  # seconds; a server that names a year must not be left alone until the process ends
)
EXAMPLE = '["https://a.example.com", "https://b.example.com"]'


class Origins(Watched):
    """Servers that can stand in for each other: a request to one of them may be sent to any.
    Thread-safe.

    A call begins at one origin, and its retries go to the next one that its circuit breaker allows
    and that has not asked to be left alone. After a failure that proves that nothing was sent they
    do so at once, as long as an origin is left that was not tried. If all are out, the call waits
    for the one that comes back soonest. Requests to other origins are not concerned.

    List only servers that share what they know. An idempotency key, credentials and cookies of a
    request go wherever it is sent; if the servers do not recognise each other's keys, a request may
    be executed by each.

    Args:
        origins: At least two of "https://api.example.com", with a port if it is not the scheme's
            own.
        choose: Where a call begins. "first": at the origin it names, while that is well; write the
            preferred one into the client's base URL. "round-robin": at each in turn.

    Raises:
        ValueError: Fewer than two origins, the same one twice, something that is no origin, or
            another ``choose``.
        TypeError: Not several str.
    """

    __slots__ = ("_resting", "_turns", "choose", "listed")

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
        self.choose = choose
        super().__init__(quiet=choose == "first")  # a call begins where it says
        self._resting: dict[str, float] = {}  # origin: until when it asked to be left alone
        self._turns = count()

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
            order = self._from(next(self._turns))
        refusals = {origin: refused_for(origin, now) for origin in order}
        allowed = [origin for origin in order if refusals[origin] <= 0]
        for origin in allowed:
            if origin not in resting:
                return origin, 0.0
        if allowed:
            return allowed[0], 0.0
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

        Args:
            after: Where the last one went.
            tried: Where attempts of this call went, ``after`` among them.
            now: Monotonic seconds.
            refused_for: Seconds until a breaker lets an origin be called.
            fresh: Least delay before an origin that was not tried yet.
            again: Least delay before one that was.
        """
        resting = self._rests(now)
        chosen, least = after, float("inf")
        order = self._from(self.listed.index(after) + 1)
        for origin in sorted(
            order, key=lambda origin: origin in tried
        ):  # stable: in turn, untried ones first
            delay = max(
                again if origin in tried else fresh,
                resting.get(origin, now) - now,
                refused_for(origin, now),
            )
            if delay < least:
                chosen, least = origin, delay
        return chosen, least

    def rest(self, origin: str, seconds: float, now: float, *, longest_wait: float) -> None:
        """Note that an origin asked to be left alone.

        What is longer than any call waits (``longest_wait``) only says where calls begin, for an
        hour more.
        """
        until = now + min(seconds, longest_wait + LONGEST)
        with self._lock:
            before = self._resting.get(origin)
            self._resting[origin] = until if before is None or before < until else before
            is_changed = self.quiet
            self.quiet = False
        if is_changed:
            self._adjust()

    def _rests(self, now: float) -> dict[str, float]:
        """Who rests; forgets the others."""
        if not self._resting:
            return {}
        is_changed = False
        with self._lock:
            self._resting = {
                origin: until for origin, until in self._resting.items() if until > now
            }
            if not self._resting and self.choose == "first":
                is_changed = not self.quiet
                self.quiet = True
            resting = self._resting
        if is_changed:
            self._adjust()
        return resting

    def _from(self, place: int) -> list[str]:
        place %= len(self.listed)
        return [*self.listed[place:], *self.listed[:place]]

    def __repr__(self) -> str:
        return f"<Origins {', '.join(self.listed)}, {self.choose}>"

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy in another process knows nothing of who rests.
        return _rebuild, (self.listed, self.choose)


def _rebuild(listed: tuple[str, ...], choose: Literal["first", "round-robin"]) -> Origins:
    return Origins(listed, choose=choose)
