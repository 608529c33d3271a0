"""The command line: help, version, mistakes, and what every command prints through."""

import importlib
import importlib.metadata
import os
import re
import subprocess
import sys

import pytest

from forbear.cli import complain, spoken, visible

from ..processes import SOURCE

COMMANDS = ("dashboards", "demo", "explain", "parse")


def start(*arguments, how=("-m", "forbear"), **environment):
    """Start the command as a process of its own, where this one's forbear is found."""
    environment = {**os.environ, "PYTHONPATH": SOURCE, "PYTHONUNBUFFERED": "1", **environment}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, *how, *arguments], env=environment, **pipes)


def test_help_names_the_commands_and_loads_none():
    with start("--help", how=("-X", "importtime", "-m", "forbear")) as process:
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0
    for command in COMMANDS:
        assert re.search(rf"^  {command}\s", out, re.MULTILINE)
        assert f"cli.{command}" not in err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_fits_and_tells_the_exit_status(name, command):
    status, out, _ = command(name, "--help")
    assert status == 0
    assert f"usage: forbear {name}" in out
    assert "exit status: 0 " in out
    assert max(map(len, out.splitlines())) <= 100


@pytest.mark.parametrize(("arguments", "usage", "says"), [
    ("", "[", "required: COMMAND"),
    ("xyz explain", "[", "invalid choice: 'xyz' (choose from"),
    ("demo --no-such-option", "demo [", "unrecognized arguments: --no-such-option"),
    ("explain gateway batch", "explain [", "unrecognized arguments: batch"),
    ("explain --slo x", "explain [", "argument --slo: invalid float value"),
    ("dashboards", "dashboards [", "required: --out"),
])  # fmt: skip
def test_a_mistake_is_answered_with_the_usage_of_its_command(arguments, usage, says, command):
    status, out, err = command(*arguments.split())
    assert (status, out) == (2, "")
    assert err.startswith(f"usage: forbear {usage}")
    assert says in err


@pytest.mark.slow
def test_a_reader_that_leaves_is_no_traceback():
    """``forbear demo | head -1``"""
    process = start("demo")
    assert process.stdout.readline().startswith("A server on this machine")
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(timeout=300) == 0


def test_a_mistake_cannot_move_the_cursor(capsys):
    assert complain("parse", "gone \x1b[2J\n") == 2
    assert capsys.readouterr().err == "forbear parse: gone \\x1b[2J\\n\n"


def test_an_ascii_terminal_is_no_traceback():
    with start("explain", "gateway", PYTHONIOENCODING="ascii") as process:
        out, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (0, "")
    assert out.isascii()


def test_the_module_is_the_command(monkeypatch, capsys):
    """``python -m forbear`` for who has no script on the path."""
    monkeypatch.setattr("sys.argv", ["forbear", "--version"])
    monkeypatch.delitem(sys.modules, "forbear.__main__", raising=False)
    with pytest.raises(SystemExit, match="0"):
        importlib.import_module("forbear.__main__")
    assert capsys.readouterr().out.startswith("forbear ")


def raises(monkeypatch, place, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(place, fail)


def test_an_interrupted_command_ends_as_a_shell_expects(monkeypatch, command):
    raises(monkeypatch, "forbear.cli.parse.run", KeyboardInterrupt)
    assert command("parse", "Retry-After: 1")[0] == 130


@pytest.mark.parametrize(("seconds", "text"), [
    (0, "0 s"), (0.00125, "1.25 ms"), (0.4749, "0.475 s"), (99.9, "99.9 s"), (102.3, "0:01:42"),
    # 406 days, 2 h 59 m 59 s: from 2026-11-20 21:00:00 to 2027-12-31 23:59:59
    (406 * 86_400 + 10_799, "406 days, 2:59:59"),
])  # fmt: skip
def test_durations(seconds, text):
    assert spoken(seconds) == text


def test_what_a_server_sends_cannot_move_the_cursor():
    assert visible("\x1b[2J\x07é") == "\\x1b[2J\\x07é"
    assert len(visible("x" * 500)) == 60
