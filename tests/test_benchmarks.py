"""The benchmark command runs to its end, and what it counts exactly is what the README promises.

Nothing here looks at a time: a shared machine would decide the result.
"""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HOT_PATH = ROOT / "benchmarks" / "hot_path.py"
FAMILIES = ("httpx", "httpx2")
COLOURS = ("sync", "async")
FORBEAR = (
    "forbear",
    "forbear, prefetch=0, resume=False",
    "forbear, budget=None",
    "forbear, budget and breaker on",
    "forbear, total_timeout=30",
    "forbear, one listener",
)
UNWELL = "forbear, an origin unwell"
ANSWERED = {"median", "low", "high", "all_median", "quiet", "rounds"}

pytestmark = pytest.mark.skipif(
    not HOT_PATH.exists(), reason="benchmarks/ is not part of an installed package"
)


@pytest.fixture(scope="module")
def report():
    import forbear

    # The interpreter that is started finds forbear where this one did.
    source = str(Path(forbear.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, str(HOT_PATH), "--quick", "--json", "-"],
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
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def measures(report):
    return report["measures"]


def test_the_report_names_what_was_measured(report):
    assert set(report) == {
        "python",
        "platform",
        "packages",
        "rounds",
        "quick",
        "seconds",
        "measures",
    }
    assert report["packages"]["httpx"]
    assert report["packages"]["httpx2"]
    assert set(report["measures"]) == {
        "success",
        "retry",
        "garbage",
        "adapters",
        "imports",
        "waiting",
        "loopback",
    }


@pytest.mark.parametrize(
    ("library", "row"),
    [("requests", "RetryAdapter over HTTPAdapter.send"), ("urllib3", "RetryPoolManager's pool")],
)
def test_the_adapters_are_measured(measures, library, row):
    assert set(measures["adapters"][library]["rows"][row]) == ANSWERED


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_row_of_a_success_has_its_figures(measures, family, colour):
    rows = measures["success"][family][colour]["rows"]
    for name in ("delegation", "minimal loop", *FORBEAR, UNWELL):
        assert set(rows[name]) == ANSWERED
    for row in rows.values():
        assert set(row) in (ANSWERED, {"skipped"})


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_row_of_a_retry_has_its_figures(measures, family, colour):
    result = measures["retry"][family][colour]
    for part in ("stubbed", "zero"):
        for name in ("minimal loop", *FORBEAR):
            assert set(result[part]["rows"][name]) == ANSWERED


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_wait_of_zero_calls_no_sleep(measures, family, colour):
    calls = measures["retry"][family][colour]["sleep_calls"]
    for name in FORBEAR:
        assert calls[name] == 0


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("family", FAMILIES)
def test_no_call_leaves_objects_to_the_cyclic_collector(measures, family, colour):
    rows = measures["garbage"][family][colour]["rows"]
    for name in FORBEAR:
        assert rows[name] == {"success": 0, "503, 503, 200": 0, "refused, refused, 200": 0}
    assert rows[UNWELL] == {"success": 0}


def test_imports_are_timed_alone_and_on_top_of_each_client(measures):
    rows = measures["imports"]["rows"]
    for name in (
        "httpx, then forbear.httpx",
        "httpx2, then forbear.httpx2",
        "forbear alone",
        "forbear.RetryPolicy alone",
    ):
        assert set(rows[name]) == ANSWERED | {"cpu", "modules"}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_thousand_calls_wait_at_once(measures, family):
    result = measures["waiting"][family]
    assert result["calls"] == 1_000
    for name in ("task + asyncio.sleep", "minimal loop", "forbear"):
        assert set(result["rows"][name]) == {"bytes", "p50", "p99", "max", "cpu_us"}


def test_loopback_is_measured_or_says_why_not(measures):
    result = measures["loopback"]
    if "skipped" in result:
        assert result["skipped"]
        return
    for family in FAMILIES:
        for colour in COLOURS:
            assert {"median", "cpu_us", "rate", "rate_ratio"} <= set(
                result[family][colour]["rows"]["forbear"]
            )


@pytest.mark.parametrize("package", ["httpx_retries", "httpware", "tenacity", "stamina", "backoff"])
def test_an_absent_peer_is_listed_and_not_fatal(measures, package):
    title = {"httpx_retries": "httpx-retries", "httpware": "httpware Retry"}.get(package, package)
    row = measures["success"]["httpx"]["sync"]["rows"][title]
    if find_spec(package) is None:
        assert row == {"skipped": "not installed"}
    else:
        assert set(row) == ANSWERED
