"""What retry policies make of 44 troubles of a fleet, and of programs on their own: one table.

    python benchmarks/overload.py [--runs N] [--jobs N] [--only NAME,…] [--out DIR] [--quick]
    python benchmarks/overload.py --acceptance [--only flaky,replicas,routes,lone,troubles]

Writes ``overload.md`` and the pictures beside it. Each trouble is met by processes of 50, 5 and 0.5
calls a second, 500 calls a second in all. All is virtual time and seeded: the same code gives the
same files on every machine. A whole run takes tens of minutes, a quick one a minute or two.
``--acceptance`` writes nothing: it prints each bound that the default must keep in the simulator
beside what is measured (status 1: one is missed), within ten minutes.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from math import inf
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

HERE = Path(__file__).parent
if find_spec("forbear") is None:  # a checkout that was not installed
    sys.path.insert(0, str(HERE.parent / "src"))

from _bounds import PARTS, check  # noqa: E402
from simulation import (  # noqa: E402 - which had to be found first
    LONE,
    PARTIAL,
    POOLS,
    SCENARIOS,
    SCRIPTS,
    SMALL,
    TROUBLES,
    Figures,
    contender,
    simulate,
)

NONE = "none"
OURS = ("forbear-0", "forbear-5", "forbear", "forbear-20")
OTHERS = ("budget", "aws-standard", "httpx-retries", "urllib3")
SHOWN = (*OURS, *OTHERS)
DENSITIES = (50.0, 5.0, 0.5)  # calls per second of one process
# These know nothing of other calls, so it is all one how many processes make them.
ALIKE = (NONE, "plain", "httpx-retries", "urllib3")
# But where the world itself knows processes, or what one of them has under way is shown.
SPARSE = ("stale-pool", "one-of-ten-sticky", *PARTIAL)
# Against partial failures and in closed loops plain retries are what is to be beaten.
BESIDE_PLAIN = (NONE, "plain", "forbear", "aws-standard", "httpx-retries", "urllib3")
RARE = 0.1  # a call in ten seconds
QUICK = (
    "reload", "down-2s", "half-2s", "half-5s-queue", "one-of-ten-502", "random-502-5%",
    "stale-pool", "quota-unhinted",
)  # fmt: skip
QUICK_PARTIAL = ("one-of-three-503",)
LONE_RUNS = 25  # of the programs on their own, which take a moment
PICTURES = {  # of processes of five calls a second
    "down-2s": (NONE, "httpx-retries", "aws-standard", "forbear"),
    "half-5s-queue": (NONE, "budget", "aws-standard", "forbear"),
}


class Run(NamedTuple):
    """One simulation to be made."""

    world: str
    policy: str
    density: float
    seed: int


class Numbers(NamedTuple):
    """What the tables show of it; whole figures would be much to carry between processes."""

    success: float
    within_5s: float
    within_1s: float
    held: float
    peak_held: float
    peak: float
    never: int
    requests: int
    mean: float  # seconds of all calls, failed ones too
    p95_of_all: float
    peak_busy: float
    healthy: float  # success of the calls to healthy routes
    p95: float | None  # seconds, of all calls; None: more than a twentieth was lost
    longest: float | None  # seconds until the last good answer; None: a call was lost


def made(run: Run) -> Numbers:
    scenario = SCENARIOS[run.world][0]
    if run.density:
        scenario = replace(scenario, client_rate=run.density)
    found = simulate(scenario, contender(run.policy), seed=run.seed)
    return Numbers(
        found.success, found.within_5s, found.within_1s, found.held, found.peak_held,
        found.peak_ratio or 0.0, found.never, found.requests, found.mean, found.p95,
        found.peak_busy, found.success if found.routes is None else found.routes.healthy_success,
        time_of(found, 0.95), time_of(found, 1.0),
    )  # fmt: skip


def time_of(found: Figures, share: float) -> float | None:
    return next((time for time, good in found.distribution if good >= share - 1e-9), None)


def main() -> int:
    options = arguments()
    if options.acceptance:
        parts = options.only.split(",") if options.only else PARTS
        return check(parts, options.policy, options.jobs)
    options.out.mkdir(parents=True, exist_ok=True)
    troubles = options.only.split(",") if options.only else list(TROUBLES)
    lone_runs = 2 if options.quick else LONE_RUNS
    wanted = dict.fromkeys(
        asked(world, policy, density, seed)
        for world in troubles
        for policy in (NONE, *SHOWN)
        for density in DENSITIES
        for seed in range(options.runs)
    ) | dict.fromkeys(
        Run(world, policy, 0.0, seed)
        for world in LONE
        for policy in (NONE, *SHOWN)
        for seed in range(lone_runs)
    )
    partial = QUICK_PARTIAL if options.quick else tuple(PARTIAL)
    wanted |= dict.fromkeys(
        asked(world, policy, density, seed)
        for world in partial
        for policy in BESIDE_PLAIN
        for density in (*DENSITIES, RARE)
        for seed in range(options.runs)
    ) | dict.fromkeys(
        Run(world, policy, 0.0, seed)
        for world in (*POOLS, *SCRIPTS, *SMALL)
        for policy in BESIDE_PLAIN
        for seed in range(options.runs)
    )
    found: dict[Run, Numbers] = {}
    with ProcessPoolExecutor(options.jobs) as pool:
        for number, (run, numbers) in enumerate(zip(wanted, pool.map(made, wanted), strict=True)):
            found[run] = numbers
            if number % 100 == 0:
                print(f"{number} of {len(wanted)} runs …", file=sys.stderr, flush=True)
    table = Table(found, troubles, options.runs)
    summary = table.summary()
    made_by = f"Made by `python benchmarks/overload.py --runs {options.runs}`."
    pages = [
        f"# Overload\n\n{made_by}\n\n{ABOUT}\n\n{summary}",
        *(table.page(density) for density in DENSITIES),
        table.costs(),
        lone(found, lone_runs),
        partial_failures(found, partial, options.runs),
        closed_loops(found, options.runs),
        WORLDS
        + "\n".join(
            f"- **{name}**: {SCENARIOS[name][1]}."
            for name in (*troubles, *LONE, *partial, *POOLS, *SCRIPTS, *SMALL)
        ),
    ]
    (options.out / "overload.md").write_text("\n\n".join(pages) + "\n", encoding="utf-8")
    if not options.quick:
        draw_pictures(options.out)
    print(summary)
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Simulate every trouble with every policy.")
    add = parser.add_argument
    add("--runs", type=int, default=3, metavar="N", help="paired seeds (3)")
    add("--jobs", type=int, default=os.cpu_count(), metavar="N", help="processes (all cores)")
    add("--only", metavar="A,B", help="troubles (all); with --acceptance: " + ", ".join(PARTS))
    add("--out", type=Path, default=HERE / "pictures", metavar="DIR", help="for the files")
    add("--quick", action="store_true", help="one seed, a few troubles, no pictures")
    add("--acceptance", action="store_true", help="print what the default must show, and is")
    add("--policy", default="forbear", metavar="NAME", help="of --acceptance (forbear)")
    options = parser.parse_args()
    if options.quick:
        options.runs, options.only = 1, options.only or ",".join(QUICK)
    return options


def asked(world: str, policy: str, density: float, seed: int) -> Run:
    """The run that answers this; several are one."""
    is_one = policy in ALIKE and world not in SPARSE
    return Run(world, policy, DENSITIES[0] if is_one else density, seed)


ABOUT = """\
500 calls a second to a backend with a fifth of capacity to spare, for which a rejection is 0.3 of
the work of an answer; 44 troubles, below. **Losses** and **gains** are sums over all of them of
what the policy changes in the share of calls that succeed, in points, against no retry: medians of
paired seeds. *within 1 s*: the same of the calls that were answered well within a second."""
WORLDS = "## The troubles, partial failures, and programs\n\n"


class Table:
    """The tables about the troubles of a fleet."""

    def __init__(self, found: dict[Run, Numbers], troubles: list[str], runs: int) -> None:
        self.found = found
        self.troubles = troubles
        self.seeds = range(runs)

    def numbers(self, world: str, policy: str, density: float) -> list[Numbers]:
        return [self.found[asked(world, policy, density, seed)] for seed in self.seeds]

    def points(self, world: str, policy: str, density: float, name: str = "success") -> float:
        """Points that the policy gains over no retry, median of paired seeds."""
        pairs = zip(
            self.numbers(world, policy, density), self.numbers(world, NONE, density), strict=True
        )
        return 100 * median(getattr(ours, name) - getattr(none, name) for ours, none in pairs)

    def sums(self, policy: str, density: float, name: str = "success") -> str:
        points = [self.points(world, policy, density, name) for world in self.troubles]
        losses, gains = sum(min(0, one) for one in points), sum(max(0, one) for one in points)
        return f"{losses:.1f} / {gains:+.1f}"

    def summary(self) -> str:
        """Losses and gains of every policy."""
        rows = []
        for policy in SHOWN:
            row = [policy]
            for density in DENSITIES:
                points = [self.points(world, policy, density) for world in self.troubles]
                row += [self.sums(policy, density), f"{min(points):+.1f}"]
            row.append(self.sums(policy, DENSITIES[0], "within_1s"))
            rows.append(row)
        head = ["policy"]
        for density in DENSITIES:
            head += [f"{density:g}/s: losses / gains", "worst"]
        return table([*head, f"within 1 s, {DENSITIES[0]:g}/s"], rows)

    def page(self, density: float) -> str:
        """Every trouble, at one density."""
        rows = []
        for world in self.troubles:
            none = mean(one.success for one in self.numbers(world, NONE, density))
            points = [f"{self.points(world, policy, density):+.2f}" for policy in SHOWN]
            rows.append([world, f"{none:.2%}", *points])
        rows.append(["losses / gains", "", *(self.sums(policy, density) for policy in SHOWN)])
        return (
            f"## Processes of {density:g} calls a second: success in the end, points against none\n"
            f"\n{table(['trouble', NONE, *SHOWN], rows)}"
        )

    def costs(self) -> str:
        """What it costs to gain so much: time, held calls, peaks."""
        pages = []
        for density in DENSITIES:
            rows = []
            for world in self.troubles:
                ours = self.numbers(world, "forbear", density)
                rows.append(
                    [
                        world,
                        f"{self.points(world, 'forbear', density, 'within_5s'):+.2f}",
                        f"{self.points(world, 'forbear', density, 'within_1s'):+.2f}",
                        f"{self.of(ours, 'held'):.2f} s",
                        f"{self.of(ours, 'peak_held'):,.0f}",
                        *(
                            f"{self.of(self.numbers(world, one, density), 'peak'):.2f} ×"
                            for one in (NONE, "forbear", *OTHERS)
                        ),
                        *(self.never(world, one, density) for one in (NONE, "forbear", *OTHERS)),
                    ]
                )
            shown = (NONE, "forbear", *OTHERS)
            head = [
                "trouble", "within 5 s", "within 1 s", "held a call", "most held",
                *(f"peak: {one}" for one in shown), *(f"never again: {one}" for one in shown),
            ]  # fmt: skip
            pages.append(f"### {density:g} calls a second\n\n{table(head, rows)}")
        return (
            "## What it costs\n\nPoints against none of calls answered well within 5 s and 1 s,"
            " seconds for which a call was held (mean of all calls) and most calls held by one"
            " process, all of `forbear`; attempts in the busiest 50 ms as a multiple of the calls,"
            " and runs in which normal service never came back before the calls ended.\n\n"
            + "\n\n".join(pages)
        )

    def of(self, numbers: list[Numbers], name: str) -> float:
        return median(getattr(one, name) for one in numbers)

    def never(self, world: str, policy: str, density: float) -> str:
        numbers = self.numbers(world, policy, density)
        return f"{sum(one.never for one in numbers)} of {len(numbers)}"


def lone(found: dict[Run, Numbers], runs: int) -> str:
    """Programs on their own: calls lost, and how long they took."""
    rows = []
    for world in LONE:
        row = [world]
        for policy in (NONE, *SHOWN):
            numbers = [found[Run(world, policy, 0.0, seed)] for seed in range(runs)]
            lost = 100 * (1 - mean(one.success for one in numbers))
            times = [spoken([one[place] for one in numbers]) for place in (-2, -1)]
            row.append(f"{lost:.3g} % / {times[0]} / {times[1]}")
        rows.append(row)
    return (
        f"## Programs on their own\n\nCalls lost, mean of {runs} runs; seconds until 95 % and until"
        f" all calls were answered well, medians; -: too many were lost.\n\n"
        f"{table(['program', NONE, *SHOWN], rows)}"
    )


CELLS = (
    "success / mean and 95th percentile of the seconds that all calls took, failed ones too / most"
    " calls under way at a time in one process, which is how many threads they would take"
)


def partial_failures(found: dict[Run, Numbers], worlds: Sequence[str], runs: int) -> str:
    """Flaky servers, bad replicas, broken routes: what the callers get, and how long they wait."""
    pages = []
    for density in (*DENSITIES, RARE):
        rows = []
        for world in worlds:
            row = [world]
            for policy in BESIDE_PLAIN:
                asked_for = (asked(world, policy, density, seed) for seed in range(runs))
                row.append(beside_success([found[one] for one in asked_for], "healthy"))
            rows.append(row)
        shown = table(["partial failure", *BESIDE_PLAIN], rows)
        pages.append(f"### {density:g} calls a second\n\n{shown}")
    return (
        f"## Partial failures\n\nMeans of {runs} runs: {CELLS}. Where a route is broken: success of"
        " the calls to the others.\n\n" + "\n\n".join(pages)
    )


def closed_loops(found: dict[Run, Numbers], runs: int) -> str:
    """Pools and scripts, where a call that waits keeps its worker."""
    rows = []
    for world in (*POOLS, *SCRIPTS, *SMALL):
        row = [world]
        for policy in BESIDE_PLAIN:
            numbers = [found[Run(world, policy, 0.0, seed)] for seed in range(runs)]
            calls = mean(one.requests for one in numbers)
            row.append(f"{calls:,.0f} / {beside_success(numbers, 'success')}")
        rows.append(row)
    return (
        f"## Thread pools and scripts\n\nCalls that were made / {CELLS}; means of {runs} runs.\n\n"
        f"{table(['program', *BESIDE_PLAIN], rows)}"
    )


def beside_success(numbers: Sequence[Numbers], name: str) -> str:
    success = mean(getattr(one, name) for one in numbers)
    times = [mean(one.mean for one in numbers), mean(one.p95_of_all for one in numbers)]
    busy = mean(one.peak_busy for one in numbers)
    return f"{success:.2%} / {' / '.join(f'{time:.2g} s' for time in times)} / {busy:,.0f}"


def spoken(times: Sequence[float | None]) -> str:
    middle = median(inf if time is None else time for time in times)
    return "-" if middle == inf else f"{middle:.2g} s"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *("---:" for _ in head[1:])], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def draw_pictures(out: Path) -> None:
    """One run of a few worlds, as ``python -m benchmarks.simulation NAME --plot`` draws it."""
    if find_spec("matplotlib") is None:
        print("no pictures: matplotlib is not installed", file=sys.stderr)
        return
    draw: Callable[..., None]
    from simulation.plot import draw

    for name, shown in PICTURES.items():
        print(f"{name}.png …", file=sys.stderr, flush=True)
        scenario = replace(SCENARIOS[name][0], client_rate=DENSITIES[1])
        results = [simulate(scenario, contender(one)) for one in shown]
        draw(str(out / f"{name}.png"), scenario, results, title=f"simulation: {name}")


if __name__ == "__main__":
    sys.exit(main())
