"""Rows: the table of what is emitted, with the level, sentence and fields of its log line.

A new event is a class in events.py and a row here, or both in its add-on, which lists the row in
``rows``. Which metrics count it is in metrics.py, what it adds to a span in otel.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from itertools import count
from logging import DEBUG, ERROR, INFO, WARNING
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.call import NUMBER, ORDER, STORY
from ..core.outcome import Reason
from ..core.record import ending, in_seconds
from . import events

if TYPE_CHECKING:
    from ..core.call import Call

NUMBERS = count(1)  # of calls with an event
DEFAULT_PORTS = {"http": ":80", "https": ":443"}


class Row(NamedTuple):
    """One row of the table.

    Attributes:
        event: The class of the event.
        level: Of its log line.
        sentence: Its log line, without the request.
        facts: The fields that ``event_of`` cannot read of any call; of the call, and now.
        renamed: Fields that have another name in the log record.
        level_of: The level of one event of a call, if that is below ``level`` for some.
    """

    event: type[Any]
    level: int
    sentence: Callable[[Any], str]
    facts: Callable[[Call, float], dict[str, object]] = lambda call, now: {}
    renamed: Mapping[str, str] = {}
    level_of: Callable[[Any, Call], int] | None = None

    @property
    def name(self) -> str:
        """The event's, for the log and for listeners."""
        return str(self.event._field_defaults["name"])

    def text(self, event: Any) -> str:
        """Return the log line of an event."""
        method = f"{event.method} " if hasattr(event, "method") else ""
        return f"{method}{event.origin}: {self.sentence(event)}"

    def fields(self, event: Any) -> dict[str, object]:
        """Return what the log record of an event carries, by name: ``forbear.<field>``."""
        names = {"name": "event", "error": "error_type", **self.renamed}
        found = {names.get(name, name): value for name, value in event._asdict().items()}
        found["host"] = host_of(event.origin)
        return {f"forbear.{name}": getattr(value, "value", value) for name, value in found.items()}


def event_of(kind: type[Any], client: str, call: Call, now: float, given: dict[str, Any]) -> Any:
    """Make an event: its fields are what is given, and else what the call says.

    ``last``, if given, is the attempt that it is about; else that is the last one of the history.
    """
    last = given.get("last", call.history[-1] if call.history else None)
    failure = last and last.failure
    found = {
        "client": client,
        "method": call.request.method,
        "origin": call.request.origin,
        "attempt": call.attempts,
        "attempts": call.attempts,
        "status": last and last.status,
        "error": failure and failure.error,
        "failure": failure and failure.kind,
        "phase": failure and failure.phase,
        "waited": call.waited(),
        "elapsed": now - call.started_at,
        **given,
    }
    if "request_id" in kind._fields:
        found["request_id"] = number_of(call)
    return kind(**{name: found[name] for name in kind._fields if name in found})


def number_of(call: Call) -> int:
    """The call's number, given when its first event is built."""
    number: int = call.notes.get(NUMBER) or next(NUMBERS)
    call.notes[NUMBER] = number
    return number


def kind_of(call: Call, index: int) -> str | None:
    """Say what the attempt at this index of the history is; it was sent to ``call.sent_to``.

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
    return "retry" if call.history[index - 1].origin == call.sent_to else "failover"


def host_of(origin: str) -> str:
    """Return a server's address, with the port unless that is the scheme's own."""
    scheme, _, address = origin.partition("://")
    return address.removesuffix(DEFAULT_PORTS.get(scheme, ""))


def cause_of(event: Any) -> str:
    """Return what failed: the status, or the name of the exception's class."""
    return str(event.status or event.error or "not sent")


# The table.


def failed(call: Call, now: float) -> dict[str, object]:
    index = len(call.history) - 1
    elapsed, kind = call.history[index].elapsed, kind_of(call, index)
    return {"origin": call.sent_to, "elapsed": elapsed, "kind": kind}


