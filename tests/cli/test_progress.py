"""How far a download is: a bar on a terminal, lines elsewhere."""

import io
import sys

import pytest

from forbear.tools.cli.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(out):
    progress = Progress(out)
    progress.begin(100_000, 400_000)
    progress.advance(200_000)
    progress.say("[bold]a line[/bold] :warning:")  # as it stands
    progress.end()
    progress.end()
    return out.getvalue()


@pytest.mark.parametrize("bar", [True, False])
def test_no_text_reaches_a_terminal_that_it_would_obey(bar):
    """Escape sequences, a backspace, a right-to-left override."""
    out = Terminal()
    progress = Progress(out)
    if bar:
        pytest.importorskip("rich")
        progress.begin(0, None)
    progress.say("a\x1b[2Jb\x08c\u202ed")
    progress.end()
    assert "a\\x1b[2Jb\\x08c\\u202ed" in out.getvalue()


def test_a_terminal_gets_a_bar():
    pytest.importorskip("rich")
    text = shown(Terminal())
    assert "[bold]a line[/bold] :warning:" in text
    assert "300.0/400.0 kB" in text


def test_a_pipe_gets_lines_only():
    assert shown(io.StringIO()) == "[bold]a line[/bold] :warning:\n"


def test_without_rich_a_terminal_gets_lines_too(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich", None)
    assert shown(Terminal()) == "[bold]a line[/bold] :warning:\n"
