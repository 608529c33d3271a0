"""The command ``forbear``.

Exit status: 0 done, 1 the result is negative, 2 it could not be done. ``Page`` prints with colour
only on a terminal that knows escapes, and not with NO_COLOR or TERM=dumb. ``chosen`` makes the
policy that the arguments of a command describe.
"""

from __future__ import annotations

import argparse
import errno
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from io import TextIOWrapper
from textwrap import fill, wrap
from typing import Any, TextIO

from ..core.backoff import Exponential
from ..core.checks import in_order
from ..core.environment import PRESETS
from ..core.headers.vendors import VENDORS
from ..core.policy import FIELDS, RetryPolicy

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
        return 0  # it has read as much as it wanted
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

exit status: 0 done, 2 no directory is given, or it cannot be written to.
"""
    teach(parser, about, examples)
    parser.add_argument("--out", metavar="DIR", help="where to; made if it is not there")


def write_dashboards(out: TextIO, options: argparse.Namespace) -> int:
    """Write the files, name them, return the exit status."""
    from ..telemetry import assets

    if options.out is None:
        files = f"{assets.DASHBOARD} and {assets.RULES}"
        return complain("dashboards", f"say where to: --out DIR writes {files} there")
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


SCHEDULE = ("base", "cap", "factor", "jitter")


def words(text: str) -> list[str]:
    return text.replace(",", " ").split()


def statuses(text: str) -> frozenset[int]:
    return frozenset(map(int, words(text)))


def jitter(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


NO_GATE = "none"  # of --patience; None is what argparse has for an option that is not given


def patience(text: str) -> float | str:
    return NO_GATE if text == NO_GATE else float(text)


# option, type, placeholder, help
ARGUMENTS: tuple[tuple[str, Any, str, str], ...] = (
    ("--max-attempts", int, "N", "attempts in all, the first one included"),
    ("--base", float, "S", "wait before the first retry, before jitter"),
    ("--cap", float, "S", "longest wait"),
    ("--factor", float, "X", "growth from one wait to the next"),
    ("--jitter", jitter, "KIND", "full, equal, decorrelated, none, or 0.2 for ±20 %%"),
    ("--patience", patience, "S", "longest hold while the server is unhealthy; none: no gate"),
    ("--max-retry-after", float, "S", "longest wait that a server may ask for"),
    ("--total-timeout", float, "S", "for the whole call"),
    ("--hints", str, "HOW", "obey or ignore what servers ask for"),
    ("--statuses", statuses, "N,N", "statuses that are retried"),
    ("--unexecuted-statuses", statuses, "N,N", "retried for any method: nothing was executed"),
    ("--methods", lambda text: words(text.upper()), "A,B", "methods that are safe to retry"),
    ("--vendors", words, "A,B", f"hints in their bodies: {', '.join(VENDORS)}"),
)
NAMES = [option[2:].replace("-", "_") for option, *_ in ARGUMENTS]


def add_policy_arguments(parser: argparse.ArgumentParser, whole: str = "--policy") -> None:
    """Add what describes a policy; ``whole`` is a further name of the argument for all of it."""
    group = parser.add_argument_group("the policy (durations: seconds)")
    about = (
        f"{', '.join(PRESETS)}; env:PREFIX, what RetryPolicy.from_env reads;"
        " or module:attribute, a RetryPolicy or a Retry (the default)"
    )
    group.add_argument("--policy", metavar="POLICY", help=about)
    if whole != "--policy":  # without a default of its own, which would replace what --policy gave
        default, same = argparse.SUPPRESS, "the same"
        group.add_argument(whole, nargs="?", default=default, metavar="POLICY", help=same)
    for option, kind, placeholder, text in ARGUMENTS:
        group.add_argument(option, type=kind, metavar=placeholder, help=text)


def chosen(options: argparse.Namespace) -> RetryPolicy:
    """The policy that the arguments describe.

    Raises:
        ValueError, TypeError: They describe none.
    """
    policy = RetryPolicy() if options.policy is None else named(options.policy)
    given = {name: value for name in NAMES if (value := getattr(options, name)) is not None}
    if given.get("patience") == NO_GATE:
        given["patience"] = None
    vendors = given.pop("vendors", ())
    schedule = {name: given.pop(name) for name in SCHEDULE if name in given}
    if schedule:
        now = policy.backoff if isinstance(policy.backoff, Exponential) else Exponential()
        same = {name: getattr(now, name) for name in SCHEDULE}
        given["backoff"] = Exponential(**{**same, **schedule})
    policy = policy.replace(**given)
    return policy.for_vendors(*vendors) if vendors else policy


def named(name: str) -> RetryPolicy:
    """The preset of that name, the policy of the environment, or the one at ``module:attribute``.

    Importing runs the module. A Retry of another library becomes the nearest policy.
    """
    if name.startswith("env:"):
        return RetryPolicy.from_env(name.removeprefix("env:"))
    if name.replace("-", "_") in PRESETS:
        name = f"forbear:RetryPolicy.{name.replace('-', '_')}"
    module, colon, path = name.partition(":")
    if not colon:
        known = ", ".join(PRESETS)
        raise ValueError(
            f"there is no preset {name!r}; choose among {known}, env:PREFIX, or module:attribute"
        )
    if os.getcwd() not in sys.path:  # as python -m has it
        sys.path.insert(0, os.getcwd())
    try:
        value: Any = import_module(module)
        for attribute in path.split("."):
            value = getattr(value, attribute)
        value = value() if callable(value) else value
    except (Exception, SystemExit) as error:  # whatever the module does
        text = " ".join(str(error).split())
        raise ValueError(f"cannot get {name}: {type(error).__name__}: {text}") from None
    for own in (value, getattr(value, "policy", None)):  # of a forbear.urllib3.Retry
        if isinstance(own, RetryPolicy):
            return own
    for convert in (RetryPolicy.from_httpx_retries, RetryPolicy.from_urllib3):
        with suppress(TypeError):
            return convert(value)
    kind = type(value).__name__
    raise ValueError(f"{name} is a {kind}, not a RetryPolicy or Retry, nor a function of one")


def code_of(policy: RetryPolicy) -> str:
    """The policy as Python code: attempts, schedule, and all fields that are not the default's."""
    default = RetryPolicy()
    fields = [
        f"{name}={in_order(getattr(policy, name))}"
        for name in FIELDS
        if name in ("max_attempts", "backoff") or getattr(policy, name) != getattr(default, name)
    ]
    return f"RetryPolicy({', '.join(fields)})"
