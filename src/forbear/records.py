"""Records: the story of one call, for its caller; loaded when it is asked for, or on an error.

Holds method, origin, status, class names and durations: never a path, query, header value, body or
exception text. Nothing that decides imports this: a limit or an add-on notes its field, by name, in
``call.notes[STORY]``. A new one is added here, where users and their type checkers find it, and to
``SECONDS`` if it is a time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .core.call import ORDER, RECORD, SENDS, SENT, SETTING, Story
from .core.outcome import FailureKind, Phase, Reason

CHAIN = 16  # exceptions that are inspected: causes can be set to anything, even to a cycle


class AttemptRecord(NamedTuple):
    """One attempt.

    Attributes:
        number: 1 for the first attempt of the call.
        origin: ``scheme://host:port`` that it was sent to; with ``Origins`` not always the call's.
        status: The response's status, None when there was no response.
        failure: Why it did not succeed; None when it was accepted.
        phase: How far a failed attempt got.
        error: Name of the exception's class; None for a response.
        elapsed: Seconds from its start to the response's header section or the error.
        delay: Seconds waited after it, None after the last one.
        delay_source: "backoff", the header that asked for the delay, "cooldown" (the response to
            another call asked for it), or "failover" (the next origin was free at once, or after
            this delay).
        hedged_after: Of a hedge (``Hedge``): seconds after the first attempt was sent; None for
            every other attempt. The loser, which was cancelled, has neither status nor failure.
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
        reason: Why there was no further attempt; None after an accepted response below 400.
        refused_delay: The uncut wait in seconds that was refused (a Retry-After that is too long, a
            deadline), None when none was.
        resumed: Where the body broke and was resumed: each time the position of the first missing
            byte in the representation as it is sent, a Content-Encoding included.
        held: Seconds for which the call was held because its origin was unhealthy; a part of the
            waits too.
        waited_for_slot: Seconds for which its attempts waited until a ``ConcurrencyLimit`` let them
            go, the first one included. No part of the waits.
        paced: Seconds for which ``Pacing`` has delayed its attempts. No part of the waits.
    """

    method: str
    origin: str
    attempts: tuple[AttemptRecord, ...]
    elapsed: float | None
    reason: Reason | None
    refused_delay: float | None
    resumed: tuple[int, ...] = ()
    held: float = 0.0
    waited_for_slot: float = 0.0
    paced: float = 0.0

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
        failed = (attempt for attempt in self.attempts if attempt.failure is not None)
        return tuple(str(attempt.status or attempt.error) for attempt in failed)

    def __str__(self) -> str:
        story = ", ".join(self.reasons) or "no failure"
        times = f" in {in_seconds(self.elapsed)}" if self.elapsed is not None else ""
        plural = "" if len(self.attempts) == 1 else "s"
        after = next((one.hedged_after for one in self.attempts if one.hedged_after), None)
        if after is not None:
            story += f"; hedged after {in_seconds(after)}"
        for field, words in SECONDS.items():
            if getattr(self, field) >= 0.001:
                story += f"; {words} for {in_seconds(getattr(self, field))}"
        if self.resumed:
            story += f"; resumed at {', '.join(map(str, self.resumed))}"
        verb = "not retried" if self.reason is Reason.STATUS_NOT_RETRIED else "gave up"
        if self.reason is not None:
            story += f"; {verb}: {ending(self.reason, self.refused_delay)}"
        subject = f", {self.method} {self.origin}".rstrip(", ")  # a plain success may know neither
        return f"{len(self.attempts)} attempt{plural}{times}{subject}: {story}"


# What is said of the times that limits and add-ons have noted, by field.
SECONDS = {"held": "held", "waited_for_slot": "waited for a slot", "paced": "paced"}


def record_from(story: Story) -> CallRecord:
    """Make the record of a call from its notes."""
    history, more, attempts = story.history, dict(story.more), []
    lost, after = more.pop(ORDER, (None, 0.0))
    if lost is not None and history:  # in the order in which they were sent
        first, second = (lost, history[0]) if lost.sent_after is None else (history[0], lost)
        history = [first, second._replace(sent_after=after), *history[1:]]
    for number, one in enumerate(history, story.sent_before + 1):
        why = one.failure
        kind, phase, error = (why.kind, why.phase, why.error) if why else (None, None, None)
        facts = one.origin, one.status, kind, phase, error, one.elapsed, one.delay, one.source
        attempts.append(AttemptRecord(number, *facts, one.sent_after))
    reason, refused = story.stop or (None, None)
    if reason is None and history and history[-1].failure is None:
        # The last response was accepted but is no success: its status is not retried.
        reason = Reason.STATUS_NOT_RETRIED if (history[-1].status or 0) >= 400 else None
    elapsed = story.ended_at - story.started_at
    return CallRecord(story.method, story.origin, tuple(attempts), elapsed, reason, refused, **more)


def record_of(outcome: object) -> CallRecord | Any:
    """Return the story of a call: its attempts, the waits between them, why it ended.

    To a type checker it is a CallRecord, and may be compared with None: whoever sends through
    forbear gets one, and need not check.

    Args:
        outcome: A response, or an exception: the library's own, or one that an SDK raised from it
            or that has it as ``.response``. A plain success shows its one attempt.

    Returns:
        None if forbear did not send it. In ``forbear.httpx`` and ``forbear.httpx2`` also where
        nothing is written or read: for other responses than a success to a call that was off, and
        for a success at once with ``prefetch=0, resume=False``.

    Raises:
        TypeError: It is neither.
    """
    found = outcome
    for _ in range(CHAIN):
        story = story_on(found)
        if story is not None:
            return record_from(story)
        if not isinstance(found, BaseException):
            return plain_record(found)
        response = getattr(found, "response", None)
        found = response if response is not None else found.__cause__ or found.__context__
        if found is None:
            break
    return None


def story_on(thing: object) -> Story | None:
    """Find the story attached to a response or an exception."""
    raw = getattr(thing, "raw", thing)  # urllib3's response below one of requests
    places = thing, raw, getattr(raw, "retries", None)  # forbear.urllib3.Retry inside urllib3
    attached = noted_on(thing), *(getattr(one, RECORD, None) for one in places)
    return next((one for one in attached if isinstance(one, Story)), None)


def noted_on(thing: object) -> object:
    """Return the note that a response of httpx carries."""
    extensions = getattr(thing, "extensions", None)
    return extensions.get(SETTING) if isinstance(extensions, dict) else None


def plain_record(response: object) -> CallRecord | None:
    """Make the record of a response that was accepted at once: no notes are taken of it."""
    status = getattr(response, "status_code", None)
    if status is None:
        status = getattr(response, "status", None)  # urllib3
    if not isinstance(status, int):
        raise TypeError(
            f"record_of takes a response or an exception, got {type(response).__name__}"
        )
    if not was_sent_by_us(response, status):
        return None
    method = getattr(known(response, "request"), "method", None) or ""
    elapsed = known(response, "elapsed")
    seconds = 0.0 if elapsed is None else elapsed.total_seconds()
    attempt = AttemptRecord(1, "", status, None, None, None, seconds, None, None)
    reason = Reason.STATUS_NOT_RETRIED if status >= 400 else None
    return CallRecord(method, "", (attempt,), None, reason, None)


def was_sent_by_us(response: object, status: int) -> bool:
    """Does a response on which no story is noted lead to an object of forbear's?

    The fast path writes as little on a response as it can. It leads to the adapter of requests, the
    Retry of urllib3, or the body of httpx, which are marked. A response that was made with its
    body, as mocks make it, may have passed a transport; it counts if it has a request.
    """
    raw, stream = getattr(response, "raw", response), getattr(response, "stream", None)
    places = [response, getattr(response, "connection", None), getattr(raw, "retries", None)]
    for _ in range(CHAIN):  # a client of httpx wraps the body
        places.append(stream)
        stream = getattr(stream, "_stream", None)
    if noted_on(response) is SENT or any(
        getattr(one, SENDS, False) is True or hasattr(type(one), RECORD) for one in places
    ):
        return True
    made = any(hasattr(one, "__iter__") and hasattr(one, "__aiter__") for one in places)
    return made and status < 300 and known(response, "request") is not None


def known(response: object, name: str) -> Any:
    """Return an attribute, None if it is not set yet: properties of httpx raise RuntimeError."""
    try:
        return getattr(response, name, None)
    except RuntimeError:
        return None


# What a refused wait means. Its length says nothing about an unhealthy origin or a budget.
REFUSED_WAITS = {
    Reason.RETRY_AFTER_TOO_LONG: " (asked to wait {}, more than max_retry_after)",
    Reason.DEADLINE: " (the next attempt would come in {}, after the deadline)",
    Reason.KEY_EXPIRED: " (the next attempt would come in {}, when the key has expired)",
    Reason.CIRCUIT_OPEN: " (nothing is sent for another {})",
    Reason.ORIGIN_UNHEALTHY: " (the server is unhealthy)",
    Reason.BUDGET_EXHAUSTED: "",
}


def ending(reason: Reason, refused_delay: float | None) -> str:
    """Return the reason for which a call ended, and what was refused."""
    if refused_delay is None:
        return reason.value
    # A strategy of the user's gives any reason with any time.
    words = REFUSED_WAITS.get(reason, " (not before {})")
    return reason.value + words.format(in_seconds(refused_delay))


def in_seconds(seconds: float) -> str:
    """Return a duration for a sentence: three digits at least, and never an exponent."""
    return f"{seconds:.3g} s" if seconds < 999.5 else f"{seconds:,.0f} s"
