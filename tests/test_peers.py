"""The comparison with other libraries: the command prints what the documentation shows."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import forbear

ROOT = Path(__file__).parent.parent
PEERS = ROOT / "benchmarks" / "peers.py"
# Lengths of time, and what depends on one, differ from run to run: their beginnings are compared.
ABOUT = {
    "a limit of 0.5 s for the whole call": 4,
    "requests for 100 calls in an outage": 1,
    "`Retry-After: 3600`": 18,
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not PEERS.exists(), reason="benchmarks/ is not part of an installed package"
    ),
]


@pytest.fixture(scope="module")
def seen():
    """What was seen of each library."""
    source = str(Path(forbear.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, str(PEERS), "--json"],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")]),
        },
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    return {
        peer: {probe: cells[at] for probe, cells in report["rows"].items()}
        for at, peer in enumerate(report["peers"])
    }


@pytest.fixture(scope="module")
def shown():
    """The same, as the documentation's table has it."""
    page = (ROOT / "docs" / "compared.md").read_text(encoding="utf-8")
    lines = page.partition("\n## ")[0].splitlines()
    head, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if line.startswith("|")
    ]
    return {peer: {row[0]: row[at] for row in rows} for at, peer in enumerate(head) if peer}


def test_the_page_shows_what_is_seen(seen, shown):
    """The table agrees on each library that is installed here in the version it names."""
    compared = seen.keys() & shown.keys()
    assert "forbear" in compared
    for peer in compared:
        assert seen[peer].keys() == shown[peer].keys()
        for probe, cell in seen[peer].items():
            told = shown[peer][probe]
            end = ABOUT.get(probe)
            assert cell[:end] == told[:end], (peer, probe)


def test_forbear_keeps_its_promises_there(seen):
    ours = seen["forbear"]
    assert ours["a POST whose answer is lost, three times"] == "executed once, ReadError"
    assert ours["the same once, with an Idempotency-Key"] == "sent twice, 200"
    assert ours["a limit of 0.5 s for the whole call"] == "kept"
    assert ours["connections for four answers"] == "1"
    assert 100 <= int(ours["requests for 100 calls in an outage"]) < 150
