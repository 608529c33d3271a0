"""The command ``forbear``.

Exit status: 0 done, 1 the result is negative, 2 it could not be done. ``Page`` prints with colour
only on a terminal that knows escapes, and not with NO_COLOR or TERM=dumb.
"""

from __future__ import annotations

import argparse
import errno
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from io import TextIOWrapper
from textwrap import fill, wrap
from typing import TextIO

COMMANDS = {
    "demo": "shows each promise kept, against a server that fails",
    "explain": "what a policy retries, for how long, and what may hurt",
    "parse": "what the headers of a response ask for, and which won",
    "dashboards": "a Grafana dashboard, recording rules and alerts",
}
EXAMPLES = """\
examples:
  forbear demo                                           a dozen seconds, no network
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


GREEN, RED, YELLOW, BOLD, PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[33m", "\x1b[1m", "\x1b[0m"
WIDTH = 100  # columns at most, and where no terminal says how many it has
NARROWEST = 20  # columns
ON_WINDOWS = os.name == "nt"
# A console of Windows that has one of these knows escapes; an old one prints them as they are.
KNOW_ESCAPES = ("WT_SESSION", "ANSICON", "ConEmuANSI", "TERM")
LONGEST_SHOWN = 60  # characters of a text that a server sent


class Page:
    """The output of a command."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        plain = plain or (ON_WINDOWS and not any(name in os.environ for name in KNOW_ESCAPES))
        self._coloured = out.isatty() and not plain
        columns = shutil.get_terminal_size((WIDTH, 24)).columns if out.isatty() else WIDTH
        self._width = max(NARROWEST, min(columns, WIDTH))

    def line(self, text: str = "") -> None:
        print(text, file=self._out, flush=True)

    def text(self, text: str, colour: str = "") -> None:
        """A paragraph that begins with a word in colour; later lines are indented."""
        word = text.partition(" ")[0]
        lines = "\n".join(broken(text, self._width, "  "))
        self.line(self.painted(word, colour) + lines.removeprefix(word))

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Columns under heads; the last column is folded where it does not fit."""
        widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
        before = sum(widths[:-1]) + 2 * (len(widths) - 1)
        self.line(self.painted(in_columns(heads, widths), BOLD))
        for *cells, last in rows:
            folded = f"\n{' ' * before}".join(broken(last, max(self._width - before, NARROWEST)))
            self.line(in_columns([*cells, folded], widths))

    def painted(self, text: str, colour: str) -> str:
        return f"{colour}{text}{PLAIN}" if self._coloured and colour else text


def broken(text: str, width: int, indent: str = "") -> list[str]:
    return wrap(
        text, width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )


def in_columns(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def is_closed_pipe(error: OSError) -> bool:
    """Has the reader of standard output left? Windows says EINVAL."""
    return isinstance(error, BrokenPipeError) or (
        ON_WINDOWS and error.errno == errno.EINVAL and error.filename is None
    )


def spoken(seconds: float) -> str:
    """A duration to three digits: 25 ms, 1.5 s, 1 m 42 s, 406 d 2 h 59 m 59 s."""
    if seconds < 0.1:
        return f"{seconds * 1000:.3g} ms" if seconds else "0 s"
    if seconds < 99.95:
        return f"{seconds:.3g} s"
    left, words = round(seconds), []
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, left = divmod(left, length)
        if count:
            words.append(f"{count} {unit}")
    return " ".join(words)


def escaped(text: str) -> str:
    """Escape what moves a terminal's cursor or changes the direction of its text."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def visible(text: str) -> str:
    """A server's text, escaped and shortened."""
    plain = escaped(text)
    return plain if len(plain) <= LONGEST_SHOWN else f"{plain[: LONGEST_SHOWN - 1]}…"
