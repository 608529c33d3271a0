"""Page: what every command prints through. Plain text for pipes, colour and fitting tables for
people. Floor: acts.

Colour only on a terminal, and not with NO_COLOR or TERM=dumb. Tables are rich's on a terminal if
that is installed (the extra ``cli``); without it, and in a pipe, they are columns of text, the last
one folded, or a block for each row where even that does not fit.
"""

from __future__ import annotations

import argparse
import codecs
import os
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["BOLD", "GREEN", "RED", "YELLOW", "Page", "complain", "legible", "spoken", "teach"]

GREEN, RED, YELLOW, BOLD, PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[33m", "\x1b[1m", "\x1b[0m"
WIDTH = 100  # columns where no terminal says how many it has
NARROWEST = 20
FOLDED = 28  # columns that a last column needs at least, to be folded
MISTAKEN = 2  # the exit status
# What a stream that is not Unicode gets instead.
ASCII = {
    "–": "-",
    "×": "x",
    "±": "+-",
    "·": "|",
    "…": "...",
    "≤": "<=",
    "→": "->",
    "✓": "ok",
    "✗": "NO",
    "’": "'",
}


class Page:
    """Where a command prints to.

    Attributes:
        width: Columns to keep to.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._is_terminal = out.isatty()
        self._coloured = (
            self._is_terminal
            and not os.environ.get("NO_COLOR")
            and os.environ.get("TERM") != "dumb"
        )
        columns = shutil.get_terminal_size((WIDTH, 24)).columns if self._is_terminal else WIDTH
        self.width = max(NARROWEST, min(columns, WIDTH))

    def line(self, text: str = "") -> None:
        print(text, file=self._out, flush=True)

    def heading(self, text: str) -> None:
        self.line()
        self.line(self.painted(text, BOLD))

    def text(self, text: str, *, indent: str = "", colour: str = "") -> None:
        """A paragraph, broken to the width; later lines begin with the indent."""
        for line in broken(text, self.width, indent):
            self.line(self.painted(line, colour) if colour else line)

    def marked(self, word: str, text: str, colour: str) -> None:
        """A paragraph after a word in colour."""
        first, *rest = broken(f"{word} {text}", self.width, "  ")
        self.line(self.painted(word, colour) + first.removeprefix(word))
        for line in rest:
            self.line(line)

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Columns under heads."""
        if self._is_terminal and self._by_rich(heads, rows):
            return
        widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
        before = sum(widths[:-1]) + 2 * (len(widths) - 1)
        left = self.width - before
        if min(widths[-1], FOLDED) <= left:
            self.line(self.painted(in_columns(heads, widths), BOLD))
            for *cells, last in rows:
                first, *more = broken(last, left) or [""]
                self.line(in_columns([*cells, first], widths))
                for part in more:
                    self.line(" " * before + part)
            return
        for row in rows:
            self.line(self.painted(f"{heads[0]} {row[0]}", BOLD))
            for head, cell in zip(heads[1:], row[1:], strict=True):
                if cell:
                    self.text(f"  {head}: {cell}", indent="    ")

    def painted(self, text: str, colour: str) -> str:
        return f"{colour}{text}{PLAIN}" if self._coloured else text

    def _by_rich(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
        try:
            from rich.box import SIMPLE_HEAD
            from rich.console import Console
            from rich.table import Table
            from rich.text import Text
        except ImportError:
            return False
        table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
        for head in heads:
            table.add_column(head, overflow="fold")
        for row in rows:
            table.add_row(*map(Text, row))  # as it stands: what a server sent is no markup
        Console(
            file=self._out, width=self.width, force_terminal=self._coloured, highlight=False
        ).print(table)
        return True


def broken(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text, width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )


def in_columns(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def spoken(seconds: float) -> str:
    """A duration to three digits: 25 ms, 1.5 s, 1 m 42 s, 406 d 2 h 59 m 59 s."""
    if seconds < 0.1:
        return f"{seconds * 1000:.3g} ms" if seconds else "0 s"
    if seconds < 99.95:
        return f"{seconds:.3g} s"
    left = round(seconds)
    words = []
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, left = divmod(left, length)
        if count:
            words.append(f"{count:,} {unit}".replace(",", " "))
    return " ".join(words)


def teach(parser: argparse.ArgumentParser, about: str, examples: str) -> None:
    """Give a command its help: what it is for, then its options, then examples and exit status as
    they stand.
    """
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    columns = shutil.get_terminal_size((80, 24)).columns  # as argparse asks for it
    parser.description = "\n".join(broken(about, max(NARROWEST, min(columns, WIDTH) - 2)))
    parser.epilog = examples


def complain(command: str, mistake: object) -> int:
    """Say in one line what the user got wrong; return the exit status for it."""
    print(f"forbear {command}: {mistake}", file=sys.stderr)
    return MISTAKEN


def legible(*streams: TextIO) -> None:
    """Let streams that cannot show every character show something like it, instead of raising."""
    codecs.register_error("forbear", in_ascii)
    for stream in streams:
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="forbear")


def in_ascii(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(ASCII.get(one, "?") for one in error.object[error.start : error.end]), error.end
