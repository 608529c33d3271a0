"""Progress: how far a download is, on standard error. Floor: acts.

On a terminal a bar with rate and time left (rich's, or one line of text that is written over
without it); elsewhere nothing but the lines that are said.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Progress", "amount", "progress_on"]

EVERY = 0.1  # seconds between two looks of the line of text
RECENT = 5.0  # seconds that the rate looks back


class Progress:
    """Says lines, shows nothing.

    Attributes:
        resumed: Times that the download was gone on with.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self.resumed = 0

    def begin(self, done: int, total: int | None) -> None:
        """Octets that are there already, and in all if that is known."""

    def advance(self, octets: int) -> None: ...

    def end(self) -> None: ...

    def say(self, text: str) -> None:
        print(text, file=self._out, flush=True)


class TextProgress(Progress):
    """One line, written over."""

    def __init__(self, out: TextIO, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(out)
        self._now = now
        self._done = 0
        self._total: int | None = None
        self._seen: list[tuple[float, int]] = []
        self._shown_at = -EVERY
        self._width = 0

    def begin(self, done: int, total: int | None) -> None:
        self._done, self._total = done, total
        self._seen = [(self._now(), done)]

    def advance(self, octets: int) -> None:
        self._done += octets
        now = self._now()
        if now - self._shown_at >= EVERY:
            self._shown_at = now
            self._seen = [one for one in self._seen if one[0] >= now - RECENT] or self._seen[-1:]
            self._seen.append((now, self._done))
            self._show(self._line())

    def end(self) -> None:
        self._show("")

    def say(self, text: str) -> None:
        self._show("")
        super().say(text)

    def _line(self) -> str:
        (since, before), (now, done) = self._seen[0], self._seen[-1]
        rate = (done - before) / (now - since) if now > since else 0.0
        share = (
            f"{done / self._total:4.0%} of {amount(self._total)}" if self._total else amount(done)
        )
        left = f", {clock((self._total - done) / rate)} left" if self._total and rate else ""
        again = f", resumed {self.resumed} ×" if self.resumed else ""
        return f"{share}, {amount(rate)}/s{left}{again}"

    def _show(self, text: str) -> None:
        self._out.write(f"\r{text.ljust(self._width)}{'' if text else chr(13)}")
        self._out.flush()
        self._width = len(text)


class RichProgress(Progress):
    """A bar."""

    def __init__(self, out: TextIO) -> None:
        super().__init__(out)
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )
        from rich.progress import (
            Progress as Bars,
        )

        self._bars: Any = Bars(
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[again]}"),
            console=Console(file=out),
            transient=True,
        )
        self._bar: Any = None

    def begin(self, done: int, total: int | None) -> None:
        self._bar = self._bars.add_task("", total=total or None, completed=done, again="")
        self._bars.start()

    def advance(self, octets: int) -> None:
        self._bars.update(
            self._bar, advance=octets, again=f"resumed {self.resumed} ×" if self.resumed else ""
        )

    def end(self) -> None:
        if self._bar is not None:
            self._bars.stop()

    def say(self, text: str) -> None:
        from rich.text import Text

        self._bars.console.print(Text(text))


def progress_on(out: TextIO, *, quiet: bool = False) -> Progress:
    """What suits a stream."""
    if quiet or not out.isatty():
        return Progress(out)
    try:
        return RichProgress(out)
    except ImportError:
        return TextProgress(out)


def amount(octets: float) -> str:
    """52.4 MB; a thousand to the next unit, as disks and networks are sold."""
    for unit in ("B", "kB", "MB", "GB"):
        if octets < 999.5:
            return f"{octets:.3g} {unit}"
        octets /= 1000
    return f"{octets:.3g} TB"


def clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
