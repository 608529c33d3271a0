"""Pictures: files of the promised kind, whatever the figures are."""

from dataclasses import replace

import pytest

from benchmarks.simulation import SCENARIOS, Scenario, contender, simulate

matplotlib = pytest.importorskip("matplotlib")

from benchmarks.simulation.plot import draw  # noqa: E402 - after the check that it can be had

BLIP = SCENARIOS["blip"][0]
LIMITED = replace(SCENARIOS["down-2s"][0], rate=50.0, capacity=60.0)


def results(scenario, *names):
    return [simulate(scenario, contender(name)) for name in names]


@pytest.mark.slow
def test_every_policy_and_all_four_pictures_are_in_it(tmp_path):
    path = tmp_path / "storm.svg"
    matplotlib.rcParams["svg.fonttype"] = "none"  # words stay words
    found = results(LIMITED, "none", "full+budget", "forbear")
    try:
        draw(str(path), LIMITED, found, title="a storm")
    finally:
        matplotlib.rcdefaults()
    text = path.read_text()
    for words in ("a storm", "none", "full+budget", "forbear", "capacity", "Fault: returns 503"):
        assert words in text
    for title in (
        "attempts per second",
        "good responses per second",
        "calls held, in all processes",
    ):
        assert title in text
    assert "calls that succeeded within a time" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    "scenario",
    [
        Scenario(rate=0.0, fleet=5, fleet_at=2.0),  # nothing succeeds
        replace(BLIP, trouble="slow", speed=0.0, capacity=600.0),
    ],
    ids=["nothing succeeds", "no speed"],
)
def test_odd_figures_are_drawn_too(tmp_path, scenario):
    draw(str(tmp_path / "odd.png"), scenario, results(scenario, "none", "forbear"), title="odd")


def test_more_policies_than_eyes_can_tell_apart_are_refused(tmp_path):
    eleven = results(BLIP, "none") * 11
    with pytest.raises(ValueError, match=r"11 policies cannot be told apart; choose up to 10"):
        draw(str(tmp_path / "all.png"), BLIP, eleven, title="blip")
    draw(str(tmp_path / "ten.png"), BLIP, eleven[1:], title="blip")
