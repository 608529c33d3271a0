"""What the default must show in the simulator: every bound beside what was measured.

Made by ``overload.py --acceptance``. Three seeds, at 50, 5 and 0.5 calls a second of one process.
A row that ends with MISSED is outside its bound; rows without a bound are shown for comparison.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from math import inf
from statistics import mean, median
from typing import NamedTuple, TypeAlias

from simulation import (
    LONE,
    POOLS,
    SCENARIOS,
    SCRIPTS,
    SMALL,
    TROUBLES,
    Scenario,
    contender,
    simulate,
)
from simulation.tally import BIN, bin_of

__all__ = ["PARTS", "check"]

PARTS = ("flaky", "replicas", "routes", "lone", "small", "troubles")
DENSITIES = (50.0, 5.0, 0.5)  # calls per second of one process
RARE = 0.1  # a call in ten seconds
SEEDS = range(3)
LONE_SEEDS = range(25)
SCRIPT_SEEDS = range(20)
MANY_SEEDS = range(40)
NONE, PLAIN, PEER = "none", "plain", "httpx-retries"
COLD = 200.0  # seconds from a cold start
FIRST = 15.0  # seconds: what a new process meets
MINUTE = 60.0
ROUTE_CALLS, ROUTE_PROCESSES = 40_000, 20

WORLDS: dict[str, Scenario] = {name: scenario for name, (scenario, _) in SCENARIOS.items()}
WORLDS |= {
    "flaky-0.3-600s": replace(WORLDS["flaky-0.3"], duration=600.0),
    "gather-20-3s": replace(WORLDS["gather-8-3s"], fleet=20),
    "gather-100-3s": replace(WORLDS["gather-8-3s"], fleet=100),
}


class Run(NamedTuple):
    """One simulation to be made."""

    world: str
    policy: str
    density: float | None
    seed: int


class Numbers(NamedTuple):
    """What the rows are made of."""

    requests: int
    success: float
    mean: float
    p95: float
    failed_mean: float
    in_timeouts: float  # seconds of the mean that attempts took which the client gave up
    peak_busy: float
    first: float  # success of the calls that began in the first 15 s
    half_minute: float  # and in the first 30 s
    minute: float
    later: float  # after the first 15 s
    tried: float  # from 15 to 90 s: a minute and a quarter after what a process cannot know
    cold: float  # in the first 200 s
    warm: float  # of the later ones
    begun_in_trouble: float  # success of the calls that began in the trouble
    attempts_in_trouble: float  # per call that began in it
    back: float  # seconds from the end of the trouble to the first good response; 0: no trouble
    healthy: float  # success of the calls to healthy routes
    healthy_p99: float
    healthy_mean: float
    broken_mean: float


def world_of(run: Run) -> Scenario:
    scenario = WORLDS[run.world]
    if run.density is None:
        return scenario
    if run.world.startswith("broken-route"):
        rate = ROUTE_PROCESSES * run.density
        scenario = replace(scenario, rate=rate, duration=ROUTE_CALLS / rate)
    return replace(scenario, client_rate=run.density)


def made(run: Run) -> Numbers:
    scenario = world_of(run)
    found = simulate(scenario, contender(run.policy), seed=run.seed)
    at, end = scenario.trouble_at, scenario.trouble_ends_at
    has_trouble = end > at and scenario.rate > 0
    routes = found.routes
    return Numbers(
        found.requests,
        found.success,
        found.mean,
        found.p95,
        found.failed_mean or 0.0,
        found.timeouts * (scenario.timeout or 0.0),
        found.peak_busy,
        found.success_between(0.0, FIRST),
        found.success_between(0.0, MINUTE / 2),
        found.success_between(0.0, MINUTE),
        found.success_between(FIRST, inf),
        found.success_between(FIRST, 1.5 * MINUTE),
        found.success_between(0.0, COLD),
        found.success_between(COLD, inf),
        found.success_between(at, end) if has_trouble else 1.0,
        found.attempts_between(at, end) if has_trouble else 0.0,
        back_after(found.served_per_bin, end) if has_trouble else 0.0,
        *((1.0, 0.0, 0.0, 0.0) if routes is None else (
            routes.healthy_success, routes.healthy_p99, routes.healthy_mean, routes.broken_mean,
        )),
    )  # fmt: skip


def back_after(served: Sequence[int], end: float) -> float:
    """Seconds from an instant to the 50 ms that have the first good response after it."""
    first = bin_of(end, BIN)
    return next((place * BIN for place, good in enumerate(served[first:]) if good), inf)


Found: TypeAlias = "dict[Run, Numbers]"


class Row(NamedTuple):
    """Measured values, one for each density or only one, and what they may be.

    Attributes:
        bounds: As many as values, or one for all; None: there is none.
        unit: Behind each value.
    """

    name: str
    values: Sequence[float]
    least: Sequence[float] | None = None
    most: Sequence[float] | None = None
    unit: str = " %"

    def is_missed(self) -> bool:
        least, most = self.least or (-inf,), self.most or (inf,)
        places = range(len(self.values))
        return any(
            not least[place % len(least)] <= round(self.values[place], 4) <= most[place % len(most)]
            for place in places
        )

    def told(self) -> str:
        values = " | ".join(f"{value:8.3f}" for value in self.values)
        bounds = [
            f"{word} {' | '.join(f'{one:g}' for one in bound if abs(one) < inf)}{self.unit}"
            for word, bound in (("at least", self.least), ("at most", self.most))
            if bound is not None
        ]
        missed = "   MISSED" if self.is_missed() else ""
        return f"  {self.name:50} {values:>30}{self.unit:3}  {', '.join(bounds)}{missed}"


def runs_of(world: str, policies: Sequence[str], densities: Sequence[float | None],
            seeds: Sequence[int] = SEEDS) -> Iterator[Run]:  # fmt: skip
    for policy in policies:
        for density in densities:
            for seed in seeds:
                yield Run(world, policy, density, seed)


class Part(NamedTuple):
    runs: Callable[[str], Iterator[Run]]
    rows: Callable[[str, Found], Iterator[Row]]


def averages(
    found: Found,
    world: str,
    policy: str,
    value: Callable[[Numbers], float],
    densities: Sequence[float | None] = DENSITIES,
    seeds: Sequence[int] = SEEDS,
) -> list[float]:
    return [
        mean(value(found[Run(world, policy, density, seed)]) for seed in seeds)
        for density in densities
    ]


def lost(numbers: Numbers) -> float:
    return 100 * (1 - numbers.success)


# Each attempt fails with p.

FLAKY = {"flaky-0.1": (0.1, 0.06), "flaky-0.2": (0.5, 0.12), "flaky-0.3-600s": (3.6, 0.4)}


def flaky_runs(policy: str) -> Iterator[Run]:
    for world in (*FLAKY, "flaky-0.5", "flaky-0.3-reset", "half-5s-flaky-0.1", "half-5s-flaky-0.2"):
        yield from runs_of(world, (NONE, PLAIN, policy), (*DENSITIES, RARE))
    yield from runs_of("script-flaky-0.3", (policy,), (None,), SCRIPT_SEEDS)


def flaky_rows(policy: str, found: Found) -> Iterator[Row]:
    for world, (most_lost, most_mean) in FLAKY.items():
        if world == "flaky-0.3-600s":
            cold = averages(found, world, policy, lambda one: 100 * (1 - one.cold))
            yield Row(f"{world}: lost in the first 200 s", cold, most=(most_lost,))
            warm = averages(found, world, policy, lambda one: 100 * (1 - one.warm))
            yield Row(f"{world}: lost after that", warm, most=(1.0,))
        else:
            yield Row(f"{world}: lost", averages(found, world, policy, lost), most=(most_lost,))
        means = averages(found, world, policy, lambda one: one.mean)
        yield Row(f"{world}: mean", means, most=(most_mean,), unit=" s")
    none = averages(found, "flaky-0.5", NONE, lost)
    ours = averages(found, "flaky-0.5", policy, lost)
    gained = [before - after for before, after in zip(none, ours, strict=True)]
    yield Row("flaky-0.5: points above no retries", gained, least=(12.0,), unit="")
    means = averages(found, "flaky-0.5", policy, lambda one: one.mean)
    yield Row("flaky-0.5: mean", means, most=(0.6, 0.6, inf), unit=" s")
    yield from compared("flaky-0.3-reset", policy, found)
    for share in (0.1, 0.2):
        yield from compared(f"half-5s-flaky-{share}", policy, found, with_none=True)
    rare = [f"flaky-{share}" for share in (0.1, 0.2, 0.5)]
    for world in rare:
        one = averages(found, world, policy, lost, (RARE,))
        seconds = averages(found, world, policy, lambda one: one.mean, (RARE,))
        yield Row(f"{world}, a call in ten seconds: lost", one)
        yield Row(f"{world}, a call in ten seconds: mean", seconds, unit=" s")
    script = averages(found, "script-flaky-0.3", policy, lost, (None,), SCRIPT_SEEDS)
    yield Row("a script of 600 calls, 0.3: lost", script, most=(1.0,))


def compared(world: str, policy: str, found: Found, *, with_none: bool = False) -> Iterator[Row]:
    """Rows without a bound: what is lost and how long it takes, by this policy and the others."""
    for name in (policy, *((NONE,) if with_none else ()), PLAIN):
        yield Row(f"{world}: lost, {name}", averages(found, world, name, lost))
    yield Row(f"{world}: mean", averages(found, world, policy, lambda one: one.mean), unit=" s")


# Bad replicas behind a load balancer that does not notice.

REPLICAS = {
    **{f"one-of-three-{failure}": (6.0, 0.6) for failure in (503, 500, 502, "refused")},
    "one-of-three-by-turns": (6.0, 0.6),
    "one-of-ten-replicas": (0.05, 0.6),
    "one-of-ten-hangs": (0.5, 0.6),
    "one-of-five-hangs": (5.0, 0.6),
    "one-of-three-hangs": (5.0, 0.7),
}
ONE_OF_TWO = ("one-of-two-by-turns", "one-of-two")
STICKY = "one-of-three-sticky"


def replica_runs(policy: str) -> Iterator[Run]:
    for world in (*REPLICAS, *ONE_OF_TWO, STICKY):
        yield from runs_of(world, (NONE, PLAIN, policy), DENSITIES)


def replica_rows(policy: str, found: Found) -> Iterator[Row]:
    for world, (most_lost, most_mean) in REPLICAS.items():
        yield Row(f"{world}: lost", averages(found, world, policy, lost), most=(most_lost,))
        means = averages(found, world, policy, lambda one: one.mean - one.in_timeouts)
        beyond = " beyond timeouts" if "hangs" in world else ""
        yield Row(f"{world}: mean{beyond}", means, most=(most_mean,), unit=" s")
        if most_lost == 6.0:
            first = averages(found, world, policy, lambda one: 100 * (1 - one.first))
            yield Row(f"{world}: lost in the first 15 s", first)
    for world in ONE_OF_TWO:
        yield from compared(world, policy, found, with_none=True)
    waits = averages(found, STICKY, policy, lambda one: one.failed_mean)
    yield Row(f"{STICKY}: mean wait of who fails", waits, most=(6.0,), unit=" s")
    yield from compared(STICKY, policy, found, with_none=True)


# One broken route.

ROUTES = {"broken-route-5%": 0.05, "broken-route-20%": 0.25}


def route_runs(policy: str) -> Iterator[Run]:
    for world in ROUTES:
        yield from runs_of(world, (PLAIN, policy), DENSITIES)


def route_rows(policy: str, found: Found) -> Iterator[Row]:
    for world, most_lost in ROUTES.items():
        healthy = averages(found, world, policy, lambda one: 100 * (1 - one.healthy))
        yield Row(f"{world}: healthy calls lost", healthy, most=(most_lost,))
        p99 = averages(found, world, policy, lambda one: one.healthy_p99)
        plain = averages(found, world, PLAIN, lambda one: one.healthy_p99)
        times = [ours / theirs for ours, theirs in zip(p99, plain, strict=True)]
        yield Row(f"{world}: healthy p99, times plain's", times, most=(1.2,), unit=" ×")
        for name in (policy, PLAIN):
            healthy = averages(found, world, name, lambda one: 1000 * one.healthy_mean)
            yield Row(f"{world}: mean of healthy calls, {name}", healthy, unit=" ms")
        for name in (policy, PLAIN):
            broken = averages(found, world, name, lambda one: one.broken_mean)
            yield Row(f"{world}: mean of broken calls, {name}", broken, unit=" s")


# Programs on their own.

GATHERS = {
    **dict.fromkeys(("gather-20", "gather-100", "gather-1000"), 3.3),
    **{f"gather-{fleet}-{seconds}s": 8.6 for seconds in (3, 5) for fleet in (8, 20, 100)},
}
SINGLE = ("single-503", "single-reset")
GONE = ("gone-3s", "gone-8s")


def lone_runs(policy: str) -> Iterator[Run]:
    for world in (*GATHERS, *LONE):
        yield from runs_of(world, (policy,), (None,), LONE_SEEDS)
    for world in (*SCRIPTS, *POOLS):
        yield from runs_of(world, (NONE, PLAIN, policy), (None,))


def lone_rows(policy: str, found: Found) -> Iterator[Row]:
    def of(world: str, seeds: Sequence[int] = LONE_SEEDS, name: str = policy) -> list[Numbers]:
        return [found[Run(world, name, None, seed)] for seed in seeds]

    for world, most in GATHERS.items():
        runs = of(world)
        yield Row(f"{world}: lost", [mean(map(lost, runs))], most=(0.0,))
        yield Row(f"{world}: p95", [median(one.p95 for one in runs)], most=(most,), unit=" s")
    for world in SINGLE:
        yield Row(f"{world}: longest", [max(one.p95 for one in of(world))], most=(0.1,), unit=" s")
    for world in LONE:
        if world not in GATHERS and world not in SINGLE:
            yield Row(f"{world}: lost", [mean(map(lost, of(world)))])
    in_all = 10 * mean(one.mean for one in of("script-dead-10", SEEDS))
    yield Row("ten calls to a dead server, in all", [in_all], most=(20.0,), unit=" s")
    others = (policy, NONE, PLAIN)
    for world in GONE:
        for name in others:
            begun = 100 * mean(one.begun_in_trouble for one in of(world, SEEDS, name))
            yield Row(f"{world}: success of calls begun in it, {name}", [begun])
    for world in POOLS:
        for name in others:
            runs = of(world, SEEDS, name)
            yield Row(f"{world}: lost, {name}", [mean(map(lost, runs))])
            yield Row(f"{world}: calls, {name}", [mean(one.requests for one in runs)], unit="")


# Where small services live, beside plain retries and httpx-retries.

TWO = ("one-of-two", "one-of-two-by-turns")
RATES = (50.0, 10.0, 5.0, 0.5)  # calls per second of one process
LIMITED = ("script-429", "script-503")
BRIEF = tuple(world for world in SMALL if world.startswith("script-one"))
BESIDE = (PLAIN, PEER)


def small_runs(policy: str) -> Iterator[Run]:
    for world in TWO:
        yield from runs_of(world, (policy, *BESIDE), RATES)
        yield from runs_of(world, (policy,), (50.0,), MANY_SEEDS)
    for world in ("one-of-three-503", "one-of-three-hangs"):
        yield from runs_of(world, (policy, *BESIDE), RATES)
    for world in SMALL:
        yield from runs_of(world, (policy, *BESIDE), (None,), LONE_SEEDS)


def small_rows(policy: str, found: Found) -> Iterator[Row]:
    def rows(what: str, world: str, value: Callable[[Numbers], float], unit: str = " %",
             least: Sequence[float] | None = None, most: Sequence[float] | None = None,
             rates: Sequence[float | None] = RATES,
             seeds: Sequence[int] = SEEDS) -> Iterator[Row]:  # fmt: skip
        ours = averages(found, world, policy, value, rates, seeds)
        yield Row(f"{world}: {what}", ours, least, most, unit)
        for name in BESIDE:
            theirs = averages(found, world, name, value, rates, seeds)
            yield Row(f"{world}: {what}, {name}", theirs, unit=unit)

    yield Row("Here processes of so many calls a second:", RATES, unit="")
    for world in TWO:
        lost_first, lost_later = (15.0, 15.0, inf, inf), (6.0, 6.0, inf, inf)
        yield from rows("lost in 15 s", world, lambda one: 100 * (1 - one.first))
        yield from rows(
            "lost in the first minute", world, lambda one: 100 * (1 - one.minute), most=lost_first
        )
        yield from rows(
            "lost after 15 s", world, lambda one: 100 * (1 - one.later), most=lost_later
        )
        yield from rows("mean", world, lambda one: one.mean, " s")
        many = [found[Run(world, policy, 50.0, seed)].tried for seed in MANY_SEEDS]
        bad = 100 * mean(one < 0.85 for one in many)
        yield Row(f"{world}: runs below 85 % from 15 to 90 s, 50/s", [bad], most=(5.0,))
        yield Row(f"{world}: the worst of {len(many)} runs", [100 * min(many)])
    yield from rows(
        "lost in 30 s", "one-of-three-503", lambda one: 100 * (1 - one.half_minute),
        most=(1.6, 3.2, inf, 5.5),
    )  # fmt: skip
    yield from rows(
        "lost in the first minute", "one-of-three-hangs", lambda one: 100 * (1 - one.minute),
        most=(5.0,),
    )  # fmt: skip
    for world in SMALL:
        most = (0.0,) if world in (*LIMITED, "frozen") else None
        yield from rows("lost", world, lost, most=most, rates=(None,), seeds=LONE_SEEDS)
        if world in (*LIMITED, *BRIEF):
            seconds = f"seconds of {WORLDS[world].worker_calls} calls"
            yield from rows(
                seconds, world, lambda one: one.mean * one.requests, " s",
                rates=(None,), seeds=LONE_SEEDS,
            )  # fmt: skip
        else:
            for what, value in (("mean", lambda one: one.mean), ("p95", lambda one: one.p95)):
                yield from rows(what, world, value, " s", rates=(None,), seeds=LONE_SEEDS)
        if "gone" in world:
            bound = (1.0,) if world == "threads-8-gone-1s" else None
            yield from rows(
                "first good response", world, lambda one: one.back, " s", most=bound,
                rates=(None,), seeds=LONE_SEEDS,
            )  # fmt: skip


# 44 troubles of a whole server.


def trouble_runs(policy: str) -> Iterator[Run]:
    for world in TROUBLES:
        yield from runs_of(world, (NONE, policy), DENSITIES)


def trouble_rows(policy: str, found: Found) -> Iterator[Row]:
    losses, gains, worst, names = [], [], [], []
    for density in DENSITIES:
        points = {world: gained(found, world, policy, density) for world in TROUBLES}
        losses.append(sum(min(0.0, one) for one in points.values()))
        gains.append(sum(max(0.0, one) for one in points.values()))
        names.append(min(points, key=points.__getitem__))
        worst.append(points[names[-1]])
    yield Row("44 troubles: losses", losses, least=(-15.0, -12.0, -48.0), unit="")
    yield Row("44 troubles: gains", gains, least=(129.0, 130.0, 160.0), unit="")
    yield Row(f"worst: {', '.join(names)}", worst, least=(-5.5, -5.5, -18.0), unit="")
    attempts = averages(found, "down-20s", policy, lambda one: one.attempts_in_trouble)
    yield Row("down-20s: attempts per call", attempts, most=(1.02, 1.05, 1.3), unit="")


def gained(found: Found, world: str, policy: str, density: float) -> float:
    """Points of success over no retry, median of paired seeds."""
    return 100 * median(
        found[Run(world, policy, density, seed)].success
        - found[Run(world, NONE, density, seed)].success
        for seed in SEEDS
    )


ALL = {
    "flaky": Part(flaky_runs, flaky_rows),
    "replicas": Part(replica_runs, replica_rows),
    "routes": Part(route_runs, route_rows),
    "lone": Part(lone_runs, lone_rows),
    "small": Part(small_runs, small_rows),
    "troubles": Part(trouble_runs, trouble_rows),
}


def check(parts: Sequence[str], policy: str, jobs: int | None) -> int:
    """Print the rows of these parts; return 1 if one is outside its bound."""
    if unknown := [name for name in parts if name not in ALL]:
        print(f"there is no part {unknown[0]!r}; there are {', '.join(ALL)}", file=sys.stderr)
        return 2
    missed = 0
    print(f"{policy}, at 50 | 5 | 0.5 calls a second of one process; means of {len(SEEDS)} seeds")
    with ProcessPoolExecutor(jobs) as pool:
        for name in parts:
            runs = list(dict.fromkeys(ALL[name].runs(policy)))
            found = dict(zip(runs, pool.map(made, runs, chunksize=4), strict=True))
            print(f"\n{name}")
            for row in ALL[name].rows(policy, found):
                print(row.told(), flush=True)
                missed += row.is_missed()
    print(f"\n{missed} rows outside their bounds")
    return int(missed > 0)
