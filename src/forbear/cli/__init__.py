"""The command ``forbear``.

Exit status: 0 done, 1 the result is negative, 2 it could not be done.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from io import TextIOWrapper
from textwrap import fill
from typing import TextIO

from .tables import escaped, is_closed_pipe

COMMANDS = {
    "demo": "shows each promise kept, against a server that fails",
    "explain": "what a policy retries, for how long, and what may hurt",
    "parse": "what the headers of a response ask for, and which won",
    "dashboards": "a Grafana dashboard, recording rules and alerts",
}
EXAMPLES = """\
examples:
  forbear demo                                           ten seconds, no network
  forbear explain --max-attempts 5 --slo 3               how long can that take?
  forbear explain myservice.http:RETRY                   a policy or a Retry of your code
  curl -sI https://api.example.com/ | forbear parse -    does it say when to come back?

Each command explains itself: forbear COMMAND --help. NO_COLOR=1 turns colours off.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line, by default the process's own, and return its exit status.

    Raises:
        SystemExit: After ``--help``, and for arguments that are not understood.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    return run_to_status(partial(start, given))


def run_to_status(run: Callable[[], int]) -> int:
    """Run a command to its exit status; an interrupt or a closed pipe prints no traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # rather than raise where there is no ×
    try:
        status = run()
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130  # as a shell reports SIGINT
    except OSError as error:
        if not is_closed_pipe(error):
            raise
        # The reader (head, less) has left. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


def start(given: list[str]) -> int:
    options = parsed(given)
    if options.version:
        print(f"forbear {installed()}")
        return 0
    if options.command is None:
        parser_for(None)[0].print_help(sys.stderr)
        return 2
    return parts_of(options.command)[1](sys.stdout, options)


def parsed(given: list[str]) -> argparse.Namespace:
    """Parse the arguments. A mistake prints the usage of the command that it is in."""
    chosen = next((one for one in given if not one.startswith("-")), None)
    parser, commands = parser_for(chosen)
    if chosen is not None and chosen not in commands:
        near = get_close_matches(chosen, commands, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose among {', '.join(commands)}"
        parser.error(f"there is no command {chosen!r}; {hint}")
    # parse_args() would print the usage of forbear itself for a command's unknown option.
    options, unknown = parser.parse_known_args(given)
    if unknown:
        commands.get(options.command, parser).error(f"unrecognized arguments: {' '.join(unknown)}")
    return options


def parser_for(
    chosen: str | None,
) -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """Return the parser, and those of the commands by name; only ``chosen`` has arguments."""
    parser = argparse.ArgumentParser(
        prog="forbear",
        description="Retries that know when to stop,"
        " for httpx, httpx2, aiohttp, requests and urllib3.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="show the version and exit")
    found = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    commands = {name: found.add_parser(name, help=about) for name, about in COMMANDS.items()}
    if chosen in commands:
        parts_of(chosen)[0](commands[chosen])
    return parser, commands


def parts_of(
    command: str,
) -> tuple[Callable[[argparse.ArgumentParser], None], Callable[[TextIO, argparse.Namespace], int]]:
    """Return what adds a command's arguments, and what runs it; load no other command."""
    if command == "dashboards":
        return add_dashboard_arguments, write_dashboards
    module = import_module(f".{command}", __package__)
    return module.add_arguments, module.run


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


def complain(command: str, mistake: object) -> int:
    """Say in one line what went wrong; return the exit status for it."""
    print(f"forbear {command}: {escaped(str(mistake))}", file=sys.stderr)
    return 2


# ``forbear dashboards``: the files for the metrics.


def add_dashboard_arguments(parser: argparse.ArgumentParser) -> None:
    from ..telemetry import assets

    about = (
        "Write a Grafana dashboard, and recording rules with alerts for Prometheus, into a"
        " directory. They read the metrics that forbear.telemetry exports. Files of these names"
        " are replaced."
    )
    examples = f"""\
then, in prometheus.yml:   rule_files: ["{assets.RULES}"]
and in Grafana:            Dashboards, New, Import: {assets.DASHBOARD}

exit status: 0 done, 2 the directory cannot be written to.
"""
    teach(parser, about, examples)
    parser.add_argument("--out", default=".", metavar="DIR", help="made if it is not there (.)")


def write_dashboards(out: TextIO, options: argparse.Namespace) -> int:
    """Write the files, name them, return the exit status."""
    from ..telemetry import assets

    try:
        for path in assets.write(options.out):
            print(path, file=out)
    except OSError as error:
        return complain("dashboards", f"cannot write into {options.out}: {error.strerror}")
    return 0
