"""What hedging is worth, by load: one table for each world, and a picture.

    python benchmarks/hedging.py [--runs N] [--calls N] [--jobs N] [--out DIR]
    python benchmarks/hedging.py --sockets [--check] [--runs N] [--calls N]

Writes ``hedging.md`` and ``hedging.svg``: figures of ``python -m benchmarks.simulation stragglers
--hedge``.
All is virtual time and seeded: the same code gives the same files. A whole run takes some minutes.

``--sockets`` measures real calls of httpx on asyncio instead, and writes nothing. Where nothing
else runs, p99.5 and p99.9 fall to a fifth, at most 5 % of requests are added, and no POST is.
A stall of a busy machine makes twenty calls late at once, which shows at p99.9 first. So
``--check`` runs until a run keeps these bounds, N times at most, and fails if none does.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
if find_spec("forbear") is None:  # a checkout that was not installed
    sys.path.insert(0, str(HERE.parent / "src"))

from forbear import Hedge  # noqa: E402 - which had to be found first
from simulation import (  # noqa: E402
    LATENCIES,
    LOADS,
    Latencies,
    LatencyWorld,
    median_latencies,
    run_latencies,
)

STRAGGLERS, ONE_DEAD, HALF = (world for world, _ in LATENCIES.values())
# Title, world, loads.
PARTS = (
    ("Servers go on with what was cancelled", STRAGGLERS, LOADS),
    ("Servers stop what was cancelled", replace(STRAGGLERS, stops=True), LOADS),
    ("The same as the first, 100 processes", replace(STRAGGLERS, clients=100), LOADS),
    ("One server of ten returns 503 in 1 ms", ONE_DEAD, (0.3, 0.6)),
    ("Half speed for 20 s", HALF, (HALF.load,)),
)
HEADS = (
    "load", "p50", "p95", "p99", "p99.9", "mean", "second attempts", "won", "workers busy",
    "success",
)  # fmt: skip
ABOUT = """\
Ten servers with four workers and a queue each; a balancer chooses a server at random. Work for a
response: 20 ms (median of a log-normal distribution with sigma 0.5), for one of a hundred attempts
twenty times as long. Each cell has the figure without hedging and the one with `Hedge()`. Times are
milliseconds until the good response, medians of paired seeds."""


WIDTH = 20  # calls over sockets that are in flight at once
USUAL = 0.05  # seconds that the server takes for them; for each 100th twenty times as long


def main() -> int:
    options = arguments()
    if options.sockets:
        return asyncio.run(over_sockets(options.runs, options.calls or 5_000, options.check))
    options.calls = options.calls or 100_000
    options.out.mkdir(parents=True, exist_ok=True)
    wanted = [
        (replace(world, load=load, calls=options.calls), hedged, seed)
        for _, world, loads in PARTS
        for load in loads
        for hedged in (False, True)
        for seed in range(options.runs)
    ]
    with ProcessPoolExecutor(options.jobs) as pool:
        found = list(pool.map(made, wanted))
    medians = [
        median_latencies(found[place : place + options.runs])
        for place in range(0, len(found), options.runs)
    ]
    pages, rest = [f"# Hedging\n\nMade by `python benchmarks/hedging.py`.\n\n{ABOUT}"], medians
    for title, _, loads in PARTS:
        rows, rest = rest[: 2 * len(loads)], rest[2 * len(loads) :]
        pages.append(f"## {title}\n\n{table(rows)}")
    (options.out / "hedging.md").write_text("\n\n".join(pages) + "\n", encoding="utf-8")
    print(pages[1])
    if find_spec("matplotlib") is None:
        print("no picture: matplotlib is not installed", file=sys.stderr)
        return 0
    from simulation.plot import draw_latencies

    draw_latencies(
        str(options.out / "hedging.svg"), medians[: 2 * len(LOADS)],
        title="simulation: stragglers --hedge",
    )  # fmt: skip
    return 0


def made(run: tuple[LatencyWorld, bool, int]) -> Latencies:
    world, hedged, seed = run
    return run_latencies(world, Hedge if hedged else None, seed=seed)


async def over_sockets(runs: int, calls: int, check: bool) -> int:
    """Print percentiles of GETs without and with hedging, and what was sent in addition."""
    names = ("p50", "p95", "p99", "p99.5", "p99.9")
    heads = ("run", *names, "second attempts", "of POSTs")
    print(f"| {' | '.join(heads)} |\n| {' | '.join(['---:'] * len(heads))} |")
    for run in range(1, runs + 1):
        (none, _), (hedged, arrived) = [
            await loaded(calls, hedge) for hedge in (None, Hedge(at_least=2 * USUAL))
        ]
        places = [int(len(none) * float(name[1:]) / 100) for name in names]
        added, posts = len(arrived) - calls, arrived.count(b"POST") - (calls - len(none))
        cells = [f"{spoken(none[at])} → {spoken(hedged[at])}" for at in places]
        cells = [str(run), *cells, f"{added / calls:.1%}", str(posts)]
        print(f"| {' | '.join(cells)} |", flush=True)
        is_short = all(hedged[at] <= none[at] / 5 for at in places[-2:])
        if check and is_short and added <= 0.05 * calls + Hedge().burst and not posts:
            return 0
    return 1 if check else 0


async def loaded(calls: int, hedge: Hedge | None) -> tuple[list[float], list[bytes]]:
    """Seconds of each GET, the shortest first, and the methods that the server received."""
    import httpx

    from forbear.httpx import AsyncRetryTransport

    arrived: list[bytes] = []
    seconds: list[float] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                arrived.append(head.split(b" ", 1)[0])
                await asyncio.sleep(USUAL * (20 if len(arrived) % 100 == 99 else 1))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            writer.close()

    numbers = iter(range(calls))

    async def call(client: httpx.AsyncClient, url: str) -> None:
        for n in numbers:
            method = "POST" if n % 20 == 0 else "GET"
            began = time.perf_counter()
            await client.request(method, url)
            if method == "GET":
                seconds.append(time.perf_counter() - began)

    async with await asyncio.start_server(serve, "127.0.0.1") as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        transport = AsyncRetryTransport(httpx.AsyncHTTPTransport(verify=False), hedge=hedge)
        async with httpx.AsyncClient(transport=transport, trust_env=False) as client:
            await asyncio.gather(*(call(client, url) for _ in range(WIDTH)))
    return sorted(seconds), arrived


def table(rows: list[Latencies]) -> str:
    """Figures without and with hedging; two rows of one load are one line."""
    lines = [HEADS, ("---:",) * len(HEADS)]
    for none, hedged in zip(rows[::2], rows[1::2], strict=True):
        cells = [f"{none.load:.0%}"]
        for name in ("p50", "p95", "p99", "p999", "mean"):
            cells.append(f"{spoken(getattr(none, name))} → {spoken(getattr(hedged, name))}")
        cells += [f"{hedged.extra:.1%}", f"{hedged.won:.0%}"]
        for name in ("busy", "success"):
            cells.append(f"{getattr(none, name):.1%} → {getattr(hedged, name):.1%}")
        lines.append(tuple(cells))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def spoken(seconds: float) -> str:
    milliseconds = seconds * 1000
    return f"{milliseconds:.3g}" if milliseconds < 999.5 else f"{milliseconds:,.0f}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Simulate hedging at loads of 10 to 90 %.")
    add = parser.add_argument
    add("--runs", type=int, default=3, metavar="N", help="paired seeds (3)")
    add("--calls", type=int, metavar="N", help="in each run (100,000; 5,000 over sockets)")
    add("--jobs", type=int, default=os.cpu_count(), metavar="N", help="processes (all cores)")
    add("--out", type=Path, default=HERE / "pictures", metavar="DIR", help="for the files")
    add("--sockets", action="store_true", help="measure real calls, and print a table")
    add("--check", action="store_true", help="of --sockets: fail if no run keeps the bounds")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
