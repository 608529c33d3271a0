"""The command line: help, version, mistakes; never a traceback for what a user typed."""

import errno
import importlib
import importlib.metadata
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import forbear
from forbear import cli
from forbear.cli import complain, main

SOURCE = Path(forbear.__file__).parent.parent
COMMANDS = ("dashboards", "demo", "explain", "parse")


def start(*arguments, how=("-m", "forbear"), **environment):
    """Start the command as a process of its own, where this one's forbear is found."""
    return subprocess.Popen(
        [sys.executable, *how, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONUNBUFFERED": "1", **environment},
    )


def test_help_names_the_commands_and_loads_none(capsys):
    with start("--help", how=("-X", "importtime", "-m", "forbear")) as process:
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0
    for command in COMMANDS:
        assert re.search(rf"^    {command}\s", out, re.MULTILINE)
        assert f"cli.{command}" not in err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_fits_and_tells_the_exit_status(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([command, "--help"])
    assert stopped.value.code == 0
    out = capsys.readouterr().out
    assert f"usage: forbear {command}" in out
    assert "exit status: 0 " in out
    assert max(map(len, out.splitlines())) <= 100


def test_no_command_shows_the_help_and_is_a_mistake(capsys):
    assert main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("usage: forbear ")


@pytest.mark.parametrize(("arguments", "usage", "says"), [
    (["exlpain"], "forbear [", "there is no command 'exlpain'; did you mean 'explain'?"),
    (["xyz", "explain"], "forbear [", "there is no command 'xyz'; choose among demo, "),
    (["demo", "--no-such-option"], "forbear demo [", "unrecognized arguments: --no-such-option"),
    (["explain", "gateway", "batch"], "forbear explain [", "unrecognized arguments: batch"),
    (["explain", "--cap", "x"], "forbear explain [", "argument --cap: invalid float value"),
])  # fmt: skip
def test_a_mistake_is_answered_with_the_usage_of_its_command(arguments, usage, says, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith(f"usage: {usage}")
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
    with pytest.raises(SystemExit) as ended:
        importlib.import_module("forbear.__main__")
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("forbear ")


def test_an_interrupted_command_ends_as_a_shell_expects(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("forbear.cli.parse.run", interrupt)
    assert main(["parse", "Retry-After: 1"]) == 130


def test_a_checkout_that_was_not_installed_has_no_version(monkeypatch, capsys):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == "forbear (not installed)\n"


def test_a_reader_that_has_left_is_einval_on_windows(monkeypatch, tmp_path):
    """``forbear explain | more``, and q: no traceback."""
    with (tmp_path / "out").open("w") as file:

        class Closed(io.StringIO):
            def fileno(self):
                return file.fileno()

            def flush(self):
                raise OSError(errno.EINVAL, "Invalid argument")

        monkeypatch.setattr(sys, "stdout", Closed())
        with pytest.raises(OSError, match="Invalid argument"):
            main(["explain"])
        monkeypatch.setattr(cli, "ON_WINDOWS", True, raising=False)
        assert main(["explain"]) == 0
