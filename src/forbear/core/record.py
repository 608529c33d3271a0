"""Record: the story of one call, for its caller. Floor: decides.

Holds method, origin, status, class names and durations: never a path, query, header value, body or
exception text.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .outcome import FailureKind, Phase
from .verdict import Reason

__all__ = ["AttemptRecord", "CallRecord", "Story", "record_of"]

RECORD = "_forbear_record"  # attribute of exceptions, and of responses without extensions
SETTING = "forbear"  # key in a response's extensions
CHAIN = 16  # exceptions that are looked through: causes can be set to anything, also to a circle


class AttemptRecord(NamedTuple):
    """One sending.

    Attributes:
        number: 1 for the first attempt of the call.
        origin: ``scheme://host:port`` that it went to; with ``Origins`` not always the call's.
        status: The answer's status, None when there was no answer.
        failure: Why it did not succeed; None when it was accepted.
        phase: How far a failed attempt got.
        error: Name of the exception's class; None for an answer.
        elapsed: Seconds from sending to the answer's header section or the error.
        delay: Seconds waited after it, None after the last one.
        delay_source: "backoff", the header that asked for the delay, "cooldown" (another call was
            told to wait), or "failover" (the next origin was free at once, or after this delay).
        hedged_after: Of a second attempt beside the first one (``Hedge``): seconds after the first
            one was sent; None for every other attempt. The attempt that the other one cancelled has
            neither status nor failure.
    """

    number: int
    origin: str
    status: int | None
    failure: FailureKind | None
    phase: Phase | None
    error: str | None
    elapsed: float
    delay: float | None
    delay_source: str | None
    hedged_after: float | None = None


class CallRecord(NamedTuple):
    """One call: all its attempts, and why there was no further one.

    Attributes:
        method: The request's method.
        origin: ``scheme://host:port``; empty for a plain success, of which no notes are taken.
        attempts: In the order sent. A plain success shows one.
        elapsed: Seconds from the call to its end, None for a plain success.
        reason: Why it gave up; None when what came was accepted.
        refused_delay: The uncut wait in seconds that was refused (a Retry-After that is too long, a
            deadline), None when none was.
        resumed: Where the body broke and was resumed: each time the position of the first missing
            octet in the representation as it is sent, a Content-Encoding included.
        held: Seconds for which the call was held because its origin was unwell; also a part of the
            waits.
    """

    method: str
    origin: str
    attempts: tuple[AttemptRecord, ...]
    elapsed: float | None
    reason: Reason | None
    refused_delay: float | None
    resumed: tuple[int, ...] = ()
    held: float = 0.0

    @property
    def retries(self) -> int:
        """Attempts after the first one, a hedge not counted."""
        return sum(attempt.hedged_after is None for attempt in self.attempts[1:])

    @property
    def waits(self) -> tuple[float, ...]:
        """Seconds waited between attempts."""
        return tuple(attempt.delay for attempt in self.attempts if attempt.delay is not None)

    @property
    def reasons(self) -> tuple[str, ...]:
        """The status or the name of the exception's class of each failed attempt."""
        return tuple(
            str(attempt.status or attempt.error)
            for attempt in self.attempts
            if attempt.failure is not None
        )

    def __str__(self) -> str:
        story = ", ".join(self.reasons) or "no failure"
        times = f" in {self.elapsed:.3g} s" if self.elapsed is not None else ""
        plural = "" if len(self.attempts) == 1 else "s"
        hedges = [one.hedged_after for one in self.attempts if one.hedged_after is not None]
        if hedges:
            story += f"; hedged after {hedges[0]:.3g} s"
        if self.held >= 0.001:
            story += f"; held for {self.held:.3g} s"
        if self.resumed:
            story += f"; resumed at {', '.join(map(str, self.resumed))}"
        ending = f"; gave up: {self.reason.value}" if self.reason is not None else ""
        if self.refused_delay is not None:
            ending += f" ({self.refused_delay:.3g} s)"
        subject = f", {self.method} {self.origin}".rstrip(", ")  # a plain success may know neither
        return f"{len(self.attempts)} attempt{plural}{times}{subject}: {story}{ending}"


