"""The command ``forbear``. Floor: acts.

Exit status: 0 done, 1 the answer is no, 2 it could not be done.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from textwrap import fill

__all__ = ["complain", "main", "teach"]

COMMANDS = {
    "demo": "shows each promise kept, against a server that fails",
    "get": "fetch a URL, with retries and resumed downloads to look at",
    "explain": "what a policy retries, for how long, and what may hurt",
    "parse": "what the headers of a response ask for, and which won",
    "simulate": "a fleet, an outage: what does each policy make of it?",
    "dashboards": "a Grafana dashboard, recording rules and alerts",
}
EXAMPLES = """\
examples:
  forbear demo                                           a dozen seconds, no network
  forbear get https://example.com/big.iso -o big.iso     goes on where it broke off
  forbear explain --max-attempts 5 --slo 3               how long can that take?
  forbear explain myservice.http:RETRY                   a policy or a Retry of your code
  curl -sI https://api.example.com/ | forbear parse -    does it say when to come back?
  forbear simulate metastable --plot storm.png           does that backend ever recover?

Each command explains itself: forbear COMMAND --help. NO_COLOR=1 turns colours off.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line, by default the process's own, and return its exit status.

    Raises:
        SystemExit: After ``--help``, and for arguments that are not understood.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # rather than raise where there is no ×
    given = list(sys.argv[1:] if argv is None else argv)
    parser = parser_for(given)
    options = parser.parse_args(given)
    if options.version:
        print(f"forbear {installed()}")
        return 0
    if options.command is None:
        parser.print_help(sys.stderr)
        return 2
    try:
        status: int = import_module(f".{options.command}", __package__).run(sys.stdout, options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130  # as a shell reports SIGINT
    except BrokenPipeError:
        # The reader (head, less) has left. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


def parser_for(given: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="forbear",
        description="Retries that know when to stop,"
        " for httpx, httpx2, aiohttp, requests and urllib3.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="show the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, about in COMMANDS.items():
        command = commands.add_parser(name, help=about)
        if name in given:  # only the module of the chosen command is loaded
            import_module(f".{name}", __package__).add_arguments(command)
    return parser


def installed() -> str:
    from importlib.metadata import PackageNotFoundError, version  # takes a while to load

    try:
        return version("forbear")
    except PackageNotFoundError:
        return "(not installed)"


def teach(parser: argparse.ArgumentParser, about: str, examples: str) -> None:
    """Give a command its help: its purpose, its options, then examples and exit status."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = fill(about, 78)
    parser.epilog = examples


def complain(command: str, mistake: object, status: int = 2) -> int:
    """Say in one line what went wrong; return the exit status for it."""
    plain = "".join(one if one.isprintable() else "?" for one in str(mistake))  # no escapes
    print(f"forbear {command}: {plain}", file=sys.stderr)
    return status
