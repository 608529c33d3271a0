"""``forbear simulate``: a fleet, an outage, virtual time, the real strategies. Floor: acts.

Reads the arguments, prints the table or JSON, has the pictures drawn. What is simulated is
simulation/'s.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, replace
from math import inf
from typing import TYPE_CHECKING, NamedTuple, TextIO

from ..simulation import CONTENDERS, SCENARIOS, contender, median_of, simulate
from ..simulation.conditions import Condition
from ..simulation.contenders import ADDITIONS, custom
from ..simulation.figures import NAMES
from .page import complain, teach

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..simulation import Contender, Figures, Scenario

__all__ = ["add_arguments", "run"]

FAILED = 1  # a --fail-if was true
MOST_RUNS = 10_000

EXAMPLES = f"""\
examples:
  forbear simulate                                   the textbook experiment, all policies
  forbear simulate metastable --policies none,full,full+budget,forbear
  forbear simulate metastable --plot storm.png       the same as pictures (pip install 'forbear[plot]')
  forbear simulate blip --callers 1000000 --policies forbear
  forbear simulate reload --runs 25                  medians over seeds 0 to 24
  forbear simulate metastable --callers 10000 --outage 2..3 --rejection-cost 0.5
  forbear simulate brownout --custom 'max_attempts=3 base=1 jitter=decorrelated ratio=0.1 burst=10'
  forbear simulate metastable --policies forbear --fail-if 'amplification>1.2' --fail-if 'success<98%'

scenarios:
{chr(10).join(f"  {name:22}  {about}" for name, (_, about) in SCENARIOS.items())}

policies, which --policies takes with commas between:
{chr(10).join(f"  {one.name:22}  {one.about}" for one in CONTENDERS.values())}
{chr(10).join(f"  NAME+{name:17}  the same under {about}" for name, (about, _) in ADDITIONS.items())}

figures, which --fail-if compares (>, >=, <, <=, ==, !=) with numbers such as 1.2, 99%, 250ms, 3s or never,
joined by "and" or "or"; of every policy, or "NAME: …" of one:
  {", ".join(NAMES)}

