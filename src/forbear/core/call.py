"""Call: the state of one call, from its first attempt to its end. Floor: decides.

What the state means for the next step is decide.py's; what outlives the call is in ``limits``.
All instants are monotonic seconds.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from .record import Story
from .verdict import Retry

if TYPE_CHECKING:
    from collections.abc import Callable

    from .headers.ranges import Download
    from .outcome import Failure, Hint
    from .policy import RetryPolicy
    from .record import HedgeNotes
    from .request import Request
    from .verdict import GiveUp, Verdict

__all__ = ["Attempt", "Call", "Resumption"]


class Attempt(NamedTuple):
    """One finished attempt."""

    status: int | None
    failure: Failure | None  # None: the attempt was accepted
    elapsed: float  # seconds from sending to the answer's head or the error
    delay: float | None  # seconds to wait after the attempt; None after the last one
    source: str | None  # who chose the delay
    origin: str  # where the attempt went


class Resumption:
    """A download whose body broke after it was handed over, and which asks for the rest."""

    __slots__ = ("broke_at", "download", "progressed", "received")

    def __init__(self, download: Download, broke_at: int) -> None:
        self.download = download
        self.broke_at = broke_at  # the place in the history where the break is noted
        self.received = 0  # raw octets that the caller has
        self.progressed = False  # some of them came since the last request for the rest


new_attempt = tuple.__new__  # a fifth of the time of the class's own constructor


class Call:
    """The state of one call. Not shared between threads; lives as long as its request.

    Attributes:
        policy: The rules in force for this call.
        request: What a decision may ask of the request.
        limits: What all calls of the transport share.
        outgoing: The request as it is sent, where forbear adds, bounds or replays something.
        guard: The body, if it is no plain bytes: it knows whether it can be sent again (``ready``).
        deadline_at: The call must not go on after this instant; infinite if there is none.
        sent_at: When the last attempt was sent.
        attempts: Sendings that count against ``most_attempts``; begins at the retries that
            earlier hops of a redirected call have used.
        most_attempts: Sendings allowed, infinite where only a user's strategy counts them.
        origin: Where the next attempt goes.
        sent_to: Where the last one went.
        status: The last answer's.
        opinion: The word of ``retry_if`` about the last answer; or the question that the fast path
            has begun.
        looks: Answers are looked at before they are judged.
        word: Of a vendor, in the body of the last answer.
        is_under_way: An attempt was sent and is not judged yet.
        was_cut: The deadline has ended the last attempt.
        says_nothing: So soon, and for the sake of whoever asked us, that it tells nothing of its
            origin.
        history: The attempts that are judged.
        is_renewed: The strategy was renewed after the last failure.
        stop: Why the call will not be sent again, once that is known.
        scope: Whose allowance in the budget the call is on.
        drawn: Seconds that the schedule answered last.
        paid: Tokens that the next attempt has cost; 0 once it is sent.
        planned: The delay that was decided before the budget was renewed.
        permit: Of the breaker, until the attempt ends; 0: none was needed.
        is_admitted: The next attempt may be sent: breaker and cooldown have been asked.
        tried: Origins that failed before, where others can stand in.
        credential: A hash of who calls, once the cooldown has asked for one.
        cooled: Seconds for which cooldowns have held the call.
        hedge: The second attempt beside the first one, if there was one.
        place: Its place in the queue of the gate, while it is held.
        held: Seconds for which the gate has held the call, beyond the waits that were decided.
        patient_until: When its patience ends, once it was held.
        kept: The last answer, read, while the call is held.
        unwell: The verdict, if the call is not let go in time.
        token: Of a user's strategy.
        key_until: Until when the request's idempotency key is valid.
        nested: Another loop, above or below, repeats the request already.
        context: What the enclosing blocks say (sending/context.py).
        listeners: Who is told of this call beside the transport's own listeners.
        lines: Header lines of the last answer, if one of them may be a hint.
        last_error: The error of the last attempt, if that is retried.
        body_error: What broke the body of the last answer.
        plugin_error: What a strategy or schedule of the user's raised, for the log.
        number: For whoever tells of the call; 0 until somebody does.
    """

    # Most calls need few of these: as defaults of the class they cost nothing to set.
    attempts = sent_before = number = permit = 0
    drawn = paid = held = cooled = 0.0
    credential = b""
    tried: tuple[str, ...] = ()
    is_admitted = is_under_way = nested = was_cut = used_fast_first = is_renewed = False
    says_nothing = False
    looks = False
    opinion: Any = None
    word: Hint | None = None
    status: int | None = None
    live: Any = None  # the answer in hand: an interruption lets go of it
    outgoing: Any = None
    guard: Any = None
    context: Any = None
    token: Any = None
    ahead: Any = None
    deadline_at = key_until = patient_until = inf
    planned: tuple[float, str, float] | None = None
    place: Any = None
    kept: Any = None
    unwell: GiveUp | None = None
    stop: GiveUp | None = None
    resumption: Resumption | None = None
    hedge: HedgeNotes | None = None
    last_error: Exception | None = None
    body_error: Exception | None = None
    plugin_error: Exception | None = None
    listeners: tuple[Callable[[Any], object], ...] = ()
    resumed: tuple[int, ...] = ()
    lines: Any = ()

    def __init__(
        self,
        policy: RetryPolicy,
        request: Request,
        limits: Any,
        now: float,
        most: float | None = None,
    ) -> None:
        self.policy = policy
        self.request = request
        self.limits = limits
        self.random: Callable[[], float] = limits.random
        self.started_at = self.sent_at = now
        self.most_attempts: float = policy.max_attempts if most is None else most
        self.origin = self.sent_to = self.scope = request.origin
        self.history: list[Attempt] = []

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
        self.ahead = self.body_error = None
        self.paid = 0.0  # last: until then an interruption gives it back

    def accept(self, now: float) -> None:
        """Add an attempt whose answer was accepted to the history."""
        self.stop = self.last_error = None
        self.is_under_way = False
        notes = self.status, None, now - self.sent_at, None, None, self.sent_to
        self.history.append(new_attempt(Attempt, notes))

    def note(self, failure: Failure, verdict: Verdict, now: float) -> None:
        """Add an attempt that failed to the history, and what follows."""
        delay: float | None
        source: str | None
        if type(verdict) is Retry:
            delay, source = verdict
        else:
            delay = source = None
            self.stop = verdict  # type: ignore[assignment]
            self.last_error = None
        self.is_under_way = False
        notes = failure.status, failure, now - self.sent_at, delay, source, self.sent_to
        self.history.append(new_attempt(Attempt, notes))

    def waits(self, seconds: float) -> None:
        """Add a further wait to the one that was decided."""
        last = self.history[-1]
        self.history[-1] = last._replace(delay=(last.delay or 0.0) + seconds)

    def waited(self) -> float:
        """Seconds waited so far, the wait that begins now included."""
        return sum(attempt.delay or 0.0 for attempt in self.history)

    def kind_of(self, place: int, origin: str) -> str | None:
        """Say what the attempt at this place of the history is, if it goes to ``origin``.

        "first", "hedge" (beside the first one, and decides), "retry", "failover" (to another origin
        than the one before) or "resume". None for an attempt that was accepted before its body
        broke.
        """
        if self.resumption is not None:
            return "resume" if place > self.resumption.broke_at else None
        if place == 0:
            return "first" if self.hedge is None or not self.hedge.decides else "hedge"
        return "retry" if self.history[place - 1].origin == origin else "failover"

    def begin_resuming(self, download: Download) -> None:
        """The body of the answer that was accepted last is not whole: what follows is its rest."""
        if self.history:  # else the first attempt left no note
            self.history.pop()
        self.resumption = Resumption(download, len(self.history))
        self.stop = None

    def broke(self, failure: Failure, stop: GiveUp, now: float) -> None:
        """The body of the answer that was accepted last broke, and nothing follows."""
        if self.stop is None:  # else the history ends with why it is not whole
            if self.history:
                self.history.pop()
            self.attempts = self.attempts or 1  # the fast path counts none
            self.note(failure, stop, now)

    def story(self, now: float) -> Story:
        """Tell the call so far, for the record."""
        return Story(
            self.request.method,
            self.request.origin,
            self.history,
            self.sent_before,
            now - self.started_at,
            self.stop,
            self.resumed,
            self.held,
            self.hedge,
        )

    def __repr__(self) -> str:
        return f"<Call {self.request.method} {self.origin}, {self.attempts} attempts>"
