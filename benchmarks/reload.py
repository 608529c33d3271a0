"""Reload: 200 calls a second, none held back, while the server reloads. Who loses calls, and why?

    python benchmarks/reload.py [--rate N] [--seconds N] [--down N] [--only WORD]

A server process on this machine answers after 50 ms. Twice it hangs for three seconds, as a single
worker does while its application is imported again, and then closes its connections. An
``AsyncClient`` begins a call every 5 ms, however many are open; its timeouts are httpx's own 5 s.
Columns: calls lost and the error of most of them, the longest wait of the event loop, the seconds
spent in the one function of httpcore that hands connections to queued calls, and the seconds until
the last call was over (8 s is as long as calls are begun; what takes 60 s is not waited for).

More calls come in three seconds than httpx's 100 connections, so they queue in the pool. Whenever a
call comes or goes, ``_assign_requests_to_connections`` of httpcore 1.0.9 looks at every connection
for every queued call: with 500 calls that takes longer than the next one needs to come. The loop
falls behind, calls wait longer than 5 s, and each PoolTimeout looks again. httpcore2 looks once.
Without a bound on connections nothing queues, and what is lost is what the server cut.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import logging
import multiprocessing
import os
import sys
import time
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from _tables import table

if find_spec("forbear") is None:  # a checkout that was not installed
    sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
SERVICE = 0.05  # seconds until an answer
DOWN_AT = (0.25, 0.625)  # of the whole time
LONGEST = 60.0  # seconds
ROWS = (
    ("bare", "httpx", 100),
    ("bare", "httpx", None),
    ("bare", "httpx2", 100),
    ("httpx-retries", "httpx", 100),
    ("httpx-retries", "httpx", None),
    ("forbear", "httpx", 100),
    ("forbear", "httpx", None),
)


async def serve(wire: Any, seconds: float, down: float) -> None:
    """Answer, and reload twice."""
    writers: set[asyncio.StreamWriter] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                await asyncio.sleep(SERVICE)
                writer.write(ANSWER)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writers.discard(writer)
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)
    wire.send(server.sockets[0].getsockname()[1])
    wire.recv()  # the first call is about to be made
    began = time.monotonic()
    for place in DOWN_AT:
        await asyncio.sleep(max(0.0, began + place * seconds - time.monotonic()))
        time.sleep(down)  # the whole process hangs
        for writer in list(writers):
            writer.transport.abort()
    await asyncio.sleep(3600)


def serving(wire: Any, seconds: float, down: float) -> None:
    asyncio.run(serve(wire, seconds, down))


class Load:
    """Calls begun at a steady rate, and what became of them."""

    def __init__(self, who: str, name: str, connections: int | None) -> None:
        library: Any = importlib.import_module(name)
        limits = library.Limits(max_connections=connections, max_keepalive_connections=20)
        inner = library.AsyncHTTPTransport(limits=limits, verify=False)
        transport = inner
        if who == "forbear":
            transport = importlib.import_module(f"forbear.{name}").AsyncRetryTransport(inner)
        elif who == "httpx-retries":
            transport = importlib.import_module("httpx_retries").RetryTransport(inner)
        self.client = library.AsyncClient(transport=transport, trust_env=False)
        self.lost: Counter[str] = Counter()
        self.assigning = self.lag = self.took = 0.0
        pool = inner._pool
        assign = pool._assign_requests_to_connections

        def timed() -> Any:
            began = time.perf_counter()
            try:
                return assign()
            finally:
                self.assigning += time.perf_counter() - began

        pool._assign_requests_to_connections = timed

    async def run(self, url: str, rate: float, seconds: float) -> None:
        """Leave the client as it is: to close it would take as long again."""
        began = time.monotonic()
        watching = asyncio.create_task(self._watch())
        calls = []
        wanted = int(rate * seconds)
        for number in range(wanted):
            now = time.monotonic()
            if now > began + LONGEST:
                break
            await asyncio.sleep(max(0.0, began + number / rate - now))
            calls.append(asyncio.create_task(self._call(url)))
        _, pending = await asyncio.wait(calls, timeout=max(0.0, began + LONGEST - time.monotonic()))
        self.took = time.monotonic() - began
        self.lost["unfinished"] += len(pending) + wanted - len(calls)
        watching.cancel()

    async def _call(self, url: str) -> None:
        try:
            await self.client.get(url)
        except Exception as error:
            self.lost[type(error).__name__] += 1

    async def _watch(self) -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.02)
            self.lag = max(self.lag, time.monotonic() - began - 0.02)


def measure(row: tuple[str, str, int | None], args: argparse.Namespace, wire: Any) -> None:
    """One row, in a process of its own."""
    logging.disable()
    here, there = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serving, args=(there, args.seconds, args.down))
    server.start()
    url = f"http://127.0.0.1:{here.recv()}/"
    load = Load(*row)

    async def run() -> None:
        here.send(True)
        await load.run(url, args.rate, args.seconds)
        server.kill()
        error, count = load.lost.most_common(1)[0]
        most = f"{count} {error}" if count else ""
        wire.send((load.lost.total(), most, load.lag, load.assigning, load.took))
        os._exit(0)

    asyncio.run(run())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rate", type=float, default=200.0, help="calls a second")
    parser.add_argument("--seconds", type=float, default=8.0, help="for which calls are begun")
    parser.add_argument("--down", type=float, default=3.0, help="seconds of a reload")
    parser.add_argument("--only", default="", help="rows of this client: bare, forbear …")
    args = parser.parse_args()
    rows = []
    for row in ROWS:
        who, name, connections = row
        if args.only not in who or find_spec(name) is None:
            continue
        if who == "httpx-retries" and find_spec("httpx_retries") is None:
            continue
        here, there = multiprocessing.Pipe()
        one = multiprocessing.Process(target=measure, args=(row, args, there))
        one.start()
        there.close()
        lost, most, lag, assigning, took = here.recv()
        one.join()
        bound = "no bound" if connections is None else str(connections)
        figures = (f"{lag:.2f} s", f"{assigning:.1f} s", f"{took:.1f} s")
        rows.append([f"{who} ({name})", bound, str(lost), most, *figures])
    calls = int(args.rate * args.seconds)
    heads = ("client", "connections", "lost", "most of them", "loop lag", "assigning", "over after")
    print(table(f"{calls} calls", heads, rows))


if __name__ == "__main__":
    main()
