"""Scenario: one simulated world: who calls, what a backend can do, its trouble.

All durations are seconds, all instants are seconds of virtual time from the start. Work is counted
in served attempts: a backend of capacity 600 serves 600 attempts a second. The named worlds are in
troubles.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal

from forbear.core.checks import check_bool, check_choice, check_duration, check_number, shown

TROUBLES = ("down", "refuse", "reset", "hang", "silent", "slow")
ARRIVALS = ("even", "poisson")
BALANCING = ("random", "round-robin", "sticky")
PARTIAL_FAILURES = ("refused", "reset", "hang")
REFUSED: Literal["refused"] = "refused"
END: Literal["end"] = "end"
MOST_CALLERS = 100_000_000  # beyond it the mistake is likelier than the patience
BACKENDS = 10  # among which ``share`` counts, where a process stays with one


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
    """Evenly spaced, by all processes in turn; or at random: independent callers, as many in all,
    each in a process drawn by lot."""

    fleet: int = 0
    """Further calls that all begin at ``fleet_at``."""

    fleet_at: float = 1.0

    workers: int = 0
    """Loops that make a call, wait for its end and then for ``pause``, and make the next one."""

    pause: float = 0.0

    worker_calls: int | None = None
    """Calls that they make in all, at most; None: as many as they can in ``duration``."""

    client_rate: float | None = None
    """Calls per second of one client process, which has limits of its own. None: one process makes
    all calls."""

    threads: int | None = None
    """Calls that a process can have under way at a time; further ones wait for a thread, and are
    lost after 10 s. None: no limit. Latency counts from when a call was due."""

    frozen_at: float = 0.0
    """When all processes stop running for ``frozen_for``, as in a paused container. What happens to
    them meanwhile they notice afterwards."""

    frozen_for: float = 0.0

    timeout: float | None = None
    """Seconds after which a client gives up an attempt without a response; None: it waits. The
    backend works on what the client gave up all the same."""

    capacity: float | None = None
    """Attempts that the backend can serve per second; None: as many as come."""

    service_time: float = 0.005
    """Seconds from an attempt to its response, good or bad, when it need not queue."""

    burst: float = 0.05
    """Seconds' worth of work that is taken on at once above the capacity, without a wait."""

    queue: float = 0.0
    """Further seconds' worth of work, at the present speed, that may wait. What finds no room is
    rejected."""

    rejection: int | Literal["refused"] = 503
    """The status with which an attempt is rejected; "refused": its connection is."""

    rejection_cost: float = 0.0
    """Work of rejecting an attempt, as a share of serving it (TLS, parsing, authentication).
    Rejecting is free while ``down``."""

    rejection_hint: float | None = None
    """Retry-After of a rejection; None: it names no time."""

    thrash: float = 0.0
    """Further work per served attempt when the backend is full, as a share; half of it when half
    full."""

    quota: float | None = None
    """Attempts in each ``quota_window``; further ones get a 429. None: no limit."""

    quota_window: float = 10.0

    quota_hint: bool = True
    """A 429 of the quota says when the next window begins, in whole seconds."""

    quota_status: int = 429

    flaky: float = 0.0
    """Share of the attempts that fail with ``partial_failure`` whatever the load, all the time."""

    replicas: int = 0
    """Servers behind a load balancer, of which ``bad_replicas`` always respond with
    ``partial_failure``. It does not notice. No capacity is lost. 0: one server."""

    bad_replicas: int = 0

    balancing: Literal["random", "round-robin", "sticky"] = "random"
    """Which replica an attempt goes to: any, the next one of its process, or always the same one of
    its process."""

    partial_failure: int | Literal["refused", "reset", "hang"] = 503
    """A status, or what becomes of the connection; "hang": no response within ``timeout``."""

    broken_share: float = 0.0
    """Share of the calls that go to a broken route of the same origin, which always responds
    ``broken_status``."""

    broken_status: int = 500

    trouble: Literal["down", "refuse", "reset", "hang", "silent", "slow"] = "down"
    """"down" responds ``status``, "refuse" takes no connection, "reset" breaks it, "hang" sends no
    response and resets all when it ends, "silent" never responds, "slow" serves at ``speed`` and
    takes ``slowdown`` times the service time."""

    trouble_at: float = 2.0
    """When it begins."""

    trouble_for: float = 0.2

    trouble_every: float | None = None
    """Seconds from one beginning of the trouble to the next one; None: it comes once."""

    share: float = 1.0
    """Share of the backends that are in trouble. A load balancer that does not notice sends each of
    them as many attempts as any other; unless "slow", their capacity is lost."""

    sticky: bool = False
    """Each process stays with one of ten backends; else each attempt may go to any."""

    first: int | None = None
    """Of each process only so many attempts meet the trouble, such as its stale connections. None:
    all."""

    status: int = 503
    """Of responses while ``down``."""

    retry_after: float | Literal["end"] | None = None
    """Of these responses: seconds, or "end": the date of the first whole second after it."""

    speed: float = 0.5
    """While "slow": the share of the capacity that is left."""

    slowdown: float = 1.0
    """While "slow": how many times longer a response takes."""

    cold_for: float = 0.0
    """Seconds after the trouble in which the capacity rises from half to all of it."""

    def __post_init__(self) -> None:
        for name in (
            "service_time", "burst", "queue", "fleet_at", "pause", "trouble_at", "trouble_for",
            "cold_for", "frozen_at", "frozen_for",
        ):  # fmt: skip
            check_duration(name, getattr(self, name))
        check_duration("duration", self.duration, zero=False)
        check_duration("quota_window", self.quota_window, zero=False)
        check_duration("timeout", self.timeout, none="a client that waits", zero=False)
        for name, least, most in BOUNDS:
            value = getattr(self, name)
            check_number(name, value)
            if not least <= value <= most:
                limits = f"at least {least}" if most == inf else f"from {least} to {most:g}"
                raise ValueError(f"{name} must be {limits}, got {shown(value)}")
        for name, none in (("capacity", "no limit"), ("quota", "none"), ("client_rate", "one")):
            value = getattr(self, name)
            if value is not None:
                check_number(name, value)
                if value <= 0:
                    raise ValueError(
                        f"{name} must be more than 0, got {shown(value)}; None: {none}"
                    )
        for name in ("fleet", "replicas", "bad_replicas"):
            check_positive_int(name, getattr(self, name))
        check_positive_int("workers", self.workers)
        for name in ("first", "worker_calls", "threads"):
            if getattr(self, name) is not None:
                check_positive_int(name, getattr(self, name))
        if self.bad_replicas > self.replicas:
            raise ValueError(
                f"bad_replicas must be at most replicas ({self.replicas}), got {self.bad_replicas}"
            )
        if self.partial_failure not in PARTIAL_FAILURES:
            a_status("partial_failure", self.partial_failure)
        a_status("broken_status", self.broken_status)
        check_choice("balancing", self.balancing, BALANCING)
        if self.rejection != REFUSED:
            a_status("rejection", self.rejection)
        a_status("status", self.status)
        a_status("quota_status", self.quota_status)
        if self.trouble_every is not None and not self.trouble_every > self.trouble_for:
            raise ValueError(f"trouble_every must be more than trouble_for ({self.trouble_for:g})")
        check_bool("sticky", self.sticky)
        check_bool("quota_hint", self.quota_hint)
        check_choice("arrivals", self.arrivals, ARRIVALS)
        check_choice("trouble", self.trouble, TROUBLES)
        if self.retry_after is not None and self.retry_after != END:
            check_duration("retry_after", self.retry_after)
        if self.rejection_hint is not None:
            check_duration("rejection_hint", self.rejection_hint)
        if self.partial_failure == "hang" and self.timeout is None:
            raise ValueError("responses that never come need clients with a timeout: timeout=1")
        if self.trouble == "silent" and self.timeout is None:
            raise ValueError("a silent backend needs clients with a timeout: timeout=1")
        if self.trouble_ends_at > self.duration:
            raise ValueError(
                "the trouble must end before the calls do, to see what comes after it:"
                f" it ends at {self.trouble_ends_at:g} s, they at {self.duration:g} s"
            )
        if not 1 <= self.callers + self.workers <= MOST_CALLERS:
            raise ValueError(
                f"rate × duration + fleet + workers must be from 1 to {MOST_CALLERS:,} calls,"
                f" got {self.callers:,}"
            )

    @property
    def callers(self) -> int:
        """Calls in all, but for those of ``workers``."""
        return self.open_callers + self.fleet

    @property
    def open_callers(self) -> int:
        return round(self.rate * self.duration)

    @property
    def clients(self) -> int:
        """Client processes."""
        return 1 if self.client_rate is None else max(1, round(self.rate / self.client_rate))

    @property
    def trouble_ends_at(self) -> float:
        return self.trouble_at + self.trouble_for

    @property
    def room(self) -> float:
        """Work that may be there before the next attempt is rejected."""
        if self.capacity is None:
            return 0.0
        return max(1.0, (self.burst + self.queue) * self.capacity)

    def described(self) -> str:
        """Describe the scenario in three short lines."""
        return (
            f"Callers: {', '.join(self._describe_callers())}.\n"
            f"Server: {', '.join(self._describe_backend())}.\n"
            f"Fault: {', '.join(self._describe_troubles())}."
        )

    def _describe_callers(self) -> list[str]:
        kind = "evenly spaced" if self.arrivals == "even" else "at random"
        who = [f"{self.callers:,} calls: {self.rate:,.6g}/s {kind} for {self.duration:g} s"]
        if self.fleet:
            who.append(f"and {self.fleet:,} at once at {self.fleet_at:g} s")
        if self.workers:
            who.append(f"and {self.workers:,} in a loop with pauses of {self.pause:g} s")
        who.append(f"from {self.clients:,} client process{'es' if self.clients > 1 else ''}")
        if self.threads is not None:
            who.append(f"with {self.threads:,} threads")
        if self.frozen_for:
            who.append(f"frozen for {self.frozen_for:g} s from {self.frozen_at:g} s on")
        if self.timeout is not None:
            who.append(f"with a timeout of {self.timeout:g} s")
        return who

    def _describe_backend(self) -> list[str]:
        serves = [f"responds in {self.service_time * 1000:g} ms"]
        if self.capacity is None:
            serves.append("serves as many as come")
        else:
            times = f" ({self.capacity / self.rate:.3g} × arrivals)" if self.rate else ""
            serves.append(f"serves {self.capacity:,.6g}/s{times}")
        if self.queue:
            serves.append(f"queues {self.queue:g} s of work")
        if self.rejection_cost:
            serves.append(f"rejecting costs {self.rejection_cost:g} of serving")
        if self.thrash:
            serves.append(f"serving costs {1 + self.thrash:g} times as much when full")
        if self.quota is not None:
            serves.append(f"a quota of {self.quota:g} in {self.quota_window:g} s")
        if self.cold_for:
            serves.append(f"half capacity after the fault, all of it {self.cold_for:g} s later")
        return serves

    def _describe_troubles(self) -> list[str]:
        found = []
        failure = self.partial_failure
        fails = f"returns {failure}" if isinstance(failure, int) else PARTIAL_WORDS[failure]
        if self.flaky:
            found.append(f"{self.flaky:.3g} of the attempts: {fails}")
        if self.bad_replicas:
            found.append(
                f"{self.bad_replicas} of {self.replicas} replicas ({self.balancing}): {fails}"
            )
        if self.broken_share:
            found.append(
                f"a route with {self.broken_share:.3g} of the calls: returns {self.broken_status}"
            )
        if self.trouble_for or not found:
            when = f"from {self.trouble_at:g} s to {self.trouble_ends_at:g} s"
            if self.trouble_every is not None:
                when += f", and each {self.trouble_every:g} s again"
            found.append(f"{self._describe_trouble()} {when}")
        return found

    def _describe_trouble(self) -> str:
        who = ""
        if self.share < 1:
            who = f"{self.share:.3g} of the servers{' (sticky)' if self.sticky else ''}: "
        if self.first is not None:
            who = f"for the first {self.first} attempts of a process: "
        if self.trouble == "slow":
            times = self.slowdown
            slower = f", responds after {times:g} times as long" if times > 1 else ""
            return f"{who}serves at {self.speed:.0%} of its speed{slower}"
        if self.trouble != "down":
            return who + WORDS[self.trouble]
        if self.retry_after is None:
            return f"{who}returns {self.status}"
        asked = "the date of its end" if self.retry_after == END else f"{self.retry_after:g}"
        return f"{who}returns {self.status} and Retry-After: {asked}"


BOUNDS = (
    ("rate", 0, inf),
    ("rejection_cost", 0, inf),
    ("thrash", 0, inf),
    ("speed", 0, 1.0),
    ("share", 0, 1.0),
    ("slowdown", 1, inf),
    ("flaky", 0, 1.0),
    ("broken_share", 0, 1.0),
)
WORDS = {
    "refuse": "refuses connections",
    "reset": "resets connections",
    "hang": "does not respond, and resets what it holds at the end,",
    "silent": "never responds",
}
PARTIAL_WORDS = {
    "refused": "refuses connections", "reset": "resets connections", "hang": "never responds",
}  # fmt: skip


def check_positive_int(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} must be a whole number of at least 0, got {shown(value)}")


def a_status(name: str, value: object) -> None:
    if value not in range(400, 600):
        raise ValueError(f"{name} must be from 400 to 599, got {shown(value)}")
