"""Imports: how long a fresh interpreter takes for a package, alone and on top of its HTTP client.

Each figure comes from interpreters started with -I, one target after the other in turn, that time
the import statement themselves, so that starting up is not in it. The number of modules added is
exact.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from _measure import spread

# name, what is imported before the clock starts, what is timed
BARE = ", without .pyc"  # as in a container that was built without them
TARGETS = (
    ("import httpx", "", "import httpx"),
    ("httpx, then forbear.httpx", "import httpx", "import forbear.httpx"),
    ("httpx, then httpx_retries", "import httpx", "import httpx_retries"),
    (f"httpx, then forbear.httpx{BARE}", "import httpx", "import forbear.httpx"),
    (f"httpx, then httpx_retries{BARE}", "import httpx", "import httpx_retries"),
    ("httpx, then tenacity", "import httpx", "import tenacity"),
    ("httpx, then stamina", "import httpx", "import stamina"),
    ("httpx, then backoff", "import httpx", "import backoff"),
    ("import httpx2", "", "import httpx2"),
    ("httpx2, then forbear.httpx2", "import httpx2", "import forbear.httpx2"),
    ("httpx2, then httpware", "import httpx2", "import httpware"),
    ("forbear alone", "", "import forbear"),
    ("forbear.RetryPolicy alone", "", "import forbear; forbear.RetryPolicy"),
)
GOALS = {  # at most so many times as long as another one
    "httpx, then forbear.httpx": (1.2, "httpx, then httpx_retries"),
    f"httpx, then forbear.httpx{BARE}": (1.2, f"httpx, then httpx_retries{BARE}"),
}
PROBE = """
import sys, time
sys.path[:0] = {path!r}
{first}
known, wall, cpu = set(sys.modules), time.perf_counter_ns(), time.process_time_ns()
{timed}
wall, cpu = time.perf_counter_ns() - wall, time.process_time_ns() - cpu
added = set(sys.modules) - known
import json
print(json.dumps([wall / 1e6, cpu / 1e6, len(added)]))
"""


def imports(rounds: int) -> dict[str, Any]:
    """Milliseconds on the wall and of CPU, and modules added."""
    path = _source_path()
    taken: dict[str, list[list[float]]] = {}
    rows: dict[str, Any] = {}
    for name, first, timed in TARGETS:
        absence = _absence(f"{first}; {timed}")
        if absence:
            rows[name] = {"skipped": absence}
        else:
            taken[name] = []
    for turn in range(rounds + 1):
        for name, first, timed in TARGETS:
            if name not in taken:
                continue
            code = PROBE.format(path=path, first=first, timed=timed)
            figures = _probe(code, *(WITHOUT_PYC if name.endswith(BARE) else ()))
            if turn:  # the first one may have had to compile
                taken[name].append(figures)
    for name, figures in taken.items():
        walls, cpus, added = zip(*figures, strict=True)
        rows[name] = {
            **spread(walls).as_dict(),
            "cpu": spread(cpus).as_dict(),
            "modules": max(added),
        }
    return {"unit": "ms", "rows": {name: rows[name] for name, _, _ in TARGETS}}


# What is compiled is looked for, and would be kept, where nothing is.
WITHOUT_PYC = ("-B", "-X", f"pycache_prefix={Path(__file__).parent / 'nowhere'}")


def _probe(code: str, *options: str) -> list[float]:
    done = subprocess.run(
        [sys.executable, "-I", *options, "-c", code], capture_output=True, text=True, check=True
    )
    figures: list[float] = json.loads(done.stdout)
    return figures


def _absence(statements: str) -> str | None:
    for statement in statements.split(";"):
        keyword, _, module = statement.strip().partition(" ")
        if keyword != "import":
            continue
        try:
            spec = find_spec(module)
            missing = spec is None or spec.origin is None  # a bare folder is no package
        except ModuleNotFoundError:
            missing = True
        if missing:
            return f"{module.split('.')[0]} is not installed"
    return None


def _source_path() -> list[str]:
    """Where forbear is, for interpreters that ignore PYTHONPATH; nothing if it is installed."""
    spec = find_spec("forbear")
    if spec is None or spec.origin is None:
        return []
    root = Path(spec.origin).parent.parent
    return [] if root.name in {"site-packages", "dist-packages"} else [str(root)]
