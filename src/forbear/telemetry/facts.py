"""Facts: what an event says of its call."""

from __future__ import annotations

from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any

from ..core.call import NUMBER, ORDER, STORY
from . import events

if TYPE_CHECKING:
    from ..core.call import Call

NUMBERS = count(1)  # of calls with an event
DEFAULT_PORTS = {"http": ":80", "https": ":443"}
EVENTS: dict[str, type[object]] = {
    kind._field_defaults["name"]: kind
    for kind in vars(events).values()
    if hasattr(kind, "sentence")
}


def event_of(kind: type[Any], client: str, call: Call, now: float, given: dict[str, Any]) -> Any:
    """Make an event: its fields are what is given, and else what the call says.

    ``last``, if given, is the attempt that it is about; else that is the last one of the history.
    """
    last = given.get("last", call.history[-1] if call.history else None)
    failure, stop, hold = last and last.failure, call.stop, call.hold
    found: dict[str, Any] = {
        "client": client,
        "method": call.request.method,
        "origin": call.request.origin,
        "to_origin": call.origin,
        "attempt": call.attempts,
        "attempts": call.attempts,
        "max_attempts": int(min(call.most_attempts, call.policy.max_attempts)),
        "status": last and last.status,
        "error": failure and failure.error,
        "failure": failure and failure.kind,
        "phase": failure and failure.phase,
        "delay": last and last.delay,
        "delay_source": last and last.source,
        "held": 0.0 if hold is None else hold.until - hold.ready_at,
        "waited": call.waited(),
        "elapsed": now - call.started_at,
        "deadline_left": None if call.deadline_at == inf else call.deadline_at - now,
        "reason": stop and stop.reason,
        "refused_delay": stop and stop.delay,
    }
    if kind is events.AttemptFailed:
        found |= {"origin": call.sent_to, "kind": kind_of(call, len(call.history) - 1)}
        found["elapsed"] = call.history[-1].elapsed
    elif kind is events.RetryScheduled:
        found["waited"] = call.waited() - (call.history[-1].delay or 0.0)
    elif kind is events.AttemptDelayed:
        found |= {"origin": call.origin, "attempt": call.attempts + 1}
    if "request_id" in kind._fields:
        found["request_id"] = number_of(call)
    found |= given
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
        lost, _ = call.notes.get(STORY, {}).get(ORDER, (None, 0.0))
        return "first" if lost is None or lost.sent_after is not None else "hedge"
    return "retry" if call.history[index - 1].origin == call.sent_to else "failover"


def host_of(origin: str) -> str:
    """Return a server's address, with the port unless that is the scheme's own."""
    scheme, _, address = origin.partition("://")
    return address.removesuffix(DEFAULT_PORTS.get(scheme, ""))