def scheduled(call: Call, now: float) -> dict[str, object]:
    last, hold = call.history[-1], call.hold
    return {
        "max_attempts": int(min(call.most_attempts, call.policy.max_attempts)),
        "delay": last.delay,
        "delay_source": last.source,
        "waited": call.waited() - (last.delay or 0.0),
        "deadline_left": None if call.deadline_at == inf else call.deadline_at - now,
        "held": 0.0 if hold is None else hold.until - hold.ready_at,
    }


def scheduled_sentence(event: events.RetryScheduled) -> str:
    attempt = f"attempt {event.attempt} of {event.max_attempts}"
    again = f"again in {in_seconds(event.delay)} ({event.delay_source})"
    held = ", held while the server is unhealthy" if event.held else ""
    return f"{cause_of(event)} on {attempt}, {again}{held}"


def ended(call: Call, now: float) -> dict[str, object]:
    assert call.stop is not None
    return {"reason": call.stop.reason, "refused_delay": call.stop.delay}


def ended_sentence(event: events.GaveUp) -> str:
    attempts = f"{event.attempts} attempt{'' if event.attempts == 1 else 's'}"
    why = ending(event.reason, event.refused_delay)
    return f"{cause_of(event)} after {attempts}, gave up: {why}"


# During an outage every call to the origin ends with one of these: WARNING once a minute, else
# DEBUG.
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


def ended_level(event: events.GaveUp, call: Call) -> int:
    if call.last_failure is None:  # refused at once: the open circuit was logged before
        return DEBUG
    # With max_attempts=1 no retries are given up.
    is_limit = event.reason in LIMITS and call.most_attempts > 1
    return WARNING if is_limit or event.reason in REFUSALS else INFO


ROWS = (
    Row(
        events.AttemptFailed,
        DEBUG,
        lambda e: f"attempt {e.attempt} failed, {cause_of(e)}",
        failed,
    ),
    Row(events.RetryScheduled, INFO, scheduled_sentence, scheduled),
    Row(
        events.Released,
        INFO,
        lambda e: f"held for {in_seconds(e.held)} after attempt {e.attempt} ({e.cause})",
        renamed={"held": "held_for"},  # of a retry ``held`` is the most that is allowed
    ),
    Row(
        events.AttemptDelayed,
        DEBUG,
        lambda e: f"attempt {e.attempt} waited {in_seconds(e.delay)} ({e.limit})",
        lambda call, now: {"origin": call.origin, "attempt": call.attempts + 1},
    ),
    Row(
        events.SucceededAfterRetry,
        INFO,
        lambda e: f"{e.status} on attempt {e.attempts}, {in_seconds(e.waited)} waited",
    ),
    Row(
        events.GaveUp,
        WARNING,
        ended_sentence,
        ended,
        renamed={"refused_delay": "wanted_delay"},
        level_of=ended_level,
    ),
    Row(
        events.FailedOver,
        WARNING,
        lambda e: f"{cause_of(e)} on attempt {e.attempt}, the next one goes to {e.to_origin}",
        lambda call, now: {"to_origin": call.origin},
    ),
    Row(events.RetryAfterIgnored, WARNING, lambda e: f"its Retry-After is not used ({e.why})"),
)


class Table(dict[str, Row]):
    """All rows by name: those above, and those of each add-on from its first event on."""

    def __missing__(self, name: str) -> Row:
        for module in [*sys.modules.values()]:
            if getattr(module, "__name__", "").startswith("forbear.addons."):
                self.update((row.name, row) for row in getattr(module, "rows", tuple)())
        return dict(self)[name]


TABLE = Table((row.name, row) for row in ROWS)


# What is only logged: its level, and the text that its fields fill.
LINES = {
    "status_not_retried": (DEBUG, "{method} {origin}: {status} is not retried"),
    "nested_retry": (
        WARNING,
        "an SDK above retries too ({header}): attempts multiply; turn its retries off with {hint}",
    ),
    "hook_failed": (ERROR, "{hook} {did} {error_type}; {then} (logged once)"),
}
