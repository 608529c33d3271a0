"""Deadlines in the httpx family: the timeouts of an attempt, and bodies that end in time.

Loaded with the first call that has a time limit of ours.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from ...engine.errors import DeadlineCut
from .reading import LEAST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...engine.clock import Clock
    from ...engine.outgoing import Outgoing

PHASES = ("pool", "connect", "read", "write")
NONE: Mapping[str, float | None] = {}


class Timeouts(dict[str, float | None]):
    """An attempt's own copy of ``extensions["timeout"]``, which knows the time.

    ``get(phase)`` is the least of the client's own timeout, ``attempt_timeout`` and the time left.
    With a deadline it is the request's ``trace`` too, which httpcore calls before each step. No
    timeout bounds name resolution, so without that check a request could be written too late.
    """

    # No constructor of our own, since every call under a deadline makes one of these.
    __slots__ = ("_replaced", "clock", "deadline_at", "trace")

    clock: Clock
    deadline_at: float
    trace: Any  # the client's own
    _replaced: Mapping[str, float | None]  # the client's own, where that is longer

    def begin(self, clock: Clock, outgoing: Outgoing, extensions: dict[str, object]) -> None:
        """Take the place of the timeouts in the extensions of what is sent."""
        self.clock, self.deadline_at = clock, outgoing.deadline_at
        self.trace, self._replaced = extensions.get("trace"), NONE
        extensions["timeout"] = self
        if self.deadline_at != inf:
            extensions["trace"] = self
        longest = outgoing.policy.attempt_timeout
        if longest is not None:  # no phase may last longer than that
            self._replaced = dict.copy(self)
            for phase in PHASES:
                own = dict.get(self, phase)
                self[phase] = longest if own is None else min(own, longest)

    def get(self, phase: str, default: Any = None) -> float | None:
        configured: float | None = dict.get(self, phase, default)
        if self.deadline_at == inf:
            return configured
        left = max(self.left(), LEAST)
        return left if configured is None else min(configured, left)

    def __getitem__(self, phase: str) -> float | None:
        return self.get(phase) if phase in self else super().__getitem__(phase)

    def __call__(self, event: str, info: object) -> object:
        self.check_deadline(event)
        return None if self.trace is None else self.trace(event, info)

    def check_deadline(self, event: str) -> None:
        """Keep the request from being written after the deadline."""
        if event.endswith("send_request_headers.started") and self.left() <= 0:
            raise DeadlineCut

    def left(self) -> float:
        return self.deadline_at - self.clock.monotonic()

    def reopen(self, deadline_at: float = inf) -> None:
        """Give a body that the caller streams the client's own timeouts, bounded by
        ``forbear.deadline`` only.
        """
        self.deadline_at = deadline_at
        self.update(self._replaced)


class AsyncTimeouts(Timeouts):
    """The same for an asynchronous attempt."""

    __slots__ = ()

    async def __call__(self, event: str, info: object) -> None:
        self.check_deadline(event)
        if self.trace is not None:
            await self.trace(event, info)
