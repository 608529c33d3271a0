"""Backend: what an attempt meets: capacity, queue, trouble. Floor: acts.

Work is a fluid: it drains at the capacity, each served attempt adds one, each rejected one adds
``rejection_cost``. An attempt that finds no room is rejected, at the expense of serving, until as
much work again has piled up; then attempts are dropped unseen. This token bucket with debt is all
that a metastable failure needs (Bronson and others, "Metastable Failures in Distributed Systems",
HotOS 2021): while A attempts per call at a cost of r each are more than the capacity per arrival,
nothing is served.
"""

from __future__ import annotations

from email.utils import formatdate
from math import ceil, inf
from typing import TYPE_CHECKING

from ...core.outcome import Failure, FailureKind, Phase

if TYPE_CHECKING:
    from typing import TypeAlias

    from .scenario import Scenario

    # A bad answer: status and header lines, or an error as an adapter would classify it.
    Bad: TypeAlias = tuple[int, tuple[tuple[str, str], ...]] | Failure

__all__ = ["TIMED_OUT", "Backend", "utc"]

EPOCH = 1_800_000_000  # Unix seconds at virtual time 0; a whole second, as dates are

TIMED_OUT = Failure(FailureKind.READ_TIMEOUT, Phase.SENT, error="ReadTimeout")
REFUSED = Failure(FailureKind.REFUSED, Phase.UNSENT, error="ConnectError")
RESET = Failure(FailureKind.RESET, Phase.SENT, error="ReadError")
OVERLOADED = (503, ())


class Backend:
    """One server's state. Asked in the order of time."""

    __slots__ = (
        "_absorbed", "_answer", "_answers_at", "_backlog", "_cost", "_drains", "_limited", "_piled",
        "_room", "_scenario", "_service", "_since", "_until",
    )  # fmt: skip

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._limited = scenario.capacity is not None
        self._room = scenario.room
        self._piled = 2 * scenario.room
        # Work above which an attempt has to wait.
        self._absorbed = scenario.burst * (scenario.capacity or 0.0)
        self._cost = scenario.rejection_cost
        self._backlog = 0.0  # work, at the instant _since
        self._since = 0.0
        self._drains = scenario.capacity or 0.0  # work per second
        self._service = scenario.service_time
        self._answer: Bad | None = None  # what everybody gets now
        self._answers_at: float | None = None  # when, if not after the service time
        self._until = scenario.trouble_at  # the end of the present phase

    def receive(self, now: float) -> tuple[float, Bad | None]:
        """Take an attempt; return when it is answered, and what is wrong with the answer."""
        while now >= self._until:
            self._change_phase()
        if self._answer is not None:
            at = self._answers_at
            return now + self._service if at is None else at, self._answer
        if not self._limited:
            return now + self._service, None
        backlog = self._backlog - (now - self._since) * self._drains
        if backlog < 0:
            backlog = 0.0
        self._since = now
        if backlog + 1 > self._room:
            backlog += self._cost
            self._backlog = backlog if backlog < self._piled else self._piled
            return now + self._service, OVERLOADED
        self._backlog = backlog + 1
        waits = backlog - self._absorbed
        if waits > 0:
            return now + waits / self._drains + self._service, None
        return now + self._service, None

    def _change_phase(self) -> None:
        """Enter the trouble, or leave it."""
        scenario = self._scenario
        at = self._until
        self._backlog = max(0.0, self._backlog - (at - self._since) * self._drains)
        self._since = at
        if at >= scenario.trouble_ends_at:
            self._until = inf
            self._drains = scenario.capacity or 0.0
            self._service = scenario.service_time
            self._answer = self._answers_at = None
            return
        self._until = scenario.trouble_ends_at
        if scenario.trouble == "slow":
            self._drains *= scenario.speed
            self._service *= scenario.slowdown
        elif scenario.trouble == "refuse":
            self._answer = REFUSED
        elif scenario.trouble == "hang":
            self._answer = RESET
            self._answers_at = scenario.trouble_ends_at
        else:
            self._answer = (scenario.status, hint_lines(scenario))


def hint_lines(scenario: Scenario) -> tuple[tuple[str, str], ...]:
    asked = scenario.retry_after
    if asked is None:
        return ()
    if isinstance(asked, str):
        return (("Retry-After", formatdate(utc(ceil(scenario.trouble_ends_at)), usegmt=True)),)
    return (("Retry-After", f"{asked:.15g}"),)


def utc(now: float) -> float:
    """Unix seconds at an instant of virtual time."""
    return EPOCH + now
