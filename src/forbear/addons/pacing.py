"""Pacing: spreads calls over what is left of a quota, before the server has to say 429.

Servers show in good responses too how much of a quota is left and when it is filled again
(core/headers/quota.py). While more is left than the reserve, or than there are calls that wait,
nobody waits. Else the calls go one after the other, as far apart as the rest of the window allows,
and where nothing is left they wait for its end.

The values are hints (draft-ietf-httpapi-ratelimit-headers, section 6.3), so none of them holds a
call for longer than one window, and a window that is over holds none. What one call costs is not
said either: tokens count per call, and other processes may share the quota. So a call is taken to
cost what the quota lost between two responses for each call of this process.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import KW_ONLY
from math import inf
from typing import TYPE_CHECKING

from ..core.call import IN_QUEUE, QUOTAS, STORY, Limit
from ..core.feature_checks import begins_anew, check_is, check_scope, check_share
from ..limits import Locked
from ..limits.scopes import delay_by, key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from ..core.call import Call
    from ..core.headers.quota import Quota
    from ..core.outcome import Failure
    from ..limits.scopes import CallerScope

MOST_SCOPES = 1024  # least recently used first out
MOST_QUOTAS = 16  # of one scope
ASKS_AGAIN = 0.1  # seconds after which a call that is paced looks again
ASKS_LATER = 0.001  # seconds more for each call that waits, so that a thousand do not ask at once
EXACT = 0.001  # seconds; a time with a fraction may have been rounded down to milliseconds
ROUNDING = 1.0 + EXACT  # seconds; and one in whole seconds to these
COUNTED = 0.1  # seconds after which all who want to send can be taken to have asked
SPREAD = 0.8  # of the rest of a window, so that all of the quota is used by its end
KNOWN = 5  # responses of a window after which it shows what a call costs
LEAST_TIME = 0.05  # seconds that an attempt has, at least, if its call waits until its deadline
TIMES = 2.0  # as much time as the slowest of the recent responses took, if that is more


class Turn:
    """One attempt that is paced: it waits, or is under way."""

    __slots__ = ("scope", "since", "until")

    def __init__(self, now: float) -> None:
        self.scope: Quotas | None = None
        self.since = now
        self.until = inf  # when it is sent, whatever the quotas say; set when it has to wait


class Allowance:
    """The state of one quota, as far as responses have shown it.

    Attributes:
        left: Of the quota, when it was last seen.
        limit: All of it, as far as is known.
        window: Seconds for which it counts.
        resets_at: When it is filled again, at the latest; instant.
        cost: What one call takes of it.
    """

    __slots__ = ("_answered", "_first", "_seen_at", "cost", "left", "limit", "resets_at", "window")

    def __init__(self, left: float, limit: float, window: float) -> None:
        self.left, self.limit, self.window = left, limit, window
        self.cost = 1.0
        self.resets_at = self._seen_at = -inf
        self._first, self._answered = left, 0  # of this window: when first seen, responses since

    def update(self, seen: Quota, sent_at: float, under_way: int, now: float) -> None:
        """Learn from a response to a request that was sent at this instant."""
        seconds = seen.seconds + (EXACT if seen.is_exact else ROUNDING)
        resets_at = now + seconds if seen.seconds else self.resets_at
        if now >= self.resets_at or resets_at > self.resets_at + 2 * ROUNDING:  # another window
            self.resets_at, self._first, self._answered = inf, seen.left, 0
        elif sent_at < self._seen_at and seen.left > self.left:  # overtaken by a later response
            self._answered += 1
            return
        self._answered += 1
        lost = self._first - seen.left
        if self._answered >= KNOWN and lost <= self._first and seen.left > 0:
            self.cost = max(1.0, lost / (self._answered + under_way))
        self.left, self._seen_at = seen.left, now
        self.resets_at = min(self.resets_at, resets_at)
        self.limit = max(seen.left, self.limit if seen.limit is None else seen.limit)
        self.window = max(self.window, seconds) if seen.window is None else seen.window

    def calls(self) -> float:
        """Calls that it has room for."""
        return self.left / self.cost


class Quotas:
    """The quotas of one scope, and the attempts that use them. Without a lock.

    Sets, so that an interruption in the middle of a change leaves nothing that is counted twice.
    """

    __slots__ = ("known", "next_at", "takes", "under_way", "waiting")

    def __init__(self) -> None:
        self.known: dict[str, Allowance] = {}
        self.waiting: set[Turn] = set()
        self.under_way: set[Turn] = set()
        self.next_at = -inf  # when the next of those that wait is sent
        self.takes = 0.0  # seconds of the slowest recent response; what is older fades

    def update(self, seen: Iterable[Quota], sent_at: float, now: float) -> None:
        self.takes = max(now - sent_at, 0.9 * self.takes)
        for quota in seen:
            known = self.known.get(quota.name)
            if known is None:
                if not quota.seconds:  # it is filled again before anybody could wait for it
                    continue
                if len(self.known) >= MOST_QUOTAS:
                    del self.known[next(iter(self.known))]
                limit, window = quota.limit or quota.left, quota.window or quota.seconds
                known = self.known[quota.name] = Allowance(quota.left, limit, window)
            known.update(quota, sent_at, len(self.under_way), now)

    def wait(
        self, turn: Turn, reserve: float, longest: float, deadline_at: float, now: float
    ) -> float:
        """Return seconds until an attempt asks again, 0: it goes.

        ``longest`` is how long it may still wait, and its response has to come by ``deadline_at``.
        """
        in_force = [one for one in self.known.values() if now < one.resets_at]
        if not in_force or now >= turn.until:
            return 0.0
        tightest = min(in_force, key=Allowance.calls)
        room = tightest.calls() - len(self.under_way)
        waiting = len(self.waiting) + (turn not in self.waiting)
        # Who comes now leaves room for those who wait, and sleep: else they would wait in vain.
        spare = room if turn in self.waiting else room - waiting + 1
        if spare >= 1 and spare * tightest.cost > reserve * tightest.limit:
            return 0.0
        if room >= waiting and now - turn.since >= COUNTED:  # all who wait fit in
            return 0.0
        left = due = tightest.resets_at - now
        if room >= 1:
            interval = max(0.0, left - ROUNDING) * SPREAD / room
            # The earlier, if it was planned when less was left.
            self.next_at = min(max(self.next_at, now), now + interval)
            due = self.next_at - now
            if due <= 0:
                self.next_at += interval
                return 0.0
        if turn.until == inf:
            longest = min(longest, deadline_at - now - max(TIMES * self.takes, LEAST_TIME))
            if room < 1 and left > longest:
                return 0.0  # the server says what becomes of it, and nothing is gained by a wait
            turn.until = now + min(tightest.window, longest)
        again = ASKS_AGAIN + ASKS_LATER * waiting
        return max(0.0, min(due, again, turn.until - now))


@begins_anew
class Pacing(Locked):
    """Spreads calls over what is left of a server's quota. Thread-safe; may serve many transports.

    It reads ``RateLimit`` with ``RateLimit-Policy``, ``X-RateLimit-Limit``, ``-Remaining`` and
    ``-Reset`` with their dialects (GitHub, openai, anthropic …) in good responses too; of several
    quotas the tightest one counts. First attempts and retries wait while less than ``reserve`` is
    left and more calls wait than there is room for: never longer than a window,
    ``policy.max_retry_after``, or their deadline. Without such headers nobody waits.

    Args:
        reserve: The share of the quota that is spread over the rest of its window, from 0 to 1. 0:
            calls wait only where nothing is left. 1: all of it is spread.
        scope: "credential": quotas belong to each origin and ``Authorization`` or ``x-api-key``;
            "origin": to each origin; or a function of the request
            (``forbear.core.request.Request``) that returns any text: requests with the same text
            share quotas. If it raises or returns no text, the call is on its origin's, which is
            logged once. The 1,024 used last are kept.

    Raises:
        ValueError: A number is out of its range.
        TypeError: A value is of the wrong type.
    """

    quiet = False  # each attempt has to ask

    _: KW_ONLY
    reserve: float = 0.1
    scope: CallerScope = "credential"

    def __post_init__(self) -> None:
        check_share("reserve", self.reserve)
        check_scope(self.scope, "credential", "origin")
        self._scopes: OrderedDict[Hashable, Quotas] = OrderedDict()
        super().__init__()

    def after_fork(self) -> None:
        """Begin anew in a child: what is under way is the parent's."""
        super().after_fork()
        self._scopes = OrderedDict()

    def turn(
        self, turn: Turn, key: Hashable, longest: float, now: float, deadline_at: float = inf
    ) -> float:
        """Ask as ``Quotas.wait`` whether an attempt of the scope ``key`` may be sent."""
        with self._lock:
            scope = self._scopes.get(key)
            if scope is None:  # no response has shown a quota
                return 0.0
            turn.scope = scope
            wait = scope.wait(turn, self.reserve, longest, deadline_at, now)
            if wait > 0:
                scope.waiting.add(turn)
            else:
                scope.under_way.add(turn)
                scope.waiting.discard(turn)
        return wait

    def end(self, turn: Turn) -> None:
        """The attempt is over, or is not sent. Idempotent."""
        scope = turn.scope
        if scope is not None:  # without the lock: these do nothing but take it out
            scope.waiting.discard(turn)
            scope.under_way.discard(turn)

    def learn(self, key: Hashable, seen: Iterable[Quota], sent_at: float, now: float) -> None:
        """Note the quotas that a response has shown."""
        with self._lock:
            scope = self._scopes.get(key)
            if scope is None:
                if len(self._scopes) >= MOST_SCOPES:
                    self._scopes.popitem(last=False)
                scope = self._scopes[key] = Quotas()
            self._scopes.move_to_end(key)
            scope.update(seen, sent_at, now)

    def waiting(self) -> int:
        """Calls that are paced now."""
        return sum(len(scope.waiting) for scope in list(self._scopes.values()))

    def __repr__(self) -> str:
        return f"<Pacing {self.waiting()} waiting>"


