"""Progress: what ``forbear get`` says meanwhile, on standard error. Floor: acts."""

from __future__ import annotations

from typing import Any, TextIO

from .tables import escaped

__all__ = ["Progress"]


class Progress:
    """Lines; on a terminal also a bar below them, by rich if it is installed (extra ``cli``)."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._bars: Any = None

    def begin(self, done: int, total: int | None) -> None:
        """Show the bar: octets that are there already, and in all if that is known."""
        self.end()
        if not self._out.isatty():
            return
        try:
            from rich import progress as rich
            from rich.console import Console
        except ImportError:
            return
        console = Console(file=self._out, markup=False, highlight=False, emoji=False)
        columns = (rich.DownloadColumn(), rich.TransferSpeedColumn(), rich.TimeRemainingColumn())
        self._bars = rich.Progress(rich.BarColumn(), *columns, console=console, transient=True)
        self._bars.add_task("", total=total, completed=done)
        self._bars.start()

    def advance(self, octets: int) -> None:
        if self._bars is not None:
            self._bars.advance(self._bars.task_ids[0], octets)

    def end(self) -> None:
        if self._bars is not None:
            self._bars.stop()
            self._bars = None

    def say(self, text: str) -> None:
        """Say a line; nothing in it moves a terminal's cursor."""
        if self._bars is not None:
            self._bars.console.print(escaped(text))
        else:
            print(escaped(text), file=self._out, flush=True)
