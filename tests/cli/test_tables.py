"""What every command prints through: durations, widths, colour only for people."""

import io

import pytest

from forbear.cli import RED, Page, spoken, visible


@pytest.mark.parametrize(("seconds", "text"), [
    (0, "0 s"), (0.00125, "1.25 ms"), (0.4749, "0.475 s"), (99.9, "99.9 s"), (102.3, "1 m 42 s"),
    # 406 days, 2 h 59 m 59 s: from 2026-11-20 21:00:00 to 2027-12-31 23:59:59
    (406 * 86_400 + 10_799, "406 d 2 h 59 m 59 s"),
])  # fmt: skip
def test_durations(seconds, text):
    assert spoken(seconds) == text


def test_what_a_server_sends_cannot_move_the_cursor():
    assert visible("\x1b[2J\x07é") == "\\x1b[2J\\x07é"
    assert len(visible("x" * 500)) == 60


@pytest.mark.parametrize(
    ("is_terminal", "start"), [(True, f"{RED}warning:\x1b[0m"), (False, "warning:")]
)
def test_colour_is_for_terminals(monkeypatch, is_terminal, start):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    out = io.StringIO()
    out.isatty = lambda: is_terminal
    Page(out).text("warning: of something", RED)
    assert out.getvalue() == f"{start} of something\n"
