"""Concurrency: what ConcurrencyLimit finds of a server that does not say how much it allows.

    python -m benchmarks.concurrency

Virtual time, and the shipped class. Some tasks send one request after the other to a server that
allows so many in flight and answers any more with 429 at once. A throttled request is sent again
after up to 50 ms, as by default. The tables say which share of the requests was throttled, and how
much came through in comparison with the bulkhead that knows the number.

A third table is of simulated fleets (benchmarks/simulation): 500 calls a second of ten processes
through 2 or 20 s in which no response comes, with several values of LEAP and SILENCE. With LEAP=1
calls pile up in the queue and meet the server at one instant when it is back.

The last line is real CPU time: of an attempt that finds a slot free, has a good response and gives
the slot back, less that of an attempt with no limits. Of many short runs in turn the fastest tenth
counts, because what else the machine does adds to the others.
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from heapq import heappop, heappush
from itertools import count
from time import thread_time_ns
from typing import TYPE_CHECKING

from forbear.addons import concurrency
from forbear.addons.concurrency import ConcurrencyLimit, Slot
from forbear.core.call import Call
from forbear.core.policy import RetryPolicy
from forbear.core.request import Request
from forbear.engine.settings import limits_of
from forbear.limits.limits import Limits

from .simulation.contenders import contender
from .simulation.engine import simulate
from .simulation.troubles import SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Callable

ROUND_TRIP = 0.05  # seconds
REFUSED_IN = 0.002  # seconds until a 429 is there
Steps = list[tuple[float, int]]  # from an instant on, so many in flight are allowed


class Server:
    def __init__(self, steps: Steps, jitter: float, draw: random.Random) -> None:
        self.steps, self.jitter, self.draw = steps, jitter, draw
        self.in_flight = 0

    def allows(self, now: float) -> int:
        return [number for at, number in self.steps if at <= now][-1]

    def takes(self, now: float) -> float | None:
        """Seconds until the response, None for a 429."""
        if self.in_flight >= self.allows(now):
            return None
        self.in_flight += 1
        return ROUND_TRIP * (1 - self.jitter + 2 * self.jitter * self.draw.random())


class World:
    """Tasks that send ``requests`` in all, or until ``ends_at``."""

    def __init__(
        self, limit: ConcurrencyLimit, steps: Steps, *, tasks: int, requests: float,
        ends_at: float = float("inf"), jitter: float = 0.2, seed: int = 1,
    ) -> None:  # fmt: skip
        self.limit, self.tasks, self.requests, self.ends_at = limit, tasks, requests, ends_at
        self.draw = random.Random(seed)
        self.server = Server(steps, jitter, self.draw)
        self.now, self.sent, self.throttled, self.good = 1000.0, 0, 0, 0
        self.done: list[float] = []
        self.server.steps = [(1000.0 + at, number) for at, number in steps]
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()

    def at(self, seconds: float, what: Callable[[], None]) -> None:
        heappush(self._events, (self.now + seconds, next(self._number), what))

    def run(self) -> World:
        for _ in range(self.tasks):
            self.at(0.0, self.begin)
        while self._events and self.good < self.requests:
            at, _, what = heappop(self._events)
            if at - 1000.0 > self.ends_at:
                break
            self.now = at
            what()
        return self

    def begin(self) -> None:
        slot = Slot(self.limit, "", self.now)
        slot.wake = lambda: self.at(0.0, lambda: self.send(slot))
        if self.limit.enter(slot, "", self.now):
            self.send(slot)
        elif seconds := self.limit.ask(slot, self.now):
            self.at(seconds, lambda: self.ask(slot))

    def ask(self, slot: Slot) -> None:
        if slot.wake is not None and not self.limit.ask(slot, self.now):
            self.send(slot)

    def send(self, slot: Slot) -> None:
        if slot.wake is None:
            return
        slot.wake, sent_at = None, self.now
        self.sent += 1
        seconds = self.server.takes(self.now)
        if seconds is None:
            self.throttled += 1
            self.at(REFUSED_IN, lambda: self.refused(slot, sent_at))
        else:
            self.at(seconds, lambda: self.answered(slot, sent_at))

    def refused(self, slot: Slot, sent_at: float) -> None:
        self.limit.throttled(slot, sent_at, self.now)
        slot.free()
        self.at(0.05 * self.draw.random(), self.begin)

    def answered(self, slot: Slot, sent_at: float) -> None:
        self.server.in_flight -= 1
        self.good += 1
        self.done.append(self.now - 1000.0)
        if self.limit.adaptive:
            assert slot.scope is not None
            slot.scope.good(sent_at, self.now - sent_at, float("inf"))
        slot.free()
        self.begin()


def settled(steps: Steps, changes_at: float, most: int, seed: int = 1) -> tuple[float, float]:
    """Round trips after a change until five in a row reach 90 % of the capacity; share of 429s."""
    world = World(ConcurrencyLimit(), steps, tasks=200, requests=1e9, ends_at=changes_at + 5.0,
        seed=seed).run()  # fmt: skip
    trips = range(100)
    done = [0] * 105
    for at in world.done:
        if at >= changes_at:
            done[min(104, int((at - changes_at) / ROUND_TRIP))] += 1
    for trip in trips:
        if sum(done[trip : trip + 5]) >= 0.9 * 5 * most:
            return trip, world.throttled / world.sent
    return float("inf"), world.throttled / world.sent


def study() -> list[str]:
    lines = ["allowed  200 requests: 429s   throughput   3,000 requests: 429s   throughput"]
    for allowed in (3, 5, 7, 10, 15, 20, 40, 100):
        cells = []
        for requests in (200, 3000):
            shares, ratios = [], []
            for seed in range(10):
                known = ConcurrencyLimit(allowed, adaptive=False)
                best = World(known, [(0.0, allowed)], tasks=200, requests=requests, seed=seed).run()
                found = World(
                    ConcurrencyLimit(), [(0.0, allowed)], tasks=200, requests=requests, seed=seed
                ).run()
                shares.append(found.throttled / found.sent)
                ratios.append((best.now - 1000.0) / (found.now - 1000.0))
            cells += [f"{max(shares):.1%}", f"{min(ratios):.0%}"]
        lines.append(f"{allowed:7}  {cells[0]:>18} {cells[1]:>12} {cells[2]:>22} {cells[3]:>12}")
    lines.append("")
    lines.append("worst of ten: 429s of all requests, throughput of the bulkhead that knows")
    for text, steps, at, most in (
        ("from 20 to 5", [(0.0, 20), (5.0, 5)], 5.0, 5),
        ("back to 20", [(0.0, 20), (5.0, 5), (10.0, 20)], 10.0, 20),
    ):
        trips = [settled(steps, at, most, seed)[0] for seed in range(10)]
        lines.append(
            f"{text}: at 90 % again after {min(trips):.0f} to {max(trips):.0f} round trips"
        )
    return lines


def in_silence() -> list[str]:
    """Which share of the calls succeeds where nothing is answered for a while."""
    worlds = [
        replace(SCENARIOS[name][0], client_rate=50.0) for name in ("slow-2s", "blackhole-20s")
    ]
    lines = ["leap  after     slow-2s   blackhole-20s"]
    shipped = concurrency.LEAP, concurrency.SILENCE
    for leap, silence in ((1.0, 0.2), (1.25, 0.2), shipped, (1.5, 0.05), (2.0, 0.2)):
        concurrency.LEAP, concurrency.SILENCE = leap, silence
        found = [simulate(world, contender("forbear+slots")).success for world in worlds]
        lines.append(f"{leap:4}  {silence:4} s  {found[0]:10.2%} {found[1]:15.2%}")
    concurrency.LEAP, concurrency.SILENCE = shipped
    found = [simulate(world, contender("forbear")).success for world in worlds]
    return [*lines, f"without a limit  {found[0]:7.2%} {found[1]:15.2%}"]


LINES = (
    (b"Host", b"api.example.com"), (b"Accept", b"*/*"), (b"Accept-Encoding", b"gzip, deflate"),
    (b"Connection", b"keep-alive"), (b"User-Agent", b"python-httpx/0.28.1"),
    (b"Authorization", b"Bearer 0123456789abcdef0123456789abcdef"),
)  # fmt: skip


def attempts(limits: Limits, calls: int = 20) -> float:
    """Nanoseconds of an attempt's steps."""
    request, policy = Request("GET", "https://api.example.com:443", LINES), RetryPolicy()
    made = [Call(policy, request, limits, 1000.0, 5) for _ in range(calls)]
    began = thread_time_ns()
    for call in made:
        limits.admit(call, 1000.0)
        limits.observe(call, None, 1000.05)
        limits.leave(call, 1000.05)
    return (thread_time_ns() - began) / calls


def own_time(rounds: int = 5_000) -> dict[str, float]:
    """Microseconds of an attempt that finds a slot free, by what the scope is."""
    limits = {"": limits_of()} | {
        scope: limits_of(concurrency=ConcurrencyLimit(scope=scope))  # type: ignore[arg-type]
        for scope in ("origin", "credential")
    }
    taken: dict[str, list[float]] = {name: [] for name in limits}
    for _ in range(rounds):
        for name, one in limits.items():
            taken[name].append(attempts(one))
    quick = {name: sorted(found)[rounds // 10] for name, found in taken.items()}
    return {name: (quick[name] - quick[""]) / 1000 for name in limits if name}


if __name__ == "__main__":
    for name in sys.argv[1:]:  # SHRINK=0.5 RAMP=1: what other numbers would do
        key, _, value = name.partition("=")
        setattr(concurrency, key, float(value))
    print("\n".join([*study(), "", *in_silence(), ""]))
    found = ", ".join(f"{taken:.2f} µs by {name}" for name, taken in own_time().items())
    print(f"own CPU time of an attempt that need not wait: {found}")
