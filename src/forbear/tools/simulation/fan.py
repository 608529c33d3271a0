"""The fan: a schedule's waits as a picture, drawn as plot.py draws. Floor: acts.

Left the range of each wait with its mean, right all waits up to a retry: at most and at least,
where nine of ten calls are, the middle one. The numbers are waits.py's.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .plot import FORMATS, INK, LIMIT, PAPER, a_duration, house_style, save, sheet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .waits import Retry

__all__ = ["draw"]

PALE, MIDDLE, DARK = "#d6e6f2", "#8fbbd9", "#0072b2"  # shades of plot.py's blue


def draw(path: str, retries: Sequence[Retry], *, title: str, slo: float | None = None) -> None:
    """Draw what a schedule makes a call wait.

    Args:
        path: Of the file to write; its suffix says how: .png, .svg or .pdf.
        retries: Of one schedule, at least one.
        title: Of the whole.
        slo: Seconds within which a call has to be answered; a third of it is drawn as a line.

    Raises:
        ValueError: The suffix is another, or there is no retry.
        OSError: The file cannot be written.
    """
    if Path(path).suffix.lower() not in FORMATS:
        raise ValueError(
            f"the name of a picture must end with one of {', '.join(FORMATS)}, got {path!r}"
        )
    if not retries:
        raise ValueError("there is no wait to draw: the policy never retries")
    with house_style():
        figure = sheet(9.6, 4.2)
        edges = {"left": 0.075, "right": 0.975, "top": 0.8, "bottom": 0.12, "wspace": 0.2}
        single, summed = figure.subplots(1, 2, gridspec_kw=edges)
        each(single, retries)
        together(summed, retries, slo)
        figure.text(
            0.075, 0.955, title, fontsize=11, fontweight="bold", color=INK, va="top", wrap=True
        )
        save(figure, path)


def each(axes: Any, retries: Sequence[Retry]) -> None:
    """A bar from the shortest to the longest wait before each retry, and its mean."""
    numbers = [one.number for one in retries]
    longest = max(one.longest for one in retries)
    least = longest / 150  # a wait that is always the same is still to be seen
    axes.bar(
        numbers,
        [max(one.longest - one.shortest, least) for one in retries],
        bottom=[min(one.shortest, max(one.longest - least, 0.0)) for one in retries],
        width=0.62,
        color=MIDDLE,
        label="from the shortest to the longest",
    )
    for one in retries:
        axes.plot([one.number - 0.31, one.number + 0.31], [one.mean] * 2, color=DARK, linewidth=1.6)
    axes.plot([], [], color=DARK, linewidth=1.6, label="mean")
    dress(axes, numbers, "wait before each retry", ncols=2)
    axes.set_ylim(0, 1.15 * (longest or 1.0))  # room for the legend


def together(axes: Any, retries: Sequence[Retry], slo: float | None) -> None:
    """The fan of all waits so far, which begins at nothing."""
    numbers = [0, *(one.number for one in retries)]
    least = [0.0]
    for one in retries:
        least.append(least[-1] + one.shortest)
    low, median, high = (
        [0.0, *column] for column in zip(*(one.quantiles for one in retries), strict=True)
    )
    axes.fill_between(
        numbers,
        least,
        [0.0, *(one.worst for one in retries)],
        color=PALE,
        linewidth=0,
        label="possible",
    )
    axes.fill_between(
        numbers, low, high, color=MIDDLE, linewidth=0, label="9 of 10 calls (p5 to p95)"
    )
    axes.plot(
        numbers,
        median,
        color=DARK,
        linewidth=1.8,
        marker="o",
        markersize=3.5,
        label="half of the calls (p50)",
    )
    if slo is not None:
        axes.axhline(slo / 3, color=LIMIT, linewidth=0.9, linestyle=(0, (4, 3)))
        axes.annotate(
            f"a third of the SLO: {slo / 3:.3g} s", (0.98, slo / 3), xycoords=("axes fraction", "data"), xytext=(0, 3),
            textcoords="offset points", ha="right", va="bottom", fontsize=8, color=LIMIT, bbox=PAPER,
        )  # fmt: skip
    dress(axes, numbers, "all waits so far")
    if not retries[-1].worst:
        axes.set_ylim(0, 1)
    axes.set_xlim(0, numbers[-1] + 0.15)


def dress(axes: Any, numbers: Sequence[int], title: str, ncols: int = 1) -> None:
    axes.set_title(title, pad=6)
    axes.set_xlabel("retry", fontsize=8, labelpad=2)
    axes.set_xticks(numbers)
    axes.set_ylim(0, None)
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    axes.yaxis.set_major_formatter(a_duration)
    axes.legend(loc="upper left", frameon=False, fontsize=8, handlelength=1.4, ncols=ncols)
