"""The benchmark that makes the README's tables and pictures: it runs, and what is kept is its."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import forbear
from forbear.tools.simulation import LONE, TROUBLES

ROOT = Path(__file__).parent.parent.parent
OVERLOAD = ROOT / "benchmarks" / "overload.py"
PICTURES = ROOT / "benchmarks" / "pictures"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not OVERLOAD.exists(), reason="benchmarks/ is not part of an installed package"
    ),
]


def rows(text):
    return [line for line in text.splitlines() if line.startswith("| ")]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    out = tmp_path_factory.mktemp("overload")
    source = str(Path(forbear.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, str(OVERLOAD), "--quick", "--out", str(out)],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env={**os.environ, "PYTHONPATH": source},
    )
    assert done.returncode == 0, done.stderr
    return out


def test_every_table_is_there(written):
    text = (written / "overload.md").read_text(encoding="utf-8")
    titles = re.findall(r"^## (.*)$", text, re.MULTILINE)
    kept = (PICTURES / "overload.md").read_text(encoding="utf-8")
    assert titles == re.findall(r"^## (.*)$", kept, re.MULTILINE)
    assert len(titles) == 6


def test_the_kept_tables_know_every_trouble_and_policy(written):
    """A policy that was added, or renamed, has not been run."""
    kept = rows((PICTURES / "overload.md").read_text(encoding="utf-8"))
    new = rows((written / "overload.md").read_text(encoding="utf-8"))
    first_cells = {line.split("|")[1].strip() for line in kept}
    assert first_cells >= {*TROUBLES, *LONE}
    assert first_cells >= {line.split("|")[1].strip() for line in new}
    assert {line for line in kept if "| trouble" in line} == {
        line for line in new if "| trouble" in line
    }


def test_the_pictures_are_small():
    assert list(PICTURES.glob("*.png"))
    for path in PICTURES.glob("*.png"):
        assert path.stat().st_size < 150_000
