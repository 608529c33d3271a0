"""Call: the state of one call, from its first attempt to its end, and the notes that stay of it.

What the state means for the next step is decide.py's, and what a caller learns of it records.py's.
What outlives the call is in ``limits``, behind the ``Limit`` protocol. All instants are monotonic
seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from .outcome import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from enum import StrEnum

    from .headers.fields import Line
    from .outcome import Failure, GiveUp, Refusal
    from .policy import RetryPolicy
    from .request import Request

    # Of an ``Event``, and of a ``CallEnded`` if it has ``wants_calls`` or ``needs_ends``.
    Listener = Callable[[Any], object]
    Notes = dict[object, Any]  # what limits and the like keep of a call, each under its own key

RECORD = "_forbear_record"  # attribute of exceptions, and of responses without extensions
SENDS = "_forbear_sends"  # marks classes to which a response of forbear's leads
SETTING = "forbear"  # key in a response's extensions: of its story, or
SENT = True  # of a response that nothing else of forbear's is on


class Attempt(NamedTuple):
    """The notes of one finished attempt."""

    status: int | None
    failure: Failure | None  # None: the attempt was accepted
    elapsed: float  # seconds from its start to the response's header section or the error
    delay: float | None  # seconds to wait after the attempt; None after the last one
    source: str | None  # what set the delay
    origin: str  # where the attempt was sent
    sent_after: float | None = None  # seconds since the first one, if both were in flight at once


class Story(NamedTuple):
    """The notes of one call, from which ``record_of`` makes its record.

    Taking notes costs a tenth of making the record, and few callers ask for one.
    """

    method: str
    origin: str
    history: list[Attempt]
    started_at: float  # on the clock of its transport
    ended_at: float
    stop: GiveUp | None
    sent_before: int = 0  # retries that earlier hops of a redirected call used
    more: Mapping[str, Any] = {}  # fields of the record that somebody has noted

    @property
    def is_final(self) -> bool:
        """No other loop may add attempts: this call was retried, or must not be."""
        if len(self.history) > 1:
            return True
        return self.stop is not None and self.stop.reason is not Reason.ATTEMPTS_EXHAUSTED

    def is_within(self, since: float, until: float) -> bool:
        """Did the call begin and end between these two instants?"""
        return since <= self.started_at and self.ended_at <= until


class Rest(NamedTuple):
    """Why a call requests what is missing of a body: its first attempt is the one that broke."""

    kind: str  # of its further attempts
    broke_at: int  # place in the history at which the break is noted
    is_pinned: bool  # no other origin has what is missing
    has_progress: bool  # some of the body has come since it was requested last
    has_ended: bool  # its server has ended it, without a break
    fits: Callable[[int, Iterable[Line]], bool]  # does a response have what is missing?
    begin_anew: Callable[[Call], None]  # lets the call request the whole body
    whole: object = None  # what was sent for that; None: the caller's own request


# Keys of a call's notes that several parts use. What one part alone keeps is under its own key.
PLUGIN_ERROR = "plugin error"  # the exception that the user's own schedule, budget … raised
PLUGIN = "plugin"  # what it is called in the log line about that
LATER = "later"  # events about the last failure, which follow that of the failed attempt
REFUND = "refund"  # tokens that come back, unless the next attempt is sent
STORY = "story"  # fields of its record (records.py) that limits and add-ons have noted; and
# if two attempts were in flight at once, the one that does not decide, with ``sent_after`` if it is
# the second; and after how many seconds that was sent.
ORDER = "order"
SENT_BEFORE = "sent before"  # retries that earlier hops of a redirected call have used
IN_QUEUE = "in queue"  # it waits in the queue of a limit that knows how long it may wait
# What a limit lets an attempt have until its body ends. Its ``free`` gives it back; ``hand_over``
# returns a response whose body will do so.
IN_FLIGHT = "in flight"
QUOTAS = "quotas"  # in the head of the last response, if they are paced by
UNUSED_HINT = "unused hint"  # why the Retry-After of the last response set no delay, if so
FLAGGED = "flagged"  # by an add-on, whatever the status: True as a failure, False as final
BODY_HINT = "body hint"  # what the body of the last response asks for
INSPECTED = "inspected"  # the last response was already, while another attempt was in flight
# The deadline of the request that is being answered ended the attempt so soon that this says
# nothing about its origin.
CUT_BY_SENDER = "cut by sender"
# The origin to which ``before_attempt`` has prepared the next attempt; empty: it is yet to be
# called; missing: there is none.
PREPARED_FOR = "prepared for"
NUMBER = "number"  # identifies the call in events and logs, from the first of them on
KEPT = "kept"  # the last response, read, while the call is held
DELAYED_BY = "delayed by"  # limits that delayed the attempt that is sent next, and for how long


class Quiet(Protocol):
    """State that many calls share. While it is quiet, nothing needs to be noted of a success."""

    @property
    def quiet(self) -> bool: ...


class Always(NamedTuple):
    """State that never changes."""

    quiet: bool


SILENCE, NEVER_QUIET = Always(True), Always(False)


class Plan(NamedTuple):
    """When a call is retried."""

    delay: float  # seconds
    source: str  # what set the delay
    asked: float = 0.0  # how much of it the origin asked for itself
    backoff: float = 0.0  # what the schedule says, whatever the origin asked for


NO_PLAN = Plan(0.0, "backoff")


class Emitter(Protocol):
    """The events of a transport (engine/settings.py)."""

    def emit(self, kind: object, call: Call, now: float = 0.0, /, **given: object) -> None: ...


class Limit(Protocol):
    """Something that outlives calls and is asked about each of them, at these points.

    One object belongs to one transport; what it keeps may be shared with others. What it keeps of
    one call is in ``call.notes``, under the limit itself. Each is asked at each step, in the order
    of the table in engine/settings.py; ``Limits`` asks them all. A method that a limit leaves as it
    is here does nothing.

    Attributes:
        shared: While its ``quiet`` is true, ``begin`` and ``admit`` of a first attempt, and
            ``observe`` of its success, are skipped. As it is here, they never are.
        events: Where it emits what its calls have changed, if anybody may want to know.
        counts_attempts: It decides when and how often a call is retried, in place of the policy.
        reads_quotas: It wants the quotas in the heads of good responses.
        sees_untouched: It is asked about calls too that are forwarded untouched.
        own_random: The source of all random parts, in place of the transport's.
    """

    shared: Quiet = NEVER_QUIET
    events: Emitter | None = None
    counts_attempts: bool = False
    reads_quotas: bool = False
    sees_untouched: bool = False
    own_random: Callable[[], float] | None = None

    def begin(self, call: Call, wait: float, now: float) -> float:
        """A call begins; return the seconds that its first attempt has to wait.

        ``wait`` is what an earlier limit returned. If it is not 0, ``admit`` is asked after it. A
        call that ``is_under_way`` was sent while all was quiet: it is only noted.

        Raises:
            RetryRefused: With ``send=False``: nothing may be sent.
        """
        return wait

    def admit(self, call: Call, now: float) -> float | None:
        """Take what only an attempt may take, right before it is sent.

        Returns:
            0: it is sent. Else seconds until the call asks again; what the other limits have given
            is returned with ``leave`` meanwhile. None, but not of an add-on: the call ends with
            what it has.

        Raises:
            RetryRefused: The attempt must not be sent.
        """
        return 0.0

    def observe(self, call: Call, failure: Failure | None, now: float) -> None:
        """An attempt ended, whatever is decided about it; None: with a good response."""
        return

    def plan(self, call: Call, failure: Failure, plan: Plan, now: float, latest: float) -> Plan:
        """Change what earlier limits have planned: when, or where, the call is retried.

        Takes nothing yet. ``latest`` is the longest delay that the deadline allows.

        Raises:
            RetryRefused: It is not retried.
        """
        return plan

    def take(self, call: Call, failure: Failure, delay: float, now: float, until: float) -> Refusal:
        """Take what the planned retry costs, or say why there is none.

        The retry is sent after ``delay``, but not after ``until``, when the deadline is over, or
        the key.
        """
        return None

    def leave(self, call: Call, now: float) -> None:
        """Give back what an attempt that is not sent after all has taken. Idempotent."""
        return

    def merged(self, policy: RetryPolicy) -> RetryPolicy:
        """Return a transport's policy with what the limit decides in its place."""
        return policy

    # What other limits ask, of all limits at once: ``call.limits``. None of these takes anything.

    def closed(self, call: Call, origin: str, now: float) -> float:
        """Seconds for which it would refuse an attempt to an origin; 0: it would not."""
        return 0.0

    def wants_probe(self, call: Call, now: float) -> bool:
        """Shall one call that is held find out now whether the origin responds again?"""
        return False

    def can_fail_over(self, call: Call) -> bool:
        """May another origin stand in for that of the call?"""
        return False

    def fail_over(self, call: Call, now: float) -> float:
        """Choose another ``call.origin``; return seconds until an attempt may be sent there."""
        return 0.0


