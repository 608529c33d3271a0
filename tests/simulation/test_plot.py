"""Pictures: files of the promised kind, whatever the figures are."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import forbear
from forbear.tools.simulation import CONTENDERS, SCENARIOS, Scenario, contender, simulate

matplotlib = pytest.importorskip("matplotlib")

from forbear.tools.simulation.plot import draw  # noqa: E402 - after the check that it can be had

BLIP = SCENARIOS["blip"][0]
LIMITED = replace(SCENARIOS["metastable"][0], rate=50.0, capacity=60.0)


def results(scenario, *names):
    return [simulate(scenario, contender(name)) for name in names]


@pytest.mark.parametrize(
    ("suffix", "begins"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")]
)
def test_a_file_of_its_kind_is_written(tmp_path, suffix, begins):
    path = tmp_path / f"storm{suffix}"
    draw(str(path), LIMITED, results(LIMITED, "none", "full", "forbear"), title="a storm")
    assert path.read_bytes().startswith(begins)


def test_every_policy_and_all_four_pictures_are_in_it(tmp_path):
    path = tmp_path / "storm.svg"
    matplotlib.rcParams["svg.fonttype"] = "none"  # words stay words
    try:
        draw(
            str(path), LIMITED, results(LIMITED, "none", "full+budget", "forbear"), title="a storm"
        )
    finally:
        matplotlib.rcdefaults()
    text = path.read_text()
    for words in (
        "a storm",
        "none",
        "full+budget",
        "forbear",
        "capacity",
        "attempts per second",
        "good answers per second",
    ):
        assert words in text
    for words in ("left of the retry budget", "calls answered well within a time"):
        assert words in text


def test_the_same_figures_give_the_same_file(tmp_path):
    for name in ("one.svg", "two.svg"):
        draw(str(tmp_path / name), BLIP, results(BLIP, "full"), title="blip")
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario(rate=0.0, fleet=5, fleet_at=2.0),  # nothing succeeds
        replace(BLIP, trouble="slow", speed=0.0, capacity=600.0),
        replace(BLIP, trouble="hang", trouble_at=0.0),
        replace(BLIP, trouble_for=0.0),
    ],
    ids=["nothing succeeds", "no speed", "from the beginning", "no trouble"],
)
def test_odd_figures_are_drawn_too(tmp_path, scenario):
    draw(str(tmp_path / "odd.png"), scenario, results(scenario, "none", "forbear"), title="odd")


def test_more_policies_than_eyes_can_tell_apart_are_refused(tmp_path):
    with pytest.raises(
        ValueError, match=r"11 policies cannot be told apart; choose up to 10 with --policies"
    ):
        draw(str(tmp_path / "all.png"), BLIP, results(BLIP, *list(CONTENDERS)[:11]), title="blip")
    draw(str(tmp_path / "ten.png"), BLIP, results(BLIP, *list(CONTENDERS)[:10]), title="blip")


def test_another_suffix_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"must end with one of \.png, \.svg, \.pdf"):
        draw(str(tmp_path / "storm.gif"), BLIP, results(BLIP, "none"), title="blip")


def test_matplotlib_is_loaded_for_pictures_only():
    """It takes a second, and the table needs nothing but the standard library."""
    code = (
        "import sys; from forbear.tools.cli import main; main(['simulate', '--policies', 'none']);"
        "print('matplotlib' in sys.modules, 'numpy' in sys.modules)"
    )
    source = str(Path(forbear.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": source},
        check=True,
        timeout=60,
    )
    assert done.stdout.splitlines()[-1] == "False False"
