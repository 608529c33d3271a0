"""The fan: files of the promised kind, with what a reader looks for in them."""

import pytest

from forbear import Exponential, Fixed
from forbear.tools.simulation.waits import outlook

matplotlib = pytest.importorskip("matplotlib")

from forbear.tools.simulation.fan import draw, each  # noqa: E402 - after the check that it can be had
from forbear.tools.simulation.plot import a_duration, sheet  # noqa: E402

FULL = outlook(Exponential(0.5, 20.0, jitter="full"), 4)


@pytest.mark.parametrize(
    ("suffix", "begins"), [(".png", b"\x89PNG"), (".SVG", b"<?xml"), (".pdf", b"%PDF")]
)
def test_a_file_of_its_kind_is_written(tmp_path, suffix, begins):
    path = tmp_path / f"waits{suffix}"
    draw(str(path), FULL, title="full jitter", slo=12.0)
    assert path.read_bytes().startswith(begins)


@pytest.mark.parametrize("slo", [None, 12.0])
def test_both_pictures_are_in_it(tmp_path, slo):
    path = tmp_path / "waits.svg"
    matplotlib.rcParams["svg.fonttype"] = "none"  # words stay words
    try:
        draw(str(path), FULL, title="full jitter", slo=slo)
    finally:
        matplotlib.rcdefaults()
    text = path.read_text()
    for words in (
        "full jitter",
        "wait before each retry",
        "all waits so far",
        "mean",
        "9 of 10 calls",
        "possible",
    ):
        assert words in text
    assert ("a third of the SLO: 4 s" in text) is (slo is not None)


def test_the_same_figures_give_the_same_file(tmp_path):
    for name in ("one.svg", "two.svg"):
        draw(str(tmp_path / name), FULL, title="full jitter")
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


@pytest.mark.parametrize(
    "backoff", [Fixed(0.0), Fixed(2.0), Exponential(1.0, 9.0, jitter="decorrelated")]
)
def test_waits_of_any_kind_can_be_drawn(tmp_path, backoff):
    path = tmp_path / "waits.svg"
    draw(str(path), outlook(backoff, 3), title="waits")
    assert path.stat().st_size > 1000


@pytest.mark.parametrize(
    ("backoff", "bars"),
    [
        (Fixed(0.0), [(0.0, 0.0)] * 2),
        (Exponential(1.0, 9.0, jitter="equal"), [(0.5, 1.0), (1.0, 2.0)]),
        (Fixed(3.0), [(3.0 - 0.02, 3.0)] * 2),  # a line, to be seen
    ],
)
def test_each_bar_is_the_range_of_a_wait(backoff, bars):
    axes = sheet(4, 3).subplots()
    each(axes, outlook(backoff, 2))
    found = [(bar.get_y(), bar.get_y() + bar.get_height()) for bar in axes.patches]
    assert found == [pytest.approx(bar) for bar in bars]


def test_what_cannot_be_drawn_is_refused(tmp_path):
    with pytest.raises(
        ValueError, match=r"must end with one of \.png, \.svg, \.pdf, got 'waits\.gif'"
    ):
        draw("waits.gif", FULL, title="waits")
    with pytest.raises(ValueError, match="there is no wait to draw: the policy never retries"):
        draw(str(tmp_path / "waits.png"), [], title="waits")


def test_every_tick_of_the_waits_says_where_it_is():
    """Zero too; on the logarithmic axis of the other pictures there is none."""
    assert [a_duration(seconds) for seconds in (0.0, 0.25, 20.0)] == ["0 s", "250 ms", "20 s"]
