"""Loopback: requests per second and client CPU per request against an nginx on this machine.

The server is one process with a configuration and a port of its own, started and stopped here. All
candidates of a family and flavour share one connection pool: a pool's history changes its speed
more than any wrapper does.
Slices alternate B A B C B …, as in _measure.py; the client is kept on the first CPU, nginx on the
last.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from _calls import BARE_AGAIN, in_order
from _candidates import CANDIDATES, Candidate, Setting
from _measure import best_bare, figure, interleave
from _stubs import Family

CONCURRENCY = {"sync": 1, "async": 10}
ROWS = (
    "minimal loop",
    "forbear",
    "forbear, budget=None",
    "httpx-retries",
    "httpware Retry",
    "tenacity",
)
CONFIGURATION = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log crit;
events {{ worker_connections 512; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    keepalive_timeout 600s;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    default_type application/json;
    server {{
        listen 127.0.0.1:{port};
        location / {{ return 200 '{{"items": []}}'; }}
    }}
}}
"""


def loopback(
    families: Sequence[Family], rounds: int, seconds: float, chosen: Sequence[Candidate]
) -> dict[str, Any]:
    """Requests per second, and CPU per request as a multiple of the neighbouring bare one."""
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if nginx is None:
        return {"skipped": "nginx is not on the PATH"}
    with _server(nginx) as url:
        if url is None:
            return {"skipped": "nginx did not start"}
        with _pinned():
            return {
                family.name: {
                    "sync": _sync(family, url, rounds, seconds, chosen),
                    "async": asyncio.run(_async(family, url, rounds, seconds, chosen)),
                }
                for family in families
            }


def _sync(
    family: Family, url: str, rounds: int, seconds: float, chosen: Sequence[Candidate]
) -> dict[str, Any]:
    with family.lib.HTTPTransport() as shared:
        senders, skipped = _senders(family, "sync", shared, chosen)
        clients = {name: family.client("sync", send) for name, send in senders.items()}
        rates: dict[str, list[float]] = {name: [] for name in clients}

        def turn(name: str) -> tuple[float, ...]:
            get = clients[name].get
            count = 0
            cpu, start = time.thread_time(), time.perf_counter()
            until = start + seconds
            while time.perf_counter() < until:
                get(url)
                count += 1
            cpu, wall = time.thread_time() - cpu, time.perf_counter() - start
            rates[name].append(count / wall)
            return (cpu / count * 1e6,)

        for name in clients:
            turn(name)
        return _summary(turn, rates, rounds, skipped)


async def _async(
    family: Family, url: str, rounds: int, seconds: float, chosen: Sequence[Candidate]
) -> dict[str, Any]:
    async with family.lib.AsyncHTTPTransport() as shared:
        senders, skipped = _senders(family, "async", shared, chosen)
        clients = {name: family.client("async", send) for name, send in senders.items()}
        rates: dict[str, list[float]] = {name: [] for name in clients}

        async def turn(name: str) -> tuple[float, ...]:
            get = clients[name].get
            count = 0

            async def worker() -> None:
                nonlocal count
                while time.perf_counter() < until:
                    await get(url)
                    count += 1

            cpu, start = time.thread_time(), time.perf_counter()
            until = start + seconds
            await asyncio.gather(*(worker() for _ in range(CONCURRENCY["async"])))
            cpu, wall = time.thread_time() - cpu, time.perf_counter() - start
            rates[name].append(count / wall)
            return (cpu / count * 1e6,)

        for name in clients:
            await turn(name)
        return await asyncio.to_thread(_summary, _from_thread(turn), rates, rounds, skipped)


def _from_thread(turn: Any) -> Any:
    """Let the interleaving, which is plain code, take its turns inside the running event loop."""
    loop = asyncio.get_running_loop()
    return lambda name: asyncio.run_coroutine_threadsafe(turn(name), loop).result()


def _senders(
    family: Family, flavour: str, shared: Any, chosen: Sequence[Candidate]
) -> tuple[dict[str, Any], dict[str, Any]]:
    bare = family.send_of(flavour, shared)
    senders, skipped = {"bare": bare, BARE_AGAIN: bare}, {}
    for candidate in CANDIDATES:
        if candidate.name not in ROWS:
            continue
        absence = candidate.absence(family.name, flavour)
        if absence:
            skipped[candidate.name] = {"skipped": absence}
        elif candidate in chosen:
            senders[candidate.name] = candidate.make(Setting(family, flavour, shared))
    return senders, skipped


def _summary(
    turn: Any, rates: dict[str, list[float]], rounds: int, skipped: dict[str, Any]
) -> dict[str, Any]:
    names = [name for name in rates if name != "bare"]
    turns = {name: lambda name=name: turn(name) for name in names}
    samples = interleave(lambda: turn("bare")[0], turns, rounds, 1)
    best = best_bare(samples)
    rows: dict[str, Any] = dict(skipped)
    bare_rate = median(rates["bare"])
    for name, turns in samples.items():
        rows[name] = {
            **figure(turns, best, lambda s: s.parts[0] / s.bare).as_dict(),
            "cpu_us": figure(turns, best, lambda s: s.parts[0]).median,
            "rate": median(rates[name]),
            "rate_ratio": median(rates[name]) / bare_rate,
        }
    return {
        "unit": "CPU per request, x bare",
        "bare_cpu_us": best,
        "bare_rate": bare_rate,
        "rows": in_order(rows),
    }


@contextlib.contextmanager
def _server(nginx: str) -> Iterator[str | None]:
    with tempfile.TemporaryDirectory() as folder:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        configuration = Path(folder, "nginx.conf")
        configuration.write_text(CONFIGURATION.format(folder=folder, port=port))
        process = subprocess.Popen(
            [nginx, "-p", folder, "-e", f"{folder}/error.log", "-c", str(configuration)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            if hasattr(os, "sched_setaffinity"):
                os.sched_setaffinity(process.pid, {max(os.sched_getaffinity(0))})
            yield f"http://127.0.0.1:{port}/" if _answers(process, port) else None
        finally:
            process.terminate()
            process.wait(10)


def _answers(process: subprocess.Popen[bytes], port: int) -> bool:
    until = time.monotonic() + 5.0
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return True
        time.sleep(0.02)
    return False


@contextlib.contextmanager
def _pinned() -> Iterator[None]:
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
