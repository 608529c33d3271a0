"""Added headers: what forbear puts on a request, always on a copy of it, and on the last answer.
Floor: acts.
"""

from __future__ import annotations

from ..core.headers.keys import GENERATED_FOR, names_a_key
from ..core.headers.timeouts import EXPECTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..core.key_options import IdempotencyKeys
    from ..core.request import Request

__all__ = ["ATTEMPT", "STOPPING", "TOLD", "has_header", "left_line", "new_key", "wants_key"]

ATTEMPT = "Retry-Attempt"
TOLD = (ATTEMPT, EXPECTED)  # of one attempt alone
# What the SDKs that look for a word of the server understand: those made by Stainless, and stripe.
STOPPING = ("x-should-retry", "stripe-should-retry")


def wants_key(keys: IdempotencyKeys, facts: Request) -> bool:
    """Is a key to be generated for this request? (K7)"""
    return (
        keys.generate
        and facts.method in GENERATED_FOR
        and keys.covers(facts.origin)
        and not names_a_key(facts.header_lines(), keys.recognised)
    )


def new_key(keys: IdempotencyKeys, utc_now: float) -> tuple[tuple[str, str], ...]:
    """The header lines of a fresh key, the same for all attempts of a call."""
    from ..idempotency import generate, serialize

    line = (
        keys.header,
        serialize(generate(profile=keys.profile), style=keys.style, profile=keys.profile),
    )
    if keys.header.lower() != "repeatability-request-id":
        return (line,)
    # OASIS Repeatable Requests 1.0 section 4: both are mandatory, and this stays that of the first
    # attempt.
    from email.utils import formatdate

    return line, ("Repeatability-First-Sent", formatdate(utc_now, usegmt=True))


def left_line(seconds: float) -> tuple[str, str]:
    """The header line that tells a server how long its answer is waited for."""
    return EXPECTED, str(max(1, int(seconds * 1000)))  # 0 would mean no limit


def has_header(facts: Request, wanted: str) -> bool:
    """Does the request have a header of this name?"""
    return facts.header(wanted) is not None
