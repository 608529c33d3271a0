"""What hedging is worth, by load: one table for each world, and a picture.

    python benchmarks/hedging.py [--runs N] [--calls N] [--jobs N] [--out DIR]

Writes ``hedging.md`` and ``hedging.svg``: figures of ``forbear simulate stragglers --hedge``.
All is virtual time and seeded: the same code gives the same files. A whole run takes some minutes.
"""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
if find_spec("forbear") is None:  # a checkout that was not installed
    sys.path.insert(0, str(HERE.parent / "src"))

from forbear import Hedge  # noqa: E402 - which had to be found first
from forbear.tools.simulation import (  # noqa: E402
    LATENCIES,
    LOADS,
    Latencies,
    LatencyWorld,
    median_latencies,
    run_latencies,
)

STRAGGLERS, ONE_DEAD, HALF = (world for world, _ in LATENCIES.values())
# Title, world, loads.
PARTS = (
    ("Servers go on with what was cancelled", STRAGGLERS, LOADS),
    ("Servers stop what was cancelled", replace(STRAGGLERS, stops=True), LOADS),
    ("The same as the first, 100 processes", replace(STRAGGLERS, clients=100), LOADS),
    ("One server of ten answers 503 in 1 ms", ONE_DEAD, (0.3, 0.6)),
    ("Half speed for 20 s", HALF, (HALF.load,)),
)
HEADS = (
    "load", "p50", "p95", "p99", "p99.9", "mean", "second attempts", "won", "workers busy",
    "success",
)  # fmt: skip
ABOUT = """\
Ten servers with four workers and a queue each; a balancer chooses a server at random. Work for an
answer: 20 ms (median of a log-normal distribution with sigma 0.5), for one of a hundred attempts
twenty times as long. Each cell has the figure without hedging and the one with `Hedge()`. Times are
milliseconds until the good answer, medians of paired seeds."""


def main() -> int:
    options = arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    wanted = [
        (replace(world, load=load, calls=options.calls), hedged, seed)
        for _, world, loads in PARTS
        for load in loads
        for hedged in (False, True)
        for seed in range(options.runs)
    ]
    with ProcessPoolExecutor(options.jobs) as pool:
        found = list(pool.map(made, wanted))
    medians = [
        median_latencies(found[place : place + options.runs])
        for place in range(0, len(found), options.runs)
    ]
    pages, rest = [f"# Hedging\n\nMade by `python benchmarks/hedging.py`.\n\n{ABOUT}"], medians
    for title, _, loads in PARTS:
        rows, rest = rest[: 2 * len(loads)], rest[2 * len(loads) :]
        pages.append(f"## {title}\n\n{table(rows)}")
    (options.out / "hedging.md").write_text("\n\n".join(pages) + "\n", encoding="utf-8")
    print(pages[1])
    if find_spec("matplotlib") is None:
        print("no picture: matplotlib is not installed", file=sys.stderr)
        return 0
    from forbear.tools.simulation.plot import draw_latencies

    draw_latencies(
        str(options.out / "hedging.svg"), medians[: 2 * len(LOADS)],
        title="forbear simulate stragglers --hedge",
    )  # fmt: skip
    return 0


def made(run: tuple[LatencyWorld, bool, int]) -> Latencies:
    world, hedged, seed = run
    return run_latencies(world, Hedge if hedged else None, seed=seed)


def table(rows: list[Latencies]) -> str:
    """Figures without and with hedging; two rows of one load are one line."""
    lines = [HEADS, ("---:",) * len(HEADS)]
    for none, hedged in zip(rows[::2], rows[1::2], strict=True):
        cells = [f"{none.load:.0%}"]
        for name in ("p50", "p95", "p99", "p999", "mean"):
            cells.append(f"{spoken(getattr(none, name))} → {spoken(getattr(hedged, name))}")
        cells += [f"{hedged.extra:.1%}", f"{hedged.won:.0%}"]
        for name in ("busy", "success"):
            cells.append(f"{getattr(none, name):.1%} → {getattr(hedged, name):.1%}")
        lines.append(tuple(cells))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def spoken(seconds: float) -> str:
    milliseconds = seconds * 1000
    return f"{milliseconds:.3g}" if milliseconds < 999.5 else f"{milliseconds:,.0f}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Simulate hedging at loads of 10 to 90 %.")
    add = parser.add_argument
    add("--runs", type=int, default=3, metavar="N", help="paired seeds (3)")
    add("--calls", type=int, default=100_000, metavar="N", help="in each run (100,000)")
    add("--jobs", type=int, default=os.cpu_count(), metavar="N", help="processes (all cores)")
    add("--out", type=Path, default=HERE / "pictures", metavar="DIR", help="for the files")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
