"""The simulator's command: a fleet, an outage, virtual time, the real strategies.

    python -m benchmarks.simulation --help

A scenario of latency.py shows how soon responses come, by load, hedged or not; any other shows the
figures of each policy. Exit status: 0 done, 1 a ``--fail-if`` was true, 2 it could not be run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from importlib import import_module
from textwrap import fill
from typing import Any, TextIO

from forbear.addons.hedge import Hedge
from forbear.cli import escaped, parser_of, run_to_status, spoken, table

from .contenders import (
    ADDITIONS,
    BUDGET,
    CONTENDERS,
    POLICY,
    SCHEDULE,
    Contender,
    contender,
    custom,
    settings,
)
from .engine import simulate
from .figures import NAMES, Condition, Figures, Routes, median_of
from .latency import LATENCIES, LOADS, Latencies, LatencyWorld, median_latencies, run_latencies
from .scenario import Scenario
from .troubles import SCENARIOS

COMMAND = "python -m benchmarks.simulation"
HEDGE = ("quantile", "delay", "at_least", "ratio", "burst", "learn_from")
FIELDS = tuple(field.name for field in fields(Scenario))
ABOUT = (
    "Let many callers meet a backend in trouble, on virtual time, and see what each retry policy"
    " makes of it. Every decision is made by the strategies that forbear ships. The same seed"
    " gives the same figures."
)


def listed(pairs: dict[str, str]) -> str:
    return "\n".join(f"  {name:22} {about}" for name, about in pairs.items())


def wrapped(words: list[str]) -> str:
    return fill(" ".join(words), 98, initial_indent="  ", subsequent_indent="  ")


def defaults(world: Any) -> list[str]:
    """Return the fields of a world as they are written on the command line."""
    return [f"{name}={value}".lower() for name, value in asdict(world).items()]


EXAMPLES = f"""\
examples, each after {COMMAND}:
  blip                                             the textbook experiment, all policies
  half-20s --policies none,httpx-retries,forbear-0,forbear --runs 5
  half-20s --world client_rate=5                   by processes of five calls a second
  one-of-three-503 --policies none,plain,forbear   one replica of three is bad
  down-2s --plot storm.png                         as pictures, by matplotlib
  gather-100 --policies forbear                    a hundred calls at once
  blip --world rate=100000 --policies forbear      a million calls
  half-2s --world 'trouble_for=1 rejection_cost=0.5 thrash=1'
  half-2s --custom 'max_attempts=3 base=1 jitter=decorrelated patience=3'
  blip --policies forbear --fail-if 'amplification>1.2' --fail-if 'success<98%'
  stragglers --hedge                               how soon, at 10 to 90 % load, with Hedge()
  stragglers --hedge burst=10 --world 'load=0.3 calls=100000'

scenarios:
{listed({name: about for name, (_, about) in SCENARIOS.items()})}

scenarios in which responses take differently long, without retries; --hedge adds hedged requests:
{listed({name: about for name, (_, about) in LATENCIES.items()})}

policies, which --policies takes with commas between:
{listed({one.name: one.about for one in CONTENDERS.values()})}
{listed({f"NAME+{name}": f"the same and {about}" for name, about in ADDITIONS.items()})}

figures, which --fail-if compares (>, >=, <, <=, ==, !=) with numbers such as 1.2, 99%, 250ms, 3s or
never; of every policy, or "NAME: …" of one:
{wrapped(list(NAMES))}

fields of --custom (base to jitter: of Exponential, ratio to hinted_cost: of RetryBudget, which it
has if one of them is given; gate=none: calls are not held):
{wrapped([*POLICY, *SCHEDULE, *BUDGET, "gate"])}

fields of --world, with what they are by default (durations: seconds):
{wrapped(defaults(Scenario()))}

the same of stragglers, and of --hedge:
{wrapped(defaults(LATENCIES["stragglers"][0]))}
{wrapped([f"{name}=" for name in HEDGE])}

exit status: 0 done, 1 a --fail-if was true, 2 it could not be run.
"""


def options_of(argv: Sequence[str] | None) -> argparse.Namespace:
    """What the arguments say."""
    parser = parser_of(COMMAND, ABOUT, EXAMPLES)
    add = parser.add_argument
    add("scenario", nargs="?", default="blip", metavar="SCENARIO", help="see below (blip)")
    add("--policies", metavar="A,B", help="which to compare (all)")
    add("--custom", action="append", default=[], metavar="FIELD=X …", help="a policy of your own")
    add("--world", default="", metavar="FIELD=X …", help="where the scenario is to differ")
    add("--hedge", nargs="?", const="", metavar="FIELD=X …", help="compare with second attempts")
    add("--seed", type=int, default=0, metavar="N", help="of all randomness (0)")
    add("--runs", type=int, default=1, metavar="N", help="medians over N seeds, from --seed on")
    add("--json", action="store_true", help="print JSON instead of a table")
    add("--plot", metavar="FILE", help="draw pictures into FILE: .png, .svg or .pdf")
    add("--fail-if", action="append", default=[], metavar="CONDITION", help="then status 1")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line, by default the process's own, and return its exit status."""
    return run_to_status(partial(start, argv))


