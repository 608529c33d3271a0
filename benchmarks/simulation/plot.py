"""Plot: pictures of a simulation, by matplotlib, which is imported only here.

Four pictures over one legend: attempts and good responses over time, with the trouble shaded and
the capacity as a line; calls that are held; how many calls succeeded within a time. And of
latencies, percentiles over load.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

try:
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator
except ImportError as missing:
    raise ImportError(f"pictures need matplotlib ({missing}): pip install matplotlib") from None

from .tally import BIN, GOOD_WITHIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .figures import Figures
    from .latency import Latencies
    from .scenario import Scenario

FORMATS = (".png", ".svg", ".pdf")
MOST = 10  # policies that can still be distinguished
A_ROW = 5  # of them in the legend
# Okabe and Ito's colours (2008), which most colour-blind people can tell apart; black is ours.
COLOURS = (
    "#8a8a8a", "#d55e00", "#e69f00", "#0072b2", "#009e73", "#cc79a7", "#56b4e9", "#9a6324",
    "#b8a300",
)  # fmt: skip
OURS = "#000000"
LOOK: Any = {"marker": "o", "markersize": 2.5, "linewidth": 1.3}
PERCENTILES = (
    ("p50", "p50", "#8a8a8a"), ("p95", "p95", "#0072b2"), ("p99", "p99", "#009e73"),
    ("p999", "p99.9", "#d55e00"),
)  # fmt: skip
INK, PALE, SHADE, LIMIT = "#333333", "#dddddd", "#f6dcd6", "#b03a2e"
PAPER = {"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 0.8}  # under words, over lines
WIDEST = 1_200  # characters of a line × their size in points
MOST_AFTER = 1.25  # durations: a few callers who wait for minutes do not push the rest together
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
    """Draw the results of policies in a scenario.

    Args:
        path: The file to write; its suffix is the format: .png, .svg or .pdf.
        scenario: What they met.
        results: Of one to ten policies.
        title: Of the whole.

    Raises:
        ValueError: The suffix is another, or there are too many policies to tell apart.
        OSError: The file cannot be written.
    """
    suffix = checked_suffix(path)
    if len(results) > MOST:
        raise ValueError(
            f"{len(results)} policies cannot be told apart; choose up to {MOST} with --policies"
        )
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9.6, 6.4), dpi=110)
        FigureCanvasAgg(figure)  # needs no screen
        rows = -(-len(results) // A_ROW)
        edges = {"left": 0.075, "right": 0.975, "top": 0.84 - 0.035 * rows, "bottom": 0.075}
        axes = figure.subplots(2, 2, gridspec_kw={"hspace": 0.42, "wspace": 0.2, **edges})
        (attempts, responses), (held, latency) = axes
        colours = coloured(results)
        for one, series, what in (
            (attempts, "attempts_per_bin", "attempts"),
            (responses, "served_per_bin", "good responses"),
        ):
            counts(one, scenario, results, colours, series)
            dress(one, f"{what} per second, in bins of {BIN * 1000:.0f} ms", "seconds")
        queued(held, results, colours)
        waits(latency, results, colours)
        for one in (attempts, responses, held):
            one.set_xlim(*window(scenario, results))
            ends_at = scenario.trouble_ends_at
            one.axvspan(scenario.trouble_at, ends_at, color=SHADE, linewidth=0, zorder=0)
        figure.text(0.075, 0.965, title, fontsize=14, fontweight="bold", color=INK, va="top")
        _, *world = scenario.described().splitlines()
        text = " ".join(world)
        size = min(8.5, WIDEST / len(text))
        figure.text(0.075, 0.925, text, fontsize=size, color="#666666", va="top")
        lines, names = attempts.get_legend_handles_labels()
        figure.legend(
            lines, names, loc="upper left", bbox_to_anchor=(0.068, 0.885), frameon=False,
            ncols=min(len(names), A_ROW), handlelength=1.6, columnspacing=1.6, borderaxespad=0,
        )  # fmt: skip
        save(figure, path, suffix)


def coloured(results: Sequence[Figures]) -> dict[str, str]:
    """One colour each; what a transport does by default is black."""
    colours = iter(COLOURS)
    return {
        figures.policy: OURS if figures.policy == "forbear" else next(colours, COLOURS[0])
        for figures in results
    }


def window(scenario: Scenario, results: Sequence[Figures]) -> tuple[float, float]:
    """From a little before the trouble until nothing more happens."""
    ends_at = scenario.trouble_ends_at
    settled = max(figures.last_retry or 0.0 for figures in results)
    last = min(ends_at + max(1.0, settled * 1.1), MOST_AFTER * scenario.duration)
    return max(0.0, scenario.trouble_at - max(0.5, (last - scenario.trouble_at) / 5)), last


def counts(
    axes: Any,
    scenario: Scenario,
    results: Sequence[Figures],
    colours: dict[str, str],
    series: str,
) -> None:
    """Counts per bin, as steps; the line of the last policy is on top."""
    last = window(scenario, results)[1]
    for figures in results:
        numbers = getattr(figures, series)[: int(last / BIN) + 2]
        axes.stairs(
            [number / BIN for number in numbers],
            [place * BIN for place in range(len(numbers) + 1)],
            label=figures.policy,
            color=colours[figures.policy],
            linewidth=1.1,
        )
    axes.set_ylim(0, None)
    if scenario.capacity is not None:
        axes.axhline(scenario.capacity, color=LIMIT, linewidth=0.9, linestyle=(0, (4, 3)))
        axes.annotate(
            "capacity", (0.5, scenario.capacity), xycoords=("axes fraction", "data"),
            xytext=(0, 2), textcoords="offset points", ha="center", va="bottom", fontsize=8,
            color=LIMIT, bbox=PAPER,
        )  # fmt: skip
    axes.yaxis.set_major_formatter(FuncFormatter(in_thousands))


def queued(axes: Any, results: Sequence[Figures], colours: dict[str, str]) -> None:
    for figures in results:
        held = figures.held_per_bin
        if any(held):
            times = [place * BIN for place in range(len(held))]
            axes.plot(times, held, color=colours[figures.policy], linewidth=1.3)
    axes.set_ylim(0, None)
    dress(axes, "calls held, in all processes", "seconds")
    axes.yaxis.set_major_formatter(FuncFormatter(in_thousands))
    if not any(any(figures.held_per_bin) for figures in results):
        middle = {"transform": axes.transAxes, "ha": "center", "color": "#888888"}
        axes.text(0.5, 0.5, "none of these holds any", **middle)


def waits(axes: Any, results: Sequence[Figures], colours: dict[str, str]) -> None:
    """The share of all calls that succeeded within a time; a line ends at the success."""
    having = [figures for figures in results if figures.distribution]
    longest = max((figures.distribution[-1][0] for figures in having), default=1.0)
    shortest = min((figures.distribution[0][0] for figures in having), default=0.001)
    for figures in having:
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
    lowest = min((figures.distribution[0][1] * 100 for figures in having), default=0.0)
    # Where nearly all succeed, show the rest.
    bottom = min(max(0.0, lowest - (100 - lowest) / 2), 99.0)
    axes.set_ylim(bottom, 100 + (100 - bottom) / 20)
    axes.axvline(GOOD_WITHIN, color=PALE, linewidth=0.9)
    dress(axes, "calls that succeeded within a time", "from the request to the good response")
    axes.xaxis.set_major_formatter(FuncFormatter(a_duration))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g} %"))


def dress(axes: Any, title: str, below: str) -> None:
    axes.set_title(title, pad=6)
    axes.set_xlabel(below, fontsize=8, labelpad=2)
    axes.grid(axis="y")
    axes.set_axisbelow(True)


def in_thousands(value: float, _: object = None) -> str:
    return f"{value / 1000:g}k" if value >= 10_000 else f"{value:,.0f}"


def a_duration(value: float, _: object = None) -> str:
    return f"{value * 1000:g} ms" if value < 1 else f"{value:g} s"


def draw_latencies(path: str, results: Sequence[Latencies], *, title: str) -> None:
    """Draw percentiles over load, hedged and not, and the extra requests.

    Raises:
        ValueError: The suffix is not .png, .svg or .pdf.
        OSError: The file cannot be written.
    """
    suffix = checked_suffix(path)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9.6, 4.2), dpi=110)
        FigureCanvasAgg(figure)
        edges = {"left": 0.075, "right": 0.975, "top": 0.78, "bottom": 0.12, "wspace": 0.18}
        times, extra = figure.subplots(1, 2, gridspec_kw={"width_ratios": (2, 1), **edges})
        for hedged in sorted({one.hedged for one in results}):
            rows = [one for one in results if one.hedged == hedged]
            loads = [one.load * 100 for one in rows]
            for name, words, colour in PERCENTILES:
                values = [getattr(one, name) for one in rows]
                times.plot(
                    loads, values, color=colour, linestyle="-" if hedged else (0, (3, 2)),
                    label=f"{words}, hedged" if hedged else words, **LOOK,
                )  # fmt: skip
        shown = [one for one in results if one.hedged == results[-1].hedged]
        extra.plot(
            [one.load * 100 for one in shown], [one.extra * 100 for one in shown], color=OURS,
            **LOOK,
        )  # fmt: skip
        times.set_yscale("log")
        times.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        times.minorticks_off()
        dress(times, "time until the good response", "load, %")
        times.yaxis.set_major_formatter(FuncFormatter(a_duration))
        dress(extra, "hedged requests for 100 calls", "load, %")
        extra.set_ylim(0, None)
        figure.text(0.075, 0.965, title, fontsize=14, fontweight="bold", color=INK, va="top")
        lines, names = times.get_legend_handles_labels()
        figure.legend(
            lines, names, loc="upper left", bbox_to_anchor=(0.068, 0.9), frameon=False, ncols=8,
            handlelength=1.9, columnspacing=1.2, borderaxespad=0, fontsize=8,
        )  # fmt: skip
        save(figure, path, suffix)


def checked_suffix(path: str) -> str:
    """Return the suffix of a picture's file.

    Raises:
        ValueError: There is no such format.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise ValueError(f"its name must end with one of {', '.join(FORMATS)}")
    return suffix


def save(figure: Any, path: str, suffix: str) -> None:
    """Write a file without a date: the same picture is the same file."""
    figure.savefig(path, metadata={"Date": None} if suffix == ".svg" else None)
