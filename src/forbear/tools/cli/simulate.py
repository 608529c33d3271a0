"""``forbear simulate``: a fleet, an outage, virtual time, the real strategies. Floor: acts."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from importlib import import_module
from textwrap import fill
from typing import TextIO

from ..simulation.conditions import Condition
from ..simulation.contenders import (
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
from ..simulation.engine import simulate
from ..simulation.figures import NAMES, Figures, median_of
from ..simulation.latency import LATENCIES
from ..simulation.scenario import Scenario
from ..simulation.troubles import SCENARIOS
from . import complain, latencies, teach
from .tables import spoken

__all__ = ["add_arguments", "run"]

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


EXAMPLES = f"""\
examples:
  forbear simulate                                   the textbook experiment, all policies
  forbear simulate half-20s --policies none,httpx-retries,forbear-0,forbear --runs 5
  forbear simulate half-20s --world client_rate=5    by processes of five calls a second
  forbear simulate down-2s --plot storm.png          as pictures (with the extra 'plot')
  forbear simulate gather-100 --policies forbear     a hundred calls at once
  forbear simulate blip --world rate=100000 --policies forbear    a million calls
  forbear simulate half-2s --world 'trouble_for=1 rejection_cost=0.5 thrash=1'
  forbear simulate half-2s --custom 'max_attempts=3 base=1 jitter=decorrelated patience=3'
  forbear simulate blip --policies forbear --fail-if 'amplification>1.2' --fail-if 'success<98%'
  forbear simulate stragglers --hedge                how soon, at 10 to 90 % load, with Hedge()
  forbear simulate stragglers --hedge burst=10 --world 'load=0.3 calls=100000'

scenarios:
{listed({name: about for name, (_, about) in SCENARIOS.items()})}

scenarios in which answers take differently long, without retries; --hedge sends second attempts:
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
{wrapped(latencies.defaults(Scenario()))}

the same of stragglers, and of --hedge:
{wrapped(latencies.defaults(LATENCIES["stragglers"][0]))}
{wrapped([f"{name}=" for name in latencies.HEDGE])}

exit status: 0 done, 1 a --fail-if was true, 2 it could not be run.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    teach(parser, ABOUT, EXAMPLES)
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


def run(out: TextIO, options: argparse.Namespace) -> int:
    """Simulate what the arguments say, print it, return the exit status."""
    if options.scenario in LATENCIES:
        return latencies.run(out, options)
    try:
        scenario, contenders, conditions = planned(options)
        # Before the work is done: matplotlib may be missing.
        plot = None if options.plot is None else import_module("forbear.tools.simulation.plot")
    except (ValueError, TypeError, ImportError) as mistake:
        return complain("simulate", mistake)
    if not options.json:
        print(intro(scenario, options), file=out)
        print(line(HEADS), file=out, flush=True)
    results: list[Figures] = []
    for one in contenders:
        seeds = range(options.seed, options.seed + options.runs)
        results.append(median_of([simulate(scenario, one, seed=seed) for seed in seeds]))
        if not options.json:
            print(line(row(results[-1])), file=out, flush=True)
    if options.json:
        world, policies = asdict(scenario), [one.as_json() for one in results]
        how = {"scenario": options.scenario, "seed": options.seed, "runs": options.runs}
        report = {**how, "settings": world, "policies": policies}
        print(json.dumps(report, indent=1), file=out)
    if plot is not None:
        try:
            plot.draw(options.plot, scenario, results, title=f"forbear simulate {options.scenario}")
        except (OSError, ValueError) as error:
            return complain("simulate", f"cannot write {options.plot}: {error}")
    status = 0
    for condition in conditions:
        met = ", ".join(one.policy for one in results if condition.holds(one))
        if met:
            status = complain("simulate", f"{condition.text} is true of {met}", status=1)
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
    latencies.check_runs(options)
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


def intro(scenario: Scenario, options: argparse.Namespace) -> str:
    about = SCENARIOS[options.scenario][1]
    return f"{options.scenario}: {about}\n{scenario.told()}\n({latencies.seeds_told(options)})\n"


HEADS = (
    "policy", "attempts", "× rate", "success", "in 5 s", "in 1 s", "p99", "again", "held",
    "most", "failed because",
)  # fmt: skip


def row(figures: Figures) -> tuple[str, ...]:
    refusals = [f"{why} {count:,}" for why, count in figures.refusals.items() if count]
    return (
        figures.policy,
        f"{figures.amplification:.2f}",
        "-" if figures.peak_ratio is None else f"{figures.peak_ratio:.1f}",
        *(f"{share:.2%}" for share in (figures.success, figures.within_5s, figures.within_1s)),
        "-" if figures.p99 is None else spoken(figures.p99),
        recovery(figures),
        f"{figures.held:.2f} s",
        f"{figures.peak_held:,.0f}",
        ", ".join(refusals) or "-",
    )


def recovery(figures: Figures) -> str:
    """Seconds until it served normally again, or in how many of the runs it did."""
    if 0 < figures.never < figures.runs:
        return f"{figures.runs - figures.never} of {figures.runs}"
    return "never" if figures.never else f"{figures.recovered:.2f} s"


def line(cells: Sequence[str]) -> str:
    name, *numbers, last = cells
    return f"{name:14} {' '.join(number.rjust(8) for number in numbers)}  {last}"
