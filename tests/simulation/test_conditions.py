"""What --fail-if says."""

from dataclasses import replace
from math import inf

import pytest

from benchmarks.simulation import Scenario, contender, simulate
from benchmarks.simulation.figures import Condition

FIGURES = replace(
    simulate(Scenario(rate=50.0), contender("none")),
    amplification=1.2,
    success=0.98,
    p99=0.25,
    recovered=inf,
)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("amplification>1.2", False),
        ("amplification >= 1.2x", True),
        ("success < 99 %", True),
        ("success==0.98", True),
        ("p99>249ms", True),
        ("recovered==never", True),
        ("none: success<99%", True),
        ("full: success<99%", False),
    ],
)
def test_it_compares(text, holds):
    assert Condition(text).holds(FIGURES) is holds


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "'' is no comparison; write one like"),
        ("amplification", "'amplification' is no comparison"),
        ("speed>1", "there is no figure 'speed'; there are requests, amplification, peak"),
        ("p99>1s and success<1", "'1s and success<1' is no number"),
        ("amplification>fast", "'fast' is no number; write one like 1.2, 99%, 250ms, 3s or never"),
        ("amplification>__import__('os')", "is no number"),
    ],
)
def test_what_it_cannot_read_it_names(text, says):
    with pytest.raises(ValueError) as told:
        Condition(text)
    assert says in str(told.value)
