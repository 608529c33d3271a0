"""Assets: a Grafana dashboard, recording rules and alerts for the metrics.

The files are in this package, and name the metrics of the table in
``forbear.telemetry.metrics`` only.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

__all__ = ["read", "write"]

DASHBOARD = "forbear.dashboard.json"
RULES = "forbear.rules.yml"


def read(name: str) -> str:
    """Return the text of "forbear.dashboard.json" (Grafana) or "forbear.rules.yml" (Prometheus).

    Raises:
        FileNotFoundError: There is no asset of this name.
    """
    return files(__name__).joinpath(name).read_text(encoding="utf-8")


def write(directory: str | Path) -> list[Path]:
    """Write all assets into a directory, which is made if there is none; return their paths.

    Files of these names that are there already are replaced.

    Raises:
        OSError: The directory cannot be made or written to.
    """
    into = Path(directory)
    into.mkdir(parents=True, exist_ok=True)
    written = [into / name for name in (DASHBOARD, RULES)]
    for path in written:
        path.write_text(read(path.name), encoding="utf-8")
    return written
