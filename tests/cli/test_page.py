"""What every command prints through: durations, widths, tables with rich and without, colour only
for people.
"""

import io
import re
import sys

import pytest

from forbear.tools.cli.page import BOLD, RED, Page, spoken

HEADS = ("header", "asks for", "result")
ROWS = [
    ("retry-after", "30 s", "lost: retry-after-ms is more exact and so comes first"),
    ("date", "", "ignored"),
]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """A terminal with so many columns."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")

    def of(columns):
        monkeypatch.setenv("COLUMNS", str(columns))
        return Terminal()

    return of


@pytest.fixture
def no_rich(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.table", None)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.00125, "1.25 ms"),
        (0.025, "25 ms"),
        (0.0999, "99.9 ms"),
        (0.1, "0.1 s"),
        (0.4749, "0.475 s"),
        (1.5, "1.5 s"),
        (12.75, "12.8 s"),
        (60, "60 s"),
        (99.9, "99.9 s"),
        (99.96, "1 m 40 s"),
        (102.3, "1 m 42 s"),
        (3_600, "1 h"),
        (21_600, "6 h"),
        (90_061, "1 d 1 h 1 m 1 s"),
        # 406 days, 2 h 59 m 59 s: from 2026-11-20 21:00:00 to 2027-12-31 23:59:59
        (406 * 86_400 + 10_799, "406 d 2 h 59 m 59 s"),
        (2_147_483_648, "24 855 d 3 h 14 m 8 s"),
    ],
)
def test_durations(seconds, text):
    assert spoken(seconds) == text


def test_a_pipe_gets_columns_of_text():
    out = io.StringIO()
    Page(out).table(HEADS, ROWS)
    assert out.getvalue() == (
        "header       asks for  result\n"
        "retry-after  30 s      lost: retry-after-ms is more exact and so comes first\n"
        "date                   ignored\n"
    )


def test_a_narrow_terminal_folds_the_last_column(terminal, no_rich, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    out = terminal(55)
    Page(out).table(HEADS, ROWS)
    assert out.getvalue() == (
        "header       asks for  result\n"
        "retry-after  30 s      lost: retry-after-ms is more\n"
        "                       exact and so comes first\n"
        "date                   ignored\n"
    )


def test_a_very_narrow_one_gets_blocks(terminal, no_rich, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    out = terminal(32)
    Page(out).table(HEADS, ROWS)
    assert out.getvalue() == (
        "header retry-after\n"
        "  asks for: 30 s\n"
        "  result: lost: retry-after-ms\n"
        "    is more exact and so comes\n"
        "    first\n"
        "header date\n"
        "  result: ignored\n"
    )


def test_rich_draws_the_table_where_it_is_installed(terminal):
    pytest.importorskip("rich")
    out = terminal(40)
    Page(out).table(HEADS, [("[bold]name", "30 s", "what a server sent is no markup")])
    text = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    assert "─" in text
    assert "[bold]name" in text
    assert max(map(len, text.splitlines())) <= 40


def test_rich_is_for_terminals_only():
    pytest.importorskip("rich")
    out = io.StringIO()
    Page(out).table(HEADS, ROWS)
    assert "─" not in out.getvalue()


def test_colour_is_for_terminals(terminal):
    out = terminal(80)
    Page(out).marked("warning:", "of something", RED)
    assert out.getvalue() == f"{RED}warning:\x1b[0m of something\n"
    out = io.StringIO()
    Page(out).marked("warning:", "of something", RED)
    assert out.getvalue() == "warning: of something\n"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
@pytest.mark.parametrize("has_rich", [True, False])
def test_and_not_for_who_does_not_want_it(terminal, monkeypatch, name, value, has_rich):
    out = terminal(80)
    monkeypatch.setenv(name, value)
    if not has_rich:
        monkeypatch.setitem(sys.modules, "rich.table", None)
    page = Page(out)
    page.heading("a heading")
    page.text("a text", colour=BOLD)
    page.table(HEADS, ROWS)
    assert "\x1b" not in out.getvalue()


def test_paragraphs_keep_to_the_width(terminal, no_rich):
    out = terminal(30)
    Page(out).text("words " * 20, indent="  ")
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 30
    assert all(line.startswith("  words") for line in lines[1:])


@pytest.mark.parametrize(("columns", "width"), [(5, 20), (72, 72), (400, 100)])
def test_no_terminal_is_too_narrow_or_too_wide(terminal, columns, width):
    assert Page(terminal(columns)).width == width