class HedgeNotes(NamedTuple):
    """The second attempt beside the first one of a call."""

    after: float  # seconds from the sending of the first attempt to that of the second
    decides: bool  # the second attempt's outcome is the call's
    loser: Any  # of call.py's Attempt: the one that does not decide


class Story(NamedTuple):
    """The notes of one call, from which its record is made when someone asks.

    Taking notes costs a tenth of making the record, and hardly anyone asks.
    """

    method: str
    origin: str
    history: list[Any]  # of call.py's Attempt
    sent_before: int  # retries that earlier hops of a redirected call used
    elapsed: float
    stop: Any  # a GiveUp, or None
    resumed: tuple[int, ...]
    held: float = 0.0
    hedge: HedgeNotes | None = None

    @property
    def is_final(self) -> bool:
        """No other loop may add attempts: this call was retried, or nobody should retry it."""
        if len(self.history) > 1:
            return True
        return self.stop is not None and self.stop.reason is not Reason.ATTEMPTS_EXHAUSTED

    def record(self) -> CallRecord:
        """Make the record."""
        attempts = []
        history, hedge = self.history, self.hedge
        if hedge is not None and history:  # in the order in which they were sent
            first_two = [hedge.loser, history[0]] if hedge.decides else [history[0], hedge.loser]
            history = first_two + history[1:]
        for number, attempt in enumerate(history, self.sent_before + 1):
            failure, why = attempt.failure, (None, None, None)
            if failure is not None:
                why = failure.kind, failure.phase, failure.error
            after = attempt.elapsed, attempt.delay, attempt.source
            attempts.append(AttemptRecord(number, attempt.origin, attempt.status, *why, *after))
        if hedge is not None and history:
            attempts[1] = attempts[1]._replace(hedged_after=hedge.after)
        reason, refused = (None, None) if self.stop is None else self.stop
        return CallRecord(
            self.method,
            self.origin,
            tuple(attempts),
            self.elapsed,
            reason,
            refused,
            self.resumed,
            self.held,
        )

    def __repr__(self) -> str:
        return f"<Story {self.record()}>"


def record_of(outcome: Any) -> CallRecord:
    """Return the story of a call: its attempts, the waits between them, why it ended.

    Args:
        outcome: A response, or an exception: the library's own, or one that an SDK raised from it
            or that has it as ``.response``. A plain success shows its one attempt; an exception
            that never went through a transport of forbear shows none.

    Raises:
        TypeError: It is neither.
    """
    found = outcome
    for _ in range(CHAIN):
        if found is None and outcome is not None:
            break
        story = story_on(found)
        if story is not None:
            return story.record()
        if not isinstance(found, BaseException):
            return plain_record(found)
        response = getattr(found, "response", None)
        found = response if response is not None else (found.__cause__ or found.__context__)
    return CallRecord("", "", (), None, None, None)


def story_on(thing: Any) -> Story | None:
    """Find the story attached to a response or an exception."""
    extensions = getattr(thing, "extensions", None)
    attached = extensions.get(SETTING) if isinstance(extensions, dict) else None
    raw = getattr(thing, "raw", thing)  # urllib3's response below one of requests
    retries = getattr(raw, "retries", None)  # with forbear.urllib3.Retry inside urllib3
    for found in (attached, *(getattr(one, RECORD, None) for one in (thing, raw, retries))):
        if isinstance(found, Story):
            return found
    return None


def plain_record(response: Any) -> CallRecord:
    """Make the record of a first answer that was accepted at once: no notes are taken of it."""
    status = getattr(response, "status_code", None)
    if status is None:
        status = getattr(response, "status", None)  # urllib3
    if not isinstance(status, int):
        raise TypeError(
            f"record_of takes a response or an exception, got {type(response).__name__}"
        )
    method = getattr(known(response, "request"), "method", None) or ""
    elapsed = known(response, "elapsed")
    seconds = 0.0 if elapsed is None else elapsed.total_seconds()
    attempt = AttemptRecord(1, "", status, None, None, None, seconds, None, None)
    return CallRecord(method, "", (attempt,), None, None, None)


def known(response: Any, name: str) -> Any:
    """Return an attribute, None if it is not set yet: properties of httpx raise RuntimeError."""
    try:
        return getattr(response, name, None)
    except RuntimeError:
        return None
