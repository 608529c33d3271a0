"""Streams of events: how much later their first byte comes, and what their events cost, over the
bare client.

    python benchmarks/streams.py [--json FILE|-] [--runs N] [--rounds N] [--events N] [--rows TEXT]
    [--quick] [--check]

Each library's bare client beside three clients of forbear: by default, with ``EventStreams()``, and
with ``EventStreams(resume=True)``. *First byte*: the delay of the first bytes of a good stream over
that of the bare client's next one, the median of 500 pairs. *CPU*: what this process spends on
10,000 events a second, each a chunk of its own, over what the bare client spends next to it, the
median of rounds of 2,000 events. The server is a process of its own. The clients
take turns in a drawn order, so what else the machine does reaches all of them.

With ``--check`` the exit status is 1 if a figure is above its bound: 1 ms, 5 % and, with
``resume=True``, 25 %.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from _files import read_head
from _tables import table

SOURCE = Path(__file__).parent.parent / "src"
LATER = 1.0  # ms, of the first byte
SHARE = {"default": 1.05, "EventStreams()": 1.05, "resume=True": 1.25}  # of the bare client's CPU
BARE = "bare"
EVENTS = 2_000  # of a round; many short ones, since the machine has other work too
RATE = 10_000  # events a second


class Read(NamedTuple):
    """A client. ``stream(url)`` reads a whole stream and returns when its first bytes came."""

    stream: Callable[[str], float]
    close: Callable[[], object]


class Client(NamedTuple):
    """A library. ``build(options)`` makes a client; None: the bare one."""

    name: str
    module: str
    build: Callable[[dict[str, Any] | None], Read]


def main() -> int:
    options = _options()
    if options.serve:
        _serve()
    if find_spec("forbear") is None and SOURCE.is_dir():  # a checkout that was not installed
        sys.path.insert(0, str(SOURCE))
    runs = options.runs or (5 if options.quick else 500)
    rounds = options.rounds or (2 if options.quick else 45)
    events = options.events or (200 if options.quick else EVENTS)
    rows: dict[str, Any] = {}
    with _serving() as url:
        for client in CLIENTS:
            if options.rows not in client.name:
                continue
            if find_spec(client.module) is None:
                rows[client.name] = {"skipped": "not installed"}
                continue
            rows[client.name] = _measured(client, url, runs, rounds, events)
    report = {"runs": runs, "rounds": rounds, "events": events, "rows": rows}
    if options.json == "-":
        print(json.dumps(report))
    else:
        print(_rendered(report))
        if options.json:
            Path(options.json).write_text(json.dumps(report, indent=1) + "\n")
    over = _over(report)
    if options.check and over:
        print("\n".join(over), file=sys.stderr)
    return 1 if options.check and over else 0


def _measured(client: Client, url: str, runs: int, rounds: int, events: int) -> dict[str, Any]:
    from forbear import EventStreams, Fixed, RetryPolicy

    at_once = RetryPolicy(backoff=Fixed(0.0))  # the server is asked for more when a stream ends
    options = {
        "default": {},
        "EventStreams()": {"event_streams": EventStreams()},
        "resume=True": {"event_streams": EventStreams(resume=True), "policy": at_once},
    }
    bare, readers = client.build(None), {mode: client.build(options[mode]) for mode in SHARE}

    def first(read: Read) -> float:
        began = time.perf_counter()
        return (read.stream(f"{url}/3") - began) * 1e3

    def cpu(read: Read) -> float:
        began = time.process_time()
        read.stream(f"{url}/{events}")
        return time.process_time() - began

    first_bytes = _pairs(first, bare, readers, runs)
    shares = _pairs(cpu, bare, readers, rounds)
    for read in (bare, *readers.values()):
        read.close()
    return {
        BARE: {
            "first_ms": median(alone for each in first_bytes.values() for alone, _ in each),
            "cpu_us": median(alone for each in shares.values() for alone, _ in each) / events * 1e6,
        },
        **{
            mode: {
                "later_ms": median(ours - alone for alone, ours in first_bytes[mode]),
                "cpu_ratio": median(ours / alone for alone, ours in shares[mode]),
            }
            for mode in readers
        },
    }


def _pairs(
    measure: Callable[[Read], float], bare: Read, readers: dict[str, Read], count: int
) -> dict[str, list[tuple[float, float]]]:
    """Pairs of the bare client's figure and of each other client's, taken one after the other."""
    found: dict[str, list[tuple[float, float]]] = {mode: [] for mode in readers}
    for read in (bare, *readers.values()):
        measure(read)  # opens the connection, and lets the interpreter specialize
    for _ in range(count):
        for mode in random.sample(list(readers), len(readers)):
            if random.random() < 0.5:
                alone = measure(bare)
                found[mode].append((alone, measure(readers[mode])))
            else:
                ours = measure(readers[mode])
                found[mode].append((measure(bare), ours))
    return found


def _over(report: dict[str, Any]) -> list[str]:
    """What is above its bound."""
    over = []
    for name, row in report["rows"].items():
        for mode, most in SHARE.items():
            found = row.get(mode)
            if found is not None and found["later_ms"] > LATER:
                over.append(
                    f"{name}, {mode}: the first byte comes {found['later_ms']:.2f} ms later"
                )
            if found is not None and found["cpu_ratio"] > most:
                over.append(f"{name}, {mode}: {found['cpu_ratio']:.3f} of the CPU, bound {most}")
    return over


def _rendered(report: dict[str, Any]) -> str:
    modes = list(SHARE)
    first_bytes, shares = [], []
    for name, row in report["rows"].items():
        if "skipped" in row:
            first_bytes.append((name, row["skipped"], *[""] * len(modes)))
            shares.append(first_bytes[-1])
            continue
        alone = row[BARE]
        first_bytes.append(
            (name, f"{alone['first_ms']:.2f}", *(f"{row[mode]['later_ms']:+.2f}" for mode in modes))
        )
        shares.append(
            (name, f"{alone['cpu_us']:.1f}", *(f"{row[mode]['cpu_ratio']:.3f}" for mode in modes))
        )
    return "\n".join(
        [
            table(
                f"first byte, ms: the bare client's, and how much later; {report['runs']} pairs",
                ("client", BARE, *modes),
                first_bytes,
            ),
            table(
                f"CPU of {report['events']} events: the bare client's in us for each, and the"
                f" ratio to it; {report['rounds']} rounds",
                ("client", BARE, *modes),
                shares,
            ),
        ]
    )


# The server.


@contextmanager
def _serving() -> Iterator[str]:
    """The URL of the server, in a process that ends with the block."""
    command = [sys.executable, __file__, "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


def _serve() -> None:
    """Answer each GET with a stream of as many events as the last part of its path says."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    print(listener.getsockname()[1], flush=True)
    while True:
        peer, _ = listener.accept()
        threading.Thread(target=_talk, args=(peer,), daemon=True).start()


