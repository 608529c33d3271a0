"""Tables: columns, paragraphs, durations and colours.

Colour only on a terminal that knows escapes, and not with NO_COLOR or TERM=dumb.
"""

from __future__ import annotations

import errno
import os
import shutil
import textwrap
from collections.abc import Sequence
from typing import TextIO

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
    return textwrap.wrap(
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
