"""The command ``forbear``. Floor: acts.

| file | owns |
| --- | --- |
| get.py, part.py, progress.py | ``forbear get``: one URL; a file while it is fetched; how far it is |
| explain.py | ``forbear explain``: a policy as a table, its worst case, and what in it is likely to hurt |
| parse.py, findings.py | ``forbear parse``: what a policy makes of a response; what each of its headers says, and why |
| simulate.py | ``forbear simulate``: arguments, table and JSON of what simulation/ finds |
| dashboards.py | ``forbear dashboards``: writes the dashboard, rules and alerts of telemetry/assets/ |
| demo.py | ``forbear demo``: runs the scenes, prints what they show, says whether every promise held |
| scenes.py, callers.py | of demo: what goes wrong and must be true afterwards; the installed clients, called alike |
| settings.py, retries.py | the policy that arguments describe; ``Retry(…)`` of other libraries, read as text |
| page.py | how all of them print: width, colour, tables, durations, mistakes |

Exit status: 0 done; 1 the answer is no (a promise or a ``--fail-if`` did not hold, headers ask for
nothing); 2 it could not be done.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module

from .page import legible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

INTERRUPTED = 130  # what a shell reports for SIGINT
WITH_ARGUMENTS = {
    "get": "fetch a URL, with retries and resumed downloads to look at",
    "explain": "what a policy retries, for how long, and what may hurt",
    "parse": "what the headers of a response ask for, and which won",
    "simulate": "a fleet, an outage: what does each policy make of it?",
    "dashboards": "a Grafana dashboard, recording rules and alerts",
}
EXAMPLES = """\
examples:
  forbear demo                                           four seconds, no network
  forbear get https://example.com/big.iso -o big.iso     goes on where it broke off
  forbear explain --max-attempts 5 --slo 3               how long can that take?
  forbear explain --from-urllib3 'Retry(10, backoff_factor=1)'
  curl -sI https://api.example.com/ | forbear parse -    does it say when to come back?
  forbear simulate metastable --plot storm.png           does that backend ever recover?

Each command explains itself: forbear COMMAND --help. NO_COLOR=1 turns colours off.
"""
DEMO = """\
Start a server on 127.0.0.1 that throttles, fails and drops connections on purpose, send it real
requests through the installed clients (httpx, httpx2, requests, urllib3), and print what it saw,
what the clients waited and which promise that shows. Needs no network; takes a few seconds.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    Args:
        argv: Arguments without the program's name; None: those of the process.

    Raises:
        SystemExit: After ``--help`` and ``--version``, and for arguments that are not understood.
    """
    legible(sys.stdout, sys.stderr)
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
    if options.command == "demo":
        from . import demo

        return demo.run(sys.stdout)
    command = import_module(f".{options.command}", __package__)
    status: int = command.run(sys.stdout, options)
    return status


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="forbear",
        description="Retries that know when to stop: drop-in for httpx, httpx2, requests and urllib3.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"forbear {_version()}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    commands.add_parser(
        "demo",
        help="shows each promise kept, against a server that fails",
        description=DEMO,
        epilog="exit status: 0 all promises held, 1 one did not, 2 no client is installed or no server starts.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name, about in WITH_ARGUMENTS.items():
        command = commands.add_parser(name, help=about)
        if name in given:  # loaded only by who asks for it
            import_module(f".{name}", __package__).add_arguments(command)
    return parser


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("forbear")
    except PackageNotFoundError:
        return "(not installed)"