def _talk(peer: socket.socket) -> None:
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    with peer, suppress(OSError):
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while asked := read_head(peer):
            path = asked.split(" ", 2)[1]
            resumed = "last-event-id" in asked.lower()
            if resumed:  # the client saw the end, so nothing follows
                peer.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
                continue
            peer.sendall(head)
            began = time.monotonic()
            for number in range(int(path.rpartition("/")[2])):
                early = began + number / RATE - time.monotonic()
                if early > 0:
                    time.sleep(early)
                peer.sendall(_event(number))
            peer.sendall(b"0\r\n\r\n")


def _event(number: int) -> bytes:
    """One event, such as the delta of a model, in a chunk of its own."""
    data = json.dumps({"type": "content_block_delta", "index": 0, "delta": {"text": " token"}})
    event = f"event: content_block_delta\nid: {number}\ndata: {data}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(event), event)


# The clients.


def _httpx(name: str) -> Callable[[dict[str, Any] | None], Read]:
    def build(options: dict[str, Any] | None) -> Read:
        library = importlib.import_module(name)
        inner = library.HTTPTransport()
        if options is not None:
            inner = importlib.import_module(f"forbear.{name}").RetryTransport(inner, **options)
        client = library.Client(transport=inner)

        def read(url: str) -> float:
            with client.stream("GET", url) as response:
                chunks = response.iter_bytes()
                next(chunks)
                first = time.perf_counter()
                for _ in chunks:
                    pass
            return first

        return Read(read, client.close)

    return build


