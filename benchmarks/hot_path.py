"""The price of a call through forbear, beside its peers and beside doing it by hand; one command.

    python benchmarks/hot_path.py [--json FILE|-] [--rounds N] [--only MEASURE] [--rows TEXT]
                                  [--family httpx|httpx2|both] [--quick]

Nine measures: success, retry, in-situ (`client.get()` with cold caches), garbage, adapters
(requests and urllib3), aiohttp, imports, waiting, loopback. All candidates are measured interleaved
in one run, so compare figures of one run with each other; nothing here passes or fails on a time.
`goal` is what the project wants of its own rows on CPython 3.12: a fixed time, or times what
httpx-retries costs in the same run.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from _adapters import adapters
from _aiohttp import aiohttp_calls
from _calls import FLAVOURS, Effort, garbage, retry, success
from _candidates import CANDIDATES, FORBEAR, LOOP, PACKAGES
from _imports import imports
from _in_situ import in_situ
from _loopback import loopback
from _stubs import Family
from _tables import render
from _waiting import waiting

SOURCE = Path(__file__).parent.parent / "src"
MEASURES = (
    "success", "retry", "in-situ", "garbage", "adapters", "aiohttp", "imports", "waiting",
    "loopback",
)  # fmt: skip


def main() -> int:
    options = _options()
    if find_spec("forbear") is None and SOURCE.is_dir():  # a checkout that was not installed
        sys.path.insert(0, str(SOURCE))
    quick = options.quick
    rounds = options.rounds or (2 if quick else 21)
    effort = Effort(rounds, 0.0003 if quick else 0.003, 1 if quick else 3, 50 if quick else 1_000)
    names = ("httpx", "httpx2") if options.family == "both" else (options.family,)
    families = [Family(name) for name in names if find_spec(name) is not None]
    chosen = [c for c in CANDIDATES if c.name == LOOP or options.rows in c.name]
    wanted = options.only or MEASURES

    calls = {"success": success, "retry": retry, "in-situ": in_situ, "garbage": garbage}
    report: dict[str, Any] = {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in PACKAGES},
        "rounds": rounds,
        "quick": quick,
        "seconds": {},
        "measures": {},
    }
    silent = options.json == "-"
    if not silent:
        print(_header(report), flush=True)
    for name in MEASURES:
        if name not in wanted:
            continue
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        started = time.monotonic()
        if name in calls:
            measure = calls[name]
            result = {
                f.name: {c: measure(f, c, effort, chosen) for c in FLAVOURS} for f in families
            }
        elif name == "adapters":
            result = adapters(effort)
        elif name == "aiohttp":
            result = aiohttp_calls(effort)
        elif name == "imports":
            result = imports(1 if quick else max(rounds // 2, 5))
        elif name == "waiting":
            waiters, spread = (1_000, 0.1) if quick else (10_000, 1.0)
            # A quick run leaves the peers out: it would spend most of its time waiting for theirs
            # to wake.
            waiting_ones = [
                c for c in chosen if not quick or c.name == LOOP or c.package == FORBEAR
            ]
            result = {f.name: waiting(f, waiters, spread, waiting_ones) for f in families}
        else:
            result = loopback(families, 1 if quick else rounds, 0.02 if quick else 0.1, chosen)
        report["measures"][name] = result
        report["seconds"][name] = round(time.monotonic() - started, 1)
        if not silent:
            print(render({name: result}), flush=True)
    if options.json:
        text = json.dumps(report, indent=1) + "\n"
        if silent:
            sys.stdout.write(text)
        else:
            Path(options.json).write_text(text)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure what a call through forbear costs.")
    parser.add_argument(
        "--json", metavar="FILE", help="write every figure as JSON; - for standard output only"
    )
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds per measure (21)")
    parser.add_argument(
        "--only", action="append", choices=MEASURES, help="one measure; may be repeated"
    )
    parser.add_argument(
        "--rows", default="", metavar="TEXT", help="only candidates whose name contains TEXT"
    )
    parser.add_argument("--family", choices=("httpx", "httpx2", "both"), default="both")
    parser.add_argument(
        "--quick", action="store_true", help="tiny rounds: shows that everything runs"
    )
    return parser.parse_args()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return "from source" if find_spec(name.replace("-", "_")) else None


def _header(report: dict[str, Any]) -> str:
    packages = ", ".join(
        f"{name} {found or 'not installed'}" for name, found in report["packages"].items()
    )
    return (
        f"{report['python']} on {report['platform']}\n{packages}\n"
        f"{report['rounds']} rounds; median and min..max over quiet rounds;"
        " CPU time unless said otherwise"
    )


if __name__ == "__main__":
    sys.exit(main())
