"""Rows: the table of what is emitted, and what the log, metrics and spans make of it.

One row for each event: how it is built from a call, the level, sentence and fields of its log line,
the metrics that count it, and what it adds to the span of its call. A new event is a class in
events.py and a row here, or in ``rows`` of its add-on. ``EventLog.emit`` takes a row, and
builds the event only if a listener or the log wants it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from itertools import count
from logging import DEBUG, ERROR, INFO, NOTSET, WARNING
from math import inf
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar

from ..core.call import NUMBER, ORDER, STORY
from ..core.outcome import TIMEOUT_KINDS, FailureKind, Phase, Reason
from ..core.record import ending, in_seconds
from . import events

if TYPE_CHECKING:
    from ..core.call import Call
    from ..core.outcome import Failure, SendAgain

P = ParamSpec("P")
E = TypeVar("E", bound="events.AnyEvent")

NUMBERS = count(1)  # of calls with an event
RETRIED_STATUSES = ("408", "425", "429", "500", "502", "503", "504")
DEFAULT_PORTS = {"http": ":80", "https": ":443"}
# Why a retry was scheduled, by its failure; after any other the response was not HTTP.
REASONS = {
    FailureKind.DNS: "connect",
    FailureKind.REFUSED: "connect",
    FailureKind.TLS: "connect",
    FailureKind.PROXY: "connect",
    FailureKind.RESET: "reset",
    FailureKind.CONNECT_TIMEOUT: "connect_timeout",
    FailureKind.READ_TIMEOUT: "read_timeout",
    FailureKind.WRITE_TIMEOUT: "write_timeout",
    FailureKind.POOL: "pool_timeout",
}
RELEASED_BY = {
    "healthy": "the server is healthy again",
    "good-retry": "another retry succeeded",
    "probe": "sent as a probe",
    "patience-over": "its patience is over",
}
IGNORED = {
    "unparsable": "its Retry-After cannot be read",
    "past": "its Retry-After names a time that is over",
    "over_cap": "its Retry-After is longer than max_retry_after",
}


# How each event is built. ``client`` is the transport's name. A ``Failure`` and an ``Attempt`` are
# tuples with fields, so never false.


def attempt_failed(client: str, call: Call, failure: Failure) -> events.AttemptFailed:
    last = len(call.history) - 1
    return events.AttemptFailed(
        client=client, method=call.request.method, origin=call.sent_to, attempt=call.attempts,
        failure=failure.kind, phase=failure.phase, status=failure.status, error=failure.error,
        elapsed=call.history[last].elapsed, kind=kind_of(call, last, call.sent_to),
        request_id=number_of(call),
    )  # fmt: skip


def retry_scheduled(
    client: str, call: Call, failure: Failure, verdict: SendAgain, now: float
) -> events.RetryScheduled:
    return events.RetryScheduled(
        client=client, method=call.request.method, origin=call.request.origin,
        attempt=call.attempts, max_attempts=int(min(call.most_attempts, call.policy.max_attempts)),
        failure=failure.kind, status=failure.status, error=failure.error, delay=verdict.delay,
        delay_source=verdict.source, phase=failure.phase, waited=call.waited() - verdict.delay,
        elapsed=now - call.started_at,
        deadline_left=None if call.deadline_at == inf else call.deadline_at - now,
        held=0.0 if call.hold is None else call.hold.until - call.hold.ready_at,
        request_id=number_of(call),
    )  # fmt: skip


def released(client: str, call: Call, cause: str, held: float, now: float) -> events.Released:
    return events.Released(
        client=client, method=call.request.method, origin=call.request.origin,
        attempt=call.attempts, cause=str(cause), held=held, elapsed=now - call.started_at,
        request_id=number_of(call),
    )  # fmt: skip


def attempt_delayed(
    client: str, call: Call, limit: str, delay: float, now: float
) -> events.AttemptDelayed:
    return events.AttemptDelayed(
        client=client, method=call.request.method, origin=call.origin, attempt=call.attempts + 1,
        limit=limit, delay=delay, elapsed=now - call.started_at, request_id=number_of(call),
    )  # fmt: skip


def failed_over(client: str, call: Call, origin: str, failure: Failure | None) -> events.FailedOver:
    """``failure`` is of the attempt at ``origin``; None: nothing was sent there."""
    return events.FailedOver(
        client=client, method=call.request.method, origin=origin, to_origin=call.origin,
        attempt=call.attempts, status=failure and failure.status, error=failure and failure.error,
        request_id=number_of(call),
    )  # fmt: skip


def gave_up(client: str, call: Call, now: float) -> events.GaveUp:
    failure, stop = call.last_failure, call.stop
    assert stop is not None
    return events.GaveUp(
        client=client, method=call.request.method, origin=call.request.origin,
        attempts=call.attempts, reason=stop.reason, status=failure and failure.status,
        error=failure and failure.error, elapsed=now - call.started_at,
        refused_delay=stop.delay, waited=call.waited(), request_id=number_of(call),
    )  # fmt: skip


def succeeded(client: str, call: Call, now: float) -> events.SucceededAfterRetry:
    return events.SucceededAfterRetry(
        client=client, method=call.request.method, origin=call.request.origin,
        attempts=call.attempts, status=call.status or 0, waited=call.waited(),
        elapsed=now - call.started_at, request_id=number_of(call),
    )  # fmt: skip


def hint_ignored(client: str, origin: str, why: str) -> events.RetryAfterIgnored:
    return events.RetryAfterIgnored(client, origin, why)


def call_ended(client: str, call: Call, now: float) -> events.CallEnded:
    sent, last = len(call.history), call.history[-1] if call.history else None
    # An AttemptFailed was emitted unless the attempt was accepted, or retries are off.
    is_judged = last is not None and (call.stop is not None or last.delay is not None)
    kind = None
    if call.is_under_way:  # cancelled before the attempt had an outcome
        kind, last = kind_of(call, sent, call.sent_to), None
        sent += 1
    elif last is not None and not (last.failure is not None and is_judged and NUMBER in call.notes):
        kind = kind_of(call, sent - 1, call.sent_to)
    failure = last and last.failure
    return events.CallEnded(
        client=client, method=call.request.method, origin=call.sent_to,
        outcome=outcome_of(call, sent) if call.rest is None else None, attempts=sent,
        status=last and last.status, error=failure and failure.error,
        elapsed=now - call.started_at, kind=kind, failure=failure and failure.kind,
        phase=failure and failure.phase, request_id=number_of(call),
    )  # fmt: skip


def success(client: str, method: str, origin: str, status: int, elapsed: float) -> events.CallEnded:
    """The end of a call that succeeded at once; it has no number."""
    return events.CallEnded(
        client=client, method=method, origin=origin, outcome=events.CallOutcome.SUCCESS,
        attempts=1, status=status, error=None, elapsed=elapsed, kind="first", failure=None,
        phase=None,
    )  # fmt: skip


def outcome_of(call: Call, sent: int) -> events.CallOutcome:
    """Say how a call ended for its caller, after so many attempts."""
    ended, stop, last = events.CallOutcome, call.stop, call.history[-1] if call.history else None
    if call.is_under_way or (stop is None and (last is None or last.delay is not None)):
        return ended.CANCELLED  # while it was sent, before, or while it waited
    if last is None:
        assert stop is not None
        is_late = stop.reason in (Reason.DEADLINE, Reason.CONCURRENCY_LIMIT)
        return ended.FAILED if is_late else ended.CIRCUIT_OPEN
    if stop is not None or last.failure is not None or (last.status or 0) >= 500:
        return ended.FAILED if sent == 1 else ended.FAILED_AFTER_RETRY
    return ended.SUCCESS if sent == 1 else ended.SUCCESS_AFTER_RETRY


def kind_of(call: Call, index: int, origin: str) -> str | None:
    """Say what the attempt at this index of the history is, if it is sent to ``origin``.

    "first", "hedge" (of the first one, if it decides), "retry", "failover" (to another origin than
    the one before) or what a rest has noted. None for an attempt that was accepted before its body
    broke.
    """
    rest = call.rest
    if rest is not None:
        return rest.kind if index > rest.broke_at else None
    if index == 0:
        order = call.notes.get(STORY, {}).get(ORDER)
        return "first" if order is None else str(order.first_kind)
    return "retry" if call.history[index - 1].origin == origin else "failover"


def number_of(call: Call) -> int:
    """The call's number, given when its first event is built."""
    number: int | None = call.notes.get(NUMBER)
    if number is None:
        number = call.notes[NUMBER] = next(NUMBERS)
    return number


