"""Lines: how an event reads in the log: a sentence for people, fields for programs. Floor: acts.

The reason of a retry and the name of a host are the same in metrics, which take them from here.
"""

from __future__ import annotations

from typing import Any

from ..core.outcome import FailureKind, Phase

__all__ = ["RETRIED_STATUSES", "fields", "host_of", "is_connecting", "retry_reason", "sentence"]

RETRIED_STATUSES = ("408", "425", "429", "500", "502", "503", "504")
DEFAULT_PORTS = {"http": ":80", "https": ":443"}
# Why a retry was scheduled, by its failure; after any other the answer was not HTTP.
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
# Fields of events that the log calls by another name.
NAMES = {
    "name": "event",
    "error": "error_type",
    "refused_delay": "wanted_delay",
    "failure_rate": "failure_ratio",
}
RELEASED = {
    "well": "the origin is well again",
    "good-retry": "another retry was answered",
    "probe": "it goes as a probe",
    "patience-over": "its patience is over",
}
IGNORED = {
    "unparsable": "its Retry-After cannot be read",
    "past": "its Retry-After names a time that is over",
    "over_cap": "its Retry-After is longer than max_retry_after",
}


def fields(event: Any) -> dict[str, Any]:
    """Return what a log record carries, by name: ``forbear.<field>``."""
    given = event._asdict()
    found = {
        f"forbear.{NAMES.get(name, name)}": getattr(value, "value", value)
        for name, value in given.items()
    }
    found["forbear.host"] = host_of(given["origin"])
    if event.name == "retry_scheduled":
        found["forbear.reason"] = retry_reason(event)
    elif event.name == "released":
        found["forbear.held_for"] = found.pop("forbear.held")  # of a retry that is a bool
    elif event.name == "failover":
        found["forbear.from_endpoint"] = found["forbear.host"]
        found["forbear.to_endpoint"] = host_of(found.pop("forbear.to_origin"))
        found["forbear.reason"] = str(event.status or event.error)
    return found


def sentence(event: Any) -> str:
    """Tell an event in one line."""
    name, origin = event.name, event.origin
    if name == "circuit_transition":
        return circuit_sentence(event)
    if name == "budget_exhausted":
        budget = f"the retry budget {event.budget} ({event.scope})"
        return f"{origin}: {budget} is used up; retries are refused"
    if name == "retry_after_ignored":
        return f"{origin}: {IGNORED[event.why]}"
    subject = f"{event.method} {origin}"
    if name == "resume":
        whole = "" if event.total is None else f" of {event.total}"
        return f"{subject}: download {event.result} from octet {event.offset}{whole}"
    if name == "succeeded_after_retry":
        return f"{subject}: {event.status} on attempt {event.attempts}, {event.waited:.3g} s waited"
    if name == "hedged":
        ending = event.outcome if event.reason is None else f"{event.outcome} ({event.reason})"
        return f"{subject}: a second attempt after {event.after:.3g} s, {ending}"
    if name == "released":
        after = f"held for {event.held:.3g} s after attempt {event.attempt}"
        return f"{subject}: {after}, {RELEASED[event.cause]}"
    cause = event.status or event.error or "not sent"
    if name == "attempt_failed":
        return f"{subject}: attempt {event.attempt} failed, {cause}"
    if name == "failover":
        target = event.to_origin
        return f"{subject}: {cause} on attempt {event.attempt}, the next one goes to {target}"
    if name == "retry_scheduled":
        held = ", held while the origin is unwell" if event.held else ""
        return (
            f"{subject}: {cause} on attempt {event.attempt} of {event.max_attempts},"
            f" again in {event.delay:.3g} s ({event.delay_source}){held}"
        )
    attempts = f"{event.attempts} attempt{'' if event.attempts == 1 else 's'}"
    wanted = "" if event.refused_delay is None else f" ({event.refused_delay:.3g} s wanted)"
    return f"{subject}: {cause} after {attempts}, gave up: {event.reason.value}{wanted}"


def circuit_sentence(event: Any) -> str:
    text = f"circuit of {event.origin}: {event.from_state} to {event.to_state}"
    if event.open_for is not None:
        text += f" for {event.open_for:.3g} s"
    if event.failure_rate is not None:
        return f"{text}, {event.failure_rate:.0%} of the calls in the window failed"
    return f"{text}, {event.failures} failures in a row" if event.failures else text


def host_of(origin: str) -> str:
    """Return a server's address, with the port unless that is the scheme's own."""
    scheme, _, address = origin.partition("://")
    return address.removesuffix(DEFAULT_PORTS.get(scheme, ""))


def retry_reason(event: Any) -> str:
    """Return why a retry was scheduled, as one of the table's ``RETRY_REASONS``."""
    if event.failure is FailureKind.STATUS:
        if event.status is not None and event.status < 400:
            return "user"  # only ``retry_if`` takes such an answer for a failure
        return str(event.status) if str(event.status) in RETRIED_STATUSES else "status_other"
    if event.phase is Phase.ANSWERED:
        return "body"  # the head had come
    if event.failure is FailureKind.TIMEOUT:
        return "connect_timeout" if event.phase is Phase.UNSENT else "read_timeout"
    return REASONS.get(event.failure, "protocol")


def is_connecting(failure: FailureKind, phase: Phase | None) -> bool:
    """Did the attempt fail before there was a connection?"""
    return phase is Phase.UNSENT and failure is not FailureKind.UNPROCESSED
