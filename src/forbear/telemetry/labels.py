"""Labels: the value that an event has for each closed label of the table. Floor: acts.

The reason of a retry and the name of a host stand in sending/lines.py: the log has them too.
"""

from __future__ import annotations

from ..core.outcome import TIMEOUT_KINDS, FailureKind, Phase
from ..sending.lines import is_connecting
from . import METHODS, OTHER

__all__ = ["method_of", "result_of", "source_of"]


def method_of(method: str) -> str:
    """Return the method, OTHER unless it is a registered one."""
    return method if method in METHODS else OTHER


def result_of(status: int | None, failure: FailureKind | None, phase: Phase | None) -> str:
    """Return how an attempt ended: the class of its status, or of its failure."""
    if status is not None:
        return "429" if status == 429 else f"{min(max(status // 100, 2), 5)}xx"
    if failure is None:
        return "cancelled"
    if failure in TIMEOUT_KINDS:
        return "timeout"
    return "connect" if is_connecting(failure, phase) else "protocol"


def source_of(delay_source: str) -> str:
    """Return who chose a delay: this side, a header that names a wait, or one about a quota."""
    if "ratelimit" in delay_source.replace("-", ""):
        return "rate_limit_reset"
    # A cooldown is what an origin asked another call for.
    asked = delay_source == "cooldown" or "retry" in delay_source
    return "retry_after" if asked else "computed"
