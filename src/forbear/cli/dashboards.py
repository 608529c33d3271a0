"""``forbear dashboards``: the files for the metrics."""

from __future__ import annotations

import argparse

from ..telemetry import assets
from . import complain

ABOUT = (
    "Write a Grafana dashboard, and recording rules with alerts for Prometheus, into a directory."
    " They read the metrics that forbear.telemetry exports. Files of these names are replaced."
)
EXAMPLES = f"""\
then, in prometheus.yml:   rule_files: ["{assets.RULES}"]
and in Grafana:            Dashboards, New, Import: {assets.DASHBOARD}

exit status: 0 done, 2 no directory is given, or it cannot be written to.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    about = "where to; made if it is not there"
    parser.add_argument("--out", metavar="DIR", required=True, help=about)


def run(options: argparse.Namespace) -> int:
    """Write the files, name them, return the exit status."""
    try:
        for path in assets.write(options.out):
            print(path)
    except OSError as error:
        return complain("dashboards", f"cannot write into {options.out}: {error.strerror}")
    return 0
