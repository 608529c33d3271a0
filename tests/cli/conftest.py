"""Runs the command as a shell does."""

import pytest

from forbear.cli import main


@pytest.fixture
def command(capsys):
    """A function: forbear with these arguments; returns exit status, output and errors."""

    def run(*arguments):
        try:
            status = main(list(arguments))
        except SystemExit as stopped:
            status = stopped.code
        return (status, *capsys.readouterr())

    return run


@pytest.fixture
def mistake(command):
    """A function: what is said in one line of arguments that are a mistake, which is status 2."""

    def run(*arguments):
        status, out, err = command(*arguments)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert err.startswith(f"forbear {arguments[0]}: ")
        return err

    return run
