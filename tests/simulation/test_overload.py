"""The benchmark that makes the README's table and pictures: it runs, and what the README shows is
what it wrote.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import forbear
from forbear.tools.simulation import SCENARIOS

ROOT = Path(__file__).parent.parent.parent
OVERLOAD = ROOT / "benchmarks" / "overload.py"
PICTURES = ROOT / "benchmarks" / "pictures"

pytestmark = pytest.mark.skipif(
    not OVERLOAD.exists(), reason="benchmarks/ is not part of an installed package"
)


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
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONPATH": source},
    )
    assert done.returncode == 0, done.stderr
    return out


def test_every_scenario_has_its_table(written):
    text = (written / "overload.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == list(SCENARIOS)


def test_the_pictures_are_drawn_and_small(written):
    pytest.importorskip("matplotlib")
    drawn = {path.name for path in written.glob("*.png")}
    assert drawn == {path.name for path in PICTURES.glob("*.png")}
    for path in PICTURES.glob("*.png"):
        assert path.stat().st_size < 150_000


def test_the_kept_table_has_the_rows_of_a_new_one(written):
    """A policy that was added, or renamed, has not been run."""

    def first_cells(path):
        return [
            line.split("|")[1].strip()
            for line in rows((path / "overload.md").read_text(encoding="utf-8"))
        ]

    assert first_cells(PICTURES) == first_cells(written)


def test_what_the_readme_shows_is_what_was_written():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme.partition("## An outage, simulated")[2].partition("\n## ")[0]
    shown = rows(section)
    assert len(shown) > 5
    assert set(shown) <= set(rows((PICTURES / "overload.md").read_text(encoding="utf-8")))
    assert "](benchmarks/pictures/metastable.png)" in section
