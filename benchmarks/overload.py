"""What retry policies make of an overloaded backend: every scenario, every policy, one command.

    python benchmarks/overload.py [--runs N] [--callers N] [--out DIR] [--quick]

Writes `overload.md`, which holds all tables and first of all the one that the README shows, and the
pictures beside it. All is virtual time and seeded: the same code gives the same files on every
machine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from math import inf
from pathlib import Path

HERE = Path(__file__).parent
if find_spec("forbear") is None:  # a checkout that was not installed
    sys.path.insert(0, str(HERE.parent / "src"))

from forbear.tools.simulation import (  # noqa: E402 - which had to be found first
    CONTENDERS,
    SCENARIOS,
    Contender,
    Figures,
    Scenario,
    contender,
    median_of,
    simulate,
)

# The README's rows. Beside those that stand for a library, each schedule with and without a budget.
SHOWN = (
    "none", "exponential", "equal", "full", "decorrelated", "urllib3", "smg", "aws", "full+budget",
    "forbear-without-budget", "forbear",
)  # fmt: skip
UNDER_A_BUDGET = ("exponential", "equal", "full", "decorrelated", "urllib3", "smg")
PICTURES = {
    "blip": ("none", "exponential", "equal", "full", "decorrelated", "aws", "forbear"),
    "metastable": ("none", "full", "full+budget", "forbear"),
    "brownout": ("none", "full", "aws", "forbear"),
    "quota-reset": ("none", "exponential", "full", "forbear"),
}
LONGEST = 5.0  # seconds of outage that are tried
TO_WITHIN = 0.025  # seconds
MORE = 4  # times the callers, for that: few of them may tip over by chance


def main() -> int:
    options = arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    pages = []
    found: dict[str, dict[str, Figures]] = {}
    for name in SCENARIOS:
        print(f"{name} …", file=sys.stderr, flush=True)
        scenario = scaled(SCENARIOS[name][0], options)
        names = [*CONTENDERS, *(f"{one}+budget" for one in UNDER_A_BUDGET), "forbear+breaker"]
        found[name] = {one: several(scenario, contender(one), options.runs) for one in names}
        pages.append(page(name, scenario, found[name]))
    print("tipping …", file=sys.stderr, flush=True)
    near = scaled(SCENARIOS["metastable"][0], options, MORE)
    tips = {
        name: tips_after(near, contender(name)) for name in SHOWN[: 1 if options.quick else None]
    }
    summary = table(
        (
            "policy",
            "blip: peak",
            "reload: peak",
            "metastable: attempts",
            "success",
            "served again",
            "tips over after",
        ),
        [
            (
                name,
                f"{found['blip'][name].peak_ratio:.2f} ×",
                f"{found['reload'][name].peak_ratio:.2f} ×",
                f"{found['metastable'][name].amplification:.2f}",
                f"{found['metastable'][name].success:.1%}",
                recovery(found["metastable"][name]),
                "-"
                if name not in tips
                else f"> {LONGEST:g} s"
                if tips[name] == inf
                else f"{tips[name]:.2f} s",
            )
            for name in SHOWN
        ],
    )
    text = (
        f"# Overload\n\nMade by `python benchmarks/overload.py`.\n\n{summary}\n\n"
        + "\n\n".join(pages)
        + "\n"
    )
    (options.out / "overload.md").write_text(text, encoding="utf-8")
    draw_pictures(options)
    print(summary)
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Simulate every scenario with every policy.")
    parser.add_argument(
        "--runs", type=int, default=25, metavar="N", help="seeds whose median is taken (25)"
    )
    parser.add_argument(
        "--callers", type=int, default=10_000, metavar="N", help="at most, in each scenario (10000)"
    )
    parser.add_argument(
        "--out", type=Path, default=HERE / "pictures", metavar="DIR", help="where the files go"
    )
    parser.add_argument("--quick", action="store_true", help="tiny: shows that everything runs")
    options = parser.parse_args()
    if options.quick:
        options.runs, options.callers = 1, 500
    return options


def scaled(scenario: Scenario, options: argparse.Namespace, more: int = 1) -> Scenario:
    """The same with fewer callers: what comes out hardly depends on their number, how long it takes
    does.
    """
    share = min(1.0, options.callers * more / scenario.callers)
    capacity = None if scenario.capacity is None else scenario.capacity * share
    return replace(scenario, rate=scenario.rate * share, capacity=capacity)


def several(scenario: Scenario, one: Contender, runs: int) -> Figures:
    return median_of([simulate(scenario, one, seed=seed) for seed in range(runs)])


def tips_after(scenario: Scenario, one: Contender) -> float:
    """The shortest outage after which it never recovers, to 25 ms; infinite if none up to 5 s does
    it.
    """

    def never(outage: float) -> bool:
        longer = replace(scenario, trouble_for=outage, duration=scenario.trouble_at + outage + 20.0)
        return simulate(longer, one).recovered == inf

    if not never(LONGEST):
        return inf
    recovers, tips = 0.0, LONGEST
    while tips - recovers > TO_WITHIN:
        between = (recovers + tips) / 2
        if never(between):
            tips = between
        else:
            recovers = between
    return tips


def page(name: str, scenario: Scenario, results: dict[str, Figures]) -> str:
    rows = [
        (
            one,
            f"{figures.amplification:.3f}",
            f"{figures.peak:,.0f}",
            f"{figures.peak_ratio:.2f}",
            f"{figures.success:.2%}",
            milliseconds(figures.p50),
            milliseconds(figures.p99),
            recovery(figures),
            ", ".join(f"{reason} {count:,}" for reason, count in figures.refusals.items() if count)
            or "-",
        )
        for one, figures in results.items()
    ]
    head = (
        "policy",
        "attempts",
        "peak/s",
        "× rate",
        "success",
        "p50",
        "p99",
        "served again",
        "failed because",
    )
    return f"## {name}\n\n{scenario.told()}\n\n{table(head, rows)}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *("---:" for _ in head[1:])], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def recovery(figures: Figures) -> str:
    return "never" if figures.recovered == inf else f"{figures.recovered:.2f} s"


def milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:,.0f} ms"


def draw_pictures(options: argparse.Namespace) -> None:
    """One run of each scenario in full, as ``forbear simulate NAME --plot`` draws it: many callers
    make calm lines.
    """
    if find_spec("matplotlib") is None:
        print("no pictures: matplotlib is not installed", file=sys.stderr)
        return
    from forbear.tools.simulation.plot import draw

    for name, shown in PICTURES.items():
        print(f"{name}.png …", file=sys.stderr, flush=True)
        scenario = scaled(SCENARIOS[name][0], options) if options.quick else SCENARIOS[name][0]
        results = [simulate(scenario, contender(one)) for one in shown]
        draw(str(options.out / f"{name}.png"), scenario, results, title=f"forbear simulate {name}")


if __name__ == "__main__":
    sys.exit(main())
