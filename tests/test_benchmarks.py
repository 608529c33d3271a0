"""The benchmark commands run to their end, and what they count exactly is what is promised.

Nothing here looks at a time: a shared machine would decide the result.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import forbear

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
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
ONLY_A_SUCCESS = (
    "forbear, attempt_timeout=10",
    "forbear, retry_if",
    "forbear, contact",
    "forbear, IdempotencyKeys and a GET",
    "forbear, in override()",
    "forbear, in deadline()",
    "forbear, an origin unwell",
)
ANSWERED = {"median", "low", "high", "all_median", "quiet", "rounds"}

pytestmark = pytest.mark.skipif(
    not BENCHMARKS.exists(), reason="benchmarks/ is not part of an installed package"
)


def run(command, *options):
    """What a benchmark prints as JSON."""
    source = str(Path(forbear.__file__).parent.parent)  # the forbear that is tested here
    path = os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / command), *options],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# hot_path.py


@pytest.fixture(scope="module")
def measures():
    return json.loads(run("hot_path.py", "--quick", "--json", "-"))["measures"]


def each(measure):
    """What was measured of each client and colour, with a name for it."""
    for family in FAMILIES:
        for colour in COLOURS:
            yield f"{family} {colour}", measure[family][colour]


@pytest.mark.slow
def test_every_row_of_a_success_has_its_figures(measures):
    for where, result in each(measures["success"]):
        rows = result["rows"]
        for name in ("delegation", "minimal loop", *FORBEAR, *ONLY_A_SUCCESS):
            assert set(rows[name]) == ANSWERED, (where, name)
        for name, row in rows.items():
            assert set(row) in (ANSWERED, {"skipped"}), (where, name)


@pytest.mark.slow
def test_every_row_of_a_retry_has_its_figures(measures):
    """And a wait of zero calls no sleep."""
    for where, result in each(measures["retry"]):
        for part in ("stubbed", "refused", "zero"):
            for name in ("minimal loop", *FORBEAR):
                assert set(result[part]["rows"][name]) == ANSWERED, (where, part, name)
        for name in FORBEAR:
            assert result["sleep_calls"][name] == 0, (where, name)


@pytest.mark.slow
def test_no_call_leaves_objects_to_the_cyclic_collector(measures):
    for where, result in each(measures["garbage"]):
        rows = result["rows"]
        for name in FORBEAR:
            nothing = {"success": 0, "503, 503, 200": 0, "refused, refused, 200": 0}
            assert rows[name] == nothing, (where, name)
        for name in ONLY_A_SUCCESS:
            assert rows[name] == {"success": 0}, (where, name)


# instructions.py

needs_monitoring = pytest.mark.skipif(
    sys.version_info < (3, 12), reason="sys.monitoring needs Python 3.12"
)


@needs_monitoring
def test_bytecodes_are_counted_without_noise():
    """Two runs agree to the last bytecode, and find more work in a retry than in a success."""
    first, second = (json.loads(run("instructions.py", "--json", "--calls", "3")) for _ in "ab")
    assert first == second
    for figures in first["forbear"].values():
        lean, plain = (
            figures[f"success, {how}"] for how in ("prefetch=0, resume=False", "by default")
        )
        assert 0 < lean < plain < figures["per retry"]
        assert figures["per failed call besides"] > 0


@needs_monitoring
def test_a_figure_above_the_last_releases_is_named():
    """By more than 2 %: a bytecode or two of a later Python is no news."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        from instructions import FIGURES, read_kept, too_high
    finally:
        sys.path.remove(str(BENCHMARKS))
    kept = {"sync": {"per retry": 700}, "async": {"per retry": 780}}
    assert too_high({"sync": {"per retry": 714}, "async": {"per retry": 1}}, kept) == []
    assert too_high({"sync": {"per retry": 715}, "async": {"per retry": 1}}, kept) == [
        "sync, per retry: 715 bytecodes, 700 are kept"
    ]
    assert {colour: set(by_name) for colour, by_name in read_kept()["figures"].items()} == {
        colour: set(FIGURES) for colour in COLOURS
    }


def test_frames_and_files_of_a_retry_are_counted():
    first, second = run("instructions.py", "--frames").splitlines()
    assert "frames of forbear in one retried call" in first
    assert "sending/" in second


# reload.py


@pytest.mark.slow
def test_a_reload_shows_a_row_for_each_pool():
    lines = run("reload.py", "--only", "forbear", "--down", "0.1", "--seconds", "0.5").splitlines()
    assert [line.split("  ")[0] for line in lines[-2:]] == ["forbear (httpx)"] * 2
