"""The command line: help, version, mistakes; never a traceback for what a user typed."""

import importlib
import io
import os
import re
import signal
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

import forbear
from forbear.tools.cli import main
from forbear.tools.cli.page import legible

SOURCE = Path(forbear.__file__).parent.parent


# A shell that starts something in the background has it ignore interrupts, and so would our child.
INTERRUPTIBLE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from forbear.tools.cli import main
sys.exit(main())
"""


def start(*arguments, how=("-m", "forbear")):
    """Start the command as a process of its own, where this one's forbear is found."""
    return subprocess.Popen(
        [sys.executable, *how, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONUNBUFFERED": "1"},
    )


def test_help_names_the_commands(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    out = capsys.readouterr().out
    for command in ("dashboards", "demo", "explain", "get", "parse", "simulate"):
        assert re.search(rf"^    {command}\s", out, re.MULTILINE)


def test_version_is_the_installed_one(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    try:
        installed = version("forbear")
    except PackageNotFoundError:  # run from a checkout
        installed = "(not installed)"
    assert capsys.readouterr().out == f"forbear {installed}\n"


def test_no_command_shows_the_help_and_is_a_mistake(capsys):
    assert main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("usage: forbear ")


@pytest.mark.parametrize("arguments", [["exlpain"], ["demo", "--no-such-option"], ["--demo"]])
def test_a_mistyped_command_is_answered_with_the_usage(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith("usage: forbear ")


def test_a_checkout_that_is_not_installed_says_so(monkeypatch, capsys):
    def absent(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", absent)
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == "forbear (not installed)\n"


def test_the_module_runs_the_command(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["forbear", "--help"])
    # Not runpy: pytest loads the modules of an installed plugin by a loader that runpy cannot use.
    monkeypatch.delitem(sys.modules, "forbear.__main__", raising=False)
    with pytest.raises(SystemExit) as stopped:
        importlib.import_module("forbear.__main__")
    assert stopped.value.code == 0
    assert capsys.readouterr().out.startswith("usage: forbear ")


def test_python_m_forbear_is_the_same_command():
    process = start("--help")
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert out.startswith("usage: forbear ")
    assert err == ""


def test_a_reader_that_leaves_is_no_traceback():
    """``forbear demo | head -1``"""
    process = start("demo")
    assert process.stdout.readline().startswith("A server on this machine")
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(timeout=30) == 1


def test_a_pipe_that_nobody_reads_ends_it(monkeypatch):
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert main(["demo"]) == 1


def test_an_interrupt_is_reported_as_a_shell_does(monkeypatch):
    class Interrupted(io.StringIO):
        def write(self, text):
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stdout", Interrupted())
    assert main(["demo"]) == 130


def test_ctrl_c_ends_it_without_a_traceback():
    process = start("demo", how=("-c", INTERRUPTIBLE))
    process.stdout.readline()
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert err == ""
    assert process.returncode == 130


@pytest.mark.parametrize("command", ["dashboards", "demo", "explain", "get", "parse", "simulate"])
def test_every_help_teaches_by_example_and_tells_the_exit_status(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([command, "--help"])
    assert stopped.value.code == 0
    out = capsys.readouterr().out
    assert f"usage: forbear {command}" in out
    assert "exit status: 0 " in out
    if command != "demo":  # which takes nothing
        assert "examples:\n" in out
    assert max(map(len, out.partition("\n\n")[2].partition("\n\n")[0].splitlines())) <= 100


@pytest.mark.parametrize(
    "arguments",
    [
        ["explain", "gateway"],
        ["parse", "Retry-After: 5"],
        ["simulate", "blip", "--policies", "smg"],
    ],
)
def test_an_ascii_terminal_gets_ascii(arguments):
    """×, ± and – are shown as what they look like; nothing is raised."""
    process = subprocess.run(
        [sys.executable, "-m", "forbear", *arguments],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONIOENCODING": "ascii"},
        timeout=60,
        check=False,
    )
    assert (process.returncode, process.stderr) == (0, b"")
    assert process.stdout.isascii()


def test_characters_without_a_likeness_are_question_marks():
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    legible(out, io.StringIO())  # the second one cannot be configured
    out.write("40 – 60 ms · ± 20 % → 語")
    out.flush()
    assert raw.getvalue() == b"40 - 60 ms | +- 20 % -> ?"
    with pytest.raises(UnicodeDecodeError):
        b"\xff".decode("ascii", "forbear")
