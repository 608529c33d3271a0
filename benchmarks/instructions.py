"""Instructions: how many bytecodes forbear adds to a call. Counted, not timed, so without noise.

    python benchmarks/instructions.py [--check | --keep | --json] [--calls N]

Needs Python 3.12 or later: every bytecode that the interpreter executes is an INSTRUCTION event of
`sys.monitoring`. The figures are of httpx, sync and async (asyncio). Each call goes through a stub
transport (_stubs.py): a fresh response 200 with 8 headers and a body of 101 bytes for every
sending. A call into C counts as the one bytecode that makes it.

The stub's own code is left out. A bare call through the stub alone is counted in the same way and
subtracted, so that a figure says what the library adds, calls back into httpx included: by default,
with prefetch=0 and resume=False ("bodies left alone"), and with total_timeout=30.

Only a success is counted: a retry waits for 50 ms and more, so hot_path.py times it, and what a
reader expects is worth more there than a bytecode.

`--check` compares the figures with instructions.json, the figures of the last release, and exits
with 1 if one is more than 2 % higher. Each Python version has bytecodes of its own, so the file has
figures by version; where it has none, `--check` says so and exits with 0. `--keep` writes those of
the Python that runs it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from types import CodeType
from typing import Any

import _stubs
from _candidates import Setting, forbear, httpx_retries
from _stubs import Family
from _tables import table

KEPT = Path(__file__).with_suffix(".json")
STUBS = _stubs.__file__
SOURCE = Path(__file__).parent.parent / "src"
FLAVOURS = ("sync", "async")
TOLERANCE = 1.02  # times the kept figure
WARM_UP = 30  # calls: what is imported, made or cached once is there
FIGURES = {  # what is counted, and what the project wants of it: (sync, async)
    "success, by default": (135, 145),
    "success, prefetch=0, resume=False": (None, None),
    # Async, half of them are those of anyio's cancel scope; hot_path.py has the time.
    "success, total_timeout=30": (470, None),
}

Make = Callable[[Setting], Callable[[Any], Any]]


def figures(make: dict[str, Make], flavour: str, calls: int) -> dict[str, float]:
    """Bytecodes that a library adds; `make` gives the way to send for each figure."""
    family = Family("httpx")
    bare = count(family, flavour, lambda s: family.send_of(flavour, s.inner), calls)
    return {name: count(family, flavour, made, calls) - bare for name, made in make.items()}


def count(family: Family, flavour: str, make: Make, calls: int) -> float:
    """Bytecodes of one call that is answered 200 at once: the median over some calls."""
    inner = family.scripted(flavour)
    send, request = make(Setting(family, flavour, inner)), family.request(flavour)
    for _ in range(WARM_UP + calls):
        inner.answers.append(family.response(200))
    gc.collect()
    gc.disable()
    try:
        if flavour == "async":
            counts = asyncio.run(_async_counts(send, request, calls))
        else:
            counts = _sync_counts(send, request, calls)
    finally:
        gc.enable()
    if inner.answers:
        raise RuntimeError(f"{len(inner.answers)} answers were not asked for")
    return median(counts)


def _sync_counts(send: Callable[[Any], Any], request: Any, calls: int) -> list[int]:
    for _ in range(WARM_UP):
        send(request)
    counts = []
    for _ in range(calls):
        with counting() as counted:
            send(request)
        counts.append(counted[0])
    return counts


async def _async_counts(send: Callable[[Any], Any], request: Any, calls: int) -> list[int]:
    for _ in range(WARM_UP):
        await send(request)
    counts = []
    for _ in range(calls):
        with counting() as counted:
            await send(request)
        counts.append(counted[0])
    return counts


@contextmanager
def counting() -> Iterator[list[int]]:
    """Count every bytecode but the stub's own into the list's one element."""
    monitoring = sys.monitoring
    counted = [0]

    def instruction(code: CodeType, offset: int) -> None:
        if code.co_filename != STUBS:
            counted[0] += 1

    tool = next(number for number in range(6) if monitoring.get_tool(number) is None)
    monitoring.use_tool_id(tool, "forbear's benchmark")
    monitoring.register_callback(tool, monitoring.events.INSTRUCTION, instruction)
    monitoring.set_events(tool, monitoring.events.INSTRUCTION)
    try:
        yield counted
    finally:
        monitoring.set_events(tool, 0)
        monitoring.register_callback(tool, monitoring.events.INSTRUCTION, None)
        monitoring.free_tool_id(tool)


def _of_forbear(**options: Any) -> Make:
    return lambda setting: forbear(setting, **options)


OURS: dict[str, Make] = {
    "success, by default": _of_forbear(bodies_alone=False),
    "success, prefetch=0, resume=False": forbear,
    "success, total_timeout=30": _of_forbear(bodies_alone=False, policy={"total_timeout": 30.0}),
}
PEER: dict[str, Make] = {"success, by default": httpx_retries}


def measure(calls: int) -> dict[str, dict[str, dict[str, float]]]:
    """Figures by library and flavour."""
    makers = {"forbear": OURS}
    if find_spec("httpx_retries") is not None:
        makers["httpx-retries"] = PEER
    return {
        name: {flavour: figures(make, flavour, calls) for flavour in FLAVOURS}
        for name, make in makers.items()
    }


def too_high(found: dict[str, dict[str, float]], kept: dict[str, dict[str, float]]) -> list[str]:
    """One line for each figure that is more than 2 % above the one kept."""
    return [
        f"{flavour}, {name}: {found[flavour][name]:g} bytecodes, {figure:g} are kept"
        for flavour, by_name in kept.items()
        for name, figure in by_name.items()
        if found[flavour][name] > figure * TOLERANCE
    ]


def render(
    measured: dict[str, dict[str, dict[str, float]]], kept: dict[str, dict[str, float]]
) -> str:
    parts = []
    for index, flavour in enumerate(FLAVOURS):
        rows = []
        for name, goals in FIGURES.items():
            cells = [
                measured["forbear"][flavour].get(name),
                goals[index],
                kept.get(flavour, {}).get(name),
                measured.get("httpx-retries", {}).get(flavour, {}).get(name),
            ]
            rows.append([name, *("" if cell is None else f"{cell:,g}" for cell in cells)])
        parts.append(
            table(
                f"httpx {flavour}: bytecodes added",
                ("per", "forbear", "goal", "last release", "httpx-retries"),
                rows,
            )
        )
    return "\n".join(parts)


def read_kept() -> dict[str, Any]:
    """What instructions.json holds, by Python: the versions counted, and figures by flavour."""
    kept: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(description="Count the bytecodes that forbear adds to a call.")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--check", action="store_true", help="1 if a figure exceeds the kept one")
    only.add_argument("--keep", action="store_true", help=f"write the figures to {KEPT.name}")
    only.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--calls", type=int, default=11, metavar="N", help="calls per figure (11)")
    options = parser.parse_args()
    if find_spec("forbear") is None and SOURCE.is_dir():  # a checkout that was not installed
        sys.path.insert(0, str(SOURCE))
    if sys.version_info < (3, 12):
        parser.error("sys.monitoring needs Python 3.12 or later")
    measured = measure(options.calls)
    if options.json:
        print(json.dumps(measured, indent=1))
        return 0
    python = "{}.{}".format(*sys.version_info[:2])
    by_python = read_kept()
    if options.keep:
        by_python[python] = {
            "forbear": version("forbear"),
            "httpx": version("httpx"),
            "figures": measured["forbear"],
        }
        text = json.dumps(by_python, indent=1)
        KEPT.write_text(f"{text}\n", encoding="utf-8")
    kept = by_python.get(python, {}).get("figures", {})
    print(render(measured, kept))
    if options.check:
        lines = too_high(measured["forbear"], kept)
        print(f"\n{verdict(python, sorted(by_python), lines)}")
        return 1 if lines else 0
    return 0


def verdict(python: str, versions: list[str], lines: list[str]) -> str:
    """What `--check` prints last."""
    if python not in versions:
        return f"not compared: the kept figures are of Python {', '.join(versions)}, not {python}"
    return "\n".join(lines) if lines else f"no figure is above the last release's, Python {python}"


if __name__ == "__main__":
    sys.exit(main())
