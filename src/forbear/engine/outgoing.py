"""Outgoing: what is sent in place of a request, as prepare.py makes it."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.call import Call
    from ..core.policy import RetryPolicy


@dataclass(slots=True)
class Outgoing:
    """The request that is sent, and the rules that hold for it.

    Attributes:
        request: Sent next: a copy of the client's own, or that itself if nothing in it is changed.
        pristine: The same before headers of one attempt alone and the user's hook.
        policy: In force for the call.
        deadline_at: The call ends at this instant; infinite if there is no deadline.
        guard: Around a body that is not plain bytes.
        lines: Header lines that add-ons have given the call.
        hop: What an earlier hop of a redirected call has left.
        reads_until: The end of a ``forbear.deadline``, which limits reading the response body too;
            infinite if there is none.
        timeouts: The attempt's limits, if a deadline or ``attempt_timeout`` is set.
    """

    request: Any
    pristine: Any
    policy: RetryPolicy
    deadline_at: float
    guard: Any = None
    lines: Sequence[tuple[str, str]] = ()
    hop: Hop | None = None
    reads_until: float = inf
    timeouts: Any = None


class Hop:
    """The part of a redirected call that its hops hand on."""

    __slots__ = ("deadline_at", "guard", "lines", "origin", "retries_used")

    def __init__(self, call: Call) -> None:
        outgoing: Outgoing | None = call.outgoing
        self.retries_used = max(0, call.attempts - 1)
        self.deadline_at = call.deadline_at
        self.lines = () if outgoing is None else outgoing.lines
        self.origin = call.request.origin
        self.guard = call.guard
