"""Downloads of a large file: what an unbroken one costs over the bare client, and what becomes of a
broken one.

    python benchmarks/download.py [--json FILE|-] [--size MB] [--cuts N] [--rounds N] [--rows TEXT]
    [--seed N] [--quick]

Two tables. *Unbroken*: seconds for the whole file, by the clock and of CPU, each client beside the
bare one of its library, interleaved in one process; what may be compared are the ratios of the best
rounds. *Broken*: a server that breaks every answer at random places; each client runs in a process
of its own and says whether the file arrived (sha256), with how many requests and bytes, and how
much its memory grew. All retry without waiting, without a budget, at most 100 times in a row.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from _files import counted, serving
from _tables import number, table

SOURCE = Path(__file__).parent.parent / "src"
CHUNK = 65_536
ATTEMPTS = 100


class Client(NamedTuple):
    """A way to download. ``download(url, note)`` gives each chunk to ``note`` and raises if the
    file is not whole.
    """

    name: str
    bare: str  # the row that it is compared with when nothing breaks
    needs: tuple[str, ...]
    download: Callable[[str, Callable[[bytes], object]], None]


def main() -> int:
    options = _options()
    if find_spec("forbear") is None and SOURCE.is_dir():  # a checkout that was not installed
        sys.path.insert(0, str(SOURCE))
    if options.client:
        return _be_client(options.client, options.url)
    size = (options.size or (4 if options.quick else 200)) * 1_000_000
    cuts = options.cuts if options.cuts is not None else (5 if options.quick else 40)
    rounds = options.rounds or (1 if options.quick else 9)
    source = random.Random(options.seed)
    chosen = [client for client in CLIENTS if options.rows in client.name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(source.randbytes(size))
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        places = sorted(source.sample(range(1, size), cuts))
        report = {
            "size": size,
            "cuts": places,
            "rounds": rounds,
            "unbroken": _unbroken(path, rounds, chosen),
            "broken": _broken(path, places, digest, chosen),
        }
    if options.json != "-":
        print(_rendered(report))
    if options.json == "-":
        print(json.dumps(report))
    elif options.json:
        Path(options.json).write_text(json.dumps(report, indent=1) + "\n")
    return 0


def _unbroken(path: Path, rounds: int, chosen: list[Client]) -> dict[str, Any]:
    """The best and the median round of each client, and its best over that of the bare one."""
    present = [client for client in chosen if client.bare and all(map(find_spec, client.needs))]
    seconds: dict[str, list[float]] = {client.name: [] for client in present}
    cpu: dict[str, list[float]] = {client.name: [] for client in present}
    with serving(path, []) as url:
        for _ in range(rounds):
            random.shuffle(present)
            for client in present:
                started, busy = time.perf_counter(), time.process_time()
                client.download(url, len)
                seconds[client.name].append(time.perf_counter() - started)
                cpu[client.name].append(time.process_time() - busy)
    rows = {}
    for client in sorted(present, key=CLIENTS.index):
        best, least = min(seconds[client.name]), min(cpu[client.name])
        rows[client.name] = {
            "best": best,
            "median": sorted(seconds[client.name])[rounds // 2],
            "ratio": best / min(seconds.get(client.bare, [best])),
            "cpu": least,
            "cpu_ratio": least / min(cpu.get(client.bare, [least])),
        }
    return rows


def _broken(path: Path, places: list[int], digest: str, chosen: list[Client]) -> dict[str, Any]:
    """What each client makes of a server that breaks every answer at these places."""
    rows: dict[str, Any] = {}
    size = path.stat().st_size
    with serving(path, places) as url:
        for client in chosen:
            if not all(
                shutil.which(need) if need == "curl" else find_spec(need) for need in client.needs
            ):
                rows[client.name] = {"skipped": "not installed"}
                continue
            counted(url)
            command = [sys.executable, __file__, "--client", client.name, "--url", url]
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
            if done.returncode:
                raise RuntimeError(done.stderr)
            row = json.loads(done.stdout)
            row["arrived"] = row.pop("sha256") == digest
            row |= counted(url)
            row["bytes_ratio"] = row.pop("bytes") / size
            rows[client.name] = row
    return rows


def _be_client(name: str, url: str) -> int:
    """Download in this process, and say what came."""
    client = next(client for client in CLIENTS if client.name == name)
    digest = hashlib.sha256()
    # Whatever is loaded late is loaded now, and not taken for the download's memory.
    with tempfile.NamedTemporaryFile() as small, serving(Path(small.name), []) as empty:
        client.download(empty, len)
    before = peak()
    started = time.perf_counter()
    error = None
    try:
        client.download(url, digest.update)
    except Exception as failed:
        error = type(failed).__name__
    print(
        json.dumps(
            {
                "sha256": digest.hexdigest(),
                "error": error,
                "seconds": time.perf_counter() - started,
                "memory_mb": peak() - before,
            }
        )
    )
    return 0


def peak() -> float:
    """The most memory that this process has held, in MB."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return (
        int(status.partition("VmHWM:")[2].split()[0]) / 1024
    )  # maxrss begins with that of the parent


