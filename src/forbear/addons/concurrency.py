"""Concurrency: how many attempts are in flight at once, before the server has to say 429.

An attempt takes a slot of its scope right before it is sent, and gives it back when its body is
read or closed. Where all slots are taken it waits in a queue; a slot that is given back goes to the
first of the queue, whose call alone is woken.

How many slots there are is learned, as TCP learns its window (RFC 5681): a response that says "too
much" takes three of ten, a window of good ones adds one. What was in flight together with an
attempt that was throttled did fit, so the way back up to that number is quick, and slow from there.
A server whose responses take twice as long as they recently did has begun to queue: the window
grows no further. The numbers are those of benchmarks/concurrency.py.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import KW_ONLY
from math import inf
from typing import TYPE_CHECKING

from ..core.call import IN_FLIGHT, IN_QUEUE, Limit
from ..core.checks import check_bool, check_choice, check_number, check_positive_int
from ..core.feature_checks import begins_anew, check_is, check_scope
from ..core.headers.fields import media_type
from ..core.outcome import Reason
from ..engine.calls import end_attempt, sent_request
from ..engine.driver import WHOLE, is_endless
from ..errors import RetryRefused
from ..limits import Locked
from ..limits.scopes import delay_by, key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable
    from typing import Literal

    from ..core.call import Call, Notes
    from ..core.outcome import Failure
    from ..engine.port import Port, Req, Resp, Source
    from ..limits.scopes import CallerScope

MOST_SCOPES = 1024  # least recently used first out; a forgotten scope begins with ``start``
FADE = 600.0  # seconds without an attempt after which a scope is forgotten
SHRINK = 0.7  # the share of the slots that a throttle leaves
RAMP = 0.25  # slots that each good response adds to a new scope, until something is throttled
STRIDES = 1  # windows of one slot more each beyond what was proven to fit; then the steps grow
LEAST_WINDOW = 6  # good responses, of which a window has at least so many
STARTING = 0.5  # seconds after which a new scope gets the rest, if nothing was throttled
EACH = 0.05  # seconds between two slots of that rest
SLOWER = 2.0  # the fastest response of a window takes so many times the recent minimum: it queues
FORGETS = 1.02  # the recent minimum grows by this with each window
LEAST_BEST = 0.001  # seconds; below it the time is the client's own, or one tick of a clock
SILENCE = 0.2  # seconds; a server that was faster and answers nothing for so long is not full
LEAP = 1.5  # times as many slots, each time that it answers nothing for so long
# Seconds after which a call asks again by itself, in case that nobody could wake it.
ASKS_AGAIN = 5.0


class Slot:
    """One attempt: it waits in its scope's queue, is in flight, or is over.

    Attributes:
        origin: Where the attempt goes.
        since: When it was asked for; instant.
        wake: Wakes its call, from any thread; set while that sleeps. RuntimeError: it is gone.
        is_handed: Its response was handed over, and its body gives the slot back.
    """

    __slots__ = ("_limit", "is_handed", "origin", "scope", "since", "wake")

    scope: Window | None
    wake: Callable[[], object] | None

    def __init__(self, limit: ConcurrencyLimit, origin: str, now: float) -> None:
        self._limit, self.origin, self.since = limit, origin, now
        self.scope = self.wake = None
        self.is_handed = False

    @property
    def is_taken(self) -> bool:
        """Its attempt may be sent."""
        return self.scope is not None and self in self.scope.taken

    def free(self) -> None:
        """Give it back, or leave the queue. Idempotent, from any thread, and in finalizers."""
        self._limit.free(self)

    def hand_over(self, port: Port[Req, Resp], call: Call, response: Resp) -> Resp:
        """Let the body of a response that is handed over keep the slot, while it is to come.

        The end of a stream of events says nothing of the server's work.
        """
        is_over = call.prefetch_result is WHOLE or port.has_ended(response)
        if not is_over and self._limit.releases != "body":
            status, lines = port.head_of(response)
            is_over = self._limit.releases == "headers" or is_endless(media_type(lines), status)
        if is_over:
            end_attempt(call)
            return response
        self.is_handed = True
        notes = call.notes
        return port.surround(sent_request(call), response, lambda source: Releasing(source, notes))


class Releasing:
    """A source that gives back the slot of its attempt when its body ends."""

    def __init__(self, stream: Source, notes: Notes) -> None:
        self._notes, self.stream = notes, stream

    async def read(self) -> bytes:
        piece = b""
        try:
            piece = await self.stream.read()
        finally:
            if not piece:
                self._free()
        return piece

    async def close(self) -> None:
        try:
            await self.stream.close()
        finally:
            self._free()

    def _free(self) -> None:
        slot = self._notes.get(IN_FLIGHT)
        if slot is not None:
            slot.free()

    __del__ = _free  # dropped without being closed


class Window:
    """The slots of one scope. Without a lock: what has to be exact its limit does inside its own.

    In flight is a set, and the queue a mapping, so that an interruption in the middle of a change
    leaves nothing that is counted twice.

    Attributes:
        limit: Slots; a fraction counts once it is whole.
        taken: In flight.
        ramp: While less than the limit is proven to fit, no more than this is sent; else infinite.
        waiting: In the order in which they came.
        used_at: When an attempt last asked; instant.
        heard_at: When a response came that does not say "too much", or none for too long; instant.
        was_full: Since the limit changed, an attempt found no free slot.
    """

    def __init__(self, limit: float, adaptive: bool, now: float) -> None:
        self.limit = limit
        self.taken: set[Slot] = set()
        self.waiting: OrderedDict[Slot, None] = OrderedDict()
        self.used_at = now
        self.ramp = (limit + 1) // 2 if adaptive else inf
        self._starts_at = now + STARTING
        self._lowered_at = -inf
        self._proven = inf  # in flight when an attempt was throttled last, without it
        self._beyond = 0  # windows since that number was passed
        self._good = self._wanted = 0  # good responses since the limit changed, and of a window
        self._best = self._fastest = inf  # seconds: recent minimum, and that of this window
        self.heard_at = now
        self._restart()

    def is_used(self) -> bool:
        """Is an attempt in flight, or waiting?"""
        return bool(self.taken or self.waiting)

    def room(self, now: float) -> float:
        """Slots that are free now."""
        if self.ramp >= self.limit:
            return self.limit - len(self.taken)
        if now >= self._starts_at:  # one by one, because each of them may be throttled
            self.ramp += 1
            self._starts_at = now + EACH
            if self.ramp >= self.limit:
                self.ramp = inf
        return min(self.limit, self.ramp) - len(self.taken)

    def next_growth(self, now: float) -> float:
        """Seconds until time alone may have freed a slot; then a call that waits asks again."""
        # The call that joins the queue asks first, so the queue's length is its place.
        if self.ramp < self.limit and self._starts_at != inf and len(self.waiting) <= self.limit:
            return max(0.0, self._starts_at - now)
        return ASKS_AGAIN

    def throttled(self, sent_at: float, least: float, now: float) -> None:
        """An attempt was sent for nothing, because the server has too many."""
        fitted = max(least, len(self.taken) - 1.0)
        if sent_at > self._lowered_at:  # else it belongs to the round trip that is over
            self.limit = max(least, self.limit * SHRINK)
            self._lowered_at = now
            self._proven, self._beyond = fitted, 0
        self._proven = min(self._proven, fitted)
        # Until a response shows that more fit, what throttled attempts give back stays free.
        self.ramp, self._starts_at = min(self._proven, self.ramp), inf
        self._restart()

    def good(self, sent_at: float, seconds: float, most: float, *, is_error: bool = False) -> None:
        """An attempt got a response after so many seconds, which may be quick if it is an error."""
        self.heard_at = sent_at + seconds
        if seconds < self._fastest and not is_error:
            self._fastest = seconds
        if sent_at < self._lowered_at:
            return
        if self.ramp < self.limit:
            if self.ramp < self.limit / 2:
                self.ramp += 1.0
            else:  # more than is proven: one in a window, once something was throttled
                self.ramp += RAMP if self._proven == inf else 1 / self.ramp
            if self.ramp >= self.limit:
                self.ramp = inf
            return
        self._good += 1
        if self._good < self._wanted:
            return
        is_slow = SLOWER * self._best < self._fastest < inf
        if (self.was_full or self.waiting) and not is_slow:
            below = self._proven - self.limit
            if below == inf:  # nothing was ever throttled
                step = self.limit * RAMP
            elif below > 0:
                step = max(1.0, below / 2)
            else:  # there may be far more than there were
                self._beyond += 1
                step = max(1.0, self._beyond - STRIDES)
            self.limit = min(most, self.limit + step)
        self._best = max(LEAST_BEST, min(self._best * FORGETS, self._fastest))
        self._restart()

    def grow_in_silence(self, most: float, now: float) -> None:
        """Let more go to a server that answers nothing, if it never said that it has too many.

        It shows nothing of how many it takes, and calls that pile up here would meet it at one
        instant when it is back.
        """
        if self._proven == self.ramp == inf and self.waiting and self._best < inf:
            silent_since = max(self.heard_at, next(iter(self.waiting)).since)
            if now - silent_since >= max(SILENCE, SLOWER * self._best):
                self.heard_at, self.limit = now, min(most, self.limit * LEAP)
                self._restart()

    def _restart(self) -> None:
        """Begin a new window."""
        self._good, self.was_full, self._fastest = 0, False, inf
        self._wanted = max(int(self.limit), LEAST_WINDOW)

    def grant(self, now: float) -> list[Slot]:
        """Give free slots to the first of the queue; return those."""
        granted: list[Slot] = []
        while self.waiting and self.room(now) >= 1:
            slot = next(iter(self.waiting))
            self.taken.add(slot)  # first: an interruption grants it twice, and loses nothing
            granted.append(slot)
            del self.waiting[slot]
        return granted


@begins_anew
class ConcurrencyLimit(Locked):
    """Bounds how many attempts are in flight at once. Thread-safe; may serve several transports.

    Each scope has slots. An attempt takes one right before it is sent, and waits in the order of
    arrival while there is none: never beyond its deadline, after which nothing is sent (reason
    ``concurrency-limit``). ``before_attempt`` runs before that, so it may send requests that need
    slots; ``retry_if`` and listeners run while the call has its slot. It gives the slot back when
    it fails, or when its body is read or closed. A retry that waits and a call that is held have no
    slot. A hedge takes one of its own, and is not sent if none is free. Calls that are off
    (``False``) are not counted.

    A streamed response has its slot until it is closed, so a program that opens as many streams as
    there are slots, and closes none, waits for itself. One that is dropped without being closed
    gives it back when the garbage collector finds it; aiohttp keeps one until its body has come.

    Args:
        most: Slots of each scope, at least 1. None: what the server shows; only if ``adaptive``.
        adaptive: Whether the number of slots follows the server. A response that says "too much"
            (429, 503 with a time, vendors' statuses) takes three of ten, at most once per round
            trip; a window of good ones adds one. False: there are always ``most``.
        least: Slots that always remain, at least 1.
        start: Slots of a scope nothing is known of. Half of them are there at once, the others as
            its first good responses come, or from half a second on.
        scope: "credential": slots for each origin and ``Authorization`` or ``x-api-key``, so that
            one tenant does not delay another; "origin": for each origin; or a function of the
            request (``forbear.core.request.Request``) that returns any text, such as the name of a
            tenant: requests with the same text share slots. If it raises or returns no text, the
            call is on its origin's, which is logged once. The 1,024 used last are kept, for ten
            minutes without an attempt.
        max_waiting: Attempts of a scope that may wait; one more is refused at once. None: any
            number. 0: none waits.
        releases: When a response that is handed over as a stream gives its slot back: "body", when
            it is read or closed, or "headers", at once. None: at once for event streams and 101,
            else with the body.

    Raises:
        ValueError: A number is out of its range.
        TypeError: A value is of the wrong type.
    """

    quiet = False  # each attempt has to ask

    most: int | None = None
    _: KW_ONLY
    adaptive: bool = True
    least: int = 1
    start: int = 20
    scope: CallerScope = "credential"
    max_waiting: int | None = None
    releases: Literal["headers", "body"] | None = None

    def __post_init__(self) -> None:
        most = self.most
        check_bool("adaptive", self.adaptive)
        if most is not None:
            check_positive_int("most", most)
        elif not self.adaptive:
            raise ValueError(
                "adaptive=False needs a number: write ConcurrencyLimit(10, adaptive=False)"
            )
        check_positive_int("least", self.least)
        check_positive_int("start", self.start)
        if most is not None and self.least > most:
            raise ValueError(f"least must be at most most ({most}), got {self.least}")
        check_scope(self.scope, "credential", "origin")
        if self.max_waiting is not None:
            check_number("max_waiting", self.max_waiting, 0, "; None lets any number wait")
        if self.releases is not None:
            check_choice("releases", self.releases, ("headers", "body"))
        first = min(max(self.start, self.least), most or inf) if self.adaptive else most or 0
        self._first = float(first)
        super().__init__()
        self._begin()

    def _begin(self) -> None:
        self._scopes: OrderedDict[Hashable, Window] = OrderedDict()
        self._freed: deque[Slot] = deque()  # given back, and not in their scope's books yet

    def after_fork(self) -> None:
        """Begin anew in a child: what is in flight is the parent's."""
        super().after_fork()
        self._begin()

    def enter(self, slot: Slot, key: Hashable, now: float) -> bool | None:
        """Take a slot of a scope; False: it waits in the queue. None: it may not wait."""
        with self._lock:
            scope = self._scopes.get(key)
            if scope is None or (now - scope.used_at > FADE and not scope.is_used()):
                scope = self._add(key, now)
            self._scopes.move_to_end(key)
            scope.used_at, slot.scope = now, scope
            found: bool | None = not scope.waiting and scope.room(now) >= 1
            if found:
                scope.taken.add(slot)
            else:
                scope.was_full = True
                if self.max_waiting is None or len(scope.waiting) < self.max_waiting:
                    scope.waiting[slot] = None
                else:
                    found = None
        if self._freed:
            self._settle()
        return found

    def ask(self, slot: Slot, now: float) -> float:
        """Return seconds until a slot that waits asks again; 0: it has its turn."""
        scope = slot.scope
        assert scope is not None
        with self._lock:
            scope.used_at = now
            scope.grow_in_silence(self.most or inf, now)
            granted = scope.grant(now)
            wait = 0.0 if slot in scope.taken else scope.next_growth(now)
        self._wake(one for one in granted if one is not slot)
        self._settle()
        return wait

    def throttled(self, slot: Slot, sent_at: float, now: float) -> None:
        """The attempt of a slot was throttled."""
        if self.adaptive and slot.scope is not None:
            with self._lock:
                slot.scope.throttled(sent_at, float(self.least), now)
            self._settle()

    def free(self, slot: Slot) -> None:
        """Take a slot back, in any state; wake whoever is next."""
        scope = slot.scope
        if scope is not None:
            scope.taken.discard(slot)
            if scope.waiting:  # looked at second, as whoever joins the queue asks for room second
                self._freed.append(slot)
                self._settle()

    def _settle(self) -> None:
        """Let what was given back go to who waits.

        A finalizer may run in the middle of any line, also of one in this file that holds the lock.
        So who finds it locked leaves that to whoever holds it, who comes here afterwards.
        """
        freed = self._freed
        while freed and not self._lock.locked():
            granted: list[Slot] = []
            with self._lock:
                while freed:
                    slot = freed[0]  # taken out last, so that an interruption loses none
                    scope = slot.scope
                    assert scope is not None
                    scope.taken.discard(slot)
                    scope.waiting.pop(slot, None)
                    granted += scope.grant(scope.used_at)
                    freed.popleft()
            self._wake(granted)

    def _wake(self, granted: Iterable[Slot]) -> None:
        for slot in granted:
            try:
                if slot.wake is not None:
                    slot.wake()
            except RuntimeError:  # its event loop is closed, and the call is gone
                self.free(slot)

    def _add(self, key: Hashable, now: float) -> Window:
        scopes = self._scopes
        if len(scopes) >= MOST_SCOPES:
            idle = next((at for at, one in scopes.items() if not one.is_used()), None)
            if idle is not None:
                del scopes[idle]
        scope = scopes[key] = Window(self._first, self.adaptive, now)
        return scope

    def in_flight(self) -> int:
        """Attempts in flight, of all scopes."""
        return sum(len(scope.taken) for scope in self._known())

    def waiting(self) -> int:
        """Attempts that wait for a slot, of all scopes."""
        return sum(len(scope.waiting) for scope in self._known())

    def lowest(self) -> float:
        """Slots of the scope that has the fewest."""
        return min((int(scope.limit) for scope in self._known()), default=int(self._first))

    def _known(self) -> list[Window]:
        self._settle()
        return list(self._scopes.values())

    def __repr__(self) -> str:
        state = f"{self.in_flight()} in flight, {self.waiting()} waiting"
        return f"<ConcurrencyLimit {self.lowest()}, {state}>"


def check(value: object) -> ConcurrencyLimit:
    """Check the option ``concurrency``."""
    code = "ConcurrencyLimit()"
    return check_is("concurrency", value, ConcurrencyLimit, "a ConcurrencyLimit, or None", code)


class SlotLimit(Limit):
    """Lets the attempts of one transport take slots, and a limit learn from them."""

    def __init__(self, limit: ConcurrencyLimit) -> None:
        self.shared = self.limit = limit

    def admit(self, call: Call, now: float) -> float:
        """Take a slot, or wait for one."""
        limit, slot = self.limit, call.notes.get(IN_FLIGHT)
        if slot is None or slot.is_handed or slot.origin != call.origin:
            if slot is not None:  # of a body that broke, or for another origin
                slot.free()
            if call.awaits_hook:
                return 0.0
            # First here: what follows may be interrupted, and then ``leave`` gives it back.
            slot = call.notes[IN_FLIGHT] = Slot(limit, call.origin, now)
            found = limit.enter(slot, key_of(call, limit.scope), now)
            if found:
                return 0.0
            if found is None:
                raise RetryRefused(Reason.CONCURRENCY_LIMIT, send=False)
        wait = limit.ask(slot, now)
        until = min(call.deadline_at, call.key_until)
        if now >= until:  # also with a slot: nothing is sent any more
            raise RetryRefused(Reason.CONCURRENCY_LIMIT, send=False)
        if wait:
            call.notes[IN_QUEUE] = True
            return min(wait, until - now)
        delay_by(call, "concurrency", "waited_for_slot", now - slot.since)
        return 0.0

    def observe(self, call: Call, failure: Failure | None, now: float) -> None:
        """Note how the attempt ended, of which the slot tells its scope."""
        slot, limit, sent_at = call.notes.get(IN_FLIGHT), self.limit, call.sent_at
        if slot is not None and limit.adaptive:
            if failure is None:
                # Without the lock: what is lost when threads meet is a response of a window.
                slot.scope.good(sent_at, now - sent_at, limit.most or inf)
            elif failure.is_throttle:
                limit.throttled(slot, sent_at, now)
            elif failure.status is not None:
                if failure.status < 500:  # a 404 shows that there was room, as a 200 does
                    slot.scope.good(sent_at, now - sent_at, limit.most or inf, is_error=True)
                slot.scope.heard_at = now

    def leave(self, call: Call, now: float) -> None:
        slot = call.notes.get(IN_FLIGHT)
        if slot is not None and not slot.is_handed:
            self.limit.free(slot)
            del call.notes[IN_FLIGHT]

    def readings(self, now: float) -> Iterable[tuple[str, tuple[str, ...], float]]:
        yield "forbear.concurrency.limit", (), self.limit.lowest()
        yield "forbear.concurrency.in_flight", (), self.limit.in_flight()
        yield "forbear.concurrency.waiting", (), self.limit.waiting()


def limits(limit: ConcurrencyLimit, random: Callable[[], float]) -> list[Limit]:
    return [SlotLimit(limit)]
