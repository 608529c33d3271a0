"""Simulation: many callers, one backend in trouble, virtual time, and the retry objects that are
shipped. Floor: acts.

| file | owns |
| --- | --- |
| scenario.py | what happens: arrivals, backend, trouble; the named scenarios |
| contenders.py | who retries: policies by name, each a policy and the strategy that a client would make of it |
| arrivals.py | when calls begin |
| backend.py | what an attempt meets: capacity, queue, trouble |
| engine.py | the loop over virtual time |
| tally.py | what is counted on the way, in memory that does not grow with callers |
| figures.py | what comes out, and medians over several runs |
| conditions.py | ``amplification>1.2`` |
| plot.py | pictures, by matplotlib |

Every decision is made by ``core.call.Call`` and a ``RetryStrategy``: what is simulated is the world
around them, not they. Standard library only, but for the pictures.
"""

from __future__ import annotations

from .contenders import CONTENDERS, Contender, contender
from .engine import simulate
from .figures import Figures, median_of
from .scenario import SCENARIOS, Scenario

__all__ = [
    "CONTENDERS",
    "SCENARIOS",
    "Contender",
    "Figures",
    "Scenario",
    "contender",
    "median_of",
    "simulate",
]