def _rendered(report: dict[str, Any]) -> str:
    size = report["size"] / 1e6
    unbroken = [
        (
            name,
            f"{row['best']:.3f}",
            f"{row['median']:.3f}",
            number(size / row["best"]),
            f"{row['ratio']:.3f}",
            f"{row['cpu']:.3f}",
            f"{row['cpu_ratio']:.3f}",
        )
        for name, row in report["unbroken"].items()
    ]
    broken = [
        (name, row["skipped"], "", "", "", "", "")
        if "skipped" in row
        else (
            name,
            "whole" if row["arrived"] else "not whole",
            row["error"] or "",
            str(row["requests"]),
            f"{row['bytes_ratio']:.2f}",
            f"{row['seconds']:.2f}",
            f"{row['memory_mb']:.1f}",
        )
        for name, row in report["broken"].items()
    ]
    return "\n".join(
        [
            table(
                f"unbroken, {size:.0f} MB, {report['rounds']} rounds",
                ("client", "best, s", "median, s", "MB/s", "best / bare", "CPU, s", "CPU / bare"),
                unbroken,
            ),
            table(
                f"broken at {len(report['cuts'])} random places, {size:.0f} MB",
                ("client", "arrived", "error", "requests", "bytes / size", "s", "memory, MB"),
                broken,
            ),
        ]
    )


# The clients.


def _policy() -> Any:
    from forbear import Fixed, RetryPolicy

    return RetryPolicy(max_attempts=ATTEMPTS, backoff=Fixed(0.0))


def _httpx(name: str, wrapped: bool) -> Callable[[str, Callable[[bytes], object]], None]:
    def download(url: str, note: Callable[[bytes], object]) -> None:
        import importlib

        library = importlib.import_module(name)
        inner = library.HTTPTransport()
        if wrapped:
            inner = importlib.import_module(f"forbear.{name}").RetryTransport(
                inner, policy=_policy(), budget=None
            )
        with (
            library.Client(transport=inner) as client,
            client.stream("GET", url + "/file") as response,
        ):
            for chunk in response.iter_bytes():
                note(chunk)

    return download


def _httpx_async(name: str, wrapped: bool) -> Callable[[str, Callable[[bytes], object]], None]:
    async def adownload(url: str, note: Callable[[bytes], object]) -> None:
        import importlib

        library = importlib.import_module(name)
        inner = library.AsyncHTTPTransport()
        if wrapped:
            inner = importlib.import_module(f"forbear.{name}").AsyncRetryTransport(
                inner, policy=_policy(), budget=None
            )
        async with (
            library.AsyncClient(transport=inner) as client,
            client.stream("GET", url + "/file") as response,
        ):
            async for chunk in response.aiter_bytes():
                note(chunk)

    return lambda url, note: asyncio.run(adownload(url, note))


def _requests(session_of: Callable[[], Any]) -> Callable[[str, Callable[[bytes], object]], None]:
    def download(url: str, note: Callable[[bytes], object]) -> None:
        with session_of() as session, session.get(url + "/file", stream=True) as response:
            for chunk in response.iter_content(CHUNK):
                note(chunk)

    return download


