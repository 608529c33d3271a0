"""``forbear dashboards``: write what ships for those who look at the metrics. Floor: acts."""

from __future__ import annotations

import argparse
from typing import TextIO

from ...telemetry import assets
from . import complain, teach

__all__ = ["add_arguments", "run"]

ABOUT = (
    "Write a Grafana dashboard, and recording rules with alerts for Prometheus, into a directory."
    " They read the metrics that forbear.telemetry exports. Files of these names are replaced."
)
EXAMPLES = f"""\
then, in prometheus.yml:   rule_files: ["{assets.RULES}"]
and in Grafana:            Dashboards, New, Import: {assets.DASHBOARD}

exit status: 0 done, 2 the directory cannot be written to.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    teach(parser, ABOUT, EXAMPLES)
    parser.add_argument("--out", default=".", metavar="DIR", help="made if it is not there (.)")


def run(out: TextIO, options: argparse.Namespace) -> int:
    """Write the files, name them, return the exit status."""
    try:
        for path in assets.write(options.out):
            print(path, file=out)
    except OSError as error:
        return complain("dashboards", f"cannot write into {options.out}: {error.strerror}")
    return 0
