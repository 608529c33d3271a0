"""Record: the story of one call, for its caller. Floor: decides.

Holds method, origin, status, class names and durations only: never a path, query, header value,
body or exception text.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .outcome import FailureKind, Phase
from .trail import Trail
from .verdict import Reason

__all__ = ["AttemptRecord", "CallRecord", "record_from", "record_of"]

RECORD = "_forbear_record"  # attribute of exceptions
SETTING = "forbear"  # key in a response's extensions


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
        delay_source: "backoff", the header that asked for the delay, "cooldown": what another call
            was told, or "failover": the next origin was free at once, or after this delay.
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


class CallRecord(NamedTuple):
    """One call: all its attempts, and why there was no further one.

    Attributes:
        method: Of the request.
        origin: ``scheme://host:port``; empty for a plain success, of which no notes are taken.
        attempts: In the order sent. A plain success shows one.
        elapsed: Seconds from the call to its end, None for a plain success.
        reason: Why it gave up; None when what came was accepted.
        refused_delay: The uncut wait in seconds that was refused (a Retry-After that is too long, a
            deadline), None when none was.
        resumed: Where the body broke off and was gone on with: for each time the position of the
            first octet that was missing in the representation as it is sent, a Content-Encoding
            included.
    """

    method: str
    origin: str
    attempts: tuple[AttemptRecord, ...]
    elapsed: float | None
    reason: Reason | None
    refused_delay: float | None
    resumed: tuple[int, ...] = ()

    @property
    def retries(self) -> int:
        """Attempts after the first one."""
        return max(0, len(self.attempts) - 1)

    @property
    def waits(self) -> tuple[float, ...]:
        """Seconds waited between attempts."""
        return tuple(attempt.delay for attempt in self.attempts if attempt.delay is not None)

    @property
    def reasons(self) -> tuple[str, ...]:
        """What each failed attempt failed with: its status or the name of its exception's class."""
        return tuple(
            str(attempt.status or attempt.error)
            for attempt in self.attempts
            if attempt.failure is not None
        )

    def __str__(self) -> str:
        story = ", ".join(self.reasons) or "no failure"
        times = f" in {self.elapsed:.3g} s" if self.elapsed is not None else ""
        plural = "" if len(self.attempts) == 1 else "s"
        if self.resumed:
            story += f"; resumed at {', '.join(map(str, self.resumed))}"
        ending = f"; gave up: {self.reason.value}" if self.reason is not None else ""
        if self.refused_delay is not None:
            ending += f" ({self.refused_delay:.3g} s)"
        subject = f", {self.method} {self.origin}".rstrip(
            ", "
        )  # a success through the door may know neither
        return f"{len(self.attempts)} attempt{plural}{times}{subject}: {story}{ending}"


def record_from(trail: Trail) -> CallRecord:
    """Make the record of the notes that a call took."""
    attempts = tuple(
        AttemptRecord(
            number,
            origin or trail.origin,
            status,
            failure.kind if failure is not None else None,
            failure.phase if failure is not None else None,
            failure.error if failure is not None else None,
            elapsed,
            delay,
            source,
        )
        for number, (status, failure, elapsed, delay, source, origin) in enumerate(
            trail.entries, trail.sent_before + 1
        )
    )
    return CallRecord(
        trail.method,
        trail.origin,
        attempts,
        trail.elapsed,
        trail.reason,
        trail.refused_delay,
        trail.resumed,
    )


def record_of(outcome: Any) -> CallRecord:
    """Return the story of a call: its attempts, the waits between them, why it ended.

    Args:
        outcome: A response, or an exception: the library's own, or one that an SDK raised from it
            or that has it as ``.response``. A plain success shows its one attempt; an exception
            that never went through a transport of forbear shows none.

    Raises:
        TypeError: It is neither.
    """
    seen = outcome
    for _ in range(16):  # causes can be set to anything, also to a circle
        if seen is None and outcome is not None:
            break
        record = getattr(seen, RECORD, None)
        if record is None:
            extensions = getattr(seen, "extensions", None)
            record = extensions.get(SETTING) if isinstance(extensions, dict) else None
        if (
            record is None
        ):  # with a Retry inside urllib3: on its response, which requests has as raw
            raw = getattr(seen, "raw", seen)
            record = getattr(raw, RECORD, None) or getattr(
                getattr(raw, "retries", None), RECORD, None
            )
        if isinstance(record, Trail):
            return record_from(record)
        if not isinstance(seen, BaseException):
            return _plain(seen)
        response = getattr(seen, "response", None)
        seen = response if response is not None else (seen.__cause__ or seen.__context__)
    return CallRecord("", "", (), None, None, None)


def _plain(response: Any) -> CallRecord:
    """No notes are taken of a call whose first answer is accepted at once."""
    status = getattr(response, "status_code", None)
    if status is None:
        status = getattr(response, "status", None)  # urllib3
    if not isinstance(status, int):
        raise TypeError(
            f"record_of takes a response or an exception, got {type(response).__name__}"
        )
    # httpx's property raises when there is none, as on a response made by hand.
    request = (
        response._request if hasattr(response, "_request") else getattr(response, "request", None)
    )
    method = getattr(request, "method", None) or ""
    elapsed = getattr(response, "_elapsed", None)
    seconds = elapsed.total_seconds() if elapsed is not None else 0.0
    attempt = AttemptRecord(1, "", status, None, None, None, seconds, None, None)
    return CallRecord(method, "", (attempt,), None, None, None)
