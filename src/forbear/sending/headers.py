"""Headers: what forbear puts on requests, always on a copy, and on last answers. Floor: acts."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from ..core.headers.keys import GENERATED_FOR, names_a_key, serialize
from ..core.headers.nesting import EXPECTED
from ..idempotency import generate
from .settings import OFF

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.call import Call
    from ..core.key_options import IdempotencyKeys
    from ..core.request import Request
    from .context import Scope
    from .settings import Settings

    Lines = list[tuple[str, str]]

__all__ = ["announced", "new_headers", "next_lines", "stop_outer"]

ATTEMPT = "Retry-Attempt"
# What the SDKs that look for a word of the server understand: those made by Stainless, and stripe.
STOPPING = ("x-should-retry", "stripe-should-retry")


def new_headers(settings: Settings, request: Request) -> tuple[Lines, Lines]:
    """Return the headers that forbear adds to each attempt, and those of a generated key. (K7)"""
    added: Lines = []
    if settings.contact is not None and request.header("from") is None:
        added.append(("From", settings.contact))
    keys = settings.idempotency
    if (
        keys is None
        or not keys.generate
        or request.method not in GENERATED_FOR
        or not keys.covers(request.origin)
        or names_a_key(request.header_lines(), keys.recognised)
    ):
        return added, []
    return added, new_key(keys, settings.clock.time())


def new_key(keys: IdempotencyKeys, utc_now: float) -> Lines:
    """The header lines of a fresh key, the same for all attempts of a call."""
    key = serialize(generate(profile=keys.profile), style=keys.style, profile=keys.profile)
    if keys.header.lower() != "repeatability-request-id":
        return [(keys.header, key)]
    # OASIS Repeatable Requests 1.0 section 4: both are mandatory, and this one stays that of the
    # first attempt.
    from email.utils import formatdate

    return [(keys.header, key), ("Repeatability-First-Sent", formatdate(utc_now, usegmt=True))]


def announced(
    settings: Settings,
    context: Scope | None,
    attempt: int,
    deadline_at: float,
    written: Callable[[str], bool],
) -> Lines:
    """Headers of the next attempt alone: its number, and the time that is left for it.

    Args:
        settings: Of the transport.
        context: What the blocks around the call say.
        attempt: The number of the attempt; 1 for a first one.
        deadline_at: The call's.
        written: Says whether the caller wrote a header; the caller's own stays.
    """
    incoming = None if context is None else context.incoming
    lines: Lines = []
    if settings.announce_attempts and not written(ATTEMPT):
        if attempt > 1:
            lines.append((ATTEMPT, str(attempt)))
        elif incoming is not None and incoming.retries:  # the same work is asked for again
            lines.append((ATTEMPT, str(incoming.retries + 1)))
    announces = incoming is not None and incoming.announces_deadline
    if announces and deadline_at != inf and not written(EXPECTED):
        left = deadline_at - settings.clock.monotonic()
        lines.append((EXPECTED, str(max(1, int(left * 1000)))))  # 0 would mean no limit
    return lines


def next_lines(settings: Settings, call: Call, written: Callable[[str], bool]) -> Lines:
    """Headers that only the next attempt of a call carries, a range of a download among them."""
    lines: Lines = []
    if call.policy is not OFF:
        attempt = call.attempts + 1 if call.history else 1
        lines = announced(settings, call.context, attempt, call.deadline_at, written)
    if call.resumption is not None:
        lines.extend(call.resumption.download.fields(call.resumption.received))
    return lines


def stop_outer(settings: Settings, call: Call, headers: Any) -> None:
    """Tell an SDK above, in its own words, not to begin anew after this call was given up."""
    if settings.stop_outer_retries and call.stop is not None and call.policy is not OFF:
        for name in STOPPING:
            headers[name] = "false"
