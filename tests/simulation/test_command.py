"""The simulator's command: what it prints, what it refuses, and with which exit status."""

import json
import re
import subprocess
import sys
from pathlib import Path

from benchmarks.simulation.__main__ import main

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


def test_fail_if_decides_the_exit_status(capsys):
    """The table is there either way; a mistake is told in a line and is status 2."""
    for given, status, told in (
        ("--fail-if amplification>1.2", 0, ""),
        ("--fail-if amplification>1.2 --fail-if success<99%", 1, "success<99% is true of none"),
        ("--world outage=2", 2, "'outage=2' is not one of rate=…, duration=…"),
        ("--policies none,ful", 2, "there is no policy 'ful'; choose among none, exponential"),
    ):
        found, out, err = simulate(capsys, *SMALL, *given.split())
        assert (found, err.count("\n")) == (status, status > 0), given
        assert err.startswith("simulation: " if status else "")
        assert told in err
        assert status == 2 or set(rows(out)) == {"none", "exponential"}


def test_it_runs_from_the_root_of_a_checkout_that_was_not_installed():
    """With nothing but the standard library; a reader that leaves, ``| head -1``, is no error."""
    command = [sys.executable, "-E", "-S", "-m", "benchmarks.simulation", "blip", *SMALL]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=Path(__file__).parents[2], **pipes) as process:
        assert process.stdout.readline().startswith("blip: ")
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=300) == 0
