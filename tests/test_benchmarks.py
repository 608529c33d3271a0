"""The benchmark commands run to their end, and what they count exactly is what is promised.

Nothing here looks at a time: a shared machine would decide the result.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import forbear

ROOT = Path(__file__).parent.parent
BENCHMARKS = ROOT / "benchmarks"
LANES = [(family, flavour) for family in ("httpx", "httpx2") for flavour in ("sync", "async")]
FORBEAR = (
    "forbear", "forbear, prefetch=0, resume=False", "forbear, budget=None",
    "forbear, budget and breaker on", "forbear, total_timeout=30", "forbear, one listener",
)  # fmt: skip
ONLY_A_SUCCESS = (
    "forbear, attempt_timeout=10", "forbear, retry_if", "forbear, contact",
    "forbear, IdempotencyKeys and a GET", "forbear, in override()", "forbear, in deadline()",
    "forbear, an origin unhealthy",
)  # fmt: skip

pytestmark = pytest.mark.skipif(
    not BENCHMARKS.exists(), reason="benchmarks/ is not part of an installed package"
)


def run(command, *options, reads=json.loads):
    source = str(Path(forbear.__file__).parent.parent)  # the forbear that is tested here
    path = os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / command), *options], cwd=ROOT, check=False, timeout=900,
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return reads(done.stdout)


@pytest.mark.release
def test_a_wait_of_zero_calls_no_sleep_and_no_call_leaves_garbage():
    measures = run("hot_path.py", "--quick", "--json", "-")["measures"]
    nothing = {"success": 0, "503, 503, 200": 0, "refused, refused, 200": 0}
    for family, flavour in LANES:
        slept = measures["retry"][family][flavour]["sleep_calls"]
        assert [slept[name] for name in FORBEAR] == [0] * len(FORBEAR), (family, flavour)
        rows = measures["garbage"][family][flavour]["rows"]
        for name in (*FORBEAR, *ONLY_A_SUCCESS):
            left = nothing if name in FORBEAR else {"success": 0}
            assert rows[name] == left, (family, flavour, name)
    tasks = measures["aiohttp"]["tasks"]
    assert tasks["forbear"] == tasks["bare"]


@pytest.mark.slow
def test_no_client_loads_more_than_its_bound():
    lines = run("house.py", "--check", reads=str.splitlines)
    assert lines[-1] == "no figure is above its bound"


needs_nginx = pytest.mark.skipif(
    not shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"),
    reason="the server nginx is not installed",
)


@pytest.mark.release
@pytest.mark.parametrize(("command", "options", "found"), [
    ("reload.py", "--only forbear --down 0.1 --seconds 0.5", "forbear (httpx)"),
    pytest.param("partial.py", "--quick --only half-503-in-turn --contenders bare,forbear --seconds 1",
        "half-503-in-turn", marks=needs_nginx),
    ("streams.py", "--quick", "EventStreams()"),
])  # fmt: skip
def test_a_command_runs_to_its_end_and_shows_its_rows(command, options, found):
    assert found in run(command, *options.split(), reads=str)


# Lengths of time, and what depends on one, differ from run to run: their beginnings are compared.
ABOUT = {
    "a limit of 0.5 s for the whole call": 4,
    "requests for 100 calls in an outage": 1,
    "one call in an outage, with the library's own defaults": 1,
    # The other page has the same two of forbear, and tests/docs compares them.
    "code lines": 0,
    "private names of other libraries": 0,
    "`Retry-After: 3600`": 15,
}


@pytest.mark.release
def test_the_page_shows_what_is_seen():
    report = run("peers.py", "--json")
    seen = {
        peer: {probe: cells[at] for probe, cells in report["rows"].items()}
        for at, peer in enumerate(report["peers"])
    }
    page = (ROOT / "docs" / "compared.md").read_text(encoding="utf-8")
    shown = {}
    for lines in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        head, _, *rows = [
            list(map(str.strip, line.strip("|").split("|"))) for line in lines.splitlines()
        ]
        if "forbear" in head:
            of_peers = {peer: {row[0]: row[at] for row in rows} for at, peer in enumerate(head)}
            # A row in which all are alike is left out.
            assert of_peers["forbear"].items() <= shown.get("forbear", of_peers["forbear"]).items()
            shown = of_peers | shown
    del shown[""]
    assert len(shown) == 8
    for peer in seen.keys() & shown.keys():
        for probe, cell in shown[peer].items():
            end = ABOUT.get(probe)
            assert cell[:end] == seen[peer][probe][:end], (peer, probe)
    assert shown["forbear"].keys() == seen["forbear"].keys()
    ours = seen["forbear"]
    for probe, cell in seen["forbear, aiohttp"].items():
        if not probe.startswith(("requests for 100 calls", "one call in an outage")):
            assert ours[probe] == cell.replace("ClientOSError", "ReadError"), probe
    assert ours["a POST whose response is lost, three times"] == "executed once, ReadError"
    assert ours["the same once, with an Idempotency-Key"] == "sent twice, 200"
    assert ours["a limit of 0.5 s for the whole call"] == "kept"
    assert ours["connections for four responses"] == "1"
    assert 100 <= int(ours["requests for 100 calls in an outage"].partition(",")[0]) < 150
