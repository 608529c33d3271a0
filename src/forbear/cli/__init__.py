"""The command ``forbear``. Floor: acts.

| file | owns |
| --- | --- |
| demo.py | ``forbear demo``: runs the scenes, prints what they show, says whether every promise held |
| scenes.py | the scenes: what goes wrong, what is sent, what must be true afterwards |
| callers.py | the installed clients, in each colour that they have, behind one way of calling |
| simulate.py | ``forbear simulate``: arguments, table and JSON of what simulation/ finds |
| dashboards.py | ``forbear dashboards``: writes the dashboard, rules and alerts of telemetry/assets/ |

Exit status: 0 done, 1 a promise or a ``--fail-if`` did not hold, 2 it could not be run.
"""

from __future__ import annotations

import argparse
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

INTERRUPTED = 130  # what a shell reports for SIGINT


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    Args:
        argv: Arguments without the program's name; None: those of the process.

    Raises:
        SystemExit: After ``--help`` and ``--version``, and for arguments that are not understood.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    parser = _parser(given)
    options = parser.parse_args(given)
    if options.command is None:
        parser.print_help(sys.stderr)
        return 2
    try:
        status = _run(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has left. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


def _run(options: argparse.Namespace) -> int:
    if options.command == "simulate":
        from . import simulate

        return simulate.run(sys.stdout, options)
    if options.command == "dashboards":
        from . import dashboards

        return dashboards.run(sys.stdout, options)
    from . import demo

    return demo.run(sys.stdout)


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="forbear",
        description="Retries that know when to stop: drop-in for httpx, httpx2, requests and urllib3.",
    )
    parser.add_argument("--version", action="version", version=f"forbear {_version()}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands.add_parser(
        "demo",
        help="show each promise kept, against a misbehaving server on this machine",
        description=(
            "Start a server on 127.0.0.1 that throttles, fails and drops connections on purpose, send it real"
            " requests through the installed clients (httpx, httpx2, requests, urllib3), and print what it saw, what"
            " the clients waited and which promise that shows. Needs no network; takes a few seconds. The exit status"
            " is 1 if a promise did not hold. NO_COLOR=1 turns colours off."
        ),
    )
    simulated = commands.add_parser(
        "simulate", help="a fleet, an outage, virtual time: what does each policy make of it?"
    )
    if "simulate" in given:  # loaded only by who asks for it
        from .simulate import add_arguments

        add_arguments(simulated)
    written = commands.add_parser("dashboards", help="write a Grafana dashboard, recording rules and alerts")
    if "dashboards" in given:
        from .dashboards import add_arguments

        add_arguments(written)
    return parser


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("forbear")
    except PackageNotFoundError:
        return "(not installed)"