def _session() -> Any:
    import requests

    return requests.Session()


def _forbear_session() -> Any:
    from forbear.requests import RetryAdapter

    session = _session()
    session.mount("http://", RetryAdapter(_policy(), budget=None))
    return session


def _retry_session() -> Any:
    from requests.adapters import HTTPAdapter
    from urllib3.util import Retry

    session = _session()
    session.mount("http://", HTTPAdapter(max_retries=Retry(total=ATTEMPTS, backoff_factor=0)))
    return session


def _urllib3(retrying: bool) -> Callable[[str, Callable[[bytes], object]], None]:
    def download(url: str, note: Callable[[bytes], object]) -> None:
        if retrying:
            from forbear.urllib3 import RetryPoolManager

            manager: Any = RetryPoolManager(_policy(), budget=None)
        else:
            import urllib3

            manager = urllib3.PoolManager(retries=False)
        with manager.request("GET", url + "/file", preload_content=False) as response:
            for chunk in response.stream(CHUNK):
                note(chunk)

    return download


def _httpx_retries(url: str, note: Callable[[bytes], object]) -> None:
    import httpx
    from httpx_retries import Retry, RetryTransport

    transport = RetryTransport(retry=Retry(total=ATTEMPTS, backoff_factor=0))
    with (
        httpx.Client(transport=transport) as client,
        client.stream("GET", url + "/file") as response,
    ):
        for chunk in response.iter_bytes():
            note(chunk)


def _curl(*more: str) -> Callable[[str, Callable[[bytes], object]], None]:
    def download(url: str, note: Callable[[bytes], object]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "file")
            retry = (
                "--retry",
                str(ATTEMPTS),
                "--retry-all-errors",
                "--retry-delay",
                "1",
                "--retry-max-time",
                "10",
            )
            done = subprocess.run(
                ["curl", "-sf", *retry, *more, "-o", path, url + "/file"],
                capture_output=True,
                check=False,
            )
            if os.path.exists(path):
                with open(path, "rb") as file:
                    while chunk := file.read(CHUNK):
                        note(chunk)
            if done.returncode:
                raise OSError(f"curl ended with {done.returncode}")

    return download


CLIENTS = [
    Client("httpx", "httpx", ("httpx",), _httpx("httpx", False)),
    Client("forbear, httpx", "httpx", ("httpx", "forbear"), _httpx("httpx", True)),
    Client("httpx async", "httpx async", ("httpx",), _httpx_async("httpx", False)),
    Client(
        "forbear, httpx async", "httpx async", ("httpx", "forbear"), _httpx_async("httpx", True)
    ),
    Client("httpx2", "httpx2", ("httpx2",), _httpx("httpx2", False)),
    Client("forbear, httpx2", "httpx2", ("httpx2", "forbear"), _httpx("httpx2", True)),
    Client("httpx-retries", "", ("httpx", "httpx_retries"), _httpx_retries),
    Client("requests", "requests", ("requests",), _requests(_session)),
    Client("forbear, requests", "requests", ("requests", "forbear"), _requests(_forbear_session)),
    Client("requests, Retry", "", ("requests",), _requests(_retry_session)),
    Client("urllib3", "urllib3", ("urllib3",), _urllib3(False)),
    Client("forbear, urllib3", "urllib3", ("urllib3", "forbear"), _urllib3(True)),
    Client("curl --retry", "", ("curl",), _curl()),
    Client("curl --retry -C -", "", ("curl",), _curl("-C", "-")),
]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Download a large file, unbroken and broken.")
    parser.add_argument(
        "--json", metavar="FILE", help="write every figure as JSON; - for standard output only"
    )
    parser.add_argument("--size", type=int, metavar="MB", help="of the file (200)")
    parser.add_argument(
        "--cuts", type=int, metavar="N", help="places at which every answer breaks (40)"
    )
    parser.add_argument("--rounds", type=int, metavar="N", help="of the unbroken download (9)")
    parser.add_argument(
        "--rows", default="", metavar="TEXT", help="only clients whose name contains TEXT"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the content and the places (1)")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a small file and one round: shows that everything runs",
    )
    parser.add_argument("--client", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
