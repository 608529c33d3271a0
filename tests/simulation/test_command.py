"""The simulator's command: what it prints, what it refuses, and with which exit status."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.simulation import LATENCIES, contender
from benchmarks.simulation.__main__ import EXAMPLES, main, options_of, planned, planned_latencies
from benchmarks.simulation.contenders import custom
from forbear import RetryBudget, RetryPolicy
from forbear.limits.gate import RetryGate

SMALL = ("--policies", "none,exponential")


def simulate(capsys, *arguments):
    return main(arguments), *capsys.readouterr()


def rows(out):
    """The table, by policy; a unit stays with its number."""
    table = out.partition("\npolicy ")[2].partition("\n\n")[0].splitlines()[1:]
    cells = [re.sub(r"(?<=\d) (?=m?s )", "_", line).split(maxsplit=12) for line in table]
    return {name: found for name, *found in cells}


def test_the_table_holds_what_was_found(capsys):
    """500 calls a second for 10 s, of which 100 fail; 148 of them are sent again. All calls take 5
    ms, 100 of them 105 ms more, and 48 another 205 ms: 9.07 ms. The 100 wait at the same time,
    beside three that are answered within 5 ms. JSON holds the same, and the settings.
    """
    status, out, err = simulate(capsys, "blip", *SMALL)
    assert (status, err) == (0, "")
    assert re.match(r"blip: .*5,000 calls: 500/s.*returns 503 from 2 s to 2.2 s", out, re.DOTALL)
    none = "1.00 1.0 98.00% 98.00% 98.00% 5_ms 5_ms 5_ms 0.00_s 0 3 attempts-exhausted 100"
    exponential = "1.03 2.0 100.00% 100.00% 100.00% 0.11_s 9.07_ms 5_ms 0.00_s 0 103 -"
    found = {name: " ".join(cells) for name, cells in rows(out).items()}
    assert found == {"none": none, "exponential": exponential}
    assert max(map(len, out.splitlines())) <= 120
    status, out, err = simulate(capsys, "blip", *SMALL, "--json", "--seed", "7", "--runs", "3")
    assert (status, err) == (0, "")
    report = json.loads(out)
    assert (report["scenario"], report["seed"], report["runs"]) == ("blip", 7, 3)
    assert report["settings"]["trouble_for"] == 0.2
    none, exponential = report["policies"]
    assert (none["policy"], none["success"], none["last_retry"]) == ("none", 0.98, None)
    assert none["refusals"] == {"attempts-exhausted": 100}
    assert exponential["amplification"] == 5_148 / 5_000


@pytest.mark.parametrize(
    ("conditions", "status", "told"),
    [
        (["amplification>1.2"], 0, ""),
        (["amplification>1.2", "success<99%"], 1, "success<99% is true of none"),
        (["amplification>=1"], 1, "amplification>=1 is true of none, exponential"),
    ],
)
def test_fail_if_decides_the_exit_status(capsys, conditions, status, told):
    given = [word for condition in conditions for word in ("--fail-if", condition)]
    found, out, err = simulate(capsys, *SMALL, *given)
    assert found == status
    assert err == (f"simulation: {told}\n" if told else "")
    assert set(rows(out)) == {"none", "exponential"}  # the table is there either way


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("storm", "there is no scenario 'storm'; choose among blip, quota-reset, blip-503"),
        ("--policies none,ful", "there is no policy 'ful'; choose among none, exponential"),
        ("--world outage=2", "'outage=2' is not one of rate=…, duration=…"),
        ("stragglers --hedge ratio=2", "ratio must be above 0 and at most 1, got 2"),
        ("--plot storm.gif --policies none", "cannot write storm.gif: its name must end with"),
    ],
)
def test_a_mistake_is_told_in_a_line_and_is_status_2(capsys, arguments, says):
    status, _, err = simulate(capsys, *shlex.split(arguments))
    assert status == 2
    assert err.startswith("simulation: ")
    assert says in err
    assert err.count("\n") == 1


def test_every_example_of_the_help_can_be_typed():
    examples = EXAMPLES.partition("\n\n")[0].splitlines()[1:]
    assert len(examples) == 12
    for example in examples:
        options = options_of(shlex.split(re.split(r"   +", example.strip())[0]))
        plan = planned_latencies if options.scenario in LATENCIES else planned
        assert plan(options)[0] is not None


def test_it_runs_from_the_root_of_a_checkout_that_was_not_installed():
    """``python -m benchmarks.simulation``, with nothing but the standard library; a reader that
    leaves, as in ``… | head -1``, is no traceback.
    """
    command = [sys.executable, "-E", "-S", "-m", "benchmarks.simulation", "blip", *SMALL]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=Path(__file__).parents[2], **pipes) as process:
        assert process.stdout.readline().startswith("blip: ")
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=300) == 0


LITTLE = ("stragglers", "--hedge", "burst=5", "--world", "calls=500")


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("down-2s", *SMALL, "--world", "rate=50"), LITTLE])
def test_pictures_are_drawn(capsys, tmp_path, arguments):
    pytest.importorskip("matplotlib")
    assert simulate(capsys, *arguments, "--plot", str(tmp_path / "one.svg"))[0] == 0
    assert "<svg" in (tmp_path / "one.svg").read_text()


def budget_of(one):
    shared = [limit.shared for limit in one.limits(float).listed]
    return next((part for part in shared if isinstance(part, RetryBudget)), None)


def test_ours_are_the_defaults():
    for patience in (0.0, 5.0, 20.0):
        one = contender(f"forbear-{patience:g}")
        assert one.policy == RetryPolicy(patience=patience)
        assert type(one.limits(float).gate) is RetryGate
    plain, limited = contender("plain"), contender("budget")
    assert plain.policy == limited.policy == RetryPolicy()
    assert plain.limits(float).gate is limited.limits(float).gate is None
    assert (budget_of(plain), budget_of(limited).burst) == (None, RetryBudget().burst)


def test_a_policy_of_ones_own():
    """A setting that is left out is as by default."""
    one = custom("mine: max_attempts=3 base=1, cap=9 jitter=none ratio=0.2 burst=10 patience=3")
    backoff, budget = one.policy.backoff, budget_of(one)
    assert (one.name, one.policy.max_attempts, one.policy.patience) == ("mine", 3, 3.0)
    assert (backoff.base, backoff.cap, backoff.jitter) == (1, 9, "none")
    assert (budget.ratio, budget.burst) == (0.2, 10)
    plain = custom("jitter=0.2")
    assert (plain.name, plain.policy.patience, budget_of(plain)) == ("custom", 10.0, None)
