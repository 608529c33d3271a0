"""The command ``forbear``.

Exit status: 0 done, 1 the result is negative, 2 it could not be done. Each command is a module with
``ABOUT``, ``EXAMPLES``, ``add_arguments`` and ``run``. ``chosen`` makes the policy that the
arguments of a command describe.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from io import TextIOWrapper
from operator import attrgetter
from textwrap import fill
from typing import Any

from ..core.environment import FORMS, changed
from ..core.policy import RetryPolicy

COMMANDS = ("demo", "explain", "parse", "dashboards")
EXAMPLES = """\
commands:
  demo         shows each promise kept, against a server that fails
  explain      what a policy retries, for how long, and what may hurt
  parse        what the headers of a response ask for, and which won
  dashboards   a Grafana dashboard, recording rules and alerts

examples:
  forbear demo                                           ten seconds, no network
  forbear explain --max-attempts 5 --slo 3               how long can that take?
  forbear explain myservice.http:RETRY                   a policy or a Retry of your code
  curl -sI https://api.example.com/ | forbear parse -    does it say when to come back?

Each command explains itself: forbear COMMAND --help.
"""
LONGEST_SHOWN = 60  # characters of a text that a server sent


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line, by default the process's own, and return its exit status.

    Raises:
        SystemExit: After ``--help``, and for arguments that are not understood.
    """
    return run_to_status(partial(start, list(sys.argv[1:] if argv is None else argv)))


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
    except BrokenPipeError:
        # The reader (head, less) has left. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0  # it has read as much as it wanted
    return status


def start(given: list[str]) -> int:
    about = "Retries that know when to stop, for httpx, httpx2, aiohttp, requests and urllib3."
    parser = parser_of("forbear", about, EXAMPLES)
    parser.add_argument("--version", action="version", version=f"forbear {installed()}")
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND")
    command = parser.parse_args(given[:1]).command
    module = import_module(f".{command}", __package__)
    parser = parser_of(f"forbear {command}", module.ABOUT, module.EXAMPLES)
    module.add_arguments(parser)
    status: int = module.run(parser.parse_args(given[1:]))
    return status


def parser_of(name: str, about: str, examples: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog=name,
        description=fill(about, 78),
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def installed() -> str:
    try:
        return version("forbear")
    except PackageNotFoundError:
        return "(not installed)"


def complain(command: str, mistake: object) -> int:
    """Say in one line what went wrong; return the exit status for it."""
    print(f"forbear {command}: {escaped(str(mistake))}", file=sys.stderr)
    return 2


def say(text: str) -> None:
    """Print a paragraph; its later lines are indented."""
    print(fill(text, 100, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False))


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns under heads."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for cells in (heads, *rows):
        columns = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
        print("  ".join(columns).rstrip())


def spoken(seconds: float) -> str:
    """A duration to three digits: 25 ms, 1.5 s; from 100 s on as hours: 0:01:42."""
    if seconds < 0.1:
        return f"{seconds * 1000:.3g} ms" if seconds else "0 s"
    return f"{seconds:.3g} s" if seconds < 99.95 else str(timedelta(seconds=round(seconds)))


def escaped(text: str) -> str:
    """Escape what moves a terminal's cursor or changes the direction of its text."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def visible(text: str) -> str:
    """A server's text, escaped and shortened."""
    plain = escaped(text)
    return plain if len(plain) <= LONGEST_SHOWN else f"{plain[: LONGEST_SHOWN - 1]}…"


def add_policy_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what names a policy, and options for its fields, which are read as by ``from_env``."""
    about = "a preset; env:PREFIX, for from_env; or module:attribute, a policy or a Retry"
    parser.add_argument("--policy", metavar="POLICY", help=about)
    group = parser.add_argument_group("its fields")
    for field, (_, form) in FORMS.items():
        if field != "preset":
            group.add_argument(option_of(field), metavar="TEXT", help=form)


def option_of(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def chosen(options: argparse.Namespace) -> RetryPolicy:
    """The policy that the arguments describe.

    Raises:
        ValueError, TypeError: They describe none.
    """
    policy = RetryPolicy() if options.policy is None else named(options.policy)
    given = {field: getattr(options, field, None) for field in FORMS}
    texts = {field: text for field, text in given.items() if text is not None}
    return changed(policy, texts, option_of)


def named(name: str) -> RetryPolicy:
    """The preset of that name, the policy of the environment, or the one at ``module:attribute``.

    Importing runs the module. A Retry of another library becomes the nearest policy.
    """
    module, colon, path = name.partition(":")
    if not colon:
        try:
            return changed(RetryPolicy(), {"preset": name}, lambda _: "POLICY")
        except ValueError as error:
            raise ValueError(f"{error}, or module:attribute for what your code uses") from None
    if module == "env":
        return RetryPolicy.from_env(path)
    if os.getcwd() not in sys.path:  # as python -m has it
        sys.path.insert(0, os.getcwd())
    try:
        value: Any = attrgetter(path)(import_module(module))
        value = value() if callable(value) else value
    except (Exception, SystemExit) as error:  # whatever the module does
        text = " ".join(str(error).split())
        raise ValueError(f"cannot get {name}: {type(error).__name__}: {text}") from None
    if isinstance(value, RetryPolicy):
        return value
    with suppress(TypeError):
        return RetryPolicy.from_httpx_retries(value)
    return RetryPolicy.from_urllib3(value)
