"""Pictures of a simulation, by matplotlib, which is imported only here. Floor: acts.

Four of them over one legend: attempts and good answers over time, with the trouble shaded and the
capacity as a line; what is left of the budgets; and how many calls were answered well within a
time.
"""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

try:
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter
except ImportError as missing:
    raise ImportError(
        f"pictures need matplotlib ({missing}): pip install 'forbear[plot]'"
    ) from None

from .tally import BIN, GOOD_WITHIN

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from .figures import Figures
    from .scenario import Scenario

__all__ = ["draw"]

FORMATS = (".png", ".svg", ".pdf")
MOST = 10  # policies that can still be told apart
A_ROW = 5  # of them in the legend
# Okabe and Ito's colours (2008), which most colour-blind people can tell apart; black is for what
# is ours.
COLOURS = (
    "#8a8a8a",
    "#d55e00",
    "#e69f00",
    "#0072b2",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#9a6324",
    "#b8a300",
)
OURS = "#000000"
INK, PALE, SHADE, LIMIT = "#333333", "#dddddd", "#f6dcd6", "#b03a2e"
PAPER = {"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 0.8}  # under words, over lines
FULL = 0.9999  # of a budget
MOST_AFTER = 1.25  # durations: a few callers who wait for minutes shall not push the rest together
STYLE: Any = {
    "font.size": 9,
    "axes.edgecolor": "#999999",
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.titlecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": PALE,
    "grid.linewidth": 0.6,
    "svg.hashsalt": "forbear",  # the same picture, the same file
    "path.simplify_threshold": 0.5,
}


def draw(path: str, scenario: Scenario, results: Sequence[Figures], *, title: str) -> None:
    """Draw what policies made of a scenario.

    Args:
        path: Of the file to write; its suffix says how: .png, .svg or .pdf.
        scenario: What they met.
        results: Of one to ten policies.
        title: Of the whole.

    Raises:
        ValueError: The suffix is another, or there are too many policies to tell apart.
        OSError: The file cannot be written.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise ValueError(f"its name must end with one of {', '.join(FORMATS)}")
    if len(results) > MOST:
        raise ValueError(
            f"{len(results)} policies cannot be told apart; choose up to {MOST} with --policies"
        )
    with house_style():
        figure = sheet(9.6, 6.4)
        rows = -(-len(results) // A_ROW)
        edges = {"left": 0.075, "right": 0.975, "top": 0.84 - 0.035 * rows, "bottom": 0.075}
        (attempts, answers), (budgets, latency) = figure.subplots(
            2, 2, gridspec_kw={"hspace": 0.42, "wspace": 0.2, **edges}
        )
        colours = coloured(results)
        seen = window(scenario, results)
        over_time(
            attempts, "attempts per second", scenario, results, colours, "attempts_per_bin", seen
        )
        over_time(
            answers, "good answers per second", scenario, results, colours, "served_per_bin", seen
        )
        levels(budgets, scenario, results, colours, seen)
        waits(latency, results, colours)
        figure.text(0.075, 0.965, title, fontsize=14, fontweight="bold", color=INK, va="top")
        figure.text(0.075, 0.925, told(scenario), fontsize=8.5, color="#666666", va="top")
        lines, names = attempts.get_legend_handles_labels()
        figure.legend(
            lines, names, loc="upper left", bbox_to_anchor=(0.068, 0.885), ncols=min(len(names), A_ROW), frameon=False,
            handlelength=1.6, columnspacing=1.6, borderaxespad=0,
        )  # fmt: skip
        save(figure, path)


def house_style() -> AbstractContextManager[object]:
    """What a picture is drawn under, so that all look alike."""
    return matplotlib.rc_context(STYLE)


def sheet(width: float, height: float) -> Any:
    """An empty figure, in inches, that needs no screen."""
    figure = Figure(figsize=(width, height), dpi=110)
    FigureCanvasAgg(figure)
    return figure


def save(figure: Any, path: str) -> None:
    figure.savefig(path, metadata={"Date": None} if path.lower().endswith(".svg") else None)


def coloured(results: Sequence[Figures]) -> dict[str, str]:
    """One colour each; what a transport does by default is black."""
    colours = iter(COLOURS)
    return {
        figures.policy: OURS if figures.policy == "forbear" else next(colours, COLOURS[0])
        for figures in results
    }


def told(scenario: Scenario) -> str:
    capacity = "" if scenario.capacity is None else f" · capacity {scenario.capacity:,.6g}/s"
    cost = (
        f" · rejecting costs {scenario.rejection_cost:g} of serving"
        if scenario.rejection_cost
        else ""
    )
    kinds = {"down": f"answers {scenario.status}", "refuse": "refuses", "hang": "hangs"}
    trouble = kinds.get(scenario.trouble, f"serves at {scenario.speed:.0%} of its speed")
    span = f"{scenario.trouble_at:g} s to {scenario.trouble_ends_at:g} s"
    return f"{scenario.callers:,} calls at {scenario.rate:,.6g}/s{capacity}{cost} · {trouble} from {span}"


def window(scenario: Scenario, results: Sequence[Figures]) -> tuple[float, float]:
    """From a little before the trouble until nothing more happens: all of a collapse, and a blip
    large.
    """
    ends_at = scenario.trouble_ends_at
    settled = max(figures.last_retry or 0.0 for figures in results)
    for figures in results:
        below = [number for number, level in figures.levels.items() if level < FULL]
        settled = max(settled, max(below, default=0) * BIN - ends_at)
    last = min(ends_at + max(1.0, settled * 1.1), MOST_AFTER * scenario.duration)
    return max(0.0, scenario.trouble_at - max(0.5, (last - scenario.trouble_at) / 5)), last


def over_time(
    axes: Any,
    title: str,
    scenario: Scenario,
    results: Sequence[Figures],
    colours: dict[str, str],
    series: str,
    seen: tuple[float, float],
) -> None:
    """Counts per bin, as steps; the line on top is drawn last, which is the last policy's."""
    for figures in results:
        counts = getattr(figures, series)[: int(seen[1] / BIN) + 2]
        axes.stairs(
            [count / BIN for count in counts],
            [number * BIN for number in range(len(counts) + 1)],
            label=figures.policy,
            color=colours[figures.policy],
            linewidth=1.1,
        )
    axes.set_xlim(*seen)
    axes.set_ylim(0, None)
    shade(axes, scenario)
    if scenario.capacity is not None:
        axes.axhline(scenario.capacity, color=LIMIT, linewidth=0.9, linestyle=(0, (4, 3)))
        axes.annotate(
            "capacity", (0.5, scenario.capacity), xycoords=("axes fraction", "data"), xytext=(0, 2),
            textcoords="offset points", ha="center", va="bottom", fontsize=8, color=LIMIT, bbox=PAPER,
        )  # fmt: skip
    dress(axes, f"{title}, in bins of {BIN * 1000:.0f} ms", "seconds")
    axes.yaxis.set_major_formatter(FuncFormatter(in_thousands))


def levels(
    axes: Any,
    scenario: Scenario,
    results: Sequence[Figures],
    colours: dict[str, str],
    seen: tuple[float, float],
) -> None:
    having = [figures for figures in results if figures.levels]
    for figures in having:
        numbers = sorted(figures.levels)
        axes.plot(
            [number * BIN for number in numbers],
            [figures.levels[number] * 100 for number in numbers],
            color=colours[figures.policy],
            linewidth=1.3,
        )
    axes.set_xlim(*seen)
    axes.set_ylim(0, 105)
    shade(axes, scenario)
    dress(axes, "left of the retry budget, mean of the clients", "seconds")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f} %"))
    if not having:
        axes.text(
            0.5,
            0.5,
            "none of these has one",
            transform=axes.transAxes,
            ha="center",
            color="#888888",
        )


