"""Policy fields: the keyword arguments of ``RetryPolicy``, for type checkers."""

from __future__ import annotations

from typing import TypedDict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet
    from typing import Literal

    from .backoff import Backoff
    from .outcome import FailureKind


class PolicyFields(TypedDict, total=False):
    """Fields of a ``RetryPolicy`` in a dictionary, for settings that a type checker shall check.

    ``fields: PolicyFields = {"max_attempts": 2}`` goes into ``RetryPolicy(**fields)``,
    ``policy.replace(**fields)``, ``override(**fields)`` and ``extensions={"forbear": fields}``.
    ``help(RetryPolicy)`` explains each.
    """

    max_attempts: int
    backoff: Backoff
    patience: float | None
    throttle_backoff: Backoff | None
    statuses: AbstractSet[int]
    hinted_statuses: AbstractSet[int]
    unexecuted_statuses: AbstractSet[int]
    vendors: Sequence[str]
    conflict_with_key: bool
    failures: AbstractSet[FailureKind]
    methods: AbstractSet[str]
    attempt_timeout: float | None
    total_timeout: float | None
    max_retry_after: float
    hints: Literal["obey", "ignore"]
    hint_spread: float
    on_exhausted: Literal["return", "raise"]
