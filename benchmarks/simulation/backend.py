"""Backend: what an attempt meets: capacity, queue, quota, trouble.

Work is a fluid: it drains at the capacity, each served attempt adds one, each rejected one adds
``rejection_cost``. An attempt that finds no room is rejected, at the expense of serving, until a
burst more has piled up; then attempts are dropped unseen. This token bucket with debt is all
that a metastable failure needs (Bronson and others, "Metastable Failures in Distributed Systems",
HotOS 2021): while A attempts per call at a cost of r each are more than the capacity per arrival,
nothing is served. Work for a client that has left is done like any other.
"""

from __future__ import annotations

from email.utils import formatdate
from math import ceil, inf
from random import random as system_random
from typing import TYPE_CHECKING

from forbear.core.outcome import Failure, FailureKind, Phase

from .scenario import BACKENDS, REFUSED

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from .scenario import Scenario

    # A bad response: status and header lines, or an error as an adapter would classify it.
    Bad: TypeAlias = tuple[int, tuple[tuple[str, str], ...]] | Failure

EPOCH = 1_800_000_000  # Unix seconds at virtual time 0; a whole second, as dates are

TIMED_OUT = Failure(FailureKind.READ_TIMEOUT, Phase.SENT, error="ReadTimeout")
NOT_CONNECTED = Failure(FailureKind.REFUSED, Phase.UNSENT, error="ConnectError")
RESET = Failure(FailureKind.RESET, Phase.SENT, error="ReadError")
OVERLOADED = (503, ())
CONNECTION_FAILURES = {REFUSED: NOT_CONNECTED, "reset": RESET, "hang": TIMED_OUT}
COLD = 0.5  # share of the capacity right after the trouble, where caches are cold


