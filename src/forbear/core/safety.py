"""Safety: may this request be sent again at all? Floor: decides.

Rules S1-S11 of tests/corpus/retry_safety.json: steps 1 to 5 of a decision (call.py tells all ten).
What a class of exception means is the adapters' to say; here is what follows from it.
"""

from __future__ import annotations

from .outcome import RETRYABLE_KINDS, Failure, FailureKind, Hint, Phase
from .request import Request
from .verdict import Reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from .policy import RetryPolicy

__all__ = ["is_flagged", "is_replayed", "may_never_succeed", "may_not_repeat"]

NEVER = {
    FailureKind.CERTIFICATE: Reason.PERMANENT_ERROR,
    FailureKind.DECODING: Reason.PERMANENT_ERROR,
    FailureKind.PERMANENT: Reason.PERMANENT_ERROR,
    FailureKind.POOL: Reason.LOCAL_SATURATION,
    FailureKind.UNKNOWN: Reason.UNKNOWN_ERROR,
}


def is_flagged(policy: RetryPolicy, facts: Request, status: int, hint: Hint) -> bool:
    """Does the policy or the server call this status (400 or above) worth another attempt? (S4,
    S5)
    """
    if status in policy.statuses or hint.should_retry:
        return True
    if status == 409 and policy.conflict_with_key and facts.keyed:
        return True
    return hint.delay is not None and status in policy.hinted_statuses


def is_replayed(headers: Iterable[tuple[str, str] | tuple[bytes, bytes]]) -> bool:
    """Is this answer a stored one, which the same key would bring again? (S6)"""
    for name, value in headers:
        if len(name) == 19:  # most names are shorter: look at few
            if isinstance(name, str):
                if name.lower() == "idempotent-replayed" and value.strip(" \t").lower() == "true":  # type: ignore[arg-type]
                    return True
            elif name.lower() == b"idempotent-replayed" and value.strip(b" \t").lower() == b"true":  # type: ignore[arg-type]
                return True
    return False


def may_never_succeed(failure: Failure) -> Reason | None:
    """Step 3, errors only: why no further attempt can succeed. (S9)"""
    if failure.kind in RETRYABLE_KINDS:
        return None
    return NEVER[failure.kind]


def may_not_repeat(
    policy: RetryPolicy, facts: Request, failure: Failure, *, key_expired: bool
) -> Reason | None:
    """Step 4: why sending it once more might execute it twice. (S2, S8, S10)"""
    if failure.phase is Phase.UNSENT or facts.method in policy.methods:
        return None
    if not facts.keyed:
        return Reason.METHOD_NOT_REPLAYABLE
    return Reason.KEY_EXPIRED if key_expired else None