# What is read from it, for the log and for metrics.


def host_of(origin: str) -> str:
    """Return a server's address, with the port unless that is the scheme's own."""
    scheme, _, address = origin.partition("://")
    return address.removesuffix(DEFAULT_PORTS.get(scheme, ""))


def cause_of(status: int | None, error: str | None) -> str:
    """Return what failed: the status, or the name of the exception's class."""
    return str(status or error or "not sent")


def retry_reason(event: events.RetryScheduled) -> str:
    """Return why a retry was scheduled, as one of telemetry's ``RETRY_REASONS``."""
    if event.failure is FailureKind.STATUS:
        if event.status is not None and event.status < 400:
            return "user"  # only ``retry_if`` makes such a response a failure
        return str(event.status) if str(event.status) in RETRIED_STATUSES else "status_other"
    if event.phase is Phase.ANSWERED:
        return "body"  # the head had arrived
    if event.failure is FailureKind.TIMEOUT:
        return "connect_timeout" if event.phase is Phase.UNSENT else "read_timeout"
    return REASONS.get(event.failure, "protocol")


def source_of(delay_source: str) -> str:
    """Return the source of a delay: computed, a header that names a wait, or one of a quota."""
    if "ratelimit" in delay_source.replace("-", ""):
        return "rate_limit_reset"
    # A cooldown is the Retry-After of another call's response.
    is_hinted = delay_source == "cooldown" or "retry" in delay_source
    return "retry_after" if is_hinted else "computed"