class Backend:
    """The servers' state. Asked in the order of time."""

    def __init__(self, scenario: Scenario, random: Callable[[], float] = system_random) -> None:
        self._scenario = scenario
        self._random = random
        self._limited = scenario.capacity is not None
        self._room = scenario.room
        # Work above which an attempt has to wait; as much may pile up beyond the room.
        self._absorbed = max(1.0, scenario.burst * (scenario.capacity or 0.0))
        self._piled = self._room + self._absorbed
        self._cost = scenario.rejection_cost
        self._thrash = scenario.thrash / self._room if self._limited else 0.0
        self._rejection = rejection(scenario)
        self._backlog = 0.0  # work, at the instant _since
        self._since = 0.0
        self._drains = scenario.capacity or 0.0  # work per second
        self._warm_at = 0.0  # until then it rises
        self._service = scenario.service_time
        self._response: Bad | None = None  # what each attempt gets during the trouble
        self._responds_at: float | None = None  # when, if not after the service time
        self._until = scenario.trouble_at  # the end of the present phase
        self._ends_at = scenario.trouble_ends_at  # the trouble, or the next one
        self._partial = scenario.share < 1 or scenario.first is not None
        self._met: dict[int, int] = {}  # attempts of a process that met the trouble
        self._fails_partially = scenario.flaky > 0 or scenario.bad_replicas > 0
        self._partial_failure = partial_failure(scenario)
        self._replica: dict[int, int] = {}  # the last one of a process, for round-robin
        self._window = 0  # of the quota
        self._used = 0  # in this window

    def receive(
        self, now: float, client: int = 0, *, is_broken: bool = False
    ) -> tuple[float, Bad | None]:
        """Take a process's attempt; return when its response comes, and what is wrong with it."""
        while now >= self._until:
            self._change_phase()
        if is_broken:
            return now + self._service, (self._scenario.broken_status, ())
        if self._fails_partially and self._meets_partial_failure(client):
            if self._partial_failure is TIMED_OUT:
                return inf, TIMED_OUT
            return now + self._service, self._partial_failure
        if self._response is not None and (not self._partial or self._is_met_by(client)):
            at = self._responds_at
            return now + self._service if at is None else at, self._response
        if self._scenario.quota is not None and (used_up := self._count(now)):
            return now + self._service, used_up
        if not self._limited:
            return now + self._service, None
        drains = self._drains if now >= self._warm_at else self._warming(now)
        backlog = self._backlog - (now - self._since) * drains
        if backlog < 0:
            backlog = 0.0
        self._since = now
        if backlog + 1 > self._room:
            backlog += self._cost
            self._backlog = backlog if backlog < self._piled else self._piled
            return now + self._service, self._rejection
        self._backlog = backlog + 1 + self._thrash * backlog
        waits = backlog - self._absorbed
        if waits > 0:
            return now + waits / drains + self._service, None
        return now + self._service, None

    def _is_met_by(self, client: int) -> bool:
        """Does an attempt of this process meet the trouble, where not all do?"""
        scenario = self._scenario
        if scenario.first is not None:
            met = self._met.get(client, 0)
            self._met[client] = met + 1
            return met < scenario.first
        if scenario.sticky:
            return client % BACKENDS < round(scenario.share * BACKENDS)
        return self._random() < scenario.share

    def _meets_partial_failure(self, client: int) -> bool:
        """Does an attempt fail by itself, or meet a bad replica?"""
        scenario = self._scenario
        if scenario.flaky and self._random() < scenario.flaky:
            return True
        if not scenario.bad_replicas:
            return False
        replicas = scenario.replicas
        if scenario.balancing == "sticky":
            replica = client % replicas
        elif scenario.balancing == "random" or client not in self._replica:
            replica = int(self._random() * replicas)
        else:
            replica = (self._replica[client] + 1) % replicas
        self._replica[client] = replica
        return replica < scenario.bad_replicas

    def _count(self, now: float) -> Bad | None:
        """Take one of the quota; return the response if it is used up."""
        scenario = self._scenario
        length, quota = scenario.quota_window, scenario.quota
        window = int(now / length)
        if window != self._window:
            self._window, self._used = window, 0
        self._used += 1
        if quota is None or self._used <= quota:
            return None
        seconds = ceil((window + 1) * length - now)
        return scenario.quota_status, retry_after(seconds) if scenario.quota_hint else ()

    def quota_lines(self, now: float) -> tuple[tuple[str, str], ...]:
        """Return what every response of this instant shows of the quota."""
        scenario = self._scenario
        if scenario.quota is None:
            return ()
        length = scenario.quota_window
        left = max(0, int(scenario.quota) - self._used)
        policy = f'"default";q={int(scenario.quota)};w={length:.15g}'
        seconds = ceil((self._window + 1) * length - now)
        return ("RateLimit-Policy", policy), ("RateLimit", f'"default";r={left};t={seconds}')

    def _warming(self, now: float) -> float:
        """Work per second while caches are cold."""
        missing = (self._warm_at - now) / self._scenario.cold_for
        return self._drains * (1.0 - (1.0 - COLD) * missing)

    def _change_phase(self) -> None:
        """Enter the trouble, or leave it."""
        scenario = self._scenario
        at = self._until
        self._backlog = max(0.0, self._backlog - (at - self._since) * self._drains)
        self._since = at
        if at >= self._ends_at:
            self._until = inf
            if scenario.trouble_every is not None:
                self._until = self._ends_at - scenario.trouble_for + scenario.trouble_every
                self._ends_at += scenario.trouble_every
            self._drains = scenario.capacity or 0.0
            self._room = scenario.room
            self._piled = self._room + self._absorbed
            self._warm_at = at + scenario.cold_for
            self._service = scenario.service_time
            self._response = self._responds_at = None
            return
        self._until = self._ends_at
        trouble = scenario.trouble
        if trouble == "slow":
            self._drains *= scenario.speed
            self._service *= scenario.slowdown
            queued = scenario.queue * (scenario.capacity or 0.0)  # which is fewer attempts now
            self._room = max(1.0, self._room - queued * (1.0 - scenario.speed))
            self._piled = self._room + self._absorbed
            return
        if scenario.first is None and scenario.share < 1:
            self._drains *= 1.0 - scenario.share
        if trouble == "refuse":
            self._response = NOT_CONNECTED
        elif trouble == "down":
            self._response = (scenario.status, hint_lines(scenario))
        else:
            self._response = RESET
            if trouble == "hang":
                self._responds_at = self._ends_at
            elif trouble == "silent":
                self._responds_at = inf


def partial_failure(scenario: Scenario) -> Bad:
    failure = scenario.partial_failure
    return CONNECTION_FAILURES[failure] if isinstance(failure, str) else (failure, ())


def rejection(scenario: Scenario) -> Bad:
    if scenario.rejection == REFUSED:
        return NOT_CONNECTED
    asked = scenario.rejection_hint
    return int(scenario.rejection), () if asked is None else retry_after(asked)


def hint_lines(scenario: Scenario) -> tuple[tuple[str, str], ...]:
    asked = scenario.retry_after
    if asked is None:
        return ()
    if isinstance(asked, str):
        return (("Retry-After", formatdate(utc(ceil(scenario.trouble_ends_at)), usegmt=True)),)
    return retry_after(asked)


def retry_after(asked: float) -> tuple[tuple[str, str], ...]:
    return (("Retry-After", f"{asked:.15g}"),)


def utc(now: float) -> float:
    """Unix seconds at an instant of virtual time."""
    return EPOCH + now
