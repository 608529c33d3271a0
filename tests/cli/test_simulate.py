"""``forbear simulate``: what it prints, what it refuses, and with which exit status."""

import json
import re
import shlex
import sys

import pytest

from forbear.tools.cli import main
from forbear.tools.cli.simulate import EXAMPLES, add_arguments, planned
from forbear.tools.simulation import CONTENDERS, SCENARIOS

SMALL = ("--policies", "none,exponential")


def simulate(capsys, *arguments):
    status = main(["simulate", *arguments])
    out, err = capsys.readouterr()
    return status, out, err


def rows(out):
    """The table, by policy."""
    lines = out.splitlines()
    (head,) = [number for number, line in enumerate(lines) if line.startswith("policy ")]
    return {line.split()[0]: re.split(r"  +", line)[1:] for line in lines[head + 1 :]}


def test_the_table_holds_what_was_found(capsys):
    status, out, err = simulate(capsys, "blip", *SMALL)
    assert (status, err) == (0, "")
    assert out.startswith("blip: ")
    assert "5,000 calls: 500/s" in out
    assert "answers 503 from 2 s to 2.2 s" in out
    assert rows(out) == {
        "none": [
            "1.00",
            "500",
            "1.0",
            "98.00 %",
            "5 ms",
            "5 ms",
            "0.00 s",
            "attempts-exhausted 100",
        ],
        "exponential": ["1.03", "1,000", "2.0", "100.00 %", "5 ms", "110 ms", "0.00 s", "-"],
    }
    assert max(map(len, out.splitlines())) <= 120


def test_without_arguments_it_is_the_textbook_experiment_for_all(capsys):
    status, out, _ = simulate(capsys)
    assert status == 0
    assert list(rows(out)) == list(CONTENDERS)


def test_json_holds_the_same_and_the_settings(capsys):
    status, out, err = simulate(capsys, "blip", *SMALL, "--json", "--seed", "7")
    assert (status, err) == (0, "")
    report = json.loads(out)
    assert (report["scenario"], report["seed"], report["runs"], report["callers"]) == (
        "blip",
        7,
        1,
        5_000,
    )
    assert report["settings"]["trouble_for"] == 0.2
    none, exponential = report["policies"]
    assert none == {
        "policy": "none", "requests": 5_000, "amplification": 1.0, "peak": 500.0, "peak_ratio": 1.0, "success": 0.98,
        "p50": pytest.approx(0.005), "p99": pytest.approx(0.005), "recovered": 0.0, "last_retry": None,
        "refusals": {"attempts-exhausted": 100},
    }  # fmt: skip
    assert exponential["amplification"] == 5_148 / 5_000


def test_json_is_json_also_where_nothing_recovers(capsys):
    _, out, _ = simulate(
        capsys, "metastable", "--callers", "2000", "--policies", "smg", "--json", "--outage", "2..4"
    )
    report = json.loads(out, parse_constant=lambda name: pytest.fail(name))
    assert report["policies"][0]["recovered"] is None


def test_a_seed_prints_the_same_and_another_another(capsys):
    one, again, other = (
        simulate(capsys, "--policies", "full", "--seed", seed) for seed in ("1", "1", "2")
    )
    assert one == again
    assert rows(one[1]) != rows(other[1])


def test_medians_of_several_runs(capsys):
    _, out, _ = simulate(capsys, "--policies", "full", "--runs", "3", "--seed", "4", "--json")
    peaks = []
    for seed in ("4", "5", "6"):
        _, one, _ = simulate(capsys, "--policies", "full", "--seed", seed, "--json")
        peaks.append(json.loads(one)["policies"][0]["peak"])
    assert json.loads(out)["policies"][0]["peak"] == sorted(peaks)[1]
    _, out, _ = simulate(capsys, "--policies", "full", "--runs", "3", "--seed", "4")
    assert "(medians of 3 runs, seeds 4 to 6)" in out


