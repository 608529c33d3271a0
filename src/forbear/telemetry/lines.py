"""Lines: what an event looks like in the log: a sentence for people, fields for programs. Floor:
acts.
"""

from __future__ import annotations

from typing import Any

from .labels import host_of, retry_reason

__all__ = ["fields", "sentence"]

# Of an event's fields those that the log calls by another name.
NAMES = {
    "name": "event",
    "error": "error_type",
    "refused_delay": "wanted_delay",
    "failure_rate": "failure_ratio",
    "origin": "url",
}


def fields(event: Any) -> dict[str, Any]:
    """What a log record carries, by name: ``forbear.<field>``."""
    given = event._asdict()
    found = {
        f"forbear.{NAMES.get(name, name)}": getattr(value, "value", value)
        for name, value in given.items()
    }
    found["forbear.host"] = host_of(given["origin"])
    if event.name == "retry_scheduled":
        found["forbear.reason"] = retry_reason(event)
    elif event.name == "failover":
        found["forbear.from_endpoint"] = found["forbear.host"]
        found["forbear.to_endpoint"] = host_of(found.pop("forbear.to_origin"))
        found["forbear.reason"] = str(event.status or event.error)
    return found


def sentence(event: Any) -> str:
    """One line, without anything secret."""
    if event.name == "circuit_transition":
        return circuit_sentence(event)
    if event.name == "budget_exhausted":
        return f"{event.origin}: the retry budget {event.budget} ({event.scope}) is used up; retries are refused"
    if event.name == "retry_after_ignored":
        return f"{event.origin}: {IGNORED[event.why]}"
    subject = f"{event.method} {event.origin}"
    if event.name == "resume":
        whole = "" if event.total is None else f" of {event.total}"
        return f"{subject}: download {event.result} from octet {event.offset}{whole}"
    if event.name == "succeeded_after_retry":
        return f"{subject}: {event.status} on attempt {event.attempts}, {event.waited:.3g} s waited"
    what = event.status or event.error or "not sent"
    if event.name == "failover":
        return (
            f"{subject}: {what} on attempt {event.attempt}, the next one goes to {event.to_origin}"
        )
    if event.name == "attempt_failed":
        return f"{subject}: attempt {event.attempt} failed, {what}"
    if event.name == "retry_scheduled":
        return (
            f"{subject}: {what} on attempt {event.attempt} of {event.max_attempts},"
            f" again in {event.delay:.3g} s ({event.delay_source})"
        )
    plural = "" if event.attempts == 1 else "s"
    wanted = f" ({event.refused_delay:.3g} s wanted)" if event.refused_delay is not None else ""
    return f"{subject}: {what} after {event.attempts} attempt{plural}, gave up: {event.reason.value}{wanted}"


IGNORED = {
    "unparsable": "its Retry-After cannot be read",
    "past": "its Retry-After names a time that is over",
    "over_cap": "its Retry-After is longer than max_retry_after",
}


def circuit_sentence(event: Any) -> str:
    told = f"circuit of {event.origin}: {event.from_state} to {event.to_state}"
    if event.open_for is not None:
        told += f" for {event.open_for:.3g} s"
    if event.failure_rate is not None:
        return f"{told}, {event.failure_rate:.0%} of the calls in the window failed"
    return f"{told}, {event.failures} failures in a row" if event.failures else told