def waits(axes: Any, results: Sequence[Figures], colours: dict[str, str]) -> None:
    """From the request to the good answer: the share of all calls, so that a line ends at the
    success.
    """
    longest = max(
        (figures.distribution[-1][0] for figures in results if figures.distribution), default=1.0
    )
    shortest = min(
        (figures.distribution[0][0] for figures in results if figures.distribution), default=0.001
    )
    for figures in results:
        if figures.distribution:
            times, shares = zip(*figures.distribution, strict=True)
            axes.plot(
                (shortest / 2, *times[:1], *times, longest * 1.3),
                (0.0, 0.0, *(share * 100 for share in shares), shares[-1] * 100),
                color=colours[figures.policy],
                linewidth=1.3,
                drawstyle="steps-post",
            )
    axes.set_xscale("log")
    axes.set_xlim(shortest / 2, longest * 1.3)
    lowest = min(
        (figures.distribution[0][1] * 100 for figures in results if figures.distribution),
        default=0.0,
    )
    bottom = min(
        max(0.0, lowest - (100 - lowest) / 2), 99.0
    )  # where all is nearly well, look at the rest
    axes.set_ylim(bottom, 100 + (100 - bottom) / 20)
    axes.axvline(GOOD_WITHIN, color=PALE, linewidth=0.9)
    dress(axes, "calls answered well within a time", "from the request to the good answer")
    axes.xaxis.set_major_formatter(FuncFormatter(a_duration))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g} %"))


def shade(axes: Any, scenario: Scenario) -> None:
    axes.axvspan(scenario.trouble_at, scenario.trouble_ends_at, color=SHADE, linewidth=0, zorder=0)


def dress(axes: Any, title: str, below: str) -> None:
    axes.set_title(title, pad=6)
    axes.set_xlabel(below, fontsize=8, labelpad=2)
    axes.grid(axis="y")
    axes.set_axisbelow(True)


def in_thousands(value: float, _: object = None) -> str:
    return f"{value / 1000:g}k" if value >= 10_000 else f"{value:,.0f}"


def a_duration(value: float, _: object = None) -> str:
    if value == inf or value < 0:
        return ""
    return f"{value * 1000:g} ms" if 0 < value < 1 else f"{value:g} s"
