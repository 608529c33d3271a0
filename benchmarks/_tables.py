"""Tables: the figures of a run as aligned plain text, one table per measure.

Knows the shape of what the measures return and nothing of how it was obtained.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from _adapters import GOALS as ADAPTER_GOALS
from _aiohttp import GOALS as AIOHTTP_GOALS
from _calls import GOALS as CALL_GOALS
from _calls import Goal
from _candidates import LOOP, PEER
from _imports import GOALS as IMPORT_GOALS
from _in_situ import GOALS as IN_SITU_GOALS
from _waiting import GOALS as WAITING_GOALS

FLAVOURS = ("sync", "async")
_ADDED = "CPU added to a success, ns"


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """First column to the left, the others to the right."""
    lines = [list(head), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]

    def drawn(line: Sequence[str]) -> str:
        first, *others = (
            cell.ljust(w) if i == 0 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        return "  ".join([first, *others]).rstrip()

    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    return "\n".join(["", title, rule, drawn(lines[0]), rule, *map(drawn, lines[1:])])


def number(value: float) -> str:
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:.{digits}f}"


def _timed(
    rows: dict[str, Any], goals: Mapping[str, Goal | float] | None = None, of: str = LOOP
) -> list[list[str]]:
    """Median, range, quiet rounds, multiple of the row `of`, goal."""
    unit = rows.get(of, {}).get("median")

    def most(name: str) -> str:
        goal = (goals or {}).get(name)
        limit = goal.most(rows) if isinstance(goal, Goal) else goal
        return "" if limit is None else number(limit)

    lines = []
    for name, row in rows.items():
        if "skipped" in row:
            lines.append([name, row["skipped"], "", "", "", ""])
            continue
        lines.append(
            [
                name,
                number(row["median"]),
                f"{number(row['low'])}..{number(row['high'])}",
                f"{row['quiet']}/{row['rounds']}",
                f"{row['median'] / unit:.2f}" if unit else "-",
                most(name),
            ]
        )
    return lines


def render(measures: dict[str, Any]) -> str:
    parts = []
    for family, by_colour in measures.get("success", {}).items():
        for flavour in FLAVOURS:
            result = by_colour[flavour]
            parts.append(
                table(
                    f"{family} {flavour}: {_ADDED} (bare call {number(result['bare'])})",
                    ("candidate", "median", "min..max", "quiet", "x loop", "goal"),
                    _timed(result["rows"], CALL_GOALS["success"][flavour]),
                )
            )
    for family, by_colour in measures.get("retry", {}).items():
        for flavour in FLAVOURS:
            parts.extend(_retry_tables(family, flavour, by_colour[flavour]))
    for family, by_colour in measures.get("in-situ", {}).items():
        for flavour in FLAVOURS:
            parts.extend(_in_situ_tables(family, flavour, by_colour[flavour]))
    for family, by_colour in measures.get("garbage", {}).items():
        for flavour in FLAVOURS:
            rows = by_colour[flavour]["rows"]
            titles = ("success", "503, 503, 200", "refused, refused, 200")
            parts.append(
                table(
                    f"{family} {flavour}: cyclic garbage, objects per call (exact)",
                    ("candidate", *titles),
                    [
                        [name, row.get("skipped", ""), "", ""]
                        if "skipped" in row
                        else [name, *(f"{row[t]:g}" if t in row else "" for t in titles)]
                        for name, row in rows.items()
                    ],
                )
            )
    for name, result in measures.get("adapters", {}).items():
        if "skipped" in result:
            parts.append(table(f"{name}: {result['skipped']}", ("candidate",), []))
            continue
        parts.append(
            table(
                f"{name}: {_ADDED} (bare call {number(result['bare'])})",
                ("candidate", "median", "min..max", "quiet", "x loop", "goal"),
                _timed(result["rows"], ADAPTER_GOALS),
            )
        )
    parts.extend(_aiohttp_tables(measures.get("aiohttp", {})))
    if "imports" in measures:
        parts.append(_import_table(measures["imports"]["rows"]))
    for family, result in measures.get("waiting", {}).items():
        parts.append(_waiting_table(family, result))
    parts.extend(_loopback_tables(measures.get("loopback", {})))
    return "\n".join(parts)


def _retry_tables(family: str, flavour: str, result: dict[str, Any]) -> list[str]:
    parts = [
        table(
            f"{family} {flavour}: CPU added per retry, us; {what}, waits stubbed",
            ("candidate", "median", "min..max", "quiet", "x loop", "goal"),
            _timed(result[part]["rows"], CALL_GOALS[part][flavour]),
        )
        for part, what in (("stubbed", "503, 503, 200"), ("refused", "refused, refused, 200"))
    ]
    calls = result["sleep_calls"]
    zero = table(
        f"{family} {flavour}: the same with a wait of zero and the real sleep",
        ("candidate", "median", "min..max", "quiet", "x loop", "sleep calls"),
        [
            [*line[:5], f"{calls[line[0]]:g}" if line[0] in calls else ""]
            for line in _timed(result["zero"]["rows"])
        ],
    )
    return [*parts, zero]


def _in_situ_tables(family: str, flavour: str, result: dict[str, Any]) -> list[str]:
    return [
        table(
            f"{family} {flavour}: CPU added to client.get() between other work, us; {what}"
            f" (bare call {number(result[part]['bare'])})",
            ("candidate", "median", "min..max", "quiet", f"x {PEER}", "goal"),
            _timed(result[part]["rows"], IN_SITU_GOALS[part][flavour], PEER),
        )
        for part, what in (("success", "200"), ("retry", "503, 200, waits stubbed"))
    ]


def _aiohttp_tables(result: dict[str, Any]) -> list[str]:
    if "skipped" in result:
        return [f"\naiohttp: skipped, {result['skipped']}"]
    parts = [
        table(
            f"aiohttp: {what} (bare {number(result[name]['bare'])})",
            ("candidate", "median", "min..max", "quiet", "x loop", "goal"),
            _timed(result[name]["rows"], AIOHTTP_GOALS[name]),
        )
        for name, what in (
            ("success", _ADDED),
            ("retry", "CPU added per retry, us; 503, 503, 200, waits stubbed"),
        )
        if name in result
    ]
    tasks = [[name, f"{count:g}"] for name, count in result.get("tasks", {}).items()]
    return [*parts, table("aiohttp: tasks per call (exact)", ("candidate", "tasks"), tasks)] * bool(
        result
    )


def _import_goal(name: str, rows: dict[str, Any]) -> str:
    factor, other = IMPORT_GOALS.get(name, (0.0, ""))
    return number(factor * rows[other]["median"]) if "median" in rows.get(other, {}) else ""


def _import_table(rows: dict[str, Any]) -> str:
    lines = []
    for name, row in rows.items():
        if "skipped" in row:
            lines.append([name, row["skipped"], "", "", "", ""])
            continue
        lines.append(
            [
                name,
                number(row["median"]),
                f"{number(row['low'])}..{number(row['high'])}",
                number(row["cpu"]["median"]),
                str(row["modules"]),
                _import_goal(name, rows),
            ]
        )
    return table("import, ms", ("statement", "median", "min..max", "CPU", "modules", "goal"), lines)


def _waiting_table(family: str, result: dict[str, Any]) -> str:
    goals = WAITING_GOALS["bytes"]
    lines = []
    for name, row in result["rows"].items():
        if "skipped" in row:
            lines.append([name, row["skipped"], *[""] * 5])
            continue
        figures = [
            f"{row['bytes']:.0f}",
            *(f"{row[k]:.2f}" for k in ("p50", "p99", "max")),
            number(row["cpu_us"]),
        ]
        lines.append([name, *figures, str(goals.get(name, ""))])
    return table(
        f"{family} asyncio: {result['calls']} waiting, woken over {result['spread']:g} s;"
        " lateness in ms",
        ("candidate", "bytes each", "p50", "p99", "max", "CPU us each", "goal bytes"),
        lines,
    )


def _loopback_tables(result: dict[str, Any]) -> list[str]:
    if "skipped" in result:
        return [f"\nrequests over loopback: skipped, {result['skipped']}"]
    parts = []
    for family, by_colour in result.items():
        for flavour, figures in by_colour.items():
            lines = []
            for name, row in figures["rows"].items():
                if "skipped" in row:
                    lines.append([name, row["skipped"], *[""] * 5])
                    continue
                lines.append(
                    [
                        name,
                        number(row["rate"]),
                        f"{row['rate_ratio']:.3f}",
                        number(row["cpu_us"]),
                        f"{row['median']:.3f}",
                        f"{row['low']:.3f}..{row['high']:.3f}",
                        f"{row['quiet']}/{row['rounds']}",
                    ]
                )
            parts.append(
                table(
                    f"{family} {flavour} over loopback nginx"
                    f" (bare {figures['bare_rate']:.0f} requests/s)",
                    (
                        "candidate",
                        "requests/s",
                        "x bare",
                        "CPU us/request",
                        "CPU x bare",
                        "min..max",
                        "quiet",
                    ),
                    lines,
                )
            )
    return parts
