"""What --fail-if says."""

from dataclasses import replace
from math import inf

import pytest

from forbear.tools.simulation import Scenario, contender, simulate
from forbear.tools.simulation.conditions import Condition

FIGURES = replace(
    simulate(Scenario(), contender("none")),
    amplification=1.2,
    success=0.98,
    p99=0.25,
    recovered=inf,
    peak=1_000.0,
)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("amplification>1.2", False),
        ("amplification>=1.2", True),
        ("amplification >= 1.2x", True),
        ("amplification<=1.1", False),
        ("amplification!=1.2", False),
        ("success<98%", False),
        ("success < 99 %", True),
        ("success==0.98", True),
        ("p99>249ms", True),
        ("p99>0.25s", False),
        ("p99>.25", False),
        ("recovered==never", True),
        ("recovered>3s", True),
        ("peak>999.5", True),
        ("peak>2e3", False),
        ("amplification>1.1 and success<97%", False),
        ("amplification>1.1 and success<99%", True),
        ("amplification>9 or success<99%", True),
        ("amplification>9 and success<99% or p99>1ms", True),
        ("amplification>1.1 or success<1% and p99>1s", True),  # "and" binds closer
    ],
)
def test_it_compares(text, holds):
    assert Condition(text).holds(FIGURES) is holds


def test_it_is_about_every_policy_or_about_the_named_one():
    worse = replace(FIGURES, policy="worse", amplification=5.0)
    both = [FIGURES, worse]
    assert Condition("amplification>1.1").broken_by(both) == ["none", "worse"]
    assert Condition("amplification>2").broken_by(both) == ["worse"]
    assert Condition("none: amplification>2").broken_by(both) == []
    assert Condition("worse:amplification>2").broken_by(both) == ["worse"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "'' is no comparison; write one like"),
        ("amplification", "'amplification' is no comparison"),
        ("amplification>1.2 and", "'1.2 and' is no number"),
        ("speed>1", "there is no figure 'speed'; there are requests, amplification, peak"),
        ("1.2<amplification", "there is no figure '1.2'"),
        ("amplification>fast", "'fast' is no number; write one like 1.2, 99%, 250ms, 3s or never"),
        ("amplification>", "'' is no number"),
        ("amplification>nan", "'nan' is no number"),
        ("amplification>inf", "'inf' is no number"),
        ("amplification>__import__('os')", "is no number"),
        ("amplification=>2", "there is no figure 'amplification='"),
    ],
)
def test_what_it_cannot_read_it_names(text, says):
    with pytest.raises(ValueError) as told:
        Condition(text)
    assert says in str(told.value)