def result_of(status: int | None, failure: FailureKind | None, phase: Phase | None) -> str:
    """Return how an attempt ended: the class of its status, or of its failure."""
    if status is not None:
        return "429" if status == 429 else f"{min(max(status // 100, 2), 5)}xx"
    if failure is None:
        return "cancelled"
    if failure in TIMEOUT_KINDS:
        return "timeout"
    is_unsent = phase is Phase.UNSENT and failure is not FailureKind.UNPROCESSED
    return "connect" if is_unsent else "protocol"


def retry_sentence(event: events.RetryScheduled) -> str:
    held = ", held while the server is unhealthy" if event.held else ""
    return (
        f"{event.method} {event.origin}: {cause_of(event.status, event.error)} on attempt"
        f" {event.attempt} of {event.max_attempts}, again in {in_seconds(event.delay)}"
        f" ({event.delay_source}){held}"
    )


def end_sentence(event: events.GaveUp) -> str:
    attempts = f"{event.attempts} attempt{'' if event.attempts == 1 else 's'}"
    ended = f"{cause_of(event.status, event.error)} after {attempts}"
    why = ending(event.reason, event.refused_delay)
    return f"{event.method} {event.origin}: {ended}, gave up: {why}"


# The table.


class Row(NamedTuple, Generic[P, E]):
    """One row of the table.

    Attributes:
        name: The event's, for the log and for listeners.
        level: Of its log line; NOTSET: it is not logged.
        build: Makes the event, given the name of the client and then what ``emit`` was given.
        sentence: Its log line.
        renamed: Fields that have another name in the log record.
        added: Further fields of the log record, or other values of its fields.
        counts: The metrics that count it, each with the labels that are no field of the same name.
            An event that has no value for one of the labels is not counted.
        span: The name of the event that it adds to the span of its call, and the attributes; those
            without a value are left out. "": they are the span's own.
        level_of: The level of one event, if that is below ``level`` for some.
        counts_refusals: Its line says how many refusals of its origin were only logged at DEBUG.
    """

    name: str
    level: int
    build: Callable[Concatenate[str, P], E]
    sentence: Callable[[E], str] = str
    renamed: Mapping[str, str] = {}
    added: Mapping[str, Callable[[E], object]] = {}
    counts: Mapping[str, Mapping[str, Callable[[E], str | None]]] = {}
    span: tuple[str, Callable[[E], dict[str, str | float | None]]] | None = None
    level_of: Callable[[E], int] | None = None
    counts_refusals: bool = False

    def fields(self, event: E) -> dict[str, object]:
        """Return what the log record of an event carries, by name: ``forbear.<field>``."""
        names = {"name": "event", "error": "error_type", **self.renamed}
        found = {names.get(name, name): value for name, value in event._asdict().items()}
        found["host"] = host_of(event.origin)
        found.update((name, read(event)) for name, read in self.added.items())
        return {f"forbear.{name}": getattr(value, "value", value) for name, value in found.items()}