def start(argv: Sequence[str] | None) -> int:
    options = options_of(argv)
    compare = compare_latencies if options.scenario in LATENCIES else compare_policies
    return compare(sys.stdout, options)


def complain(mistake: object, status: int = 2) -> int:
    """Say in one line what went wrong; return the exit status for it."""
    print(f"simulation: {escaped(str(mistake))}", file=sys.stderr)
    return status


def plotter(options: argparse.Namespace) -> Any:
    """The module that draws, if a picture is wanted; asked before the work is done, since
    matplotlib may be missing.
    """
    return None if options.plot is None else import_module(".plot", __package__)


def compare_policies(out: TextIO, options: argparse.Namespace) -> int:
    """Simulate what the arguments say, print what each policy made of it; the exit status."""
    try:
        scenario, contenders, conditions = planned(options)
        plot = plotter(options)
    except (ValueError, TypeError, ImportError) as mistake:
        return complain(mistake)
    if not options.json:
        print(intro(scenario, options), file=out)
        print(line(HEADS), file=out, flush=True)
    results: list[Figures] = []
    for one in contenders:
        seeds = range(options.seed, options.seed + options.runs)
        results.append(median_of([simulate(scenario, one, seed=seed) for seed in seeds]))
        if not options.json:
            print(line(row(results[-1], scenario)), file=out, flush=True)
    if options.json:
        world, policies = asdict(scenario), [one.as_json() for one in results]
        how = {"scenario": options.scenario, "seed": options.seed, "runs": options.runs}
        report = {**how, "settings": world, "policies": policies}
        print(json.dumps(report, indent=1), file=out)
    else:
        print(KEY, file=out)
        for found in results:
            if found.routes is not None:
                print(routes_line(found.policy, found.routes), file=out)
    if plot is not None:
        try:
            plot.draw(options.plot, scenario, results, title=f"simulation: {options.scenario}")
        except (OSError, ValueError) as error:
            return complain(f"cannot write {options.plot}: {error}")
    status = 0
    for condition in conditions:
        met = ", ".join(one.policy for one in results if condition.holds(one))
        if met:
            status = complain(f"{condition.text} is true of {met}", status=1)
    return status


def planned(options: argparse.Namespace) -> tuple[Scenario, list[Contender], list[Condition]]:
    """Return the scenario, the policies that take part, and the conditions of --fail-if.

    Raises:
        ValueError, TypeError: One of them cannot be.
    """
    if options.scenario not in SCENARIOS:
        known = ", ".join([*SCENARIOS, *LATENCIES])
        raise ValueError(f"there is no scenario {options.scenario!r}; choose among {known}")
    if options.hedge is not None:
        raise ValueError(f"--hedge is for {', '.join(LATENCIES)}; not for {options.scenario}")
    check_runs(options)
    given = list(CONTENDERS) if options.policies is None else options.policies.split(",")
    chosen = dict.fromkeys(name.strip() for name in given if name.strip())
    contenders = [*map(contender, chosen), *map(custom, options.custom)]
    names = [one.name for one in contenders]
    if not names:
        raise ValueError("--policies names none")
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"two policies are called {twice[0]!r}; name one: --custom 'NAME: …'")
    conditions = [Condition(text) for text in options.fail_if]
    for condition in conditions:
        if condition.policy not in (None, *names):
            raise ValueError(f"--fail-if: the policy {condition.policy!r} does not take part")
    scenario = replace(SCENARIOS[options.scenario][0], **settings(options.world, FIELDS))
    return scenario, contenders, conditions


def check_runs(options: argparse.Namespace) -> None:
    """Raise ValueError if there are too few or too many runs."""
    if not 1 <= options.runs <= 10_000:
        raise ValueError(f"--runs must be from 1 to 10000, got {options.runs}")


def seeds_of(options: argparse.Namespace) -> str:
    if options.runs == 1:
        return f"seed {options.seed}"
    last = options.seed + options.runs - 1
    return f"medians of {options.runs} runs, seeds {options.seed} to {last}"


def intro(scenario: Scenario, options: argparse.Namespace) -> str:
    about = SCENARIOS[options.scenario][1]
    return f"{options.scenario}: {about}\n{scenario.described()}\n({seeds_of(options)})\n"


HEADS = (
    "policy", "attempts", "× rate", "success", "in 5 s", "in 1 s", "p99", "mean*", "p95*", "again",
    "held", "busy", "failed because",
)  # fmt: skip
WIDTHS = (13, 8, 6, 7, 7, 7, 6, 7, 7, 7, 5, 5)
KEY = """
p99: of the calls that succeed; mean*, p95*: seconds that all calls took, failed ones too; held,
busy: most calls at a time of one process that the gate held, and that were under way (threads)"""


