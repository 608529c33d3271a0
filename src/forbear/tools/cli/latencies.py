"""Latencies: ``forbear simulate stragglers``: how soon answers come, by load, hedged or not.

Floor: acts.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from importlib import import_module
from typing import Any, TextIO

from ...shared.hedge import Hedge
from ..simulation.contenders import settings
from ..simulation.latency import (
    LATENCIES,
    LOADS,
    Latencies,
    LatencyWorld,
    median_latencies,
    run_latencies,
)
from . import complain
from .tables import Page

__all__ = ["HEDGE", "check_runs", "defaults", "planned", "run", "seeds_told"]

HEDGE = ("quantile", "delay", "at_least", "ratio", "burst", "learn_from")
HEADS = (
    "load", "hedged", "p50", "p95", "p99", "p99.9", "mean", "extra", "won", "busy", "success",
)  # fmt: skip


def run(out: TextIO, options: argparse.Namespace) -> int:
    """Simulate what the arguments say, print it, return the exit status."""
    try:
        worlds, hedges = planned(options)
        plot = None if options.plot is None else import_module("forbear.tools.simulation.plot")
    except (ValueError, TypeError, ImportError) as mistake:
        return complain("simulate", mistake)
    if not options.json:
        about = LATENCIES[options.scenario][1]
        told = f"{options.scenario}: {about}\n{worlds[0].told()}\n({seeds_told(options)})\n"
        print(told, file=out, flush=True)
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
        Page(out).table(HEADS, [row(one) for one in results])
    if plot is not None:
        try:
            plot.draw_latencies(options.plot, results, title=f"forbear simulate {options.scenario}")
        except (OSError, ValueError) as error:
            return complain("simulate", f"cannot write {options.plot}: {error}")
    return 0


def planned(
    options: argparse.Namespace,
) -> tuple[list[LatencyWorld], list[Callable[[], Hedge] | None]]:
    """Return the worlds, one for each load, and who takes part: none, and a Hedge if it is wanted.

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


def row(found: Latencies) -> tuple[str, ...]:
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


def defaults(world: Any) -> list[str]:
    """The fields of a world as somebody would write them."""
    return [f"{name}={value}".lower() for name, value in asdict(world).items()]


def check_runs(options: argparse.Namespace) -> None:
    """Raise ValueError if there are too few or too many runs."""
    if not 1 <= options.runs <= 10_000:
        raise ValueError(f"--runs must be from 1 to 10000, got {options.runs}")


def seeds_told(options: argparse.Namespace) -> str:
    if options.runs == 1:
        return f"seed {options.seed}"
    last = options.seed + options.runs - 1
    return f"medians of {options.runs} runs, seeds {options.seed} to {last}"