@dataclass(eq=False, slots=True)
class Hold:
    """A held call's place in the queue of its origin, which the gate keeps (limits/gate.py).

    Attributes:
        health: That of the origin.
        held_at: Since when it is held.
        ready_at: When its backoff or the server's time is over; the queue is in this order.
        until: When its patience ends, or its deadline.
        latest_at: When its deadline or its key ends: a released call that wakes later is not sent.
        ask_at: When its call asks again.
        cause: Why it was released; None while it is held.
        refusal: Why its call ends, if it is not released in time.
        number: Of two that are ready at one instant the first one is released.
    """

    health: Any
    held_at: float
    ready_at: float
    until: float
    latest_at: float
    ask_at: float
    cause: StrEnum | None = None
    refusal: GiveUp | None = None
    number: int = field(default_factory=count().__next__)

    def __lt__(self, other: Hold) -> bool:
        return (self.ready_at, self.number) < (other.ready_at, other.number)


class SharedLimits(Limit, Protocol):
    """The limits that all calls of a transport share, as one (limits/limits.py)."""

    random: Callable[[], float]


class Call:
    """The state of one call. Not shared between threads; lives as long as its request.

    Any is what has the types of a library: ``live``, ``outgoing`` and the original of ``request``.
    The engine gives them the types of its port where it takes them out. A call that is generic too
    would write both types once more into each signature.
    """

    __slots__ = (
        "attempts", "barred", "body_error", "context", "deadline_at", "decided_at", "history",
        "hold", "is_under_way", "key_until", "last_backoff", "last_error", "limits", "live",
        "most_attempts", "notes", "off_schedule", "origin", "outgoing", "policy",
        "prefetch_result", "random", "request", "sent_at", "sent_to", "started_at", "status",
        "stop", "used_fast_first",
    )  # fmt: skip

    def __init__(
        self, policy: RetryPolicy, request: Request, limits: SharedLimits, now: float, most: float
    ) -> None:
        self.policy = policy  # the rules in force for this call
        self.request = request  # what a decision may ask of the request
        self.limits = limits  # what all calls of the transport share
        self.random = limits.random
        self.notes: Notes = {}
        # The request as it is sent, where forbear adds, bounds or replays something.
        self.outgoing: Any = None
        self.context: Any = None  # what the enclosing blocks say (engine/context.py)

        self.started_at = now
        self.decided_at = now  # when the wait that begins was decided: its seconds count from then
        self.deadline_at = inf  # the call must end by this instant
        self.key_until = inf  # until when the request's idempotency key is valid
        self.origin = request.origin  # where the next attempt goes
        # Attempts that count against ``most_attempts``; begins at the retries that earlier hops of
        # a redirected call have used.
        self.attempts = 0
        self.most_attempts = most  # infinite where only a user's strategy counts them
        self.hold: Hold | None = None  # the call's entry in the gate's queue, while it is held

        self.last_backoff = 0.0  # seconds that the schedule returned last
        self.used_fast_first = False  # the fast first retry is used
        # Attempts that the schedule does not count: the fast one, and the probes of a long outage.
        self.off_schedule = 0

        # The last attempt.
        self.sent_at = now
        self.sent_to = request.origin
        self.is_under_way = False  # it was sent and is not judged yet
        # The response in hand, or the error of a first attempt: an interruption closes it.
        self.live: Any = None
        self.status: int | None = None
        # How the reading of its body has ended, if it was begun.
        self.prefetch_result: Literal["whole", "late"] | None = None
        self.body_error: Exception | None = None  # what has broken the body, if that is read inside
        # Why this outcome ends the call, whatever else is decided: the deadline has ended the
        # attempt, the caller said no, or another loop, above or below, retries the request.
        self.barred: Reason | None = None
        self.last_error: Exception | None = None  # of the attempt, if that is retried

        self.history: list[Attempt] = []  # the attempts that are judged
        self.stop: GiveUp | None = None  # why there will be no further attempt, once that is known

    @property
    def awaits_hook(self) -> bool:
        """Is ``before_attempt`` to be called next? Meanwhile the call takes nothing.

        A request that it sends, such as a login, may need a slot, a turn or a permit too: if all
        are taken by calls that wait for their hooks, nobody would ever go on.
        """
        return bool(self.notes.get(PREPARED_FOR, self.origin) != self.origin)

    @property
    def guard(self) -> Any:
        """The body, if it is no plain bytes: it knows whether it can be replayed (``ready``)."""
        return self.request.guard

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """Those of the enclosing blocks, in addition to the transport's own."""
        return () if self.context is None else self.context.listeners

    @property
    def rest(self) -> Rest | None:
        """Says what is missing of a body that was handed over, if the call requests that."""
        return self.notes.get(Rest)

    @property
    def last_failure(self) -> Failure | None:
        """Why the last attempt did not succeed; None if it did, or none was judged."""
        return self.history[-1].failure if self.history else None

    def sending(self, now: float) -> None:
        """Note that an attempt is being sent."""
        self.attempts += 1
        self.is_under_way = True
        self.sent_at = now
        self.sent_to = self.origin
        self.barred = None
        self.prefetch_result = self.body_error = None
        self.notes.pop(REFUND, None)  # last: an interruption before refunds the tokens

    def end(self, failure: Failure | None, stop: GiveUp | None, now: float) -> None:
        """Note that no attempt follows, and why; the last one was accepted if it has no failure."""
        # The caller gets the error. Its traceback leads to the call, so a reference back would be
        # a cycle, and the frames would stay alive until the garbage collector finds it.
        self.stop, self.last_error = stop, None
        self.note(failure, now)

    def note(
        self,
        failure: Failure | None,
        now: float,
        delay: float | None = None,
        source: str | None = None,
    ) -> None:
        """Note the last attempt."""
        self.is_under_way = False
        status = self.status if failure is None else failure.status
        elapsed = now - self.sent_at
        self.history.append(Attempt(status, failure, elapsed, delay, source, self.sent_to))

    def add_wait(self, seconds: float) -> None:
        """Add a further wait to the one that was decided."""
        last = self.history[-1]
        self.history[-1] = last._replace(delay=(last.delay or 0.0) + seconds)

    def add_to_story(self, field: str, seconds: float) -> None:
        """Add seconds to a field of the call's record."""
        story = self.notes.setdefault(STORY, {})
        story[field] = story.get(field, 0.0) + seconds

    def waited(self) -> float:
        """Seconds waited so far, the wait that begins now included."""
        return sum(attempt.delay or 0.0 for attempt in self.history)

    def story(self, now: float) -> Story:
        """Return the notes of the call so far, for its record."""
        whose = self.request.method, self.request.origin, self.history, self.started_at
        before, more = self.notes.get(SENT_BEFORE, 0), dict(self.notes.get(STORY, ()))
        return Story(*whose, now, self.stop, before, more)
