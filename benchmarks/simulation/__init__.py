"""Simulation: many callers, one backend in trouble, virtual time, shipped strategies.

| file | owns |
| --- | --- |
| scenario.py | what happens: arrivals, backend, trouble |
| troubles.py | the named worlds: 44 troubles of a fleet, partial failures, pools, scripts |
| contenders.py | who retries: policies by name, each with the strategy of a client process |
| backend.py | what an attempt meets: capacity, queue, quota, trouble |
| engine.py | the loop over virtual time; when calls begin |
| tally.py | what is counted on the way, in memory that does not grow with callers |
| latency.py | a world of stragglers and hedged calls, with its own figures |
| figures.py | what comes out, medians over several runs, ``amplification>1.2`` |
| plot.py | pictures, by matplotlib |
| __main__.py | the command: ``python -m benchmarks.simulation`` |

Every decision is made by a ``RetryStrategy`` or a ``Hedge`` that forbear ships; only the world
around it is simulated. Standard library only, except for the pictures.
"""

from __future__ import annotations

from .contenders import CONTENDERS, Contender, contender
from .engine import simulate
from .figures import Figures, median_of
from .latency import LATENCIES, LOADS, Latencies, LatencyWorld, median_latencies, run_latencies
from .scenario import Scenario
from .troubles import LONE, PARTIAL, POOLS, SCENARIOS, SCRIPTS, SMALL, TROUBLES

__all__ = [
    "CONTENDERS",
    "LATENCIES",
    "LOADS",
    "LONE",
    "PARTIAL",
    "POOLS",
    "SCENARIOS",
    "SCRIPTS",
    "SMALL",
    "TROUBLES",
    "Contender",
    "Figures",
    "Latencies",
    "LatencyWorld",
    "Scenario",
    "contender",
    "median_latencies",
    "median_of",
    "run_latencies",
    "simulate",
]
