"""Scenario: what happens in a simulated world: arrivals, a backend, its trouble. Floor: acts.

All durations are seconds, all instants are seconds of virtual time from the start. Work is counted
in served attempts: a backend of capacity 600 serves 600 attempts a second.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from ...core.checks import a_choice, a_duration, a_number, shown

__all__ = ["SCENARIOS", "Scenario"]

TROUBLES = ("down", "refuse", "hang", "slow")
ARRIVALS = ("even", "poisson")
END: Literal["end"] = "end"
MOST_CALLERS = 100_000_000  # beyond it the mistake is likelier than the patience


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One world. Immutable; ``dataclasses.replace`` makes variants.

    Raises:
        ValueError: A value is out of its range; the message says what to write instead.
        TypeError: A value is of the wrong type.
    """

    rate: float = 500.0
    """Calls per second that begin independently of each other and of what the backend does."""

    duration: float = 10.0
    """Seconds during which calls begin. Simulated is until the last of them has ended."""

    arrivals: Literal["even", "poisson"] = "even"
    """Evenly spaced, or at random: independent callers, as many in all."""

    fleet: int = 0
    """Further calls that all begin at ``fleet_at``."""

    fleet_at: float = 1.0

    callers_per_client: int | None = None
    """Calls of one client process, which has a budget of its own. None: one process makes all."""

    timeout: float | None = None
    """Seconds after which a client gives up an attempt that is not answered; None: it waits."""

    capacity: float | None = None
    """Attempts that the backend can serve per second; None: as many as come."""

    service_time: float = 0.005
    """Seconds from an attempt to its answer, good or bad, when it need not queue."""

    burst: float = 0.05
    """Seconds' worth of work that is taken on at once above the capacity, without a wait."""

    queue: float = 0.0
    """Further seconds' worth of work that may wait. What finds no room is rejected with 503."""

    rejection_cost: float = 0.0
    """Work of rejecting an attempt, as a share of serving it (TLS, parsing, authentication).
    Rejecting is free while ``down``."""

    trouble: Literal["down", "refuse", "hang", "slow"] = "down"
    """"down" answers ``status``, "refuse" takes no connection, "hang" answers nothing and resets
    all when it ends, "slow" serves at ``speed`` and takes ``slowdown`` times the service time."""

    trouble_at: float = 2.0
    """When it begins."""

    trouble_for: float = 0.2

    status: int = 503
    """Answered while ``down``."""

    retry_after: float | Literal["end"] | None = None
    """Told by these answers: seconds, or "end": the date of the first whole second after it."""

    speed: float = 0.5
    """While "slow": the share of the capacity that is left."""

    slowdown: float = 1.0
    """While "slow": how many times longer an answer takes."""

    def __post_init__(self) -> None:
        for name in ("service_time", "burst", "queue", "fleet_at", "trouble_at", "trouble_for"):
            a_duration(name, getattr(self, name))
        a_duration("duration", self.duration, zero=False)
        a_duration("timeout", self.timeout, none="a client that waits", zero=False)
        for name, least in (("rate", 0), ("rejection_cost", 0), ("speed", 0), ("slowdown", 1)):
            value = getattr(self, name)
            a_number(name, value)
            if value < least:
                raise ValueError(f"{name} must be at least {least}, got {shown(value)}")
        if self.speed > 1:
            raise ValueError(f"speed must be at most 1, got {shown(self.speed)}; it is a share")
        if self.capacity is not None:
            a_number("capacity", self.capacity)
            if self.capacity <= 0:
                raise ValueError(
                    f"capacity must be more than 0, got {shown(self.capacity)}; None: no limit"
                )
        a_count("fleet", self.fleet, 0)
        if self.callers_per_client is not None:
            a_count("callers_per_client", self.callers_per_client, 1)
        if self.status not in range(400, 600):
            raise ValueError(f"status must be from 400 to 599, got {shown(self.status)}")
        a_choice("arrivals", self.arrivals, ARRIVALS)
        a_choice("trouble", self.trouble, TROUBLES)
        if self.retry_after is not None and self.retry_after != END:
            a_duration("retry_after", self.retry_after)
        if self.trouble_ends_at >= self.duration:
            raise ValueError(
                "the trouble must end before the calls do, to see what comes after it:"
                f" it ends at {self.trouble_ends_at:g} s, they at {self.duration:g} s"
            )
        if not 1 <= self.callers <= MOST_CALLERS:
            raise ValueError(
                f"rate × duration + fleet must be from 1 to {MOST_CALLERS:,} calls,"
                f" got {self.callers:,}"
            )

    @property
    def callers(self) -> int:
        """Calls in all."""
        return self.open_callers + self.fleet

    @property
    def open_callers(self) -> int:
        return round(self.rate * self.duration)

    @property
    def clients(self) -> int:
        """Client processes."""
        return 1 if self.callers_per_client is None else -(-self.callers // self.callers_per_client)

    @property
    def trouble_ends_at(self) -> float:
        return self.trouble_at + self.trouble_for

    @property
    def room(self) -> float:
        """Work that may be there before the next attempt is rejected."""
        if self.capacity is None:
            return 0.0
        return max(1.0, (self.burst + self.queue) * self.capacity)

    def told(self) -> str:
        """The scenario in three short lines."""
        kind = "evenly spaced" if self.arrivals == "even" else "at random"
        who = [f"{self.callers:,} calls: {self.rate:,.6g}/s {kind} for {self.duration:g} s"]
        if self.fleet:
            who.append(f"and {self.fleet:,} at once at {self.fleet_at:g} s")
        who.append(f"from {self.clients:,} client process{'es' if self.clients > 1 else ''}")
        if self.timeout is not None:
            who.append(f"with a timeout of {self.timeout:g} s")
        serves = [f"answers in {self.service_time * 1000:g} ms"]
        if self.capacity is None:
            serves.append("serves as many as come")
        else:
            times = f" ({self.capacity / self.rate:.3g} × arrivals)" if self.rate else ""
            serves.append(f"serves {self.capacity:,.6g}/s{times}")
        if self.queue:
            serves.append(f"queues {self.queue:g} s of work")
        if self.rejection_cost:
            serves.append(f"rejecting costs {self.rejection_cost:g} of serving")
        return (
            f"Callers: {', '.join(who)}.\n"
            f"Backend: {', '.join(serves)}.\n"
            f"Trouble: {self._trouble_told()} from {self.trouble_at:g} s"
            f" to {self.trouble_ends_at:g} s."
        )

    def _trouble_told(self) -> str:
        if self.trouble == "refuse":
            return "refuses connections"
        if self.trouble == "hang":
            return "answers nothing, and resets what it holds at the end,"
        if self.trouble == "slow":
            slower = f", answers after {self.slowdown:g} times as long" if self.slowdown > 1 else ""
            return f"serves at {self.speed:.0%} of its speed{slower}"
        if self.retry_after is None:
            return f"answers {self.status}"
        asked = "the date of its end" if self.retry_after == END else f"{self.retry_after:g}"
        return f"answers {self.status} and Retry-After: {asked}"


def a_count(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {shown(value)}")


# 100,000 calls in 20 s against a backend with a fifth to spare, for which saying no is not free.
NEAR_ITS_LIMIT = Scenario(
    rate=5_000.0,
    duration=20.0,
    arrivals="poisson",
    callers_per_client=1_000,
    capacity=6_000.0,
    rejection_cost=0.3,
)
A_USED_UP_QUOTA = Scenario(
    duration=30.0,
    callers_per_client=100,
    capacity=1_000.0,
    rejection_cost=0.1,
    trouble_for=10.0,
    status=429,
    retry_after=END,
)

SCENARIOS = {
    "blip": (
        Scenario(),
        "the textbook experiment: 200 ms of 503 under 500 independent calls a second",
    ),
    "reload": (Scenario(trouble="hang"), "all that came within 200 ms fail together, at its end"),
    "brownout": (
        replace(NEAR_ITS_LIMIT, trouble="slow", trouble_for=2.0),
        "half speed for 2 s, with a fifth of capacity to spare",
    ),
    "quota-reset": (
        A_USED_UP_QUOTA,
        "a quota is used up for 10 s; everybody is told the same absolute second",
    ),
    "metastable": (
        NEAR_ITS_LIMIT,
        "200 ms of outage, and rejections that eat capacity: does it ever come back?",
    ),
}