exit status: 0 done, 1 a --fail-if was true, 2 it could not be run.
"""

ABOUT = (
    "Let many callers meet a backend in trouble, on virtual time, and see what each retry policy makes of it. Every"
    " decision is made by the objects that the transports use. The same seed gives the same figures."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    teach(parser, ABOUT, EXAMPLES)
    parser.add_argument(
        "scenario", nargs="?", default="blip", metavar="SCENARIO", help="see below (blip)"
    )
    parser.add_argument("--policies", metavar="A,B", help="which to compare (all)")
    parser.add_argument(
        "--custom", action="append", default=[], metavar="SETTINGS", help="a policy of your own"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of all randomness (0)")
    parser.add_argument(
        "--runs", type=int, default=1, metavar="N", help="medians over N seeds, from --seed on (1)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--plot", metavar="FILE", help="draw pictures into FILE: .png, .svg or .pdf"
    )
    parser.add_argument(
        "--fail-if",
        action="append",
        default=[],
        metavar="CONDITION",
        help="end with status 1 if it is true",
    )
    world = parser.add_argument_group(
        "what the scenario's world is like, where it shall differ (durations: seconds)"
    )
    world.add_argument("--callers", type=int, metavar="N", help="calls in all, in the same time")
    world.add_argument(
        "--rate", type=float, metavar="R", help="calls per second; a capacity grows with it"
    )
    world.add_argument("--duration", type=float, metavar="S", help="how long calls begin")
    world.add_argument("--arrivals", metavar="HOW", help="even or poisson")
    world.add_argument("--fleet", metavar="N@T", help="N further calls at once, at second T")
    world.add_argument(
        "--callers-per-client",
        type=int,
        metavar="N",
        help="calls of one process with its own budget",
    )
    world.add_argument(
        "--timeout", type=float, metavar="S", help="after which a client gives an attempt up"
    )
    world.add_argument(
        "--capacity", metavar="C", help="attempts per second; 1.2x: times the rate; none"
    )
    world.add_argument(
        "--service-time", type=float, metavar="S", help="from an attempt to its answer"
    )
    world.add_argument(
        "--queue", type=float, metavar="S", help="seconds' worth of work that may wait"
    )
    world.add_argument(
        "--rejection-cost", type=float, metavar="X", help="work of rejecting, as a share of serving"
    )
    world.add_argument("--outage", metavar="A..B", help="seconds between which there is trouble")
    world.add_argument("--trouble", metavar="KIND", help="down, refuse, hang or slow")
    world.add_argument("--status", type=int, metavar="N", help="answered while down")
    world.add_argument(
        "--retry-after",
        metavar="S",
        help="told while down: seconds, or end for the date of the end",
    )
    world.add_argument(
        "--speed", type=float, metavar="X", help="while slow: share of the capacity left"
    )
    world.add_argument(
        "--slowdown", type=float, metavar="X", help="while slow: an answer takes X times as long"
    )


def run(out: TextIO, options: argparse.Namespace) -> int:
    """Simulate what the arguments say, print it, return the exit status."""
    try:
        plan = planned(options)
        draw = None if options.plot is None else drawing()
    except (ValueError, TypeError, ImportError) as mistake:
        return complain("simulate", mistake)
    if not options.json:
        print(intro(plan, options), file=out)
        print(heading(), file=out, flush=True)
    results: list[Figures] = []
    for one in plan.contenders:
        seeds = range(options.seed, options.seed + options.runs)
        figures = median_of([simulate(plan.scenario, one, seed=seed) for seed in seeds])
        results.append(figures)
        if not options.json:
            print(row(figures), file=out, flush=True)
    if options.json:
        print(as_json(plan, options, results), file=out)
    if draw is not None:
        try:
            draw(options.plot, plan.scenario, results, title=f"forbear simulate {options.scenario}")
        except (OSError, ValueError) as error:
            return complain("simulate", f"cannot write {options.plot}: {error}")
    broken = [(condition, condition.broken_by(results)) for condition in plan.conditions]
    for condition, policies in broken:
        if policies:
            print(
                f"forbear simulate: {condition.text} is true of {', '.join(policies)}",
                file=sys.stderr,
            )
    return FAILED if any(policies for _, policies in broken) else 0


def drawing() -> Callable[..., None]:
    from ..simulation.plot import (
        draw,
    )  # before the work is done, not after it, one learns that it is missing

    return draw


class Plan(NamedTuple):
    scenario: Scenario
    contenders: list[Contender]
    conditions: list[Condition]


def planned(options: argparse.Namespace) -> Plan:
    """What the arguments ask for.

    Raises:
        ValueError: One of them cannot be.
    """
    if options.scenario not in SCENARIOS:
        raise ValueError(
            f"there is no scenario {options.scenario!r}; choose among {', '.join(SCENARIOS)}"
        )
    if not 1 <= options.runs <= MOST_RUNS:
        raise ValueError(f"--runs must be from 1 to {MOST_RUNS}, got {options.runs}")
    if options.policies is not None:
        names = [name.strip() for name in options.policies.split(",") if name.strip()]
    else:
        names = list(CONTENDERS)
    contenders = [contender(name) for name in dict.fromkeys(names)] + [
        custom(text) for text in options.custom
    ]
    if not contenders:
        raise ValueError("--policies names none")
    names = [one.name for one in contenders]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"two policies are called {name!r}; give one of them a name: --custom 'NAME: …'"
            )
    conditions = [Condition(text) for text in options.fail_if]
    for condition in conditions:
        if condition.policy is not None and condition.policy not in names:
            raise ValueError(
                f"--fail-if names the policy {condition.policy!r}, which does not take part"
            )
    return Plan(changed(SCENARIOS[options.scenario][0], options), contenders, conditions)


SAME_NAMES = (
    "duration", "arrivals", "callers_per_client", "timeout", "service_time", "queue", "rejection_cost", "trouble",
    "status", "speed", "slowdown",
)  # fmt: skip


def changed(scenario: Scenario, options: argparse.Namespace) -> Scenario:
    """The scenario as the arguments change it."""
    changes = {name: value for name in SAME_NAMES if (value := getattr(options, name)) is not None}
    rate = options.rate
    if options.callers is not None:
        if options.callers < 1:
            raise ValueError(f"--callers must be at least 1, got {options.callers}")
        if rate is not None:
            raise ValueError("--callers and --rate say the same thing; give one of them")
        rate = options.callers / changes.get("duration", scenario.duration)
    if options.fleet is not None:
        changes["fleet"], changes["fleet_at"] = fleet(options.fleet)
    if options.outage is not None:
        changes["trouble_at"], changes["trouble_for"] = span(options.outage)
    if options.retry_after is not None:
        end = options.retry_after == "end"
        changes["retry_after"] = (
            "end" if end else a_number("--retry-after", options.retry_after, "seconds, or end")
        )
    if rate is not None:
        changes["rate"] = rate
        if scenario.capacity is not None and scenario.rate:
            changes["capacity"] = scenario.capacity / scenario.rate * rate
    if options.capacity is not None:
        times = options.capacity.endswith(("x", "×"))
        if options.capacity == "none":
            changes["capacity"] = None
        else:
            number = a_number("--capacity", options.capacity.rstrip("x×"), "a number, 1.2x or none")
            changes["capacity"] = number * (changes.get("rate", scenario.rate) if times else 1.0)
    return replace(scenario, **changes)


def a_number(option: str, text: str, wanted: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{option} must be {wanted}, got {text!r}") from None


def fleet(text: str) -> tuple[int, float]:
    number, _, at = text.partition("@")
    try:
        return int(number), float(at or 1.0)
    except ValueError:
        raise ValueError(
            f"--fleet must be like 1000@1.0: how many, and at which second; got {text!r}"
        ) from None


def span(text: str) -> tuple[float, float]:
    begin, dots, end = text.partition("..")
    wanted = f"--outage must be like 2..2.2: seconds at which it begins and ends; got {text!r}"
    if not dots:
        raise ValueError(wanted)
    try:
        begins_at, ends_at = float(begin), float(end)
    except ValueError:
        raise ValueError(wanted) from None
    if not 0 <= begins_at <= ends_at < inf:
        raise ValueError(wanted)
    # 2.2 - 2 is 0.2000…02: half a nanosecond late would be one more call in the trouble.
    return begins_at, round(ends_at - begins_at, 9)


def intro(plan: Plan, options: argparse.Namespace) -> str:
    runs = f"seed {options.seed}"
    if options.runs > 1:
        runs = f"medians of {options.runs} runs, seeds {options.seed} to {options.seed + options.runs - 1}"
    return (
        f"{options.scenario}: {SCENARIOS[options.scenario][1]}.\n{plan.scenario.told()}\n({runs})\n"
    )


def heading() -> str:
    return line(
        (
            "policy",
            "attempts",
            "peak/s",
            "× rate",
            "success",
            "p50",
            "p99",
            "recovered",
            "failed because",
        )
    )


def row(figures: Figures) -> str:
    ratio = "-" if figures.peak_ratio is None else f"{figures.peak_ratio:.1f}"
    refusals = ", ".join(
        f"{reason} {count:,}" for reason, count in figures.refusals.items() if count
    )
    return line(
        (
            figures.policy,
            f"{figures.amplification:.2f}",
            f"{figures.peak:,.0f}",
            ratio,
            f"{figures.success * 100:.2f} %",
            duration(figures.p50),
            duration(figures.p99),
            "never" if figures.recovered == inf else f"{figures.recovered:.2f} s",
            refusals or "-",
        )
    )


def line(cells: Sequence[str]) -> str:
    name, *numbers, last = cells
    widths = (8, 9, 7, 9, 8, 8, 9)
    middle = "  ".join(cell.rjust(width) for cell, width in zip(numbers, widths, strict=True))
    return f"{name:22}  {middle}  {last}".rstrip()


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def as_json(plan: Plan, options: argparse.Namespace, results: Sequence[Figures]) -> str:
    report = {
        "scenario": options.scenario,
        "settings": asdict(plan.scenario),
        "callers": plan.scenario.callers,
        "seed": options.seed,
        "runs": options.runs,
        "policies": [figures.as_json() for figures in results],
    }
    return json.dumps(report, indent=1)