def row(figures: Figures, scenario: Scenario) -> tuple[str, ...]:
    refusals = [f"{why} {count:,}" for why, count in figures.refusals.items() if count]
    return (
        figures.policy,
        f"{figures.amplification:.2f}",
        "-" if figures.peak_ratio is None else f"{figures.peak_ratio:.1f}",
        *(f"{share:.2%}" for share in (figures.success, figures.within_5s, figures.within_1s)),
        "-" if figures.p99 is None else spoken(figures.p99),
        spoken(figures.mean),
        spoken(figures.p95),
        recovery(figures) if scenario.trouble_for else "-",
        f"{figures.peak_held:,.0f}",
        f"{figures.peak_busy:,.0f}",
        ", ".join(refusals) or "-",
    )


def routes_line(policy: str, routes: Routes) -> str:
    return (
        f"{policy}: of the calls to healthy routes {routes.healthy_success:.3%} succeed, after"
        f" {spoken(routes.healthy_mean)} in the mean; those to the broken one take"
        f" {spoken(routes.broken_mean)}"
    )


def recovery(figures: Figures) -> str:
    """Seconds until it served normally again, or in how many of the runs it did."""
    if 0 < figures.never < figures.runs:
        return f"{figures.runs - figures.never} of {figures.runs}"
    return "never" if figures.never else f"{figures.recovered:.2f} s"


def line(cells: Sequence[str]) -> str:
    *numbers, last = cells
    shown = [number.rjust(width) for number, width in zip(numbers, WIDTHS, strict=True)]
    shown[0] = numbers[0].ljust(WIDTHS[0])
    return f"{' '.join(shown)}  {last}"


# How soon responses come.

LATENCY_HEADS = (
    "load", "hedged", "p50", "p95", "p99", "p99.9", "mean", "extra", "won", "busy", "success",
)  # fmt: skip


def compare_latencies(out: TextIO, options: argparse.Namespace) -> int:
    """Simulate what the arguments say, print how soon responses came; the exit status."""
    try:
        worlds, hedges = planned_latencies(options)
        plot = plotter(options)
    except (ValueError, TypeError, ImportError) as mistake:
        return complain(mistake)
    if not options.json:
        about = LATENCIES[options.scenario][1]
        text = f"{options.scenario}: {about}\n{worlds[0].described()}\n({seeds_of(options)})\n"
        print(text, file=out, flush=True)
    seeds = range(options.seed, options.seed + options.runs)
    results = [
        median_latencies([run_latencies(world, hedge, seed=seed) for seed in seeds])
        for world in worlds
        for hedge in hedges
    ]
    if options.json:
        how = {"scenario": options.scenario, "seed": options.seed, "runs": options.runs}
        found = [one._asdict() for one in results]
        report = {**how, "settings": asdict(worlds[0]), "latencies": found}
        print(json.dumps(report, indent=1), file=out)
    else:
        table(LATENCY_HEADS, [latency_row(one) for one in results])
    if plot is not None:
        try:
            plot.draw_latencies(options.plot, results, title=f"simulation: {options.scenario}")
        except (OSError, ValueError) as error:
            return complain(f"cannot write {options.plot}: {error}")
    return 0


def planned_latencies(
    options: argparse.Namespace,
) -> tuple[list[LatencyWorld], list[Callable[[], Hedge] | None]]:
    """Return the worlds, one for each load, and the hedges: None, and a Hedge if it is wanted.

    Raises:
        ValueError, TypeError: One of them cannot be.
    """
    check_runs(options)
    if options.policies is not None or options.custom or options.fail_if:
        raise ValueError(
            f"{options.scenario} has no retries: --policies, --custom and --fail-if are for others"
        )
    world = LATENCIES[options.scenario][0]
    given = settings(options.world, tuple(asdict(world)))
    world = replace(world, **given)
    is_one = "load" in given or world.slow_for
    worlds = [world] if is_one else [replace(world, load=load) for load in LOADS]
    if options.hedge is None:
        return worlds, [None]
    hedge = partial(Hedge, **settings(options.hedge, HEDGE))
    hedge()  # so that a mistake shows now
    return worlds, [None, hedge]


def latency_row(found: Latencies) -> tuple[str, ...]:
    times = (found.p50, found.p95, found.p99, found.p999, found.mean)
    shares = (found.extra, found.won, found.busy, found.success)
    extra, won, busy, success = (f"{share:.1%}" for share in shares)
    return (
        f"{found.load:.0%}",
        "yes" if found.hedged else "no",
        *(f"{time * 1000:.1f} ms" for time in times),
        *((extra, won) if found.hedged else ("-", "-")),
        busy,
        success,
    )


if __name__ == "__main__":
    sys.exit(main())