@pytest.mark.parametrize(
    ("conditions", "status", "told"),
    [
        (["amplification>1.2"], 0, ""),
        (["amplification>1.02"], 1, "amplification>1.02 is true of exponential"),
        (["amplification>1.2", "success<99%"], 1, "success<99% is true of none"),
        (["exponential: success<99%"], 0, ""),
        (["amplification>=1"], 1, "amplification>=1 is true of none, exponential"),
    ],
)
def test_fail_if_decides_the_exit_status(capsys, conditions, status, told):
    given = [word for condition in conditions for word in ("--fail-if", condition)]
    found, out, err = simulate(capsys, *SMALL, *given)
    assert found == status
    assert err == (f"forbear simulate: {told}\n" if told else "")
    assert set(rows(out)) == {"none", "exponential"}  # the table is there either way


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["storm"],
            "there is no scenario 'storm'; choose among blip, reload, brownout, quota-reset, metastable",
        ),
        (["--policies", "none,ful"], "there is no policy 'ful'; choose among none, immediate"),
        (["--policies", ","], "--policies names none"),
        (["--runs", "0"], "--runs must be from 1 to 10000, got 0"),
        (["--fail-if", "speed>1"], "there is no figure 'speed'"),
        (
            ["--policies", "none", "--fail-if", "full: success<1"],
            "names the policy 'full', which does not take part",
        ),
        (["--custom", "retries=3"], "'retries=3' is not one of"),
        (
            ["--custom", "base=1", "--custom", "base=2"],
            "two policies are called 'custom'; give one of them a name",
        ),
        (["--custom", "none: base=1"], "two policies are called 'none'"),
        (["--callers", "0"], "--callers must be at least 1, got 0"),
        (["--callers", "-5"], "--callers must be at least 1, got -5"),
        (["--rate", "0"], "rate × duration + fleet must be from 1"),
        (
            ["--callers", "10", "--rate", "5"],
            "--callers and --rate say the same thing; give one of them",
        ),
        (["--fleet", "many"], "--fleet must be like 1000@1.0"),
        (["--outage", "2"], "--outage must be like 2..2.2"),
        (["--outage", "a..b"], "--outage must be like 2..2.2"),
        (["--outage", "3..2"], "--outage must be like 2..2.2"),
        (["--outage", "2..nan"], "--outage must be like 2..2.2"),
        (["--outage", "2..20"], "the trouble must end before the calls do"),
        (["--retry-after", "soon"], "--retry-after must be seconds, or end, got 'soon'"),
        (["--capacity", "much"], "--capacity must be a number, 1.2x or none, got 'much'"),
        (
            ["--trouble", "fire"],
            "trouble must be one of 'down', 'refuse', 'hang', 'slow', got 'fire'",
        ),
        (
            ["--plot", "storm.gif", "--policies", "none"],
            "cannot write storm.gif: its name must end with one of",
        ),
        (
            ["--plot", "/nowhere/storm.png", "--policies", "none"],
            "cannot write /nowhere/storm.png: ",
        ),
    ],
)
def test_a_mistake_is_told_in_a_line_and_is_status_2(capsys, arguments, says):
    status, _, err = simulate(capsys, *arguments)
    assert status == 2
    assert err.startswith("forbear simulate: ")
    assert says in err
    assert err.count("\n") == 1


def settings(*arguments):
    import argparse

    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return planned(parser.parse_args(arguments)).scenario


def test_what_a_scenario_is_like_can_be_changed():
    found = settings(
        "blip", "--rate", "100", "--duration", "20", "--arrivals", "poisson", "--fleet", "30@1.5", "--timeout", "0.5",
        "--callers-per-client", "50", "--capacity", "1.5x", "--service-time", "0.02", "--queue", "0.1",
        "--rejection-cost", "0.2", "--outage", "3..4.5", "--trouble", "slow", "--status", "429", "--speed", "0.25",
        "--slowdown", "4", "--retry-after", "2",
    )  # fmt: skip
    assert (found.rate, found.duration, found.arrivals, found.fleet, found.fleet_at) == (
        100,
        20,
        "poisson",
        30,
        1.5,
    )
    assert (found.timeout, found.callers_per_client, found.capacity) == (0.5, 50, 150)
    assert (found.service_time, found.queue, found.rejection_cost) == (0.02, 0.1, 0.2)
    assert (found.trouble_at, found.trouble_for, found.trouble) == (3, 1.5, "slow")
    assert (found.status, found.speed, found.slowdown, found.retry_after) == (429, 0.25, 4, 2)


def test_a_capacity_grows_with_the_callers_unless_it_is_given():
    assert settings("metastable", "--callers", "10000").capacity == pytest.approx(600.0)
    assert settings("metastable", "--rate", "500").callers == 10_000
    assert settings("metastable", "--callers", "10000", "--capacity", "700").capacity == 700.0
    assert settings("metastable", "--capacity", "none").capacity is None
    assert settings("metastable", "--capacity", "2x").capacity == 10_000.0
    assert settings("blip", "--callers", "1000000").rate == 100_000.0
    assert settings("blip", "--fleet", "9").fleet_at == 1.0
    assert settings("blip", "--retry-after", "end").retry_after == "end"
    assert settings("blip", "--outage", "2..2.2") == SCENARIOS["blip"][0]


def test_a_picture_is_drawn(capsys, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "blip.png"
    status, out, err = simulate(capsys, *SMALL, "--plot", str(path))
    assert (status, err) == (0, "")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert len(rows(out)) == 2


def test_without_matplotlib_it_says_what_to_install_before_it_simulates(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "forbear.tools.simulation.plot", raising=False)
    status, out, err = simulate(capsys, "--plot", "blip.png")
    assert (status, out) == (2, "")
    assert "pictures need matplotlib" in err
    assert "pip install 'forbear[plot]'" in err


def test_help_teaches(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["simulate", "--help"])
    assert stopped.value.code == 0
    out = capsys.readouterr().out
    for name in (*SCENARIOS, *CONTENDERS):
        assert f"\n  {name} " in out
    assert "exit status: 0 done, 1" in out


def test_every_example_of_the_help_can_be_typed():
    import argparse

    examples = [line for line in EXAMPLES.splitlines() if line.startswith("  forbear simulate")]
    assert len(examples) > 5
    for example in examples:
        words = shlex.split(re.split(r"   +", example.strip())[0])
        parser = argparse.ArgumentParser()
        add_arguments(parser)
        assert planned(parser.parse_args(words[2:])).contenders


def test_an_argument_that_does_not_exist_is_answered_with_the_usage(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["simulate", "--polices", "none"])
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith("usage: forbear ")
