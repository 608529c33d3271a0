"""How far a download is: what stands on a terminal, and what elsewhere."""

import io
import sys

import pytest

from forbear.tools.cli.progress import (
    Progress,
    RichProgress,
    TextProgress,
    amount,
    clock,
    progress_on,
)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("octets", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (52_428_800, "52.4 MB"),
        (999_700, "1 MB"),
        (2.5e9, "2.5 GB"),
        (7e15, "7e+03 TB"),
    ],
)
def test_an_amount_has_three_digits(octets, text):
    assert amount(octets) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0:00"), (61, "1:01"), (3_599.6, "1:00:00"), (7_325, "2:02:05")]
)
def test_a_time_is_as_on_a_clock(seconds, text):
    assert clock(seconds) == text


def test_a_line_is_written_over():
    """100 of 400 kB there, 100 more within a second: half, 100 kB/s, 2 seconds left."""
    out, now = Terminal(), [0.0]
    progress = TextProgress(out, lambda: now[0])
    progress.begin(100_000, 400_000)
    now[0] = 1.0
    progress.advance(100_000)
    assert out.getvalue() == "\r 50% of 400 kB, 100 kB/s, 0:02 left"
    progress.resumed = 2
    now[0] = 2.0
    progress.advance(100_000)
    assert out.getvalue().endswith("\r 75% of 400 kB, 100 kB/s, 0:01 left, resumed 2 ×")
    progress.say("a line")
    assert out.getvalue().endswith(" \ra line\n")
    progress.advance(1)  # too soon to look again
    assert out.getvalue().endswith("a line\n")
    progress.end()


def test_without_a_length_it_says_how_much():
    out, now = Terminal(), [0.0]
    progress = TextProgress(out, lambda: now[0])
    progress.begin(0, None)
    now[0] = 0.5
    progress.advance(5_000)
    assert out.getvalue() == "\r5 kB, 10 kB/s"


def test_the_rate_is_that_of_the_last_seconds():
    """10 kB/s for ten seconds, then 1 kB/s for ten."""
    out, now = Terminal(), [0.0]
    progress = TextProgress(out, lambda: now[0])
    progress.begin(0, None)
    for second in range(1, 21):
        now[0] = float(second)
        progress.advance(10_000 if second <= 10 else 1_000)
    assert out.getvalue().endswith(", 1 kB/s")


def test_a_bar_with_rich():
    pytest.importorskip("rich")
    out = Terminal()
    progress = RichProgress(out)
    progress.begin(100_000, 400_000)
    progress.advance(100_000)
    progress.resumed = 1
    progress.advance(100_000)
    progress.say("[bold]a line[/bold]")  # as it stands
    progress.end()
    text = out.getvalue()
    assert "[bold]a line[/bold]" in text
    assert "300.0/400.0 kB" in text
    assert "resumed 1 ×" in text


def test_a_pipe_gets_lines_only():
    out = io.StringIO()
    progress = progress_on(out)
    assert type(progress) is Progress
    progress.begin(0, 10)
    progress.advance(10)
    progress.say("a line")
    progress.end()
    assert out.getvalue() == "a line\n"
    assert type(progress_on(Terminal(), quiet=True)) is Progress


def test_a_terminal_without_rich_gets_the_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert type(progress_on(Terminal())) is TextProgress


def test_a_terminal_with_rich_gets_the_bar():
    pytest.importorskip("rich")
    progress = progress_on(Terminal())
    assert type(progress) is RichProgress
    progress.end()  # before it began