def _httpx_async(name: str) -> Callable[[dict[str, Any] | None], Read]:
    def build(options: dict[str, Any] | None) -> Read:
        library = importlib.import_module(name)
        inner = library.AsyncHTTPTransport()
        if options is not None:
            inner = importlib.import_module(f"forbear.{name}").AsyncRetryTransport(inner, **options)
        client = library.AsyncClient(transport=inner)

        async def read(url: str) -> float:
            async with client.stream("GET", url) as response:
                chunks = response.aiter_bytes()
                await anext(chunks)
                first = time.perf_counter()
                async for _ in chunks:
                    pass
            return first

        return Read(lambda url: RUNNER.run(read(url)), lambda: RUNNER.run(client.aclose()))

    return build


def _aiohttp(options: dict[str, Any] | None) -> Read:
    import aiohttp

    middlewares = ()
    if options is not None:
        from forbear.aiohttp import RetryMiddleware

        middlewares = (RetryMiddleware(**options),)

    async def begin() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(middlewares=middlewares)

    session = RUNNER.run(begin())

    async def read(url: str) -> float:
        async with session.get(url) as response:
            await response.content.readany()
            first = time.perf_counter()
            async for _ in response.content.iter_any():
                pass
        return first

    return Read(lambda url: RUNNER.run(read(url)), lambda: RUNNER.run(session.close()))


def _requests(options: dict[str, Any] | None) -> Read:
    import requests

    session = requests.Session()
    if options is not None:
        from forbear.requests import RetryAdapter

        session.mount("http://", RetryAdapter(**options))

    def read(url: str) -> float:
        with session.get(url, stream=True) as response:
            chunks = response.iter_content(None)
            next(chunks)
            first = time.perf_counter()
            for _ in chunks:
                pass
        return first

    return Read(read, session.close)


def _urllib3(options: dict[str, Any] | None) -> Read:
    import urllib3

    if options is None:
        manager: Any = urllib3.PoolManager(retries=False)
    else:
        from forbear.urllib3 import RetryPoolManager

        manager = RetryPoolManager(**options)

    def read(url: str) -> float:
        response = manager.request("GET", url, preload_content=False)
        chunks = response.stream()
        next(chunks)
        first = time.perf_counter()
        for _ in chunks:
            pass
        response.release_conn()
        return first

    return Read(read, manager.clear)


RUNNER = asyncio.Runner()
CLIENTS = [
    Client("httpx", "httpx", _httpx("httpx")),
    Client("httpx async", "httpx", _httpx_async("httpx")),
    Client("httpx2", "httpx2", _httpx("httpx2")),
    Client("httpx2 async", "httpx2", _httpx_async("httpx2")),
    Client("aiohttp", "aiohttp", _aiohttp),
    Client("requests", "requests", _requests),
    Client("urllib3", "urllib3", _urllib3),
]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("--json", metavar="FILE", help="write the figures too; -: them alone")
    parser.add_argument("--runs", type=int, help="pairs for the first byte; 500")
    parser.add_argument("--rounds", type=int, help="pairs for the CPU; 45")
    parser.add_argument("--events", type=int, help="of a round; 2000")
    parser.add_argument(
        "--rows", default="", metavar="TEXT", help="clients with TEXT in their name"
    )
    parser.add_argument("--quick", action="store_true", help="see that it runs; no figures")
    parser.add_argument("--check", action="store_true", help="fail if a figure is above its bound")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