ATTEMPT_FAILED = Row(
    "attempt_failed", DEBUG, attempt_failed,
    lambda e: f"{e.method} {e.origin}: attempt {e.attempt} failed, {cause_of(e.status, e.error)}",
    counts={"forbear.attempts": {"result": lambda e: result_of(e.status, e.failure, e.phase)}},
)  # fmt: skip
RETRY_SCHEDULED = Row(
    "retry_scheduled", INFO, retry_scheduled, retry_sentence,
    added={"reason": retry_reason},
    counts={
        "forbear.retries": {"reason": retry_reason},
        "forbear.backoff.duration": {"source": lambda e: source_of(e.delay_source)},
    },
    span=("forbear.wait", lambda e: {
        "forbear.delay": e.delay, "forbear.delay_source": e.delay_source,
        "forbear.attempt": e.attempt, "error.type": cause_of(e.status, e.error),
    }),
)  # fmt: skip
RELEASED = Row(
    "released", INFO, released,
    lambda e: f"{e.method} {e.origin}: held for {in_seconds(e.held)} after attempt {e.attempt},"
        f" {RELEASED_BY[e.cause]}",
    renamed={"held": "held_for"},  # of a retry ``held`` is the most that is allowed
    counts={"forbear.releases": {}},
    span=("forbear.released", lambda e: {
        "forbear.cause": e.cause, "forbear.held_for": e.held,
    }),
)  # fmt: skip
ATTEMPT_DELAYED = Row(
    "attempt_delayed", DEBUG, attempt_delayed,
    lambda e: f"{e.method} {e.origin}: attempt {e.attempt} waited {in_seconds(e.delay)}"
        f" ({e.limit})",
    span=("forbear.delayed", lambda e: {"forbear.limit": e.limit, "forbear.delay": e.delay}),
)  # fmt: skip
SUCCEEDED_AFTER_RETRY = Row(
    "succeeded_after_retry", INFO, succeeded,
    lambda e: f"{e.method} {e.origin}: {e.status} on attempt {e.attempts},"
        f" {in_seconds(e.waited)} waited",
    counts_refusals=True,
)  # fmt: skip
GAVE_UP = Row(
    "gave_up", WARNING, gave_up, end_sentence,  # the level is lower for some reasons, see below
    renamed={"refused_delay": "wanted_delay"},
    counts={"forbear.retries.refused": {  # unless nothing was sent
        "reason": lambda e: e.reason.value if e.status or e.error else None,
    }},
    span=("forbear.refused", lambda e: {
        "forbear.reason": e.reason.value, "forbear.attempt": e.attempts,
        "forbear.wanted_delay": e.refused_delay,
    }),
    counts_refusals=True,
)  # fmt: skip
FAILOVER = Row(
    "failover", WARNING, failed_over,
    lambda e: f"{e.method} {e.origin}: {cause_of(e.status, e.error)} on attempt {e.attempt},"
        f" the next one goes to {e.to_origin}",
    renamed={"to_origin": "to_endpoint"},
    added={
        "from_endpoint": lambda e: host_of(e.origin), "to_endpoint": lambda e: host_of(e.to_origin),
        "reason": lambda e: str(e.status or e.error),
    },
    counts={"forbear.failovers": {}},
)  # fmt: skip
RETRY_AFTER_IGNORED = Row(
    "retry_after_ignored", WARNING, hint_ignored, lambda e: f"{e.origin}: {IGNORED[e.why]}",
)  # fmt: skip
CALL_ENDED = Row(
    "call_ended", NOTSET, call_ended,
    counts={
        "forbear.requests": {},
        "forbear.request.duration": {},
        "forbear.attempts": {"result": lambda e: result_of(e.status, e.failure, e.phase)},
    },
)  # fmt: skip


class Table(dict[str, Row[..., Any]]):
    """All rows by name: those above, and those of each add-on from its first event on."""

    def __missing__(self, name: str) -> Row[..., Any]:
        for module in [*sys.modules.values()]:
            if getattr(module, "__name__", "").startswith("forbear.addons."):
                self.update((row.name, row) for row in getattr(module, "rows", tuple)())
        return dict(self)[name]


TABLE = Table(
    (row.name, row)
    for row in (
        ATTEMPT_FAILED, RETRY_SCHEDULED, RELEASED, ATTEMPT_DELAYED, SUCCEEDED_AFTER_RETRY, GAVE_UP,
        FAILOVER, RETRY_AFTER_IGNORED, CALL_ENDED,
    )
)  # fmt: skip

# The levels of ``gave_up``, by its reason. During an outage every call to the origin ends with one
# of these: WARNING once a minute, else DEBUG.
REFUSALS = frozenset(
    {Reason.CIRCUIT_OPEN, Reason.ORIGIN_UNHEALTHY, Reason.BUDGET_EXHAUSTED}
    | {Reason.CONCURRENCY_LIMIT}
)
# WARNING: the call could be retried, but a limit is reached. For all other reasons it must not be
# retried, so INFO.
LIMITS = frozenset(
    {Reason.KEY_EXPIRED, Reason.ATTEMPTS_EXHAUSTED, Reason.RETRY_AFTER_TOO_LONG, Reason.DEADLINE}
    | {Reason.STRATEGY_FAILED, Reason.HOOK_FAILED}
)
GAVE_UP_AT = {level: GAVE_UP._replace(level=level) for level in (DEBUG, INFO)}


class Line(NamedTuple):
    """A row of the table of what is only logged."""

    name: str
    level: int
    text: str


STATUS_NOT_RETRIED = Line("status_not_retried", DEBUG, "%s %s: %s is not retried")
NESTED_RETRY = Line(
    "nested_retry", WARNING,
    "an SDK above retries too (%s): attempts multiply; turn its retries off with %s",
)  # fmt: skip
HOOK_FAILED = Line("hook_failed", ERROR, "%s %s %s; %s (logged once)")
LINES = (STATUS_NOT_RETRIED, NESTED_RETRY, HOOK_FAILED)
