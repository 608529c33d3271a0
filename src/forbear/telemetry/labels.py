"""Labels: the value that an event has for each closed label of the table. Floor: acts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.outcome import TIMEOUT_KINDS, FailureKind, Phase
from . import METHODS, OTHER, RETRIED_STATUSES

if TYPE_CHECKING:
    from ..core.events import RetryScheduled

__all__ = ["host_of", "method_of", "result_of", "retry_reason", "source_of"]

DEFAULT_PORTS = {"http": ":80", "https": ":443"}
TIMEOUTS = {
    FailureKind.CONNECT_TIMEOUT: "connect_timeout",
    FailureKind.READ_TIMEOUT: "read_timeout",
    FailureKind.WRITE_TIMEOUT: "write_timeout",
    FailureKind.POOL: "pool_timeout",
}


def host_of(origin: str) -> str:
    """The server's address, with its port unless that is the scheme's own."""
    scheme, _, address = origin.partition("://")
    return address.removesuffix(DEFAULT_PORTS.get(scheme, ""))


def method_of(method: str) -> str:
    return method if method in METHODS else OTHER


def result_of(status: int | None, failure: FailureKind | None, phase: Phase | None) -> str:
    """How an attempt ended: the class of its answer, or what became of it."""
    if status is not None:
        return "429" if status == 429 else f"{min(max(status // 100, 2), 5)}xx"
    if failure is None:
        return "cancelled"
    if failure in TIMEOUT_KINDS:
        return "timeout"
    return (
        "connect"
        if phase is Phase.UNSENT and failure is not FailureKind.UNPROCESSED
        else "protocol"
    )


def retry_reason(event: RetryScheduled) -> str:
    """What a retry was scheduled for."""
    if event.failure is FailureKind.STATUS:
        if event.status is not None and event.status < 400:
            return "user"  # only ``retry_if`` takes such an answer for a failure
        return str(event.status) if str(event.status) in RETRIED_STATUSES else "status_other"
    if event.phase is Phase.ANSWERED:
        return "body"  # the head had come
    if event.failure in TIMEOUT_KINDS:
        unnamed = "connect_timeout" if event.phase is Phase.UNSENT else "read_timeout"
        return TIMEOUTS.get(event.failure, unnamed)
    return (
        "connect"
        if event.phase is Phase.UNSENT and event.failure is not FailureKind.UNPROCESSED
        else "protocol"
    )


def source_of(delay_source: str) -> str:
    """Who chose a delay: this side, a header that names a wait, or one that tells of a quota."""
    if "ratelimit" in delay_source.replace("-", ""):
        return "rate_limit_reset"
    # A cooldown is what an origin asked another call for.
    asked = delay_source == "cooldown" or "retry" in delay_source
    return "retry_after" if asked else "computed"