def check(value: object) -> Pacing:
    """Check the option ``pacing``."""
    return check_is("pacing", value, Pacing, "a Pacing, or None for none", "Pacing()")


class PacingLimit(Limit):
    """Lets the calls of one transport be paced, and a Pacing learn from their responses."""

    reads_quotas = True

    def __init__(self, pacing: Pacing) -> None:
        self.shared = self.pacing = pacing

    def admit(self, call: Call, now: float) -> float:
        """Wait for the attempt's turn."""
        if call.policy.hints == "ignore" or call.awaits_hook:
            return 0.0
        turn: Turn = call.notes.setdefault(self, Turn(now))
        longest = call.policy.max_retry_after - call.notes.get(STORY, {}).get("paced", 0.0)
        deadline_at = min(call.deadline_at, call.key_until)
        wait = self.pacing.turn(turn, key_of(call, self.pacing.scope), longest, now, deadline_at)
        if wait > 0:
            call.notes[IN_QUEUE] = True
            return wait
        waited = now - turn.since
        if waited > 0:
            delay_by(call, "pacing", "paced", waited)
        turn.since = now  # it is asked again if a later limit lets it wait
        return 0.0

    def observe(self, call: Call, failure: Failure | None, now: float) -> None:
        """Note the quotas in the head of the response."""
        self.leave(call, now)
        quotas = call.notes.pop(QUOTAS, None)
        if quotas:
            self.pacing.learn(key_of(call, self.pacing.scope), quotas, call.sent_at, now)

    def leave(self, call: Call, now: float) -> None:
        turn = call.notes.pop(self, None)
        if turn is not None:
            self.pacing.end(turn)

    def readings(self, now: float) -> Iterable[tuple[str, tuple[str, ...], float]]:
        yield "forbear.paced_calls", (), self.pacing.waiting()


def limits(pacing: Pacing, random: Callable[[], float]) -> list[Limit]:
    return [PacingLimit(pacing)]
